"""The timeline says of every moment what a replay from the beginning says."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
import tempfile
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.errors import TraceError
from agviz.record import shortcuts
from agviz.record.recorder import Recorder
from agviz.traces import schema
from agviz.traces import timeline as timeline_module
from agviz.traces.codec import KIND
from agviz.traces.packed import pack, unpack
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus, QueuedTask
from agviz.traces.task_heap import TaskHeap, priority
from agviz_engine import events
from agviz_engine.emissions import DELIVERED, ENDED, TOOK
from agviz_engine.instruments import Registry
from tests.emitting import emit
from tests.engine.programs import PROGRAMS
from tests.event_simulator import Simulator, random_graph
from tests.slow_cases import slow_but
from tests.state_support import cut_off, picture, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short passes are stored as long ones are, and read from that."""
    monkeypatch.setattr(timeline_module, "_FEW_EVENTS", 0)


def assert_equal(trace: Trace, every: float = 1.0, *, until: int | None = None) -> int:
    """Compare the timeline with a replay, both from the first event on and at random moments.

    Args:
        trace: the file.
        every: share of the moments at which everything is compared.
        until: number of events to look at; None: all.

    Returns:
        The number of moments.
    """
    rng = Random(0)
    replay, wanted = trace.replay(), {}
    known = {task.id for task in trace.graph_tasks}
    for event in trace.events(limit=until or trace.event_count()):
        if event.graph_task not in {*known, -1}:
            continue
        replay.apply(event)
        if event.graph_task in known and rng.random() < every:
            wanted[event] = picture(replay)
            assert state_after(trace, event) == wanted[event], event
    for event in rng.sample(sorted(wanted), len(wanted)):
        assert state_after(trace, event) == wanted[event], event
    return len(wanted)


def state_after(trace: Trace, event: Any) -> dict[str, Any]:
    number = event.graph_task
    state = trace.state_at(number, trace.position(event.seq, number) + 1)
    assert state.time_ns == event.time_ns
    return picture(state)


def recorded(
    path: Path, run: Callable[[], object], *, policy: Callable[[Node], int] | None = None
) -> Path:
    with Recorder(path) as recorder, agviz_engine.installed(recorder, device_policy=policy):
        run()
    return path


def test_the_kinds_have_the_numbers_of_the_events() -> None:
    named = {
        "COMPUTED": KIND[events.DependenciesComputed],
        "PUSHED": KIND[events.QueuePush],
        "POPPED": KIND[events.QueuePop],
        "STARTED": TOOK,
        "FINISHED": ENDED,
        "FAILED": KIND[events.NodeFailed],
        "SKIPPED": KIND[events.NodeSkipped],
        "HOOK_CALLED": KIND[events.HookCalled],
        "DELIVERED": DELIVERED,
        "ARRIVED": KIND[events.GradientAccumulated],
        "CAPTURED": KIND[events.GradientCaptured],
        "CHECKED": KIND[events.NonFiniteChecked],
    }
    assert {name: getattr(schema, name) for name in named} == named


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "name", slow_but(PROGRAMS.keys() - {"transformer_encoder", "rnn_with_shared_cell"}, PROGRAMS)
)
def test_every_program(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with Trace.open(recorded(tmp_path / "t.agviz", PROGRAMS[name])) as trace:
        assert assert_equal(trace) > 20


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("transformer_encoder", marks=pytest.mark.slow),
        *("reentrant_checkpoint", "lstm", "mlp"),
    ],
)
def test_device_threads(name: str, tmp_path: Path) -> None:
    def place(node: Node) -> int:
        return -1 if "AccumulateGrad" in node.name() else int(node._sequence_nr() % 2)

    path = recorded(tmp_path / "t.agviz", PROGRAMS[name], policy=place)
    with Trace.open(path) as trace:
        assert assert_equal(trace) > 100
        assert any(
            queue.queue == 1 for queue in trace.state_at(trace.graph_tasks[0].id, 20).queues()
        )


def test_several_calling_threads(tmp_path: Path) -> None:
    def work() -> None:
        weight = torch.randn(8, 8, requires_grad=True)
        for _ in range(4):
            x = checkpoint(torch.tanh, weight @ weight, use_reentrant=True)
            (x.relu() @ weight + weight).sum().backward()

    def run() -> None:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with Trace.open(recorded(tmp_path / "t.agviz", run)) as trace:
        assert assert_equal(trace, 0.3) > 200


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


def many_calls() -> None:
    leaf = torch.randn(4, requires_grad=True)
    for _ in range(2):
        x = leaf * 1.0
        for step in range(20):
            x = checkpoint(several, x, use_reentrant=True)
            x = Again.apply(x, step % 10 == 7)  # type: ignore[no-untyped-call]
        x.sum().backward()


