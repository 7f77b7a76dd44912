"""What became of each parameter in the forward, as its torch functions show.

Note [Attached and not]
A tensor at one moment is *attached* to what it was made of where gradients flow back through it: it
requires a gradient and is no leaf, or it is a parameter that requires one. Where a function was
given something attached, and put out something that is not, it *cut* the graph. A cut matters only
where what was cut off went into the loss.

Note [One tensor at several moments]
A function in place makes the same tensor another one, and with it every tensor that shares its
memory. Each of these moments is a state here.

Note [What was not seen]
A tensor that appears out of nowhere, in memory that another one has, was made of that by something
that is not recorded: ``nn.Parameter``, or a function on a thread that is not observed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.causes import Cause
from agviz.traces.forward import INSIDE, READS_GRADIENT
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame

_LEAVES_TORCH: Final = {
    "item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__",
    "__complex__",
}  # fmt: skip
_MAKES_ANEW: Final = {"tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor"}
_COLLECTIVES: Final = "torch.distributed."
_ONE_TO_ONE: Final = frozenset({"broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d"})
"""Functions each of whose outputs comes of one input: the others' say nothing of it."""
_DISTRIBUTIONS: Final = "torch/distributions/"
_CHECKPOINT: Final = "torch/utils/checkpoint.py"
_MOST_CUTS: Final = 4
"""On ways of one tensor to the loss that are told apart."""
_NEVER: Final = 1 << 62


class Cut(NamedTuple):
    """Where the graph ends on the way from a parameter to the loss."""

    cause: Cause
    op: ForwardOpRow
    frame: Frame | None
    """The line that did it; None where it is not known."""
    dtype: str = ""
    """Of what came out."""
    is_new_leaf: bool = False
    """Whether a leaf that requires a gradient came out, and what made it was not seen."""


class _State:
    """A tensor at one moment: Note [One tensor at several moments]."""

    __slots__ = (
        "attached",
        "dtype",
        "is_inference",
        "is_trained_leaf",
        "makers",
        "parameter",
        "takers",
        "written_through",
    )

    def __init__(self, row: ForwardTensorRow) -> None:
        self.parameter = row.parameter
        self.dtype = row.dtype
        self.is_inference = row.version is None
        self.is_trained_leaf = row.is_leaf and row.requires_grad
        self.attached = False
        self.written_through: _State | None = None
        """The other tensor through which its memory was written to."""
        self.makers: list[_Call] = []
        self.takers: list[_Call] = []


class _Call:
    """A torch function and the states it connects."""

    __slots__ = ("given", "is_seen", "made", "op")

    def __init__(self, op: ForwardOpRow) -> None:
        self.op = op
        self.is_seen = True
        """False: it is not known what was called; ``op`` is the last function before it."""
        self.given: list[_State] = []
        self.made: list[_State] = []


