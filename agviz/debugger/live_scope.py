"""What expressions see in a program that runs: gradients at an event, and parameters by name."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agviz.debugger.expressions import FACTS, TENSOR_METHODS, UnknownValueError, facts_of
from agviz.measure.health import measure, name_of, shape_of, unseen, unwrapped, why_unknown
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from agviz.debugger.bounds import Bound, Watched
    from agviz.debugger.expressions import Condition
    from agviz.debugger.log_text import LogText
    from agviz.record.names import Names
    from agviz_engine.events import Event
    from agviz_engine.instruments import Live


class LiveScope:
    """Values at an event; ask it within :func:`agviz.measure.health.unseen`.

    What torch computes for it is computed below autograd and everything the program could notice,
    draws no random number and writes to no tensor of the program. A number is awaited from the
    device of its tensor, and of no other.

    Args:
        names: of parameters.
        live: the live view at the event.
        gradient: which one the names of what was measured speak of, with its slot; None: there is
            none.
        leaves: parameters that are at hand, by name.
    """

    def __init__(
        self,
        names: Names,
        live: Live,
        gradient: tuple[int, Tensor] | None = None,
        leaves: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._names = names
        self._live = live
        self._gradient = gradient
        self._leaves = leaves or {}

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        if self._gradient is None:
            raise UnknownValueError("there is no gradient here that was measured")
        slot, gradient = self._gradient
        return facts_of(measure(gradient), slot)

    def fact(self, name: str) -> Any:
        """What was measured of the gradient at hand."""
        value = self._facts[name]
        if value is None:
            raise UnknownValueError(f"{name} of this gradient is not known")
        return value

    def parameter(self, name: str) -> Tensor:
        """A parameter that agviz knows by this name."""
        found = self._leaves.get(name)
        if found is None:
            found = self._names.find_parameter(name)
        if found is None:
            raise UnknownValueError(
                f"no parameter {name} is known; one is known once its module was called"
            )
        return found

    def slot(self, what: str, number: int) -> Tensor | None:
        """An input or output of the node."""
        several = self._live.inputs if what == "input" else self._live.outputs
        if not 0 <= number < len(several):
            raise UnknownValueError(f"there is no {what}[{number}] at this event")
        return several[number]

    def grad(self, tensor: Tensor) -> Tensor | None:
        """What is in ``.grad``; other than torch's, it warns of nothing."""
        return tensor.grad if tensor.is_leaf else None

    def of(self, tensor: Tensor, what: str) -> Any:
        """What torch says of a tensor."""
        plain = unwrapped(tensor)
        if what in FACTS:
            return _fact(plain, what)
        if why := why_unknown(plain):
            raise UnknownValueError(f"its elements can't be looked at: {why}")
        found = getattr(plain.detach(), what)()
        if what in TENSOR_METHODS or isinstance(found, int | float):
            return found
        return found.item()


def _fact(tensor: Tensor, what: str) -> Any:
    if what == "ndim":
        return tensor.dim()
    if what == "dtype":
        return name_of(tensor.dtype)
    if what == "device":
        return str(tensor.device)
    shape = shape_of(tensor)
    if shape is None:
        raise UnknownValueError("its shape is not known")
    return shape


def gradients_at(event: Event, live: Live) -> Iterator[tuple[int, Tensor]]:
    """The gradients that an event is about, with their slots."""
    match event:
        case events.NodeStarted():
            several = live.inputs
        case events.NodeFinished():
            several = live.outputs
        case events.NonFiniteChecked(output=slot) | events.GradientAccumulated(slot=slot):
            several = ()
            if live.gradient is not None:
                yield slot, live.gradient
        case events.LeafAccumulated():
            several = () if live.node is None else (live.node.node.variable.grad,)
        case _:
            several = ()
    for slot, gradient in enumerate(several):
        if gradient is not None:
            yield slot, gradient


def scope_at(names: Names, event: Event, live: Live) -> LiveScope:
    """What expressions see at an event; bare names speak of its first gradient."""
    return LiveScope(names, live, next(gradients_at(event, live), None))


def holds(condition: Condition, names: Names, event: Event, live: Live) -> bool:
    """Whether a condition is true; one that speaks of the gradient, of one of those at an event."""
    with unseen():
        if not condition.speaks_of_gradient:
            return condition.holds(LiveScope(names, live))
        return any(
            condition.holds(LiveScope(names, live, each)) for each in gradients_at(event, live)
        )


def passes(
    watched: Watched, bound: Bound, names: Names, event: Event, live: Live, name: str
) -> str:
    """What passes the bound of a data breakpoint at an event; empty: nothing.

    Args:
        watched: what it saw last.
        bound: what has to be passed.
        names: of parameters.
        event: the event.
        live: the live view of it.
        name: of the parameter that has just got its gradient; empty: none has.
    """
    leaves = {name: live.node.node.variable} if name and live.node is not None else None
    with unseen():
        return watched.passes(bound, LiveScope(names, live, leaves=leaves), event.graph_task)


def written(text: LogText, names: Names, event: Event, live: Live) -> str:
    """The text of a log point at an event."""
    with unseen():
        return text.written(scope_at(names, event, live))
