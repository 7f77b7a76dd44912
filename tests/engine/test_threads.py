"""Several Python threads at once, device threads, and what is left of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from agviz_engine import Instrument, events, install, installed, uninstall
from agviz_engine.device_threads import DeviceThreads
from agviz_engine.graph_task import GraphTask
from agviz_engine.ready_queue import NodeTask, ReadyQueue
from agviz_engine.thread_local_state import ThreadLocalState
from tests.engine.builders import Multiply, apply, custom, leaf, throw
from tests.engine.idle import threads_beside
from tests.engine.oracle import same_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live

POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "one device": lambda _: 0,
    "two devices and the caller": lambda node: node._sequence_nr() % 3 - 1,
}


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    """Run ``work(i)`` in ``number`` threads at once; none may hang or raise."""
    errors: list[BaseException] = []
    together = threading.Barrier(number)

    def run(i: int) -> None:
        try:
            together.wait()
            work(i)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]


@pytest.fixture(params=POLICIES, autouse=True)
def policy(request: pytest.FixtureRequest) -> Any:
    """Where nodes run; afterwards no thread of the engine is left."""
    before = set(threading.enumerate())
    yield POLICIES[request.param]
    assert not threads_beside(before)


def test_no_cross_talk(policy: DevicePolicy | None) -> None:
    models = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(8)]
    inputs = [torch.randn(5, 4) for _ in models]

    def gradients(i: int) -> tuple[Tensor, ...]:
        return torch.autograd.grad(models[i](inputs[i]).pow(2).sum(), list(models[i].parameters()))

    expected = [gradients(i) for i in range(8)]

    def work(i: int) -> None:
        for _ in range(10):
            assert same_value(gradients(i), expected[i])

    with installed(device_policy=policy):
        _in_threads(8, work)


def test_a_leaf_that_all_threads_share(policy: DevicePolicy | None) -> None:
    w = torch.ones(4, requires_grad=True)

    def work(_: int) -> None:
        for _ in range(25):
            ((w * 2).sum() + (w * 3).sum()).backward()

    with installed(device_policy=policy):
        _in_threads(8, work)
    assert w.grad is not None
    assert w.grad.tolist() == [8 * 25 * 5.0] * 4


def test_a_graph_that_all_threads_share(policy: DevicePolicy | None) -> None:
    """The nodes of custom Functions run in several threads at the same time."""
    x = torch.ones(3, requires_grad=True)
    y = apply(Multiply, x * 1, x * 2)[1] * 1

    def work(i: int) -> None:
        for _ in range(20):
            (found,) = torch.autograd.grad(y, x, torch.full((3,), i + 1.0), retain_graph=True)
            assert found.tolist() == [3 * (i + 1.0)] * 3

    with installed(device_policy=policy):
        _in_threads(6, work)


def test_an_error_reaches_the_thread_that_called(policy: DevicePolicy | None) -> None:
    def work(i: int) -> None:
        for _ in range(15):
            y = custom(lambda _c, g: throw(ValueError(i)) if i % 2 else g)(leaf(3).exp()).sum()
            if i % 2:
                with pytest.raises(ValueError, match=f"^{i}$"):
                    y.backward()
            else:
                y.backward()

    with installed(device_policy=policy):
        _in_threads(6, work)


class _Seen(Instrument):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers: dict[int, events.WorkerStarted] = {}
        self.ran: dict[int, tuple[int, int]] = {}
        self.stopped: set[int] = set()
        self.shut_down: set[int] = set()

    def worker_started(self, event: events.WorkerStarted, _live: Live) -> None:
        with self.lock:
            self.workers[event.thread] = event

    def worker_stopped(self, event: events.WorkerStopped, _live: Live) -> None:
        self.stopped.add(event.thread)

    def shutdown_task_pushed(self, event: events.ShutdownTaskPushed, _live: Live) -> None:
        self.shut_down.add(event.queue)

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        assert live.node is not None
        with self.lock:
            self.ran[len(self.ran)] = event.thread, live.node.device
        native_id = self.workers[event.thread].native_id
        assert native_id == threading.get_native_id()


def test_nodes_run_on_the_thread_of_their_device(policy: DevicePolicy | None) -> None:
    seen = _Seen()
    asked: list[Node] = []

    def asking(node: Node) -> int:
        asked.append(node)
        return -1 if policy is None else policy(node)

    install(seen, device_policy=asking)
    try:
        x = leaf(3)
        (x.exp() * x.sin()).tanh().sum().backward()
    finally:
        uninstall()
    assert len(asked) == len(set(asked)) == len(seen.ran)
    used = {device for _, device in seen.ran.values()} - {-1}
    for thread, device in seen.ran.values():
        assert seen.workers[thread].queue == device
        assert (seen.workers[thread].name == f"pt_autograd_{device}") == (device >= 0)
    assert seen.shut_down == used
    assert seen.stopped == {t for t, worker in seen.workers.items() if worker.queue >= 0}


@pytest.mark.parametrize("completed", [True, False])
def test_only_unfinished_work_keeps_device_threads(completed: bool) -> None:
    stopping = threading.Event()

    def main(queue: ReadyQueue[GraphTask], _name: str) -> None:
        stopping.wait(60)
        while not queue.pop().is_shutdown_task:
            pass

    graph_task = GraphTask(
        keep_graph=False,
        create_graph=False,
        accumulate_grad=True,
        reentrant_depth=0,
        cpu_ready_queue=ReadyQueue(events.CPU_QUEUE),
        thread_locals=ThreadLocalState(grad_mode=False),
    )
    graph_task.future_completed = completed
    threads = DeviceThreads(main)
    queue = threads.queue(0)
    queue.push(NodeTask(graph_task, None, None))
    told: list[int] = []
    stopper = threading.Thread(target=threads.stop, args=(told.append,))
    stopper.start()
    while stopper.is_alive() and queue.size() < 2:
        time.sleep(0.001)
    stopping.set()
    stopper.join(60)
    assert told == ([0] if completed else [])
    if not completed:
        (left,) = (t for t in threading.enumerate() if t.name == "pt_autograd_0")
        queue.push_shutdown_task()
        left.join(60)


def test_a_single_thread_where_multithreading_is_off(policy: DevicePolicy | None) -> None:
    seen = _Seen()
    with torch.autograd.set_multithreading_enabled(False), installed(seen, device_policy=policy):
        leaf(3).exp().sum().backward()
    assert {device for _, device in seen.ran.values()} == {-1}
