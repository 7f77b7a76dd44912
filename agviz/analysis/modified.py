"""Who modified a tensor that a node had saved, and what had been saved."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.analysis.place import described, place
from agviz.analysis.put_away import carried_variable
from agviz.analysis.two_graphs import (
    called_at,
    carried_line,
    earlier_passes,
    entry_before,
    is_made_again,
    meeting,
    shared_nodes,
)
from agviz.traces.rows import visible
from agviz.words.shapes import write_shape
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import (
        ForwardOpRow,
        ForwardTensorRow,
        Frame,
        NodeRow,
        OptimizerStepRow,
        VersionErrorRow,
    )

_INPLACE: Final = re.compile(r"(?:^|\.)(?:__i(\w+)__|(\w+[a-z0-9])_)$")
_AFTER_STEP: Final = (
    "An optimizer's step has to come after the last backward pass through the forward that used the"
    " old weights; else run the forward again after the step."
)
_RENORMALISE: Final = frozenset({"embedding", "embedding_bag"})
"""Functions that write to their weight for ``max_norm`` only."""
_RECORD: Final = "To learn which line modified it, record with --check-forward."


class CarriedOn(NamedTuple):
    """What an earlier pass of the same line left, and kept the graph of."""

    first: int
    """The last graph task that went through the node before."""
    entry: tuple[NodeRow, NodeRow]
    """The node through which the later graph comes into its graph, and the first that it meets."""
    frame: Frame | None
    """The line that made what is carried on, as :func:`carried_line` gives it."""
    name: str
    """How the program calls that; empty: the line does not show it."""

    @property
    def sentence(self) -> str:
        """Which pass kept its graph, and where the later one leads into it."""
        return (
            f"Backward pass {self.first}, called by the same line with retain_graph=True, went"
            f" through it already: the graphs meet where {meeting(self.entry, self.frame)}."
        )

    @property
    def remedy(self) -> str:
        """How to carry it on."""
        return f"Carry {self.name or 'that'} over by detach(), without retain_graph=True."

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "graph_task": self.first,
            "entry": [node.index for node in self.entry],
            "line": None if self.frame is None else str(self.frame),
        }


class StepBetween(NamedTuple):
    """A step of an optimizer after the forward that made a node, before the pass that ran it."""

    optimizer: str
    """Name of its class."""
    frame: Frame | None
    """The line that called its first step."""

    def as_json(self) -> dict[str, str | None]:
        """The same as a function that modified something."""
        line = None if self.frame is None else str(self.frame)
        return {"name": f"{self.optimizer}.step", "line": line, "module": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class InplaceModification:
    """A node could not use what it had saved: an inplace operation had modified it."""

    graph_task: int
    """That failed."""
    node: NodeRow
    """Which had saved it."""
    saved: VersionErrorRow | None
    """What had been modified; None where that is not known."""
    message: str
    """Torch's."""
    changes: tuple[ForwardOpRow, ...]
    """The torch functions that modified it, in order; empty where that was not recorded."""
    is_recorded: bool
    """Whether the forward was recorded (``check_forward``)."""
    has_stepped: bool
    """Whether an optimizer had stepped since the node was made, or may have."""
    step: StepBetween | None
    """The step that wrote to it, where that is not among ``changes``; None: not known."""
    last: NodeRow | None
    """The node of the last operation on it that autograd recorded; None where it is not known."""
    carried: CarriedOn | None = None
    """What leads into the graph of an earlier pass; None: nothing that is carried on does."""

    @property
    def frame(self) -> Frame | None:
        """The line to look at.

        The line that made what is carried on into the next pass, where that is seen; else the first
        that modified it; else the one that made the node.
        """
        if self.carried is not None and self.carried.frame is not None:
            return self.carried.frame
        found = next((op.frame for op in self.changes if op.frame is not None), None)
        if found is None and self.step is not None:
            found = self.step.frame
        return found or self.node.frame

    @property
    def heading(self) -> str:
        """What happened, and where."""
        what = f"what {place(self.node)} had saved"
        if self.saved is None:
            what = f"found in {place(self.node)}"
        return f"modified by an inplace operation, {what}"

    @property
    def paragraph(self) -> str:
        """What was modified by whom, and what to do."""
        carried = [] if self.carried is None else [self.carried.sentence]
        return " ".join([*self._what(), *self._who(), *carried, self._remedy()])

    def _what(self) -> Iterator[str]:
        saved = self.saved
        if saved is None:
            yield (
                f"It was raised in {described(self.node)}, and what is known of nothing that this"
                f" node had saved fits: {self.message}"
            )
            return
        name = f" as {saved.name}" if saved.name else ""
        what = f"a {saved.dtype} tensor" if saved.shape is None else _sized(saved)
        memory = f", memory of the parameter {saved.parameter}," if saved.parameter else ""
        yield (
            f"{described(self.node)} had saved {what}{name}{memory} at version {saved.expected},"
            f" and found it at version {saved.version} when it ran."
        )

    def _who(self) -> Iterator[str]:
        if self.changes:
            op = self.changes[0]
            inside = f" in {op.module}" if op.module else ""
            line = f" at {op.line}" if op.line else ""
            yield f"{op.name}{inside} modified it{line}{self._through(op)}."
            if more := len(self.changes) - 1:
                yield f"{plural(more, 'more operation')} modified it after that."
        elif self.step is not None:
            line = "" if self.step.frame is None else f" at {self.step.frame}"
            wrote = f"The step of {self.step.optimizer}{line} wrote to it"
            when = ": it came after the forward that made the node, and before this pass."
            yield f"{wrote}{when if self.carried is None else '.'}"
        elif self.is_recorded:
            yield "No torch function of the recorded forward modified it."
        elif self.saved is not None:
            if self.last is not None:
                yield f"The last operation that autograd recorded on it made {described(self.last)}"
                yield "and may be the one."
            yield _RECORD

    def _through(self, op: ForwardOpRow) -> str:
        """How it did, where it was given a tensor of which a part was saved."""
        given = op.inputs[0].shape if op.inputs else None
        saved = None if self.saved is None else self.saved.shape
        if given is None or saved is None or math.prod(given) <= math.prod(saved):
            return ""
        return f", by writing to a tensor of {write_shape(given)}, of which it is a view"

    def _remedy(self) -> str:
        if self.carried is not None:
            return self.carried.remedy
        op = self.changes[0] if self.changes else None
        if self.step is not None or _is_step(op):
            return _AFTER_STEP
        if op is None and self.saved is not None and self.saved.parameter:
            is_step = f"{_AFTER_STEP} If no step did it"
            none = (
                "No optimizer had stepped since that forward: something else wrote to it, or a hook"
            )
            other = "a clamp, a copy into it or an initialisation belongs after the backward pass"
            return f"{is_step if self.has_stepped else none}: {other}."
        return _other_than(op)

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        node = f"node {self.node.index} ({self.node.name})"
        yield f"failed: {node} of backward pass {self.graph_task}"
        for frame in self.node.stack:
            if not frame.hidden:
                yield f"created at {frame}"
        for op in self.changes:
            arguments = f"({op.arguments})" if op.arguments else ""
            yield f"modified by {op.name}{arguments} at {op.line or 'a line that is not known'}"
        if self.step is not None:
            line = self.step.frame or "a line that is not known"
            yield f"modified by the step of {self.step.optimizer} at {line}"
        if self.carried is not None:
            yield f"backward pass {self.carried.first} went through the same node"
        yield f"torch says: {self.message}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "modified",
            "graph_task": self.graph_task,
            "node": self.node.index,
            "name": self.node.short_name,
            "module": self.node.module,
            "line": self.node.line,
            "saved": None if self.saved is None else self.saved._asdict(),
            "modified_by": [
                *({"name": op.name, "line": op.line, "module": op.module} for op in self.changes),
                *([] if self.step is None else [self.step.as_json()]),
            ],
            "last_recorded": None if self.last is None else self.last.index,
            "carried_on": None if self.carried is None else self.carried.as_json(),
            "forward_recorded": self.is_recorded,
            "message": self.message,
        }


