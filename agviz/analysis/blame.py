"""Which function of the forward gave NaN or infinities first, of those that a gradient depends on.

Note [Intended infinities]
A mask is full of infinities on purpose. So the way back follows NaN first, and ends at a function
that made NaN of infinities: at a softmax of which a whole row was masked, say, and not at the mask.
Any other infinity, as +inf before a softmax, or -inf that arithmetic made of finite numbers, is
followed to the function that made it of these.

Note [Intended NaN]
A program that writes NaN into a tensor itself means it, as for labels that are missing. It counts
as data, like what came in a batch. What lets NaN of the data through is named instead, where that
is seen: a product with a mask, which keeps NaN where it should select (0 * NaN is NaN).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import assignment
from agviz.analysis.measures import bad
from agviz.analysis.program_writes import nonfinite_write, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame

_MOST_READ: Final = 2_000
NO_OP: Final = -1
"""Id of a function that was not recorded, but for the node that it made."""
SOFTMAX: Final = frozenset(
    {
        *("softmax", "log_softmax", "logsumexp", "softmin"),
        *("multi_head_attention_forward", "scaled_dot_product_attention"),
    }
)
"""What takes a softmax of what it is given."""
_MASKING: Final = frozenset(
    {
        *("fill_", "full", "full_like", "masked_fill", "masked_fill_", "new_full", "new_tensor"),
        *("tensor", "tril", "triu", "where", "as_tensor", "index_fill", "index_fill_", "zeros"),
    }
)
"""What puts in an infinity that the program wrote down itself."""
_EMPTY: Final = "empty"
WRITING: Final = _MASKING | {"setitem"}
"""What makes no NaN of finite tensors, but may be given one as a number."""

_INTENDED: Final = WRITING | {"log", "log2", "log10", "log1p", "logit"}
"""What gives the infinities of a mask: the logarithm of one of 0 and 1, too."""


class Source(StrEnum):
    """Where the first non-finite number came from."""

    FUNCTION = "function"
    DATA = "data"
    PARAMETER = "parameter"


class Argument(NamedTuple):
    """A tensor that a function was given."""

    place: str
    """As in :class:`agviz.traces.rows.ForwardTensorRow`."""
    parameter: str
    made_by: str
    """Name of the function that gave it; empty where none did."""
    health: Health | None
    """None: not known."""


class Blame(NamedTuple):
    """The function of the forward with which it began."""

    op: ForwardOpRow
    source: Source
    arguments: tuple[Argument, ...]
    """The tensors it was given."""
    wrong: Health
    """What was non-finite first: of what it gave, or of what it was given (data, parameter)."""
    parameter: str
    """Name of the parameter; empty for other sources."""
    written: Frame | None = None
    """The line at which the program wrote NaN into the data: Note [Intended NaN]."""
    is_masked: bool = False
    """Whether ``op`` multiplies NaN of the data by a mask, which keeps it."""
    steps: int = 0
    """Optimizer steps before; 0 of data."""
    assigned: Frame | None = None
    """The line that gives the attribute its value that is the parameter, where one does."""
    spoiler: ForwardOpRow | None = None
    """The function by which the program itself made the parameter so; None: none was recorded."""
    unfilled: ForwardOpRow | None = None
    """The one that gave it memory that nobody has filled; None: that was not seen."""

    @property
    def is_of_graph(self) -> bool:
        """Whether it was found by what nodes had saved: Note [Back through what was saved]."""
        return self.op.id == NO_OP

    @property
    def function(self) -> str:
        """What it is called in formulas: ``sqrt``, ``div``, ``pow``."""
        return function_name(self.op.name)


def function_name(name: str) -> str:
    """``div`` for ``Tensor.__truediv__``, ``softmax`` for ``torch.nn.functional.softmax``."""
    last = name.rpartition(".")[2]
    if last in {"__get__", "__set__", "__call__", "apply", "forward"}:
        last = name.split(".")[-2] if "." in name else last
    bare = last.strip("_")
    bare = bare.removeprefix("r") if last in _REFLECTED else bare
    return _SAME.get(bare, bare)


_KEEPING: Final = frozenset({"log_softmax", "sub"})
"""What a distribution makes of the -inf of a mask, and keeps it."""
_OF_LOGARITHMS: Final = frozenset({"logaddexp", "logaddexp2"})
"""Two -inf give -inf there, as is meant, and a derivative that is NaN."""
_REFLECTED: Final = {f"__r{word}__" for word in ("truediv", "div", "pow", "mul", "add", "sub")}
_SAME: Final = {
    "truediv": "div", "divide": "div", "true_divide": "div", "itruediv": "div", "idiv": "div",
    "special_softmax": "softmax", "special_log_softmax": "log_softmax", "absolute": "abs",
    "special_logsumexp": "logsumexp", "arccos": "acos", "arcsin": "asin", "arctanh": "atanh",
    "arccosh": "acosh", "multiply": "mul", "imul": "mul", "iadd": "add", "isub": "sub",
    "ipow": "pow", "special_expm1": "expm1", "special_log1p": "log1p",
}  # fmt: skip


def blame(trace: Trace, graph_task: int, node: int) -> Blame | None:
    """The function of the forward that made what a node works with non-finite.

    None where that was all finite, or where the forward was not recorded (``check_forward``).

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start = trace.forward_op(graph_task, node)
    saved = trace.saved_health(graph_task, node)
    if start is None and not any(bad(row.health) for row in saved):
        return None
    found = trace.forward_nonfinite(limit=_MOST_READ)
    every = found
    if start is not None:
        found = [op for op in found if op.id < start.id and _may_precede(op, start)]
    way = _Way(graph_task, [*found, *([] if start is None else [start])], every)
    if start is None:
        start = next(way.candidates(), None)
    elif not way.is_touched(start, any(bad(row.health) for row in saved)):
        return None
    return None if start is None else way.back(trace, start)


