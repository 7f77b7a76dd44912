"""What goes into a trace comes out again: SQLite itself, and the events as told, are the oracle."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agviz.record import writer
from agviz.record.recorder import Recorder
from agviz.traces import codec, schema
from agviz.traces import database as database_module
from agviz.traces.database import Database
from agviz.traces.nodes import short_name
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz_engine import events, installed
from agviz_engine.emissions import ARRIVED, DELIVERED, ENDED, EXPANSION, JOURNALED, TOOK, expand
from agviz_engine.events import EVENT_TYPES, NodeStarted
from agviz_engine.instruments import Instrument, Live, Registry
from tests.emitting import emit
from tests.engine.programs import PROGRAMS
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor


def recorded(
    path: Path, *, seed: int = 0, size: int = 30, tasks: int = 3, devices: int = 2, **how: Any
) -> Simulator:
    registry = Registry()
    with Recorder(path, script="train.py", argv=["--lr", "0.1"], **how) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(seed), devices=devices)
        for _ in range(tasks):
            simulator.backward(random_graph(simulator.rng, size, devices))
    return simulator


def every_kind() -> list[events.Event]:
    """One event of each kind, every field different from every other."""
    made: list[events.Event] = []
    for position, kind in enumerate(EVENT_TYPES):
        fields: list[Any] = [position, 10**12 + position, 1, 0]
        for offset, field in enumerate(kind._fields[4:]):
            sort = str(kind.__annotations__[field])
            if "str" in sort:
                fields.append(f"text {position} {offset} ∇")
            else:
                fields.append(bool(offset % 2) if "bool" in sort else 1000 * position + offset)
        event: Any = kind
        made.append(event(*fields))
    return made


@pytest.mark.parametrize("event", every_kind()[1:], ids=lambda event: type(event).__name__)
def test_every_kind_of_event_survives_its_row(event: events.Event) -> None:
    texts = ["", "another"]

    def intern(text: str) -> int:
        texts.append(text)
        return len(texts) - 1

    (row,) = inserted(codec.encode(event, intern))
    assert row[:5] == (event[0], event[1] - 7, *event[2:4], codec.KIND[type(event)])
    assert codec.decode(row, 7, texts.__getitem__, texts.__getitem__) == (event,)


def inserted(row: Sequence[int]) -> list[tuple[int | None, ...]]:
    """What SQLite makes of a row for it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(schema.TABLES["event"])
        database.execute(codec.insertion(1), (7, *row))
        return database.execute("SELECT * FROM event").fetchall()


def test_events_come_back_as_they_were_told(tmp_path: Path) -> None:
    simulator = recorded(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.event_count() == len(simulator.emitted)
        assert trace.events(limit=10**9) == simulator.emitted


@pytest.mark.parametrize("rows", [1, 4, 33, 64])
def test_however_many_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(writer, "_MOST_ROWS", rows)
    monkeypatch.setattr(writer, "_MOST_AT_ONCE", rows)
    simulator = recorded(tmp_path / "t.agviz", size=37)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.events(limit=10**9) == simulator.emitted
        for task in trace.graph_tasks:
            nodes = trace.nodes(task.id)
            assert [node.index for node in nodes] == list(range(task.nodes))
            assert len(trace.edges(task.id)) == task.edges


def every_row() -> list[tuple[int, ...]]:
    """One row of each kind that goes to journals, every field different from every other."""
    rows: list[tuple[int, ...]] = []
    for kind in EXPANSION:
        seq = 1_000 + 10 * len(rows)
        fields = [100 * kind + place for place in range(6)]
        if kind in (DELIVERED, ARRIVED):
            fields[4 if kind == DELIVERED else 3] = 1  # a truth value
        rows.append((seq, 10**12 + seq, 1, 0, kind, *fields))
    return rows


def test_every_kind_goes_through_the_file(tmp_path: Path) -> None:
    told = [
        event._replace(parent=-1) if isinstance(event, events.GraphTaskBegun) else event
        for event in every_kind()
        if type(event) not in JOURNALED
    ]  # no file is believed in which a graph task is inside of a later one
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry = Registry()
        registry.add(recorder)
        emit(registry, told, Live(None))
        for row in every_row():
            assert registry.journal is not None
            registry.journal(row)
            told += expand(row)
    assert {type(event) for event in told} == set(EVENT_TYPES)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.events() == told


@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(1, 25), st.integers(0, 60))
@settings(max_examples=20)
def test_pages_are_slices(
    tmp_path_factory: pytest.TempPathFactory, seed: int, limit: int, size: int, offset: int
) -> None:
    path = tmp_path_factory.mktemp("pages") / "t.agviz"
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(seed))
        inner = random_graph(simulator.rng, size)
        outer = random_graph(simulator.rng, size)
        simulator.backward(outer, reentrant=inner)
    with Trace.open(path) as trace:
        for task in (None, *(row.id for row in trace.graph_tasks)):
            own = [event for event in simulator.emitted if task in {None, event.graph_task}]
            assert trace.event_count(task) == len(own)
            assert trace.events(task, offset, limit) == own[offset : offset + limit]
            for position, event in enumerate(own):
                assert trace.position(event.seq, task) == position


