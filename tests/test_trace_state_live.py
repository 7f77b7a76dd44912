"""Replayed state is the live engine's: recorded at the same moments by an instrument of its own.

The :class:`Witness` looks into the engine's objects and asks no event for more than its ``seq``.
"""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus, QueuedTask
from agviz_engine import events
from agviz_engine.instruments import Instrument, Live
from agviz_engine.ready_queue import ReadyQueue
from agviz_engine.thread_state import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch.autograd.graph import Node

    from agviz.traces.engine_state import EngineState
    from agviz.traces.state import BackwardState
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.ready_queue import NodeTask

Op = tuple[str, int, int]


def pop_order(queue: ReadyQueue[GraphTask]) -> list[QueuedTask]:
    """What the live queue would give, one after the other."""
    rest = list(queue._heap)
    tasks = [heapq.heappop(rest)[3] for _ in queue._heap]
    return [QueuedTask(t.base.id, t.node.index) for t in tasks if t.base and t.node]


@pytest.fixture
def seen_in_queues(monkeypatch: pytest.MonkeyPatch) -> dict[Op, list[QueuedTask]]:
    """For every push and pop of a node, what the queue held afterwards."""
    seen: dict[Op, list[QueuedTask]] = {}
    push, pop = ReadyQueue.push_observed, ReadyQueue.pop_observed

    def note(queue: ReadyQueue[GraphTask], what: str, task: NodeTask[GraphTask]) -> None:
        if task.base is not None and task.node is not None:
            seen[what, task.base.id, task.node.index] = pop_order(queue)

    def watched_push(
        queue: ReadyQueue[GraphTask], task: NodeTask[GraphTask], thread: int
    ) -> tuple[int, ...]:
        with queue._lock:
            row = push(queue, task, thread)
            note(queue, "push", task)
            return row

    def watched_pop(queue: ReadyQueue[GraphTask], *given: Any) -> NodeTask[GraphTask]:
        with queue._lock:
            task = pop(queue, *given)
            note(queue, "pop", task)
            return task

    monkeypatch.setattr(ReadyQueue, "push_observed", watched_push)
    monkeypatch.setattr(ReadyQueue, "pop_observed", watched_pop)
    return seen


class Witness(Instrument):
    """Writes down what the engine's own objects say at every moment at which they all agree.

    The engine tells of decrements, arrivals and pushes after it has done several of them; between
    those events its objects are ahead of what it has told. For one calling thread.
    """

    def __init__(self) -> None:
        self.seen: dict[int, dict[str, Any]] = {}
        self._tasks: dict[int, GraphTask] = {}
        self._inputs: dict[tuple[int, int], int] = {}
        """Bytes that a node inside which the engine is has received."""
        self._nodes: list[QueuedTask] = []

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        assert live.graph_task is not None
        thread = current()
        assert thread.current_graph_task is live.graph_task
        node = QueuedTask(live.graph_task.id, live.node.index if live.node else -1)
        self._nodes.append(node)
        self._inputs[node] = nbytes(live.inputs)
        self._look(event.seq, live)
        executed = {number: task.executed for number, task in self._tasks.items()}
        self.seen[event.seq]["executed"] = executed

    def node_finished(self, event: events.NodeFinished, live: Live) -> None:
        self._inputs.pop(self._nodes.pop())
        self._look(event.seq, live)

    def node_skipped(self, event: events.NodeSkipped, live: Live) -> None:
        if self._nodes and self._nodes[-1][1] == event.node:
            self._inputs.pop(self._nodes.pop())

    def node_failed(self, event: events.NodeFailed, live: Live) -> None:
        assert live.graph_task is not None
        while self._nodes and self._nodes[-1].graph_task >= live.graph_task.id:
            self._inputs.pop(self._nodes.pop())

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:
        assert live.graph_task is not None
        self._tasks[event.graph_task] = live.graph_task

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:
        del self._tasks[event.graph_task]

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:
        del self._tasks[event.graph_task]

    def any_event(self, event: events.Event, live: Live) -> None:
        settled = (
            events.HookCalled,
            events.LeafAccumulated,
            events.SavedTensorsReleased,
            events.FinalCallbackQueued,
        )
        if isinstance(event, settled) and event.graph_task in self._tasks:
            self._look(event.seq, live)

    def _look(self, seq: int, live: Live) -> None:
        assert live.graph_task is not None
        queue = live.graph_task.cpu_ready_queue
        waiting = [item for item in queue.snapshot() if item.inputs is not None]
        buffers = {
            number: {
                index: slots
                for index, buffer in task.not_ready.items()
                if (slots := by_slot(buffer))
            }
            for number, task in self._tasks.items()
        }
        held = [item.inputs for item in waiting if item.inputs is not None]
        self.seen[seq] = {
            "queue": pop_order(queue),
            "running": list(self._nodes),
            "dependencies": {n: list(task.dependencies) for n, task in self._tasks.items()},
            "buffers": buffers,
            "queued buffers": {
                QueuedTask(item.base.id, item.node.index): by_slot(item.inputs)
                for item in waiting
                if item.base is not None and item.node is not None and item.inputs is not None
            },
            "live bytes": sum(self._inputs.values())
            + sum(nbytes(buffer) for buffer in held)
            + sum(sum(s.values()) for task in buffers.values() for s in task.values()),
        }


