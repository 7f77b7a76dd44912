"""What is to be said of backward passes: found, nothing unusual in what was recorded, can't tell.

Everybody who says how a recording looks (``explain``, ``why``, ``summary``, ``diff``, the terminal
UI, the pytest plugin, the sentence at the end of a run) asks here, and shows the glyph of the
outcome. So ✓ appears only where something was looked at and is good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agviz.analysis.coverage import coverage
from agviz.analysis.cut_recurrence import cut_recurrence
from agviz.analysis.detached_statistics import detached_statistics
from agviz.analysis.explanation import explain
from agviz.analysis.failure import failed_graph_tasks, failing, failure, is_wrong, why_raised
from agviz.analysis.first_order import first_order
from agviz.analysis.growth import growth
from agviz.analysis.hang import Hang
from agviz.analysis.loss import nonfinite_loss
from agviz.analysis.loss_scale import is_scaled_beyond
from agviz.analysis.mixed_axes import mixed_axes
from agviz.analysis.moving_target import moving_target
from agviz.analysis.no_progress import no_progress
from agviz.analysis.no_use import NoUse, no_use
from agviz.analysis.nonleaf_gradient import READ_ONLY, nonleaf_gradient
from agviz.analysis.normalised_twice import clipped_scores, normalised_twice
from agviz.analysis.outcome import Outcome
from agviz.analysis.outside import outside
from agviz.analysis.pass_marks import is_measured
from agviz.analysis.program_error import program_error
from agviz.analysis.recomputed import Recomputed
from agviz.analysis.refused import refused
from agviz.analysis.repeated_backward import RepeatedBackward
from agviz.analysis.repeated_calls import RepeatedCalls
from agviz.analysis.saturation.finding import saturation
from agviz.analysis.slow_shape import slow_shape
from agviz.analysis.softmax_axis import softmax_axis
from agviz.analysis.source import source_line
from agviz.analysis.steps.asking import found_in_steps, note_on_steps, shown_in_steps
from agviz.analysis.steps.broken_rule import BROKEN, kept_apart
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.run import RunSteps
from agviz.analysis.steps.stuck import STUCK
from agviz.analysis.steps.summing import constant_derivative
from agviz.analysis.trained_advantage import trained_advantage
from agviz.analysis.untrained import untrained
from agviz.analysis.zero_derivative import zero_derivative
from agviz.traces.rows import GraphTaskStatus, visible
from agviz.words.safe import REPLACEMENT
from agviz.words.units import backward_passes, plural
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agviz.analysis.explanation import Explanation
    from agviz.analysis.failure import Failure
    from agviz.analysis.growth import Growth
    from agviz.analysis.loss import NonFiniteLoss
    from agviz.analysis.no_progress import NoProgress
    from agviz.analysis.outside import Outside
    from agviz.analysis.refused import RefusedCall
    from agviz.analysis.saturation.finding import Saturation
    from agviz.analysis.slow_shape import SlowShape
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame


_NEVER: Final = 2**63 - 1
_MAY_BE_MEANT: Final = (
    moving_target,
    cut_recurrence,
    first_order,
    constant_derivative,
    zero_derivative,
    clipped_scores,
)
"""What is said and not judged, where nothing else was found, as :func:`shown_in_steps` is."""
_WRITTEN_SO: Final = (
    normalised_twice,
    mixed_axes,
    softmax_axis,
    trained_advantage,
    detached_statistics,
)
"""What is judged by how the forward is written."""
_FEW: Final = 3
"""Losses, the first and the last, that are compared."""
_WORSE: Final = 3.0
"""Times the first losses: until then a training goes well enough."""
_CONTROL: Final = re.compile(rf"{REPLACEMENT}(\[[\d;]*m)?|\s")
"""What colours a message, or parts its lines."""
_LONGEST: Final = 200
"""Characters of a message that are shown."""
_TOLD_TO_END: Final = frozenset({"", "GeneratorExit", "KeyboardInterrupt", "SystemExit"})
_MOST_NAMED: Final = 3
"""Backward passes or parameters that are named one by one."""

Basis: TypeAlias = (
    "Failure | RefusedCall | Outside | NonFiniteLoss | Growth | SlowShape | StepFinding"
    " | Saturation | NoProgress | NoUse"
)
"""What a verdict is made of, besides gradients that are not finite."""
_Rule: TypeAlias = "Callable[[Trace], Basis | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One thing that is to be said."""

    outcome: Outcome
    heading: str
    """One sentence without glyph, which says of which pass it speaks."""
    graph_task: int | None = None
    """The backward pass that it is about; None: the whole recording."""
    frame: Frame | None = None
    """The line to look at."""
    source: str = ""
    """Its text; empty where it can't be had."""
    paragraph: str = ""
    """What happened, and what to do; or what was looked at, and what was not."""
    details: tuple[str, ...] = ()
    """What it rests on, line by line."""
    verb: str = "explain"
    """The verb of ``agviz`` that shows more."""
    basis: Basis | Explanation | None = None
    """What it was made of; None where nothing was found."""

    @property
    def is_found(self) -> bool:
        """Whether something went wrong."""
        return self.outcome is Outcome.FOUND

    @property
    def line(self) -> str:
        """``model.py:42 in forward``; empty where it is not known."""
        return "" if self.frame is None else str(self.frame)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "outcome": str(self.outcome),
            "heading": self.heading,
            "graph_task": self.graph_task,
            "line": self.line or None,
            "source": self.source or None,
            "paragraph": self.paragraph,
        }


