"""An export of ``torch.profiler`` laid over our timeline: its operations under our nodes.

Note [Two clocks]
Both files say which wall-clock time their 0 is, but each found that out for itself, microseconds
apart. A node's operation lies within the node, in any pass that both have seen: that is a bound for
how far the clocks are apart from either side, and all nodes together leave some microseconds. The
middle is taken.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.export.trace_event import metadata
from agviz.traces.inferred import is_observed
from agviz.words.safe import clean
from agviz.words.units import duration, plural
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agviz.traces.reader import Trace

_EVALUATE: Final = "autograd::engine::evaluate_function: "
"""What torch calls the whole of a node's execution: a slice of ours."""
_FLOWS: Final = frozenset("stf")
_NO_NUMBER: Final = -1
"""Of AccumulateGrad, which has no sequence number: these differ by their order only."""
_UNKNOWN_THREADS: Final = 0
"""Under which the stacks of idle threads are, all in one: Perfetto would nest the main thread's in
them, and drop what is more than 512 deep."""
_Key = tuple[str, int, int | str]
"""Name, sequence number and thread."""


class _Ran(NamedTuple):
    begin: int
    end: int


class Overlay:
    """What ``torch.profiler`` saw of a run.

    Args:
        path: its export, which may be compressed.
        trace: ours of the same run.

    Raises:
        agviz.errors.AgvizError: the file can't be read, or no node is in both.
        agviz.errors.TraceError: the trace is damaged.
    """

    def __init__(self, path: Path, trace: Trace) -> None:
        self._name = clean(path.name)
        self._meta = trace.meta
        self._base_ns = 0
        """To be added to their ns, for ns since our recording began."""
        self._events = self._read(path)
        low, high = self._bounds(trace)
        self._base_ns += (low + high) // 2
        self.error_ns = abs(high - low) // 2
        """How far the clocks may still be apart."""
        self.is_exact = low <= high
        """Whether every node that was found in both can hold its operation."""
        times = [self._ns(event["ts"]) for event in self._events if "ts" in event]
        self.lead_ns = max(0, -min(times))
        """How long before our recording theirs began."""

    @property
    def note(self) -> str:
        """How well the two fit, in a sentence."""
        if self.is_exact:
            return f"clocks are aligned to {duration(self.error_ns)} by {self._matched}"
        return (
            f"clocks drift by {duration(2 * self.error_ns)}: of {self._matched} in both, operations"
            " may begin or end outside"
        )

    def laid_over(self, records: Iterable[str], zero_ns: int) -> Iterator[str]:
        """Our records, then theirs.

        Args:
            records: ours.
            zero_ns: where ``ts`` is 0, in ns since our recording began; not later than any event.
        """
        ours = _Ours()
        for record in records:
            ours.add(record)
            yield record
        taken = ours.named.keys() | {event.get("tid") for event in self._events}
        free = (number for number in count(1) if number not in taken)
        tracks: dict[int, int] = {}
        for event in self._events:
            if self._is_ours(event, ours, zero_ns):
                continue
            if "ts" in event:
                begin = self._ns(event["ts"]) - zero_ns
                if self._is_slice_here(event) and (
                    event["tid"] == _UNKNOWN_THREADS
                    or ours.place(*self._spot(event, zero_ns)).crosses
                ):
                    if event["tid"] not in tracks:
                        tracks[event["tid"]] = next(free)
                    event["tid"] = tracks[event["tid"]]
                # As few digits as that has are exact in a float, and written as they are.
                event["ts"] = max(0, begin) / 1000
            if event["ph"] in _FLOWS and isinstance(event.get("id"), int):
                event["id"] += ours.flows
            yield json.dumps(event, default=float)
        for tid, track in tracks.items():
            name = (
                "threads that torch.profiler does not know"
                if tid == _UNKNOWN_THREADS
                else f"{ours.named.get(tid, tid)}: across nodes"
            )
            yield metadata("thread_name", self._meta.pid, track, name=name)

    def _is_slice_here(self, event: dict[str, Any]) -> bool:
        return event["ph"] == "X" and event.get("pid") == self._meta.pid

    def _spot(self, event: dict[str, Any], zero_ns: int) -> tuple[int, int, int]:
        """Thread, begin and end of a slice."""
        begin = self._ns(event["ts"]) - zero_ns
        return event["tid"], begin, begin + int(event.get("dur", 0) * 1000)

    def _is_ours(self, event: dict[str, Any], ours: _Ours, zero_ns: int) -> bool:
        """Whether we have written the same: the name of a thread, a node."""
        if event["ph"] == "M":
            return event.get("pid") == self._meta.pid and event.get("tid") in ours.named
        if not self._is_slice_here(event) or not event["name"].startswith(_EVALUATE):
            return False
        return ours.place(*self._spot(event, zero_ns)).is_node

    def _read(self, path: Path) -> list[dict[str, Any]]:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                found = json.load(file, parse_float=Decimal)
            events = [event for event in found["traceEvents"] if _makes_sense(event)]
            # Exact to the ns, where a float of µs since a date of months ago is not.
            self._base_ns = int(found["baseTimeNanoseconds"]) - self._meta.started_unix_ns
        except OSError as error:
            raise AgvizError(f"{self._name} can't be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError, EOFError) as error:
            raise AgvizError(
                f"{self._name} is no export of torch.profiler: name a file that"
                " profiler.export_chrome_trace(...) wrote"
            ) from error
        if not any("ts" in event for event in events):
            raise AgvizError(f"{self._name} holds no event")
        return events

    def _ns(self, ts: Decimal | int) -> int:
        """A time of theirs, in ns since our recording began."""
        return int(ts * 1000) + self._base_ns

    def _bounds(self, trace: Trace) -> tuple[int, int]:
        """How far their clock is behind ours, at least and at most: Note [Two clocks]."""
        theirs: defaultdict[_Key, list[_Ran]] = defaultdict(list)
        for event in self._events:
            number = event.get("args", {}).get("Sequence number", _NO_NUMBER)
            if event["ph"] == "X" and isinstance(number, int):
                begin = self._ns(event["ts"])
                key = event["name"], number, event.get("tid", 0)
                theirs[key].append(_Ran(begin, begin + int(event.get("dur", 0) * 1000)))
        ours: defaultdict[_Key, list[_Ran]] = defaultdict(list)
        threads = {thread.id: thread.native_id for thread in trace.threads}
        for task in trace.graph_tasks:
            for node in trace.nodes(task.id):
                if node.start_ns is not None and node.end_ns is not None:
                    number = _NO_NUMBER if node.sequence_nr is None else node.sequence_nr
                    begin, end = (at - self._meta.start_ns for at in (node.start_ns, node.end_ns))
                    tid = threads.get(-1 if node.thread is None else node.thread, 0)
                    ours[node.name, number, tid].append(_Ran(begin, end))
        found: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for key, mine in ours.items():
            # Where one has seen more of them than the other, it is not known which is which.
            if len(mine) == len(theirs.get(key, ())):
                for own, other in zip(sorted(mine), sorted(theirs[key]), strict=True):
                    bounds = own.begin - other.begin, own.end - other.end
                    found[key[1] != _NO_NUMBER].append(bounds)
        if not found[True]:
            raise AgvizError(
                f"{self._name} holds none of the nodes of {clean(trace.path)}: both have to be of"
                " one run, with the backward passes inside of torch.profiler.profile()"
                + _of_devices(trace)
            )
        self._matched = plural(len(found[True]), "node")
        low, high = _within(found[True])
        narrow = _within([(low, high), *found[False]])
        return narrow if narrow[0] <= narrow[1] else (low, high)


def _of_devices(trace: Trace) -> str:
    """What to do where the profiler did not know the threads that ran nodes."""
    if is_observed(trace.meta) or all(thread.queue <= CPU_QUEUE for thread in trace.threads):
        return ""
    return (
        "; it does not know the device threads of agviz's engine: record with --engine native, and"
        " torch's own run the nodes"
    )


def _within(bounds: list[tuple[int, int]]) -> tuple[int, int]:
    return max(low for low, _ in bounds), min(high for _, high in bounds)


class _Place(NamedTuple):
    is_node: bool
    """Whether a node of ours has a part in it."""
    crosses: bool
    """Whether it begins in one slice of ours and ends in another: no viewer shows that."""


class _Ours:
    """The slices that we have written, by thread."""

    def __init__(self) -> None:
        self.flows = 0
        """The largest number of an arrow."""
        self.named: dict[int, str] = {0: ""}
        """Threads that have a name; 0 is the process."""
        self._slices: defaultdict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        self._edges: dict[int, tuple[list[int], list[int], list[int]]] = {}

    def add(self, record: str) -> None:
        """Take note of a record."""
        event = json.loads(record, parse_float=Decimal)
        match event["ph"]:
            case "X":
                begin, length = int(event["ts"] * 1000), int(event["dur"] * 1000)
                is_node = event["cat"] == "node"
                self._slices[event["tid"]].append((begin, -(begin + length), is_node))
            case "M" if event["name"] == "thread_name":
                self.named[event["tid"]] = event["args"]["name"]
            case "s" | "f":
                self.flows = max(self.flows, event["id"])

    def place(self, tid: int, begin: int, end: int) -> _Place:
        """How a slice lies among ours."""
        if tid not in self._slices:
            return _Place(is_node=False, crosses=False)
        if tid not in self._edges:
            self._edges[tid] = self._innermost(tid)
        moments, inside, nodes = self._edges[tid]
        first = bisect_right(moments, begin) - 1
        last = bisect_right(moments, max(begin, end - 1)) - 1
        is_node = nodes[last + 1] > nodes[max(first, 0)]
        return _Place(is_node, crosses=self._inside(inside, first) != self._inside(inside, last))

    @staticmethod
    def _inside(inside: list[int], place: int) -> int:
        return inside[place] if place >= 0 else -1

    def _innermost(self, tid: int) -> tuple[list[int], list[int], list[int]]:
        """Moments at which another slice is the innermost, which it is, and nodes until then."""
        changes: dict[int, tuple[int, bool]] = {}
        stack: list[tuple[int, int, bool]] = []

        def leave(until: int) -> None:
            while stack and stack[-1][0] <= until:
                end, *_ = stack.pop()
                changes[end] = (stack[-1][1], stack[-1][2]) if stack else (-1, False)

        for number, (begin, negative_end, is_node) in enumerate(sorted(self._slices[tid])):
            leave(begin)
            is_within = is_node or (bool(stack) and stack[-1][2])
            stack.append((-negative_end, number, is_within))
            changes[begin] = number, is_within
        leave(1 << 62)
        moments = sorted(changes)
        nodes = [0]
        for moment in moments:
            nodes.append(nodes[-1] + changes[moment][1])
        return moments, [changes[moment][0] for moment in moments], nodes


def _makes_sense(event: Any) -> bool:
    """Whether it is an event as :class:`Overlay` takes them; others are left out."""
    if not isinstance(event, dict) or not isinstance(event.get("args", {}), dict):
        return False
    known: dict[str, Any] = {"ph": "", "name": "", "tid": 0, "ts": 0, "dur": 0} | event
    return (
        isinstance(known["ph"], str)
        and isinstance(known["name"], str)
        and isinstance(known["tid"], int | str)
        and isinstance(known["ts"], int | Decimal)
        and isinstance(known["dur"], int | Decimal)
        and ("ts" in event or known["ph"] != "X")
    )
