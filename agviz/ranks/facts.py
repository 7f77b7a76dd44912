"""RankFacts: some numbers for each backward pass and each collective of one rank.

Note [Waiting]
A collective that waits for all ranks lets go of them together. Between the moment when a rank
joins it and the next thing that this rank does, the rank is *blocked*; where the collective goes on
beside it, as DDP's do but for the last one, the next thing follows at once. Of the blocked time,
*waiting* is what passes until the last rank joins, *transfer* the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.ranks.folder import RankFile
    from agviz.traces.distributed import Collective, Stage
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskStatus

Key: TypeAlias = tuple[str, bool, int]
"""What a collective has in common on all ranks: process group, whether it is point-to-point, and
its number there."""


class PassFacts(NamedTuple):
    """One outermost call of backward or grad. Times are those of the rank's own clock, in ns."""

    ordinal: int
    """Number among the outermost calls of the rank, from 0."""
    graph_task: int
    begin_ns: int
    end_ns: int | None
    forward_ns: int | None
    """When its forward began; None: not known."""
    status: GraphTaskStatus
    nodes: int
    fingerprint: int | None
    """Of its graph; None: not known."""
    stage: Stage | None
    step: int
    """How many times an optimizer had stepped before."""
    delayed_before_ns: int
    """Since the end of the pass before, how long the calling thread was ready without a CPU; 0:
    not at all, or not known."""
    delayed_ns: int
    """The same from its beginning to its end."""


class Joined(NamedTuple):
    """A collective that the rank joined. Times are those of the rank's own clock, in ns."""

    key: Key
    time_ns: int
    blocked_ns: int
    """Until the next thing that this rank did: Note [Waiting]."""
    ordinal: int
    """Of the pass in which, or after which, it was joined; -1: before the first."""
    node: int
    """Node that was under way; -1: none was."""
    is_inside: bool
    """Whether the pass was under way."""
    is_retired: bool
    kind: str
    """What has to be the same on all ranks."""
    names: tuple[str, ...]
    """What the program calls the tensor that it handed in; empty: not known."""

    @property
    def release_ns(self) -> int:
        """When the rank went on."""
        return self.time_ns + self.blocked_ns


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What is kept of a rank while all are read."""

    file: RankFile
    passes: tuple[PassFacts, ...]
    joined: tuple[Joined, ...]
    """In order of time."""
    last_ns: int
    """The last moment that is known of."""

    @property
    def number(self) -> int:
        """The rank."""
        return self.file.number


def facts(file: RankFile, trace: Trace) -> RankFacts:
    """Read one rank.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    passes = tuple(_passes(trace))
    collectives = trace.collectives()
    joined = tuple(_joined(trace, passes, collectives))
    known = [one.end_ns or one.begin_ns for one in passes] + [one.time_ns for one in collectives]
    last_ns = trace.meta.end_ns or max(known, default=trace.meta.start_ns)
    return RankFacts(file, passes, joined, last_ns)


def _passes(trace: Trace) -> list[PassFacts]:
    forwards, prints, stages = trace.forwards(), trace.fingerprints(), trace.stages()
    steps = sorted(step.time_ns for step in trace.optimizer_steps())
    outermost = [task for task in trace.graph_tasks if task.parent < 0 and not task.traced]
    scheduled, delays, last = trace.scheduled(), {}, None
    for task in outermost:
        if (one := scheduled.get(task.id)) is not None:
            before = one.delayed_before - (one.delayed_before if last is None else last)
            delays[task.id] = max(0, before), one.delayed_after - one.delayed_before
            last = one.delayed_after
    return [
        PassFacts(
            ordinal=ordinal,
            graph_task=task.id,
            begin_ns=task.begin_ns,
            end_ns=task.end_ns,
            forward_ns=forwards.get(task.id),
            status=task.status,
            nodes=task.nodes,
            fingerprint=prints.get(task.id),
            stage=stages.get(task.id),
            step=bisect_right(steps, task.begin_ns),
            delayed_before_ns=delays.get(task.id, (0, 0))[0],
            delayed_ns=delays.get(task.id, (0, 0))[1],
        )
        for ordinal, task in enumerate(outermost)
    ]


def _joined(
    trace: Trace, passes: tuple[PassFacts, ...], collectives: list[Collective]
) -> list[Joined]:
    begins = [one.begin_ns for one in passes]
    by_pass: dict[int, list[Collective]] = {}
    for each in collectives:
        by_pass.setdefault(bisect_right(begins, each.time_ns) - 1, []).append(each)
    found = []
    for ordinal, inside in by_pass.items():
        moments = _Moments(trace, passes[ordinal] if ordinal >= 0 else None)
        until = begins[ordinal + 1] if ordinal + 1 < len(begins) else None
        moments.add([one.time_ns for one in inside], until)
        for one in inside:
            blocked_ns, node, is_inside = moments.after(one.time_ns)
            found.append(
                Joined(
                    key=(one.group, one.is_p2p, one.seq),
                    time_ns=one.time_ns,
                    blocked_ns=blocked_ns,
                    ordinal=ordinal,
                    node=node,
                    is_inside=is_inside,
                    is_retired=one.is_retired,
                    kind=one.kind,
                    names=one.names,
                )
            )
    return found


class _Moments:
    """When something happened in a pass."""

    def __init__(self, trace: Trace, of: PassFacts | None) -> None:
        self._began_ns = 0 if of is None else of.begin_ns
        self._until_ns = 0
        if of is not None:
            self._until_ns = 2**63 - 1 if of.end_ns is None else of.end_ns
        starts, durations, threads = ((), (), ()) if of is None else trace.node_times(of.graph_task)
        ran: Sequence[int] = range(len(starts))
        if threads and min(threads) < 0:
            ran = [node for node in ran if threads[node] >= 0]
        self._nodes = sorted(ran, key=starts.__getitem__)
        self._starts = [starts[node] for node in self._nodes]
        self._ends_of_nodes = [starts[node] + durations[node] for node in self._nodes]
        self._ends = sorted(self._ends_of_nodes)
        self._others: list[int] = []

    def add(self, times_ns: list[int], until: int | None) -> None:
        """What else happened: collectives were joined, and the next pass began."""
        times = [*times_ns, self._until_ns] if until is None else [*times_ns, self._until_ns, until]
        self._others = sorted(time - self._began_ns for time in times if 0 < time < 2**63 - 1)

    def after(self, time_ns: int) -> tuple[int, int, bool]:
        """Time until the next thing; the node under way; whether the pass was.

        Behind the last node the native engine calls DDP's final callback, which waits; agviz's
        engine has it called in the node.
        """
        time = time_ns - self._began_ns
        before = bisect_right(self._starts, time) - 1
        is_last = before == len(self._starts) - 1
        known = [self._others] if is_last else [self._starts, self._ends, self._others]
        found = ((moments, bisect_right(moments, time)) for moments in known)
        next_ = min((moments[at] for moments, at in found if at < len(moments)), default=time)
        node = -1
        if before >= 0 and time <= self._ends_of_nodes[before]:
            node = self._nodes[before]
        return next_ - time, node, time_ns <= self._until_ns