def _may_precede(op: ForwardOpRow, start: ForwardOpRow) -> bool:
    return op.recomputed_in in {-1, start.recomputed_in}


class _Way:
    """The functions that gave something non-finite, and which of them had it from which."""

    def __init__(
        self, graph_task: int, ops: Sequence[ForwardOpRow], every: Sequence[ForwardOpRow]
    ) -> None:
        self._graph_task = graph_task
        self._ops = ops
        self._every = every
        self._made: dict[tuple[int, int | None], tuple[ForwardOpRow, ForwardTensorRow]] = {}
        for op in ops:
            for row in op.outputs:
                if bad(row.health):
                    self._made.setdefault((row.tensor, row.version), (op, row))

    def is_touched(self, op: ForwardOpRow, saved_is_bad: bool) -> bool:
        """Whether a function gave something non-finite, or was given NaN, or saved such a thing."""
        if any(bad(row.health) for row in op.outputs):
            return True
        return any(saved_is_bad or health.nan for _, health in self._wrong_inputs(op))

    def candidates(self) -> Iterator[ForwardOpRow]:
        """The functions that gave NaN, and after them all others."""
        yield from (
            op for op in self._ops if any(row.health and row.health.nan for row in op.outputs)
        )
        yield from self._ops

    def back(self, trace: Trace, op: ForwardOpRow) -> Blame | None:
        """Where it began, of what a function was given."""
        while True:
            wrong = sorted(self._wrong_inputs(op), key=lambda item: not item[1].nan)
            gave_nan = any(row.health and row.health.nan for row in op.outputs)
            if not wrong:
                return self._function(trace, op)
            row, health = wrong[0]
            maker = self._maker(op, row)
            if row.parameter:
                return Blame(
                    op,
                    Source.PARAMETER,
                    arguments(trace, op),
                    health,
                    row.parameter,
                    steps=trace.optimizer_steps_before(trace.graph_tasks.root(self._graph_task)),
                    assigned=assignment(trace, row.parameter.rpartition(".")[2]),
                    spoiler=_spoiler(trace, row.memory),
                    unfilled=_unfilled(trace, row, op.id),
                )
            if not health.nan:  # Note [Intended infinities]
                is_mask = self._is_of_mask(maker)
                is_masked = function_name(op.name) in SOFTMAX and not health.posinf
                # A single -inf of a row comes out of log_softmax as it went in.
                is_masked &= gave_nan or function_name(op.name) != "log_softmax"
                if is_masked and (overflowed := self._overflowed(maker)) is not None:
                    return self._function(trace, overflowed)
                is_masked |= function_name(op.name) in _OF_LOGARITHMS and len(wrong) > 1
                if is_masked or (gave_nan and is_mask):
                    return self._function(trace, op)
            if maker is None or not maker.inputs:  # made of no tensor: torch.tensor, torch.full
                return self._data(trace, op, health)
            if health.nan and self._is_written(maker):
                return self._data(trace, op, health, maker.frame)
            op = maker

    def _is_of_mask(self, maker: ForwardOpRow | None) -> bool:
        """Whether -inf was written by a mask, and went through logarithms of softmaxes only."""
        while maker is not None and function_name(maker.name) in _KEEPING:
            wrong = [row for row, _ in self._wrong_inputs(maker)]
            maker = self._maker(maker, wrong[0]) if wrong else None
        return maker is not None and function_name(maker.name) in _MASKING

    def _overflowed(self, maker: ForwardOpRow | None) -> ForwardOpRow | None:
        """The arithmetic by which finite numbers became -inf: Note [Intended infinities]."""
        while maker is not None and function_name(maker.name) not in _INTENDED:
            wrong = [row for row, _ in self._wrong_inputs(maker)]
            if not wrong:
                return maker if maker.inputs else None
            maker = self._maker(maker, wrong[0])
        return None

    def _is_written(self, maker: ForwardOpRow) -> bool:
        return function_name(maker.name) in WRITING and not any(self._wrong_inputs(maker))

    def _data(
        self, trace: Trace, op: ForwardOpRow, health: Health, written: Frame | None = None
    ) -> Blame:
        """What is wrong with data: Note [Intended NaN].

        Args:
            trace: the recording.
            op: the function that was given it.
            health: of the data.
            written: the line that wrote NaN into it.
        """
        for later in self._onwards(op) if health.nan else ():
            given = arguments(trace, later)
            if _multiplies_by_mask(later, given):
                return Blame(later, Source.DATA, given, health, "", written, is_masked=True)
        return Blame(op, Source.DATA, arguments(trace, op), health, "", written)

    def _onwards(self, op: ForwardOpRow) -> Iterator[ForwardOpRow]:
        """A function and those to which NaN came from it, in order."""
        reached: set[tuple[int, int | None]] = set()
        for later in self._every:
            if later.id == op.id or not reached.isdisjoint(_given(later)):
                reached.update(
                    (row.tensor, row.version) for row in later.outputs if bad(row.health)
                )
                yield later

    def _maker(self, op: ForwardOpRow, row: ForwardTensorRow) -> ForwardOpRow | None:
        made = self._made.get((row.tensor, row.version))
        return made[0] if made is not None and made[0].id < op.id else None

    def _wrong_inputs(self, op: ForwardOpRow) -> Iterator[tuple[ForwardTensorRow, Health]]:
        for row in op.inputs:
            made = self._made.get((row.tensor, row.version))
            health = row.health
            if health is None and made is not None and made[0].id < op.id:
                health = made[1].health
            if health is not None and bad(health):
                yield row, health

    def _function(self, trace: Trace, op: ForwardOpRow) -> Blame | None:
        given = [row.health for row in op.outputs if row.health is not None and bad(row.health)]
        if not given:
            return None
        worst = max(given, key=lambda health: (health.nan, bad(health)))
        steps = trace.optimizer_steps_before(trace.graph_tasks.root(self._graph_task))
        return Blame(op, Source.FUNCTION, arguments(trace, op), worst, "", steps=steps)


