"""What a signal's handler or another thread raises reaches the program, wherever it strikes."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agviz_engine.errors import comes_from_outside
from tests import python_process
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROGRAM = """
import random, signal, sys, torch

class Late(Exception):
    pass

def late(number, frame):
    global raised
    raised += 1
    raise Late

raised = caught = 0
draw = random.Random(0)
torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(8, 8), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):  # torch imports modules at the first steps, and goes on where that fails
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
signal.signal(signal.SIGALRM, late)
for _ in range(80):
    torch.set_grad_enabled(True)  # torch's own guards do not hold against a handler that raises
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.012), 3.0)
        while True:
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().sum().backward()
            optimizer.step()
    except Late:
        caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(raised, caught)
"""


FINALIZERS = """
import gc, signal, torch

def train(model):
    with torch.enable_grad():
        for parameter in model.parameters():
            parameter.grad = None
        model(torch.ones(3, 8)).sum().backward()
    return float(model[0].bias.grad.sum())

class Trains:
    def __init__(self):
        self.itself = self
    def __del__(self):
        results.add(train(other))

torch.manual_seed(0)
layers = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
model, other, third = layers(), layers(), layers()
results = {train(other), train(third)}
HANDLER
gc.set_threshold(40, 2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    Trains()
    train(model)
    optimizer.step()
signal.setitimer(signal.ITIMER_REAL, 0)
del Trains.__del__  # torch itself aborts where it is called while Python ends
print(len(results), sum(float(each.detach().sum()) for each in model.parameters()))
"""
HANDLER = """
def handle(number, frame):
    if not busy:  # on a slow machine the next signal comes before this one is through
        busy.append(number)
        results.add(train(third))
        busy.clear()
busy = []
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.05)
"""


def _run(program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(program)
    ours = ["-m", "agviz", "run", "-o", "t.agviz", *options]
    command = [sys.executable, *(ours if options else ()), "train.py"]
    done = python_process.run(command, cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param(HANDLER, ("--engine", "exact"), id="handlers, exact"),
        pytest.param(
            HANDLER, ("--engine", "native"), id="handlers, native", marks=pytest.mark.slow
        ),
        pytest.param(
            "", ("--check-forward",), id="finalizers, with the forward", marks=pytest.mark.slow
        ),
    ],
)
def test_finalizers_and_handlers_may_train(
    handler: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """They do so anywhere in agviz, which holds locks there, or has autograd switched off."""
    program = FINALIZERS.replace("HANDLER", handler)
    plain = _run(FINALIZERS.replace("HANDLER", ""), tmp_path)
    ours = _run(program, tmp_path, *options)
    assert plain.stdout.startswith("2 ")
    assert ours.stdout == plain.stdout
    assert "no longer recorded" not in ours.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--engine", "exact"),
        pytest.param(("--engine", "native"), marks=pytest.mark.slow),
        pytest.param(("--check-forward",), marks=pytest.mark.slow),
    ],
)
def test_a_timeout_always_reaches_the_program(options: tuple[str, ...], tmp_path: Path) -> None:
    done = _run(PROGRAM, tmp_path, *options)
    raised, caught = map(int, done.stdout.split())
    # Python itself drops what is raised in the callback of a weak reference, and says so.
    dropped = done.stderr.count("Late\n") + done.stderr.count("Late: ")
    assert caught == 80
    assert raised <= caught + dropped, done.stderr
    assert "no longer recorded" not in done.stderr


def _in_our_place(function: Any) -> Any:
    """The function as one of agviz."""
    place = {**function.__globals__, "__package__": "agviz.record"}
    return type(function)(function.__code__, place, closure=function.__closure__)


def _error_of(act: Any) -> Exception:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    raise AssertionError("it raises")


class _Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise OSError(number, "mine")

    def method(self, number: int, frame: Any) -> None:
        raise OSError(number, "mine")

    @staticmethod
    def of(word: str, number: int, frame: Any) -> None:
        raise OSError(number, word)


@pytest.mark.parametrize(
    "handler", [_Handler(), _Handler().method, functools.partial(_Handler.of, "mine")]
)
def test_what_a_handler_raises_is_the_programs(handler: Any) -> None:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        error = _error_of(_in_our_place(lambda: signal.raise_signal(signal.SIGALRM)))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert isinstance(error, OSError)
    assert not comes_from_outside(error), "its handler is set no more"
    before = signal.signal(signal.SIGALRM, handler)
    assert comes_from_outside(error)
    signal.signal(signal.SIGALRM, before)


def test_what_another_thread_raises_is_the_programs() -> None:
    class Stopped(Exception):  # noqa: N818 - as programs name them
        pass

    def waits() -> None:
        begun.set()
        while True:
            pass

    begun = threading.Event()
    found: list[Exception] = []
    thread = threading.Thread(target=lambda: found.append(_error_of(_in_our_place(waits))))
    thread.start()
    begun.wait()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stopped)
    )
    thread.join()
    assert comes_from_outside(found[0])


@pytest.mark.parametrize(
    "act",
    [
        lambda: dict[str, int]()["key"],
        lambda: (1,)[int("1")],
        lambda: next(iter(())),
        lambda: int("x"),
        lambda: getattr(object(), "a" + "b"),
        lambda: _Handler()(1, None),
    ],
)
def test_what_goes_wrong_in_agviz_is_not(act: Any) -> None:
    assert not comes_from_outside(_error_of(_in_our_place(act)))
