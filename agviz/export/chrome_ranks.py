"""All ranks of a run in one file of the Trace Event Format: a process each, on one clock.

One rank after the other is read and written; of the others only what
:class:`~agviz.ranks.run.Run` keeps is in memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.passes import Passes
from agviz.errors import AgvizError
from agviz.export.chrome_trace import (
    Process,
    ProcessRecords,
    document,
    versions,
)
from agviz.export.trace_event import metadata, micros
from agviz.ranks.phases import Phases
from agviz.ranks.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.ranks.facts import Joined, Key, RankFacts
    from agviz.ranks.folder import Folder
    from agviz.ranks.run import Meeting
    from agviz.traces.reader import Trace

_PHASES: Final = 1
_COLLECTIVES: Final = 2
"""Thread numbers of the tracks of each rank that are no threads."""


def chrome_trace_of_ranks(folder: Folder, ordinal: int | None = None) -> Iterator[str]:
    """All ranks as JSON in the Trace Event Format, piece by piece, in ASCII.

    No more than the largest call of backward of one rank is held at once.

    Args:
        folder: the ranks.
        ordinal: only the pass of this number of each rank, counted from 0; None: everything.

    Raises:
        agviz.errors.AgvizError: no rank made such a pass, or a file is damaged; also between two
            pieces.
    """
    export = _Ranks(Run.read(folder), ordinal)
    return document(export.facts(), export.started_unix_ns, export.records())


class _Ranks:
    def __init__(self, run: Run, ordinal: int | None) -> None:
        self._run = run
        self._phases = Phases(run)
        self._ordinal = ordinal
        if ordinal is not None and not 0 <= ordinal < self._phases.passes:
            raise AgvizError(f"no rank made a backward pass {ordinal}")
        self._first = 0 if ordinal is None else ordinal
        self._last = self._phases.passes if ordinal is None else ordinal
        metas = {rank.number: rank.meta for rank in run.folder.ranks}
        self._zero_ns = min(run.on_one_clock(n, meta.start_ns) for n, meta in metas.items())
        first = run.folder.ranks[0]
        own_zero_ns = self._zero_ns - run.clocks[first.number].offset_ns
        self.started_unix_ns = first.meta.started_unix_ns + own_zero_ns - first.meta.start_ns
        """Wall clock of the first rank where time begins."""
        self._arrows: dict[tuple[Key, int], int] = {}
        """Numbers of the arrows from the rank that came last to one that waited for it."""

    def facts(self) -> dict[str, Any]:
        """What is said of the whole file."""
        run, meta = self._run, self._run.folder.ranks[0].meta
        facts = {"script": meta.script, "world size": run.folder.world_size} | versions(meta)
        if run.folder.missing:
            facts["missing ranks"] = run.folder.missing
        apart = {
            str(number): {
                "error_ns": clock.error_ns,
                "from": clock.source,
                "offset_ns": clock.offset_ns,
            }
            for number, clock in run.clocks.items()
            if clock.error_ns != 0
        }
        if apart:
            facts["clocks"] = apart
        return facts

    def records(self) -> Iterator[str]:
        """One rank after the other."""
        flow = 1
        for rank in self._run.ranks.values():
            for one in rank.joined:
                meeting = self._phases.meeting(one.key)
                if meeting is not None and self._waits(one, meeting, rank.number):
                    self._arrows[one.key, rank.number] = flow
                    flow += 1
        for file, trace in self._run.folder.traces():
            rank, place = self._run.ranks[file.number], file.rank
            yield metadata("process_sort_index", file.number, 0, sort_index=file.number)
            title = f"rank {file.number}" + (f" ({place.host})" if place.host else "")
            offset_ns = self._run.clocks[file.number].offset_ns
            process = Process(file.number, title, self._zero_ns - offset_ns, _COLLECTIVES, flow)
            graph_task = None
            if self._ordinal is not None:
                graph_task = -1
                if self._ordinal < len(rank.passes):
                    graph_task = rank.passes[self._ordinal].graph_task
            if graph_task == -1:
                yield metadata("process_name", file.number, 0, name=title)
            else:
                own = ProcessRecords(trace, Passes(trace, graph_task), process)
                yield from own.records()
                flow = own.next_flow
            yield from self._tracks(rank, trace)

    def _tracks(self, rank: RankFacts, trace: Trace) -> Iterator[str]:
        for tid, name in ((_PHASES, "phases"), (_COLLECTIVES, "collectives")):
            yield metadata("thread_name", rank.number, tid, name=name)
            yield metadata("thread_sort_index", rank.number, tid, sort_index=tid - _COLLECTIVES)
        for stretch in self._phases.stretches(rank.number, self._first, self._last):
            args: dict[str, Any] = {"pass": stretch.ordinal}
            if stretch.key is not None:
                args |= _key(stretch.key)
                meeting = self._phases.meeting(stretch.key)
                if meeting is not None:
                    args["last rank"] = meeting.last
            name, span = str(stretch.phase), (stretch.begin_ns, stretch.end_ns)
            yield self._slice("phase", name, rank.number, _PHASES, span, args)
        known = {(one.group, one.is_p2p, one.seq): one for one in trace.collectives()}
        groups = {group.name: group for group in trace.process_groups()}
        for one in rank.joined:
            if self._ordinal is not None and one.ordinal != self._ordinal:
                continue
            collective = known[one.key]
            args = _key(one.key) | {"pass": one.ordinal}
            args |= {"shapes": collective.shapes, "dtypes": collective.dtypes}
            if one.key[0] in groups:
                args["group name"] = groups[one.key[0]].description
                args["ranks"] = list(groups[one.key[0]].ranks)
            if collective.begin_ns is not None and collective.end_ns is not None:
                args["ran ns"] = collective.end_ns - collective.begin_ns
            yield from self._collective(one, rank.number, collective.operation, args)

    def _collective(
        self, one: Joined, number: int, operation: str, args: dict[str, Any]
    ) -> Iterator[str]:
        """A slice, its parts, and arrows."""
        meeting = self._phases.meeting(one.key)
        begin = self._run.on_one_clock(number, one.time_ns)
        length = one.blocked_ns if one.is_inside else 0
        if meeting is not None:
            waiting = meeting.waiting_ns(number)
            args |= {"waiting ns": waiting, "last rank": meeting.last}
            if one.is_inside:
                args["transfer ns"] = meeting.transfer_ns(number)
            length = waiting + args.get("transfer ns", 0)
        span = begin, begin + length
        yield self._slice("collective", operation, number, _COLLECTIVES, span, args)
        if meeting is None:
            return
        until = begin + meeting.waiting_ns(number)
        parts = [("waiting", begin, until)]
        if one.is_inside:
            parts.append(("transfer", until, begin + length))
        for name, *part in parts:
            if part[1] > part[0]:
                yield self._slice(name, name, number, _COLLECTIVES, (part[0], part[1]), {})
        yield from self._arrows_of(meeting, number)

    def _arrows_of(self, meeting: Meeting, number: int) -> Iterator[str]:
        """To those that waited for this rank, or from the one that it waited for."""
        moment = meeting.last_ns
        if number == meeting.last:
            for rank in meeting.joined:
                if (meeting.key, rank) in self._arrows:
                    yield self._arrow("s", self._arrows[meeting.key, rank], number, moment)
        elif (meeting.key, number) in self._arrows:
            # Inside of the transfer: Perfetto takes the slice that began first for the source.
            yield self._arrow("f", self._arrows[meeting.key, number], number, moment + 1)

    def _waits(self, one: Joined, meeting: Meeting, number: int) -> bool:
        """Whether the rank was held until the last one came, and for a while after."""
        last = meeting.last
        return (
            one.is_inside
            and self._ordinal in {None, one.ordinal}
            and number != last
            and meeting.transfer_ns(last) > 0
            and meeting.joined[number] + meeting.waiting_ns(number) == meeting.last_ns
            and meeting.transfer_ns(number) > 1
        )

    def _slice(
        self, category: str, name: str, pid: int, tid: int, span: tuple[int, int], args: object
    ) -> str:
        begin, end = span
        return (
            f'{{"ph":"X","name":{json.dumps(name)},"pid":{pid},"ts":{self._us(begin)},"tid":{tid},'
            f'"dur":{micros(max(0, end - begin))},"cat":"{category}","args":{json.dumps(args)}}}'
        )

    def _arrow(self, phase: str, number: int, pid: int, time_ns: int) -> str:
        binding = ',"bp":"e"' if phase == "f" else ""
        return (
            f'{{"ph":"{phase}","name":"collective","pid":{pid},"ts":{self._us(time_ns)},'
            f'"tid":{_COLLECTIVES},"id":{number},"cat":"collective"{binding}}}'
        )

    def _us(self, ns: int) -> str:
        return micros(max(0, ns - self._zero_ns))


def _key(key: Key) -> dict[str, Any]:
    group, is_p2p, seq = key
    return {"group": group, "seq": seq} | ({"point-to-point": True} if is_p2p else {})
