"""Keyframes: a state packed and unpacked is the same state, wherever the bytes come from."""

from __future__ import annotations

import random
import sqlite3
import zlib
from array import array
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agviz.errors import TraceError
from agviz.traces import by_node, keyframe, replay, shortcuts
from agviz.traces.integers import LARGEST, Planes, few_planes
from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz.traces.state import BackwardState, GraphShape
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.state_support import Shapes, flipped, picture, simulate, try_to_use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz_engine import events


def no_graph(number: int) -> GraphShape:
    raise KeyError(number)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=20)
def test_a_packed_state_is_the_same_state(seed: int, size: int, devices: int) -> None:
    registry, shapes = Registry(), Shapes()
    registry.add(shapes)
    simulator = simulate(seed, size, devices, registry)
    through, straight = (BackwardState(shapes.found.__getitem__) for _ in range(2))
    for event in simulator.told:
        straight.apply(event)
        through.apply(event)  # strict: it objects where something was lost
        packed = through.pack()
        through = through.unpack(packed)
        assert picture(through) == picture(straight)
        assert through.pack() == packed


def test_numbers_by_node() -> None:
    rng = Random(0)
    size = 5_000
    for largest in (1, 300, 2**40, 2**63 - 1):
        found, expected = by_node.ByNode(), dict[int, int]()
        for step in range(30_000):
            node = rng.randrange(size)
            if rng.random() < (0.8 if step < 15_000 else 0.2):
                found[node] = expected[node] = rng.randrange(largest) if step % 4_001 else -5
            else:
                assert found.pop(node, -7) == expected.pop(node, -7)
            assert found.get(node, -7) == expected.get(node, -7)
            assert (node in found) == (node in expected)
            if step % 3_000 == 0:
                twin = found.copy()
                status = bytes(bool(node in expected) for node in range(size))
                if step % 9_000:
                    status = bytes(rng.randrange(9) for _ in range(size))
                count, packed = found.pack(status)
                assert found.numbers() == expected
                if count:
                    assert count == len(expected)
                    found, length = by_node.ByNode.unpack(count, memoryview(packed + b"x"), status)
                    assert length == len(packed)
                    assert found.copy().pack(status) == (count, packed)
                    with pytest.raises(ValueError, match="missing"):
                        by_node.ByNode.unpack(count, memoryview(packed[:-1]), status)
                assert found.numbers() == twin.numbers() == expected
                twin.clear()
                assert not twin.numbers()
    for cut_off in (bytes(6), bytes([1] * 8), bytes([1] * 23)):
        with pytest.raises(ValueError, match="missing"):
            by_node.ByNode.unpack(1, memoryview(cut_off), bytes(9))


@given(st.lists(st.integers(0, LARGEST) | st.integers(0, 3) | st.just(2**16)))
def test_integers_in_planes(numbers: list[int]) -> None:
    data = memoryview(few_planes(array("q", numbers)) + b"x")
    found, end = Planes.read(data, len(numbers))
    assert (list(found), end) == (numbers, len(data) - 1)
    assert (found[2:5], found[-1:], len(found)) == (numbers[2:5], numbers[-1:], len(numbers))
    with pytest.raises(IndexError):
        found[len(numbers)]
    with pytest.raises(IndexError):
        found[-1 - len(numbers)]
    with pytest.raises(ValueError, match="missing"):
        Planes.read(data[: end - 1], len(numbers))


def test_numbers_that_go_with_the_status_take_no_room() -> None:
    status = random.Random(0).choices(range(keyframe.STATUSES), k=5_000)
    numbers = {node: 4 * kind for node, kind in enumerate(status) if kind}
    numbers[77] = 300
    found = by_node.ByNode(numbers.items())
    count, packed = found.pack(bytes(status))
    assert count == len(numbers)
    assert len(zlib.compress(packed)) < 150
    again, _ = by_node.ByNode.unpack(count, memoryview(packed), bytes(status))
    assert again.numbers() == numbers


def test_numbers_of_all_sizes() -> None:
    facts = keyframe.Facts()
    facts.seq, facts.time_ns, facts.live_bytes = 2**63 - 1, -(2**63), 2**40
    again = keyframe.unpack(keyframe.pack(facts), no_graph)
    assert (again.seq, again.time_ns, again.live_bytes) == (2**63 - 1, -(2**63), 2**40)
    facts.seq = 2**63
    with pytest.raises(OverflowError):
        keyframe.pack(facts)


@pytest.fixture(scope="module")
def packed() -> tuple[bytes, Callable[[int], GraphShape]]:
    registry, shapes = Registry(), Shapes()
    registry.add(shapes)
    simulator = simulate(1, 60, 1, registry)
    state = BackwardState(shapes.found.__getitem__)
    for event in simulator.told[:400]:
        state.apply(event)
    assert any(queue.tasks for queue in state.queues())
    assert len(state.graph_tasks) > 1
    return state.pack(), shapes.found.__getitem__


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert not try_to_use(data, no_graph)
    assert not try_to_use(zlib.compress(data), no_graph)


