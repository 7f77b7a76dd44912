"""Instruments: observers of the engine, indexed by event so that nobody pays for unheard events.

The design follows trio's instruments. An :class:`Instrument` has one optional method per kind of
event; the registry keeps, for each kind, the tuple of methods that listen. The engine looks at
that tuple first: where it is empty, no event object is built.

What an instrument raises is reported once, and it is disabled; no gradient changes by that. No lock
of the engine is held while an instrument runs, so it may block; that is what pausing is. Only where
it asks for it does anything run otherwise than without it: :meth:`Live.replace_input`,
:meth:`Live.skip_hooks` and ``Engine.run_next``, each told by ``Intervened``.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine import events
from agviz_engine.events import EVENT_TYPES, Event

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz_engine")

clock = time.monotonic_ns
_numbers: Final = itertools.count()
next_seq: Callable[[], int] = _numbers.__next__
next_two: Callable[[], tuple[int, int]] = zip(*[_numbers] * 2, strict=False).__next__
"""Two numbers that follow each other whatever other threads do: no Python code runs in between."""
next_three: Callable[[], tuple[int, int, int]] = zip(*[_numbers] * 3, strict=False).__next__
next_four: Callable[[], tuple[int, ...]] = zip(*[_numbers] * 4, strict=False).__next__
next_five: Callable[[], tuple[int, ...]] = zip(*[_numbers] * 5, strict=False).__next__


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
    def is_finite(self) -> bool:
        """Whether nothing non-finite was found."""
        return not (self.nan or self.posinf or self.neginf)


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
    :class:`Live` view: ``def node_started(self, event: NodeStarted, live: Live) -> None``.
    A method ``any_event(self, event, live)`` hears every event that has no method of its own.

    Where an instrument has a method ``gradient_measured(self, event, live)``, gradients are
    measured, and it is called right after the event that they belong to, with ``live.gradient`` and
    ``live.health``; right before it where what a node puts out is not finite, so that whoever stops
    at that event finds it noted. The event is ``NonFiniteChecked`` for what a node puts out;
    ``GradientAccumulated`` for the gradient of a single root; ``LeafAccumulated`` for a ``.grad``
    and ``GradientCaptured`` for a result of ``grad``, both only where they may differ from what one
    node put out; ``HookCalled`` for something non-finite that a hook gave in place of finite
    gradients.

    Where it has a method ``saved_measured(self, event, live)`` besides, that is called where a node
    puts out a non-finite gradient though all that it was given were finite; ``event`` is the
    ``NonFiniteChecked`` of one such output, and ``live.saved`` what the node had saved. It comes
    before the first of these events, or after all where only ``note_flat`` hears them.
    """

    registry: Registry | None = None
    """Where it was installed last."""


Listener = Callable[[Any, Live], None]
NoteFlat = Callable[[Sequence[Any]], None]
"""Takes rows of events, or of numbers: :data:`HOT`."""


HOT = (
    *(events.QueuePush, events.QueuePop, events.NodeStarted, events.NodeFinished),
    *(events.DependencyDecremented, events.GradientAccumulated, events.SavedTensorsReleased),
    events.LeafAccumulated,
)
"""Events that come with nearly every node. Where an instrument is the only one and its
``any_event`` hears them all, its ``note_flat(rows)``, if it has one, gets them as rows that follow
each other, each of :data:`ROW` values, instead: neither an event nor a live view is made. In a row
stand the four fields with which every event begins, its kind (the position in ``EVENT_TYPES``), its
node, the other fields in their order, and :data:`ABSENT` where there are no more. Some that happen
together are one row, a :class:`Burst`. There may be no rows. ``note_flat`` must not raise. A
LeafAccumulated whose gradient is measured is an event all the same, unless there is a
``note_numbers``.

Where ``note_numbers(rows)`` is there besides, it gets what was measured of a gradient that is
finite and plain, for a LeafAccumulated or a NonFiniteChecked, in place of the call of
``gradient_measured``, right after ``note_flat`` got their rows (also that of the NonFiniteChecked)
and on the same thread. A row has :data:`NUMBERS` values, the ``seq`` of the event, the
:class:`Plain` kind of tensor, and ``zero``, ``min``, ``max``, ``mean`` and ``norm``.
"""
ROW: Final = 11
NUMBERS: Final = 7
ABSENT: Final = -(2**63)
"""Fills a row; a number, because Python gives SQLite a None ten times as slowly as a number."""


class Plain:
    """A kind of tensor whose elements compiled code reads one after the other."""

    __slots__ = ("dtype", "facts", "may_be_freed", "measure", "nbytes", "numel")

    def __init__(
        self,
        dtype: torch.dtype,
        measure: Callable[..., None],
        facts: tuple[Any, ...],
        *,
        may_be_freed: bool,
    ) -> None:
        self.dtype = dtype
        self.measure = measure
        """Of :data:`agviz_engine.health_kernel.MEASURE`."""
        self.facts = facts
        """What a :class:`Health` of one begins with, up to ``numbers``."""
        self.numel, self.nbytes = facts[4], facts[5]
        self.may_be_freed = may_be_freed
        """Whether its address would not show that its storage was resized to nothing."""


