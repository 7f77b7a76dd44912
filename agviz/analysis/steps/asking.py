"""What is found in the steps of a run: causes before consequences, and what stops all first."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agviz.analysis.below_zero import below_zero
from agviz.analysis.steps import (
    adding,
    aliasing,
    alike,
    amplifying,
    attending,
    averaging,
    axes,
    batching,
    binding,
    bootstrapping,
    by_hand,
    clearing,
    climbing,
    codebooks,
    collapsing,
    copying,
    creeping,
    decaying,
    discarding,
    diverging,
    dividing,
    drawing_samples,
    dropping,
    dropping_most,
    evaluating,
    evidence_bound,
    exploding,
    falling,
    flows,
    following,
    freezing,
    gradientless,
    holding,
    hooking,
    idling,
    inverting,
    items,
    kept_on_class,
    labels,
    loading,
    log_scales,
    looking,
    making,
    milestones,
    mistaken,
    modes,
    noising,
    opposing,
    options,
    overwriting,
    padding,
    penalising,
    permuting,
    plateaus,
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
    steps_first,
    still,
    stuck,
    summing,
    teaching,
    twice,
    uncalled,
    undoing,
    ungiven,
    unread,
    unscaled_losses,
    unseen,
    unstepped,
    unused_names,
    viewing,
    wasted_terms,
    weighing,
    weightless,
    wrapping,
)
from agviz.analysis.steps.broken_rule import kept_apart
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.zero_derivative import second_derivatives
from agviz.words.units import backward_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace


_OF_A_PART: Final = frozenset(
    {
        *("after the mean", "always drops", "average", "bounds swapped", "codes untrained"),
        *("data written", "divided again", "first batch", "first turn", "flagged", "frozen"),
        *("frozen by name", "frozen, moved"),
        *("held twice", "hidden write", "late binding", "left in groups", "loads itself"),
        *("lost sums", "made in forward", "mask added", "mask inverted", "no causal mask"),
        *("over heads",),
        *("no option", "no statistics", "no way back", "not clipped"),
        *("not held", "nothing loaded", "on in evaluation", "one module", "only named"),
        *("piecewise linear", "rebound", "reordered", "restores nothing", "seeded again"),
        *("sharing", "single values", "still", "swallowed", "swapped", "undetached", "unfrozen"),
        *("unread", "unregistered", "unused result", "values copied", "weighed"),
        *("wasted term", "wrapped again"),
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


_SHOWN: Final[tuple[Callable[[RunSteps], StepFinding | None], ...]] = (
    adding.growing_network,
    gradientless.never_reached,
    steps_first.one_step_of_two_ways,
    signs.signs,
    alike.one_linear_map,
    unused_names.unused_name,
    attending.not_shifted,
    twice.one_derivative,
    bootstrapping.past_the_end,
    averaging.hardly_follows,
    padding.real_row,
    padding.padding_counted,
    dropping_most.heavy_dropout,
    teaching.in_training,
)
"""What is said and not judged, where nothing else was found."""


class _Asking:
    """Asks rules about the steps of a run; one that raises is put among the broken ones."""

    def __init__(self, run: RunSteps) -> None:
        self._run = run
        self.broken: list[StepFinding] = []

    def __call__(self, *rules: Callable[[RunSteps], Iterable[StepFinding]]) -> list[StepFinding]:
        """What the first of these rules finds that finds anything."""
        for rule in rules:
            found: list[StepFinding] = []
            with kept_apart(self.broken):
                found = list(rule(self._run))
            if found:
                return found
        return []


def found_in_steps(trace: Trace, run: RunSteps) -> list[StepFinding]:
    """What is wrong with the steps of a run; empty where only some passes were chosen.

    Where passes were left out, it is that of the run before the first of them.

    Args:
        trace: the trace.
        run: of ``trace.beginning``.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.partial:
        return []
    found = _found(run)
    if run.trace is not trace:
        count = backward_passes(len(run.trace.graph_tasks.outermost.ids), 0)
        why = "before any was left out" if trace.left_out else "of a run with very many optimizers"
        said = f"That is of the first {count}, {why}."
        found = [replace(one, paragraph=f"{one.paragraph} {said}") for one in found]
    return [*unseen.unseen(trace), *found]


