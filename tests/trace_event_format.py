"""A strict reader of the published Trace Event Format: times are exact, nothing is repaired.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON = {"ph", "name", "pid"}
FIELDS = {
    "M": COMMON | {"tid", "args"},
    "X": COMMON | {"tid", "ts", "dur", "cat", "args"},
    "C": COMMON | {"ts", "args"},
    "i": COMMON | {"tid", "ts", "s", "cat", "args"},
    "s": COMMON | {"tid", "ts", "id", "cat"},
    "f": COMMON | {"tid", "ts", "id", "cat", "bp"},
}


@dataclass
class Slice:
    """An X event; times in ns."""

    name: str
    category: str
    tid: int
    begin: int
    end: int
    args: dict[str, Any]
    parent: Slice | None = None


@dataclass
class Timeline:
    """What a file says; every list in order of the file but for ``slices``, in order of time."""

    facts: dict[str, Any]
    threads: dict[int, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    instants: list[dict[str, Any]] = field(default_factory=list)
    flows: list[tuple[Slice, Slice]] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    """What is said of the process: ``process_name`` and the like."""
    between: list[dict[str, Any]] = field(default_factory=list)
    """Ends of arrows that lead to other processes."""

    def named(self, category: str) -> list[Slice]:
        """The slices of a category."""
        return [slice_ for slice_ in self.slices if slice_.category == category]


def no_repeated_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def parse(data: bytes) -> Any:
    """Strict JSON in ASCII: no key twice, no NaN; fractions are exact."""
    return json.loads(
        data.decode("ascii"),
        parse_float=Decimal,
        parse_constant=no_constant,
        object_pairs_hook=no_repeated_key,
    )


def nanoseconds(micros: Any) -> int:
    """A time of the file, which has three decimals at most."""
    assert isinstance(micros, int | Decimal)
    ns = Decimal(micros) * 1000
    assert ns == ns.to_integral_value(), micros
    assert ns >= 0
    return int(ns)


def read(data: bytes) -> Timeline:
    """What the file says. Raises AssertionError for whatever the format does not allow."""
    facts = parse(data)
    events = facts.pop("traceEvents")
    assert {event["pid"] for event in events} <= {events[0]["pid"]}
    return _process(facts, events)


def read_processes(data: bytes) -> dict[int, Timeline]:
    """The same of a file of several processes, by pid; arrows between them are looked at apart."""
    facts = parse(data)
    events = facts.pop("traceEvents")
    found = {}
    for pid in dict.fromkeys(event["pid"] for event in events):
        own = [e for e in events if e["pid"] == pid]
        between = [e for e in own if e["ph"] in {"s", "f"} and e["cat"] == "collective"]
        found[pid] = _process(facts, [event for event in own if event not in between])
        found[pid].between = between
    numbers = [[event["id"] for event in events if event["ph"] == phase] for phase in ("s", "f")]
    assert all(len(set(each)) == len(each) for each in numbers), "an arrow begins and ends once"
    assert set(numbers[0]) == set(numbers[1])
    return found


def _process(facts: dict[str, Any], events: list[dict[str, Any]]) -> Timeline:
    assert facts["displayTimeUnit"] in {"ms", "ns"}
    timeline = Timeline(facts)
    ends: dict[str, dict[int, dict[str, Any]]] = {"s": {}, "f": {}}
    for event in events:
        phase = event["ph"]
        assert set(event) == FIELDS[phase], event
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event.get("tid", 0)) is int
        match phase:
            case "M":
                if event["name"] == "thread_name":
                    assert event["tid"] not in timeline.threads
                    timeline.threads[event["tid"]] = event["args"]["name"]
                elif event["name"].startswith("process_"):
                    (timeline.names[event["name"]],) = event["args"].values()
            case "X":
                begin = nanoseconds(event["ts"])
                end = begin + nanoseconds(event["dur"])
                of = event["name"], event["cat"], event["tid"]
                timeline.slices.append(Slice(*of, begin, end, event["args"]))
            case "C":
                ((_, value),) = event["args"].items()
                assert type(value) is int
                timeline.counters[event["name"]].append((nanoseconds(event["ts"]), value))
            case "i":
                assert event["s"] == "t"
                timeline.instants.append(event)
            case _:
                assert event["id"] not in ends[phase], "an arrow begins and ends once"
                ends[phase][event["id"]] = event
    nest(timeline.slices)
    timeline.flows = list(arrows(ends["s"], ends["f"], timeline.slices))
    return timeline


def nest(slices: list[Slice]) -> None:
    """Find the parents; the slices of a thread lie within or beside each other."""
    slices.sort(key=lambda slice_: (slice_.begin, -slice_.end))
    stacks: dict[int, list[Slice]] = defaultdict(list)
    for slice_ in slices:
        stack = stacks[slice_.tid]
        while stack and stack[-1].end <= slice_.begin:
            stack.pop()
        if stack:
            assert slice_.end <= stack[-1].end, f"{slice_} crosses the end of {stack[-1]}"
            slice_.parent = stack[-1]
        stack.append(slice_)


def arrows(
    begins: dict[int, dict[str, Any]], ends: dict[int, dict[str, Any]], slices: list[Slice]
) -> Iterator[tuple[Slice, Slice]]:
    """The slices that flow events bind to: the innermost ones at that time."""
    assert begins.keys() == ends.keys()
    at = {
        (slice_.tid, slice_.begin): slice_
        for slice_ in reversed(slices)  # of those that begin at one time, the outermost
        if slice_.category == "node"
    }
    for number, begin in begins.items():
        end = ends[number]
        assert end["bp"] == "e"
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert nanoseconds(begin["ts"]) < nanoseconds(end["ts"]), "an arrow points to the future"
        yield at[begin["tid"], nanoseconds(begin["ts"])], at[end["tid"], nanoseconds(end["ts"])]
