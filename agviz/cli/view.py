"""Open recorded traces in the terminal.

Shows the graph in the order in which its nodes ran, what each thread did in time, every event, and
the dependency counts and queues at any moment. Press ? in it for the keys.

Of two files, the first backward passes that differ are shown beside each other; escape leads to the
files, and p lists the passes of both.

Of a folder with a trace for each rank of a distributed program, all ranks are shown on one axis of
time; enter opens one of them. Of any other folder all traces in it are opened. A trace that is
still being written grows while it is shown. --web serves the same in a browser.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import AgvizError, TraceError
from agviz.ranks.folder import Folder
from agviz.traces.reader import Trace
from agviz.words.units import plural

if TYPE_CHECKING:
    import argparse

_SERVED = "TEXTUAL_DRIVER"
"""Set by textual-serve for the program that it runs behind a browser."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz view``."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a recorded trace, or a folder of them"
    )
    parser.add_argument("--web", action="store_true", help="serve it in a browser, on this machine")
    parser.add_argument(
        "--port", metavar="N", type=int, default=8000, help="of --web (default: 8000)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Open the terminal UI; return its exit code."""
    paths: list[Path] = []
    notes: list[str] = []
    ranks = _ranks(arguments.files, notes)
    for path in () if ranks else arguments.files:
        if path.is_dir():
            _look_through(path, paths, notes)
        else:
            paths.append(path)
            _try(path)
    if arguments.web:
        return _serve(arguments)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not is_terminal and _SERVED not in os.environ:
        raise AgvizError(
            "view needs a terminal, and this is none; use `agviz summary` or `agviz export` instead"
        )
    gc.disable()  # run() enables it: looks at what is imported take 50 ms of CPU time
    if ranks:
        from agviz.tui.ranks_app import run_ranks

        return run_ranks(arguments.files[0], notes=notes)
    from agviz.tui.app import run

    return run(paths, lists=len(paths) > len(arguments.files), notes=notes)


def _ranks(files: list[Path], notes: list[str]) -> bool:
    """Whether it is a folder of ranks; adds what is to be said of it."""
    if len(files) != 1 or not files[0].is_dir():
        return False
    try:
        folder = Folder.open(files[0])
    except TraceError:
        return False
    notes += folder.unreadable.values()
    beside = len(folder.older) + len(folder.others)
    if beside:
        traces = plural(beside, "trace is", "traces are")
        notes.append(f"{traces} left out: of earlier runs, or of no rank")
    return True


def _look_through(folder: Path, paths: list[Path], notes: list[str]) -> None:
    """Add the traces of a folder, and why some can't be opened."""
    found = sorted(folder.glob("*.agviz"), key=_by_number)
    readable = []
    for path in found:
        try:
            _try(path)
        except TraceError as error:
            notes.append(str(error))
        else:
            readable.append(path)
    if not readable:
        why = f": {notes[0]}" if notes else "; its name would end in .agviz"
        raise AgvizError(f"{folder} holds no trace that can be opened{why}")
    paths += readable


def _by_number(path: Path) -> list[tuple[int, str]]:
    """So that rank10 comes after rank9."""
    words = "".join(c if c.isdecimal() else f" {c} " for c in path.name).split()
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]


def _try(path: Path) -> None:
    with Trace.open(path):
        pass


def _serve(arguments: argparse.Namespace) -> int:
    """Serve the terminal UI in a browser until it is interrupted."""
    try:
        from agviz.tui.serving import serve
    except ModuleNotFoundError as error:
        raise AgvizError(
            "view --web needs textual-serve; install it with: pip install 'agviz[web]'"
        ) from error
    files = [str(path.absolute()) for path in arguments.files]
    serve([sys.executable, "-m", "agviz", "view", *files], arguments.port)
    return 0
