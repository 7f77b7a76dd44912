"""Finalizers of the program: they run on its own threads, and may train anywhere in agviz."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from agviz_engine import finalizers
from tests.test_alarms import _run

if TYPE_CHECKING:
    from pathlib import Path

WHERE = """
import gc, threading, time, torch

class Dies:
    def __init__(self):
        self.itself = self
    def __del__(self):
        threads.add(threading.current_thread().name)

threads, layers = set(), []
before = 700, 10, 10
gc.set_threshold(*before)  # those found may be out of reach, since agviz may be writing already
for _ in range(30):
    layers += torch.nn.Linear(64, 64), torch.nn.Tanh()
model = torch.nn.Sequential(*layers)
for _ in range(40):
    Dies()
    model(torch.ones(64, 64)).sum().backward()
for _ in range(500):
    is_back = gc.get_threshold() == before  # while agviz writes, they are out of reach
    if is_back:
        break
    time.sleep(0.01)
print(sorted(threads), is_back)
"""

EVERYWHERE = """
import gc, hashlib, torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient

def layers():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))

def train(model, kind):
    parameters = list(model.parameters())
    with torch.enable_grad():
        for each in parameters:
            each.grad = None
        output = model(torch.ones(3, 8))
        if kind == "function":
            output = Square.apply(output)
        if kind == "hooks":
            output.register_hook(lambda gradient: gradient * 2)
        if kind == "grad":
            found = torch.autograd.grad(output.sum(), parameters)
        elif kind == "create_graph":
            found = torch.autograd.grad(output.sum(), parameters, create_graph=True)
            sum(each.square().sum() for each in found).backward()
        elif kind == "roots":
            torch.autograd.backward([output, (output * 2).sum()], [torch.ones_like(output), None])
        else:
            output.sum().backward()
        if kind != "grad":
            found = [each.grad for each in parameters if each.grad is not None]
            assert len(found) >= 3, (kind, len(found))
        return hashlib.md5(b"".join(each.numpy(force=True).tobytes() for each in found)).digest()

class Strikes:
    def __init__(self):
        self.itself = self
    def __del__(self):
        if striking:
            return
        striking.append(True)
        kind = KINDS[len(struck) % len(KINDS)]
        struck.append(train(other, kind) == expected[kind])
        striking.clear()
        Strikes()

KINDS = "plain", "grad", "create_graph", "function", "hooks", "roots"
torch.manual_seed(0)
model, other = layers(), layers()
expected = {kind: train(other, kind) for kind in KINDS}
ours = {kind: train(model, kind) for kind in KINDS}
striking, struck, same = [], [], []
gc.set_threshold(7, 1, 1)
Strikes()
rounds = 0
while rounds < 4 or len(struck) <= 30 and rounds < 40:  # how often collections come varies
    same += [train(model, kind) == ours[kind] for kind in KINDS]
    rounds += 1
striking.append(True)
print(len(struck) > 30, all(struck), all(same))
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["exact", "native"])
def test_finalizers_run_on_the_programs_threads(engine: str, tmp_path: Path) -> None:
    done = _run(WHERE, tmp_path, "--engine", engine)
    assert done.stdout == "['MainThread'] True\n", done.stderr


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("options", [("--engine", "exact"), ("--check-forward",)])
def test_a_finalizer_strikes_everywhere(options: tuple[str, ...], tmp_path: Path) -> None:
    """No pass is lost, and none is without autograd, wherever a finalizer trains in between."""
    done = _run(EVERYWHERE, tmp_path, *options)
    assert done.stdout == "True True True\n", done.stderr


def test_thresholds_of_the_program_stay() -> None:
    before, seen = gc.get_threshold(), list[tuple[int, int, int]]()
    try:
        with finalizers.held_off():
            assert gc.get_threshold()[0] == 2**24
            with finalizers.held_off():
                pass
            assert gc.get_threshold()[0] == 2**24
            finalizers.while_waiting(lambda: seen.append(gc.get_threshold()))
            assert seen == [before]
            gc.set_threshold(500, 5, 5)
        assert gc.get_threshold() == (500, 5, 5)
    finally:
        gc.set_threshold(*before)


def test_a_child_made_where_collections_are_held_off_collects() -> None:
    before = gc.get_threshold()
    try:
        with finalizers.held_off():
            finalizers._collector.forked()
            assert gc.get_threshold() == before
        with finalizers.held_off():
            assert gc.get_threshold()[0] == 2**24
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*before)


def test_a_bell_wakes_who_waits() -> None:
    bell = finalizers.Bell()
    assert not bell.wait(0.001)
    ringing = threading.Timer(0.05, bell.set)
    ringing.start()
    with finalizers.held_off():
        assert bell.wait(30.0)
        assert bell.wait(30.0)
        bell.clear()
        assert not bell.is_set()
        assert not bell.wait(0.001)
    ringing.join()
    bell.set()
    bell.set()
    bell.clear()
    assert not bell.wait(0.001)
