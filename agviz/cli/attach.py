"""Open the debugger on a program that runs already.

The program was started with `agviz run`, or has called agviz.set_trace(). It is paused; when the
debugger is left, however that happens, it runs on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.cli.debugging import attach

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz attach``."""
    parser.add_argument(
        "target", metavar="PID|SOCKET", help="number of the process, or the socket it listens at"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Open the terminal UI; return its exit code."""
    return attach(arguments.target)
