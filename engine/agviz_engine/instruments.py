"""Instruments: observers of the engine, indexed by event so that unobserved events cost nothing.

The design follows trio's instruments. An :class:`Instrument` has one optional method per kind of
event; the :class:`Registry` keeps, for each kind, the tuple of methods that observe it. The engine
looks at the registry first: what nobody observes is neither emitted nor built.

What an instrument raises is reported once, and it is disabled; no gradient changes by that. No lock
of the engine is held while an instrument runs, so it may block; that is what pausing is. An
instrument changes what runs only on request: :meth:`Live.replace_input`, :meth:`Live.skip_hooks`
and ``Engine.run_next``, each followed by an ``Intervened`` event.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from agviz_engine.emissions import JOURNALED
from agviz_engine.errors import comes_from_outside
from agviz_engine.events import EVENT_TYPES, Event

if TYPE_CHECKING:
    from torch import Tensor

    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz_engine")


def method_name(event_type: type[Event]) -> str:
    """Name of the Instrument method for ``event_type``: ``QueuePush`` -> ``queue_push``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


_METHODS: Final = tuple(method_name(event_type) for event_type in EVENT_TYPES)
_OF_EVENTS: Final = tuple(zip(EVENT_TYPES, _METHODS, strict=True))
_NOT_JOURNALED: Final = tuple(each for each in _OF_EVENTS if each[0] not in JOURNALED)
_JOURNALED_METHODS: Final = tuple(method_name(event_type) for event_type in JOURNALED)


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
        ``gradient_measured``: the gradient."""
        self.health: Any = None
        """For ``gradient_measured``: what the measurer found."""
        self.saved: tuple[Any, ...] = ()
        """For ``saved_measured``: what the measurer found."""
        self.callback: Callable[[], None] | None = None
        self.replaced: list[tuple[int, Tensor]] = []
        """Slots of ``inputs`` that were replaced since ``NodeStarted``, with what was there before;
        the last one at the end."""
        self.skips_hooks = False

    def replace_input(self, slot: int, gradient: Tensor) -> None:
        """While ``NodeStarted`` is observed: give the node another gradient than the one that came.

        Args:
            slot: input number; a gradient must have come there.
            gradient: of the same shape, dtype, device and layout. It may be the one that came,
                changed in place.

        Raises:
            TypeError, RuntimeError: it does not fit, with the words that torch has for hooks.
        """
        from agviz_engine.python_hook import check_single_result

        def replacement() -> None:
            """Replaces a hook in those words."""

        before = self.inputs[slot]
        check_single_result(before, gradient, replacement)
        self._put(slot, gradient)
        self.replaced.append((slot, cast("Tensor", before)))

    def undo_replacement(self) -> int | None:
        """Give the node again what it was to be given before the last replacement.

        Returns:
            The input number; None: nothing was replaced.
        """
        if not self.replaced:
            return None
        slot, before = self.replaced.pop()
        self._put(slot, before)
        return slot

    def replaced_slots(self) -> list[int]:
        """The input numbers of what was replaced, in their order, each once."""
        return sorted({slot for slot, _ in self.replaced})

    def _put(self, slot: int, gradient: Tensor) -> None:
        self.inputs = (*self.inputs[:slot], gradient, *self.inputs[slot + 1 :])

    def skip_hooks(self) -> None:
        """While ``NodeStarted`` is observed: have none of the node's Python hooks called this time.

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

    The engine measures nothing itself. The first instrument that has one brings a :class:`Measurer`
    along, which is asked where an instrument has a :attr:`health_journal` or a method
    ``gradient_measured(self, event, live)``: it passes rows to the one, and the event, with
    ``live.gradient`` and ``live.health``, to the other. Both come after the row of the event in the
    journal and before the event itself, so that whoever stops at an event finds what was measured
    for it. The event is ``NonFiniteChecked`` for an output of a node;
    ``GradientAccumulated`` for the gradient of a single root and for a sum; ``LeafAccumulated`` for
    a ``.grad`` and ``GradientCaptured`` for a result of ``grad``, both only where they may differ
    from what one node put out; ``HookCalled`` for something non-finite that a hook gave in place of
    finite gradients; ``Intervened`` for a gradient that an instrument replaced.

    Where it has a method ``saved_measured(self, event, live)``, the measurer calls it where a node
    puts out a non-finite gradient though all that it was given were finite: ``event`` is the first
    such ``NonFiniteChecked``, ``live.saved`` what the node had saved and ``live.outputs`` what it
    put out. It comes before that event.
    """

    registry: Registry | None = None
    """Where it was installed last."""
    journal: Journal | None = None
    """Gets the rows of what happens with nearly every node; None: the events instead."""
    health_journal: Journal | None = None
    """Gets the rows of what is measured; None: nothing."""
    measurer: Callable[[Registry], Measurer] | None = None
    """Makes what measures gradients for the instruments of a registry; None: it brings none."""
    isolator: Isolator | None = None
    """Looks at how nodes come to what they put out; None: nobody does."""
    kinds: Container[type[Event]] | None = None
    """Events that ``any_event`` gets; None: all. Call :meth:`Registry.reindex` after a change."""

    def lost(self, error: Exception) -> None:
        """The engine failed to observe and removed this instrument: no event follows.

        Args:
            error: what it failed with, which is on the log.
        """


own_packages: Final[set[str]] = {"agviz_engine"}
"""Packages whose frames are the engine's: one whose code the engine calls adds itself."""
Observer = Callable[[Any, Live], None]
Journal = Callable[[Sequence[Any]], None]
"""Takes rows that follow each other; it must not raise."""


