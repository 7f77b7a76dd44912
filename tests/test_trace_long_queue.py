"""Long queues: packed or not, tasks leave them in torch's order, and files may lie about them."""

from __future__ import annotations

import random
import sqlite3
import zlib
from array import array
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.traces import by_node, keyframe, long_queue, replay
from agviz.traces.contents import Contents
from agviz.traces.graph_shape import GraphShape
from agviz.traces.heap_entry import SHUTDOWN, HeapEntry, QueuedTask, key
from agviz.traces.long_queue import LongQueue, Owner
from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz.traces.replay import Span
from agviz.traces.state import BackwardState
from agviz.traces.task_heap import TaskHeap
from agviz_engine.instruments import Registry
from tests.state_support import Shapes, flipped, picture, simulate, try_to_use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWNER, DEEPER = 3, 7
"""Two graph tasks, the second inside the first."""
DEPTH = 2


def drained(heap: TaskHeap) -> list[QueuedTask]:
    """All tasks in the order in which they are popped, without changing the heap."""
    rest = heap.copy()
    return [rest.pop()[1].task for _ in range(len(rest))]


class Twins:
    """A heap, and the same one packed, to which the same is done."""

    def __init__(self, rng: Random, size: int) -> None:
        self.rng = rng
        numbers: list[int | None] = list(rng.sample(range(3 * size), size))
        for _ in range(size // 3):
            numbers[rng.randrange(size)] = None
        self.shape = GraphShape(numbers, [0] * size)
        self.deeper = GraphShape([rng.choice([None, 1, 2]) for _ in range(size)], [0] * size)
        self.waiting = [(OWNER, node) for node in range(size)]
        self.waiting += [(DEEPER, node) for node in range(size)]
        rng.shuffle(self.waiting)
        self.plain = TaskHeap()
        self.packed = TaskHeap()

    def entry(self, graph_task: int, node: int) -> HeapEntry:
        if graph_task == OWNER:
            return self.shape.entry(OWNER, DEPTH, node)
        return self.deeper.entry(DEEPER, DEPTH + 1, node)

    def pack(self, *, listed: bool) -> bool:
        """Whether there was something to pack."""
        owner = Owner(OWNER, DEPTH, self.shape)
        entries = self.plain.entries()
        if listed:
            nodes = [tied.task.node for _, tied in entries]
            if {tied.task.graph_task for _, tied in entries} != {OWNER}:
                return False
            self.packed = TaskHeap(long=LongQueue.listed(owner, array("q", nodes)))
            return True
        limit = key(DEPTH, None)
        parted = self.plain.parted(limit, len(entries))
        if parted is None:
            return False
        queued = bytearray(len(self.shape.dependencies))
        for entry in entries:
            if entry not in parted.placed.values():
                queued[entry[1].task.node] = 1
        place = list(self.shape.pop_order).index(parted.first_loose[1].task.node)
        long = LongQueue.loose(owner, limit, queued, place, parted.placed)
        self.packed = TaskHeap(long=long)
        again = self.packed.parted(limit, len(entries))
        assert again is not None
        assert again.placed == parted.placed
        assert again.first_loose[1].task == parted.first_loose[1].task
        return True

    def push(self, own: float) -> None:
        graph_task = OWNER if self.rng.random() < own else DEEPER
        for place, task in enumerate(self.waiting):
            if task[0] == graph_task:
                del self.waiting[place]
                self.plain.push(self.entry(*task))
                self.packed.push(self.entry(*task))
                return

    def pop(self) -> None:
        if len(self.plain):
            (_, tied), (_, other) = self.plain.pop(), self.packed.pop()
            assert tied.task == other.task
            if tied.task != SHUTDOWN[1].task:
                self.waiting.append(tied.task)

    def drop(self, graph_task: int) -> None:
        for heap in (self.plain, self.packed):
            heap.drop(lambda number: number == graph_task)
        self._find_waiting()

    def remove(self) -> None:
        """Some task; no loose one that is below a placed one, which a heap tells apart."""
        tasks = drained(self.plain)
        if tasks and self.plain.parted(key(DEPTH, None), 0) is None:
            tasks = [task for task in tasks if self.entry_of(task)[0] <= key(DEPTH, None)]
        if tasks:
            task = self.rng.choice(tasks)
            for heap in (self.plain, self.packed):
                heap.remove(task)
            self._find_waiting()

    def entry_of(self, task: QueuedTask) -> HeapEntry:
        return SHUTDOWN if task == SHUTDOWN[1].task else self.entry(*task)

    def _find_waiting(self) -> None:
        queued = set(drained(self.plain))
        nodes = range(len(self.shape.dependencies))
        self.waiting = [
            (number, node)
            for number in (OWNER, DEEPER)
            for node in nodes
            if QueuedTask(number, node) not in queued
        ]
        self.rng.shuffle(self.waiting)

    def compare(self) -> None:
        assert len(self.plain) == len(self.packed)
        assert self.plain.graph_tasks() == self.packed.graph_tasks()
        first, other = self.plain.first, self.packed.first
        assert (first and first[1].task) == (other and other[1].task)
        if self.rng.random() < 0.2:
            order = drained(self.plain)
            assert drained(self.packed) == order
            assert drained(TaskHeap(self.packed.entries().copy())) == order
            for task in (*order[:3], QueuedTask(OWNER, 0), QueuedTask(DEEPER, 0)):
                found, same = self.packed.find(task), self.plain.find(task)
                assert (found and (found[0], found[1].task)) == (same and (same[0], same[1].task))


@pytest.fixture
def no_shortcuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short queues count as long ones, too."""
    monkeypatch.setattr(long_queue, "_FEW", 1)
    monkeypatch.setattr(long_queue, "_AHEAD", 3)
    monkeypatch.setattr(keyframe, "_LONG", 2)
    monkeypatch.setattr(keyframe, "_LEAST_PER_PLACED", 1)
    monkeypatch.setattr(by_node, "_MANY", 4)


@pytest.mark.usefixtures("no_shortcuts")
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_a_packed_heap_is_the_same_heap(seed: int, listed: bool) -> None:
    rng = Random(seed)
    twins = Twins(rng, rng.choice([4, 30, 90]))
    own = 1.0 if listed else rng.choice([0.6, 0.95, 1.0])
    for _ in range(rng.choice([20, 120])):
        twins.packed = twins.plain.copy()
        twins.push(own) if rng.random() < 0.7 else twins.pop()
    if not listed and rng.random() < 0.2:
        twins.plain.push(SHUTDOWN)
    if not twins.pack(listed=listed):
        return
    share = rng.choice([0.4, 0.5, 0.6])
    for _ in range(150):
        twins.compare()
        twins.push(0.7) if rng.random() < share else twins.pop()
        if rng.random() < 0.05:
            twins.pack(listed=False)
        if rng.random() < 0.02:
            twins.drop(rng.choice([OWNER, DEEPER, 99]))
        if rng.random() < 0.05:
            twins.remove()
    twins.compare()


ORDERS = st.one_of(
    st.permutations(range(90)),
    st.integers(0, 300).map(lambda size: list(range(size))),
    st.integers(0, 300).map(lambda size: list(reversed(range(size)))),
)


@given(ORDERS, st.randoms(use_true_random=False), st.sampled_from([0.02, 0.5, 0.98]))
def test_queued_nodes_are_picked_in_the_order_of_their_keys(
    order: list[int], rng: Random, share: float
) -> None:
    numbers = {node: len(order) - place for place, node in enumerate(order)}
    shape = GraphShape([numbers[node] for node in range(len(order))], [0] * len(order))
    assert list(shape.pop_order) == order
    queued = bytearray(rng.random() < share for _ in order)
    wanted = [node for node in order if queued[node]]
    heap = TaskHeap(long=LongQueue.loose(Owner(0, 0, shape), key(0, None), queued, 0, {}))
    assert [task.node for task in drained(heap)] == wanted
    assert [tied.task.node for _, tied in heap.entries()] == wanted


@given(
    st.lists(st.none() | st.integers(0, 2**44) | st.integers(250, 260), min_size=1),
    st.integers(0, 2**44) | st.integers(250, 260),
    st.booleans(),
)
def test_nodes_are_parted_by_sequence_number(
    numbers: list[int | None], front: int, is_stored: bool
) -> None:
    shape = GraphShape(numbers, [0] * len(numbers))
    if is_stored:
        shape = GraphShape.unpack(*shape.pack(), len(numbers))
    parted = shape.parted(front, 7, 5, 3)
    assert len(parted) == len(numbers)
    if max(n or 0 for n in numbers) < 2**32 - 1:
        assert list(parted) == [3 if n is None else 5 if n <= front else 7 for n in numbers]


@pytest.mark.parametrize("gone", [2_000, 9_000, 17_000])
@pytest.mark.parametrize("in_order", [True, False])
def test_nodes_that_wait_in_any_order_take_no_room(in_order: bool, gone: int) -> None:
    size = 20_000
    order = list(range(size)) if in_order else Random(0).sample(range(size), size)
    leaves = [None] * size
    shape = GraphShape([*order, *leaves], [1] * 2 * size, queues=bytes(2 * size))
    assert shape.is_scattered is not in_order
    facts = keyframe.Facts()
    task = facts.graph_tasks[0] = keyframe.GraphTaskFacts(-1, 0, 0, -1)
    task.shape, task.status = shape, bytearray(2 * size)
    heap = facts.heaps[-1] = TaskHeap()
    for node, number in enumerate(order):
        task.status[node] = 1 if number < size - gone else 3
        if task.status[node] == 1:
            heap.push(shape.entry(0, 0, node))
    data = keyframe.pack(facts)
    assert len(data) < 400
    stored = GraphShape.unpack(*shape.pack(), 2 * size)
    found = keyframe.unpack(data, {0: stored}.__getitem__)
    assert found.graph_tasks[0].status == task.status
    assert drained(found.heaps[-1]) == drained(heap)
    assert keyframe.pack(found) == data


@given(st.lists(st.integers(0, 90)), st.binary(min_size=60, max_size=60), st.integers(0, 100))
def test_a_false_order_gives_the_right_nodes(order: list[int], bits: bytes, place: int) -> None:
    queued = bytearray(bit & 1 for bit in bits)
    shape = GraphShape(range(60), [0] * 60)
    shape._pop_order = order
    long = LongQueue.loose(Owner(0, 0, shape), key(0, None), queued[:], place, {})
    popped = [long.pop()[1].task.node for _ in range(len(long))]
    assert sorted(popped) == [node for node in range(60) if queued[node]]


def test_a_false_order_has_some_place_for_each_node() -> None:
    shape = GraphShape(range(60), [0] * 60)
    shape._pop_order = [2**40] * 60
    assert all(0 <= shape.place(shape.entry(0, 0, node)) <= 60 for node in range(60))


@pytest.mark.usefixtures("no_shortcuts")
@pytest.mark.parametrize("devices", [0, 2])
@pytest.mark.parametrize(("in_order", "is_alone"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("seed", range(4))
def test_a_state_with_packed_queues_is_the_same_state(
    monkeypatch: pytest.MonkeyPatch, seed: int, devices: int, in_order: bool, is_alone: bool
) -> None:
    """Whatever is pushed later leaves as if the queue had never been packed."""
    registry, shapes = Registry(), Shapes()
    registry.add(shapes)
    simulator = simulate(seed, 60, devices, registry, in_order=in_order)
    loose, listed = counted(monkeypatch, "loose"), counted(monkeypatch, "listed")
    alone = shapes.found if is_alone else ()
    through, straight, rarely = (BackwardState(shapes.found.__getitem__) for _ in range(3))
    for event in simulator.told:
        for state in (straight, through, rarely):
            state.apply(event)  # strict: it objects where the order is another one
        packed = through.pack(alone)
        through = through.unpack(packed)
        assert through.copy().pack(alone) == packed
        if simulator.rng.random() < 0.05:
            rarely = rarely.unpack(rarely.pack(alone))
        if simulator.rng.random() < 0.2:
            assert picture(through) == picture(rarely) == picture(straight)
    assert len(set(loose)) > (1 if in_order and (is_alone or not devices) else -1)
    assert in_order or not loose
    assert in_order or listed


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The graph tasks of all long queues that will be made that way."""
    owners: list[int] = []
    make = getattr(LongQueue, name)

    def make_and_count(owner: Owner, *arguments: Any) -> LongQueue:
        owners.append(owner.graph_task)
        long: LongQueue = make(owner, *arguments)
        return long

    monkeypatch.setattr(LongQueue, name, make_and_count)
    return owners


def record(path: Path, kind: str) -> None:
    """Record a graph with a queue of thousands."""
    torch.manual_seed(0)
    leaf = torch.randn(4, requires_grad=True)
    with Recorder(path) as recorder, agviz_engine.installed(recorder):
        if kind == "one leaf":
            torch.stack([leaf * 1.5 for _ in range(4_000)]).sum().backward()
        elif kind == "any order":
            parts = [leaf * 1.5 for _ in range(4_000)]
            Random(3).shuffle(parts)
            torch.stack(parts).sum().backward()
        elif kind == "leaves of each":
            leaves = [[torch.randn(1, requires_grad=True) for _ in range(4)] for _ in range(1_500)]
            torch.cat([torch.cat(each) for each in leaves]).sum().backward()
        elif kind == "leaves only":
            torch.stack([torch.randn(1, requires_grad=True) for _ in range(3_000)]).sum().backward()
        else:
            shared = torch.nn.Linear(4, 4)
            many = [
                checkpoint(shared, leaf * 1.5, use_reentrant=True) if n % 150 == 0 else leaf * 1.5
                for n in range(2_500)
            ]
            torch.stack(many).sum().backward()


KINDS = ["one leaf", "any order", "leaves of each", "leaves only", "checkpoints"]


@pytest.fixture(scope="module", params=KINDS)
def recording(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, str, dict[int, Any]]:
    """A file, its kind, and by position what the states are, replayed from the beginning."""
    path = tmp_path_factory.mktemp("long") / "t.agviz"
    record(path, request.param)
    with Trace.open(path) as trace:
        task = trace.graph_tasks[0]
        count = trace.event_count(task.id)
        places = {*Random(1).sample(range(2, count), 25), count - 1, count}
        state, wanted = trace.state_at(task.id, 2), {}
        for event in trace.events(
            offset=trace.position(task.begin_seq) + 2, limit=trace.event_count()
        ):
            state.apply(event)
            place = trace.position(event.seq, task.id) + 1
            if event.graph_task == task.id and place in places:
                wanted[place] = picture(state)
        assert len(wanted) == len(places)
    return path, request.param, wanted


def test_seeking_in_a_long_queue_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, recording: tuple[Path, str, dict[int, Any]]
) -> None:
    path, kind, wanted = recording
    loose, listed = counted(monkeypatch, "loose"), counted(monkeypatch, "listed")
    read = Contents._read_shape

    def read_small(contents: Contents, number: int) -> GraphShape:
        assert contents.graph_tasks[number].nodes < 1_000
        return read(contents, number)

    monkeypatch.setattr(Contents, "_read_shape", read_small)
    with Trace.open(path) as trace:
        for place in random.Random(2).sample(list(wanted), len(wanted)):
            assert picture(trace.state_at(trace.graph_tasks[0].id, place)) == wanted[place]
    assert (loose, bool(listed)) == ([], True) if kind == "leaves only" else len(loose) > 3
    assert kind == "leaves only" or not listed
    for place, said in wanted.items():  # and as the first place of all
        with Trace.open(path) as trace:
            assert picture(trace.state_at(trace.graph_tasks[0].id, place)) == said
    database = sqlite3.connect(path)
    ((largest,),) = database.execute("SELECT max(length(state)) FROM keyframe")
    ((shape,),) = database.execute("SELECT sum(length(bytes)) FROM shape")
    database.close()
    assert largest < {"leaves only": 8_000, "any order": 4_000}.get(kind, 2_500)
    assert kind == "any order" or shape < 10_000


