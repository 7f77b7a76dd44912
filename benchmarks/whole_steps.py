"""What it costs to observe the steps around backward passes: a recording beside one without that.

A sample is steps of one recording that has warmed up. Those of both kinds are taken one right
after the other, in turns first and second. The first :data:`WARM_UP` steps are left out: more is
measured in them (:mod:`agviz.record.steps.sample`), and a training has thousands.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock

import torch
from torch import nn

import agviz
from agviz.record.steps.observer import StepObserver
from benchmarks.measure import Ratio, Times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Make = Callable[[], Callable[[], None]]
    """Makes a model, and gives what runs a training step of it."""
    Around = Callable[[Path], AbstractContextManager[object]]
    """Records into the file, or does not."""

WARM_UP: Final = 260
STEPS: Final = 64
STEPS_OF_LARGE: Final = (4, 8)
"""That warm up, and that are measured, where a step takes half a second."""


class StepCost(NamedTuple):
    """What observing steps costs on one model."""

    rounds: int
    native_ns: int
    """CPU time of the calling thread in a step without agviz, median."""
    recorded: Ratio
    """The recording to native, CPU time of the calling thread."""
    thread: Ratio
    """The recording to one that observes no steps, CPU time of the calling thread."""
    process: Ratio
    """The same of all threads."""


class _Nothing(StepObserver):
    """Observes nothing: what every entry would do is left out."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def called(self, optimizer: Any) -> None: ...
    def stepped(self, *_: Any) -> list[Any]:
        return []

    def pass_begun(self) -> None: ...
    def pass_ended(self) -> None: ...
    def reached(self, *_: Any) -> list[Any]:
        return []

    def look(self, *_: Any) -> list[Any]:
        return []

    def averages(self) -> list[Any]:
        return []

    def states(self) -> list[Any]:
        return []

    def seedings(self) -> list[Any]:
        return []


def measure(*, quick: bool) -> dict[str, StepCost]:
    """By model, on one thread."""
    torch.set_num_threads(1)
    return {
        "MLP of 4 layers, width 128": _measure(_mlp, 4 if quick else 60, (WARM_UP, STEPS)),
        "transformer, 6 layers, d=512": _measure(_transformer, 2 if quick else 20, STEPS_OF_LARGE),
    }


def _measure(
    make: Callable[[], Callable[[], None]], rounds: int, steps: tuple[int, int]
) -> StepCost:
    taken = []
    kinds: dict[str, Callable[[Path], contextlib.AbstractContextManager[object]]] = {
        "native": lambda _: contextlib.nullcontext(),
        "without": _without,
        "with": lambda path: agviz.trace(path=path),
    }
    for number in range(rounds + 1):  # the first warms up
        order = sorted(kinds, reverse=bool(number % 2))
        found = {kind: _sample(make, kinds[kind], *steps) for kind in order}
        if number:
            taken.append(found)
    natives = sorted(each["native"].thread for each in taken)
    return StepCost(
        rounds=rounds,
        native_ns=natives[len(natives) // 2] // steps[1],
        recorded=Ratio.of([each["with"].thread / each["native"].thread for each in taken]),
        thread=Ratio.of([each["with"].thread / each["without"].thread for each in taken]),
        process=Ratio.of([each["with"].process / each["without"].process for each in taken]),
    )


@contextlib.contextmanager
def _without(path: Path) -> Iterator[None]:
    with mock.patch("agviz.recording.StepObserver", _Nothing), agviz.trace(path=path):
        yield


def _sample(make: Make, around: Around, warm_up: int, steps: int) -> Times:
    torch.manual_seed(0)
    step = make()
    with tempfile.TemporaryDirectory() as folder, around(Path(folder) / "steps.agviz"):
        for _ in range(warm_up):
            step()
        gc.collect()
        begin = Times.now()
        for _ in range(steps):
            step()
        return begin.until(Times.now())


def _mlp() -> Callable[[], None]:
    sizes = (64, 128, 128, 128)
    hidden = [
        layer for each in itertools.pairwise(sizes) for layer in (nn.Linear(*each), nn.ReLU())
    ]
    model = nn.Sequential(*hidden, nn.Linear(128, 10))
    return _training(model, torch.randn(256, 64), torch.randint(10, (256,)))


def _transformer() -> Callable[[], None]:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Flatten(), nn.Linear(512 * 64, 10))
    return _training(model, torch.randn(4, 64, 512), torch.randint(10, (4,)))


def _training(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step
