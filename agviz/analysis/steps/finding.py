"""One thing that was found in the steps of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.rows import Frame
    from agviz.traces.step_facts import HeldParameterRow

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinding:
    """What is wrong with a run, besides one backward pass."""

    kind: str
    """In a word or two: ``kept``, ``replaced``, ``diverges``."""
    heading: str
    frame: Frame | None
    """The line to look at."""
    paragraph: str
    """What was seen, and what to do."""
    evidence: tuple[str, ...] = ()
    """What it rests on, line by line."""
    first_pass: int | None = None
    """The first backward pass of which what is wrong there is a consequence; None: none is."""
    graph_task: None = None
    """It is about the whole recording."""

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield from self.evidence

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": f"step: {self.kind}",
            "heading": self.heading,
            "line": None if self.frame is None else str(self.frame),
            "paragraph": self.paragraph,
            "first_graph_task": self.first_pass,
        }


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c and 4 more``."""
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def parameters(names: Sequence[str]) -> str:
    """``1 parameter (a)``, ``5 parameters (a, b, c and 2 more)``."""
    return f"{plural(len(names), 'parameter')} ({listed(names)})"


def names_of(rows: Sequence[HeldParameterRow]) -> list[str]:
    """The names of what an optimizer holds; the shape of what has none."""
    return [row.name or f"one of shape {list(row.shape)}" for row in rows]
