"""Graph tasks that ended inside one that goes on: kept in columns, and read as if they were not."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tracemalloc
from array import array
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.errors import TraceError
from agviz.traces import keyframe
from agviz.traces.contents import Contents
from agviz.traces.ended import Ended, EndedTasks
from agviz.traces.heap_entry import QueuedTask
from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz.traces.state import BackwardState, GraphShape
from agviz.traces.task_heap import TaskHeap
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.state_support import Shapes, picture

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def random_task(rng: Random) -> Ended:
    size = rng.choice([0, 1, 7])
    nodes = rng.sample(range(size), rng.randint(0, size))
    parent, depth, thread, queue, executed = (rng.randrange(-3, 9) for _ in range(5))
    status = bytes(rng.randrange(7) for _ in range(size))
    remaining = {node: rng.randrange(5) for node in nodes}
    return Ended(parent, depth, thread, queue, executed, status, remaining, sorted(nodes[:2]))


def packed(tasks: EndedTasks) -> tuple[list[array[int]], bytes]:
    columns, status = tasks.pack()
    return [array("q", column) for column in columns], status


@pytest.mark.parametrize("seed", range(30))
def test_columns_hold_what_a_dict_would(seed: int) -> None:
    rng = Random(seed)
    tasks, expected = EndedTasks(), dict[int, Ended]()
    for _ in range(60):
        before, known = tasks, dict(expected)
        if rng.random() < 0.7:
            new = rng.sample(range(-5, 40), 3)
            added = {number: random_task(rng) for number in new if number not in expected}
            tasks, expected = tasks.with_(added), expected | added
        else:
            gone = set(rng.sample(range(-5, 40), rng.choice([3, 40])))
            tasks = tasks.without(gone)
            expected = {number: task for number, task in expected.items() if number not in gone}
        columns, status = packed(tasks)
        tasks, end = EndedTasks.unpack(iter(columns).__next__, status + b"more")
        assert end == len(status)
        assert packed(tasks) == (columns, status)
        assert list(tasks) == sorted(expected)
        assert {number: tasks[number] for number in tasks} == expected
        assert len(tasks) == len(expected)
        assert list(tasks.ancestry()) == [
            (number, task.parent, task.thread) for number, task in sorted(expected.items())
        ]
        assert [number for number in range(-9, 45) if number in tasks] == sorted(expected)
        with pytest.raises(KeyError):
            tasks[99]
        assert {number: before[number] for number in before} == known


@pytest.mark.parametrize("seed", range(200))
def test_columns_that_say_nonsense_are_refused_or_harmless(seed: int) -> None:
    rng = Random(seed)
    columns, status = packed(EndedTasks().with_({n: random_task(rng) for n in range(6)}))
    for _ in range(rng.choice([1, 4])):
        column = rng.choice([column for column in columns if column])
        change = rng.choice([-9, -1, 1, 9, 2**40, 2**60])
        column[rng.randrange(len(column))] += change
        if rng.random() < 0.3:
            column.pop()
    with contextlib.suppress(ValueError, OverflowError):
        tasks, _ = EndedTasks.unpack(iter(columns).__next__, status)
        for number in tasks:
            task = tasks[number]
            assert {*task.remaining, *task.nonfinite} <= set(range(len(task.status)))


@pytest.mark.parametrize("seed", range(8))
def test_a_state_says_the_same_of_them(seed: int) -> None:
    """Also where nodes are left out, graph tasks fail, and what is packed is moved on."""
    registry, shapes = Registry(), Shapes()
    registry.add(shapes)
    rng = Random(seed)
    simulator = Simulator(registry, rng, devices=seed % 3)
    graphs = [random_graph(rng, 40, seed % 3) for _ in range(3)]
    simulator.backward(graphs[0], reentrant=graphs[1], nan_at=9)
    simulator.backward(graphs[1], fail_at=20)
    simulator.backward(graphs[0], reentrant=graphs[2])
    for number, shape in shapes.found.items():
        left_out = frozenset(rng.sample(range(40), 4)) if rng.random() < 0.5 else frozenset[int]()
        shapes.found[number] = replace(shape, left_out=left_out)
    asked = set[int]()

    def shape_of(number: int) -> GraphShape:
        asked.add(number)
        return shapes.found[number]

    straight, through = (BackwardState(shape_of, tolerant=True) for _ in range(2))
    aside = 0
    for event in simulator.told:
        straight.apply(event)
        through.apply(event)
        bytes_ = through.pack()
        asked.clear()
        through = through.unpack(bytes_)
        ended = set(through._now.ended)
        aside = max(aside, len(ended))
        assert ended.isdisjoint(asked)
        statuses = {n: through.statuses(n) for n in through.graph_tasks}
        assert statuses == {n: straight.statuses(n) for n in straight.graph_tasks}
        remaining = {n: [through.remaining(n, i) for i in range(40)] for n in ended & {*statuses}}
        assert ended.isdisjoint(asked)  # a reader's thread, or nobody, could read the file now
        assert all(
            found == [straight.remaining(n, i) for i in range(40)] for n, found in remaining.items()
        )
        assert picture(through) == picture(straight)
    assert aside >= 2


def test_many_are_kept_and_dropped_in_time() -> None:
    few = Ended(0, 1, 0, -1, 1, bytes(2), {0: 1}, [])
    many = 30_000  # more than could be kept in the square of their number
    tasks = EndedTasks().with_(dict.fromkeys(range(many), few))
    rest = tasks.without(range(many // 2))
    assert len(rest) == many // 2
    assert rest[many - 1] == few
    assert tasks.without({-1}) is tasks  # as where another thread calls backward


def test_what_ended_is_not_looked_through_again_and_again() -> None:
    size = 2_000_000
    facts = keyframe.Facts()
    for number in (0, 1):
        task = facts.graph_tasks[number] = keyframe.GraphTaskFacts(-1, 0, 0, -1)
        task.shape, task.status, task.ended = GraphShape.unknown(size), bytearray(size), True
        task.status[:] = b"\3" * size
    entry = facts.graph_tasks[0].shape.entry
    facts.heaps[-1] = TaskHeap([entry(node % 2, 0, node) for node in range(1_000)])
    facts.running[0] = [QueuedTask(node % 2, node) for node in range(1_000)]
    data = keyframe.pack(facts)
    assert len(data) < 20_000
    tracemalloc.start()
    state = BackwardState(no_graph).unpack(data)
    assert len(state.queues()[0].tasks) == len(state.running()[0]) == 1_000
    for node in range(1_000):
        state.status(0, node), state.remaining(1, node), state.is_nonfinite(0, node)
    assert tracemalloc.get_traced_memory()[1] < 20 * size
    tracemalloc.stop()


def no_graph(number: int) -> GraphShape:
    raise KeyError(number)


def test_a_graph_that_is_another_one_does_no_harm() -> None:
    facts = keyframe.Facts()
    task = facts.graph_tasks[3] = keyframe.GraphTaskFacts(-1, 0, 0, -1)
    task.shape, task.status, task.ended = GraphShape([5, 6], [1, 1]), bytearray(2), True
    data = keyframe.pack(facts)
    for other in ({}, {3: GraphShape([5], [1])}):
        state = BackwardState(other.__getitem__).unpack(data)
        assert state.sequence_nr(3, 1) is None
        assert state.remaining(3, 1) == 1
        assert state.pack() == data


class Again(torch.autograd.Function):
    """Its backward asks for gradients of a part of a graph, or fails to and goes on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fails: bool) -> Tensor:
        ctx.fails = fails
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        with torch.enable_grad():
            leaf = torch.ones(4, requires_grad=True)
            middle = leaf * 2
            middle.register_hook(refuse if ctx.fails else keep)
            loss = (middle.exp() * leaf).sum()
        with contextlib.suppress(ZeroDivisionError):
            torch.autograd.grad(loss, [middle])
        return gradient * 2, None


def refuse(gradient: Tensor) -> Tensor:
    raise ZeroDivisionError


def keep(gradient: Tensor) -> Tensor:
    return gradient


def several(x: Tensor) -> Tensor:
    for _ in range(10):
        x = x * 1.5
    return x


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Any]]:
    """A backward pass with many inside, and its states by ``seq``, replayed from its beginning."""
    path = tmp_path_factory.mktemp("ended") / "t.agviz"
    torch.manual_seed(0)
    leaf = torch.randn(4, requires_grad=True)
    with Recorder(path) as recorder, agviz_engine.installed(recorder):
        for _ in range(2):
            x = leaf * 1.0
            for step in range(60):
                x = checkpoint(several, x, use_reentrant=True)
                x = Again.apply(x, step % 10 == 7)  # type: ignore[no-untyped-call]
            x.sum().backward()
    wanted = {}
    with Trace.open(path) as trace:
        state = trace.state_at(trace.graph_tasks[0].id, 0)
        chosen = set(Random(1).sample(range(trace.event_count()), 80))
        for place, event in enumerate(trace.events(limit=10**6)):
            state.apply(event)
            if place in chosen:
                wanted[event.seq] = picture(state)
    return path, wanted


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_graph_task_of_another_size_is_refused(
    tmp_path: Path, recording: tuple[Path, dict[int, Any]], more: int
) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(recording[0].read_bytes())
    database = sqlite3.connect(path, isolation_level=None)
    ((seq,),) = database.execute("SELECT seq FROM keyframe ORDER BY seq LIMIT 1")
    with Trace.open(path) as trace:
        (event,) = trace.events(offset=trace.position(seq), limit=1)
        number = event.graph_task
        size = trace.graph_task(number).nodes + more
        facts = keyframe.Facts()
        facts.seq = seq
        facts.ended = EndedTasks().with_({number: Ended(-1, 0, 0, -1, 0, bytes(size), {}, [])})
        database.execute("UPDATE keyframe SET state = ? WHERE seq = ?", (keyframe.pack(facts), seq))
        database.close()
        place = trace.position(seq, number) + 1
        if more:
            with pytest.raises(TraceError, match="of another graph"):
                trace.state_at(number, place)
        else:
            assert len(trace.state_at(number, place).statuses(number)) == size


def seek(trace: Trace, seq: int) -> Any:
    (event,) = trace.events(offset=trace.position(seq), limit=1)
    number = event.graph_task
    return picture(trace.state_at(number, trace.position(seq, number) + 1))


def test_any_place_among_many_calls(
    monkeypatch: pytest.MonkeyPatch, recording: tuple[Path, dict[int, Any]]
) -> None:
    path, wanted = recording
    with Trace.open(path) as trace:
        assert len(trace.graph_tasks) > 200
        first = trace.graph_tasks[0].id
        for seq in Random(2).sample(list(wanted), len(wanted)):
            assert seek(trace, seq) == wanted[seq]
    read = []
    shape = Contents.shape

    def shape_of(contents: Contents, number: int) -> GraphShape:
        read.append(number)
        return shape(contents, number)

    monkeypatch.setattr(Contents, "shape", shape_of)
    with Trace.open(path) as trace:
        trace.state_at(first, trace.event_count(first) - 1)
        assert len(read) < 40  # though some 120 ended before
        assert "graph_tasks" not in vars(trace._contents())


def test_a_keyframe_does_not_grow_with_them(recording: tuple[Path, dict[int, Any]]) -> None:
    path, _ = recording
    database = sqlite3.connect(path)
    ((largest,),) = database.execute("SELECT max(length(state)) FROM keyframe")
    database.close()
    assert largest < 700


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_event_is_near_an_anchor(
    tmp_path: Path, recording: tuple[Path, dict[int, Any]], is_closed: bool
) -> None:
    """The events of the outer graph task are few, but far apart."""
    path = tmp_path / "t.agviz"
    path.write_bytes(recording[0].read_bytes())
    if not is_closed:
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("DELETE FROM anchor")
        database.close()
    with Trace.open(path) as trace:
        everything = trace.events(limit=10**6)
        tasks = trace.graph_tasks
        for number in (tasks[place].id for place in (0, 1, 5, -1)):
            own = [event for event in everything if event.graph_task == number]
            assert trace.event_count(number) == len(own)
            for place in range(0, len(own), max(len(own) // 9, 1)):
                assert trace.events(number, offset=place, limit=2) == own[place : place + 2]
                assert trace.position(own[place].seq, number) == place
            seqs = trace._pages()._anchors(number).seqs
            assert set(seqs) <= {event.seq for event in own}
            if number == tasks[0].id:
                assert own[-1].seq - own[0].seq > 4_000
                assert max(b - a for a, b in itertools.pairwise(seqs)) < 2_000
