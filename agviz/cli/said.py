"""Verdicts as the verbs print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.cli.console import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from agviz.analysis.verdict import Verdict


def show(found: Sequence[Verdict], console: Console, *, verbose: bool = False) -> None:
    """Print verdicts, one below the other.

    Args:
        found: them.
        console: where to.
        verbose: print what they rest on as well.
    """
    for number, verdict in enumerate(found):
        if number:
            console.print()
        outcome = verdict.outcome
        write(f"{outcome.glyph} {verdict.heading}", console, indent=0, style=outcome.style)
        write(verdict.line, console)
        write(verdict.source, console, indent=6, style="cyan")
        write(verdict.paragraph, console)
        if verbose and verdict.details:
            console.print()
            for line in verdict.details:
                write(line, console)