class Burst(NamedTuple):
    """Hot events that happen together: told as one row, its place in BURSTS instead of a kind."""

    events: tuple[type[Event], ...]
    """They have ``seq`` one after the other, and the same thread and graph task."""
    fields: tuple[str, ...]
    """What stands in the row besides the kind: ``seq``, ``time_ns``, ``thread``, ``graph_task``,
    ``node``, and other fields of the events, once each; where the queue's size is told of two,
    ``size_before`` is that of the QueuePush. All have one time, but where there is ``took``, those
    after the NodeStarted come so many ns later. Of a node that hands on its first output and has no
    other, ``node`` is that which gets it and ``producer`` that which has ended."""

    def source(self, event: type[Event], field: str) -> str | int:
        """Which of ``fields`` gives a field of one of the events, or what it always is."""
        if field == "size" and event is events.QueuePush and "size_before" in self.fields:
            return "size_before"
        if field == "node" and "producer" in self.fields and "producer" not in event._fields:
            return "producer"
        return field if field in self.fields else 0


TAKEN: Final = len(EVENT_TYPES)
NEXT: Final = TAKEN + 1
ENDED: Final = TAKEN + 2
HANDED: Final = TAKEN + 3
DONE: Final = TAKEN + 4
RELEASED_AND_DONE: Final = TAKEN + 5
CHECKED_AND_DONE: Final = TAKEN + 6
CHECKED_RELEASED_AND_DONE: Final = TAKEN + 7
LEAF: Final = TAKEN + 8
LEAF_TAKEN: Final = TAKEN + 9
LEAF_NEXT: Final = TAKEN + 10
_HEAD: Final = ("seq", "time_ns", "thread", "graph_task", "node")
_FACT: Final = (*_HEAD, "producer", "remaining", "slot", "added", "nbytes")
_CHECK, _RELEASE = (events.NonFiniteChecked,), (events.SavedTensorsReleased,)
_HAND: Final = (events.DependencyDecremented, events.GradientAccumulated)
_END: Final = (events.NodeFinished, *_HAND)
_STEAL: Final = (events.NodeStarted, events.LeafAccumulated, events.NodeFinished)
_STOLEN: Final = (*_HEAD, "took", "queue", "size")
_END_FACT: Final = (*_HEAD, "producer", "remaining", "slot", "outputs", "nbytes")
BURSTS: Final = {
    TAKEN: Burst((events.QueuePop, events.NodeStarted), (*_HEAD, "queue", "size")),
    NEXT: Burst(
        (events.QueuePush, events.QueuePop, events.NodeStarted),
        (*_HEAD, "queue", "size_before", "size"),
    ),
    ENDED: Burst((events.SavedTensorsReleased, events.NodeFinished), (*_HEAD, "outputs")),
    HANDED: Burst(_HAND, _FACT),
    DONE: Burst(_END, _END_FACT),
    RELEASED_AND_DONE: Burst(_RELEASE + _END, _END_FACT),
    CHECKED_AND_DONE: Burst(_CHECK + _END, _END_FACT),
    CHECKED_RELEASED_AND_DONE: Burst(_CHECK + _RELEASE + _END, _END_FACT),
    LEAF: Burst(_STEAL, (*_HEAD, "took")),
    LEAF_TAKEN: Burst((events.QueuePop, *_STEAL), _STOLEN),
    LEAF_NEXT: Burst((events.QueuePush, events.QueuePop, *_STEAL), (*_STOLEN, "size_before")),
}
"""By what stands in place of a kind, behind the kinds of all events."""
_HOT_METHODS: Final = tuple(method_name(event_type) for event_type in HOT)


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

    flat: NoteFlat | None
    """Takes the place of the listeners of hot events, as numbers instead of an event."""
    flat_numbers: NoteFlat | None
    """The same for what is measured; None where ``flat`` is None."""

    def __init__(self) -> None:
        self._instruments: tuple[Instrument, ...] = ()
        self.generation = 0
        """Grows with every change; threads announce themselves anew to new instruments."""
        self._index()

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """The installed instruments, in order of installation."""
        return self._instruments

    def add(self, instrument: Instrument) -> None:
        """Install ``instrument``; installing it twice has no further effect."""
        if not any(instrument is known for known in self._instruments):
            self._instruments = (*self._instruments, instrument)
            instrument.registry = self
            self._index()

    def remove(self, instrument: Instrument) -> None:
        """Take ``instrument`` out; one that is not installed is ignored."""
        self._instruments = tuple(i for i in self._instruments if i is not instrument)
        if instrument.registry is self:
            instrument.registry = None
        self._index()

    def _index(self) -> None:
        self.generation += 1
        heard: dict[str, list[Listener]] = {name: [] for name in _METHODS}
        for instrument in self._instruments:
            any_event = getattr(instrument, "any_event", None)
            for name, listeners in heard.items():
                listener = getattr(instrument, name, None) or any_event
                if listener is not None:
                    listeners.append(listener)
        for name, listeners in heard.items():
            setattr(self, name, tuple(listeners))
        self.gradient_measured = self._listeners("gradient_measured")
        self.saved_measured = self._listeners("saved_measured")
        self.index_flat()

    def index_flat(self) -> None:
        """Ask the only instrument for its ``note_flat`` and ``note_numbers``, which may change."""
        self.flat = self._find_flat()
        numbers = [getattr(one, "note_numbers", None) for one in self._instruments]
        self.flat_numbers = None if self.flat is None else numbers[0]

    def _listeners(self, name: str) -> tuple[Listener, ...]:
        found = (getattr(one, name, None) for one in self._instruments)
        return tuple(listener for listener in found if listener is not None)

    def _find_flat(self) -> NoteFlat | None:
        if len(self._instruments) != 1:
            return None
        (instrument,) = self._instruments
        if any(hasattr(instrument, name) for name in _HOT_METHODS):
            return None
        return getattr(instrument, "note_flat", None)

    def emit(self, listeners: tuple[Listener, ...], event: Event, live: Live) -> None:
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
