"""Why a loss is NaN or infinite although no gradient says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from agviz.analysis.graph_blame import began
from agviz.analysis.measures import bad
from agviz.analysis.patterns.forward import of_blame
from agviz.analysis.place import backward_pass, place
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agviz.analysis.blame import Blame
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow, SavedHealthRow

    _Rule: TypeAlias = Callable[[NodeRow, Mapping[str, SavedHealthRow]], "Why | None"]

_NO_NUMBERS: Final = re.compile(r"^(?:0|\[.*\b0\b.*\])$")


class Why(NamedTuple):
    """Which node made a loss non-finite, and how."""

    node: NodeRow
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteLoss:
    """A tensor on which backward was called that is not finite."""

    graph_task: int
    backward_pass: str
    """Which one that is, in words."""
    health: Health
    node: NodeRow
    """The node of the graph that made the tensor."""
    why: Why | None
    """What had been saved says so; None: it does not."""
    blame: Blame | None
    """The function of the forward with which it began; None: the forward was not recorded, or
    nothing in it was non-finite."""
    is_recorded: bool
    """Whether the forward was recorded."""
    call: Frame | None
    """The line that called backward."""
    later: int
    """Number of later passes whose loss is not finite."""

    @property
    def kind(self) -> str:
        """``NaN`` or ``infinite``."""
        return "NaN" if self.health.nan else "infinite"

    @property
    def frame(self) -> Frame | None:
        """The line to look at: where it began, as far as that is known; else the loss's own."""
        if self.why is not None and self.why.node.frame is not None:
            return self.why.node.frame
        if self.blame is not None and self.blame.op.frame is not None:
            return self.blame.op.frame
        return self.node.frame or self.call

    @property
    def heading(self) -> str:
        """Of which pass the loss is what."""
        return f"the loss of {self.backward_pass} is {self.kind}"

    @property
    def paragraph(self) -> str:
        """Why, as far as it is known, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        if self.why is not None:
            yield f"{place(self.why.node)}: {self.why.reason}. {self.why.remedy}"
        elif self.blame is not None:
            op, found = self.blame.op, of_blame(self.blame)
            inside = f" of {op.module}" if op.module else ""
            yield f"It began in the forward, in {op.name}{inside} ({found.pattern}):"
            yield f"{found.reason}. {found.remedy}"
        else:
            yield f"{place(self.node)} made it; why is not known."
            if not self.is_recorded:
                yield "Record with --check-forward to see which function gave it first."
        yield "Gradients can be finite all the same: what made it so may have no gradient."
        if self.later:
            passes = "backward pass" if self.later == 1 else "backward passes"
            yield f"So is the loss of {self.later:,} later {passes}."

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"root of backward pass {self.graph_task}: node {self.node.index} ({self.node.name})"
        yield from (f"created at {frame}" for frame in self.node.stack if not frame.hidden)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "loss",
            "graph_task": self.graph_task,
            "value": self.kind,
            "node": self.node.index,
            "name": self.node.short_name,
            "reason": None if self.why is None else self.why.reason,
            "remedy": None if self.why is None else self.why.remedy,
            "function": None if self.blame is None else self.blame.op.name,
            "line": None if self.frame is None else str(self.frame),
            "later_graph_tasks": self.later,
        }


def nonfinite_loss(trace: Trace, graph_task: int, *, later: int = 0) -> NonFiniteLoss | None:
    """Why the loss of a graph task is not finite; None: it is, or it was not looked at.

    Args:
        trace: the trace.
        graph_task: the call of backward or grad.
        later: number of later ones of which it is not finite either.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    wrong = next((root for root in trace.roots(graph_task) if bad(root.health)), None)
    if wrong is None:
        return None
    node = trace.node(graph_task, 0)
    if node.short_name == "GraphRoot" and trace.graph_task(graph_task).roots > 1:
        edges = {edge.output: edge.consumer for edge in trace.edges_from(graph_task, 0)}
        node = trace.node(graph_task, edges.get(wrong.number, 0))
    blamed = began(trace, graph_task, node.index)
    rules = _RULES if blamed is not None else (*_RULES, _nonfinite_operand)
    return NonFiniteLoss(
        graph_task=graph_task,
        backward_pass=backward_pass(trace, graph_task),
        health=wrong.health,
        node=node,
        why=_why(trace, graph_task, rules),
        blame=blamed,
        is_recorded=trace.meta.check_forward,
        call=visible(trace.call_site(graph_task)),
        later=later,
    )


def _why(trace: Trace, graph_task: int, rules: Sequence[_Rule]) -> Why | None:
    saved: dict[int, dict[str, SavedHealthRow]] = {}
    for row in trace.root_saved(graph_task):
        saved.setdefault(row.node, {})[row.name] = row
    for index, rows in saved.items():
        node = trace.node(graph_task, index)
        for rule in rules:
            if (found := rule(node, rows)) is not None:
                return found
    return None


def _no_targets(node: NodeRow, rows: Mapping[str, SavedHealthRow]) -> Why | None:
    weight, ignored = rows.get("total_weight"), rows.get("ignore_index")
    if not node.short_name.startswith("NllLoss") or weight is None or weight.health is None:
        return None
    if weight.health.zero != weight.health.numbers:
        return None
    index = "" if ignored is None or ignored.value is None else f" ({ignored.value})"
    target = rows.get("target")
    known = target.health if target is not None else None
    if known is not None and not known.numel:
        return Why(
            node,
            "there is no target, so that it is a mean over nothing, 0 / 0",
            "Look at what selects them, or leave such batches out.",
        )
    if known is not None and ignored is not None and known.min == known.max is not None:
        is_ignored = f"{known.min:.0f}" == ignored.value
        reason = "every target is ignore_index" if is_ignored else "the weight of every target is 0"
    else:
        reason = "every target is ignore_index or has weight 0"
    return Why(
        node,
        f"{reason}{index if 'ignore_index' in reason else ''}, so that it is a mean over nothing,"
        " 0 / 0",
        "Leave such batches out, or divide a sum (reduction='sum') by max(1, number of targets).",
    )


def _empty_mean(node: NodeRow, rows: Mapping[str, SavedHealthRow]) -> Why | None:
    if not node.short_name.startswith("MeanBackward"):
        return None
    sizes = [row for name, row in rows.items() if "sym_numel" in name or "sym_sizes" in name]
    if not any(row.value is not None and _NO_NUMBERS.match(row.value) for row in sizes):
        return None
    return Why(
        node,
        "it is a mean over no numbers, 0 / 0",
        "Leave out what is empty, or divide a sum by max(1, count).",
    )


def _nonfinite_operand(node: NodeRow, rows: Mapping[str, SavedHealthRow]) -> Why | None:
    wrong = next((row for row in rows.values() if bad(row.health)), None)
    if wrong is None:
        return None
    of = f" ({wrong.parameter})" if wrong.parameter else ""
    return Why(
        node,
        f"what it had saved as {wrong.name}{of} is not finite, so the forward was so before",
        "Recorded with --check-forward, the function that gave it first may be seen.",
    )


_RULES: Final[tuple[_Rule, ...]] = (_no_targets, _empty_mean)