class Lineage:
    """The forward as states and the functions between them.

    Args:
        ops: the functions that were called, in order; those of a recomputation are left out.
        loss: numbers of the tensors of which backward was called; what they were made of last
            counts. Empty: not known, and then everything counts as part of the loss.
        reached: sequence numbers of the nodes in the graph of the loss; None: not known.
        names: of all parameters, as they are called at the end.
    """

    def __init__(
        self,
        ops: Iterable[ForwardOpRow],
        loss: Iterable[int] = (),
        reached: frozenset[int] | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._names = names
        self._calls: list[_Call] = []
        self._now: dict[int, _State] = {}
        self.unrecorded: ForwardOpRow | None = None
        """The first function that got a tensor with a graph which no recorded function made, as of
        a scripted module or of compiled code; None: there is none."""
        self._sharing: defaultdict[int, set[int]] = defaultdict(set)
        self._parameters: defaultdict[str, list[_State]] = defaultdict(list)
        for op, within in _program(ops):
            self._add(op, within)
        self._reached = reached
        self._in_loss = self._ancestors(loss)
        self._before = _NEVER
        roots = [self._now[number] for number in loss if number in self._now]
        made = sorted((call.op for state in roots for call in state.makers), key=lambda op: op.id)
        self._ends: dict[int | None, int] = {op.graph_task: op.id for op in made}
        if made:
            self._before = made[-1].id
        self._roots = roots
        self._follow(roots)

    def used(self, parameter: str) -> bool:
        """Whether any torch function took the parameter."""
        return any(state.takers for state in self._states(parameter))

    def is_attached(self, parameter: str) -> bool:
        """Whether gradients can flow from the loss to the parameter."""
        return any(id(state) in self._whole for state in self._states(parameter))

    def cut(self, parameter: str) -> Cut | None:
        """The first cut on a way from the parameter to the loss.

        Integers never carry a gradient, as a sampled action: where another way ends at something
        else, that is named. Where no way leads there, the first place where its values left torch;
        None: none did.
        """
        first = self._first(parameter, self._cuts)
        if first is not None and first.cause is Cause.INTEGER:
            return next((cut for cut in self.cuts(parameter) if cut.cause != first.cause), first)
        return first or self._first(parameter, self._left)

    def cuts(self, parameter: str) -> tuple[Cut, ...]:
        """The first cut on each way from the parameter to the loss, but for very many, in order."""
        found: dict[int, Cut] = {}
        for state in self._states(parameter):
            found.update(self._ways.get(id(state), {}))
        return tuple(found[number] for number in sorted(found))

    def last(self, parameter: str) -> ForwardOpRow | None:
        """The last function that took anything that depends on the parameter."""
        found = [
            call
            for state in self._states(parameter)
            if (call := self._last.get(id(state))) is not None
        ]
        return max(found, key=lambda call: call.op.id).op if found else None

    def beside_loss(self, parameter: str) -> ForwardOpRow | None:
        """The first function that put the loss together with something that depends on a parameter.

        Such a sum has a graph, and is not what backward was called on. None: there is none.
        """
        of_loss = {id(state) for state in self._roots}
        of_parameter = {id(state) for state in self._states(parameter)}
        for call in self._calls:
            given = {id(state) for state in call.given if state.attached}
            made = {id(state) for state in call.made if state.attached}
            if not made:
                continue
            is_of_loss = bool(given & of_loss)
            if is_of_loss and given & of_parameter - of_loss:
                return call.op
            if is_of_loss:
                of_loss |= made
            elif given & of_parameter:
                of_parameter |= made
        return None

    def made_anew(self, cut: Cut) -> ForwardOpRow | None:
        """The function that made a tensor of numbers at the line where values left torch."""
        return next(
            (
                call.op
                for call in self._calls
                if last_name(call.op) in _MAKES_ANEW
                and not call.op.inputs
                and call.op.id > cut.op.id
                and _is_same_line(call.op.frame, cut.frame)
            ),
            None,
        )

    def _states(self, parameter: str) -> list[_State]:
        """What the parameter was, under this name.

        A name begins with the class of the outermost module from the time on when there are several
        of these: before, the parameter may have gone by the rest of it.
        """
        found = self._parameters.get(parameter)
        before = parameter.partition(".")[2]
        if found is None and before not in self._names:
            found = self._parameters.get(before)
        return found or []

    def _first(self, parameter: str, found: dict[int, Cut]) -> Cut | None:
        cuts = [found[id(state)] for state in self._states(parameter) if id(state) in found]
        return min(cuts, key=lambda cut: cut.op.id, default=None)

    def _add(self, op: ForwardOpRow, within: Sequence[ForwardOpRow]) -> None:
        call = _Call(op)
        for row in [] if _takes_shapes(op) else _taken(op, within):
            state = self._state(row)
            if state.attached and not (state.makers or row.is_leaf or row.parameter):
                self.unrecorded = self.unrecorded or op
            if state not in call.given:
                call.given.append(state)
                state.takers.append(call)
        in_place = _is_in_place(op)
        for row in op.outputs:
            if row.parameter or row.place == INSIDE:
                continue  # optimizers write them; nobody is given these
            given = any(row.tensor == taken.tensor for taken in op.inputs)
            if given and not in_place:
                continue  # it gave back what it was given, or keeps statistics there
            self._make(call, row)
        self._calls.append(call)

    def _state(self, row: ForwardTensorRow) -> _State:
        state = self._now.get(row.tensor)
        if state is None or (row.parameter and not state.parameter):
            state = _State(row)
            if row.parameter:
                self._parameters[row.parameter].append(state)
            if row.memory >= 0:
                self._link(state, row)
            self._now[row.tensor] = state
        if row.requires_grad and (row.parameter or not row.is_leaf):
            state.attached = True
        self._sharing[row.memory].add(row.tensor)
        return state

    def _link(self, state: _State, row: ForwardTensorRow) -> None:
        """Note [What was not seen]."""
        makers = [
            (maker.op.id, self._now[number])
            for number in self._sharing[row.memory]
            for maker in self._now[number].makers[-1:]
        ]
        if makers:
            _, source = max(makers, key=lambda pair: pair[0])
            call = _Call(source.makers[-1].op)
            call.is_seen = False
            call.given, call.made = [source], [state]
            source.takers.append(call)
            state.makers.append(call)
            self._calls.append(call)

    def _make(self, call: _Call, row: ForwardTensorRow) -> None:
        before = self._now.get(row.tensor)
        if before is not None and row.memory >= 0 and _is_in_place(call.op):
            self._change_shared(call, row, before)
        state = self._now[row.tensor] = _State(row)
        self._sharing[row.memory].add(row.tensor)
        state.attached = row.requires_grad and not row.is_leaf
        call.made.append(state)
        state.makers.append(call)

    def _change_shared(self, call: _Call, row: ForwardTensorRow, written: _State) -> None:
        """Whatever shares the memory that ``call`` wrote to is another tensor from now on."""
        for number in self._sharing[row.memory] - {row.tensor}:
            before = self._now[number]
            if before.parameter:
                continue
            after = _State(row)
            after.dtype, after.is_inference = before.dtype, before.is_inference
            after.written_through = written
            after.makers = [*before.makers, call]
            for maker in after.makers:
                maker.made.append(after)
            self._now[number] = after

    def _ancestors(self, loss: Iterable[int]) -> set[int] | None:
        """Everything that the loss was computed from, however; None: all, or not known."""
        found = [self._now[number] for number in loss if number in self._now]
        if not found:
            return None
        seen = {id(state) for state in found}
        while found:
            for call in found.pop().makers:
                for state in call.given:
                    if id(state) not in seen:
                        seen.add(id(state))
                        found.append(state)
        return seen

    def _follow(self, roots: Sequence[_State]) -> None:
        """From the end to the beginning: what became of each state."""
        self._cuts: dict[int, Cut] = {}
        self._ways: dict[int, dict[int, Cut]] = {}
        self._left: dict[int, Cut] = {}
        self._last: dict[int, _Call] = {}
        self._whole = {id(state) for state in roots if state.attached}
        for call in reversed(self._calls):
            for state in call.given:
                self._follow_into(state, call)

    def _follow_into(self, state: _State, call: _Call) -> None:
        key = id(state)
        later = [self._last[id(made)] for made in call.made if id(made) in self._last]
        if last_name(call.op) not in _LEAVES_TORCH:
            later.append(call)
        later += [self._last[key]] if key in self._last else []
        if later:
            self._last[key] = max(later, key=lambda each: each.op.id)
        self._note(self._left, key, self._leaving(state, call))
        if not state.attached:
            return
        for made in call.made:
            if made.attached and (call.is_seen or not made.is_trained_leaf):
                self._note(self._cuts, key, self._cuts.get(id(made)))
                self._add_ways(key, self._ways.get(id(made), {}))
                if id(made) in self._whole:
                    self._whole.add(key)
            elif not _is_of_another(call.op) and (
                self._in_loss is None or id(made) in self._in_loss
            ):
                cut = _cut(call, made)
                self._note(self._cuts, key, cut)
                self._add_ways(key, {cut.op.id: cut})
        if self._ignores(state, call):
            self._note(self._cuts, key, Cut(Cause.NOT_DIFFERENTIABLE, call.op, call.op.frame))

    def _leaving(self, state: _State, call: _Call) -> Cut | None:
        """Where the values of a state leave torch; where they became integers before, that."""
        if last_name(call.op) in _LEAVES_TORCH and call.op.id < self._before_loss(state):
            return Cut(Cause.LEFT_TORCH, call.op, call.op.frame)
        found = []
        for made in call.made:
            if id(made) in self._left:
                cut = _cut(call, made) if state.attached and not made.attached else None
                is_integer = cut is not None and cut.cause is Cause.INTEGER
                found.append(cut if cut is not None and is_integer else self._left[id(made)])
        return min(found, key=lambda cut: cut.op.id, default=None)

    def _before_loss(self, state: _State) -> int:
        """The function that gave the loss of the pass in which a state was made.

        Numbers that leave torch after it are in no loss: they are printed or kept.
        """
        made_in = next((maker.op.graph_task for maker in state.makers[-1:]), None)
        return self._ends.get(made_in, self._before)

    def _ignores(self, state: _State, call: _Call) -> bool:
        """Whether the node of ``call`` is in the graph, but what made ``state`` is not.

        It is asked of parameters that are not.
        """
        if self._reached is None or not self._is_reached(call):
            return False
        if any(not maker.is_seen and maker.given[0].attached for maker in state.makers):
            return False  # what cuts it is before the call
        return not any(map(self._is_reached, state.makers))

    def _is_reached(self, call: _Call) -> bool:
        return self._reached is not None and call.op.sequence_nr in self._reached

    def _add_ways(self, key: int, cuts: dict[int, Cut]) -> None:
        known = self._ways.setdefault(key, {})
        for number, cut in cuts.items():
            same = [each for each, other in known.items() if _is_alike(cut, other)]
            if same and number < same[0]:
                del known[same[0]]
            elif same or len(known) >= _MOST_CUTS:
                continue
            known[number] = cut

    @staticmethod
    def _note(found: dict[int, Cut], key: int, cut: Cut | None) -> None:
        if cut is not None and (key not in found or cut.op.id < found[key].op.id):
            found[key] = cut


def _is_alike(cut: Cut, other: Cut) -> bool:
    """Whether both are of the same function at the same line, as in each turn of a loop."""
    return (cut.cause, cut.frame, cut.op.name) == (other.cause, other.frame, other.op.name)


def _is_same_line(one: Frame | None, other: Frame | None) -> bool:
    """Whether two frames are of one line, as that of a comprehension and of what is around it."""
    return (
        one is not None and other is not None and (one.file, one.line) == (other.file, other.line)
    )


def _cut(call: _Call, made: _State) -> Cut:
    op = call.op
    name = last_name(op)
    place = op.frame
    if not op.grad_enabled and (around := _around_checkpoint(op)) is not None:
        return Cut(Cause.CHECKPOINT, op, around)
    if not call.is_seen:
        return Cut(Cause.UNSEEN, op, op.frame, is_new_leaf=made.is_trained_leaf)
    through = made.written_through
    if name in {"detach", "detach_"}:
        cause = Cause.DETACH
    elif ".data.__" in op.name or (through is not None and _is_data(through)):
        is_copied = any(frame.function == "__deepcopy__" for frame in op.stack)
        cause = Cause.COPIED if is_copied else Cause.DATA
    elif name in _MAKES_ANEW or op.name.startswith(_COLLECTIVES):
        cause = Cause.NEW_TENSOR if name in _MAKES_ANEW else Cause.COLLECTIVE
    elif not made.dtype.startswith(("float", "bfloat", "complex")):
        cause = Cause.INTEGER
    elif made.is_inference:
        cause = Cause.INFERENCE_MODE
    elif _is_sampled(op):
        cause = Cause.SAMPLED
    elif not op.grad_enabled:
        cause = Cause.NO_GRAD
    else:
        cause = Cause.NOT_DIFFERENTIABLE
    return Cut(cause, op, place, made.dtype)


def _is_of_another(op: ForwardOpRow) -> bool:
    """Whether what it gave without a graph comes of another input than what has one."""
    return last_name(op) in _ONE_TO_ONE and any(row.requires_grad for row in op.outputs)


def _is_sampled(op: ForwardOpRow) -> bool:
    """Whether a distribution's ``sample`` called it."""
    return any(
        frame.function == "sample" and _DISTRIBUTIONS in frame.file.replace("\\", "/")
        for frame in op.stack
    )


def _is_data(state: _State) -> bool:
    """Whether it came of an attribute ``.data``."""
    return any(maker.op.name.endswith(".data.__get__") for maker in state.makers)


def is_checkpoint(frame: Frame) -> bool:
    """Whether a line is torch's, where it runs a checkpoint."""
    return frame.file.replace("\\", "/").endswith(_CHECKPOINT)


def _around_checkpoint(op: ForwardOpRow) -> Frame | None:
    """The user's line that called checkpoint, where ``op`` was called within it."""
    for place in range(len(op.stack) - 1, -1, -1):
        if is_checkpoint(op.stack[place]):
            return visible(op.stack[:place])
    return None


def _program(ops: Iterable[ForwardOpRow]) -> list[tuple[ForwardOpRow, list[ForwardOpRow]]]:
    """The functions of the forward itself, and those within the forward of each custom Function.

    Recomputations are left out, and what failed.
    """
    found: list[tuple[ForwardOpRow, list[ForwardOpRow]]] = []
    around: dict[int, tuple[ForwardOpRow, list[ForwardOpRow]]] = {}
    for op in ops:
        if op.recomputed_in >= 0 or op.error or op.name == READS_GRADIENT:
            continue
        if op.thread in around and _is_within(op, around[op.thread][0]):
            around[op.thread][1].append(op)
            continue
        found.append((op, []))
        if op.name.endswith(".apply") and op.name != "CheckpointFunction.apply":
            around[op.thread] = found[-1]
    return found


def _taken(op: ForwardOpRow, within: Sequence[ForwardOpRow]) -> list[ForwardTensorRow]:
    """What a function was given, and what a custom Function took without being given it."""
    made = {row.tensor for inner in within for row in inner.outputs}
    inside = [row for inner in within for row in inner.inputs if row.tensor not in made]
    known = {row.tensor: row for row in [*inside, *op.inputs]}
    return list(known.values())


def _is_within(op: ForwardOpRow, outer: ForwardOpRow) -> bool:
    """Whether ``op`` was called by the forward of the custom Function ``outer``."""
    own = list(outer.stack)
    while own and own[-1].hidden:
        own.pop()
    depth = len(own)
    return (
        not op.grad_enabled
        and list(op.stack[:depth]) == own
        and any(frame.function == "forward" for frame in op.stack[depth:])
    )


def _takes_shapes(op: ForwardOpRow) -> bool:
    """Whether nothing but shape and dtype of what it was given is in what it gave."""
    name = last_name(op)
    return name.endswith("_like") or (name.startswith("new_") and name not in _MAKES_ANEW)


def _is_in_place(op: ForwardOpRow) -> bool:
    name = last_name(op)
    if (
        name == "__setitem__"
        or op.name.startswith(_COLLECTIVES)
        or op.name.endswith(".data.__set__")
        or (
            name.startswith("__i")
            and name.endswith("__")
            and name not in {"__invert__", "__index__"}
        )
    ):
        return True
    return (name.endswith("_") and not name.endswith("__")) or any(
        row.place.startswith("out") for row in op.inputs
    )


def last_name(op: ForwardOpRow) -> str:
    """``detach`` of ``Tensor.detach``, ``relu`` of ``torch.nn.functional.relu``."""
    return op.name.rpartition(".")[2]
