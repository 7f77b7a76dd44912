"""The engine for long: many threads, many interrupts, many passes, each in its own process."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agviz_engine import installed
from tests.engine import soak
from tests.engine.builders import apply, leaf

ROOT = Path(__file__).parents[2]
MEMORY_BOUND = 2 << 20
"""Bytes by which memory may grow beyond what the native engine's does, in ``soak.PASSES`` passes.

That is 210 bytes a pass: less than one tensor or one NodeRef with its edges, more than what pages
of the allocator differ by from run to run.
"""
OBJECTS_BOUND = 200
"""Objects that may be left beyond those of the native engine's run.

Each kind of step runs some 800 times, so that one object left by one of them shows.
"""


def _soaked(*arguments: str) -> Any:
    """What a process that runs one of ``soak``'s functions tells."""
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.engine.soak", *arguments],
        cwd=ROOT,
        env={**os.environ, **one_thread, "PYTHONPATH": str(ROOT / "engine")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["caller", "devices"])
def test_threads(policy: str) -> None:
    """No deadlock, no gradient of another thread, no thread left behind."""
    found = _soaked("threads", policy)
    assert found["wrong"] == {}
    assert found["stuck"] == 0
    assert found["leftovers"] == []
    assert found["threads"] == []
    assert len(found["done"]) == 8
    assert all(number > 20 for number in found["done"].values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", soak.INTERRUPTED)
@pytest.mark.parametrize("policy", soak.POLICIES)
def test_interrupts(policy: str, kind: str) -> None:
    """Each SIGINT arrives as KeyboardInterrupt; the next gradients are right, nothing is left."""
    found = _soaked("interrupts", policy, kind)
    assert found["seen"] == {"KeyboardInterrupt": soak.INTERRUPTS}
    assert found["threads"] == []
    assert found["passes"] > 0


@functools.cache
def _native_growth() -> dict[str, int]:
    grown: dict[str, int] = _soaked("passes", soak.NATIVE)["grown"]
    return grown


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["caller", "devices"])
def test_passes(policy: str) -> None:
    """Nothing grows."""
    found, native = _soaked("passes", policy), _native_growth()
    assert found["leftovers"] == []
    assert found["threads"] == []
    grown = found["grown"]
    for what in ("threads", "native threads", "file descriptors"):
        assert grown[what] == 0, what
    for what in ("gc objects", "allocated blocks"):
        assert grown[what] <= native[what] + OBJECTS_BOUND, what
    assert grown["resident bytes"] <= native["resident bytes"] + MEMORY_BOUND


def test_a_class_made_for_one_pass_is_let_go() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(_context: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(_context: Any, *gradients: Any) -> Any:
            return gradients[0] * 2

    kept = weakref.ref(Once)
    with installed():
        apply(Once, leaf(3)).sum().backward()
        del Once
        gc.collect()
        assert kept() is None
