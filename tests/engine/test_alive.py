"""What is alive is looked at while another thread makes tuples; Note [Tuples in the making]."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz_engine import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOKS = 3


class _Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


def _slowly() -> Iterator[int]:
    for each in range(6):
        sum(range(2_000))
        yield each


def _errors_of_another_thread(look: Callable[[], object]) -> list[str]:
    """Messages of the thread that makes tuples while this one looks."""
    errors: list[str] = []
    is_over = threading.Event()

    def make() -> None:
        while not is_over.is_set():
            try:
                tuple(_slowly())
            except SystemError as error:
                errors.append(str(error))

    making = threading.Thread(target=make)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    making.start()
    try:
        for _ in range(_LOOKS):
            look()
    finally:
        is_over.set()
        making.join()
        sys.setswitchinterval(interval)
    return errors


_tensor = torch.ones(3)

LOOKS: dict[str, Callable[[], object]] = {
    "instances": lambda: alive.instances(torch.Tensor),
    "referrers": lambda: alive.referrers([_tensor]),
    "referred": lambda: alive.referred([_tensor, torch.ones(2)], set()),
}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", LOOKS)
def test_a_look_does_not_disturb_a_thread_that_makes_a_tuple(name: str) -> None:
    assert _errors_of_another_thread(LOOKS[name]) == []


def test_a_line_of_python_that_sees_everything_would() -> None:
    """Otherwise the test above could not fail."""
    held: list[list[object]] = []

    def look() -> None:
        held[:] = [gc.get_objects()]
        time.sleep(0.01)

    assert _errors_of_another_thread(look) != []


def test_instances_are_those_of_subclasses_too() -> None:
    plain, parameter = torch.ones(2), torch.nn.Parameter(torch.ones(2))
    found = {id(each) for each in alive.instances(torch.Tensor)}
    assert {id(plain), id(parameter)} <= found
    assert [type(each) for each in alive.instances(_Holder)] == []


@pytest.mark.slow
def test_referrers_are_found_through_tuples() -> None:
    tensor = torch.ones(2)
    for held in (tensor, [tensor], (tensor,), [(1, (tensor,))], {"a": (tensor, 1)}):
        holder = _Holder(held)
        direct = held if isinstance(held, list | dict) else holder
        own = (holder.__dict__, holder)
        found = alive.referrers([tensor])
        assert any(each is direct or any(each is one for one in own) for each in found), held
        assert not any(type(each) is tuple for each in found)

    def function() -> torch.Tensor:
        return tensor

    (cell,) = function.__closure__ or ()
    assert any(each is cell for each in alive.referrers([tensor]))
    assert any(each is function for each in alive.referrers([cell]))


def test_what_is_referred_to_is_found_with_a_reference_of_others_alone() -> None:
    things = [torch.ones(2) for _ in range(4)]
    stored, shared = [things[0]], _Holder((things[1], 2))
    assert alive.referred(things, set()) == {id(things[0]), id(things[1])}
    assert alive.referred(things, {id(stored)}) == {id(things[1])}
    assert shared.held[1] == 2
