"""Train a small model, record its last backward pass and show it.

The layers lie on two simulated devices, so that two threads run nodes, except with --engine native.
The gradients are compared with those of torch's own engine, bit for bit. Writes agviz-demo.agviz
and agviz-demo.svg.

Models: char-lm (a transformer language model that learns Python), conv (a residual convolutional
net), lstm and mlp.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.cli import summary
from agviz.cli.console import stdout_console
from agviz.cli.doctor import require_torch
from agviz.demo import SUBJECTS
from agviz.errors import AgvizError, DrawingError
from agviz.record.capture_level import LEVELS
from agviz.record.options import ENGINE_HELP, engine_asked_for
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.words.units import duration
from agviz_engine.engines import ENGINES, NATIVE
from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from rich.console import Console

    from agviz.demo.session import Comparison, DemoSession, Overhead, Ratio

PLAIN_PROGRESS_LINES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz demo``."""
    parser.add_argument(
        "--model", choices=SUBJECTS, default="char-lm", help="what to train (default: char-lm)"
    )
    parser.add_argument(
        "--plant-nan",
        action="store_true",
        help="give the model a bug whose gradient is NaN in the recorded step",
    )
    parser.add_argument(
        "--no-provenance",
        dest="provenance",
        action="store_false",
        help="do not record which line created each node, and what it saved for backward",
    )
    parser.add_argument(
        "--values",
        choices=LEVELS,
        default="health",
        help="what to record of gradients besides shapes and bytes (default: their health)",
    )
    parser.add_argument("--engine", choices=ENGINES, help=ENGINE_HELP)
    parser.add_argument(
        "--headless", action="store_true", help="do not open the terminal UI at the end"
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=_positive,
        help="training steps (default: what suits the model)",
    )
    parser.add_argument(
        "--output-dir",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="where to write the files (default: here)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Train, record, compare, measure, draw; return 0 where all gradients are equal."""
    require_torch()
    wanted = arguments.engine or engine_asked_for()
    folder: Path = arguments.output_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgvizError(f"the folder {folder} can't be made: {error.strerror}") from None
    path = folder / "agviz-demo.agviz"
    console = stdout_console()
    with Recorder(path):
        pass  # better to know before the training that it can't be written
    with console.status("importing torch"):
        import torch

        from agviz.demo.session import DemoSession

    torch.set_num_threads(1)  # such small tensors are not worth sharing out, and times stay steady
    try:
        session = DemoSession(
            arguments.model,
            steps=arguments.steps,
            plant_nan=arguments.plant_nan,
            values=arguments.values,
            provenance=arguments.provenance,
            engine=wanted,
        )
    except UnsupportedTorchError as error:
        raise AgvizError(str(error)) from None
    if session.engine.why_not_exact:
        console.print(f"! {session.engine.why_not_exact}", markup=False)
    is_native = session.engine.name == NATIVE
    how = "torch's own engine, observed" if is_native else "layers on two simulated devices"
    console.print(f"[bold]{session.subject.title}[/], {how}")
    _train(session, console)
    if session.subject.sample is not None:
        console.print("it now writes:", style="dim")
        console.print(_indented(session.subject.sample()), markup=False)
    console.print(f"step {session.steps}, recorded: loss {session.record(path):.3f}")
    comparison = session.compare()
    with console.status("measuring"):
        overhead = session.measure()
    found = _summarise(path, session, console)
    _show_comparison(comparison, console)
    _show_overhead(overhead, console)
    _draw(path, console)
    _show_next(path, console)
    if comparison.different or not found:
        return 1
    if not arguments.headless and sys.stdin.isatty() and sys.stdout.isatty():
        from agviz.tui.app import run

        return run([path])
    return 0


def _train(session: DemoSession, console: Console) -> None:
    total = session.steps - 1
    if not console.is_terminal:
        for step, loss in enumerate(session.train(), 1):
            if step % max(1, session.steps // PLAIN_PROGRESS_LINES) == 0 or step == 1:
                console.print(f"step {step}/{session.steps}: loss {loss:.3f}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        Remaining(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=total, loss="")
        for loss in session.train():
            progress.update(task, advance=1, loss=f"{loss:.3f}")


def _summarise(path: Path, session: DemoSession, console: Console) -> bool:
    """Print what the trace shows; return whether a planted NaN was found where it is."""
    with Trace.open(path) as trace:
        facts = summary.gather(trace, None, top=5)
    console.print()
    summary.show(facts, console)
    planted = session.subject.planted
    if planted is None:
        return True
    (name,) = (name for name, module in session.subject.model.named_modules() if module is planted)
    if any(finding["first"]["module"] == name for finding in facts["non_finite"]):
        console.print(
            f"[green]✓[/] that is the planted bug: the module {name} divides by a norm, which is"
            " exactly 0 for padding; torch.where keeps 0/0 out of the output, but not out of the"
            " gradient"
        )
        return True
    console.print(f"[red]✗[/] the NaN planted in the module {name} was not found there")
    return False


def _show_comparison(comparison: Comparison, console: Console) -> None:
    total, different = comparison.parameters, comparison.different
    if not different:
        console.print(
            f"[green]✓[/] gradients of all {total} parameters are equal to the native engine's,"
            " bit for bit"
        )
        return
    console.print(
        f"[red]✗[/] gradients of {len(different)} of {total} parameters differ from the native"
        f" engine's: {', '.join(different)}"
    )


def _show_overhead(overhead: Overhead, console: Console) -> None:
    console.print(
        "\n[bold]What recording costs[/] in CPU time, against this model's training on torch's own"
        f" engine: {overhead.steps} steps of each in turn, nothing simulated"
    )
    backward, step = map(duration, (overhead.native_backward_ns, overhead.native_step_ns))
    console.print(f"  backward    {_times(overhead.backward)} torch's {backward}")
    console.print(f"  whole step  {_times(overhead.step)} torch's {step}")
    console.print(f"  the file    {_times(overhead.writing)} a step more, on another thread")
    console.print("These operations are tiny, so that each weighs; the larger, the less it costs.")


def _times(ratio: Ratio) -> str:
    quartiles = f"{ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f}"
    return f"{ratio.median:.2f} x (mostly {quartiles})"


def _draw(path: Path, console: Console) -> None:
    from agviz.export.draw import render_graph

    svg = path.with_suffix(".svg")
    svg.unlink(missing_ok=True)
    with console.status("drawing"), Trace.open(path) as trace:
        try:
            drawing = render_graph(trace, svg)
        except DrawingError as error:
            console.print(f"! {svg} was not drawn: {error}", markup=False)
        else:
            for note in drawing.notes:
                console.print(note, markup=False)


def _show_next(path: Path, console: Console) -> None:
    svg = path.with_suffix(".svg")
    console.print("\n[bold]Next[/]")
    lines = {f"agviz view {path}": "walk through this backward pass"}
    if svg.exists():
        lines[f"open {svg}"] = "its graph, in a browser"
    lines["agviz run your_script.py"] = "record your own training"
    width = max(map(len, lines))
    for command, meaning in lines.items():
        console.print(f"  {command.ljust(width)}  {meaning}", markup=False)


def _indented(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.splitlines())


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps; give 1 or more")
    return int(text)