@pytest.mark.parametrize(
    "lie",
    [
        "DELETE FROM shape",
        "DELETE FROM shape WHERE part = 1",
        "UPDATE shape SET part = part + 2",
        "UPDATE shape SET bytes = x'00'",
        "UPDATE shape SET bytes = x''",
        "UPDATE shape SET bytes = zeroblob(3000) WHERE part = 0",
        "UPDATE shape SET bytes = zeroblob(3000) WHERE part = 1",
        "UPDATE shape SET bytes = CAST(bytes || x'00' AS BLOB)",
        "UPDATE shape SET bytes = substr(bytes, 1, length(bytes) - 1)",
        "UPDATE shape SET bytes = CAST(substr(bytes, 1, 20) || x'99' || substr(bytes, 22) AS BLOB)",
    ],
)
def test_a_damaged_shape_is_passed_over(
    tmp_path: Path, recording: tuple[Path, str, dict[int, Any]], lie: str
) -> None:
    good, _, wanted = recording
    path = tmp_path / "t.agviz"
    path.write_bytes(good.read_bytes())
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute(lie).rowcount > 0
    database.close()
    for place in list(wanted)[::6]:
        with Trace.open(path) as trace:
            assert picture(trace.state_at(trace.graph_tasks[0].id, place)) == wanted[place]


