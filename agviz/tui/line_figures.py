"""What is shown of the program's source: its text, and what happened in a pass by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.tui.text import Line


class LineFigures(NamedTuple):
    """What happened in a pass in the nodes that one line made."""

    nodes: tuple[int, ...]
    """In order of their executions; behind them those that have not run."""
    time_ns: int
    """From the start to the end of each, added up."""
    norm: float | None
    """The largest of what they put out, of gradients that are finite; None: not known."""
    is_bad: bool
    """Whether one of them put out something that is not finite."""


@dataclass(frozen=True, eq=False)
class PassFigures:
    """What is known of a pass by now."""

    event_count: int
    """Events of the pass when they were read."""
    lines: Mapping[tuple[str, int], LineFigures]
    """By file and line."""


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of a file of the program."""

    file: str
    lines: Sequence[Line]
    """Empty: the trace does not hold it."""