def test_pages_of_a_task_that_others_interrupt_for_long(tmp_path: Path) -> None:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(1))
        outer, inner = (random_graph(simulator.rng, size) for size in (600, 400))
        number = simulator.backward(outer, reentrant=inner)
    own = [event for event in simulator.emitted if event.graph_task == number]
    assert len(own) > 3000  # several anchors
    with Trace.open(tmp_path / "t.agviz") as trace:
        for offset in (0, 1, 999, 1000, 1001, 2500, len(own) - 1, len(own)):
            assert trace.events(number, offset, 7) == own[offset : offset + 7]
        assert [trace.position(event.seq, number) for event in own[::333]] == [
            *range(0, len(own), 333)
        ]


class Steps:
    """How many steps SQLite's virtual machine took, to the next hundred."""

    def __init__(self) -> None:
        self.taken = 0

    def budget(self) -> Iterator[bool]:
        while True:
            self.taken += 100
            yield False


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    counted = Steps()
    monkeypatch.setattr(database_module, "_STEPS_PER_CHECK", 100)
    monkeypatch.setattr(Database, "_budget", counted.budget)
    return counted


def test_the_last_page_of_a_graph_task_does_not_search_the_others(
    tmp_path: Path, steps: Steps
) -> None:
    recorded(tmp_path / "t.agviz", tasks=60)
    with Trace.open(tmp_path / "t.agviz") as trace:
        taken = []
        for number in (0, 59):
            count = trace.event_count(number)
            before = steps.taken
            assert len(trace.events(number, count - 5, 200)) == 5
            taken.append(steps.taken - before)
    # At most the 100 rows from an anchor on are passed over; the others' take 150,000 steps.
    assert taken[0] < taken[1] + 2_000


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "read",
    [
        lambda trace, node: trace.story(0, node),
        lambda trace, node: trace.outline(0).story(node),
        lambda trace, node: trace.seqs_where(0, node=node),
        lambda trace, node: trace.seqs_where(0, [NodeStarted], node=node),
        lambda trace, node: trace.health(0, node),
        lambda trace, node: trace.values(0, node),
        lambda trace, node: trace.node(0, node),
    ],
    ids=["story", "outline", "seqs", "seqs of a kind", "health", "values", "row"],
)
def test_what_concerns_a_node_is_found_without_a_search(
    tmp_path: Path, steps: Steps, read: Callable[[Trace, int], object]
) -> None:
    simulator = recorded(tmp_path / "t.agviz", size=2000, tasks=1)
    fed = Counter(getattr(event, "node", None) for event in simulator.emitted)
    node = next(node for node in range(1000, 2000) if fed[node] < 20)
    with Trace.open(tmp_path / "t.agviz") as trace:
        read(trace, node)  # it begins to count what ran before
        begin = steps.taken
        trace.seqs_where(0, [NodeStarted])
        searched = steps.taken
        read(trace, node)
        assert steps.taken - searched < (searched - begin) / 5


def test_sqlite_itself_finds_the_facts(tmp_path: Path) -> None:
    simulator = recorded(tmp_path / "t.agviz")
    database = sqlite3.connect(tmp_path / "t.agviz")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    kinds = Counter(codec.KIND[type(event)] for event in simulator.emitted)
    roots = len([e for e in simulator.emitted if isinstance(e, events.GraphTaskBegun)])
    steps = {TOOK: events.NodeStarted, DELIVERED: events.DependencyDecremented}
    for step, kind in (steps | {ENDED: events.NodeFinished}).items():
        kinds[step] = kinds.pop(codec.KIND[kind])
    del kinds[codec.KIND[events.QueuePop]]
    kinds[ARRIVED] = roots
    assert dict(database.execute("SELECT kind, count(*) FROM event GROUP BY kind")) == kinds
    begun = [e for e in simulator.emitted if isinstance(e, events.GraphTaskBegun)]
    assert database.execute("SELECT id, begin_seq FROM graph_task").fetchall() == [
        (event.graph_task, event.seq) for event in begun
    ]
    assert not list(tmp_path.glob("t.agviz?*")), "one self-contained file is left"
    database.close()


