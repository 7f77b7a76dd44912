"""Instruments: observers of the engine, indexed by event so that unobserved events cost nothing.

The design follows trio's instruments. An :class:`Instrument` has one optional method per kind of
event; the :class:`Registry` keeps, for each kind, the tuple of methods that listen. The engine
looks at the registry first: what nobody observes is neither emitted nor built.

What an instrument raises is reported once, and it is disabled; no gradient changes by that. No lock
of the engine is held while an instrument runs, so it may block; that is what pausing is. An
instrument changes what runs only on request: :meth:`Live.replace_input`, :meth:`Live.skip_hooks`
and ``Engine.run_next``, each followed by an ``Intervened`` event.
"""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine.emissions import JOURNALED
from agviz_engine.events import EVENT_TYPES, Event

if TYPE_CHECKING:
    from torch import Tensor

    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz_engine")

clock = time.monotonic_ns


def method_name(event_type: type[Event]) -> str:
    """Name of the Instrument method that hears ``event_type``: ``QueuePush`` -> ``queue_push``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


_METHODS: Final = tuple(method_name(event_type) for event_type in EVENT_TYPES)


class Health(NamedTuple):
    """What was measured of one gradient, by :func:`agviz_engine.health.measure`."""

    dtype: str
    """Without ``torch.``."""
    shape: tuple[int, ...] | None
    """None: not known (nested, symbolic)."""
    device: str
    layout: str
    """Without ``torch.``."""
    numel: int
    nbytes: int
    """Bytes that the elements take up in memory; an expanded tensor has less than its shape says,
    a sparse one more than its values. 0 where that is not known."""
    numbers: int
    """Number of real numbers that were looked at."""
    nan: int
    posinf: int
    neginf: int
    zero: int
    """Number that are 0, of either sign."""
    min: float | None
    """Of the finite ones, as are all that follow; None where there are none."""
    max: float | None
    mean: float | None
    norm: float | None
    """Euclidean norm."""
    unknown: str
    """Why there are no numbers (``numbers`` is 0 then); empty where there are."""

    @property
    def tensor_type(self) -> tuple[Any, ...]:
        """What the tensor is like: the fields up to ``numbers``, and ``unknown``."""
        return (*self[:_FIGURES], self.unknown)

    @property
    def figures(self) -> tuple[Any, ...]:
        """The fields from ``nan`` to ``norm``."""
        return self[_FIGURES:-1]

    @property
    def is_finite(self) -> bool:
        """Whether nothing non-finite was found."""
        return not (self.nan or self.posinf or self.neginf)


_FIGURES: Final = Health._fields.index("nan")


@functools.lru_cache(maxsize=4096)
def text_of_shape(shape: tuple[int, ...] | None) -> str:
    """Like ``[8, 64]``; empty where ``shape`` is not known."""
    return "" if shape is None else str(list(shape))


class SavedValue(NamedTuple):
    """Something that a node had saved, by :func:`agviz_engine.saved_values.measured`."""

    name: str
    """As in torch's ``_saved_<name>``; ``tensors[0]`` where they stand in a list."""
    tensor: Tensor | None
    """The tensor itself, where it could be looked at."""
    value: str | None
    """Text of what is no tensor; else None."""
    health: Health | None
    """None where it is no tensor."""


class Looked(NamedTuple):
    """What was measured of a custom Function's node right after it ran."""

    outputs: Sequence[Tensor | None]
    health: list[Health | None]
    """Of each output; None for an undefined one."""
    saved: tuple[SavedValue, ...]
    """What it had saved, where an output is not finite."""