def verdicts(trace: Trace, graph_task: int | None = None) -> tuple[Verdict, ...]:
    """What is to be said of a recording or of one backward pass, the worst first; never nothing.

    Args:
        trace: the trace.
        graph_task: the call of backward or grad that is asked about; None: the whole recording.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    run = RunSteps(trace.beginning)
    found = sorted(_found(trace, graph_task, run), key=_rank)
    if not any(each.is_found and not _is_repeated(each) for each in found):
        # else these may be what follows
        shut = _without_effect(trace, graph_task)
        if isinstance(shut, NoUse) and not shut.is_known:
            found = found or [of_failure(shut, trace, Outcome.CANT_TELL)]
        elif shut is not None:
            found = [of_failure(shut, trace), *found]
    if not found and graph_task is None:
        found = _shown(trace, run)
    if not all(map(_is_repeated, found)):  # of what is only slow, the heading suffices
        found = [replace(each, paragraph="") if _is_repeated(each) else each for each in found]
    return tuple(found) or (_not_found(trace, graph_task, run),)


def _shown(trace: Trace, run: RunSteps) -> list[Verdict]:
    """The first of what may be meant, if anything is found that may; else a rule that raised."""
    broken = []
    for each in _asked(_MAY_BE_MEANT, trace, Outcome.CANT_TELL):
        if not _is_broken(each):
            return [each]
        broken.append(each)
    broken[:0] = [of_failure(each, trace, Outcome.CANT_TELL) for each in shown_in_steps(run)]
    return broken[:1]


def _without_effect(trace: Trace, graph_task: int | None) -> Saturation | NoUse | None:
    """What is saturated, or gets no gradient of use; the latter may be why."""
    shut = saturation(trace, graph_task)
    if graph_task is not None or (shut is not None and shut.trend != "passes"):
        return shut
    unused = no_use(trace)
    return unused if unused is not None and unused.is_cause else shut or unused


def beside_passes(trace: Trace) -> tuple[Verdict, ...]:
    """What is to be said of a recording that is no pass's: a refused call, the program between two.

    Where the program is while no backward is running is said, and that it was ended there.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return tuple(_beside_passes(trace))


def of_failure(wrong: Basis, trace: Trace, outcome: Outcome = Outcome.FOUND) -> Verdict:
    """The verdict on what went wrong, or can't be judged."""
    return Verdict(
        outcome=outcome,
        heading=wrong.heading,
        graph_task=wrong.graph_task,
        frame=wrong.frame,
        source="" if wrong.frame is None else source_line(wrong.frame, trace.path),
        paragraph=wrong.paragraph,
        details=tuple(wrong.details()),
        basis=wrong,
    )