def test_graph_and_threads(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(3), devices=2)
        graph = random_graph(simulator.rng, 40, 2)
        number = simulator.backward(graph, nan_at=0)
    with Trace.open(path) as trace:
        nodes = trace.nodes(number)
        assert [(n.index, n.name, n.queue, n.num_inputs) for n in nodes] == [
            (n.index, n.name, n.device, n.num_inputs) for n in graph
        ]
        assert [n.sequence_nr for n in nodes] == [
            None if n.is_accumulate_grad else n.sequence_nr for n in graph
        ]
        edges = {
            (n.index, output, edge[0].index, edge[1])
            for n in graph
            for output, edge in enumerate(n.next_edges)
            if edge
        }
        assert set(trace.edges(number)) == edges
        incoming = Counter(edge[2] for edge in edges)
        assert [n.dependencies for n in nodes] == [incoming[n.index] for n in graph]
        started = [e for e in simulator.emitted if isinstance(e, events.NodeStarted)]
        finished = {e.node: e for e in simulator.emitted if isinstance(e, events.NodeFinished)}
        executions = trace.executions(number)
        assert [(x.order, x.node, x.thread, x.start_ns) for x in executions] == [
            (i, e.node, e.thread, e.time_ns) for i, e in enumerate(started, 1)
        ]
        for x in executions:
            assert (x.end_ns, x.status) == (finished[x.node].time_ns, NodeStatus.DONE)
            assert nodes[x.node].order == x.order
            assert nodes[x.node].duration_ns == finished[x.node].time_ns - x.start_ns
        assert [(t.id, t.name, t.queue) for t in trace.threads] == [
            (0, "MainThread", -1),
            (1, "pt_autograd_0", 0),
            (2, "pt_autograd_1", 1),
        ]
        first = trace.first_nonfinite()
        assert first is not None
        assert (first.node, first.name, first.nan, first.order) == (0, nodes[0].short_name, 1, 1)
        assert [n.index for n in nodes if n.nonfinite and n.nonfinite.nan] == [0]
        assert trace.nonfinite(limit=1) == [first]
        row = trace.graph_task(number)
        assert (row.status, row.executed, row.nodes) == (GraphTaskStatus.FINISHED, 40, 40)
        slowest = trace.slowest(5)
        total = Counter[str]()
        for x in executions:
            total[x.name] += (x.end_ns or 0) - x.start_ns
        assert [(t.name, t.self_ns) for t in slowest.types] == sorted(
            total.items(), key=lambda item: (-item[1], item[0])
        )[:5]
        assert sum(t.executed for t in trace.thread_times()) == 40


def test_story_is_what_concerns_a_node(tmp_path: Path) -> None:
    simulator = recorded(tmp_path / "t.agviz", tasks=2)
    with Trace.open(tmp_path / "t.agviz") as trace:
        for node in range(30):
            expected = [
                event
                for event in simulator.emitted
                if event.graph_task == 1
                and node in {getattr(event, "node", None), getattr(event, "producer", None)}
            ]
            assert trace.story(1, node) == expected


def about(trace: Trace, task: int, node: int) -> list[object]:
    return [
        trace.story(task, node),
        trace.outline(task).story(node),
        trace.seqs_where(task, node=node),
        trace.seqs_where(task, [events.GradientAccumulated], node=node),
        trace.seqs_where(task, [events.GradientAccumulated, NodeStarted], node=node),
        trace.health(task, node),
        trace.node(task, node),
    ]