def _found(run: RunSteps) -> list[StepFinding]:
    ask = _Asking(run)
    early = ask(scaling.unscaled_too_early)
    restored = ask(restoring.restores_nothing)
    held = ask(holding.holding)
    if not any(one.kind == "replaced" for one in held):
        held = ask(holding.held_instead) or held
    causes = [
        *ask(idling.idle),
        *(
            early
            or ask(clearing.cleared, clearing.kept)
            or ([] if held else ask(clearing.kept_in_part))  # what it holds no longer
            or ask(clearing.kept_by_hand, clearing.kept_within, clearing.mixed)
        ),
        *ask(clearing.given_back),
        *([] if early else ask(discarding.thrown_away)),
        *ask(following.follows_another),
        *held,
        *ask(making.made_in_forward),
        *ask(holding.held_twice),
        *ask(mistaken.flagged),
        *ask(freezing.frozen),
        *ask(freezing.moved_though_frozen),
        *ask(prefixes.frozen_by_prefix),
        *ask(modes.stayed),
        *ask(modes.stayed_by_nodes),
        *ask(modes.frozen_in_training),
        *ask(mistaken.sharing),
        *ask(mistaken.swapped),
        *ask(mistaken.undetached),
        *ask(codebooks.codes_untrained),
        *ask(mistaken.without_statistics),
        *ask(mistaken.counting_nothing),
        *ask(hooking.written, looking.looking),
        *ask(binding.read_late),
        *ask(ungiven.ungiven),
        *ask(ungiven.saved_on_the_way),
        *ask(kept_on_class.kept_on_class),
        *ask(reordering.reordered),
        *ask(plateaus.wrong_way, milestones.passed_early, rates.rates, stuck.stuck),
        *ask(decaying.decaying),
        *([] if restored else ask(decaying.multiplied)),
        *ask(rebinding.rebound),
        *ask(permuting.permuted),
        *ask(labels.mislabelled, labels.of_hinge),
        *ask(options.written_options, options.misnamed_options),
        *ask(options.outweighed),
        *ask(options.swallowed),
        *ask(averaging.averaged),
        *ask(bootstrapping.never_follows),
        *ask(log_scales.log_for_scale),
        *ask(evidence_bound.outweighing),
        *ask(by_hand.without_sign),
        *ask(by_hand.stepped_up),
        *ask(signs.penalties),
        *ask(signs.reversed_twice),
        *ask(flows.determinants),
        *ask(signs.unclipped_surrogates),
        *ask(returns.of_the_past),
        *ask(copying.chances_copied),
        *ask(aliasing.aliases),
        *ask(alike.begun_alike),
        *ask(axes.all_with_all),
        *ask(steps_first.last_of_samples),
        *ask(axes.over_samples),
        *ask(steps_first.pooled_over_samples),
        *ask(viewing.written_views),
        *ask(statements.hidden_writes),
        *ask(statements.thrown_away_results),
        *ask(overwriting.overwritten),
        *ask(statements.no_options),
        *ask(statements.first_turn),
        *ask(statements.first_batch),
        *ask(remaking.made_anew),
        *ask(remaking.left_behind),
        *ask(remaking.schedules_anew),
        *ask(unstepped.unstepped),
        *ask(adding.left_in_groups),
        *ask(repeating.stepped_again),
        *ask(repeated_modules.repeated_modules),
        *ask(wrapping.wrapped_again),
        *ask(inverting.inverted),
        *(restored or ask(loading.without_copy)),
        *ask(loading.of_nothing),
        *ask(loading.of_itself),
        *ask(restoring.pulled_back),
        *ask(still.still),
        *ask(unread.unread),
        *ask(spoiling.never_steps),
        *ask(climbing.climbing),
        *ask(collapsing.collapsing),
        *ask(undoing.set_back),
        *ask(undoing.shrunk, unscaled_losses.scaled_in_part, creeping.creeping),
        *ask(scaling.stepped_while_scaled),
        *ask(undoing.unclipped),
        *ask(weighing.unequal),
        *ask(weighing.after_mean),
        *ask(weightless.weightless),
        *ask(batching.of_whole_batch),
        *ask(penalising.norm_of_parts),
        *ask(sampling.in_pixels),
        *ask(twice.same_derivative, twice.summed_derivative),
        *ask(summing.without_gradient),
        *ask(wasted_terms.wasted_terms),
        *ask(drawing_samples.drawn, drawing_samples.drawn_by_normal),
        *ask(drawing_samples.scored_with_gradient),
        *ask(items.items_written),
        *ask(seeding.seeded_again),
        *ask(noising.drawn_once, noising.drawn_apart),
        *ask(opposing.for_the_other),
        *ask(opposing.far_for_near),
        *ask(dropping.lost),
        *ask(dropping.rows_replaced),
        *ask(dropping.alone, dropping.signs_only),
        *ask(dropping.mean_of_norm),
        *ask(dropping.swapped_bounds),
        *ask(amplifying.amplified),
        *ask(dropping.always, evaluating.left_on),
        *ask(dividing.divided_again),
        *ask(scores.scores_given),
        *ask(attending.attending),
        *ask(below_zero),
        *ask(second_derivatives),
    ]
    if not any(found.kind in {"replaced", "unregistered", "frozen"} for found in causes):
        causes += ask(gradientless.without_gradient)
    causes = ask(functools.partial(uncalled.uncalled, others=causes)) or causes
    causes.sort(key=lambda found: found.kind in _OF_A_PART)
    if any(found.kind not in _WITHOUT_EFFECT for found in causes):
        return [*causes, *ask.broken]
    trends = ask(scales.unscaled, falling.plunging, diverging.diverging, falling.falling)
    trends = trends or ask(exploding.exploding, spoiling.spoilt, spoiling.buffers)
    return [*trends, *causes, *ask.broken]


def shown_in_steps(run: RunSteps) -> list[StepFinding]:
    """The first of what is said and not judged of the steps; else the rules that raised.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if run.trace.meta.partial:
        return []
    broken = list[StepFinding]()
    for rule in _SHOWN:
        with kept_apart(broken):
            found = rule(run)
            if found is not None:
                return [found]
    return broken


def note_on_steps(run: RunSteps) -> str:
    """What is worth a word where nothing is wrong, without its full stop; empty: nothing is.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return "" if run.trace.meta.partial else holding.note(run)
