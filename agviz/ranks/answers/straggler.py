"""A rank for which all others wait, and what it does meanwhile."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agviz.analysis.median import median
from agviz.analysis.place import described, place
from agviz.ranks.answers.found import RankVerdict, common_line, found_at, line_of
from agviz.ranks.work import PHASES, begins, own_times
from agviz.traces.rows import visible
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agviz.ranks.facts import PassFacts
    from agviz.ranks.run import Meeting, Run
    from agviz.ranks.work import OwnTimes
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow

_LEAST_NS: Final = 5_000_000
"""A rank that is later than the others by less is none."""
_LEAST_SHARE: Final = 0.15
"""Nor one that is later by less than this part of a step."""
_LEAST_OWN: Final = 0.5
"""Part of its lateness that its own work has to explain: the rest it had no CPU, or was held up by
the network."""
_LEAST_PASSES: Final = 0.6
"""Part of the passes in which it has to be the last."""
_MANY_PASSES: Final = 4
_SURE_SHARE: Final = 0.5
"""The same part where there are fewer passes: in two, one of two ranks is last in both by chance as
often as not."""
_MOST_PASSES: Final = 8
"""Passes of which nodes are compared."""
_MOST_RANKS: Final = 4
"""Ranks that it is compared with, node by node."""


@dataclass(frozen=True, slots=True)
class _Late:
    """A rank that was last in many passes."""

    rank: int
    ordinals: tuple[int, ...]
    """Passes in which it was."""
    passes: int
    """Passes that were looked at."""
    lateness_ns: int
    """The median."""
    step_ns: int
    """The median time from one pass to the next."""
    imposed_ns: int
    """What others waited for it, in all."""
    waited_ns: int
    """What all ranks waited for others, in all."""


def straggler(run: Run, own: Mapping[int, list[OwnTimes]]) -> RankVerdict | None:
    """The rank that lets the others wait; None: there is none that does so again and again.

    Args:
        run: all ranks.
        own: by rank, what each of its passes takes by itself.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    late = _latest(run)
    if late is None:
        return None
    excess = _excess(own, late)
    if excess["all"] < _LEAST_OWN * late.lateness_ns:
        return None
    phase = max(PHASES, key=lambda name: excess[name])
    with run.folder.trace(late.rank) as trace:
        if phase == "backward":
            return _in_backward(run, late, excess, trace)
        return _outside(run, late, excess, phase, trace)


def _latest(run: Run) -> _Late | None:
    deciding = _deciding(run.meetings())
    ordinals = sorted(deciding)[1:]  # in the first, each rank warms up by itself
    if not ordinals:
        return None
    last: defaultdict[int, list[int]] = defaultdict(list)
    for ordinal in ordinals:
        last[deciding[ordinal].last].append(ordinal)
    rank, own = max(last.items(), key=lambda item: len(item[1]))
    lateness = int(median(deciding[n].lateness_ns if n in own else 0 for n in ordinals))
    begins = [one.begin_ns for one in run.ranks[rank].passes]
    steps = [after - before for before, after in itertools.pairwise(begins)]
    step_ns = int(median(steps)) if steps else 0
    is_often = len(own) >= _LEAST_PASSES * len(ordinals)
    share = _LEAST_SHARE if len(ordinals) >= _MANY_PASSES else _SURE_SHARE
    if not is_often or lateness < max(_LEAST_NS, share * step_ns):
        return None
    imposed = waited = 0
    for meeting in run.meetings():
        if meeting.ordinal in ordinals:
            waits = sum(map(meeting.waiting_ns, meeting.joined))
            waited += waits
            imposed += waits if meeting.last == rank else 0
    return _Late(rank, tuple(own), len(ordinals), lateness, step_ns, imposed, waited)


def _deciding(meetings: Iterable[Meeting]) -> dict[int, Meeting]:
    """By pass, the collective for which ranks waited longest."""
    found: dict[int, Meeting] = {}
    waits: dict[int, int] = {}
    for meeting in meetings:
        if meeting.ordinal >= 0:
            longest = max(map(meeting.waiting_ns, meeting.joined))
            if longest >= waits.get(meeting.ordinal, 0):
                found[meeting.ordinal], waits[meeting.ordinal] = meeting, longest
    return found


def _excess(own: Mapping[int, list[OwnTimes]], late: _Late) -> dict[str, float]:
    """By phase, how much more of its own time the rank takes than the others: the median."""
    others = [rank for rank in own if rank != late.rank]
    found: dict[str, float] = {}
    for phase in (*PHASES, "all", "delayed"):
        apart = []
        for ordinal in late.ordinals:
            beside = [own[rank][ordinal].of(phase) for rank in others if ordinal < len(own[rank])]
            if beside and ordinal < len(own[late.rank]):
                apart.append(own[late.rank][ordinal].of(phase) - median(beside))
        found[phase] = median(apart) if apart else 0.0
    return found


