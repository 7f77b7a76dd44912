"""What a debugged program's engine keeps so that its passes can go back to an earlier node."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from agviz.debugger.node_facts import LiveNode
from agviz.errors import AgvizError
from agviz.measure.saved_tensors import raw_saved
from agviz_engine import events
from agviz_engine.api import engine, is_installed
from agviz_engine.rewind import CantGoBackError, GoBack, Rewind
from agviz_engine.tape import Tape

if TYPE_CHECKING:
    from agviz.debugger.debugger import Observers
    from agviz.debugger.node_facts import DebuggedRecording
    from agviz.debugger.stops import Stop
    from agviz_engine.node import NodeRef
    from agviz_engine.rewind import WayBack

_RAW: Final = "_raw_saved_"
_FROM: Final = (
    *(events.NodeStarted, events.NodeFinished, events.NodeFailed, events.HookCalled),
    *(events.QueuePush, events.QueuePop, events.Intervened, events.GradientCaptured),
    *(events.DependencyDecremented, events.GradientAccumulated, events.LeafAccumulated),
    *(events.NonFiniteChecked, events.SavedTensorsReleased),
)
"""Events at which the engine is in the midst of a node, which can be unwound."""


def keep(recording: DebuggedRecording, observers: Observers, most_bytes: int) -> None:
    """Keep from now on what going back needs; nothing is kept where torch's engine is observed.

    Args:
        recording: of this process.
        observers: where its instruments are put.
        most_bytes: bound of what is held.
    """
    if not is_installed():
        return
    tape = Tape()
    engine().rewind = Rewind(
        most_bytes, saved=_saved, tape=tape, label=functools.partial(_label, recording)
    )
    observers.add(tape)


def keep_no_more() -> None:
    """In a child made by fork, which is not debugged."""
    rewind = engine().rewind if is_installed() else None
    if rewind is not None:
        engine().rewind = None
        if rewind.tape is not None:
            engine().registry.remove(rewind.tape)


def way_back(stop: Stop, node: int | None) -> tuple[WayBack, GoBack]:
    """What it means to go back from a stop, and what its thread has to raise to do so.

    Args:
        stop: at the pass.
        node: index of the node before which to stop; None: the one that ran last.

    Raises:
        AgvizError: that can't be done.
    """
    task = stop.live.graph_task
    if task is None or not isinstance(stop.event, _FROM) or task.id != stop.event.graph_task:
        raise AgvizError(
            "a pass goes back from a stop at one of its nodes, and this stop is at none;"
            " stop before a node first"
        )
    if task.history is None:
        raise AgvizError(
            "nothing was kept of this pass that going back needs"
            + ("" if engine().rewind else "; start the program with: agviz run --live --back")
        )
    try:
        way = task.history.way_back(node)
    except CantGoBackError as error:
        raise AgvizError(str(error)) from None
    return way, GoBack(task, way.number)


def _label(recording: DebuggedRecording, ref: NodeRef) -> str:
    """A node in a sentence: ``AccumulateGrad of 0.weight (node 3)``."""
    facts = LiveNode(ref, recording)
    place = f" of {facts.parameter}" if facts.parameter else ""
    if facts.module and not place:
        place = f" in {facts.module}"
    return f"{facts.name}{place} (node {ref.index})"


def _saved(ref: NodeRef) -> list[Tensor] | None:
    """The tensors that a node has saved, but for parameters, whose memory is there anyway.

    None where hooks of the program unpack some of them.
    """
    found: list[Tensor] = []
    for name in _names(type(ref.node)):
        try:
            value = raw_saved(ref.node, name)
        except (RuntimeError, AttributeError):
            continue  # released already
        for one in value if isinstance(value, tuple | list) else (value,):
            if one.unpack_hook is not None:
                return None
            data = one.data
            if isinstance(data, Tensor) and not (data.requires_grad and data.is_leaf):
                found.append(data)
    return found


def _names(node_type: type[Any]) -> tuple[str, ...]:
    names = _known.get(node_type)
    if names is None:
        names = tuple(name for name in dir(node_type) if name.startswith(_RAW))
        if not hasattr(node_type, "_forward_cls"):  # programs make types, and let go of them
            _known[node_type] = names
    return names


_known: dict[type[Any], tuple[str, ...]] = {}
