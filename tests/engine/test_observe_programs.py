"""What programs notice of the observer: warnings, tracebacks, Ctrl-C."""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz_engine.instruments import Instrument, Live
from agviz_engine.observe.observing_engine import observed
from tests.engine.builders import custom, leaf

if TYPE_CHECKING:
    from agviz_engine import events


class _Everything(Instrument):
    def any_event(self, event: events.Event, live: Live) -> None:
        pass


def _warn() -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module=r"torch\.autograd\.graph")
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            leaf(3).exp().sum().backward(create_graph=True)
        finally:
            torch.set_warn_always(before)
    return [(one.filename, one.lineno, str(one.message)) for one in caught]


def test_a_warning_of_torch_names_the_line_of_torch() -> None:
    native = _warn()
    with observed(_Everything()):
        ours = _warn()
    assert native
    assert ours == native


def _fail() -> traceback.StackSummary:
    y = leaf(3) * 2
    y.register_hook(lambda _: 1 / 0)
    try:
        y.sum().backward()
    except ZeroDivisionError as error:
        return traceback.extract_tb(error.__traceback__)
    raise AssertionError


def test_a_traceback_has_each_frame_of_torch_once() -> None:
    native = _fail()
    with observed(_Everything()):
        ours = [frame for frame in _fail() if "agviz_engine" not in frame.filename]
    assert [(one.filename, one.lineno, one.name) for one in ours] == [
        (one.filename, one.lineno, one.name) for one in native
    ]


_strike: Any = eval(  # noqa: S307 - a function of another package
    "lambda: strike(number)",
    {
        "__package__": "agviz_engine.observe",
        "strike": signal.raise_signal,
        "number": signal.SIGINT,
    },
)


class _AtHook:
    """A trace function that lets SIGINT strike in one of the hooks of the observer."""

    def __init__(self, name: str, calls: int) -> None:
        self.name = name
        self.calls_left = calls

    def __call__(self, frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == self.name:
            self.calls_left -= 1
            if not self.calls_left:
                _strike()


@pytest.mark.parametrize("hook", ["_started", "_finished"])
def test_an_interrupt_waits_for_the_end_where_no_python_runs(hook: str) -> None:
    """C++ nodes are not struck without agviz: all gradients are there when backward returns."""
    for calls in range(1, 5):
        x = leaf(3)
        loss = (x.exp() * 2).tanh().sum()
        with observed(_Everything()):
            sys.settrace(_AtHook(hook, calls))
            try:
                with pytest.raises(KeyboardInterrupt):
                    loss.backward()
            finally:
                sys.settrace(None)
        assert x.grad is not None


def test_an_interrupt_strikes_the_next_custom_function() -> None:
    """It runs the first Python of the program after the interrupt."""
    called: list[int] = []

    def backward(_ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        called.append(1)
        return gradient * 2

    double = custom(backward)
    x = leaf(3)
    y = double(x).exp().sum()
    with observed(_Everything()):
        sys.settrace(_AtHook("_started", 1))
        try:
            with pytest.raises(KeyboardInterrupt):
                y.backward(retain_graph=True)
        finally:
            sys.settrace(None)
        assert not called
        assert x.grad is None
        y.backward()
    assert called
    assert x.grad is not None
