"""Whether ranks end up with the gradient of one process, and if not, in what way.

Note [One process]
One process that gets the batches of all ranks as one computes the mean of their gradients, where
the loss is a mean over the batch and all batches are of one size. So the gradient that is left in
``.grad`` is held against the mean of those that the ranks' own backward gave. Where the node that
reduces the loss is known, so is by how much each rank's samples should weigh.

Note [The same change]
The program may change a rank's gradient before it is reduced. To multiply each element by the same
on all ranks, or all by one factor and add the same, gives the same when it is done to the mean.
What clips or normalises by the gradient itself is another thing on each rank.

Note [Drifting apart]
Parameters that DDP does not synchronise may be meant to be each rank's own, as experts are. They
count as lost only where all ranks hold the same values, and get different gradients.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from agviz.check.ranks.notes import DDP, IGNORED, MEAN, NEW, OUTSIDE, SOME, SUM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.check.ranks.notes import (
        CallNote,
        LossNote,
        ParameterNote,
        PassNote,
        RankNotes,
        StepNote,
    )
    from agviz.traces.rows import Frame

_UNEVEN: Final = 1.5
"""Times the smallest batch that the largest has at least, where it is worth a word."""
_NOTABLE: Final = 0.1
"""Of the gradient's norm: by so much it has to differ from that of one process."""


class Disagreement(Enum):
    """In what way gradients are others than those of one process."""

    NO_SYNC = auto()
    PAST_DDP = auto()
    IGNORED = auto()
    NEW = auto()
    LOST = auto()
    """DDP has it, and does not reduce its gradient."""
    APART = auto()
    """DDP has it, was called, and no cause is known."""
    OUTSIDE = auto()
    """Others of the optimizer are under DDP."""
    ALONE = auto()
    """Nothing is under DDP: each rank may train for itself on purpose."""
    WRITTEN_AFTER = auto()
    WRITTEN_BEFORE = auto()
    HOOK = auto()
    NOT_THE_MEAN = auto()
    """No cause is known."""
    VALUES = auto()
    """The ranks hold different values."""
    SUMMED = auto()
    """Over the ranks, of means."""
    MAYBE_SUMMED = auto()
    """Over the ranks; what the loss is can't be told."""
    SUM_LOSS = auto()
    UNEVEN = auto()
    SAME_BATCH = auto()


_UNREDUCED: Final = frozenset(
    {
        Disagreement.NO_SYNC,
        Disagreement.PAST_DDP,
        Disagreement.IGNORED,
        Disagreement.NEW,
        Disagreement.LOST,
        Disagreement.OUTSIDE,
        Disagreement.ALONE,
    }
)
"""Where parameters may be averaged in place of gradients."""


@dataclass
class RankDifference:
    """One way in which gradients differ, and where."""

    disagreement: Disagreement
    optimizer: int
    step: int
    names: list[str] = field(default_factory=list)
    """Of parameters."""
    ranks: list[int] = field(default_factory=list)
    """That are meant, where not all are."""
    frame: Frame | None = None
    counts: list[int] = field(default_factory=list)
    """By rank, what its loss is made of."""
    share: float = 0.0
    """By how much of its norm the gradient differs."""


@dataclass
class RanksAnswer:
    """What came of the comparison."""

    world: int
    differences: list[RankDifference] = field(default_factory=list)
    """The first step's that has any."""
    parameters: int = 0
    """That were compared."""
    steps: list[int] = field(default_factory=list)
    why_not: str = ""
    """Why nothing can be said."""
    left_out: list[str] = field(default_factory=list)
    """Why something was not compared."""
    has_own_statistics: bool = False


def compare_ranks(notes: Sequence[RankNotes]) -> RanksAnswer:
    """Hold what ranks have noted against each other.

    Args:
        notes: of each rank, in their order.
    """
    answer = RanksAnswer(len(notes))
    answer.why_not = next((each.why_not for each in notes if each.why_not), "")
    if answer.why_not:
        return answer
    by_rank = [{(step.optimizer, step.step): step for step in each.steps} for each in notes]
    common = [key for key in by_rank[0] if all(key in steps for steps in by_rank)]
    if not common:
        answer.why_not = "the optimizers of the ranks have no step in common"
        return answer
    names = set()
    for key in sorted(common, key=lambda pair: (pair[1], pair[0])):
        compared = _Step([steps[key] for steps in by_rank], answer)
        found = compared.differences()
        names |= {(key[0], name) for name in compared.parameters}
        answer.steps = sorted({*answer.steps, key[1]})
        if found and not answer.differences:
            answer.differences = found
    last = _Step([steps[common[-1]] for steps in by_rank], RanksAnswer(len(notes)))
    answer.differences = [each for each in answer.differences if not last.are_averaged(each)]
    for number in {key[0] for key in common}:
        several = [[steps[key] for steps in by_rank] for key in common if key[0] == number]
        answer.differences += _same_batches(several)
    answer.parameters = len(names)
    if not names and not answer.why_not:
        answer.why_not = "no parameter was found in all ranks with the same size"
    return answer