def of_explanation(found: Explanation) -> Verdict:
    """The verdict on gradients that are not finite."""
    if found.is_harmless:
        return Verdict(
            outcome=Outcome.NOTHING_UNUSUAL,
            heading=f"{found.reassurance} in backward pass {found.graph_task}",
            graph_task=found.graph_task,
            frame=found.frame,
            source=found.source,
            paragraph=found.aside,
            details=tuple(found.details()),
            basis=found,
        )
    return Verdict(
        outcome=Outcome.FOUND,
        heading=found.heading,
        graph_task=found.graph_task,
        frame=found.frame,
        source=found.source,
        paragraph=found.paragraph,
        details=tuple(found.details()),
        basis=found,
    )


def _rank(verdict: Verdict) -> tuple[bool, bool]:
    """What was found first, and last of that what harms nothing if it is only looked at."""
    return not verdict.is_found, getattr(verdict.basis, "kind", "") == READ_ONLY


def _is_broken(verdict: Verdict) -> bool:
    """Whether it is of a rule that raised."""
    return getattr(verdict.basis, "kind", "") == BROKEN


def _is_repeated(verdict: Verdict) -> bool:
    """Whether it is of work that is done more often than needed, and of no values."""
    return isinstance(verdict.basis, Recomputed | RepeatedBackward | RepeatedCalls)


def _found(trace: Trace, graph_task: int | None, run: RunSteps) -> Iterator[Verdict]:
    """What went wrong, or can't be judged yet."""
    wrong = failure(trace, graph_task)
    if isinstance(wrong, Hang) and (raising := failing(trace, wrong)) is not None:
        yield of_failure(raising, trace)
    is_left = isinstance(wrong, Hang) and wrong.is_left and graph_task is None
    others = len(trace.graph_tasks) - len(trace.graph_tasks.unfinished)
    if wrong is not None and not (is_left and others):
        is_due = is_wrong(wrong)
        found = of_failure(wrong, trace, Outcome.FOUND if is_due else Outcome.CANT_TELL)
        beside = "" if graph_task is not None else _others(trace, wrong)
        yield replace(found, paragraph=f"{found.paragraph} {beside}".rstrip())
    if graph_task is None:
        yield from _around_passes(trace, wrong)
    yield from _of_steps_and_values(trace, graph_task, run)
    if graph_task is None:
        yield from _asked(_WRITTEN_SO, trace, Outcome.FOUND)
        yield from (of_failure(each, trace) for each in growth(trace))
    slow = slow_shape(trace, graph_task)
    if slow is not None:
        yield of_failure(slow, trace)


def _asked(rules: Iterable[_Rule], trace: Trace, outcome: Outcome) -> Iterator[Verdict]:
    """What each of these rules finds that finds something; a rule that raises is said to have."""
    for rule in rules:
        found, broken = None, list[StepFinding]()
        with kept_apart(broken):
            found = rule(trace)
        yield from (of_failure(each, trace, Outcome.CANT_TELL) for each in broken)
        if found is not None:
            yield of_failure(found, trace, outcome)


def _of_steps_and_values(trace: Trace, graph_task: int | None, run: RunSteps) -> Iterator[Verdict]:
    """What is wrong with steps, and what is not finite, in the order in which it is to be told."""
    steps = found_in_steps(trace, run) if graph_task is None else []
    if any(found.kind == STUCK for found in steps) and no_use(trace) is not None:
        steps = [found for found in steps if found.kind != STUCK]  # it is known what is shut
    explained = explain(trace, graph_task) if is_measured(trace) else None
    lost = _loss(trace, graph_task, explained)
    consequences = min(
        (found.first_pass for found in steps if found.first_pass is not None), default=_NEVER
    )
    of_steps = [
        of_failure(found, trace, Outcome.CANT_TELL if found.kind == BROKEN else Outcome.FOUND)
        for found in steps
    ]
    of_values = []
    if lost is not None and lost.graph_task < consequences:
        of_values.append(of_failure(lost, trace))
    if explained is not None and explained.graph_task < consequences and not explained.is_harmless:
        of_values.append(of_explanation(explained))
    is_by_itself = explained is not None and _is_by_itself(trace, explained)
    yield from of_values + of_steps if is_by_itself else of_steps + of_values


