"""Tensors whose ``.grad`` stays None: no leaves, and leaves that the graph does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class NonLeafGradient:
    """The ``.grad`` of a tensor that a function gave was read, and is None."""

    made: ForwardOpRow
    """The function that gave the tensor."""
    read: Frame
    """The line that read it first."""
    reads: int
    """How many such reads of tensors that this line made."""
    graph_task: None = None

    @property
    def frame(self) -> Frame | None:
        """The line that made the tensor."""
        return self.made.frame or self.read

    @property
    def heading(self) -> str:
        """What was read."""
        return "the gradient of a tensor that is no leaf was read: it stays None"

    @property
    def paragraph(self) -> str:
        """Why, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        frame = self.made.frame
        at = "" if frame is None else f" at {frame}"
        is_rebound = frame is not None and (frame.file, frame.line) == (
            self.read.file,
            self.read.line,
        )
        yield (
            f"The tensor is what {self.made.name} gave{at}, and its .grad was read at"
            f" {self.read}. torch puts gradients into leaves only."
        )
        if is_rebound:
            yield (
                "This line reads the gradient of what it made itself in the step before: it binds"
                " the name to a new tensor, where it should write into the old one. Write under"
                " torch.no_grad(): w -= rate * w.grad, then w.grad = None; or take an optimizer."
            )
            return
        yield (
            "If it is to be trained, make it a leaf: compute its value first, then call"
            " requires_grad_() on it. If only its gradient is wanted, call retain_grad() on it"
            " before backward."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"{plural(self.reads, 'read')} of .grad of such tensors"
        yield from (f"made at {frame}" for frame in self.made.stack if not frame.hidden)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "nonleaf_gradient",
            "function": self.made.name,
            "line": None if self.frame is None else str(self.frame),
            "read_at": str(self.read),
            "reads": self.reads,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LateLeaf:
    """A leaf required a gradient only after it had been used, and was not used since."""

    used: ForwardOpRow
    """The function that was given it before."""
    asked: ForwardOpRow
    """The one that made it require a gradient."""
    graph_task: None = None

    @property
    def frame(self) -> Frame | None:
        """The line that came too late."""
        return self.asked.frame

    @property
    def heading(self) -> str:
        """What was set."""
        return "requires_grad was set after the forward, which had used the tensor before"

    @property
    def paragraph(self) -> str:
        """Why that is in vain, and what to do."""
        return (
            f"When {self.used.name} used the tensor at {self.used.frame}, it did not require a"
            " gradient, so that the graph does not hold it. Nothing used it later: its .grad stays"
            " None. Call requires_grad_() on it before the forward."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"function {self.used.id} of the forward took it, function {self.asked.id} set it"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "late_leaf",
            "function": self.used.name,
            "line": None if self.frame is None else str(self.frame),
        }


def nonleaf_gradient(trace: Trace) -> NonLeafGradient | LateLeaf | None:
    """The tensors whose ``.grad`` the program wants in vain first; None: there are none.

    Only where the forward was recorded, and where a line of the program itself reads it.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    found: list[tuple[ForwardOpRow, Frame]] = []
    for op in trace.gradient_reads():
        tensor = op.inputs[0] if op.inputs else None
        if tensor is None or op.frame is None or not op.stack or op.stack[-1].hidden:
            continue
        made = trace.forward_giving(tensor.tensor, tensor.version, op.id)
        if made is not None and any(row.tensor == tensor.tensor for row in made.outputs):
            found.append((made, op.frame))
    if not found:
        late = (_late(trace, op) for op in trace.gradient_requests())
        return next((each for each in late if each is not None), None)
    made, read = found[0]
    alike = sum(str(other.frame) == str(made.frame) for other, _ in found)
    return NonLeafGradient(made=made, read=read, reads=alike)


def _late(trace: Trace, asked: ForwardOpRow) -> LateLeaf | None:
    """Where a tensor was used before it was made to require a gradient, and not since."""
    tensor = asked.inputs[0] if asked.inputs else None
    if tensor is None or tensor.requires_grad or tensor.parameter or asked.frame is None:
        return None
    used: ForwardOpRow | None = None
    for op in trace.forward_taking(tensor.tensor):
        if op.id > asked.id:
            return None
        if op.id < asked.id and op.sequence_nr is not None and op.graph_task == asked.graph_task:
            used = op
    return None if used is None or used.graph_task < 0 else LateLeaf(used=used, asked=asked)