class _Step:
    """A step of an optimizer, on all ranks.

    Args:
        notes: by rank.
        answer: what is left out is added to it.
    """

    def __init__(self, notes: Sequence[StepNote], answer: RanksAnswer) -> None:
        self._notes = notes
        self._answer = answer
        answer.has_own_statistics |= any(each.has_own_statistics for each in notes)
        self.parameters: dict[str, list[ParameterNote]] = {}
        for name in notes[0].parameters:
            several = [each.parameters[name] for each in notes if name in each.parameters]
            if len(several) == len(notes) and _are_alike(several):
                self.parameters[name] = several
            else:
                self._leave_out("some parameters have no dense gradient on some ranks")
        self._found: dict[tuple[Disagreement, Frame | None], RankDifference] = {}

    def differences(self) -> list[RankDifference]:
        """What differs."""
        reduced: list[str] = []
        for name, several in self.parameters.items():
            if self._is_reduced(name, several):
                reduced.append(name)
        if not self._found:
            self._losses(reduced)
        return list(self._found.values())

    def are_averaged(self, found: RankDifference) -> bool:
        """Whether, at this later step, what was not reduced holds the same values on all ranks."""
        several = [self.parameters.get(name) for name in found.names]
        is_later = self._notes[0].step > found.step and bool(several)
        if found.disagreement not in _UNREDUCED or not is_later:
            return False
        return all(each and len({one.value for one in each}) == 1 for each in several)

    def _is_reduced(self, name: str, several: Sequence[ParameterNote]) -> bool:
        """Whether a parameter got the mean; what else it got is added to what was found."""
        why_not = self._why_not(several)
        if why_not:
            self._leave_out(why_not)
            return False
        given = [_known(each.given) for each in several]
        has_values = len({each.value for each in several}) == 1
        if not all(torch.equal(given[0], each) for each in given):
            self._unequal(name, several, has_values=has_values)
            return False
        if not has_values and several[0].place in {DDP, OUTSIDE}:
            self._add(Disagreement.VALUES, name)
            return False
        if several[0].is_compressed:
            self._leave_out("a communication hook changes gradients on their way")
            return True
        return self._is_mean(name, several)

    def _why_not(self, several: Sequence[ParameterNote]) -> str:
        """Why nothing can be said of a parameter."""
        if several[0].place == SOME or len({each.place for each in several}) > 1:
            return "some parameters are under a DDP of some ranks only"
        if self._notes[0].joins:
            return "ranks may end early (join)"
        if not all(bool(_known(each.given).isfinite().all()) for each in several):
            return "some gradients are not finite"
        return ""

    def _is_mean(self, name: str, several: Sequence[ParameterNote]) -> bool:
        """Of a gradient that is equal on all ranks."""
        own = [_own(each) for each in several]
        mean = torch.stack(own).mean(0)
        size = sum(float(each.norm()) for each in own) / len(own)
        allowed = several[0].tolerance * size
        is_ddp = several[0].place == DDP
        left = _known(several[0].reduced if is_ddp else several[0].given)
        if float((left - mean).norm()) <= allowed or not size:
            return self._is_changed_alike(name, several)
        if is_ddp:
            self._add(Disagreement.NOT_THE_MEAN, name, self._last_pass(several[0]).frame)
        elif float((left - len(own) * mean).norm()) <= len(own) * allowed:
            kind = self._kind()
            if kind == SUM:
                return True
            disagreement = Disagreement.SUMMED if kind == MEAN else Disagreement.MAYBE_SUMMED
            self._add(disagreement, name, self._notes[0].collective)
        else:
            self._leave_out("gradients are changed after they are averaged by hand")
        return False

    def _is_changed_alike(self, name: str, several: Sequence[ParameterNote]) -> bool:
        """Note [The same change]; of a gradient that is the mean of what ranks have given."""
        reached = [each for each in several if each.own is not None]
        allowed = several[0].tolerance
        if not _are_alike_changes(
            [(one.before_write, one.after_write) for one in reached], allowed
        ):
            writers = [n for n, each in enumerate(several) if each.before_write is not None]
            self._add(
                Disagreement.WRITTEN_BEFORE, name, several[writers[0]].written_before, writers
            )
            return False
        if not _are_alike_changes([(one.before_hook, one.after_hook) for one in reached], allowed):
            hook = next((each.hook for each in reached if each.hook), None)
            self._add(Disagreement.HOOK, name, hook)
            return False
        return True

    def _unequal(self, name: str, several: Sequence[ParameterNote], *, has_values: bool) -> None:
        """Of a gradient that is not equal on all ranks."""
        place = several[0].place
        left = [_known(each.reduced) for each in several]
        if place == DDP and all(torch.equal(left[0], each) for each in left):
            writers = [rank for rank, each in enumerate(several) if each.written_after]
            frame = several[writers[0]].written_after if writers else None
            self._add(Disagreement.WRITTEN_AFTER, name, frame, writers)
            return
        last = self._last_pass(several[0])
        if place == NEW:
            self._add(Disagreement.NEW, name, several[0].placed)
        elif place == IGNORED:
            if has_values:
                self._add(Disagreement.IGNORED, name, several[0].placed)
            else:
                self._leave_out("DDP was told to leave out parameters that differ between ranks")
        elif place == OUTSIDE:
            self._alone(name, last, has_values=has_values)
        elif not _are_unreduced(several):
            self._add(Disagreement.APART, name, last.frame)
        elif last.calls and not any(each.syncs and not each.is_past_ddp for each in last.calls):
            disagreement = (
                Disagreement.PAST_DDP if last.calls[-1].is_past_ddp else Disagreement.NO_SYNC
            )
            self._add(disagreement, name, last.calls[-1].frame)
        else:
            self._add(Disagreement.LOST, name, last.frame)

    def _alone(self, name: str, last: PassNote, *, has_values: bool) -> None:
        if not has_values:
            self._leave_out("parameters outside of DDP hold other values on each rank")
        elif any(each[0].place == DDP for each in self.parameters.values()):
            self._add(Disagreement.OUTSIDE, name, last.frame)
        else:
            self._add(Disagreement.ALONE, name, last.frame)

    def _losses(self, reduced: Sequence[str]) -> None:
        """Of gradients that are the mean of those of all ranks, whether that is right."""
        under_ddp = [self.parameters[name] for name in reduced]
        under_ddp = [each for each in under_ddp if each[0].place == DDP]
        passes = {number for each in under_ddp for note in each for number in note.passes}
        if not under_ddp:
            return
        losses = [
            [note.passes[number].loss for note in self._notes]
            for number in sorted(passes)
            if all(number < len(note.passes) for note in self._notes)
        ]
        known = [[each for each in several if each is not None] for several in losses]
        if not known or any(len(each) < len(self._notes) for each in known):
            return
        every = list(itertools.chain.from_iterable(known))
        if all(each.kind == SUM and each.scale == 1 for each in every):
            self._add(Disagreement.SUM_LOSS, "", every[0].frame)
        elif len(known) == 1 and all(each.kind == MEAN for each in every):
            self._weights(known[0], under_ddp, min(passes))

    def _weights(
        self, losses: Sequence[LossNote], under_ddp: Sequence[list[ParameterNote]], number: int
    ) -> None:
        """Note [One process]."""
        counts = [each.count for each in losses]
        batches = {_batch(note.passes[number].calls) for note in self._notes}
        is_uneven = max(counts) >= _UNEVEN * min(counts) and len(batches) > 1
        if not is_uneven or len({each.scale for each in losses}) > 1:
            return
        weights = [count / sum(counts) for count in counts]
        joint = torch.cat([_weighted(each, weights) for each in under_ddp])
        even = torch.cat([_weighted(each, [1 / len(counts)] * len(counts)) for each in under_ddp])
        share = float((joint - even).norm() / joint.norm()) if joint.any() else 0.0
        if share >= _NOTABLE:
            found = self._add(Disagreement.UNEVEN, "", losses[0].frame)
            found.counts, found.share = counts, share

    def _kind(self) -> str:
        """Of all losses of all ranks; empty: not known of all, or not the same."""
        losses = [each.loss for note in self._notes for each in note.passes]
        kinds = {"" if each is None or each.scale != 1 else each.kind for each in losses}
        return kinds.pop() if len(kinds) == 1 else ""

    def _last_pass(self, note: ParameterNote) -> PassNote:
        return self._notes[0].passes[note.passes[-1] if note.passes else -1]

    def _leave_out(self, why: str) -> None:
        if why not in self._answer.left_out:
            self._answer.left_out.append(why)

    def _add(
        self,
        disagreement: Disagreement,
        name: str,
        frame: Frame | None = None,
        ranks: Iterable[int] = (),
    ) -> RankDifference:
        first = self._notes[0]
        found = self._found.setdefault(
            (disagreement, frame),
            RankDifference(disagreement, first.optimizer, first.step, frame=frame),
        )
        if name:
            found.names.append(name)
        found.ranks = sorted({*found.ranks, *ranks})
        return found


