"""Run a script under agviz's engine and record its backward passes.

The script is not changed and does not notice: it keeps its arguments, working directory, exit
code, output and __main__. Options of agviz stand before the script, those of the script after it.

  agviz run train.py --epochs 2
  agviz run --steps 10:12 -m my_package.train

AGVIZ_OUTPUT names the file where --output does not. A trace of the same name is replaced, any
other file is left alone.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.cli.console import backward_passes
from agviz.cli.doctor import require_torch
from agviz.cli.program import Program, after_import
from agviz.trace.measured import LEVELS
from agviz.trace.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.trace.measured import Values
    from agviz.trace.recorder import Recorder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz run``."""
    parser.usage = (
        "agviz run [--output FILE] [--steps A:B] [--values LEVEL]"
        " [--no-provenance] (script.py | -m module) [args ...]"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to record (default: agviz-<script>.<pid>.agviz in this folder)",
    )
    parser.add_argument(
        "--steps",
        metavar="A:B",
        type=steps,
        help="record only the backward passes A to B-1, counted from 0; A or B may be left out",
    )
    parser.add_argument(
        "--values",
        choices=LEVELS,
        default="health",
        help="what to record of gradients besides shapes and bytes: their health (default: counts"
        " of NaN, infinities and zeros, min, max, mean, norm), or nothing",
    )
    parser.add_argument(
        "--no-provenance",
        dest="provenance",
        action="store_false",
        help="do not record which line created each node, and what it saved for backward",
    )
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module")
    parser.add_argument("target", metavar="script.py", help="the script, or with -m the module")
    parser.add_argument(
        "arguments", metavar="args", nargs=argparse.REMAINDER, help="the script's own arguments"
    )


def execute(arguments: argparse.Namespace) -> Callable[[], int]:
    """Make everything ready and return the program."""
    program = Program(arguments.target, arguments.arguments, as_module=arguments.as_module)
    require_torch()
    path: Path = arguments.output or Path(
        os.environ.get("AGVIZ_OUTPUT") or f"agviz-{program.name}.{os.getpid()}.agviz"
    )
    recording = Recording(
        path, program, arguments.steps, arguments.values, provenance=arguments.provenance
    )

    def run() -> int:
        recording.begin()
        return program.run()

    return run


class Recording:
    """The file a program is recorded into, from before its first line to after its last.

    Raises AgvizError where the file can't be written.
    """

    def __init__(
        self,
        path: Path,
        program: Program,
        steps: range | None,
        values: Values,
        *,
        provenance: bool,
    ) -> None:
        from agviz.trace.names import Names
        from agviz.trace.provenance import Provenance
        from agviz.trace.recorder import Recorder

        replaced = path.is_file()
        self.path = path
        self.names = Names()
        self.provenance = Provenance() if provenance else None
        self.values = values
        self.recorder: Recorder = Recorder(
            path,
            names=self.names,
            provenance=self.provenance,
            steps=steps,
            values=values,
            script=f"-m {program.target}" if program.as_module else program.target,
            argv=program.arguments,
        )
        if replaced:
            _say(f"{path} was an earlier trace and is replaced")

    def begin(self) -> None:
        """Install the engine as soon as the program has imported torch, until it exits.

        Python runs exit handlers in reverse order and after the program's threads have ended, so
        this one comes after all of the program's own.
        """
        atexit.register(self._finish, os.getpid())
        after_import("torch", self._install)

    def _install(self) -> None:
        import agviz_engine

        try:
            agviz_engine.install(self.recorder, nonfinite_check=self.values != "none")
        except agviz_engine.UnsupportedTorchError as error:
            _say(f"{error}; the program goes on without being recorded")
            return
        self.names.start()
        if self.provenance is not None:
            self.provenance.start()

    def _finish(self, pid: int) -> None:
        if os.getpid() != pid:
            return  # a forked child that left through Python's exit
        self.recorder.close()
        _say(_outcome(self.path))


def _outcome(path: Path) -> str:
    from agviz.errors import TraceError
    from agviz.trace.reader import Trace

    try:
        with Trace.open(path) as trace:
            tasks = trace.graph_tasks
            stopped = trace.meta.stopped
    except TraceError as error:
        return str(error)
    if not tasks:
        return f"no backward pass was recorded in {path}"
    passes = backward_passes(len(tasks), sum(task.parent >= 0 for task in tasks))
    until = f" until recording stopped ({stopped})" if stopped else ""
    return f"recorded {passes} in {path}{until}; to look at it: agviz view {path}"


def _say(sentence: str) -> None:
    print(f"agviz: {clean(sentence)}", file=sys.stderr)


def steps(text: str) -> range:
    """The range that ``A:B`` names on the command line; raises argparse's error for others."""
    match = re.fullmatch(r"(\d*):(\d*)", text)
    first, last = (int(n) if n else None for n in match.groups()) if match else (None, None)
    wanted = range(first or 0, sys.maxsize if last is None else last)
    if not match or not wanted:
        raise argparse.ArgumentTypeError(f"{text!r} is no range; write it like 10:12, 10: or :2")
    return wanted
