"""What is found in the steps of a run: causes before consequences, and what stops all first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agviz.analysis.below_zero import below_zero
from agviz.analysis.steps import (
    adding,
    aliasing,
    alike,
    amplifying,
    averaging,
    axes,
    batching,
    binding,
    by_hand,
    clearing,
    climbing,
    collapsing,
    creeping,
    decaying,
    discarding,
    diverging,
    dividing,
    drawing_samples,
    dropping,
    evaluating,
    exploding,
    falling,
    following,
    freezing,
    gradientless,
    holding,
    hooking,
    idling,
    inverting,
    kept_on_class,
    labels,
    loading,
    looking,
    making,
    mistaken,
    modes,
    options,
    overwriting,
    penalising,
    permuting,
    prefixes,
    rates,
    rebinding,
    remaking,
    reordering,
    repeated_modules,
    repeating,
    restoring,
    returns,
    sampling,
    scales,
    scaling,
    scores,
    seeding,
    signs,
    spoiling,
    statements,
    still,
    stuck,
    summing,
    twice,
    uncalled,
    undoing,
    ungiven,
    unread,
    unscaled_losses,
    unseen,
    unstepped,
    viewing,
    weighing,
    weightless,
    wrapping,
)
from agviz.analysis.steps.run import RunSteps
from agviz.analysis.zero_derivative import second_derivatives
from agviz.words.units import backward_passes

if TYPE_CHECKING:
    from agviz.analysis.steps.finding import StepFinding
    from agviz.traces.reader import Trace


_OF_A_PART: Final = frozenset(
    {
        *("after the mean", "always drops", "average", "bounds swapped", "data written"),
        *("divided again", "first batch", "first turn", "flagged", "frozen", "frozen by name"),
        *("frozen, moved",),
        *("held twice", "hidden write", "late binding", "left in groups", "lost sums"),
        *("made in forward", "no option", "no statistics", "no way back", "not clipped"),
        *("not held", "nothing loaded", "on in evaluation", "one module", "only named"),
        *("piecewise linear", "rebound", "reordered", "restores nothing", "seeded again"),
        *("sharing", "single values", "still", "swallowed", "swapped", "undetached", "unfrozen"),
        *("unread", "unregistered", "unused result", "weighed", "wrapped again"),
    }
)
"""Kinds of what goes wrong with some parameters, or by a factor, while the others are trained."""
_WITHOUT_EFFECT: Final = _OF_A_PART.difference(
    (
        "data written",
        "held twice",
        "late binding",
        "no option",
        "not clipped",
        "reordered",
        "sharing",
        "weighed",
    ),
    ("unused result",),
)
"""Those of them that make no loss grow, and nothing NaN."""


def found_in_steps(trace: Trace) -> list[StepFinding]:
    """What is wrong with the steps of a run; empty where only some passes were chosen.

    Where passes were left out, it is that of the run before the first of them.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.partial:
        return []
    found = _found(trace.beginning)
    if trace.beginning is not trace:
        count = backward_passes(len(trace.beginning.graph_tasks.outermost.ids), 0)
        said = f"That is of the first {count}, before any was left out."
        found = [replace(one, paragraph=f"{one.paragraph} {said}") for one in found]
    return [*unseen.unseen(trace), *found]


