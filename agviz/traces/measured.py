"""What was measured of gradients, on its way to the file: it waits among the events.

At level ``health`` every gradient that flows is measured; the numbers are kept under the ``seq`` of
the event that they belong to: NonFiniteChecked for what a node puts out, GradientAccumulated for
the gradient of a single root and for what several gradients that met came to, LeafAccumulated and
GradientCaptured for what came to a leaf or to a result of ``grad`` and may differ from what one
node put out. At level ``full`` the same gradients are copied as well (:mod:`agviz.traces.copies`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, cast, get_args

from agviz_engine.events import NodeStarted
from agviz_engine.instruments import Health

Values = Literal["none", "health", "full"]
"""How much of gradients is recorded besides shapes and bytes."""

LEVELS: Final[tuple[Values, ...]] = get_args(Values)


_PLACE: Final = NodeStarted.__annotations__
"""The five fields with which every event that concerns a node begins."""
_HEALTH: Final = {**Health.__annotations__, "shape": "str"}
"""As it stands in the file: the shape is a text."""
Measured: Final = cast("Any", NamedTuple)("Measured", [*_PLACE.items(), *_HEALTH.items()])
"""The health of a gradient as it waits for the writer: where it belongs, and its numbers."""


def measured(event: Any, health: Health) -> tuple[Any, ...]:
    """The fields of :data:`Measured` for an event that concerns a node."""
    return (*event[:4], event.node, *health.flat)