QUEUES = st.sampled_from([b"", bytes([0]), bytes([0, 1, 1, 3, 255])])
NUMBERS = st.one_of(st.none(), st.integers(0, 300), st.integers(0, 2**56 - 3))
DEPENDENCIES = st.one_of(st.integers(0, 5), st.integers(0, 2**56 - 2))


@given(st.lists(st.tuples(NUMBERS, DEPENDENCIES, st.booleans())), st.booleans(), QUEUES)
def test_a_packed_shape_is_the_same_shape(
    nodes: list[tuple[int | None, int, bool]], all_kept: bool, some_queues: bytes
) -> None:
    numbers, dependencies = [node[0] for node in nodes], [node[1] for node in nodes]
    left_out = frozenset(n for n, node in enumerate(nodes) if node[2] and not all_kept)
    queues = (some_queues * len(nodes))[: len(nodes)]
    shape = GraphShape(numbers, dependencies, left_out, queues)
    columns, order = shape.pack()
    assert bool(order) == shape.is_ordered
    again = GraphShape.unpack(columns, order, len(nodes))
    assert list(again.sequence_nrs) == again.sequence_nrs[:] == numbers
    assert list(again.dependencies) == dependencies
    assert set(again.left_out) == left_out
    assert again.queues == queues
    assert len(again.left_out) == len(left_out)
    assert [node in again.left_out for node in range(-2, len(nodes) + 2)] == [
        node in left_out for node in range(-2, len(nodes) + 2)
    ]
    assert again.is_ordered == shape.is_ordered
    assert list(again.pop_order) == list(shape.pop_order)
    assert again.pack() == (columns, order)
    for size in {0, len(nodes) - 1, len(nodes) + 1} - {len(nodes), -1}:
        with pytest.raises(ValueError, match=r"columns|planes|size"):
            GraphShape.unpack(columns, order, size)