def _sized(saved: VersionErrorRow) -> str:
    return f"a {saved.dtype} tensor of shape {write_shape(saved.shape or ())}"


def _is_step(op: ForwardOpRow | None) -> bool:
    """Whether an optimizer of torch called it."""
    return op is not None and any("torch/optim/" in frame.file for frame in op.stack)


def modified(trace: Trace, graph_task: int, node: NodeRow, message: str) -> InplaceModification:
    """Who modified what a node had saved.

    Args:
        trace: the trace.
        graph_task: that failed.
        node: its node that failed.
        message: of the exception.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    saved = next((row for row in trace.version_errors(graph_task) if row.node == node.index), None)
    changes = () if saved is None else _changes(trace, graph_task, node, saved)
    return InplaceModification(
        graph_task=graph_task,
        node=node,
        saved=saved,
        message=message,
        changes=changes,
        is_recorded=bool(trace.forward_ops(limit=1)),
        has_stepped=any(later is not False for _, later in _steps_before(trace, graph_task, node)),
        step=None if saved is None or changes else _step_between(trace, graph_task, node, saved),
        last=None if saved is None or changes or saved.parameter else _last(trace, node, saved),
        carried=_carried(trace, graph_task, node),
    )


def _carried(trace: Trace, graph_task: int, node: NodeRow) -> CarriedOn | None:
    """What leads from a pass into the graph that an earlier pass of the same line kept.

    The line that made it has to have run again since: else it was made once for several passes.
    """
    call = called_at(trace, graph_task)
    before = earlier_passes(trace, graph_task, node, keep_graph=True)
    same = [first for first in before if call is not None and called_at(trace, first) == call]
    if call is None or not same:
        return None
    shared = shared_nodes(trace, graph_task, same[-1])
    entry = entry_before(trace, graph_task, node.index, shared)
    if entry is None or not is_made_again(trace, graph_task, entry, shared):
        return None
    line = carried_line(entry, call)
    name = "" if line is None else carried_variable(trace.source(line.file), line)
    return CarriedOn(same[-1], entry, line, name)


def _steps_before(
    trace: Trace, graph_task: int, node: NodeRow
) -> Iterator[tuple[OptimizerStepRow, bool | None]]:
    """The steps before a pass, each with whether a node was made before it; None: not known."""
    root = trace.graph_tasks.root(graph_task)
    thread = trace.graph_task(root).thread
    for step in trace.optimizer_steps():
        if step.graph_task >= root:
            continue
        made, then = node.sequence_nr, step.sequence_nr
        if step.thread != thread or made is None or then is None:  # they are those of a thread
            yield step, None
        else:
            yield step, made < then


def _changes(
    trace: Trace, graph_task: int, node: NodeRow, saved: VersionErrorRow
) -> tuple[ForwardOpRow, ...]:
    """The functions that brought the saved tensor from its version to the one it has now."""
    maker = trace.forward_op(graph_task, node.index)
    if maker is None:
        return ()
    for tensor in _candidates(maker, saved):
        found = [
            op
            for op in trace.forward_changes(tensor.memory, after=maker.id)
            if _reaches(op, tensor.memory, saved)
        ]
        if found:
            return tuple(found)
    return ()


def _candidates(maker: ForwardOpRow, saved: VersionErrorRow) -> list[ForwardTensorRow]:
    """The tensors of the function that made the node that may be the saved one, likely ones first.

    A function may have saved a view of what it was given, as ``linear`` does.
    """
    tensors = [*maker.inputs, *maker.outputs]
    if saved.name.startswith(("result", "output")):
        tensors = [*maker.outputs, *maker.inputs]
    fitting = [
        tensor
        for tensor in tensors
        if tensor.memory >= 0
        and tensor.version == saved.expected
        and saved.memory in {-1, tensor.memory}
        and (not saved.parameter or tensor.parameter in {"", saved.parameter})
    ]
    return sorted(
        fitting,
        key=lambda tensor: (
            tensor.parameter != saved.parameter,
            tensor.shape != saved.shape,
            _numel(tensor.shape) != _numel(saved.shape),
        ),
    )


def _numel(shape: Sequence[int] | None) -> int | None:
    return None if shape is None else math.prod(shape)


def _reaches(op: ForwardOpRow, memory: int, saved: VersionErrorRow) -> bool:
    """Whether a function raised the version of the saved tensor, not beyond what it is now."""
    before = [t.version for t in op.inputs if t.memory == memory and t.version is not None]
    after = [t.version for t in op.outputs if t.memory == memory and t.version is not None]
    if not after or (before and max(before) >= max(after)):
        return False
    return saved.expected < max(after) <= saved.version


def _step_between(
    trace: Trace, graph_task: int, node: NodeRow, saved: VersionErrorRow
) -> StepBetween | None:
    """The first step after the node was made whose optimizer writes to the saved parameter."""
    if not saved.parameter:
        return None
    later = [
        step.number
        for step, is_later in _steps_before(trace, graph_task, node)
        if is_later and not step.is_guarded  # it may have been skipped
    ]
    optimizer_of = {fact.step: fact.optimizer for fact in trace.step_facts()}
    held = [row for row in trace.held_parameters() if row.name == saved.parameter and row.had_grad]
    optimizers = {each.number: each for each in trace.optimizers()}
    for number in later:
        optimizer = optimizers.get(optimizer_of.get(number, -1))
        if optimizer is not None and any(
            row.optimizer == optimizer.number and row.since <= number for row in held
        ):
            return StepBetween(optimizer.name, visible(optimizer.stepped))
    return None


def _last(trace: Trace, node: NodeRow, saved: VersionErrorRow) -> NodeRow | None:
    """The last node that took the place of the saved tensor in the graph.

    An inplace operation that autograd records becomes the function of the tensor: of the nodes that
    give a gradient to where it came from, it is the last one made.
    """
    edges = trace.edges(node.graph_task)
    if saved.name.startswith(("result", "output")):
        sources = {(node.index, 0)}
    else:
        sources = {(edge.consumer, edge.slot) for edge in edges if edge.producer == node.index}
    if len(sources) != 1:
        return None
    users = [
        trace.node(node.graph_task, edge.producer)
        for edge in edges
        if (edge.consumer, edge.slot) in sources and edge.producer != node.index
    ]
    later = [user for user in users if (user.sequence_nr or 0) > (node.sequence_nr or 0)]
    return max(later, key=lambda user: user.sequence_nr or 0, default=None)


def _other_than(op: ForwardOpRow | None) -> str:
    """What to do in place of a function that modified what was saved."""
    name = "" if op is None else op.name
    if name.endswith("__setitem__"):
        return "Assign into a copy (x = x.clone()), or put the parts together by torch.where."
    if name.rpartition(".")[2] in _RENORMALISE:
        return (
            "A lookup with max_norm writes the rows that are too long anew, in the weight itself:"
            " give what uses the weight besides a clone() of it, or look up before."
        )
    if op is not None and "inplace=True" in op.arguments:
        return "Pass inplace=False there."
    if match := _INPLACE.search(name):
        return f"Use {match[1] or match[2]} out of place there, or modify a clone() of it."
    return "Modify a clone() of it, or modify it after the backward pass."
