"""What a thread of the engine is in the midst of, which it notes itself."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

import agviz_engine
from agviz_engine.instruments import Instrument, Live
from agviz_engine.under_way import Call, calls_of, definition
from tests.engine.builders import apply

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = __file__


class Deaf(Instrument):
    """Observes everything and keeps nothing, so that hooks are reported."""

    def any_event(self, event: Any, live: Live) -> None:
        """Not a word."""


class Twice(torch.autograd.Function):
    """A custom Function, whose node torch runs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Double."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Double."""
        return gradient * 2


class Gate:
    """Where a hook waits, on another thread, to be looked at."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def wait(self, *_: Any) -> None:
        """A hook of any kind."""
        self.entered.set()
        assert self.opened.wait(30)

    def calls(self, work: Callable[[], None]) -> list[Call]:
        """What is under way while ``work`` waits here."""
        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert self.entered.wait(30)
            assert thread.ident is not None
            return calls_of(thread.ident)
        finally:
            self.opened.set()
            thread.join()


WAIT_LINE = Gate.wait.__code__.co_firstlineno


def backward_with(kind: str, gate: Gate) -> None:
    x = torch.ones(3, requires_grad=True)
    y: Any = apply(Twice, x) if kind.startswith("custom") else x.exp()
    hook: Any = gate.wait
    match kind:
        case "tensor_pre" | "custom tensor_pre":
            y.register_hook(hook)
        case "pre" | "custom pre":
            y.grad_fn.register_prehook(functools.partial(hook, None))
        case "post" | "custom post":
            y.grad_fn.register_hook(torch.no_grad()(lambda *_: hook()))
        case "post_accumulate_grad":
            x.register_post_accumulate_grad_hook(hook)
        case "retained tensor_pre":
            y.retain_grad()
            y.register_hook(hook)
        case "final_callback":
            engine: Any = torch.autograd.Variable._execution_engine
            y.register_hook(lambda _: engine.queue_callback(hook))
    y.sum().backward()


@pytest.mark.parametrize(
    "kind",
    [
        *("tensor_pre", "pre", "post", "post_accumulate_grad", "final_callback"),
        *("custom tensor_pre", "custom pre", "custom post"),
    ],
)
def test_a_hook_that_does_not_return(kind: str) -> None:
    gate = Gate()
    with agviz_engine.installed(Deaf()):
        calls = gate.calls(lambda: backward_with(kind, gate))
    *nodes, hook = calls
    assert hook.kind == kind.removeprefix("custom ")
    assert hook.file == HERE
    if kind.endswith(" post") or kind == "post":
        assert hook.name == "<lambda>"
    else:
        assert (hook.name, hook.line) == ("wait", WAIT_LINE)
    if kind == "final_callback":
        assert (nodes, hook.node) == ([], -1)
    else:
        assert [(call.kind, call.node) for call in nodes] == [("node", hook.node)]
        assert hook.node == (2 if kind == "post_accumulate_grad" else 1)


def test_hooks_that_torch_calls_in_one_go_have_no_name() -> None:
    gate = Gate()
    with agviz_engine.installed(Deaf()):
        calls = gate.calls(lambda: backward_with("retained tensor_pre", gate))
    assert [(call.kind, call.name, call.file, call.line) for call in calls] == [
        *(("node", "", "", 0), ("tensor_pre", "", "", 0)),
    ]


def test_a_reentrant_backward_stands_inside_the_call_that_made_it() -> None:
    gate = Gate()

    def outer(_: Tensor) -> None:
        with torch.enable_grad():
            backward_with("tensor_pre", gate)

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.register_hook(outer)
        y.sum().backward()

    with agviz_engine.installed(Deaf()):
        calls = gate.calls(work)
    assert [(call.kind, call.name) for call in calls] == [
        *(("node", ""), ("tensor_pre", "outer"), ("node", ""), ("tensor_pre", "wait")),
    ]
    first, _, second, _ = calls
    assert second.graph_task == first.graph_task + 1


def test_who_looks_holds_no_gradient() -> None:
    gate = Gate()
    seen: list[Any] = []

    def post(made: tuple[Tensor], given: tuple[Tensor]) -> None:
        seen.extend((made, given))
        gate.wait()

    def work() -> None:
        y: Any = torch.ones(3, requires_grad=True).exp()
        y.grad_fn.register_hook(post)
        y.sum().backward()

    with agviz_engine.installed(Deaf()):
        thread = threading.Thread(target=work)
        thread.start()
        assert gate.entered.wait(30)
        before = [sys.getrefcount(gradients) for gradients in seen]
        assert calls_of(thread.ident or 0)
        assert [sys.getrefcount(gradients) for gradients in seen] == before
        gate.opened.set()
        thread.join()


class Callback:
    """Something that can be called and is no function."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __call__(self) -> None:
        """Do nothing."""


def test_where_what_is_called_is_defined() -> None:
    line = WAIT_LINE
    assert definition(Gate().wait) == ("wait", HERE, line)
    assert definition(functools.partial(Gate().wait, 1)) == ("wait", HERE, line)
    assert definition(torch.no_grad()(Gate.wait)) == ("wait", HERE, line)
    assert definition(Callback())[:2] == ("Callback.__call__", HERE)
    assert definition(threading.Lock().acquire) == ("lock.acquire", "", 0)
    assert definition(int) == ("type", "", 0)