def _spoiler(trace: Trace, memory: int) -> ForwardOpRow | None:
    return nonfinite_write(trace, lambda _op, row: row.memory == memory)


def _unfilled(trace: Trace, used: ForwardTensorRow, before: int) -> ForwardOpRow | None:
    """The function that gave a parameter memory without values, where nothing wrote to it since."""
    ops = [op for op in trace.forward_changes(used.memory, -1) if op.id < before]
    is_filled = any(row.memory == used.memory for op in ops for row in written(op))
    return ops[0] if ops and not is_filled and _EMPTY in function_name(ops[0].name) else None


def _given(op: ForwardOpRow) -> Iterator[tuple[int, int | None]]:
    return ((row.tensor, row.version) for row in op.inputs)


def _multiplies_by_mask(op: ForwardOpRow, given: Sequence[Argument]) -> bool:
    """Whether one factor holds NaN, and the other truth values, or 0 at least as often and else 1.

    Truth values are not measured.
    """
    if function_name(op.name) != "mul" or len(given) != 2:
        return False
    for factor, other in ((0, 1), (1, 0)):
        health, mask = given[factor].health, given[other].health
        if health is None or not health.nan:
            continue
        if op.inputs[other].dtype == "bool":
            return True
        if mask is not None and _is_mask(mask) and mask.zero >= health.nan:
            return True
    return False


def _is_mask(health: Health) -> bool:
    """Whether all numbers are 0 or 1, as their mean and norm show, and both occur."""
    if bad(health) or health.min != 0 or health.max != 1 or health.norm is None:
        return False
    ones = health.numbers - health.zero
    return math.isclose(health.norm**2, ones, rel_tol=1e-3)


def arguments(trace: Trace, op: ForwardOpRow) -> tuple[Argument, ...]:
    """The tensors that a function was given, with what was measured of them when they were made.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    found = []
    for row in op.inputs:
        maker = trace.forward_giving(row.tensor, row.version, op.id)
        health = row.health
        if health is None and maker is not None:
            rows = (*maker.outputs, *maker.inputs)
            same = [r.health for r in rows if (r.tensor, r.version) == (row.tensor, row.version)]
            health = next((one for one in same if one is not None), None)
        gave = maker is not None and any(
            (r.tensor, r.version) == (row.tensor, row.version) for r in maker.outputs
        )
        name = function_name(maker.name) if maker is not None and gave else ""
        found.append(Argument(row.place, row.parameter, name, health))
    return tuple(found)