@pytest.mark.parametrize("numbers", [[-1], [2**56 - 1]])
def test_numbers_that_are_too_large_are_not_packed(numbers: list[int]) -> None:
    with pytest.raises(OverflowError):
        GraphShape(numbers, [0]).pack()
    with pytest.raises(OverflowError):
        GraphShape([0], numbers).pack()


@given(st.binary(max_size=300), st.integers(0, 50))
def test_any_bytes_are_no_shape(data: bytes, size: int) -> None:
    for columns in (data, zlib.compress(data)):
        try:
            shape = GraphShape.unpack(columns, data, size)
        except ValueError:
            continue
        assert len(shape.sequence_nrs) == len(shape.dependencies) == size
        assert len(shape.pop_order) == size


def test_a_bomb_is_no_shape() -> None:
    bomb = zlib.compress(bytes(10**8))
    with pytest.raises(ValueError, match="size"):
        GraphShape.unpack(bomb, b"", 1_000)


@pytest.fixture(scope="module")
def packed() -> tuple[bytes, Callable[[int], GraphShape]]:
    """A state with a long queue in which most tasks are loose, and some placed."""
    registry, shapes = Registry(), Shapes()
    registry.add(shapes)
    simulator = simulate(2, 60, 0, registry, in_order=True)
    state = BackwardState(shapes.found.__getitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyframe, "_LONG", 2)
        patch.setattr(keyframe, "_LEAST_PER_PLACED", 1)
        for event in simulator.told:
            state.apply(event)
            for queue, heap in state._now.heaps.items():
                long = keyframe._long_queue(state._now, queue, heap, ())
                if long is not None and len(long.placed) > 2 and len(state.graph_tasks) > 1:
                    return state.pack(), shapes.found.__getitem__
    raise AssertionError