class Measurer(Protocol):
    """Measures gradients while the engine has them, and passes on what it finds."""

    def outputs(
        self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None], now: int
    ) -> Sequence[int]:
        """A node put out ``outputs`` at ``now`` (ns), and still has what it saved.

        What is emitted of it has that time: measuring is none of the node's.

        Returns:
            ``held_bytes`` of each; -1: that did not come to light.
        """

    def look(self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None]) -> None:
        """Look at a custom Function's node that torch runs and then releases itself.

        What is found waits in ``graph_task.looked`` until :meth:`outputs` is called.
        """

    def given(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        gradient: Tensor,
        row: tuple[int, ...],
        consumer: NodeRef,
    ) -> None:
        """A gradient arrived that no node put out as it is: the root's, or a sum.

        Args:
            graph_task: of the nodes.
            ref: the node under way.
            gradient: what arrived.
            row: of its arrival, in the journal.
            consumer: the node that gets it.
        """

    def replaced(self, graph_task: GraphTask, ref: NodeRef, gradient: Tensor, event: Event) -> None:
        """An instrument gave ``gradient`` in place of an incoming one."""

    def result(self, graph_task: GraphTask, ref: NodeRef, gradient: Tensor, event: Event) -> None:
        """A ``.grad`` or a result of ``grad`` may not be what one node put out."""

    def hook(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        event: Event,
        given: Sequence[Tensor | None],
        gave: Sequence[Tensor | None],
    ) -> None:
        """A hook gave other gradients than it was given."""


class Isolator(Protocol):
    """Looks at how nodes come to what they put out."""

    def run(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        inputs: Sequence[Tensor | None],
        body: Callable[[], Any],
    ) -> Any:
        """Run a node by calling ``body`` once; what that raises goes up, and nothing else.

        Args:
            graph_task: of the node.
            ref: the node, which still has what it saved when ``body`` returns.
            inputs: the gradients that it gets; those that come, before hooks, where the node is a
                custom Function's.
            body: runs it.

        Returns:
            What ``body`` did.
        """


