"""Instruments: nothing is built for nobody; what one does wrong harms no gradient; events agree."""

from __future__ import annotations

import collections
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from agviz_engine import Instrument, events, installed
from agviz_engine.emissions import next_seq
from tests.engine.builders import Multiply, apply, custom, leaf, throw
from tests.engine.oracle import native_outcome, our_outcome, same_value
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live


def _step() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = leaf(5, 3)
    h = model(x)
    h.register_hook(lambda g: g * 2)
    loss = (apply(Multiply, h, h)[0] + h).sum()
    loss.backward()
    return [x.grad, *(p.grad for p in model.parameters())]


def test_without_observer_no_event_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in events.EVENT_TYPES:

        def refuse(*_args: Any, kind: Any = kind, **_kwargs: Any) -> Any:
            raise AssertionError(f"{kind.__name__} was built for nobody")

        monkeypatch.setattr(events, kind.__name__, refuse)
    x = leaf(3)
    for policy in (None, lambda _: 0):
        with installed(device_policy=policy):
            y = x.exp()
            y.register_hook(lambda g: g * 2)
            (y * x).sum().backward(retain_graph=True)
            torch.autograd.grad((y * x).sum(), [y, x])
            with pytest.raises(ValueError, match="stop"):
                custom(lambda _c, _g: throw(ValueError("stop")))(x).sum().backward()


