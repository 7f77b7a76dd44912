"""Who runs against the native engine: ours, ours recording, and what else one could debug with."""

from __future__ import annotations

import contextlib
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils._debug_mode import DebugMode

import agviz_engine
from agviz.record.names import Names
from agviz.record.recorder import Recorder
from agviz_engine.observe.observing_engine import observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.autograd.graph import Node

    from agviz.record.capture_level import CaptureLevel


def _nothing(_loss: Tensor) -> None:
    pass


class Contender(NamedTuple):
    """A way to run forward and backward."""

    title: str
    around: Callable[[], AbstractContextManager[object]]
    """Entered before the forward and left after the backward, both outside of the measured time."""
    prepare: Callable[[Tensor], None] = _nothing
    """Called between forward and backward, and counted as part of the forward."""


@contextlib.contextmanager
def _recording(
    values: CaptureLevel,
    installed: Callable[[Recorder], AbstractContextManager[object]] = agviz_engine.installed,
) -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Names() as names,
        Recorder(Path(folder) / "benchmark.agviz", names=names, values=values) as recorder,
        installed(recorder),
    ):
        yield


def _hook_every_node(loss: Tensor) -> None:
    seen: set[Node] = set()
    stack = [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            node.register_hook(_hook)
            stack += [child for child, _ in node.next_functions]


def _hook(_outputs: object, _inputs: object) -> None:
    pass


NATIVE = Contender("native", nullcontext)
OURS = Contender("agviz, no instrument", agviz_engine.installed)
RECORDING = (
    Contender("agviz, recording events", lambda: _recording("none")),
    Contender("agviz, recording events and health", lambda: _recording("health")),
    Contender("agviz, recording events and values", lambda: _recording("full")),
)
OBSERVING = (
    Contender("native engine, observed, events", lambda: _recording("none", observed)),
    Contender("native engine, observed, events and health", lambda: _recording("health", observed)),
)
PEERS = (
    Contender("native + detect_anomaly", lambda: torch.autograd.set_detect_anomaly(True)),
    Contender(
        "native + torch.profiler",
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ),
    Contender("native + DebugMode", DebugMode),
    Contender("native + a hook on every node", nullcontext, _hook_every_node),
)
