"""What is shown of the program's source: its text, and what happened in a pass by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.analysis.pass_reading import NodeFigures
    from agviz.tui.text import Line


@dataclass(frozen=True, eq=False)
class PassFigures:
    """What is known of a pass by now."""

    event_count: int
    """Events of the pass when they were read."""
    lines: Mapping[tuple[str, int], NodeFigures]
    """By file and line."""


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of a file of the program."""

    file: str
    lines: Sequence[Line]
    """Empty: the trace does not hold it."""
