"""What was measured of gradients, on its way to the file: it waits among the events.

At level ``health`` every gradient that flows is measured; the numbers are kept under the ``seq`` of
the event that they belong to: NonFiniteChecked for what a node puts out, GradientAccumulated for
the gradient of a single root, LeafAccumulated and GradientCaptured for what came to a leaf or to a
result of ``grad`` and may differ from what one node put out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from agviz_engine.health import Health

Values = Literal["none", "health"]
"""How much of gradients is recorded besides shapes and bytes."""

LEVELS: Final[tuple[Values, ...]] = get_args(Values)


class Measured(NamedTuple):
    """The health of a gradient as it waits for the writer; the first five fields as in events."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    dtype: str
    shape: str
    device: str
    layout: str
    numel: int
    nbytes: int
    numbers: int
    nan: int
    posinf: int
    neginf: int
    zero: int
    min: float | None
    max: float | None
    mean: float | None
    norm: float | None
    unknown: str


def measured(event: Any, health: Health) -> tuple[Any, ...]:
    """The fields of :class:`Measured` for an event that concerns a node."""
    shape = "" if health.shape is None else str(list(health.shape))
    return (*event[:4], event.node, health.dtype, shape, *health[2:])
