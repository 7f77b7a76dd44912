"""What a factor of zeros is, and whether training can change it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.lineage import last_name
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame

_MOST_STEPS: Final = 20
_MOST_OPS: Final = 2_000
_DIFFERENCES: Final = frozenset({"sub", "sub_", "__sub__", "__rsub__", "__isub__", "subtract"})
_AVERAGES: Final = frozenset({"amax", "amin", "max", "mean", "median", "min"})
_CASTS: Final = frozenset(
    {"bfloat16", "clone", "contiguous", "detach", "double", "float", "half", "reshape", "to"}
)


class ZeroFactor(NamedTuple):
    """Where the zeros of a tensor come from."""

    parameter: str
    """The parameter that they are; empty: they are of none."""
    has_graph: bool
    """Whether the tensor depends on something that requires a gradient."""
    made: Frame | None
    """The line that gave them; None: not known."""
    maker: ForwardOpRow | None = None
    """The function that made them of numbers that are no zeros; None: none is known to."""


class ZeroFactors:
    """Asked for the tensors of a forward.

    Args:
        trace: the recording.
        ops: the functions of the last passes.
        health: what was measured of a tensor; None: nothing.
    """

    def __init__(
        self,
        trace: Trace,
        ops: Sequence[ForwardOpRow],
        health: Callable[[ForwardTensorRow], Health | None],
    ) -> None:
        self._health = health
        self._first = trace.forward_ops(limit=_MOST_OPS)
        self._names = {
            row.memory: row.parameter
            for op in ops
            for row in op.inputs
            if row.parameter and row.memory >= 0
        }
        self._makers = {
            (row.tensor, row.version): op for op in (*self._first, *ops) for row in op.outputs
        }

    def of(self, tensor: ForwardTensorRow) -> ZeroFactor:
        """Where the zeros of a tensor come from, through functions of zeros and views."""
        made: Frame | None = None
        maker: ForwardOpRow | None = None
        row = tensor
        for _ in range(_MOST_STEPS):
            name = row.parameter or self._names.get(row.memory, "")
            if name:
                return ZeroFactor(name, True, self._zeroed(row.memory))
            maker = self._makers.get((row.tensor, row.version))
            if maker is None:
                break
            made = visible(maker.stack)
            behind = next((one for one in maker.inputs if self._is_origin(one, row)), None)
            if behind is None:
                break
            row = behind
        is_computed = maker is not None and any(map(self._holds_numbers, maker.inputs))
        return ZeroFactor("", tensor.requires_grad, made, maker if is_computed else None)

    def initialised(self, parameter: str) -> Frame | None:
        """The line that wrote the values of a parameter before the first pass; None: not known."""
        memories = {memory for memory, name in self._names.items() if name == parameter}
        found = [
            op
            for op in self._first
            if op.graph_task == self._first[0].graph_task and op.name.endswith("_")
            for row in op.outputs
            if row.memory in memories
        ]
        return visible(found[-1].stack) if found else None

    def computed(self, tensor: ForwardTensorRow) -> ForwardOpRow | None:
        """The function that computed a tensor, not the one that views, casts or copies it."""
        found, row = None, tensor
        for _ in range(_MOST_STEPS):
            maker = self._makers.get((row.tensor, row.version))
            maker = maker or self._makers.get((row.tensor, 0))
            if maker is None:
                return found
            found = maker
            given = maker.inputs[0] if maker.inputs else None
            is_view = given is not None and given.memory == row.memory >= 0
            if given is None or not (is_view or last_name(maker) in _CASTS):
                return found
            row = given
        return found

    def is_zero(self, tensor: ForwardTensorRow) -> bool:
        """Whether a tensor is known to hold zeros only."""
        health = self._health(tensor)
        return health is not None and 0 < health.numbers == health.zero

    def why(self, maker: ForwardOpRow) -> str:
        """Why a difference is zero, where one side is a mean over nothing but the other; or empty.

        It is the end of a sentence.
        """
        given = [self._makers.get((row.tensor, row.version)) for row in maker.inputs]
        for reduced in given if last_name(maker) in _DIFFERENCES else ():
            if reduced is None or last_name(reduced) not in _AVERAGES or not reduced.inputs:
                continue
            shapes = [row.shape for row in (reduced.inputs[0], *reduced.outputs[:1])]
            if None not in shapes and len({math.prod(shape or ()) for shape in shapes}) == 1:
                return f", as {last_name(reduced)}() over one number is that number itself"
        return ""

    def _holds_numbers(self, tensor: ForwardTensorRow) -> bool:
        """Whether a tensor is known to hold floats that are not zero."""
        health = self._health(tensor)
        is_float = tensor.dtype.startswith(("float", "bfloat"))
        return is_float and health is not None and health.zero < health.numbers

    def _is_origin(self, given: ForwardTensorRow, made: ForwardTensorRow) -> bool:
        is_same = (given.tensor, given.version) == (made.tensor, made.version)
        return not is_same and self.is_zero(given)

    def _zeroed(self, memory: int) -> Frame | None:
        """The line that wrote the zeros of a parameter before the first pass."""
        found = [
            op
            for op in self._first
            for row in op.outputs
            if row.memory == memory
            and row.health is not None
            and 0 < row.health.numbers == row.health.zero
        ]
        return visible(found[0].stack) if found else None
