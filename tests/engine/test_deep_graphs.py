"""A graph too deep for the stack is freed as natively. Each in a process of its own: it may die."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import gc, sys
import torch
import agviz_engine
from agviz_engine import deep_graphs

def build():
    y = torch.ones(1, requires_grad=True)
    for i in range(60_000):
        y = y * 1.0 if i % 3 else y + y * 0.5
    return y

if sys.argv[1] == "ours":
    agviz_engine.install()
y = build()
if sys.argv[2] == "retain":
    y.backward(retain_graph=True)
if sys.argv[2] == "part":
    part = torch.autograd.graph.get_gradient_edge(y).node.next_functions[0][0]
y.backward()
if sys.argv[2] != "exit":
    del y
    gc.collect()
    if sys.argv[2] == "part":
        del part
        gc.collect()
    assert not deep_graphs._held
    build().backward()
    gc.collect()
    assert not deep_graphs._held
print("freed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "how"),
    [
        pytest.param("native", "once", marks=pytest.mark.slow),
        ("ours", "once"),
        pytest.param("ours", "retain", marks=pytest.mark.slow),
        pytest.param("ours", "part", marks=pytest.mark.slow),
        pytest.param("ours", "exit", marks=pytest.mark.slow),
    ],
)
def test_a_deep_graph_is_freed(engine: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, engine, how], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr


_AT_EXIT = """
import atexit

def run():
    global kept
    kept = torch.ones(1, requires_grad=True)
    for _ in range(30_000):
        kept = kept * 1.0
    kept.backward(retain_graph=True)
    kept.backward(retain_graph=True)

atexit.register(run)
import torch, agviz_engine
agviz_engine.install()
print("freed")
"""


def test_a_deep_graph_made_at_the_very_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr


_SOON = """
import gc, sys, threading, weakref
import torch
import agviz_engine

if sys.argv[1] == "ours":
    agviz_engine.install()
gc.disable()

def run():
    factor = torch.rand(1)
    y = torch.ones(1, requires_grad=True) * factor
    for _ in range(40_000):
        y = y * 1.0
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    return weakref.ref(factor)

if sys.argv[2] == "main":
    last = run()
else:
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    (last,) = found
for _ in range(3):
    pass
print("freed" if last() is None else "alive")
"""


@pytest.mark.parametrize("thread", ["main", pytest.param("other", marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", [pytest.param("native", marks=pytest.mark.slow), "ours"])
def test_a_deep_graph_is_freed_when_its_root_dies(engine: str, thread: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SOON, engine, thread], capture_output=True, text=True, check=False
    )
    if engine == "native" and done.stderr == "terminate called without an active exception\n":
        pytest.skip("this torch ends the process itself, without the engine")
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr
