"""Whether a pass in float32 is off by more than rounding explains, and where that begins.

Note [Expected error]
What a result may be off by depends on the problem, so it is measured: the pass is computed in
float64, once as it was and twice with every parameter and every number of the data moved at random
by no more than float32 rounds it. How far results and gradients move is what float32 can't know any
better. A result is off when its error is :data:`TRUST` times that, with the error of a random walk
of one rounding for each function called so far added. What is ill-conditioned (small differences
of the data themselves) moves as far in float64, and is not called off; a formula that loses digits
which the data has is.

Note [What counts]
Only gradients of leaves are judged; where all of them are as expected, nothing else matters. Nor do
gradients that are next to nothing beside the largest of the pass, as that of a bias before a batch
norm, which is rounding noise by nature, or beside their own leaf, as of a loss that has come to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

from agviz.check.precision.replay import Replay
from agviz.check.precision.tape import TapeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.check.precision.tape import ForwardTape, TapeCall

TRUST: Final = 50.0
"""Times the expected error that are allowed for."""
_EPSILON: Final = 2.0**-23
_NOTABLE: Final = 1e-4
"""Of a gradient's norm: by less it may be off, three of float32's seven digits."""
_NEXT_TO_NOTHING: Final = 1e-4
"""Of the largest gradient of the pass."""
_NEXT_TO_NOTHING_OF_LEAF: Final = 1e-6
"""Of the leaf itself: steps by it hardly move that."""
_SAME: Final = 1e-2
"""By so much of its norm the gradient of the run may differ from that computed again."""
_CANCELS: Final = 1e-2
"""So much of its arguments, by root mean square, is what a difference leaves that cancels."""
_LOW: Final = (torch.float16, torch.bfloat16)


class Deviation(NamedTuple):
    """By how much a tensor is off in float32, and by how much it may be."""

    error: float
    expected: float
    size: float
    """Norm of the tensor in float64."""

    @property
    def is_off(self) -> bool:
        """Whether it is off by more than rounding explains."""
        return self.error > TRUST * self.expected

    @property
    def share(self) -> float:
        """Of its norm."""
        return self.error / self.size if self.size else math.inf

    @property
    def is_notable(self) -> bool:
        """Whether it is off, and by so much that it matters."""
        return self.is_off and self.share > _NOTABLE


@dataclass(frozen=True)
class FirstOff:
    """The first function that is off."""

    call: TapeCall
    deviation: Deviation
    in_backward: bool
    """Whether its result is as expected, and the gradient that comes to it is not."""
    dtype: str
    """Of its result, where that is lower than float32; else empty."""
    cancels: bool
    """Whether next to nothing of its arguments is left."""


@dataclass
class PrecisionAnswer:
    """What came of computing a pass again."""

    passes: int
    leaves: dict[str, float] = field(default_factory=dict)
    """By how much of its norm a gradient is off, by name, the worst first."""
    first: FirstOff | None = None
    why_not: str = ""
    """Why nothing can be said; empty: all was compared."""
    forward: dict[int, Deviation] = field(default_factory=dict)
    """Of the first results of calls, by place of the call."""
    gradients: dict[int, Deviation] = field(default_factory=dict)
    """Of the leaves that count, by number."""


@dataclass
class CompiledAnswer:
    """What came of running a pass compiled."""

    leaves: dict[str, float] = field(default_factory=dict)
    """By how much of its norm a gradient is another, by name, the worst first."""
    first: FirstOff | None = None
    why_not: str = ""
    """Why nothing can be said; empty: all was compared."""


def off_by(one: Tensor, other: Tensor, expected: Deviation) -> Deviation:
    """By how much two tensors differ that are to be the same, beside what they may be off by."""
    return expected._replace(error=_norm(_difference(one.double(), other.double())))


def compare(tape: ForwardTape) -> PrecisionAnswer:
    """Compute a pass again in float32 and float64, and compare."""
    answer = PrecisionAnswer(tape.number, why_not=tape.why_not)
    if answer.why_not:
        return answer
    try:
        _compared(tape, answer)
    except TapeError as error:
        answer.why_not = str(error)
    except Exception as error:  # noqa: BLE001 - functions may be of any kind
        answer.why_not = f"it can't be computed again in float64 ({type(error).__name__})"
    return answer


def _compared(tape: ForwardTape, answer: PrecisionAnswer) -> None:
    single = Replay(tape, in_double=False)
    double = Replay(tape, in_double=True)
    moved = [Replay(tape, in_double=True, moved=_EPSILON / 2, seed=seed) for seed in (1, 2)]
    forward = answer.forward
    facts: dict[int, tuple[str, bool]] = {}
    for place, call in enumerate(tape.calls):
        first, *others = (
            replay.call(place, call, single.tensors) for replay in (single, double, *moved)
        )
        if first and first[0].requires_grad:
            every = [first[0], *(each[0] for each in others)]
            forward[place] = _deviation(every, place + 1)
            facts[place] = _low(first[0]), _is_cancelling(call, double, others[0][0])
    gradients = [replay.backward() for replay in (single, double, *moved)]
    _check_same(tape, gradients[0])
    answer.gradients = _leaves(tape, gradients)
    off = {number: each for number, each in answer.gradients.items() if each.is_notable}
    if not off:
        return
    answer.leaves = {
        tape.given[number].called: each.share
        for number, each in sorted(off.items(), key=lambda pair: -pair[1].share)
    }
    answer.first = _first(tape, forward, facts, [single, double, *moved])


def _leaves(tape: ForwardTape, gradients: Sequence[Mapping[int, Tensor]]) -> dict[int, Deviation]:
    """Note [What counts]."""
    single, *_ = gradients
    largest = max((gradient.norm().item() for gradient in single.values()), default=0.0)
    found = {}
    for number, gradient in single.items():
        every = [each[number] for each in gradients if number in each]
        if len(every) < len(gradients) or gradient.dtype is not torch.float32:
            continue
        deviation = _deviation(every, 2 * len(tape.calls))
        own = _NEXT_TO_NOTHING_OF_LEAF * _norm(tape.given[number].copy)
        if max(deviation.size, _norm(gradient)) > max(own, _NEXT_TO_NOTHING * largest):
            found[number] = deviation
    return found


def _first(
    tape: ForwardTape,
    forward: Mapping[int, Deviation],
    facts: Mapping[int, tuple[str, bool]],
    replays: Sequence[Replay],
) -> FirstOff | None:
    for place, deviation in forward.items():
        if deviation.is_off:
            return FirstOff(tape.calls[place], deviation, False, *facts[place])
    for place in sorted(replays[0].gradients, reverse=True):
        every = [replay.gradients.get(place) for replay in replays]
        if any(each is None for each in every):
            continue
        deviation = _deviation(
            [each for each in every if each is not None], 2 * len(tape.calls) - place
        )
        if deviation.is_off:
            return FirstOff(tape.calls[place], deviation, True, "", False)
    return None


def _deviation(every: Sequence[Tensor], functions: int) -> Deviation:
    """Of the same tensor in float32, in float64, and in float64 with the data moved."""
    single, double, *moved = (each.detach() for each in every)
    error = _norm(_difference(single.to(double.dtype), double))
    spread = max(_norm(_difference(each, double)) for each in moved)
    size = _norm(double[double.isfinite()])
    if not all(map(math.isfinite, (error, spread, size))):
        raise TapeError("it is not finite")
    return Deviation(error, spread + _EPSILON * math.sqrt(functions) * size, size)


def _check_same(tape: ForwardTape, gradients: Mapping[int, Tensor]) -> None:
    """What is computed again has to be what the program computed.

    Raises:
        TapeError: it is not.
    """
    missing, scale = [0.0], [0.0]
    for number, then in tape.gradients.items():
        if then.after is not None:
            gave = then.after if then.before is None else then.after - then.before
            again = gradients.get(number)
            missing.append(_norm(gave if again is None else again.to(gave.dtype) - gave))
            scale += [_norm(gave), 0.0 if then.before is None else _norm(then.before)]
    if math.hypot(*missing) > _SAME * math.hypot(*scale):
        raise TapeError("its gradients are others when it is computed again")


def _difference(one: Tensor, other: Tensor) -> Tensor:
    """Nothing where both are the same infinity, as of a mask."""
    return torch.where(one == other, torch.zeros_like(other), one - other)


def _low(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.") if tensor.dtype in _LOW else ""


def _is_cancelling(call: TapeCall, replay: Replay, result: Tensor) -> bool:
    given = [
        replay.tensors[slot.number]
        for slot in call.slots()
        if replay.tensors[slot.number].is_floating_point()
    ]
    sizes = [_norm(each) / math.sqrt(max(1, each.numel())) for each in given]
    left = _norm(result[result.isfinite()]) / math.sqrt(max(1, result.numel()))
    return len(given) > 1 and left <= _CANCELS * min(sizes)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach()).item())