@pytest.mark.parametrize("kind", events.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_an_instrument_that_raises_is_disabled(
    kind: type[events.Event], caplog: pytest.LogCaptureFixture, device_policy: DevicePolicy | None
) -> None:
    class Breaks(Instrument):
        def any_event(self, event: events.Event, _live: Live) -> None:
            if isinstance(event, kind):
                calls.append(event)
                raise ZeroDivisionError

    class Observes(Instrument):
        def any_event(self, event: events.Event, _live: Live) -> None:
            observed.append(event)

    calls: list[events.Event] = []
    observed: list[events.Event] = []
    expected = native_outcome(_step)
    with caplog.at_level(logging.ERROR, "agviz_engine"):
        ours = our_outcome(_step, 0, Breaks(), Observes(), device_policy=device_policy)
    assert ours.error is None
    assert same_value(ours.tensors, expected.tensors)
    assert any(isinstance(event, events.GraphTaskFinished) for event in observed)
    assert len(calls) <= (1 if device_policy is None else 2)  # in two threads at the same moment
    assert len(caplog.records) == len(calls)


class _All(Instrument):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.events: list[events.Event] = []
        self.graphs: dict[int, list[tuple[str, list[int]]]] = {}

    def any_event(self, event: events.Event, live: Live) -> None:
        with self.lock:
            self.events.append(event)
        if isinstance(event, events.DependenciesComputed):
            assert live.graph_task is not None
            self.graphs[event.graph_task] = [
                (ref.name, [edge[0].index for edge in ref.next_edges if edge is not None])
                for ref in live.graph_task.nodes
            ]


POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "devices": lambda node: node._sequence_nr() % 3 - 1,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
def test_events_of_a_program_agree_with_each_other(name: str, policy: str) -> None:
    """Sorted by ``seq`` they can be replayed: counts go down to 0, what is pushed is popped."""
    seen = _All()
    assert our_outcome(PROGRAMS[name], 0, seen, device_policy=POLICIES[policy]).error is None
    assert seen.graphs
    numbers = [event.seq for event in seen.events]
    assert len(numbers) == len(set(numbers))
    replayed = sorted(seen.events)
    for task, graph in seen.graphs.items():
        _replay(graph, [event for event in replayed if event.graph_task == task])


def _replay(graph: list[tuple[str, list[int]]], happened: list[events.Event]) -> None:
    remaining = collections.Counter(child for _, children in graph for child in children)
    queues: dict[int, list[int]] = collections.defaultdict(list)
    started: set[int] = set()
    done: set[int] = set()
    finished = False
    for event in happened:
        if isinstance(event, events.QueuePush):
            assert not remaining[event.node]
            queues[event.queue].append(event.node)
        elif isinstance(event, events.QueuePop):
            queues[event.queue].remove(event.node)
        elif isinstance(event, events.NodeStarted):
            assert not remaining[event.node]
            assert event.node not in started
            started.add(event.node)
        elif isinstance(event, events.NodeFinished | events.NodeSkipped):
            assert event.node in started
            done.add(event.node)
        elif isinstance(event, events.DependencyDecremented):
            assert event.producer in done
            remaining[event.node] -= 1
            assert event.remaining == remaining[event.node] >= 0
        elif isinstance(event, events.GraphTaskFinished):
            finished = True
    assert finished
    assert started == done
    assert not any(queues.values())


def test_an_event_has_its_own_method_or_any_event() -> None:
    class Both(Instrument):
        def __init__(self) -> None:
            self.starts = 0
            self.others: collections.Counter[str] = collections.Counter()

        def node_started(self, _event: events.NodeStarted, _live: Live) -> None:
            self.starts += 1

        def any_event(self, event: events.Event, _live: Live) -> None:
            self.others[type(event).__name__] += 1

    both = Both()
    with installed(both):
        leaf(3).exp().sum().backward()
    assert both.starts == both.others["NodeFinished"] == 3
    assert "NodeStarted" not in both.others


class _Hooks(Instrument):
    def __init__(self) -> None:
        self.called: list[tuple[int, str, str, bool]] = []

    def hook_called(self, event: events.HookCalled, _live: Live) -> None:
        self.called.append((event.graph_task, event.kind, event.name, event.changed))


def _named(name: str, log: list[str], result: Callable[[Any], Any] = lambda _: None) -> Any:
    def hook(*values: Any) -> Any:
        log.append(name)
        return result(values[0])

    hook.__name__ = name
    return hook


def _hooked(kind: str, log: list[str]) -> Any:
    """Hooks that torch runs: on a custom Function, with and without gradients, and on a leaf."""
    x = leaf(3)
    if kind == "leaf":
        x.grad = torch.ones(3)  # so that AccumulateGrad adds
        x.register_hook(_named("first", log, lambda gradient: gradient * 2))
        x.register_post_accumulate_grad_hook(_named("after", log))
        (x * 2).sum().backward()
        return x.grad
    y = custom(lambda _, gradient: gradient)(x)
    node = y.grad_fn
    assert node is not None
    y.register_hook(_named("first", log, lambda g: None if g is None else g * 2))
    y.register_hook(_named("second", log))
    node.register_prehook(_named("pre", log))
    node.register_hook(_named("post", log, lambda gradients: (gradients[0],)))
    end = custom(lambda _ctx, _gradient: None)(y) if kind == "undefined" else y.exp()
    end.sum().backward(retain_graph=True)
    end.sum().backward()
    return x.grad


CALLS = {
    "leaf": [("tensor_pre", "first", True), ("post_accumulate_grad", "after", False)],
    "defined": [
        ("tensor_pre", "first", True),
        ("tensor_pre", "second", False),
        ("pre", "pre", False),
        ("post", "post", True),
    ],
    "undefined": [
        ("tensor_pre", "first", False),
        ("tensor_pre", "second", False),
        ("pre", "pre", False),
        ("post", "post", True),
    ],
}


@pytest.mark.parametrize("kind", CALLS)
def test_hooks_that_torch_runs_are_reported_one_by_one(kind: str) -> None:
    log: list[str] = []
    expected = native_outcome(lambda: _hooked(kind, log))
    observed, ours = _Hooks(), list[str]()
    with installed(observed):
        outcome = our_outcome(lambda: _hooked(kind, ours))
    assert ours == log
    assert same_value(outcome.tensors, expected.tensors)
    passes = 1 if kind == "leaf" else 2
    assert [call[1:] for call in observed.called] == CALLS[kind] * passes
    assert len({call[0] for call in observed.called}) == passes


def test_every_draw_has_two_numbers_of_its_own_in_every_thread() -> None:
    drawn: list[list[int]] = [[] for _ in range(4)]

    def draw(numbers: list[int]) -> None:
        numbers.extend(next_seq() for _ in range(30_000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=draw, args=(numbers,)) for numbers in drawn]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    everything = sorted(number for numbers in drawn for number in numbers)
    assert everything == list(range(everything[0], everything[0] + 8 * 30_000, 2))
