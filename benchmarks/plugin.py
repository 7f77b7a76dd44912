"""What the pytest plugin costs: runs of pytest with and without it, in alternation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Ratio

SMALL = """
import pytest, torch
from torch import nn

SEEDS = range({seeds})


@pytest.mark.parametrize("seed", SEEDS)
def test_linear(seed):
    torch.manual_seed(seed)
    model = nn.Linear(8, 3)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    assert model.weight.grad.isfinite().all()


@pytest.mark.parametrize("seed", SEEDS)
def test_layers(seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers)
    nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(4, (4,))).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("seed", SEEDS)
def test_formula(seed):
    torch.manual_seed(seed)
    x = torch.rand(5, requires_grad=True)
    (grad,) = torch.autograd.grad((x.exp() * x.sin()).sum(), x)
    torch.testing.assert_close(grad, x.exp() * (x.sin() + x.cos()))


@pytest.mark.parametrize("seed", SEEDS)
def test_convolution(seed):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)]
    model = nn.Sequential(*layers)
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    assert model[0].weight.grad.shape == (4, 1, 3, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_attention(seed):
    torch.manual_seed(seed)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model(torch.randn(2, 5, 16)).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
"""
"""Five kinds of tests, {seeds} of each."""
EMPTY = """
import pytest


@pytest.mark.parametrize("number", range({seeds}))
def test_nothing(number):
    pass
"""
"""Tests that do not even import torch."""
WITHOUT = ("-p", "no:agviz")
OFF = ("--agviz=off",)
RETAIN = ("--agviz=retain-on-failure",)


class Taken(NamedTuple):
    """Seconds that one run took."""

    cpu: float
    wall: float


class PluginCost(NamedTuple):
    """What a run takes, compared with another."""

    native_s: float
    """CPU time of the one that it is compared with."""
    extra_s: float
    """CPU time that is added, the median."""
    cpu: Ratio
    wall: Ratio


def measure(*, quick: bool) -> dict[str, PluginCost]:
    """By what is compared; the more runs, the smaller what is to be seen."""
    seeds, rounds, many = (4, 1, 1) if quick else (100, 10, 40)
    tests = 5 * seeds
    with tempfile.TemporaryDirectory() as folder:
        small, empty = Path(folder, "test_small.py"), Path(folder, "test_empty.py")
        small.write_text(SMALL.format(seeds=seeds), encoding="utf-8")
        empty.write_text(EMPTY.format(seeds=tests), encoding="utf-8")
        return {
            f"retain-on-failure: {tests} small backward tests": _compare(
                small, OFF, RETAIN, rounds
            ),
            f"retain-on-failure: {tests} tests without torch": _compare(empty, OFF, RETAIN, rounds),
            f"off: {tests} small backward tests": _compare(small, WITHOUT, OFF, rounds),
            f"off: {tests} tests without torch": _compare(empty, WITHOUT, OFF, many),
        }


def _compare(suite: Path, one: tuple[str, ...], other: tuple[str, ...], rounds: int) -> PluginCost:
    for options in (one, other):  # compiles what they read from caches
        _run(suite, options)
    pairs: list[tuple[Taken, Taken]] = []
    for number in range(rounds):
        if number % 2:
            first, second = _run(suite, one), _run(suite, other)
        else:
            second, first = _run(suite, other), _run(suite, one)
        pairs.append((first, second))
    return PluginCost(
        native_s=statistics.median(first.cpu for first, _ in pairs),
        extra_s=statistics.median(second.cpu - first.cpu for first, second in pairs),
        cpu=Ratio.of([second.cpu / first.cpu for first, second in pairs]),
        wall=Ratio.of([second.wall / first.wall for first, second in pairs]),
    )


def _run(suite: Path, options: tuple[str, ...]) -> Taken:
    """Run pytest; CPU time is that of the whole process."""
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(suite.parent), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # threads that wait take CPU time
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else agviz would be compiled in each run
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments, str(suite)],
        cwd=suite.parent,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"pytest {' '.join(arguments)} ended with {process.returncode}")
    return Taken(used.ru_utime + used.ru_stime, wall)
