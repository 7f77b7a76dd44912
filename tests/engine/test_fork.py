"""fork: the child has an engine of its own; device threads do not survive, and that is said."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from agviz_engine import installed
from tests.engine.builders import leaf

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def _in_a_child(work: Callable[[], None]) -> int:
    """Exit status of a forked child that runs ``work``; a hanging one is ended by an alarm."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _backward() -> None:
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


def test_child_after_use_on_the_caller() -> None:
    with installed():
        _backward()
        assert _in_a_child(_backward) == 0
        _backward()


def test_child_after_use_of_device_threads() -> None:
    """Torch refuses there; ours does where a device thread would be needed."""
    on_a_device = True

    def refused() -> None:
        with pytest.raises(RuntimeError, match="in combination with fork-based multiprocessing"):
            _backward()

    with installed(device_policy=lambda _: 0 if on_a_device else -1):
        _backward()
        assert _in_a_child(refused) == 0
        on_a_device = False
        assert _in_a_child(_backward) == 0
        on_a_device = True
        _backward()


def test_fork_inside_a_backward() -> None:
    def fork(_: Any) -> None:
        with torch.enable_grad():
            statuses.append(_in_a_child(_backward))

    statuses: list[int] = []
    x = leaf(3)
    y = x.exp()
    y.register_hook(fork)
    with installed():
        y.sum().backward()
    assert statuses == [0]
    assert x.grad is not None


class _Slopes(Dataset[torch.Tensor]):
    """Each of its items is a gradient."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        x = torch.full((2,), float(index), requires_grad=True)
        (x**2).sum().backward()
        assert x.grad is not None
        return x.grad


@pytest.mark.filterwarnings("ignore")
def test_backward_in_workers_of_a_data_loader() -> None:
    with installed():
        _backward()
        loader = DataLoader(_Slopes(), batch_size=2, num_workers=2, multiprocessing_context="fork")
        batches = torch.cat(list(loader))
    assert batches.tolist() == [[2.0 * i] * 2 for i in range(6)]
