"""A demo's work: train, record the last step, hold it against the native engine, measure."""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import agviz_engine
from agviz.demo import SUBJECTS
from agviz.demo.placement import Placement
from agviz.traces.names import Names
from agviz.traces.provenance import Provenance
from agviz.traces.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor

    from agviz.demo.subject import Subject
    from agviz.traces.measured import Values

PADDING = 3
"""Positions that are padding in the recorded batch, where a NaN is planted."""


class Comparison(NamedTuple):
    """Gradients of one backward pass on both engines, for the same weights and batch."""

    parameters: int
    different: list[str]
    """Names of the parameters whose gradients differ in any bit."""


class Ratio(NamedTuple):
    """How many times as long as natively, over several rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float


class Overhead(NamedTuple):
    """How long our backward pass takes compared with the native one, round by round."""

    rounds: int
    native_ns: float
    """Median."""
    plain: Ratio
    """Nobody listens."""
    recording: Ratio
    """A recorder listens and gradients are measured, or at least checked for NaN and infinities."""


class Session:
    """One model, from its first training step to the figures about its last one.

    Args:
        name: one of :data:`agviz.demo.SUBJECTS`.
        steps: number of training steps, the recorded one included; None: what suits the model.
        plant_nan: give the model a part whose gradient is NaN in the recorded step.
        values: how much of gradients to record.
        provenance: record which line created every node, and what it saved for backward.

    Raises:
        agviz.errors.AgvizError: there is nothing to learn from on this machine.
    """

    def __init__(
        self,
        name: str,
        *,
        steps: int | None,
        plant_nan: bool,
        values: Values = "health",
        provenance: bool = True,
    ) -> None:
        torch.manual_seed(0)
        subject: Subject = importlib.import_module(SUBJECTS[name]).build(plant_nan=plant_nan)
        self.subject = subject
        self._values = values
        self._provenance = provenance
        self._arguments = ["--model", name] + ["--plant-nan"] * plant_nan
        self.steps = subject.steps if steps is None else steps
        self._optimizer = torch.optim.AdamW(subject.model.parameters(), lr=subject.learning_rate)
        self._placement = Placement(
            subject.model,
            {module: device for device, half in enumerate(subject.halves) for module in half},
            elsewhere=-1,
        )

    def train(self) -> Iterator[float]:
        """All steps but the recorded one, on our engine; gives the loss after each."""
        with self._placement, agviz_engine.installed(device_policy=self._placement):
            for step in range(self.steps - 1):
                self._optimizer.zero_grad()
                loss = self._forward(step)
                loss.backward()
                self._optimizer.step()
                yield loss.item()

    def record(self, path: Path) -> float:
        """The last step's forward and backward, recorded to ``path``; returns the loss.

        Raises:
            agviz.errors.TraceError: ``path`` can't be written.
        """
        if self.subject.planted is not None:
            self.subject.planted.padded = PADDING
        self._optimizer.zero_grad()
        with (
            Names() as names,
            Provenance() if self._provenance else nullcontext() as provenance,
            Recorder(
                path,
                names=names,
                provenance=provenance,
                values=self._values,
                script="agviz demo",
                argv=self._arguments,
            ) as recorder,
            self._placement,
        ):
            loss = self._forward(self.steps - 1)
            with agviz_engine.installed(
                recorder, device_policy=self._placement, nonfinite_check=True
            ):
                loss.backward()
        return loss.item()

    def compare(self) -> Comparison:
        """The recorded step's gradients against those of the native engine, bit by bit."""
        ours = self._gradients()
        self._optimizer.zero_grad()
        self._forward(self.steps - 1).backward()
        native = self._gradients()
        return Comparison(
            parameters=len(native),
            different=[name for name in native if not _same_bits(native[name], ours[name])],
        )

    def measure(self, rounds: int = 15) -> Overhead:
        """Backward passes in turn on the native engine, on ours, and on ours while recording."""
        times: list[tuple[int, int, int]] = []
        with (
            tempfile.TemporaryDirectory() as folder,
            Recorder(Path(folder) / "measured.agviz", values=self._values) as recorder,
            self._placement,
            agviz_engine.installed(device_policy=self._placement),
        ):
            for _ in range(1 + rounds):
                native = self._timed(agviz_engine.native)
                plain = self._timed(lambda: agviz_engine.installed(device_policy=self._placement))
                recording = self._timed(
                    lambda: agviz_engine.installed(
                        recorder, device_policy=self._placement, nonfinite_check=True
                    )
                )
                times.append((native, plain, recording))
        del times[0]  # warms the caches
        return Overhead(
            rounds=rounds,
            native_ns=statistics.median(native for native, _, _ in times),
            plain=_ratio([plain / native for native, plain, _ in times]),
            recording=_ratio([recording / native for native, _, recording in times]),
        )

    def _forward(self, step: int) -> Tensor:
        inputs, targets = self.subject.batches(step)
        return self.subject.loss(self.subject.model(inputs), targets)

    def _timed(self, engine: Callable[[], AbstractContextManager[Any]]) -> int:
        self._optimizer.zero_grad()
        loss = self._forward(self.steps - 1)
        with engine():
            begin = time.perf_counter_ns()
            loss.backward()
            return time.perf_counter_ns() - begin

    def _gradients(self) -> dict[str, Tensor | None]:
        return {name: p.grad for name, p in self.subject.model.named_parameters()}


def _same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def _ratio(ratios: list[float]) -> Ratio:
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, lower, upper)