def nbytes(gradients: Sequence[torch.Tensor | None]) -> int:
    """Bytes in memory: an expanded gradient has fewer than its shape says."""
    return sum(
        min(gradient.nbytes, gradient.untyped_storage().nbytes())
        for gradient in gradients
        if gradient is not None
    )


def by_slot(gradients: Sequence[torch.Tensor | None]) -> dict[int, int]:
    return {slot: nbytes([g]) for slot, g in enumerate(gradients) if g is not None}


def replayed(state: BackwardState | EngineState, graph_tasks: list[int]) -> dict[str, Any]:
    """The same of a replayed state."""
    (queue,) = state.queues()
    running = [task for tasks in state.running().values() for task in tasks]
    sizes = {number: len(state.statuses(number)) for number in graph_tasks}
    return {
        "queue": list(queue.tasks),
        "running": running,
        "dependencies": {
            number: [state.remaining(number, node) for node in range(size)]
            for number, size in sizes.items()
        },
        "executed": {number: state.executed(number) for number in graph_tasks},
        "buffers": {
            number: {
                node: defined
                for node, slots in state.buffers(number).items()
                if state.status(number, node) is NodeStatus.WAITING
                and (defined := {slot: n for slot, n in slots.items() if n})
            }
            for number in graph_tasks
        },
        "queued buffers": {
            task: {
                slot: n
                for slot, n in state.buffers(task.graph_task).get(task.node, {}).items()
                if n
            }
            for task in queue.tasks
        },
        "live bytes": state.live_bytes,
    }


def transformer() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model(torch.randn(2, 5, 16)).square().mean().backward()


def lstm() -> None:
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 4)
    h = c = torch.zeros(1, 4)
    for _ in range(5):
        h, c = cell(torch.randn(1, 4), (h, c))
    h.sum().backward()


def reentrant() -> None:
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    x = torch.randn(3, 4, requires_grad=True)
    y = checkpoint(block, checkpoint(block, x, use_reentrant=True), use_reentrant=True)
    assert isinstance(y, torch.Tensor)
    (y * x).sum().backward()


def captures() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    z = (y * x).sin()
    torch.autograd.grad(z.sum(), [y, x], retain_graph=True)
    torch.autograd.grad(z.sum(), y)


def create_graph() -> None:
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad((x**3 * x.exp()).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    second.sum().backward()


def hooks() -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    hidden = first(torch.randn(2, 4))
    hidden.register_hook(lambda gradient: torch.cat([gradient, gradient])[:2])
    hidden.retain_grad()
    hidden.grad_fn.register_prehook(lambda gradients: gradients)
    first.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    second(hidden.relu()).sum().backward()


def several_roots_and_undefined_gradients() -> None:
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
            return a * 2, b * 3

        @staticmethod
        def backward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
            return a, None

    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    a, b = Half.apply(x.exp(), y.sin())  # type: ignore[no-untyped-call]
    torch.autograd.backward([a.sum(), b.square().sum(), (a * x).sum()])


def fails_then_goes_on() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    x = torch.randn(3, requires_grad=True)
    # The others were made before, so that they wait in the queue while the last one fails.
    others = [x.sin(), x.cos(), x.exp()]
    with pytest.raises(ValueError, match="no"):
        torch.stack([*others, Fails.apply(x)]).sum().backward()  # type: ignore[no-untyped-call]
    transformer()


PROGRAMS = [
    transformer,
    lstm,
    reentrant,
    captures,
    create_graph,
    hooks,
    several_roots_and_undefined_gradients,
    fails_then_goes_on,
]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.__name__)
def program(request: pytest.FixtureRequest) -> Callable[[], None]:
    chosen: Callable[[], None] = request.param
    return chosen