@pytest.mark.usefixtures("no_shortcuts")
@pytest.mark.parametrize("seed", range(300))
def test_changed_numbers_are_refused_or_harmless(
    packed: tuple[bytes, Callable[[int], GraphShape]], seed: int
) -> None:
    try_to_use(zlib.compress(flipped(packed[0], Random(seed))), packed[1])


def test_a_keyframe_can_not_claim_queues_without_end() -> None:
    shape = GraphShape(range(3_000), [0] * 3_000)
    facts = keyframe.Facts()
    task = facts.graph_tasks[0] = keyframe.GraphTaskFacts(-1, 0, 0, -1)
    task.shape, task.status = shape, bytearray([1]) * 3_000
    for queue in (-1, *range(20_000)):
        heap = LongQueue.loose(Owner(0, 0, shape), key(0, None), bytearray(task.status), 0, {})
        facts.heaps[queue] = TaskHeap(long=heap)
    with pytest.raises(ValueError, match="none"):
        keyframe.unpack(keyframe.pack(facts, {0}), {0: shape}.__getitem__)
    for queue in range(20, 20_000):
        del facts.heaps[queue]
    again = keyframe.unpack(keyframe.pack(facts, {0}), {0: shape}.__getitem__)
    assert [len(heap) for heap in again.heaps.values()] == [3_000] * 21


