"""Say why gradients are NaN or infinite, why backward failed, or what holds it.

Names the first gradient that was not finite, in causal order: its node, what went in and what came
out, the line of the forward, the known pattern that fits and what to do, and what it reached.

Of a backward pass that failed for a saved tensor: what had been modified and by which line, or
which backward pass had gone through the graph before. Of one that has not ended, in a program that
hangs or was killed: which thread is in which node, hook or callback, and what waits for it.

Exits with 1 where a non-finite gradient reached a parameter, or a backward pass failed so or hangs,
else with 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.analysis.explanation import explain
from agviz.analysis.failure import failure, is_wrong
from agviz.analysis.source import source_line
from agviz.cli.console import stdout_console, write
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from agviz.analysis.explanation import Explanation
    from agviz.analysis.failure import Failure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz explain``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a recorded trace")
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="this backward pass (default: the first that went wrong)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="also what the answer rests on, line by line"
    )
    parser.add_argument("--json", action="store_true", help="everything, for other programs")


def execute(arguments: argparse.Namespace) -> int:
    """Print the answer; return 1 where gradients of parameters are not finite, else 0."""
    with Trace.open(arguments.file) as trace:
        wrong = failure(trace, arguments.graph_task)
        values = trace.meta.values != "none" or wrong is None
        found = explain(trace, arguments.graph_task) if values else None
        name = trace.path
    if arguments.json:
        answers = {
            "explanation": None if found is None else found.as_json(),
            "failure": None if wrong is None else wrong.as_json(),
        }
        print(json.dumps({"file": name, **answers}, indent=2))
    else:
        console = stdout_console()
        if wrong is not None:
            _show_failure(wrong, console, verbose=arguments.verbose)
            if found is not None:
                console.print()
        if wrong is None or found is not None:
            show(found, console, verbose=arguments.verbose)
    return int((found is not None and not found.is_harmless) or is_wrong(wrong))


def _show_failure(wrong: Failure, console: Console, *, verbose: bool) -> None:
    style = "bold red" if is_wrong(wrong) else "bold"
    write(f"{'✗ ' if is_wrong(wrong) else ''}{wrong.heading}", console, indent=0, style=style)
    if wrong.frame is not None:
        write(str(wrong.frame), console)
        write(source_line(wrong.frame), console, indent=6, style="cyan")
    write(wrong.paragraph, console)
    if verbose:
        console.print()
        for line in wrong.details():
            write(line, console)


def show(found: Explanation | None, console: Console, *, verbose: bool = False) -> None:
    """Print an answer.

    Args:
        found: what :func:`agviz.analysis.explanation.explain` gave.
        console: where to.
        verbose: print what it rests on as well.
    """
    if found is None:
        console.print("[green]✓[/] no non-finite gradient")
        return
    if found.is_harmless:
        console.print("[green]✓[/] no non-finite gradient reached a parameter")
        write(found.aside, console)
    else:
        write(f"✗ {found.heading}", console, indent=0, style="bold red")
        write(found.line or "", console)
        write(found.source, console, indent=6, style="cyan")
        write(found.paragraph, console)
    if verbose:
        console.print()
        for line in found.details():
            write(line, console)