def _is_by_itself(trace: Trace, explained: Explanation) -> bool:
    """Whether a derivative was infinite at a point though training had gone well until then.

    What is wrong with steps is something else then.
    """
    known = trace.losses()
    before = [abs(known[each]) for each in known if each < explained.graph_task]
    went_well = max(before[-_FEW:], default=0.0) <= _WORSE * max(before[:_FEW], default=0.0)
    return explained.is_at_a_point and not explained.is_harmless and went_well


def _others(trace: Trace, wrong: Failure) -> str:
    """Which backward passes raised besides the one described, in a sentence."""
    if isinstance(wrong, Hang):
        return ""
    others = failed_graph_tasks(trace)[:-1]
    if not others:
        return ""
    shown = [str(task.id) for task in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        shown.append(f"{len(others) - _MOST_NAMED:,} more")
    named = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    passes = "Backward pass" if len(others) == 1 else "Backward passes"
    return f"{passes} {named} failed, too."


def _around_passes(trace: Trace, wrong: Failure | None) -> Iterator[Verdict]:
    """What is to be said of a whole recording besides one pass that did not come to its end."""
    failed = failed_graph_tasks(trace)
    if isinstance(wrong, Hang) and failed:
        yield of_failure(why_raised(trace, failed[-1].id), trace)
    yield from _beside_passes(trace)


def _beside_passes(trace: Trace) -> Iterator[Verdict]:
    call = refused(trace)
    if call is not None:
        yield of_failure(call, trace)
    elif (ending := program_error(trace)) is not None:
        yield of_failure(ending, trace)
    elif (unheard := nonleaf_gradient(trace)) is not None:
        yield of_failure(unheard, trace)
    under_way = {GraphTaskStatus.RUNNING, GraphTaskStatus.CUT}
    is_inside = any(task.status in under_way for task in trace.graph_tasks.unfinished)
    between = None if is_inside else outside(trace)
    if (stuck := no_progress(trace)) is not None:
        yield of_failure(stuck, trace)
    elif between is not None and not between.is_exit:
        is_known = between.is_stuck or not between.is_growing
        outcome = Outcome.FOUND if is_known else Outcome.CANT_TELL
        yield of_failure(between, trace, outcome)


def _loss(
    trace: Trace, graph_task: int | None, explained: Explanation | None
) -> NonFiniteLoss | None:
    """A loss that is not finite, where no gradient of the same pass or an earlier one says so."""
    passes = trace.nonfinite_roots()
    if graph_task is not None:
        family = {graph_task, *trace.family(graph_task)}
        passes = [number for number in passes if number in family]
    if not passes:
        return None
    if explained is not None and not explained.is_harmless and explained.graph_task <= passes[0]:
        return None
    nonfinite = frozenset(trace.nonfinite_results())
    for later, number in zip(range(len(passes))[::-1], passes, strict=True):
        if not is_scaled_beyond(trace, number, nonfinite):
            return nonfinite_loss(trace, number, later=later)
    return None


def _not_found(trace: Trace, graph_task: int | None, run: RunSteps) -> Verdict:
    """Nothing went wrong in what was looked at: says what that was, and what was not."""
    tasks = trace.graph_tasks
    if graph_task is not None:
        trace.graph_task(graph_task)
        tasks = tasks.only(graph_task)
    what = _passes(tasks, graph_task)
    if not tasks:
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading="no backward pass was recorded",
            paragraph=" ".join(_not_looked_at(trace)),
        )
    if not is_measured(trace):
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading=f"whether gradients are finite can't be told of {what}",
            graph_task=graph_task,
            paragraph=(
                "All came to their end, but no gradient was measured: record without --values none."
            ),
        )
    harmless = explain(trace, graph_task)
    if harmless is not None:
        said = f"{harmless.aside} {_looked_at(trace, tasks, is_masked=True)}"
        return replace(of_explanation(harmless), paragraph=said)
    missing = untrained(trace, graph_task)
    why = f" {missing}: agviz why says why." if missing else ""
    note = note_on_steps(run) if graph_task is None else ""
    why += f" {note}." if note else ""
    ended = "" if graph_task is not None else _exception(trace)
    return Verdict(
        outcome=Outcome.CANT_TELL if ended else Outcome.NOTHING_UNUSUAL,
        heading=f"{ended and f'the program ended with {ended}; '}nothing unusual in {what}",
        graph_task=graph_task,
        paragraph=_looked_at(trace, tasks) + why,
        verb="view",
    )


