"""Checkpoints inside of checkpoints: what they hold is computed once more for each of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.lineage import is_checkpoint
from agviz.analysis.program_calls import last_passes, ops_of_pass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_LEAST_TIMES: Final = 3
"""Of two levels, which save memory once more, each part is computed again twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A line that one backward pass computes again and again for one use."""

    graph_task: int
    frame: Frame | None
    """The line that calls the innermost of the checkpoints."""
    computed: Frame | None
    """The line that is computed again."""
    times: int
    """How often, for each time that the forward ran it."""
    levels: int
    """Checkpoints around it."""

    @property
    def heading(self) -> str:
        """How often what is computed again."""
        what = "a function" if self.computed is None else str(self.computed)
        return (
            f"backward pass {self.graph_task} recomputes {what} {self.times:,} times for each time"
            " that the forward ran it"
        )

    @property
    def paragraph(self) -> str:
        """Why, and what to do."""
        return (
            f"It is inside of {self.levels:,} nested checkpoints. In backward each of them runs"
            " all that is inside again, the inner checkpoints included, so the innermost part runs"
            f" {self.times:,} times more. Checkpoint on one level only (blocks side by side, not"
            " one inside the other), or on two where memory is too small for one."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"{self.computed}: computed again {self.times:,} times in pass {self.graph_task}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "recomputed",
            "graph_task": self.graph_task,
            "computed": None if self.computed is None else str(self.computed),
            "times": self.times,
            "levels": self.levels,
        }


def recomputed(trace: Trace) -> Recomputed | None:
    """A line that the last pass computed again three times or more for each use.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    for task in last_passes(trace, 1):
        first: Counter[object] = Counter()
        again: Counter[object] = Counter()
        of_first: dict[object, ForwardOpRow] = {}
        for op in ops_of_pass(trace, task.id):
            key = op.name, op.module, op.frame
            if not any(map(is_checkpoint, op.stack)):
                continue
            if op.recomputed_in < 0:
                first[key] += 1
                of_first.setdefault(key, op)
            else:
                again[key] += 1
        most = max(of_first, key=lambda each: again[each] // first[each], default=None)
        if most is None:
            continue
        times, calls = again[most] // first[most], _calls(of_first[most].stack)
        if times >= _LEAST_TIMES and len(calls) > 1:
            return Recomputed(
                graph_task=task.id,
                frame=calls[-1],
                computed=of_first[most].frame,
                times=times,
                levels=len(calls),
            )
    return None


def _calls(stack: Sequence[Frame]) -> list[Frame]:
    """Lines of the user that call a checkpoint, the outermost first."""
    found = []
    caller: Frame | None = None
    for frame in stack:
        if not frame.hidden:
            caller = frame
        elif caller is not None and is_checkpoint(frame):
            found.append(caller)
            caller = None
    return found
