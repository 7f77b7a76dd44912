"""Whether other threads are at torch is seen in their frames."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from agviz.record.owners import others_use_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _at(things: object, begun: threading.Event, is_over: list[bool]) -> None:
    begun.set()
    while not is_over:
        pass


class _Owner:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def at(self, begun: threading.Event, is_over: list[bool]) -> None:
        _at(None, begun, is_over)


@contextmanager
def _running(run: Callable[[threading.Event, list[bool]], None], name: str = "") -> Iterator[None]:
    begun = threading.Event()
    is_over: list[bool] = []
    thread = threading.Thread(target=run, args=(begun, is_over), name=name or None)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        is_over.append(True)
        thread.join()


@pytest.mark.parametrize("thing", [torch.ones(1), nn.Linear(1, 1)], ids=["tensor", "module"])
def test_a_thread_that_has_some_of_torch_at_hand_uses_torch(thing: object) -> None:
    with _running(lambda begun, is_over: _at(thing, begun, is_over)):
        assert others_use_torch()
    assert not others_use_torch()


def test_what_an_objects_method_has_at_hand_counts() -> None:
    with _running(_Owner(nn.Linear(1, 1)).at):
        assert others_use_torch()


def test_a_thread_without_any_of_torch_does_not() -> None:
    with _running(lambda begun, is_over: _at("text", begun, is_over)):
        assert not others_use_torch()


def test_a_thread_of_agviz_does_not_count() -> None:
    with _running(lambda begun, is_over: _at(torch.ones(1), begun, is_over), "agviz-test"):
        assert not others_use_torch()


def test_a_thread_that_waits_does_not_count() -> None:
    over = threading.Event()

    def wait(begun: threading.Event, _: list[bool]) -> None:
        model = nn.Linear(1, 1)
        begun.set()
        over.wait()
        model.zero_grad()

    with _running(wait):
        while over._cond._waiters == []:  # type: ignore[attr-defined]
            pass
        assert not others_use_torch()
        over.set()
