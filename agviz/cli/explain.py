"""Say why gradients are NaN or infinite.

Names the first gradient that was not finite, in causal order: its node, what went in and what came
out, the line of the forward, the known pattern that fits and what to do, and what it reached.
Exits with 1 where a non-finite gradient reached a parameter, else with 0.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.analysis.explanation import explain
from agviz.cli.console import stdout_console
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from agviz.analysis.explanation import Explanation


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
        found = explain(trace, arguments.graph_task)
        name = trace.path
    if arguments.json:
        answer = None if found is None else found.as_json()
        print(json.dumps({"file": name, "explanation": answer}, indent=2))
    else:
        show(found, stdout_console(), verbose=arguments.verbose)
    return int(found is not None and not found.is_harmless)


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
        _print(found.aside, console)
    else:
        _print(f"✗ {found.heading}", console, indent=0, style="bold red")
        _print(found.line or "", console)
        _print(found.source, console, indent=6, style="cyan")
        _print(found.paragraph, console)
    if verbose:
        console.print()
        for line in found.details():
            _print(line, console)


def _print(text: str, console: Console, *, indent: int = 2, style: str = "") -> None:
    from rich.text import Text

    for line in textwrap.wrap(text, max(20, console.width - indent), break_on_hyphens=False):
        console.print(Text(" " * indent + line, style=style))