def test_who_has_a_depth_to_itself() -> None:
    rows = [
        Span(0, 0, 0, 10),
        Span(1, 1, 4, 6),
        Span(2, 1, 7, 8),
        Span(3, 0, 12, 20),
        Span(4, 0, 15, 30),
        Span(5, 0, 31, 40),
        Span(6, 0, 45, 50),
        Span(7, 0, 60, None),
    ]
    last = {5: 46}  # a task that a failure left behind came out of its queue later
    assert replay._alone(rows, last) == {0, 1, 2}


SIZE = 30
"""Nodes of each graph below; the last three are AccumulateGrad nodes."""
SHAPE = GraphShape([*range(SIZE - 3), None, None, None], [0] * SIZE)


def facts_with(*tasks: tuple[int, int, int]) -> keyframe.Facts:
    """Graph tasks of :data:`SHAPE` under way, each by number, depth and the caller's queue."""
    facts = keyframe.Facts()
    for number, depth, cpu_queue in tasks:
        task = facts.graph_tasks[number] = keyframe.GraphTaskFacts(-1, depth, 0, cpu_queue)
        task.shape, task.status = SHAPE, bytearray(SIZE)
    return facts


def put(facts: keyframe.Facts, queue: int, number: int, nodes: range) -> None:
    """Nodes into a queue."""
    heap = facts.heaps.setdefault(queue, TaskHeap())
    task = facts.graph_tasks[number]
    for node in nodes:
        task.status[node] = 1
        heap.push(SHAPE.entry(number, task.depth, node))


