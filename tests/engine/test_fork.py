"""fork: the child has an engine of its own; device threads do not survive, and that is said."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from agviz_engine import api, installed, is_installed, torch_modes
from tests.engine.builders import leaf
from tests.engine.idle import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(
        torch.accelerator.is_available(),
        reason="where there is an accelerator torch refuses to run in a fork (see test_gpu.py)",
    ),
]


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


def _loaded() -> Any:
    loader = DataLoader(_Slopes(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    return torch.cat(list(loader)).tolist()


@pytest.mark.filterwarnings("ignore")
def test_backward_in_workers_of_a_data_loader() -> None:
    with installed():
        _backward()
        assert _loaded() == [[2.0 * i] * 2 for i in range(6)]


@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_data_loader_after_use_of_device_threads() -> None:
    """They work as long as they need no device thread."""
    on_a_device = True
    with installed(device_policy=lambda _: 0 if on_a_device else -1):
        _backward()
        with pytest.raises(RuntimeError, match="in combination with fork-based multiprocessing"):
            _loaded()
        on_a_device = False
        assert _loaded() == [[2.0 * i] * 2 for i in range(6)]
        on_a_device = True
        _backward()


def _nothing_is_left_over() -> None:
    assert leftovers() == []
    with installed():
        _backward()
    _backward()
    assert leftovers() == []


@contextlib.contextmanager
def _another_thread(work: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Another thread is in ``work``, where that calls what it is given, until the block ends."""

    def wait() -> None:
        inside.set()
        go_on.wait()

    inside, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(wait,))
    thread.start()
    try:
        assert inside.wait(60)
        yield
    finally:
        go_on.set()
        thread.join()


def test_child_while_another_thread_is_in_a_backward() -> None:
    """What that thread has begun never ends in the child."""

    def backward(wait: Callable[[], None]) -> None:
        y = leaf(3).exp()
        y.register_hook(lambda _: wait())
        y.sum().backward()

    with installed(), _another_thread(backward):
        assert _in_a_child(_nothing_is_left_over) == 0


LOCKS: dict[str, Callable[[], Any]] = {
    "steal": lambda: api.engine().activity.lock,
    "install": lambda: api._lock,
    "anomaly mode": lambda: torch_modes.anomaly_pause._lock,
}


@pytest.mark.parametrize("name", LOCKS)
def test_child_while_another_thread_holds_a_lock(name: str) -> None:
    def hold(wait: Callable[[], None]) -> None:
        with LOCKS[name]():
            wait()

    def grad() -> None:
        x = leaf(3)
        with torch.autograd.set_detect_anomaly(True):
            torch.autograd.grad(x.exp().sum(), x)
        _nothing_is_left_over()

    with installed(), _another_thread(hold):
        assert _in_a_child(grad) == 0


@pytest.mark.slow
def test_child_while_another_thread_pauses_anomaly_mode() -> None:
    def pause(wait: Callable[[], None]) -> None:
        with torch_modes.anomaly_pause:
            wait()

    def check() -> None:
        assert torch.is_anomaly_enabled()
        _nothing_is_left_over()

    with installed(), torch.autograd.set_detect_anomaly(True), _another_thread(pause):
        assert _in_a_child(check) == 0


def _in_a_process(send: Any) -> None:
    try:
        was_installed = is_installed()
        _backward()
        with installed():
            _backward()
        _backward()
        send.send((was_installed, leftovers()))
    except BaseException as error:
        send.send(repr(error))
        raise


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_multiprocessing(method: str) -> None:
    """A forked process goes on with the engine installed; a new one begins with torch's."""
    context: Any = multiprocessing.get_context(method)
    receive, send = context.Pipe(duplex=False)
    with installed(), receive, send:
        _backward()
        process = context.Process(target=_in_a_process, args=(send,), daemon=True)
        process.start()
        assert receive.poll(120)
        assert receive.recv() == (method == "fork", [])
        process.join(60)
        assert process.exitcode == 0
        _backward()
