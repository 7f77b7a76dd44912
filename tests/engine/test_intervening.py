"""What an instrument may ask for: another gradient, no hooks, another node next.

The oracle of a replaced gradient is the native engine, with a pre-hook that puts the same in its
place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agviz_engine import events, installed
from agviz_engine.api import engine
from agviz_engine.instruments import Instrument, Live
from tests.engine.builders import apply

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine import DevicePolicy

POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "devices": lambda node: node._sequence_nr() % 3 - 1,
}


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 3


class _Changes(Instrument):
    """Does something where a node of a name begins, once in each graph task."""

    def __init__(self, name: str, change: Callable[[Live], None]) -> None:
        self.name = name
        self.change = change
        self.emitted: list[events.Event] = []
        self._done: set[int] = set()

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        assert live.node is not None
        if live.node.name.endswith(self.name) and event.graph_task not in self._done:
            self._done.add(event.graph_task)
            self.change(live)

    def intervened(self, event: events.Intervened, live: Live) -> None:
        self.emitted.append(event)

    def hook_called(self, event: events.HookCalled, live: Live) -> None:
        self.emitted.append(event)


def _leaves() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 3, generator=generator).requires_grad_() for _ in range(2)]


def _loss(x: Tensor, y: Tensor) -> Tensor:
    return cast("Tensor", (apply(_Times, x.exp() * y) * y.sin()).sum())


def _grads(leaves: list[Tensor]) -> list[Tensor]:
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    assert len(grads) == len(leaves)
    return grads


def _nodes(loss: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop(0)
        found.setdefault(node.name().rpartition("::")[2], node)
        waiting += [child for child, _ in node.next_functions if child is not None]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["MulBackward0", "ExpBackward0", "_TimesBackward"])
def test_a_replaced_gradient_goes_on_as_after_a_native_hook(name: str, policy: str) -> None:
    expected, ours = _leaves(), _leaves()
    loss = _loss(*expected)
    _nodes(loss)[name].register_prehook(lambda gradients: tuple(g * -2.5 for g in gradients))
    loss.backward()

    def change(live: Live) -> None:
        (gradient,) = live.inputs
        assert gradient is not None
        live.replace_input(0, gradient * -2.5)

    changes = _Changes(name, change)
    with installed(changes, device_policy=POLICIES[policy]):
        _loss(*ours).backward()
    assert all(map(torch.equal, _grads(expected), _grads(ours)))
    (emitted,) = changes.emitted
    assert isinstance(emitted, events.Intervened)
    assert (emitted.kind, emitted.slot) == ("gradient", 0)


def test_a_replaced_gradient_of_a_leaf_is_what_it_accumulates() -> None:
    x, y = _leaves()

    def change(live: Live) -> None:
        live.replace_input(0, torch.full((4, 3), 7.0))

    with installed(_Changes("AccumulateGrad", change)):
        _loss(x, y).backward()
    assert sum(torch.equal(grad, torch.full((4, 3), 7.0)) for grad in _grads([x, y])) == 1


def test_a_captured_gradient_is_the_replaced_one() -> None:
    x, y = _leaves()

    def change(live: Live) -> None:
        live.replace_input(0, torch.full((4, 3), 7.0))

    middle = x.exp()
    loss = (middle * y).sum()
    with installed(_Changes("ExpBackward0", change)):
        (gradient,) = torch.autograd.grad(loss, [middle])
    assert torch.equal(gradient, torch.full((4, 3), 7.0))


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    x, y = _leaves()
    expected = _leaves()
    _loss(*expected).backward()
    refused: list[str] = []

    def change(live: Live) -> None:
        for wrong in (torch.zeros(3), torch.zeros(4, 3, dtype=torch.float64), "no tensor"):
            with pytest.raises((TypeError, RuntimeError)) as caught:
                live.replace_input(0, wrong)  # type: ignore[arg-type]
            refused.append(str(caught.value))

    changes = _Changes("ExpBackward0", change)
    with installed(changes):
        _loss(x, y).backward()
    assert len(refused) == 3
    assert "changed the size of value" in refused[0]
    assert not changes.emitted
    assert all(map(torch.equal, _grads(expected), _grads([x, y])))


def _hooked(calls: list[str]) -> tuple[Tensor, list[Tensor]]:
    def noted(call: str, result: Any) -> Any:
        calls.append(call)
        return result

    x, y = _leaves()
    middle = x.exp()
    middle.register_hook(lambda g: noted("tensor", g * 2))
    loss = (apply(_Times, middle) * y).sum()
    nodes = _nodes(loss)
    for name in ("ExpBackward0", "_TimesBackward"):
        nodes[name].register_prehook(lambda g: noted("pre", tuple(a * 3 for a in g)))
        nodes[name].register_hook(lambda o, g: noted("post", tuple(a * 5 for a in o)))
    x.register_hook(lambda g: noted("leaf", g * 7))
    x.register_post_accumulate_grad_hook(lambda leaf: calls.append("accumulated"))
    return loss, [x, y]


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("ExpBackward0", ["tensor", "pre", "post"]),
        ("_TimesBackward", ["pre", "post"]),
        ("AccumulateGrad", ["leaf", "accumulated"]),
    ],
)
def test_hooks_that_are_skipped_are_not_called_once_and_stay(name: str, skipped: list[str]) -> None:
    calls: list[str] = []
    loss, (x, _) = _hooked(calls)
    loss.backward(retain_graph=True)
    all_calls, (whole,) = list(calls), _grads([x])
    factor = {"ExpBackward0": 2 * 3 * 5, "_TimesBackward": 3 * 5, "AccumulateGrad": 7}[name]

    x.grad = None
    calls.clear()
    changes = _Changes(name, Live.skip_hooks)
    if name == "AccumulateGrad":
        changes = _Changes(name, lambda live: live.skip_hooks() if _is(live, x) else None)
        changes._done = _Never()
    with installed(changes):
        loss.backward(retain_graph=True)
    left = list(all_calls)
    for call in skipped:
        left.remove(call)
    assert sorted(calls) == sorted(left)
    assert torch.allclose(_grads([x])[0] * factor, whole)
    marks = [emitted for emitted in changes.emitted if isinstance(emitted, events.Intervened)]
    assert [mark.kind for mark in marks] == ["hooks"]
    node = marks[0].node
    assert not [t for t in changes.emitted if isinstance(t, events.HookCalled) and t.node == node]

    x.grad = None
    calls.clear()
    with installed():
        loss.backward()
    assert calls == all_calls
    assert torch.equal(_grads([x])[0], whole)


class _Never(set[int]):
    def __contains__(self, _: object) -> bool:
        return False


def _is(live: Live, variable: Tensor) -> bool:
    assert live.node is not None
    return live.node.node.variable is variable


class _Order(Instrument):
    def __init__(self, choose: Callable[[list[int], Live], int | None]) -> None:
        self.choose = choose
        self.started: list[int] = []
        self.ready: list[int] = []
        self.ready_together: list[int] = []
        self.picked: list[int] = []

    def queue_push(self, event: events.QueuePush, live: Live) -> None:
        self.ready.append(event.node)
        if len(self.ready) > len(self.ready_together):
            self.ready_together = list(self.ready)

    def queue_pop(self, event: events.QueuePop, live: Live) -> None:
        self.ready.remove(event.node)

    def intervened(self, event: events.Intervened, live: Live) -> None:
        assert event.kind == "next"
        self.picked.append(event.node)

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        self.started.append(event.node)
        wanted = self.choose(self.ready, live)
        if wanted is not None:
            task = live.graph_task
            assert task is not None
            assert engine().run_next(task, task.nodes[wanted])


def test_a_ready_node_that_is_picked_runs_next_and_the_others_keep_their_order() -> None:
    def loss() -> tuple[Tensor, list[Tensor]]:
        x, y = _leaves()
        parts = [x.exp(), y.sin(), x.cos(), y.tanh()]
        return torch.stack(parts).sum(), [x, y]

    plain = _Order(lambda ready, live: None)
    with installed(plain):
        total, expected = loss()
        total.backward()
    wanted: list[int] = []

    def pick(ready: list[int], live: Live) -> int | None:
        if wanted or len(ready) < 3:
            return None
        wanted.append(ready[0])
        return ready[0]

    picking = _Order(pick)
    with installed(picking):
        total, leaves = loss()
        total.backward()
    assert picking.picked == wanted
    (node,) = wanted
    before = plain.started.index(node)
    at = picking.started.index(node)
    assert at < before - 1
    assert picking.started[:at] == plain.started[:at]
    parts = set(plain.ready_together) - {node}
    assert [n for n in picking.started if n in parts] == [n for n in plain.started if n in parts]
    assert sorted(picking.started) == sorted(plain.started)
    assert all(map(torch.allclose, _grads(expected), _grads(leaves)))


def test_a_node_that_does_not_wait_is_not_picked() -> None:
    found: list[bool] = []

    class Picks(Instrument):
        def node_started(self, event: events.NodeStarted, live: Live) -> None:
            task = live.graph_task
            assert task is not None
            found.append(engine().run_next(task, task.nodes[event.node]))

    x, y = _leaves()
    with installed(Picks()):
        _loss(x, y).backward()
    assert found
    assert not any(found)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_instrument_that_asks_for_nothing_changes_nothing(policy: str) -> None:
    def run() -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        h = checkpoint(model, torch.randn(5, 3, requires_grad=True), use_reentrant=True)
        h.square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    expected = run()
    with installed(_Changes("", lambda live: None), device_policy=POLICIES[policy]):
        got = run()
    assert len(got) == 4
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
