"""What the comparison of ranks has found, as verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict
from agviz.check.ranks.comparing import Disagreement
from agviz.words.units import percent, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.check.ranks.comparing import RankDifference, RanksAnswer

_MOST_NAMED: Final = 3
_UNSURE: Final = frozenset(
    {Disagreement.ALONE, Disagreement.NOT_THE_MEAN, Disagreement.MAYBE_SUMMED}
)
"""These may be meant."""


class _Said(NamedTuple):
    """What is said of a way to differ.

    ``apart``, ``not_the_mean`` and ``times`` begin with "the gradients of" the parameters.
    """

    heading: str
    paragraph: str


_SAID: Final[Mapping[Disagreement, _Said]] = {
    Disagreement.NO_SYNC: _Said(
        "{apart}: no_sync is never left",
        "The last backward pass before the optimizer's step ran under no_sync, so DDP reduced"
        " nothing and each rank trains on its own batches alone. Run the last one outside of"
        " no_sync, forward and backward.",
    ),
    Disagreement.PAST_DDP: _Said(
        "{apart}: the module is called past DDP",
        "This calls the module that DDP wraps, not DDP, so DDP prepared nothing for backward and"
        " reduced nothing. Call DDP itself in training.",
    ),
    Disagreement.IGNORED: _Said(
        "{apart}: DDP was told to ignore {them}",
        "All ranks hold the same values and get different gradients, so they drift apart. Leave"
        " {them} out of _set_params_and_buffers_to_ignore_for_model, or reduce the gradients in"
        " another way.",
    ),
    Disagreement.NEW: _Said(
        "{apart}: DDP does not know {them}",
        "What was put into the module after DDP had wrapped it is trained by each rank alone."
        " Change the model before DDP wraps it.",
    ),
    Disagreement.LOST: _Said(
        "{apart}, though DDP was called",
        "DDP has not reduced {them}. Something may have replaced a leaf after the model was wrapped"
        " (a change of dtype or device, .data). Convert the model before DDP wraps it.",
    ),
    Disagreement.APART: _Said(
        "{apart}, though DDP was called",
        "What changes {them} on some ranks before backward has ended was not seen.",
    ),
    Disagreement.OUTSIDE: _Said(
        "{apart}: DDP does not hold {them}",
        "Others of the same optimizer are under DDP. All ranks hold the same values and get"
        " different gradients, so they drift apart. Put all that is trained into the module that"
        " DDP wraps.",
    ),
    Disagreement.ALONE: _Said(
        "{apart}, and nothing reduces {them}",
        "All ranks hold the same values and no DDP wraps them: each trains on its own batches"
        " alone. That is right where models are averaged later; if not, wrap the model in DDP.",
    ),
    Disagreement.WRITTEN_AFTER: _Said(
        "{apart}: written to after backward",
        "DDP left the same on all ranks; {ranks} changed it before the optimizer's step. Do the"
        " same on all ranks, with the same numbers.",
    ),
    Disagreement.WRITTEN_BEFORE: _Said(
        "{what} written to before ranks are averaged",
        "Between backward passes, {ranks} changed what was there before it was reduced, and each"
        " rank in another way, as clipping does. One process would do it to the gradient of the"
        " whole batch: do it after the last backward pass.",
    ),
    Disagreement.HOOK: _Said(
        "{what} changed by a hook before ranks are averaged",
        "The hook gets the gradient of each rank's own batch before it is reduced, and does"
        " something else to it on each, as clipping does: the mean of what it gives is not what it"
        " would give for the whole batch. Do it after backward.",
    ),
    Disagreement.NOT_THE_MEAN: _Said(
        "{not_the_mean}",
        "All ranks hold the same. What changes it between backward and the end of the reduction"
        " was not seen.",
    ),
    Disagreement.VALUES: _Said(
        "{names}: other values on each rank",
        "Gradients are equal on all ranks, so the ranks began with other values, or something but"
        " the optimizer writes to them. Begin with the same: a seed before the model is made, or a"
        " broadcast.",
    ),
    Disagreement.SUMMED: _Said(
        "{times}",
        "The loss is a mean over the batch, and gradients are summed over ranks. One process would"
        " get the mean: divide by the world size.",
    ),
    Disagreement.MAYBE_SUMMED: _Said(
        "{times}",
        "That is right for a loss that is a sum over the batch; of a mean, divide by the world"
        " size. Which of both the loss is can't be told.",
    ),
    Disagreement.SUM_LOSS: _Said(
        "gradients are 1/{world} of those of one process: the loss is a sum",
        "The loss sums over the batch, and DDP averages over {world} ranks, so each sample weighs"
        " 1/{world} of what it would in one process. Use a mean, or multiply the loss by the world"
        " size.",
    ),
    Disagreement.UNEVEN: _Said(
        "batches of different sizes weigh alike",
        "The loss is a mean of {counts} numbers on the ranks, and DDP averages these means: samples"
        " in small batches weigh more. One process would get a gradient that differs by {share} of"
        " its norm. Use batches of one size, or sum, multiply by the world size and divide by the"
        " size of all batches.",
    ),
    Disagreement.SAME_BATCH: _Said(
        "all ranks get the same batch",
        "The inputs of DDP are equal on all {world} ranks, so the ranks do the same work, and the"
        " gradient is that of one batch. Give each rank its own part: a DistributedSampler, or a"
        " seed that has the rank in it.",
    ),
}


def verdicts_of_ranks(answer: RanksAnswer) -> list[Verdict]:
    """What is to be said of the comparison; never nothing."""
    if answer.why_not:
        return [
            Verdict(
                outcome=Outcome.CANT_TELL,
                heading="the gradients of the ranks were not compared with those of one process",
                paragraph=f"The reason: {answer.why_not}.",
            )
        ]
    found = [_verdict(each, answer.world) for each in answer.differences]
    return found or [_nothing(answer)]


def _verdict(found: RankDifference, world: int) -> Verdict:
    said = _SAID[found.disagreement]
    filled = _filled(found, world)
    step = f" Seen at step {found.step:,} of optimizer {found.optimizer}."
    return Verdict(
        outcome=Outcome.CANT_TELL if found.disagreement in _UNSURE else Outcome.FOUND,
        heading=said.heading.format_map(filled),
        frame=found.frame,
        source="" if found.frame is None else source_line(found.frame),
        paragraph=said.paragraph.format_map(filled) + step,
    )


def _filled(found: RankDifference, world: int) -> dict[str, str]:
    several = len(found.names) > 1
    are = "are" if several else "is"
    names = _list(found.names)
    what = f"the gradient{'s' if several else ''} of {names} {are}"
    return {
        "what": what,
        "apart": f"{what} not equal on all ranks",
        "not_the_mean": f"{what} not the mean of those of all ranks",
        "times": f"{what} {world:,} times the mean of those of all ranks",
        "names": names,
        "them": "them" if several else "it",
        "ranks": _ranks(found, world),
        "world": f"{world:,}",
        "counts": _list([f"{count:,}" for count in found.counts]),
        "share": percent(found.share),
    }


def _nothing(answer: RanksAnswer) -> Verdict:
    steps = "step" if len(answer.steps) == 1 else "steps"
    looked_at = (
        f"Compared, of {plural(answer.parameters, 'parameter')} at optimizer {steps}"
        f" {', '.join(map(str, answer.steps))}: what the optimizer gets on each rank, and the mean"
        " of what the ranks' own backward gave; of large tensors some elements. One process gets"
        " that mean where the loss is a mean over batches of one size."
    )
    said = [looked_at]
    if answer.has_own_statistics:
        said.append("Batch norm uses each rank's own batch, which one process would not.")
    if answer.left_out:
        said.append(f"Not compared: {'; '.join(answer.left_out)}.")
    return Verdict(
        outcome=Outcome.NOTHING_UNUSUAL,
        heading=f"nothing unusual in the gradients of {answer.world:,} ranks beside each other",
        paragraph=" ".join(said),
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {plural(more, 'other')}" if more > 0 else shown


def _ranks(found: RankDifference, world: int) -> str:
    if len(found.ranks) == world:
        return "all ranks"
    if not found.ranks:
        return "some rank"
    return f"{'rank' if len(found.ranks) == 1 else 'ranks'} {_list(list(map(str, found.ranks)))}"
