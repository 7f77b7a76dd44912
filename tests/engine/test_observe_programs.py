"""What programs notice of the observer: warnings and tracebacks."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, Any

import torch

from agviz_engine.instruments import Instrument, Live
from agviz_engine.observe.observing_engine import observed
from tests.engine.builders import leaf

if TYPE_CHECKING:
    from agviz_engine import events


class _Heard(Instrument):
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
    with observed(_Heard()):
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
    with observed(_Heard()):
        ours = [frame for frame in _fail() if "agviz_engine" not in frame.filename]
    assert [(one.filename, one.lineno, one.name) for one in ours] == [
        (one.filename, one.lineno, one.name) for one in native
    ]
