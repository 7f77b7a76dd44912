"""Run a script and record its backward passes.

The script is not changed and does not notice: it keeps its arguments, working directory, exit
code, output and __main__. Options of agviz come before the script, those of the script after it.

  agviz run train.py --epochs 2
  agviz run --steps 10:12 -m my_package.train
  agviz run --on nonfinite,exception,signal train.py
  agviz run --ranks 4 train.py

AGVIZ_OUTPUT names the file where --output does not, AGVIZ_CHECK_FORWARD=1 is --check-forward,
AGVIZ_ENGINE is --engine. Where agviz's own engine does not fit this torch, torch's is observed.
A trace of the same name is replaced, any other file is left alone. Where FILE can't be written, or
another process records into it, another place is taken and named on stderr; where there is none,
the program runs without being recorded. A child made by fork or
spawned by multiprocessing that calls backward gets a file of its own.

Where a backward pass hangs, `agviz explain FILE` says what holds it, while the program hangs
as well as after it was killed.

With --live, the debugger opens: it stops at the first backward pass, at breakpoints, on exceptions
and where a gradient becomes non-finite. With --back as well, a pass can go back to an earlier node,
and run again from there with another gradient or in another order. Without --live, `agviz attach
PID` opens the debugger on the program at any time: it listens at a socket that only its own user
can reach, unless --no-listen is given. Backward passes that --steps or --every leave out are not
stopped in.

With --ranks, torchrun starts the program; each rank records into the same folder, which `agviz
explain FOLDER` reads as one recording. `torchrun -m agviz run train.py` and `AGVIZ=1 torchrun
train.py` record each rank beside the others as well.

With --on signal, `kill -USR1 PID` writes what the flight recorder
keeps and prints where every thread is, even while backward hangs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agviz.after_import import after_import
from agviz.cli.debugging import start as start_live
from agviz.cli.doctor import require_torch
from agviz.cli.launch_ranks import OF_RANKS, launch
from agviz.cli.program import Program
from agviz.debugger.launch import CONTROL_FD
from agviz.errors import AgvizError
from agviz.live import MOST_BACK_BYTES, Debugging, line_buffered
from agviz.record.capture_level import LEVELS
from agviz.record.copies import MOST_BYTES
from agviz.record.options import (
    ENGINE_HELP,
    KEPT,
    Options,
    asked_to_check_forward,
    engine_asked_for,
    read_count,
    read_limit,
    read_occasions,
    read_pattern,
    read_repro,
    read_seconds,
    read_size,
    read_steps,
)
from agviz.recording import Recording, default_name, say
from agviz.spawning import record_children
from agviz.words.paths import shown
from agviz_engine.engines import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz run``."""
    parser.usage = "agviz run [options] (script.py | -m module) [args ...]"
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to record (default: agviz-<script>.<pid>.agviz in this folder); with --ranks a"
        " folder (default: agviz-<script>.ranks)",
    )
    parser.add_argument(
        "--ranks",
        metavar="N",
        type=argument(read_count),
        help="have torchrun start the program N times on this machine, as ranks that record into"
        " one folder",
    )
    parser.add_argument(OF_RANKS, dest="of_ranks", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", choices=ENGINES, help=ENGINE_HELP)
    parser.add_argument(
        "--steps",
        metavar="A:B",
        type=argument(read_steps),
        help="record only the backward passes A to B-1, counted from 0; A or B may be left out",
    )
    parser.add_argument(
        "--values",
        choices=LEVELS,
        default="health",
        help="what to record of gradients besides shapes and bytes: their health (default: counts"
        " of NaN, infinities and zeros, min, max, mean, norm), nothing, or in full they themselves",
    )
    parser.add_argument(
        "--max-values-bytes",
        metavar="SIZE",
        type=argument(read_size),
        help="with --values full: go on with their health when so many bytes of gradients are"
        f" recorded (default: {MOST_BYTES // 1024**2}MiB); none that is larger than a sixteenth of"
        " it is",
    )
    parser.add_argument(
        "--repro",
        metavar="NODES",
        type=argument(read_repro),
        help="keep what `agviz repro` needs to run nodes alone: those in whose name, parameter or"
        " module this regular expression is found, or nonfinite: the first of each backward pass"
        " that makes NaN or infinities of what was finite; up to --max-values-bytes in all",
    )
    parser.add_argument(
        "--elements",
        metavar="NODES",
        type=argument(read_pattern),
        help="of nodes in whose name, parameter or module this regular expression is found, keep"
        " where the largest element of what they put out comes from (`agviz explain --element`)",
    )
    parser.add_argument(
        "--no-provenance",
        dest="provenance",
        action="store_false",
        help="do not record which line created each node, and what it saved for backward",
    )
    parser.add_argument(
        "--check-forward",
        action="store_true",
        help="record each torch function that the program calls too, with its line and the health"
        " of what it makes, so that the first one that is not finite, and the line that changed a"
        " tensor, can be named (takes some 50 to 100 microseconds a call)",
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=argument(read_count),
        default=1,
        help="record only one backward pass in N, from the first of --steps on",
    )
    parser.add_argument(
        "--nodes",
        metavar="REGEX",
        type=argument(read_pattern),
        help="record only the events of nodes in whose name, parameter or module this is found;"
        " the graph is recorded whole",
    )
    parser.add_argument(
        "--max-bytes",
        metavar="SIZE",
        type=argument(read_limit),
        help="bound of the file, like 200MB (default: 2GB; none: no bound): it keeps the first"
        " backward passes, the last ones, and those that failed or were not finite; the program"
        " goes on",
    )
    parser.add_argument(
        "--on",
        metavar="OCCASION,...",
        type=argument(read_occasions),
        default=frozenset(),
        help="flight recorder: keep the last backward passes in memory and write them on nonfinite"
        " gradients, on an exception, on the signal SIGUSR1",
    )
    parser.add_argument(
        "--keep",
        metavar="K",
        type=argument(read_count),
        help=f"backward passes that the flight recorder keeps (default: {KEPT})",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=argument(read_seconds),
        help="say on stderr where every thread is when a backward pass has been under way for so"
        " long: what holds it, what waits; a flight recorder writes then, too",
    )
    parser.add_argument(
        "--stop-on-timeout",
        action="store_true",
        help="end the program then, with exit code 124",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="run it in a process of its own, and open the debugger on it in this terminal",
    )
    parser.add_argument(
        "--listen",
        action=argparse.BooleanOptionalAction,
        help="say how `agviz attach PID` debugs the program, which it can at any time; with"
        " --no-listen it can't",
    )
    parser.add_argument(
        "--back",
        action="store_true",
        help="for the debugger: keep what a backward pass needs to go back to an earlier node and"
        " run again from there",
    )
    parser.add_argument(
        "--max-back-bytes",
        metavar="SIZE",
        type=argument(read_size),
        help="with --back: hold at most so many bytes of gradients and saved tensors for that"
        f" (default: {MOST_BACK_BYTES // 1024**2}MiB); the oldest nodes of a pass are let go of",
    )
    parser.add_argument(CONTROL_FD, dest="control", type=int, help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module")
    parser.add_argument("target", metavar="script.py", help="the script, or with -m the module")
    parser.add_argument(
        "arguments", metavar="args", nargs=argparse.REMAINDER, help="the script's own arguments"
    )


def execute(arguments: argparse.Namespace) -> Callable[[], int] | int:
    """Make everything ready and return the program; with --live, debug it."""
    program = Program(arguments.target, arguments.arguments, as_module=arguments.as_module)
    if arguments.live:
        return launch_live(arguments)
    script = f"-m {program.target}" if program.as_module else program.target
    if arguments.ranks is not None and arguments.of_ranks is None:
        return launch_ranks(arguments, script)
    options = read_options(arguments)
    about: dict[str, Any] = {"script": script, "argv": program.arguments}
    recording = Recording(where_to(arguments, default_name(script)), options, **about)
    recording.is_one_of_many = arguments.of_ranks is not None
    if arguments.listen or arguments.control is not None:
        recording.check_debuggable()
    recorder = recording.open_somewhere()
    if recorder is None:
        if arguments.control is not None:
            raise AgvizError("a debugger shows what is recorded, and it can be recorded nowhere")
        return program.run
    if recorder.file.has_replaced:
        say(f"{shown(recorder.path)} was an earlier trace and is replaced")
    debugging = debugging_of(recording, arguments)

    def start() -> None:
        has_started = recording.start_if_possible()
        if debugging is not None:
            debugging.install() if has_started else debugging.stop()

    def run() -> int:
        recording.until_exit()
        after_import("torch", start)
        record_children(recording, **about)
        return program.run()

    return run


def where_to(arguments: argparse.Namespace, default: str) -> Path:
    """The file to record into."""
    if arguments.of_ranks is not None:
        return Path(arguments.of_ranks, default)
    return Path(arguments.output or os.environ.get("AGVIZ_OUTPUT") or default)


def launch_live(arguments: argparse.Namespace) -> int:
    """Debug the program."""
    if arguments.ranks is not None:
        raise AgvizError("--live debugs one process; start the ranks, then: agviz attach PID")
    require_torch()
    read_options(arguments)
    given = list(arguments.given)
    given.remove("--live")
    return start_live(given[1:])


def launch_ranks(arguments: argparse.Namespace, script: str) -> int:
    """Have the program run in several ranks."""
    require_torch()
    read_options(arguments)
    named = arguments.output or os.environ.get("AGVIZ_OUTPUT")
    return launch(arguments.ranks, Path(named) if named else None, script, arguments.given[1:])


def debugging_of(recording: Recording, arguments: argparse.Namespace) -> Debugging | None:
    """What viewers attach to; None: nobody can."""
    if recording.options.on or (arguments.listen is False and arguments.control is None):
        return None
    debugging = Debugging(recording)
    if arguments.control is not None:
        line_buffered()
        if arguments.back:
            most = arguments.max_back_bytes
            debugging.back_bytes = MOST_BACK_BYTES if most is None else most
        debugging.serve(arguments.control)
    elif arguments.listen:
        debugging.listen()
        say(f"to debug this program: agviz attach {os.getpid()}")
    else:
        debugging.listen_now_and_then()
    return debugging


def read_options(arguments: argparse.Namespace) -> Options:
    """The options that the command line names."""
    if arguments.keep is not None and not arguments.on:
        raise AgvizError("--keep is for a flight recorder; say with --on when it writes")
    if arguments.stop_on_timeout and arguments.timeout is None:
        raise AgvizError("--stop-on-timeout is for --timeout; say after how many seconds")
    if arguments.max_values_bytes and arguments.values != "full" and not arguments.repro:
        raise AgvizError(
            "--max-values-bytes is for gradients themselves; say --values full, or --repro"
        )
    if arguments.repro and (arguments.engine or engine_asked_for()) == "native":
        raise AgvizError("--repro needs agviz's own engine; --engine native is torch's, observed")
    check_back(arguments)
    most = arguments.max_values_bytes
    steps: range | None = arguments.steps
    if arguments.every > 1:
        steps = (steps or read_steps(":"))[:: arguments.every]
    return Options(
        steps=steps,
        nodes=arguments.nodes,
        values=arguments.values,
        max_values_bytes=MOST_BYTES if most is None else most,
        repro=arguments.repro or "",
        elements=arguments.elements,
        provenance=arguments.provenance,
        check_forward=arguments.check_forward or asked_to_check_forward(),
        max_bytes=arguments.max_bytes,
        on=arguments.on,
        keep=KEPT if arguments.keep is None else arguments.keep,
        timeout=arguments.timeout,
        stop_on_timeout=arguments.stop_on_timeout,
        engine=arguments.engine or engine_asked_for(),
    )


def check_back(arguments: argparse.Namespace) -> None:
    """Refuse what can't be gone back with."""
    if arguments.max_back_bytes is not None and not arguments.back:
        raise AgvizError("--max-back-bytes is for --back; say that, too")
    if arguments.back and not arguments.live and arguments.control is None:
        raise AgvizError("--back is for the debugger; say --live, too")
    if arguments.back and (arguments.engine or engine_asked_for()) == "native":
        raise AgvizError("--back needs agviz's own engine; --engine native is torch's, observed")


def argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """``read`` as a type for argparse, which reports its errors."""

    def type_(text: str) -> T:
        try:
            return read(text)
        except AgvizError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return type_
