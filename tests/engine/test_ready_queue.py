"""ReadyQueue and NodeTask: the order in which tasks leave, what counts as outstanding, shutdown."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from agviz_engine.graph_task import GraphTask
from agviz_engine.located_node import node_ref
from agviz_engine.node import ACCUMULATE_GRAD_SEQUENCE_NR, NodeRef
from agviz_engine.ready_queue import NodeTask, ReadyQueue
from agviz_engine.thread_local_state import ThreadLocalState
from tests.engine.builders import Log, custom, leaf, node_of
from tests.engine.oracle import as_native, assert_same
from tests.event_simulator import LibstdcxxQueue, SimulatedNode


def _graph_task(reentrant_depth: int = 0) -> GraphTask:
    return GraphTask(
        keep_graph=False,
        create_graph=False,
        accumulate_grad=True,
        reentrant_depth=reentrant_depth,
        cpu_ready_queue=ReadyQueue(-1),
        thread_locals=ThreadLocalState(grad_mode=False),
    )


def _queue() -> ReadyQueue[GraphTask]:
    return ReadyQueue(0)


def _ref(sequence_nr: int) -> NodeRef:
    node = cast("Any", torch.ones(1, requires_grad=True).exp().grad_fn)
    node._set_sequence_nr(sequence_nr)
    return node_ref(node, 0)


def _task(base: GraphTask, sequence_nr: int) -> NodeTask[GraphTask]:
    return NodeTask(base, _ref(sequence_nr), [None])


# -- order ------------------------------------------------------------------------------------


def test_shutdown_then_empty_then_deeper_then_later() -> None:
    queue = _queue()
    outer, inner = _graph_task(0), _graph_task(3)
    tasks = [
        _task(outer, 5),
        _task(inner, 1),
        NodeTask(outer, None, None),
        _task(outer, 9),
        _task(inner, 2),
        _task(outer, ACCUMULATE_GRAD_SEQUENCE_NR),
    ]
    for task in tasks:
        queue.push(task)
    queue.push_shutdown_task()
    popped = [queue.pop() for _ in range(7)]
    assert popped[0].is_shutdown_task
    assert popped[1:] == [tasks[i] for i in (2, 4, 1, 5, 3, 0)]
    assert queue.empty()
    assert queue.size() == 0


Action = tuple[bool, int, int]
"""Push or pop, reentrant depth, sequence number."""


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3)), max_size=60))
def test_ties_leave_as_from_a_std_priority_queue(actions: list[Action]) -> None:
    """Tasks of equal rank leave in the order that libstdc++'s heap gives them, not as they came."""
    queue, model = _queue(), LibstdcxxQueue()
    tasks = [_graph_task(depth) for depth in range(3)]
    refs = [_ref(number) for number in range(4)]
    pushed: dict[NodeTask[GraphTask], int] = {}
    for push, depth, number in actions:
        if push:
            task = NodeTask(tasks[depth], refs[number], [None])
            pushed[task] = len(pushed)
            queue.push(task)
            model.push((depth, SimulatedNode(pushed[task], "", number, 0), 0))
        elif not queue.empty():
            assert pushed[queue.pop()] == model.pop()[1].index
    while not queue.empty():
        assert pushed[queue.pop()] == model.pop()[1].index


@as_native
def test_leaves_of_one_node_run_in_the_order_of_native_ties() -> Any:
    """AccumulateGrad nodes all have the same sequence number."""
    log = Log()
    leaves = [leaf(2) for _ in range(13)]
    for i, x in enumerate(leaves):
        x.register_hook(lambda _, i=i: log.note(i))
    parts = [torch.stack(leaves[i : i + 5]).sum() for i in range(9)]
    torch.stack(parts).sum().backward()
    torch.cat(leaves[::2]).sum().backward()
    return [*(x.grad for x in leaves), log.entries]


@pytest.mark.parametrize("numbers", [[7] * 9, [3, 1, 3, 1, 3, 1, 2, 2, 2], [0] * 4 + [9] * 4])
def test_nodes_with_equal_sequence_numbers(numbers: list[int]) -> None:
    def program() -> Any:
        log = Log()
        x = leaf(2)
        parts = []
        for i, number in enumerate(numbers):
            part = x.exp()
            node_of(part)._set_sequence_nr(number)
            node_of(part).register_prehook(lambda _, i=i: log.note(i))
            parts.append(part)
        torch.stack(parts).sum().backward()
        return [x.grad, log.entries]

    assert assert_same(program).error is None


@as_native
def test_later_made_nodes_run_first() -> Any:
    log = Log()
    x = leaf(3)
    first = x.exp()
    second = x.sin()
    third = first.tanh() * second
    for name, tensor in [("first", first), ("second", second), ("third", third), ("x", x)]:
        tensor.register_hook(log.hook(name))
    (third + first.cos() + second.cos()).sum().backward()
    return [x.grad, log.entries]


@as_native
def test_nodes_of_a_reentrant_call_go_before_those_that_wait() -> Any:
    log = Log()

    def reenter(_: Any, gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            y = leaf(3)
            z = y.exp()
            z.register_hook(log.hook("inner"))
            y.register_hook(log.hook("inner leaf"))
            z.sum().backward()
        log.note("inner is done")
        return gradient

    x, w = leaf(3), leaf(3)
    waiting = [w.exp() for _ in range(3)]
    for i, tensor in enumerate(waiting):
        tensor.register_hook(log.hook(f"waiting {i}"))
    (custom(reenter)(x).sum() + torch.stack(waiting).sum()).backward()
    return [x.grad, w.grad, log.entries]


# -- counting ---------------------------------------------------------------------------------


def test_size_counts_every_task_and_outstanding_tasks_those_that_were_added() -> None:
    queue, base = _queue(), _graph_task()
    base.increment_outstanding_tasks()
    assert queue.push_observed(_task(base, 1), thread=0)[7] == 1, "size of the queue"
    base.increment_outstanding_tasks()
    queue.push(_task(base, 2))
    queue.push(NodeTask(base, None, None))
    queue.push_shutdown_task()
    assert base.outstanding_tasks == 2
    assert queue.size() == len(queue.snapshot()) == 4
    assert not base.decrement_outstanding_tasks()
    assert base.decrement_outstanding_tasks()


def test_discard_leaves_the_tasks_of_others_in_their_order() -> None:
    queue, gone, kept = _queue(), _graph_task(), _graph_task()
    expected = []
    for number in (4, 8, 1, 9, 5, 2):
        queue.push(_task(gone, number))
        task = _task(kept, number)
        queue.push(task)
        expected.append((number, task))
    queue.discard(gone)
    queue.discard(gone)
    popped = [queue.pop() for _ in range(6)]
    assert popped == [task for _, task in sorted(expected, key=lambda e: -e[0])]
    assert queue.empty()


def test_pop_waits_for_a_push() -> None:
    queue, base = _queue(), _graph_task()
    popped: list[NodeTask[GraphTask]] = []
    everything = threading.Event()

    def work() -> None:
        while not (task := queue.pop()).is_shutdown_task:
            popped.append(task)
            if len(popped) == 20:
                everything.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    pushed = [_task(base, number) for number in range(20)]
    for task in pushed:
        queue.push(task)
    assert everything.wait(60)
    for _ in threads:
        queue.push_shutdown_task()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert set(popped) == set(pushed)