def failing_hooks() -> None:
    for place in range(4):
        leaves = [torch.randn(3, requires_grad=True) for _ in range(12)]
        parts = [leaf * leaf for leaf in leaves]
        parts[place * 3].register_hook(refuse)
        with pytest.raises(ZeroDivisionError):
            torch.cat([*parts, *leaves]).sum().backward()


def leaves_only() -> None:
    """More than three tie while others come in."""
    torch.stack([torch.randn(1, requires_grad=True) for _ in range(40)]).sum().backward()


def leaves_of_each() -> None:
    leaves = [[torch.randn(1, requires_grad=True) for _ in range(4)] for _ in range(30)]
    torch.cat([torch.cat(each) for each in leaves]).sum().backward()


def one_leaf() -> None:
    leaf = torch.randn(4, requires_grad=True)
    parts = [leaf * 1.5 for _ in range(60)]
    Random(3).shuffle(parts)
    torch.stack(parts).sum().backward()


def checkpoints_among_many() -> None:
    shared, leaf = nn.Linear(4, 4), torch.randn(4, requires_grad=True)
    many = [
        checkpoint(shared, leaf * 1.5, use_reentrant=True) if n % 15 == 0 else leaf * 1.5
        for n in range(60)
    ]
    torch.stack(many).sum().backward()


HARD = [many_calls, failing_hooks, leaves_only, leaves_of_each, one_leaf, checkpoints_among_many]
QUICK = {"0-one_leaf", "2-failing_hooks", "2-checkpoints_among_many"}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "case",
    slow_but(
        QUICK,
        itertools.product([0, 2], HARD),
        lambda case: f"{case[0]}-{case[1].__name__}",
    ),
)
def test_what_is_hard(case: tuple[int, Callable[[], None]], tmp_path: Path) -> None:
    devices, run = case

    def place(node: Node) -> int:
        return -1 if "AccumulateGrad" in node.name() else int(node._sequence_nr() % devices)

    torch.manual_seed(0)
    path = recorded(tmp_path / "t.agviz", run, policy=place if devices else None)
    with Trace.open(path) as trace:
        assert assert_equal(trace, 0.1 if run is many_calls else 1.0) > 50


def test_a_file_that_was_cut_off_anywhere(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole.agviz", many_calls)
    with Trace.open(whole) as trace:
        count = trace.event_count()
    for place in Random(4).sample(range(50, count), 6):
        path = tmp_path / f"{place}.agviz"
        path.write_bytes(whole.read_bytes())
        cut_off(path, place)
        with Trace.open(path) as trace:
            assert_equal(trace, 0.05)


@pytest.mark.slow
def test_a_file_that_grows(tmp_path: Path) -> None:
    """It is read on, and what was read before stays as it was; so it does once it is closed."""
    path, registry = tmp_path / "t.agviz", Registry()
    pictures = []

    with Recorder(path) as recorder:
        registry.add(recorder)
        assert recorder.flush()
        with Trace.open(path) as growing:

            class Watcher(agviz_engine.Instrument):
                def any_event(self, event: events.Event, live: agviz_engine.Live) -> None:
                    if event.graph_task >= 0 and event.seq % 37 == 0:
                        assert recorder.flush()
                        state = growing.state_at(
                            event.graph_task, growing.position(event.seq, event.graph_task) + 1
                        )
                        pictures.append((event, state, picture(state)))

            registry.add(Watcher())
            simulate(3, 60, 2, registry)
            assert all(picture(state) == then for _, state, then in pictures)
            assert_equal(growing, 0.2)
    assert len(pictures) > 15
    with Trace.open(path) as trace:
        assert all(state_after(trace, event) == then for event, _, then in pictures)


TOTAL = 2_000 if settings.get_current_profile_name() == "fuzz" else 15
DRAWN = st.integers(0, 2**32), st.integers(2, 30), st.integers(0, 3), st.booleans()


@settings(max_examples=TOTAL)
@given(*DRAWN, st.sampled_from([None, re.compile("Simulated[36]")]), st.data())
def test_drawn_graphs(
    seed: int,
    size: int,
    devices: int,
    in_order: bool,
    nodes: re.Pattern[str] | None,
    data: st.DataObject,
) -> None:
    registry = Registry()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        with Recorder(path, nodes=nodes) as recorder:
            registry.add(recorder)
            simulate(seed, size, devices, registry, in_order=in_order)
        with Trace.open(path) as trace:
            assert_equal(trace, 0.2)
            place = data.draw(st.integers(0, trace.event_count()))
        cut_off(path, place)
        with Trace.open(path) as trace:
            assert_equal(trace, 0.1)


OPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)))