class Sampler(Protocol):
    """Chooses among the calls of backward and grad."""

    def wants(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call that no other is around is observed.

        Args:
            args: of ``run_backward``, unchecked.
            kwargs: the same.
        """


_generations = itertools.count(1)


class Registry:
    """All installed instruments, and for each kind of event the methods that observe it.

    The attribute named after an event (:func:`method_name`) is a tuple of observers; an empty
    tuple means that the event need not be built.
    """

    graph_task_begun: tuple[Observer, ...]
    dependencies_computed: tuple[Observer, ...]
    queue_push: tuple[Observer, ...]
    queue_pop: tuple[Observer, ...]
    node_started: tuple[Observer, ...]
    node_finished: tuple[Observer, ...]
    node_failed: tuple[Observer, ...]
    node_skipped: tuple[Observer, ...]
    hook_called: tuple[Observer, ...]
    dependency_decremented: tuple[Observer, ...]
    gradient_accumulated: tuple[Observer, ...]
    gradient_captured: tuple[Observer, ...]
    leaf_accumulated: tuple[Observer, ...]
    non_finite_checked: tuple[Observer, ...]
    saved_tensors_released: tuple[Observer, ...]
    final_callback_queued: tuple[Observer, ...]
    final_callback_run: tuple[Observer, ...]
    graph_task_finished: tuple[Observer, ...]
    graph_task_failed: tuple[Observer, ...]
    worker_started: tuple[Observer, ...]
    worker_stopped: tuple[Observer, ...]
    shutdown_task_pushed: tuple[Observer, ...]
    delegated: tuple[Observer, ...]
    intervened: tuple[Observer, ...]
    delegated_failed: tuple[Observer, ...]
    inference_withdrawn: tuple[Observer, ...]
    gradient_measured: tuple[Observer, ...]
    saved_measured: tuple[Observer, ...]
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
    the root), ``ENDED``, LeafAccumulated, NonFiniteChecked; a measurer observes deliveries."""
    takes_dispatched: bool
    deliveries_dispatched: bool
    ends_dispatched: bool
    """Whether anybody observes their events, and not only their rows."""
    dispatches_nodes: bool
    """Whether anybody gets the events of nodes, queues and gradients one by one."""
    measurer: Measurer | None
    """Measures gradients; None: nobody wants that, or no instrument brings one."""
    isolator: Isolator | None
    """Looks at how nodes come to what they put out; None: nobody does."""

    def __init__(self) -> None:
        self._instruments: tuple[Instrument, ...] = ()
        self.sampler: Sampler | None = None
        """Chooses the calls of backward that are observed; None: all are."""
        self.generation = next(_generations)
        """Another with every instrument that comes or goes, and of no other registry; threads
        announce themselves anew."""
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
            self.generation = next(_generations)
            self.reindex()

    def remove(self, instrument: Instrument) -> None:
        """Take ``instrument`` out; one that is not installed is ignored."""
        left = tuple(i for i in self._instruments if i is not instrument)
        if len(left) == len(self._instruments):
            return
        self._instruments = left
        if instrument.registry is self:
            instrument.registry = None
        self.generation = next(_generations)
        self.reindex()

    def replace(self, instrument: Instrument, other: Instrument) -> None:
        """Install ``other`` in the place of ``instrument``, as the last."""
        self._instruments = tuple(i for i in self._instruments if i is not instrument)
        if instrument.registry is self:
            instrument.registry = None
        self.add(other)

    def reindex(self) -> None:
        """Look anew which events, journals and measurements the instruments want."""
        vars(self).update(self._observers())
        self.gradient_measured = self._with("gradient_measured")
        self.saved_measured = self._with("saved_measured")
        self.journal = _fan_out(self._with("journal"))
        self.health_journal = _fan_out(self._with("health_journal"))
        has_journal = self.journal is not None
        self.pushes = has_journal or bool(self.queue_push)
        self.takes_dispatched = bool(self.queue_pop or self.node_started)
        self.deliveries_dispatched = bool(self.dependency_decremented or self.gradient_accumulated)
        self.ends_dispatched = bool(self.saved_tensors_released or self.node_finished)
        self.ends = has_journal or self.ends_dispatched
        self.leaves = has_journal or bool(self.leaf_accumulated)
        self.checks = has_journal or bool(self.non_finite_checked)
        self.dispatches_nodes = any(getattr(self, name) for name in _JOURNALED_METHODS)
        self.isolator = next(iter(self._with("isolator")), None)
        measurers = self._with("measurer")
        is_wanted = self.health_journal is not None or self.gradient_measured
        self.measurer = measurers[0](self) if measurers and is_wanted else None
        self.takes = has_journal or self.takes_dispatched
        self.deliveries = has_journal or self.deliveries_dispatched or self.measurer is not None

    def lose(self, error: Exception) -> None:
        """Remove all instruments, because what they are given would have gaps from here on."""
        for instrument in self._instruments:
            self.remove(instrument)
            instrument.lost(error)

    def _observers(self) -> dict[str, tuple[Observer, ...]]:
        """Who observes each kind of event, by the name of its method."""
        found: dict[str, tuple[Observer, ...]] = dict.fromkeys(_METHODS, ())
        for instrument in self._instruments:
            kinds, of_any = instrument.kinds, getattr(instrument, "any_event", None)
            for event_type, name in _NOT_JOURNALED if instrument.journal else _OF_EVENTS:
                own = getattr(instrument, name, None)
                if own is None and (kinds is None or event_type in kinds):
                    own = of_any
                if own is not None:
                    found[name] = (*found[name], own)
        return found

    def _with(self, name: str) -> tuple[Any, ...]:
        found = (getattr(one, name, None) for one in self._instruments)
        return tuple(method for method in found if method is not None)

    def dispatch(self, observers: tuple[Observer, ...], event: Event, live: Live) -> None:
        """Call ``observers``; one that raises is reported on the log and its instrument removed."""
        for observer in observers:
            try:
                observer(event, live)
            except Exception as error:
                if comes_from_outside(error):
                    raise
                instrument = getattr(observer, "__self__", None)
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
