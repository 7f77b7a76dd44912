"""Open recorded traces in the terminal.

Shows what each thread did in time, the nodes in the order in which they ran, every event, and the
dependency counts and queues at any moment. Press ? in it for the keys.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz view``."""
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a recorded trace")


def execute(arguments: argparse.Namespace) -> int:
    """Open the terminal UI; return its exit code."""
    for path in arguments.files:
        with Trace.open(path):
            pass
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AgvizError(
            "view needs a terminal, and this is none; use `agviz summary` or `agviz export` instead"
        )
    from agviz.tui.app import run

    return run(arguments.files)