class Live:
    """The live objects behind an event. Valid only while the instrument's method runs.

    One per thread and graph task; its fields change from event to event. ``inputs`` are the
    gradients the current node received and ``outputs`` those it produced, either may hold None
    for undefined gradients. Fields that make no sense for an event hold what they held before.
    """

    __slots__ = (
        "callback",
        "gradient",
        "graph_task",
        "health",
        "inputs",
        "node",
        "outputs",
        "replaced",
        "saved",
        "skips_hooks",
    )

    def __init__(self, graph_task: GraphTask | None) -> None:
        self.graph_task = graph_task
        self.node: NodeRef | None = None
        self.inputs: Sequence[Tensor | None] = ()
        self.outputs: Sequence[Tensor | None] = ()
        self.gradient: Tensor | None = None
        """For ``GradientAccumulated``: what the buffer's slot holds after the event; for
        ``gradient_measured``: what was measured."""
        self.health: Health | None = None
        """For ``gradient_measured``."""
        self.saved: tuple[SavedValue, ...] = ()
        """For ``saved_measured``."""
        self.callback: Callable[[], None] | None = None
        self.replaced: set[int] = set()
        """Slots of ``inputs`` that were replaced since ``NodeStarted``."""
        self.skips_hooks = False

    def replace_input(self, slot: int, gradient: Tensor) -> None:
        """While ``NodeStarted`` is heard: give the node another gradient than the one that came.

        Args:
            slot: input number; a gradient must have come there.
            gradient: of the same shape, dtype, device and layout. It may be the one that came,
                changed in place.

        Raises:
            TypeError, RuntimeError: it does not fit, with the words that torch has for hooks.
        """
        from agviz_engine.function_hook import check_single_result

        def replacement() -> None:
            """Stands for a hook in those words."""

        check_single_result(self.inputs[slot], gradient, replacement)
        self.inputs = (*self.inputs[:slot], gradient, *self.inputs[slot + 1 :])
        self.replaced.add(slot)

    def skip_hooks(self) -> None:
        """While ``NodeStarted`` is heard: have none of the node's Python hooks called this time.

        Those made in C++ (``retain_grad``, DDP's) are called all the same.
        """
        self.skips_hooks = True


class Instrument:
    """Base class of observers: define a method for each event of interest.

    The methods are named after the events (:func:`method_name`) and take the event and the
    :class:`Live` view: ``def node_started(self, event: NodeStarted, live: Live) -> None``. A method
    ``any_event(self, event, live)`` gets every event that has no method of its own.

    An instrument with a :attr:`journal` gets the rows of :mod:`agviz_engine.emissions` instead of
    the events that come with nearly every node (``JOURNALED``), before any event is dispatched.

    Where an instrument has a :attr:`health_journal` or a method ``gradient_measured(self, event,
    live)``, the engine measures gradients: it passes rows of :data:`NUMBERS` values to the one, and
    the event, with ``live.gradient`` and ``live.health``, to the other. Both come after the row of
    the event in the journal and before the event itself, so that whoever stops at an event finds
    what was measured for it. The event is ``NonFiniteChecked`` for an output of a node;
    ``GradientAccumulated`` for the gradient of a single root and for a sum; ``LeafAccumulated`` for
    a ``.grad`` and ``GradientCaptured`` for a result of ``grad``, both only where they may differ
    from what one node put out; ``HookCalled`` for something non-finite that a hook gave in place of
    finite gradients; ``Intervened`` for a gradient that an instrument replaced.

    Where it has a method ``saved_measured(self, event, live)``, the engine calls it where a node
    puts out a non-finite gradient though all that it was given were finite: ``event`` is the first
    such ``NonFiniteChecked``, and ``live.saved`` what the node had saved. It comes before that
    event.
    """

    registry: Registry | None = None
    """Where it was installed last."""
    journal: Journal | None = None
    """Gets the rows of what happens with nearly every node; None: the events instead."""
    health_journal: Journal | None = None
    """Gets the rows of what is measured; None: nothing."""
    kinds: Container[type[Event]] | None = None
    """Events that ``any_event`` gets; None: all. Call :meth:`Registry.reindex` after a change."""


Listener = Callable[[Any, Live], None]
Journal = Callable[[Sequence[Any]], None]
"""Takes rows that follow each other; it must not raise."""
NUMBERS: Final = 11
"""Values in a row of what was measured: ``seq`` of the emission that the gradient belongs to, graph
task, :attr:`Health.tensor_type`, and :attr:`Health.figures`."""