@given(OPS, st.integers(0, 2**32))
def test_a_heap_pops_by_depth_and_sequence_number(ops: list[tuple[int, int]], seed: int) -> None:
    heap, rng = TaskHeap(), Random(seed)
    keys = {}
    for node, (depth, number) in enumerate(ops):
        keys[QueuedTask(depth, node)] = priority(depth, number or None)
        heap.push(keys[QueuedTask(depth, node)], QueuedTask(depth, node))
    for task in rng.sample(sorted(keys), len(keys) // 3):
        assert task in heap
        heap.remove(task)
        del keys[task]
    heap.drop(2)
    order = heap.order()
    assert sorted(order) == sorted(task for task in keys if task.graph_task != 2)
    assert [keys[task] for task in order] == sorted(keys[task] for task in order)
    assert heap.first == next(iter(order), None)


def test_an_order_is_a_sequence(tmp_path: Path) -> None:
    longest = 0
    with Trace.open(recorded(tmp_path / "t.agviz", failing_hooks)) as trace:
        for task in trace.graph_tasks:
            for position in range(trace.event_count(task.id)):
                for place in range(len(trace.state_at(task.id, position).queues())):
                    order, again = (
                        trace.state_at(task.id, position).queues()[place].tasks for _ in range(2)
                    )
                    whole = list(again)
                    assert order[1:3] == tuple(whole[1:3])
                    assert [order[at] for at in range(len(order))] == whole
                    assert not order or order[-1] == whole[-1]
                    assert order == again
                    with pytest.raises(IndexError):
                        order[len(order)]
                    longest = max(longest, len(order))
    assert longest > 5


def test_what_was_seen_stays(tmp_path: Path) -> None:
    """A state that is held says the same after others were found, and on another thread."""
    path, registry = tmp_path / "t.agviz", Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulate(7, 40, 2, registry)
    with Trace.open(path) as trace:
        counts = [(task.id, trace.event_count(task.id)) for task in trace.graph_tasks]
        places = [(number, place) for number, count in counts for place in range(2, count, 31)]
        held = [(trace.state_at(*place), picture(trace.state_at(*place))) for place in places]
        found: list[bool] = []

        def look() -> None:
            for state, then in held:
                queues = [(q.queue, q.thread, list(q.tasks)) for q in state.queues()]
                found.append([each for each in queues if each[2]] == then["queues"])
                found.append(
                    (state.running(), state.live_bytes) == (then["running"], then["live bytes"])
                )

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert found == [True, True] * len(held)
        assert all(picture(state) == then for state, then in held)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "lie",
    [
        "DELETE FROM timeline",
        "DELETE FROM timeline WHERE id % 2",
        "UPDATE event SET b = -3 WHERE kind IN (10, 27)",
        "UPDATE node SET queue = 77 WHERE idx > 3",
        "UPDATE node SET sequence_nr = -9223372036854775808",
        "UPDATE graph_task SET begin_seq = end_seq, end_seq = begin_seq",
        "UPDATE graph_task SET parent = id - 1, depth = -1 WHERE id",
    ],
)
def test_a_file_that_says_what_can_not_be_is_read(tmp_path: Path, lie: str) -> None:
    path, registry = tmp_path / "t.agviz", Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulate(5, 40, 2, registry)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(lie)
    database.close()
    with Trace.open(path) as trace:
        for task in trace.graph_tasks:
            for place in range(0, trace.event_count(task.id), 17):
                picture(trace.state_at(task.id, place))


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE timeline SET bytes = 'text'",
        "UPDATE timeline SET bytes = substr(bytes, 1, length(bytes) - 1)",
        "UPDATE timeline SET bytes = substr(bytes, 1, 20)",
        "UPDATE timeline SET bytes = bytes || x'00'",
        "UPDATE timeline SET bytes = zeroblob(length(bytes))",
        "DELETE FROM timeline; DELETE FROM node WHERE idx = 3",
        "DELETE FROM timeline; DELETE FROM node WHERE idx > 3",
        "DELETE FROM timeline; UPDATE event SET node = 99 WHERE kind = 27",
        "DELETE FROM timeline; UPDATE event SET node = -1 WHERE kind = 27",
    ],
)
def test_a_false_timeline_is_refused(tmp_path: Path, lie: str) -> None:
    path, registry = tmp_path / "t.agviz", Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulate(5, 40, 2, registry)
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(lie)
    database.close()
    with Trace.open(path) as trace, pytest.raises(TraceError, match="damaged"):
        trace.state_at(0, trace.event_count(0) - 1)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("column", slow_but(set(map(str, range(0, 31, 2))), range(31)))
