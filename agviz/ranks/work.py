"""What ranks do themselves: the time of passes and nodes without waiting for others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.inferred import is_observed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.ranks.facts import Joined, PassFacts, RankFacts
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ExecutionRow

PHASES: Final = ("before", "forward", "backward")
"""From the end of the pass before to the beginning of the forward; to that of backward; to its end.
"""


class OwnTimes(NamedTuple):
    """What one pass takes of a rank, in ns. The phases are those of :data:`PHASES`."""

    before: int
    forward: int
    backward: int
    """Each without the time in which it was blocked in collectives."""
    waiting: int
    """For other ranks, in all phases."""
    transfer: int
    """Blocked in collectives that all ranks had joined, in all phases."""
    delayed: int
    """For which the calling thread was ready without a CPU, from the end of the pass before on."""

    def of(self, phase: str) -> int:
        """One of them, by its name."""
        return int(getattr(self, phase))

    @property
    def all(self) -> int:
        """What the rank itself takes for a step, without what it had no CPU for."""
        return max(0, self.before + self.forward + self.backward - self.delayed)


def own_times_of_passes(run: Run) -> dict[int, list[OwnTimes]]:
    """By rank, for each pass."""
    waiting: defaultdict[tuple[int, int, str], int] = defaultdict(int)
    transfer: defaultdict[tuple[int, int, str], int] = defaultdict(int)
    for meeting in run.meetings():
        for number, joined in meeting.by_rank.items():
            place = number, *_phase(run.ranks[number], joined)
            waiting[place] += meeting.waiting_ns(number)
            transfer[place] += meeting.transfer_ns(number)
    found = {}
    for number, rank in run.ranks.items():
        times = []
        for one in rank.passes:
            places = [(number, one.ordinal, phase) for phase in PHASES]
            spans = _spans(rank, one)
            before, forward, backward = (
                max(0, span - waiting[place] - transfer[place])
                for span, place in zip(spans, places, strict=True)
            )
            times.append(
                OwnTimes(
                    before,
                    forward,
                    backward,
                    waiting=sum(waiting[place] for place in places),
                    transfer=sum(transfer[place] for place in places),
                    delayed=one.delayed_before_ns + one.delayed_ns,
                )
            )
        found[number] = times
    return found


def _spans(rank: RankFacts, one: PassFacts) -> tuple[int, int, int]:
    """How long each phase of a pass took."""
    before = rank.passes[one.ordinal - 1].end_ns if one.ordinal else None
    began = one.begin_ns if one.forward_ns is None else one.forward_ns
    ended = one.begin_ns if one.end_ns is None else one.end_ns
    return began - (began if before is None else before), one.begin_ns - began, ended - one.begin_ns


def _phase(rank: RankFacts, one: Joined) -> tuple[int, str]:
    """The pass, and the phase of it, in which a rank joined a collective."""
    if one.is_inside:
        return one.ordinal, "backward"
    following = one.ordinal + 1
    if following >= len(rank.passes):
        return following, "before"
    forward_ns = rank.passes[following].forward_ns
    return following, "before" if forward_ns is None or one.time_ns < forward_ns else "forward"


def own_times(run: Run, number: int, trace: Trace, of: PassFacts) -> list[int]:
    """By node of a pass of a rank: its time in ns, without what collectives held it.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    times = [0] * of.nodes
    rows = trace.executions(of.graph_task)
    begun = begins(trace, rows)
    for row, spent in zip(rows, trace.self_times(of.graph_task), strict=True):
        times[row.node] = spent + row.start_ns - begun[row.node]
    for meeting in run.meetings():
        one = meeting.by_rank.get(number)
        if one is not None and one.ordinal == of.ordinal and one.node >= 0:
            held = meeting.waiting_ns(number) + meeting.transfer_ns(number)
            times[one.node] = max(0, times[one.node] - held)
    return times


def begins(trace: Trace, rows: Sequence[ExecutionRow]) -> dict[int, int]:
    """By node of ``rows``, which are those of a graph task: when the work for it began, in ns.

    Where torch's own engine ran, its start is seen behind its tensor hooks: what came after the end
    of the node before on its thread is theirs, but for the engine's own few microseconds.
    """
    found: dict[int, int] = {}
    ended: dict[int, int] = {}
    is_native = is_observed(trace.meta)
    for row in rows:
        before = ended.get(row.thread, row.start_ns) if is_native else row.start_ns
        found[row.node] = min(before, row.start_ns)
        ended[row.thread] = row.start_ns if row.end_ns is None else row.end_ns
    return found