class GivesNothing(torch.autograd.Function):
    """Its input gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        return None


def the_last_gives_nothing() -> None:
    """Now and then, a block is left between the last gradient and what was decremented last."""
    x = torch.ones(2, requires_grad=True)
    for size in range(1, 20):
        nothing: Any = GivesNothing.apply
        terms = [nothing(x), *(x.exp() for _ in range(size))]
        torch.autograd.backward(terms, [torch.ones(2)] * len(terms))


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        *map(PROGRAMS.__getitem__, ["undefined_gradients", "transformer_encoder", "node_hooks"]),
        the_last_gives_nothing,
    ],
)
def test_a_node_is_told_of_alike_where_its_blocks_are_not_known(
    tmp_path: Path, program: Callable[[], object]
) -> None:
    closed, cut_off = tmp_path / "closed.agviz", tmp_path / "cut_off.agviz"
    with Recorder(closed, values="health") as recorder, installed(recorder, nonfinite_check=True):
        program()
    cut_off.write_bytes(closed.read_bytes())
    with contextlib.closing(sqlite3.connect(cut_off, isolation_level=None)) as database:
        database.execute("DELETE FROM node_block")
        database.execute("DELETE FROM timeline")
        assert database.execute("DELETE FROM run").rowcount
    with Trace.open(closed) as one, Trace.open(cut_off) as other:
        for task in one.graph_tasks:
            for node in range(task.nodes):
                assert about(one, task.id, node) == about(other, task.id, node)


def test_failed_graph_task(tmp_path: Path) -> None:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(5))
        number = simulator.backward(random_graph(simulator.rng, 20), fail_at=0)
    with Trace.open(tmp_path / "t.agviz") as trace:
        row = trace.graph_task(number)
        assert (row.status, row.error, row.message) == (
            GraphTaskStatus.FAILED,
            "RuntimeError",
            "no\nway",
        )
        statuses = [node.status for node in trace.nodes(number)]
        assert statuses == [NodeStatus.FAILED, *[NodeStatus.WAITING] * 19]


def test_threads_that_were_at_work_before(tmp_path: Path) -> None:
    registry = Registry()
    simulator = Simulator(registry, Random(3), devices=2)
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator.backward(random_graph(simulator.rng, 40, 2))
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [(t.id, t.name, t.queue) for t in trace.threads] == [
            (0, threading.current_thread().name, -1),
            (1, "pt_autograd_0", 0),
            (2, "pt_autograd_1", 1),
        ]


def test_a_recording_that_begins_in_the_middle(tmp_path: Path) -> None:
    class Late(Instrument):
        def node_finished(self, event: events.NodeFinished, live: Live) -> None:
            if event.node == 0 and recorder not in registry.instruments:
                registry.add(recorder)

    registry = Registry()
    registry.add(Late())
    with Recorder(tmp_path / "t.agviz") as recorder:
        simulator = Simulator(registry, Random(3), devices=2)
        outer, inner = (random_graph(simulator.rng, 20, 2) for _ in range(2))
        simulator.backward(outer, reentrant=inner, nan_at=5)
        simulator.backward(inner)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert {event.graph_task for event in trace.events(limit=10**6)} == {0, 1, 2}
        assert [row.id for row in trace.graph_tasks] == [1, 2]
        for number in (1, 2):
            assert len(trace.executions(number)) == 20
            state = trace.state_at(number, trace.event_count(number))
            assert set(state.statuses(number)) == {NodeStatus.DONE}
        assert {row.graph_task for row in trace.slowest(100).executions} == {1, 2}
        assert trace.nonfinite() == []
        assert len(trace.threads) == 3


def test_only_the_wanted_steps(tmp_path: Path) -> None:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz", steps=range(1, 4, 2)) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(5))
        inner = random_graph(simulator.rng, 5)
        numbers = [
            simulator.backward(random_graph(simulator.rng, 9), reentrant=inner) for _ in range(5)
        ]
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.partial
        wanted = {numbers[1], numbers[1] + 1, numbers[3], numbers[3] + 1}
        assert {row.id for row in trace.graph_tasks} == wanted
        assert {e.graph_task for e in trace.events(limit=10**6)} == wanted | {-1}
        assert all(trace.nodes(number) for number in wanted)


def test_meta(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        meta = trace.meta
        assert (meta.script, meta.argv) == ("train.py", ("--lr", "0.1"))
        assert meta.end_ns is not None
        assert meta.end_ns > meta.start_ns
        assert not trace.is_growing
    database = sqlite3.connect(tmp_path / "t.agviz")
    assert json.loads(dict(database.execute("SELECT * FROM meta"))["script"]) == "train.py"
    database.close()


def test_reading_while_it_is_recorded(tmp_path: Path) -> None:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(5))
        with Trace.open(tmp_path / "t.agviz") as trace:
            for _ in range(3):
                number = simulator.backward(random_graph(simulator.rng, 20))
                assert recorder.flush()
                assert trace.is_growing
                assert trace.event_count() == len(simulator.emitted)
                assert trace.graph_task(number).status is GraphTaskStatus.FINISHED
                end = trace.state_at(number, trace.event_count(number))
                assert set(end.statuses(number)) == {NodeStatus.DONE}


@pytest.mark.slow
def test_less_than_60_bytes_per_event(tmp_path: Path) -> None:
    simulator = recorded(tmp_path / "t.agviz", size=2000, tasks=4)
    assert (tmp_path / "t.agviz").stat().st_size < 60 * len(simulator.emitted)


def test_less_than_60_bytes_per_event_with_all_that_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with Recorder(path, values="health") as recorder, installed(recorder, nonfinite_check=True):
        x = torch.ones(4, requires_grad=True)
        torch.stack([((x * n).sin() + x).sum() for n in range(2000)]).sum().backward()
    with Trace.open(path) as trace:
        assert trace.event_count() > 50_000
        assert path.stat().st_size < 60 * trace.event_count()


def test_names_without_namespaces() -> None:
    assert short_name("torch::autograd::AccumulateGrad") == "AccumulateGrad"
    assert short_name("MulBackward0") == "MulBackward0"
    assert short_name("torch::autograd::CppNode<a::b>") == "CppNode<a::b>"


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from agviz.traces.reader import Trace\n"
        "trace = Trace.open(sys.argv[1]); print(trace.event_count(), len(trace.nodes(0)))\n"
        "trace.state_at(0, 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "t.agviz"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[1] == "30"