def test_false_columns_do_no_harm(tmp_path: Path, column: int) -> None:
    """Whatever a number of a timeline says: there is an answer, or the file is called damaged."""
    path, registry, rng = tmp_path / "t.agviz", Registry(), Random(column)
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulate(5, 30, 2, registry)
    database = sqlite3.connect(path, isolation_level=None)
    ((number, blob),) = database.execute("SELECT id, bytes FROM timeline ORDER BY id LIMIT 1")
    for lie in (-5, -1, 0, 3, 29, 30, 99, 2**31, -(2**62), 2**62):
        columns = list(map(list, unpack(blob, 31)))
        if columns[column]:
            columns[column][rng.randrange(len(columns[column]))] = lie
        database.execute("UPDATE timeline SET bytes = ? WHERE id = ?", (pack(columns), number))
        with Trace.open(path) as trace:
            for place in range(0, trace.event_count(0), 29):
                with contextlib.suppress(TraceError):
                    picture(trace.state_at(0, place))
            with contextlib.suppress(TraceError):
                trace.nodes(0)
                list(trace.live_bytes(0, trace.graph_tasks[0].end_ns or 0, 10))
    database.close()


def test_short_passes_are_worked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = 100
    monkeypatch.setattr(timeline_module, "_FEW_EVENTS", few)

    def run() -> None:
        for length in (2, 40, 3):
            x = torch.ones(2, requires_grad=True)
            for _ in range(length):
                x = x.sin()
            x.sum().backward()

    path = recorded(tmp_path / "t.agviz", run)
    with contextlib.closing(sqlite3.connect(path)) as database:
        stored = {
            number // schema.PARTS for (number,) in database.execute("SELECT id FROM timeline")
        }
    with Trace.open(path) as trace:
        counts = {task.id: trace.event_count(task.id) for task in trace.graph_tasks}
        assert [count > few for count in counts.values()] == [False, True, False]
        assert stored == {max(counts, key=lambda number: counts[number])}
        assert assert_equal(trace) == sum(counts.values())


@pytest.mark.slow
def test_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "_NODES_KEPT", 50)
    with Trace.open(recorded(tmp_path / "t.agviz", many_calls)) as trace:
        assert assert_equal(trace, 0.02) > 20
        known = trace._timeline()._tasks
        for task in trace.graph_tasks:
            trace.state_at(task.id, 1)
        assert len(known) < len(trace.graph_tasks)


def test_a_node_may_fail_after_it_has_finished(tmp_path: Path) -> None:
    """As where the engine raises while it hands on what a node put out."""
    path, registry = tmp_path / "t.agviz", Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(1))
        number = simulator.backward(random_graph(simulator.rng, 6))
        first = next(e for e in simulator.emitted if isinstance(e, events.NodeFinished))
        last = simulator.emitted[-1]
        late = last.seq + 1, last.time_ns + 1, first.thread, number, first.node, "E", "no"
        emit(registry, [events.NodeFailed(*late)], simulator._live)
    with Trace.open(path) as trace:
        count = trace.event_count(number)
        assert trace.state_at(number, count - 1).status(number, first.node) is NodeStatus.DONE
        state = trace.state_at(number, count)
        assert state.status(number, first.node) is NodeStatus.FAILED
        assert state.statuses(number)[first.node] is NodeStatus.FAILED
        assert state.executed(number) == 6


def test_recording_ends_well_where_shortcuts_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(shortcuts, "store", fail)
    path, registry = tmp_path / "t.agviz", Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = simulate(5, 40, 2, registry)
    with Trace.open(path) as trace:
        assert trace.meta.end_ns is not None
        assert not trace.meta.stopped
        assert trace.events(limit=10**6) == simulator.emitted
        assert len(trace.threads) == 3
        assert_equal(trace, 0.2)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("is_closed", [True, False])
def test_an_event_is_near_an_anchor(tmp_path: Path, is_closed: bool) -> None:
    """The events of the outer graph task are few, but far apart."""

    def three_times() -> None:
        for _ in range(3):
            many_calls()

    path = recorded(tmp_path / "t.agviz", three_times)
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
            *seqs, end = trace._events()._anchors(number).seqs
            assert {*seqs} <= {event.seq - later for event in own for later in (0, 1)}
            assert end == own[-1].seq + 1
            if number == tasks[0].id:
                assert own[-1].seq - own[0].seq > 1_500
                assert max(b - a for a, b in itertools.pairwise(seqs)) < 2_000