def _found(trace: Trace) -> list[StepFinding]:
    run = RunSteps(trace)
    early = list(scaling.unscaled_too_early(run))
    restored = list(restoring.restores_nothing(run))
    held = list(holding.holding(run))
    if not any(one.kind == "replaced" for one in held):
        held = list(holding.held_instead(run)) or held
    causes = [
        *idling.idle(run),
        *(
            early
            or list(clearing.cleared(run))
            or list(clearing.kept(run))
            or ([] if held else list(clearing.kept_in_part(run)))  # what it holds no longer
            or list(clearing.kept_by_hand(run))
            or list(clearing.kept_within(run))
            or clearing.mixed(run)
        ),
        *clearing.given_back(run),
        *(() if early else discarding.thrown_away(run)),
        *following.follows_another(run),
        *held,
        *making.made_in_forward(run),
        *holding.held_twice(run),
        *mistaken.flagged(run),
        *freezing.frozen(run),
        *freezing.moved_though_frozen(run),
        *prefixes.frozen_by_prefix(run),
        *modes.stayed(run),
        *modes.stayed_by_nodes(run),
        *modes.frozen_in_training(run),
        *mistaken.sharing(run),
        *mistaken.swapped(run),
        *mistaken.undetached(run),
        *mistaken.without_statistics(run),
        *mistaken.counting_nothing(run),
        *(list(hooking.written(run)) or looking.looking(run)),
        *binding.read_late(run),
        *ungiven.ungiven(run),
        *kept_on_class.kept_on_class(run),
        *reordering.reordered(run),
        *(list(rates.rates(run)) or stuck.stuck(run)),
        *decaying.decaying(run),
        *([] if restored else decaying.multiplied(run)),
        *rebinding.rebound(run),
        *permuting.permuted(run),
        *(list(labels.mislabelled(run)) or labels.of_hinge(run)),
        *options.written_options(run),
        *options.outweighed(run),
        *options.swallowed(run),
        *averaging.averaged(run),
        *by_hand.without_sign(run),
        *by_hand.stepped_up(run),
        *signs.penalties(run),
        *signs.unclipped_surrogates(run),
        *returns.of_the_past(run),
        *aliasing.aliases(run),
        *alike.begun_alike(run),
        *axes.all_with_all(run),
        *axes.last_of_samples(run),
        *axes.over_samples(run),
        *viewing.written_views(run),
        *statements.hidden_writes(run),
        *statements.thrown_away_results(run),
        *overwriting.overwritten(run),
        *statements.no_options(run),
        *statements.first_turn(run),
        *statements.first_batch(run),
        *remaking.made_anew(run),
        *remaking.left_behind(run),
        *remaking.schedules_anew(run),
        *unstepped.unstepped(run),
        *adding.left_in_groups(run),
        *repeating.stepped_again(run),
        *repeated_modules.repeated_modules(run),
        *wrapping.wrapped_again(run),
        *inverting.inverted(run),
        *(restored or loading.without_copy(run)),
        *loading.of_nothing(run),
        *restoring.pulled_back(run),
        *still.still(run),
        *unread.unread(run),
        *spoiling.never_steps(run),
        *climbing.climbing(run),
        *collapsing.collapsing(run),
        *undoing.set_back(run),
        *(
            list(undoing.shrunk(run))
            or list(unscaled_losses.scaled_in_part(run))
            or creeping.creeping(run)
        ),
        *scaling.stepped_while_scaled(run),
        *undoing.unclipped(run),
        *weighing.unequal(run),
        *weighing.after_mean(run),
        *weightless.weightless(run),
        *batching.of_whole_batch(run),
        *penalising.norm_of_parts(run),
        *sampling.in_pixels(run),
        *(list(twice.same_derivative(run)) or twice.summed_derivative(run)),
        *summing.without_gradient(run),
        *drawing_samples.drawn(run),
        *seeding.seeded_again(run),
        *dropping.lost(run),
        *dropping.rows_replaced(run),
        *(list(dropping.alone(run)) or dropping.signs_only(run)),
        *dropping.mean_of_norm(run),
        *dropping.swapped_bounds(run),
        *amplifying.amplified(run),
        *(list(dropping.always(run)) or evaluating.left_on(run)),
        *dividing.divided_again(run),
        *scores.scores_given(run),
        *below_zero(run),
        *second_derivatives(run),
    ]
    if not any(found.kind in {"replaced", "unregistered", "frozen"} for found in causes):
        causes += gradientless.without_gradient(run)
    causes = uncalled.uncalled(run, causes)
    causes.sort(key=lambda found: found.kind in _OF_A_PART)
    if any(found.kind not in _WITHOUT_EFFECT for found in causes):
        return causes
    trends = [*scales.unscaled(run)] or [*falling.plunging(run)] or [*diverging.diverging(run)]
    trends = trends or [*falling.falling(run)]
    trends = trends or [*exploding.exploding(run)]
    return [*(trends or [*spoiling.spoilt(run)] or spoiling.buffers(run)), *causes]


def note_on_steps(trace: Trace) -> str:
    """What is worth a word where nothing is wrong, without its full stop; empty: nothing is.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return "" if trace.meta.partial else holding.note(RunSteps(trace.beginning))