def _same_batches(steps: Sequence[Sequence[StepNote]]) -> list[RankDifference]:
    """Whether all ranks got the same batches at all steps of an optimizer that were noted.

    Inputs that stay the same from step to step are no batches, unless the gradients are the same
    on all ranks as well: then all of them compute what one does.
    """
    every = []
    for notes in steps:
        calls = [[each for one in note.passes for each in one.calls] for note in notes]
        inputs = [[each.inputs for each in one if not each.is_past_ddp] for one in calls]
        if not inputs[0] or not all(inputs[0]) or any(each != inputs[0] for each in inputs):
            return []
        every.append(inputs[0])
    has_changed = len(every) > 1 and every[0] != every[-1]
    first = steps[0]
    if not has_changed and not _are_gradients_same(first):
        return []
    frame = next(each.frame for one in first[0].passes for each in one.calls)
    return [RankDifference(Disagreement.SAME_BATCH, first[0].optimizer, first[0].step, frame=frame)]


def _are_gradients_same(notes: Sequence[StepNote]) -> bool:
    found = False
    for name, one in notes[0].parameters.items():
        others = [each.parameters.get(name) for each in notes]
        if one.own is None or any(each is None or each.own is None for each in others):
            return False
        found = True
        if not all(each is not None and torch.equal(_own(one), _own(each)) for each in others):
            return False
    return found