def _in_backward(  # noqa: C901 - two loops over ranks, passes and nodes
    run: Run, late: _Late, excess: Mapping[str, float], trace: Trace
) -> RankVerdict | None:
    """The node that takes longer there than on other ranks."""
    ordinals = _some(late.ordinals)
    mine = run.ranks[late.rank].passes
    others = [rank for rank in run.ranks if rank != late.rank]
    compared = _some(others, _MOST_RANKS)
    beside: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for rank in compared:
        with run.folder.trace(rank) as other:
            for ordinal in ordinals:
                theirs = run.ranks[rank].passes[ordinal]
                if theirs.fingerprint == mine[ordinal].fingerprint:
                    for index, spent in enumerate(own_times(run, rank, other, theirs)):
                        beside[ordinal, index].append(spent)
    apart: defaultdict[int, int] = defaultdict(int)
    for ordinal in ordinals:
        for index, spent in enumerate(own_times(run, late.rank, trace, mine[ordinal])):
            if found := beside.get((ordinal, index)):
                apart[index] += spent - int(median(found))
    if not apart:
        return _outside(run, late, excess, "backward", trace)
    worst = max(apart, key=lambda index: apart[index])
    if apart[worst] / len(ordinals) < _LEAST_OWN * late.lateness_ns:
        return None  # a bit of everything: a busy machine, not the program
    node = trace.node(mine[ordinals[-1]].graph_task, worst)
    share = min(1.0, apart[worst] / len(ordinals) / max(1.0, excess["backward"]))
    inside = _line_inside(trace, late, node, mine)
    frame = inside or line_of(trace, node)
    said = (
        f"{described(node)} takes {duration(apart[worst] // len(ordinals))} longer there than on"
        f" the other ranks, {share:.0%} of what backward takes longer."
    )
    if inside is not None and inside != node.frame:
        said += f" It was seen at {inside}."
    return _verdict(run, late, excess, said, frame, node)


def _line_inside(
    trace: Trace, late: _Late, node: NodeRow, passes: tuple[PassFacts, ...]
) -> Frame | None:
    """Where the program was seen in the node, besides the line that called backward."""
    stacks = []
    pauses = [pause for pause in trace.pauses() if pause.is_inside]
    for ordinal in _some(late.ordinals):
        number = passes[ordinal].graph_task
        call = visible(trace.call_site(number))
        row = trace.node(number, node.index)
        if row.start_ns is None or row.end_ns is None:
            continue
        begin = begins(trace, trace.executions(number))[node.index]
        stacks += [
            pause.stack
            for pause in pauses
            if begin <= pause.time_ns <= row.end_ns and visible(pause.stack) != call
        ]
    return common_line(stacks)


def _outside(
    run: Run, late: _Late, excess: Mapping[str, float], phase: str, trace: Trace
) -> RankVerdict:
    """The line at which it was seen while it was late."""
    passes = run.ranks[late.rank].passes
    stacks = []
    pauses = [pause for pause in trace.pauses() if not pause.is_inside or phase == "backward"]
    for ordinal in late.ordinals:
        one = passes[ordinal]
        before = passes[ordinal - 1].end_ns if ordinal else None
        between = {
            "before": (before or 0, one.forward_ns or one.begin_ns),
            "forward": (one.forward_ns or one.begin_ns, one.begin_ns),
            "backward": (one.begin_ns, one.end_ns or one.begin_ns),
        }
        begin, end = between[phase]
        stacks += [pause.stack for pause in pauses if begin <= pause.time_ns <= end]
    frame = common_line(stacks)
    where = {
        "before": "between the backward pass before and the forward (the data, the optimizer)",
        "forward": "in the forward",
        "backward": "in backward",
    }[phase]
    said = f"It is late before its backward begins: {where}"
    if phase == "backward":
        said = f"It is late {where}, in no node that other ranks have as well"
    said += "." if frame is None else f", where it was seen at {frame}."
    return _verdict(run, late, excess, said, frame, None)


def _verdict(
    run: Run,
    late: _Late,
    excess: Mapping[str, float],
    said: str,
    frame: Frame | None,
    node: NodeRow | None,
) -> RankVerdict:
    share = late.imposed_ns / late.waited_ns if late.waited_ns else 0.0
    where = "" if node is None else f", in {place(node)}"
    times = ", ".join(
        f"{name} {'+' if excess[name] >= 0 else '-'}{duration(abs(int(excess[name])))}"
        for name in (*PHASES, "delayed")
    )
    heading = (
        f"rank {late.rank} is a straggler: the others wait {duration(late.lateness_ns)} for it"
        f" in each step{where}"
    )
    paragraph = (
        f"{said} It joined last in {len(late.ordinals)} of {late.passes} backward passes; a"
        f" step takes {duration(late.step_ns)}. {share:.0%} of the time that ranks waited for"
        f" others ({duration(late.waited_ns)} in all), they waited for it."
    )
    details = (f"its own time against the median of the others: {times}",)
    return found_at(
        run, "straggler", (late.rank,), frame, heading, paragraph, node=node, details=details
    )


def _some(numbers: Iterable[int], most: int = _MOST_PASSES) -> list[int]:
    """So many of them, spread evenly."""
    found = list(numbers)
    return found[:: max(1, -(-len(found) // most))]