@pytest.mark.parametrize("seed", range(300))
def test_changed_numbers_are_refused_or_harmless(
    packed: tuple[bytes, Callable[[int], GraphShape]], seed: int
) -> None:
    rng = Random(seed)
    data = flipped(packed[0], rng)
    if seed % 3 == 0:
        del data[rng.randrange(len(data)) :]
    try_to_use(zlib.compress(data), packed[1])


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(10 * keyframe.MOST_BYTES))
    assert len(bomb) < 1_000_000
    assert not try_to_use(bomb, no_graph)


def record(path: Path, seed: int = 5, size: int = 400) -> Simulator:
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(seed), devices=2)
        inner = random_graph(simulator.rng, size // 2)
        simulator.backward(random_graph(simulator.rng, size, 2), reentrant=inner)
        simulator.backward(inner)
    return simulator


def kept(path: Path, table: str) -> int:
    database = sqlite3.connect(path)
    ((count,),) = database.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
    database.close()
    return int(count)


def change(path: Path, statement: str, *parameters: Any) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(statement, parameters)
    database.close()


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("most_bytes", [2**30, 2_000])
def test_any_place_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, most_bytes: int
) -> None:
    """With keyframes of the file, without, and with memory for hardly any."""
    monkeypatch.setattr(replay, "_EVENTS_PER_KEYFRAME", 64)
    monkeypatch.setattr(replay, "_BYTES_PER_EVENT", 100)
    monkeypatch.setattr(replay, "_EVENTS_PER_STEP", 8)
    monkeypatch.setattr(replay, "_MOST_BYTES", most_bytes)
    path = tmp_path / "t.agviz"
    simulator = record(path)
    assert kept(path, "keyframe") > 40
    if not stored:
        change(path, "DELETE FROM keyframe")
    with Trace.open(path) as trace:
        numbers = [task.id for task in trace.graph_tasks]
        state = trace.state_at(numbers[0], 0)
        wanted = {}
        begun = trace.graph_task(numbers[0]).begin_seq
        for event in simulator.told[begun:]:
            state.apply(event)
            if event.graph_task == numbers[0]:
                wanted[trace.position(event.seq, numbers[0]) + 1] = picture(state)
        places = random.Random(1).sample(list(wanted), 60)
        places += [place + step for place in places[:20] for step in range(3)]  # steps forwards
        for place in places:
            if place in wanted:
                assert picture(trace.state_at(numbers[0], place)) == wanted[place]
        made = trace._replay()._made
        assert bool(made) is not stored
        assert sum(len(frame.state) for frame in made) < most_bytes


def test_a_long_graph_task_is_never_replayed_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "t.agviz", size=2_000)
    applied = 0
    apply = BackwardState.apply

    def counted(state: BackwardState, event: events.Event) -> None:
        nonlocal applied
        applied += 1
        apply(state, event)

    monkeypatch.setattr(BackwardState, "apply", counted)
    with Trace.open(tmp_path / "t.agviz") as trace:
        count = trace.event_count(0)
        assert count > 5 * replay._EVENTS_PER_KEYFRAME
        for place in range(count, 0, -count // 50):
            applied = 0
            trace.state_at(0, place)
            assert applied < 2 * replay._EVENTS_PER_KEYFRAME


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE keyframe SET state = x'00'",
        "UPDATE keyframe SET state = zeroblob(9000)",
        "UPDATE keyframe SET state = zeroblob(3000000)",
        "UPDATE keyframe SET state = 'text'",
        "UPDATE keyframe SET state = 7",
        "UPDATE keyframe SET state = (SELECT state FROM keyframe ORDER BY seq LIMIT 1)",
        "DELETE FROM node WHERE idx > 3",
    ],
)
def test_a_false_keyframe_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    monkeypatch.setattr(replay, "_EVENTS_PER_KEYFRAME", 64)
    path = tmp_path / "t.agviz"
    record(path, size=100)
    change(path, lie)
    with Trace.open(path) as trace:
        count = trace.event_count(0)
        with pytest.raises(TraceError, match="damaged"):
            trace.state_at(0, count - 1)


def test_recording_ends_well_where_shortcuts_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(shortcuts, "store", fail)
    path = tmp_path / "t.agviz"
    simulator = record(path, size=50)
    assert kept(path, "keyframe") == kept(path, "anchor") == 0
    with Trace.open(path) as trace:
        assert trace.meta.end_ns is not None
        assert not trace.meta.stopped
        assert trace.events(limit=10**6) == simulator.told
        assert len(trace.threads) == 3
        for task in trace.graph_tasks:
            trace.state_at(task.id, trace.event_count(task.id))
