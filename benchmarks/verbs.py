"""What ``agviz check`` and ``agviz explain`` cost on five models, each in processes of their own.

``python -m benchmarks.verbs MODEL STEPS`` trains a model: the program that is checked and recorded.
It says how much CPU time its steps took, so that what the verbs take besides can be subtracted.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measure import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

MODELS: Final = ("mlp", "lstm", "gnn", "gan", "transformer")
"""Four small ones, where nearly all of a call is overhead, and one that computes."""
_WARM_UP: Final = 2
_SAID: Final = "steps took "


class Taken(NamedTuple):
    """Seconds of one process."""

    steps: float
    """CPU time of the program's steps, after some that warm up."""
    cpu: float
    """Of the whole process, imports included."""


class VerbCost(NamedTuple):
    """One model."""

    steps: int
    plain_s: float
    """CPU time of the plain program's steps, the median."""
    checked: Ratio
    """CPU time of the steps under ``agviz check``, as a multiple of that."""
    after_s: float
    """CPU time that ``agviz check`` adds to the process besides, the median."""
    explain_s: float
    """CPU time of ``agviz explain`` on a recording of the steps, the median."""
    explain_wall_s: float


def measure(*, quick: bool) -> dict[str, VerbCost]:
    """By model; plain and checked programs run in turns first and second."""
    steps, rounds = (2, 1) if quick else (10, 5)
    return {name: _measure(name, steps, rounds) for name in MODELS}


def _measure(name: str, steps: int, rounds: int) -> VerbCost:
    program = ("-m", "benchmarks.verbs", name, str(steps))
    check = ("-m", "agviz", "check", *program)
    pairs = []
    for number in range(rounds):
        if number % 2:
            checked, plain = _run(check), _run(program)
        else:
            plain, checked = _run(program), _run(check)
        pairs.append((plain, checked))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        _run(("-m", "agviz", "run", "-o", str(path), *program))
        explained = [_explain(path) for _ in range(rounds)]
    return VerbCost(
        steps=steps,
        plain_s=statistics.median(plain.steps for plain, _ in pairs),
        checked=Ratio.of([checked.steps / plain.steps for plain, checked in pairs]),
        after_s=statistics.median(
            (checked.cpu - checked.steps) - (plain.cpu - plain.steps) for plain, checked in pairs
        ),
        explain_s=statistics.median(cpu for cpu, _ in explained),
        explain_wall_s=statistics.median(wall for _, wall in explained),
    )


def _run(arguments: Sequence[str]) -> Taken:
    """Run a program to its end; the verdict of ``agviz check`` is no failure."""
    output, cpu, _ = _process(arguments)
    line = next(line for line in output.splitlines() if line.startswith(_SAID))
    return Taken(float(line.removeprefix(_SAID)), cpu)


def _explain(path: Path) -> tuple[float, float]:
    _, cpu, wall = _process(("-m", "agviz", "explain", str(path)))
    return cpu, wall


def _process(arguments: Sequence[str]) -> tuple[str, float, float]:
    """What a process of Python prints, its CPU time and the time that passed, in seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # threads that wait take CPU time
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode < 0 or "Traceback" in done.stderr:
        raise RuntimeError(done.stderr)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done.stdout, cpu, wall


def _main(name: str, steps: str) -> None:
    import torch

    from benchmarks.graphs import GRAPHS
    from benchmarks.small_models import SMALL

    torch.set_num_threads(1)
    torch.manual_seed(0)
    losses: Sequence[Callable[[], Tensor]]
    if name in SMALL:
        model = SMALL[name]()
        losses, leaves = model.losses, model.leaves
    else:
        graph = GRAPHS[name]()
        losses, leaves = [graph.forward], graph.leaves
    begin = 0.0
    for number in range(_WARM_UP + int(steps)):
        if number == _WARM_UP:
            begin = time.process_time()
        for leaf in leaves:
            leaf.grad = None
        for loss in losses:
            loss().backward()
    print(f"{_SAID}{time.process_time() - begin}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
