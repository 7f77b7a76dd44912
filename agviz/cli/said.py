"""Verdicts as the verbs print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.cli.console import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from agviz.analysis.verdict import Verdict

_MOST_WORDS: Final = 110
"""Of an answer that is read aloud, but for the lines of code."""


def show(found: Sequence[Verdict], console: Console, *, verbose: bool = False) -> None:
    """Print verdicts, one below the other; of later ones the heading suffices where all are long.

    Args:
        found: them.
        console: where to.
        verbose: print what they rest on as well.
    """
    words, is_all = 0, True
    for number, verdict in enumerate(found):
        if number:
            console.print()
        words += len(f"{verdict.heading} {verdict.line} {verdict.paragraph}".split())
        outcome = verdict.outcome
        write(f"{outcome.glyph} {verdict.heading}", console, indent=0, style=outcome.style)
        write(verdict.line, console)
        write(verdict.source, console, indent=6, style="cyan")
        if verbose or not number or words <= _MOST_WORDS:
            write(verdict.paragraph, console)
        elif verdict.paragraph:
            is_all = False
        if verbose and verdict.details:
            console.print()
            for line in verdict.details:
                write(line, console)
    if not is_all:
        write("agviz explain --verbose, or --json, says more of these.", console, indent=0)
