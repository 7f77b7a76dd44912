"""A demo's work: train, record the last step, hold it against the native engine, measure."""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from agviz.demo import SUBJECTS
from agviz.demo.placement import Placement
from agviz.record.names import Names
from agviz.record.provenance import Provenance
from agviz.record.recorder import Recorder
from agviz_engine.engines import AUTO, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from agviz.demo.subject import Subject
    from agviz.record.capture_level import CaptureLevel

PADDING = 3
"""Positions that are padding in the recorded batch, where a NaN is planted."""


class Comparison(NamedTuple):
    """Gradients of one backward pass on both engines, for the same weights and batch."""

    parameters: int
    different: list[str]
    """Names of the parameters whose gradients differ in any bit."""


class Ratio(NamedTuple):
    """How many times as much as natively, over several rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float


class Overhead(NamedTuple):
    """CPU time of training steps as a user has them: plain, on the thread that calls backward.

    Each ratio is that of some steps, recorded as by ``agviz run``, to as many on torch's engine.
    """

    steps: int
    """How many of each kind, in all rounds."""
    native_backward_ns: float
    """Median of a round's mean."""
    native_step_ns: float
    """The same."""
    backward: Ratio
    step: Ratio
    """Forward, backward and the optimizer."""
    writing: Ratio
    """What other threads take for writing the file; to a step on torch's engine."""


class _Times(NamedTuple):
    backward: int
    step: int
    elsewhere: int
    """Of other threads."""


class DemoSession:
    """One model, from its first training step to the figures about its last one.

    Args:
        name: one of :data:`agviz.demo.SUBJECTS`.
        steps: number of training steps, the recorded one included; None: what suits the model.
        plant_nan: give the model a part whose gradient is NaN in the recorded step.
        values: how much of gradients to record.
        provenance: record which line created every node, and what it saved for backward.
        engine: which engine runs, one of :data:`agviz_engine.engines.ENGINES`; the native one
            simulates no devices.

    Raises:
        agviz.errors.AgvizError: there is nothing to learn from on this machine.
    """

    def __init__(
        self,
        name: str,
        *,
        steps: int | None,
        plant_nan: bool,
        values: CaptureLevel = "health",
        provenance: bool = True,
        engine: str = AUTO,
    ) -> None:
        torch.manual_seed(0)
        subject: Subject = importlib.import_module(SUBJECTS[name]).build(plant_nan=plant_nan)
        self.subject = subject
        self.engine = choose(engine)
        """Which of them it is."""
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
        """All steps but the recorded one; gives the loss after each."""
        with self._placement, self.engine.installed(device_policy=self._placement):
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
            recorder.runs_on(self.engine.name)
            loss = self._forward(self.steps - 1)
            with self.engine.installed(
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

    def measure(self, rounds: int = 9, steps: int = 3) -> Overhead:
        """Training steps on the native engine, and recorded ones, some of each in turn.

        Nothing is simulated: nodes run on the thread that calls backward, as a user's would.
        Training goes on meanwhile, so the model is not afterwards what it was.
        """
        if self.subject.planted is not None:
            self.subject.planted.padded = 0
        times: list[tuple[_Times, _Times]] = []
        with tempfile.TemporaryDirectory() as folder:
            names, provenance = Names(), Provenance() if self._provenance else None
            with Recorder(
                Path(folder) / "measured.agviz",
                names=names,
                provenance=provenance,
                values=self._values,
            ) as recorder:
                for _ in range(1 + rounds):
                    native = self._timed(steps)
                    with (
                        names,
                        provenance or nullcontext(),
                        self.engine.installed(recorder, nonfinite_check=self._values != "none"),
                    ):
                        times.append((native, self._timed(steps, recorder.flush)))
        del times[0]  # warms the caches
        return Overhead(
            steps=rounds * steps,
            native_backward_ns=statistics.median(native.backward / steps for native, _ in times),
            native_step_ns=statistics.median(native.step / steps for native, _ in times),
            backward=_ratio([ours.backward / native.backward for native, ours in times]),
            step=_ratio([ours.step / native.step for native, ours in times]),
            writing=_ratio([ours.elsewhere / native.step for native, ours in times]),
        )

    def _forward(self, step: int) -> Tensor:
        inputs, targets = self.subject.batches(step)
        return self.subject.loss(self.subject.model(inputs), targets)

    def _timed(self, steps: int, finish: Callable[[], object] = lambda: None) -> _Times:
        """CPU time in ns of so many training steps, and of all that they left to be done."""
        backward, begin, all_began = 0, time.thread_time_ns(), time.process_time_ns()
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = self._forward(self.steps - 1)
            before = time.thread_time_ns()
            loss.backward()
            backward += time.thread_time_ns() - before
            self._optimizer.step()
        step = time.thread_time_ns() - begin
        finish()
        here, everywhere = time.thread_time_ns() - begin, time.process_time_ns() - all_began
        return _Times(backward, step, max(0, everywhere - here))

    def _gradients(self) -> dict[str, Tensor | None]:
        return {name: p.grad for name, p in self.subject.model.named_parameters()}


def _same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def _ratio(ratios: list[float]) -> Ratio:
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, lower, upper)
