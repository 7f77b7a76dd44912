"""The Python API: ``agviz.record`` around a training step, ``agviz.Trace`` to read what it wrote.

    with agviz.record("step.agviz"):
        loss = model(batch)
        loss.backward()

The forward belongs inside too: names of modules and parameters, and the lines that created the
nodes, come from it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agviz.errors import AgvizError, DrawingError, TraceError
from agviz.trace.names import Names
from agviz.trace.provenance import Provenance
from agviz.trace.reader import Trace
from agviz.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from agviz.trace.measured import Values
    from agviz_engine import DevicePolicy

__all__ = ["AgvizError", "DrawingError", "Trace", "TraceError", "record"]


@contextlib.contextmanager
def record(
    path: str | PathLike[str],
    *,
    values: Values = "health",
    device_policy: DevicePolicy | None = None,
    nonfinite_check: bool = True,
    provenance: bool = True,
) -> Iterator[Recorder]:
    """Run the block's backward passes, in all threads, on agviz's engine and record them.

    Args:
        path: the file to write; an older trace of this name is replaced.
        values: ``health`` to measure every gradient (counts of NaN, infinities and zeros, min, max,
            mean, norm), ``none`` to leave that.
        device_policy: maps nodes to device threads; by default the device a node really is on.
        nonfinite_check: look for NaN and Inf in what every node puts out.
        provenance: keep the line that created every node, and what it saved for backward.

    Raises:
        agviz.errors.TraceError: the file can't be written to.
        agviz_engine.UnsupportedTorchError: this torch lacks something that the engine needs.
    """
    import agviz_engine

    with (
        Names() as names,
        Provenance() if provenance else contextlib.nullcontext() as origins,
        Recorder(path, names=names, provenance=origins, values=values) as recorder,
        agviz_engine.installed(
            recorder, device_policy=device_policy, nonfinite_check=nonfinite_check
        ),
    ):
        yield recorder
