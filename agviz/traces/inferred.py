"""What of a trace is inferred, not seen: torch's own engine ran, and was observed from hooks.

Whoever shows an event, or what is worked out from events, asks :func:`is_inferred` whether to mark
it. Recordings of agviz's own engine hold nothing that is inferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz_engine.events import INFERRED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.traces.rows import GraphTaskRow, Meta
    from agviz_engine.events import Event

_NATIVE: Final = "native"
"""As in :mod:`agviz_engine.engines`, which needs more of the engine than a reader has."""
MARK: Final = "~"
"""Before a word or a number that is inferred."""
LEGEND: Final = f"{MARK} inferred, not seen: torch's own engine ran and was observed from hooks"
UNSEEN: Final = (
    "hooks are not seen where torch's own engine is observed, but for one that changed a gradient"
    " (inferred)"
)
WITHDRAWN: Final = "unknown: inference was withdrawn"
"""In place of a number of tasks in a queue, or of dependencies."""
_SHOWN: Final = 3


def is_observed(meta: Meta) -> bool:
    """Whether torch's own engine ran: queues, dependency counts and buffers are inferred."""
    return meta.engine == _NATIVE


def is_inferred(meta: Meta, event: type[Event] | Event) -> bool:
    """Whether an event of a recording was inferred; all of a kind are, or none."""
    kind = event if isinstance(event, type) else type(event)
    return meta.engine == _NATIVE and kind in INFERRED


def mark_of(meta: Meta) -> str:
    """What goes before something that is worked out from queues, dependencies and buffers."""
    return MARK if is_observed(meta) else ""


def withdrawals(tasks: Iterable[GraphTaskRow]) -> str:
    """In which backward passes inference was withdrawn, in a sentence; empty: in none."""
    found = [task.id for task in tasks if task.withdrawn_seq is not None]
    if not found:
        return ""
    shown = ", ".join(f"{number:,}" for number in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return (
        f"inference was withdrawn in backward pass{'es' * (len(found) > 1)} {shown}{more}: a node"
        " started that was not the next one, so what queues held and nodes waited for from there on"
        " is unknown"
    )