class Registry:
    """All installed instruments, and for each kind of event the methods that hear it.

    The attribute named after an event (:func:`method_name`) is a tuple of listeners; an empty
    tuple means that the event need not be built.
    """

    graph_task_begun: tuple[Listener, ...]
    dependencies_computed: tuple[Listener, ...]
    queue_push: tuple[Listener, ...]
    queue_pop: tuple[Listener, ...]
    node_started: tuple[Listener, ...]
    node_finished: tuple[Listener, ...]
    node_failed: tuple[Listener, ...]
    node_skipped: tuple[Listener, ...]
    hook_called: tuple[Listener, ...]
    dependency_decremented: tuple[Listener, ...]
    gradient_accumulated: tuple[Listener, ...]
    gradient_captured: tuple[Listener, ...]
    leaf_accumulated: tuple[Listener, ...]
    non_finite_checked: tuple[Listener, ...]
    saved_tensors_released: tuple[Listener, ...]
    final_callback_queued: tuple[Listener, ...]
    final_callback_run: tuple[Listener, ...]
    graph_task_finished: tuple[Listener, ...]
    graph_task_failed: tuple[Listener, ...]
    worker_started: tuple[Listener, ...]
    worker_stopped: tuple[Listener, ...]
    shutdown_task_pushed: tuple[Listener, ...]
    delegated: tuple[Listener, ...]
    intervened: tuple[Listener, ...]
    delegated_failed: tuple[Listener, ...]
    gradient_measured: tuple[Listener, ...]
    saved_measured: tuple[Listener, ...]
    """Both are no events of their own, see :class:`Instrument`."""

    journal: Journal | None
    """Takes the rows of emissions; None: no instrument has one."""
    health_journal: Journal | None
    """Takes the rows of what is measured."""
    pushes: bool
    takes: bool
    deliveries: bool
    ends: bool
    leaves: bool
    checks: bool
    """Whether anybody observes the emissions QueuePush, ``TOOK``, ``DELIVERED`` (or the gradient of
    the root), ``ENDED``, LeafAccumulated, NonFiniteChecked."""
    measures: bool
    """Whether gradients are measured."""

    def __init__(self) -> None:
        self._instruments: tuple[Instrument, ...] = ()
        self.generation = 0
        """Grows with every instrument that comes or goes; threads announce themselves anew."""
        self.reindex()

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """The installed instruments, in order of installation."""
        return self._instruments

    def add(self, instrument: Instrument) -> None:
        """Install ``instrument``; installing it twice has no further effect."""
        if not any(instrument is known for known in self._instruments):
            self._instruments = (*self._instruments, instrument)
            instrument.registry = self
            self.generation += 1
            self.reindex()

    def remove(self, instrument: Instrument) -> None:
        """Take ``instrument`` out; one that is not installed is ignored."""
        self._instruments = tuple(i for i in self._instruments if i is not instrument)
        if instrument.registry is self:
            instrument.registry = None
        self.generation += 1
        self.reindex()

    def reindex(self) -> None:
        """Look anew which events, journals and measurements the instruments want."""
        for event_type, name in zip(EVENT_TYPES, _METHODS, strict=True):
            setattr(self, name, self._listeners(event_type, name))
        self.gradient_measured = self._with("gradient_measured")
        self.saved_measured = self._with("saved_measured")
        self.journal = _fan_out(self._with("journal"))
        self.health_journal = _fan_out(self._with("health_journal"))
        has_journal = self.journal is not None
        self.pushes = has_journal or bool(self.queue_push)
        self.takes = has_journal or bool(self.queue_pop or self.node_started)
        self.deliveries = has_journal or bool(
            self.dependency_decremented or self.gradient_accumulated
        )
        self.ends = has_journal or bool(self.saved_tensors_released or self.node_finished)
        self.leaves = has_journal or bool(self.leaf_accumulated)
        self.checks = has_journal or bool(self.non_finite_checked)
        self.measures = self.health_journal is not None or bool(self.gradient_measured)

    def _listeners(self, event_type: type[Event], name: str) -> tuple[Listener, ...]:
        found = []
        for instrument in self._instruments:
            own = getattr(instrument, name, None)
            if own is None and (instrument.kinds is None or event_type in instrument.kinds):
                own = getattr(instrument, "any_event", None)
            if own is not None and not (instrument.journal and event_type in JOURNALED):
                found.append(own)
        return tuple(found)

    def _with(self, name: str) -> tuple[Any, ...]:
        found = (getattr(one, name, None) for one in self._instruments)
        return tuple(method for method in found if method is not None)

    def dispatch(self, listeners: tuple[Listener, ...], event: Event, live: Live) -> None:
        """Call ``listeners``; one that raises is reported on the log and its instrument removed."""
        for listener in listeners:
            try:
                listener(event, live)
            except Exception:
                instrument = getattr(listener, "__self__", None)
                log.exception(
                    "instrument %s raised on %s and is disabled; gradients are not affected",
                    type(instrument).__name__,
                    type(event).__name__,
                )
                if isinstance(instrument, Instrument):
                    self.remove(instrument)


def _fan_out(journals: tuple[Journal, ...]) -> Journal | None:
    if len(journals) < 2:
        return journals[0] if journals else None

    def journal(rows: Sequence[Any]) -> None:
        for each in journals:
            each(rows)

    return journal