def _exception(trace: Trace) -> str:
    """The type of the exception that ended the program; empty: none did, or it was told to end."""
    name = trace.meta.ended.partition(":")[0]
    return "" if name in _TOLD_TO_END else name


def _passes(tasks: GraphTasks, graph_task: int | None) -> str:
    if graph_task is not None:
        return f"backward pass {graph_task}"
    return backward_passes(len(tasks), len(tasks.inside))


def _looked_at(trace: Trace, tasks: GraphTasks, *, is_masked: bool = False) -> str:
    ended = "It came to its end" if len(tasks) == 1 else "All came to their end"
    again = sum(task.status is GraphTaskStatus.WENT_BACK for task in tasks.unfinished)
    if again:
        but_for = f"All came to their end but {again} that went back and ran on as the next"
        ended = "It went back and ran on as the next" if len(tasks) == 1 else but_for
    left = sum(task.status is GraphTaskStatus.CUT for task in tasks.unfinished)
    if left and len(tasks) > 1:
        were = "was" if left == 1 else "were"
        ended += f" but {left} that {were} under way when the recording ended"
    but = "other " if is_masked else ""
    beyond = sum(map(tasks.has, trace.nonfinite_roots()))
    scaled = f" but {beyond:,} that the loss scale made infinite" if beyond else ""
    finite = f"every loss{scaled} and every {but}gradient that was measured is finite"
    return " ".join([f"{ended}, and {finite}.", *_not_looked_at(trace)])


def _not_looked_at(trace: Trace) -> Iterator[str]:
    """What the verdict does not cover, in sentences."""
    meta = trace.meta
    missing = ["whether the gradients are right"]
    if not meta.check_forward:
        missing.append("the values of the forward (record with --check-forward)")
    if meta.choice:
        missing.append(f"what was left out of the recording: {meta.choice} were recorded")
    yield f"Not looked at: {', '.join(missing)}."
    covered = str(coverage(trace))
    if covered:
        yield f"{covered[0].upper()}{covered[1:]}."
    calls = [call for call in trace.native_calls() if not call.error]
    if calls:
        ran = plural(len(calls), "call")
        yield f"{ran} of backward ran on torch's own engine ({calls[-1].reason}), unseen."
    if meta.stopped:
        yield f"The recording stopped before the program's end: {meta.stopped}."
    if meta.ended:
        at = trace.raised(NO_GRAPH_TASK)
        frame = visible(at.threads[0].stack) if at is not None and at.threads else None
        where = "" if frame is None else f" at {frame}"
        ended = " ".join(_CONTROL.sub(" ", meta.ended).split())
        shown = ended if len(ended) <= _LONGEST else f"{ended[:_LONGEST]}…"
        yield f"The program ended with {shown}{where}, outside of backward."
    between = outside(trace)
    if between is not None and between.is_exit:
        where = "" if between.frame is None else f" at {between.frame}"
        yield f"The program ended itself by os._exit{where}, in no backward pass."