def steps(trace: Trace) -> Iterator[tuple[BackwardState, events.Event]]:
    """A state after every event, moved on by apply."""
    state = trace.replay()
    for event in trace.events(limit=10**6):
        state.apply(event)
        yield state, event


@pytest.mark.slow_but_one_in(3)
def test_state_is_the_live_engines_on_one_thread(
    program: Callable[[], None], tmp_path: Path
) -> None:
    witness = Witness()
    with Recorder(tmp_path / "t.agviz") as recorder, agviz_engine.installed(recorder, witness):
        program()
    compared = 0
    with Trace.open(tmp_path / "t.agviz") as trace:
        for state, event in steps(trace):
            if event.seq in witness.seen:
                wanted = witness.seen[event.seq]
                found = replayed(state, list(wanted["dependencies"]))
                assert {key: found[key] for key in wanted} == wanted, event
                number = event.graph_task
                there = trace.state_at(number, trace.position(event.seq, number) + 1)
                found = replayed(there, list(wanted["dependencies"]))
                assert {key: found[key] for key in wanted} == wanted, event
                compared += 1
        assert compared == len(witness.seen) > 10


@pytest.mark.parametrize("devices", [0, 2])
def test_queues_are_the_live_engines(
    program: Callable[[], None],
    devices: int,
    tmp_path: Path,
    seen_in_queues: dict[Op, list[QueuedTask]],
) -> None:
    def place(node: Node) -> int:
        return -1 if "AccumulateGrad" in node.name() else int(node._sequence_nr() % devices)

    with (
        Recorder(tmp_path / "t.agviz") as recorder,
        agviz_engine.installed(recorder, Beside(), device_policy=place if devices else None),
    ):
        program()
    check_queues(tmp_path / "t.agviz", seen_in_queues)
    with Trace.open(tmp_path / "t.agviz") as trace:
        for row in trace.graph_tasks:
            state = trace.state_at(row.id, trace.event_count(row.id))
            assert state.executed(row.id) == row.executed
        if devices and program is transformer:
            assert len({x.thread for x in trace.executions(trace.graph_tasks[0].id)}) == 3


def test_queues_of_several_calling_threads(
    tmp_path: Path, seen_in_queues: dict[Op, list[QueuedTask]]
) -> None:
    together = threading.Barrier(3)

    def work() -> None:
        together.wait()
        for _ in range(3):
            reentrant()
            lstm()

    with Recorder(tmp_path / "t.agviz") as recorder, agviz_engine.installed(recorder, Beside()):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check_queues(tmp_path / "t.agviz", seen_in_queues)


class Beside(agviz_engine.Instrument):
    """Has every task go through its queue: for a recorder that is alone the engine takes shortcuts.

    That the file is the same nevertheless is shown in ``test_trace_flat.py``.
    """

    def any_event(self, event: events.Event, live: Live) -> None:
        pass


def check_queues(path: Path, seen: dict[Op, list[QueuedTask]]) -> None:
    compared = 0
    with Trace.open(path) as trace:
        for state, event in steps(trace):
            if not isinstance(event, events.QueuePush | events.QueuePop):
                continue
            what = "push" if isinstance(event, events.QueuePush) else "pop"
            live = seen[what, event.graph_task, event.node]
            orders = [list(queue.tasks) for queue in state.queues() if queue.queue == event.queue]
            assert live in orders, event
            compared += 1
        assert compared > 10
        # Each pass ends with what was begun: nothing waits and nothing runs.
        assert not any(queue.tasks for queue in state.queues())
        assert not state.running()
