"""Training steps of small models, forward and backward apart, in recordings that go on.

A sample is some steps in a row, after some that warm up: what begins a recording, as opening its
file, is paid once in a training. Samples of two contenders are taken one right after the other, in
turns first and second.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

import agviz
import agviz_engine
from agviz.debugger.debugger import Debugger
from benchmarks.contenders import NATIVE, PEERS, Contender
from benchmarks.measure import Ratio, Sample, Times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.small_models import Model

WARM_UP: Final = 2
STEPS: Final = 3


@contextlib.contextmanager
def _attached() -> Iterator[None]:
    """A recording with its defaults, and a viewer that wants to stop nowhere."""
    with agviz.trace() as recorded:
        debugger = Debugger(recorded._recording)
        debugger.install(recorded._recording.observers)
        debugger.attach(lambda *_: None)
        try:
            yield
        finally:
            debugger.detach()


ENGINE: Final = Contender("engine alone", agviz_engine.installed)
BARE: Final = Contender(
    "recorded, no values, no provenance",
    lambda: agviz.trace(values="none", provenance=False),
)
DEFAULTS: Final = Contender("recorded with defaults", agviz.trace)
FORWARD: Final = Contender("recorded, --check-forward", lambda: agviz.trace(check_forward=True))
ATTACHED: Final = Contender("debugger attached", _attached)
CONTENDERS: Final = (
    ENGINE,
    BARE,
    DEFAULTS,
    FORWARD,
    *(peer for peer in PEERS if peer.title != "native + DebugMode"),
)
TARGETS: Final = {
    ENGINE.title: (None, 2.0),
    DEFAULTS.title: (2.0, 4.0),
    ATTACHED.title: (None, 1.02),
}
"""The largest ratios of CPU time that are aimed at, of forward and backward; None: none is."""


class Steps(NamedTuple):
    """What steps of one contender cost, as a multiple of another's."""

    forward: Ratio
    """CPU time of the calling thread."""
    forward_wall: Ratio
    backward: Ratio
    backward_wall: Ratio

    @classmethod
    def of(cls, taken: Sequence[tuple[Sample, Sample]]) -> Steps:
        """From pairs of samples."""
        forwards = [(a.forward, b.forward) for a, b in taken]
        backwards = [(a.backward, b.backward) for a, b in taken]
        return cls(
            forward=Ratio.of([b.thread / a.thread for a, b in forwards]),
            forward_wall=Ratio.of([b.wall / a.wall for a, b in forwards]),
            backward=Ratio.of([b.thread / a.thread for a, b in backwards]),
            backward_wall=Ratio.of([b.wall / a.wall for a, b in backwards]),
        )


class Compared(NamedTuple):
    """One model."""

    nodes: int
    """That run in a step."""
    rounds: int
    native: Sample
    """Of a step, medians."""
    ratios: dict[str, Steps]
    """To native, by contender."""
    attached: Steps
    """A debugger attached that has nothing to stop for, to the same recording alone."""


def measure(model: Model, rounds: int) -> Compared:
    """All contenders on a model, on one thread."""
    torch.set_num_threads(1)
    taken: dict[str, list[tuple[Sample, Sample]]] = {each.title: [] for each in CONTENDERS}
    attached = []
    for number in range(0 if rounds > 1 else 1, rounds + 1):  # the first warms up
        found = {each.title: _pair(model, NATIVE, each, number) for each in CONTENDERS}
        beside = _pair(model, DEFAULTS, ATTACHED, number)
        if number:
            attached.append(beside)
            for title, pair in found.items():
                taken[title].append(pair)
    natives = [native for pairs in taken.values() for native, _ in pairs]
    return Compared(
        nodes=nodes(model),
        rounds=rounds,
        native=_median(natives),
        ratios={title: Steps.of(pairs) for title, pairs in taken.items()},
        attached=Steps.of(attached),
    )


def nodes(model: Model) -> int:
    """Nodes that run in one step."""
    seen = set()
    for loss in model.losses:
        stack = [loss().grad_fn]
        while stack:
            node = stack.pop()
            if node is not None and node not in seen:
                seen.add(node)
                stack += [child for child, _ in node.next_functions]
    return len(seen)


def _pair(model: Model, one: Contender, other: Contender, number: int) -> tuple[Sample, Sample]:
    if number % 2:
        return sample(model, one), sample(model, other)
    second = sample(model, other)
    return sample(model, one), second


def sample(model: Model, contender: Contender) -> Sample:
    """The steps of one sample together."""
    with contender.around():
        for _ in range(WARM_UP):
            _step(model, contender)
        gc.collect()
        found = [_step(model, contender) for _ in range(STEPS)]
    total = found[0]
    for each in found[1:]:
        total = Sample(total.forward.plus(each.forward), total.backward.plus(each.backward))
    return total


def _step(model: Model, contender: Contender) -> Sample:
    for leaf in model.leaves:
        leaf.grad = None
    found = Sample(Times(0, 0, 0), Times(0, 0, 0))
    for make in model.losses:
        begin = Times.now()
        loss = make()
        contender.prepare(loss)
        middle = Times.now()
        loss.backward()
        end = Times.now()
        forward, backward = begin.until(middle), middle.until(end)
        found = Sample(found.forward.plus(forward), found.backward.plus(backward))
    return found


def _median(samples: Sequence[Sample]) -> Sample:
    """Of one step, each figure for itself."""
    forwards, backwards = zip(*samples, strict=True)
    return Sample(_median_of(forwards), _median_of(backwards))


def _median_of(stretches: Sequence[Times]) -> Times:
    return Times(*(int(statistics.median(each) / STEPS) for each in zip(*stretches, strict=True)))