def _are_alike(several: Sequence[ParameterNote]) -> bool:
    tensors = [each for note in several for each in (note.given, note.reduced, note.own)]
    sizes = {each.numel() for each in tensors if each is not None}
    has_all = all(note.given is not None and note.reduced is not None for note in several)
    return has_all and len(sizes) == 1


def _are_unreduced(several: Sequence[ParameterNote]) -> bool:
    """Whether each rank keeps its own."""
    return all(
        float((_known(each.reduced) - _own(each)).norm())
        <= each.tolerance * float(_own(each).norm())
        for each in several
    )


def _are_alike_changes(
    several: Sequence[tuple[Tensor | None, Tensor | None]], allowed: float
) -> bool:
    """Note [The same change]: of what was there before and after, on each rank."""
    pairs = [
        (before, after) for before, after in several if before is not None and after is not None
    ]
    if not pairs:
        return True
    if len(pairs) < len(several):
        return False
    (before, after), *others = pairs
    return all(_is_same_change(before, after, *each, allowed) for each in others)


def _is_same_change(
    before: Tensor, after: Tensor, other_before: Tensor, other_after: Tensor, allowed: float
) -> bool:
    """Whether two ranks have multiplied by the same, or by one factor and added the same."""
    crossed = other_after * before, after * other_before
    if bool(torch.isclose(*crossed, rtol=allowed, atol=0.0).all()):
        return True
    apart, then_apart = other_before - before, other_after - after
    square = float(apart.dot(apart))
    factor = float(apart.dot(then_apart)) / square if square else 0.0
    off = float((then_apart - factor * apart).norm())
    return off <= allowed * float(then_apart.norm())


def _known(tensor: Tensor | None) -> Tensor:
    """Of a note that :func:`_are_alike` has let through."""
    if tensor is None:
        raise AssertionError
    return tensor


def _own(note: ParameterNote) -> Tensor:
    """Where none came, as to the branch that a rank did not take, it is 0."""
    return torch.zeros_like(_known(note.given)) if note.own is None else note.own


def _weighted(several: Sequence[ParameterNote], weights: Sequence[float]) -> Tensor:
    return torch.stack([_own(each) * by for each, by in zip(several, weights, strict=True)]).sum(0)


def _batch(calls: Sequence[CallNote]) -> int | None:
    return calls[0].batch if calls else None