@pytest.mark.usefixtures("no_shortcuts")
def test_queues_are_packed_only_where_nothing_can_get_in_between() -> None:
    def owner(facts: keyframe.Facts, queue: int, *alone: int) -> int | None:
        long = keyframe._long_queue(facts, queue, facts.heaps[queue], alone)
        return None if long is None else long.graph_task

    facts = facts_with((0, 0, -1), (1, 1, -1))
    put(facts, 0, 1, range(10))
    assert owner(facts, 0, 1) is None  # the parent may push
    facts.graph_tasks[0].ended = True
    assert owner(facts, 0, 1) == 1
    assert owner(facts, 0) is None  # another calling thread may
    facts.graph_tasks[1].status[20] = 1
    assert owner(facts, 0, 1) is None  # it is in another queue

    facts = facts_with((0, 0, -1), (1, 1, -1), (2, 0, -2))
    put(facts, -1, 1, range(10))
    put(facts, -2, 2, range(10))
    assert (owner(facts, -1), owner(facts, -2)) == (1, 2)
    put(facts, 0, 0, range(0))
    assert (owner(facts, -1), owner(facts, -2)) == (None, 2)  # a device thread may, for the parent

    facts = facts_with((0, 0, -1), (1, 0, -2))
    put(facts, 0, 0, range(10))
    put(facts, 0, 1, range(3))
    assert owner(facts, 0, 0, 1) is None

    facts = facts_with((0, 0, -1))
    put(facts, 0, 0, range(10))
    put(facts, -1, 0, range(10, 20))
    assert owner(facts, 0, 0) is owner(facts, -1) is None
    facts.graph_tasks[0].shape = replace(SHAPE, queues=bytes([1] * 10 + [0] * (SIZE - 10)))
    assert owner(facts, 0, 0) == owner(facts, -1) == 0


@pytest.mark.usefixtures("no_shortcuts")
@pytest.mark.parametrize(
    ("placed", "fine"),
    [
        ({}, True),
        ({0: 27}, True),
        ({0: 27, 2: 28}, True),
        ({1: 27}, False),
        ({0: 27, 3: 28}, False),
        ({0: 27, -1: 28}, False),
        ({0: 27, 1: 27}, False),
        ({0: 29}, False),
        ({0: 30}, False),
        ({0: 4}, False),
    ],
)
def test_placed_tasks_are_checked(
    monkeypatch: pytest.MonkeyPatch, placed: dict[int, int], fine: bool
) -> None:
    facts = facts_with((0, 0, -1))
    put(facts, -1, 0, range(10))
    put(facts, -1, 0, range(27, 29))
    numbers = GraphShape([*SHAPE.sequence_nrs, None], [0] * (SIZE + 1))
    entries = {place: numbers.entry(0, 0, node) for place, node in placed.items()}
    long = keyframe._Long(0, 0, 0, entries)
    monkeypatch.setattr(keyframe, "_long_queue", lambda *_: long)
    packed = keyframe.pack(facts)
    if fine:
        assert len(keyframe.unpack(packed, {0: SHAPE}.__getitem__).heaps[-1]) == 12
    else:
        with pytest.raises(ValueError, match="none"):
            keyframe.unpack(packed, {0: SHAPE}.__getitem__)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40))
def test_false_nodes_in_a_list_are_some_nodes(nodes: list[int]) -> None:
    shape = GraphShape(range(7), [0] * 7)
    long = LongQueue.listed(Owner(0, 0, shape), array("q", nodes))
    assert {long.pop()[1].task.node for _ in nodes} <= set(range(7))
