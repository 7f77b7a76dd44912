"""Measure gradients where instruments want that: what a node puts out, sums, leaves, results.

The row of an event is in the journal first, then what was measured for it, then the event itself is
dispatched: whoever stops at an event finds what was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor

from agviz.measure import saved
from agviz.measure.health import FINITE, found_at_once, health_in, health_of
from agviz_engine.emissions import ABSENT, CHECKED, expand, next_seq
from agviz_engine.emit import Emitter
from agviz_engine.thread_state import here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.measure.values import Health, Looked
    from agviz_engine.events import Event
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.instruments import Registry
    from agviz_engine.node import NodeRef


class Measuring:
    """Measures gradients and passes on what it finds: the ``Measurer`` of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._emit = Emitter(registry)

    def outputs(  # noqa: C901 - calls for each output would cost more than what they do
        self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None], now: int
    ) -> list[int]:
        """Measure every output of a node, which still has what it saved: its non-finite check.

        What is emitted has the time ``now`` (ns) at which the outputs were there.

        Returns:
            ``held_bytes`` of each; -1: that did not come to light.
        """
        registry = self._registry
        rows, journal = registry.journal, registry.health_journal
        looked: Looked | None = None
        if graph_task.looked:
            looked = graph_task.looked.pop(ref.index, None)
        is_dispatched = registry.gradient_measured or registry.non_finite_checked
        task, thread, node = graph_task.id, here.thread.thread_id, ref.index
        has_saved = False
        held: list[int] = []
        for gradient in outputs:
            output, at_once = len(held), None
            held.append(-1)
            if gradient is None:
                continue
            known = looked.health[output] if looked and looked.outputs[output] is gradient else None
            if known is None:
                at_once = found_at_once(gradient)
            if at_once is not None:
                plain, found = at_once
                held[output] = plain.nbytes
                if found[FINITE] == plain.numel and not is_dispatched and journal is not None:
                    seq = next_seq()  # most are: no Health is built
                    if rows is not None:
                        rows((seq, now, thread, task, CHECKED, node, output, 0, 0, 0, ABSENT))
                    journal((seq, task, plain.tensor_type, 0, 0, 0, *found[FINITE + 1 :]))
                    continue
            if known is None:
                known = health_of(gradient) if at_once is None else health_in(*at_once)
            wrong = known.nan, known.posinf, known.neginf
            row = self._emit.row(graph_task, CHECKED, ref, output, *wrong, at=now)
            self._found(graph_task, ref, gradient, known, row)
            if any(wrong):
                if not has_saved:
                    has_saved = True
                    self._saved(graph_task, ref, outputs, row, looked)
                edge = ref.next_edges[output] if output < len(ref.next_edges) else None
                if edge is not None:
                    graph_task.nonfinite.add(edge[0].index)
            if registry.non_finite_checked:
                self._emit.dispatch(graph_task, ref, row, gradient)
        return held

    def look(self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None]) -> None:
        """Measure what a custom Function's node put out while it still has what it saved."""
        graph_task.looked[ref.index] = saved.look(ref, outputs)

    def given(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        gradient: Tensor,
        row: tuple[int, ...],
        consumer: NodeRef,
    ) -> None:
        """Measure a gradient that no node put out as it is: the root's, or a sum."""
        health = health_of(gradient)
        self._found(graph_task, ref, gradient, health, row)
        if not health.is_finite:
            graph_task.nonfinite.add(consumer.index)

    def replaced(self, graph_task: GraphTask, ref: NodeRef, gradient: Tensor, event: Event) -> None:
        """Measure what an instrument gave in place of an incoming gradient."""
        health = health_of(gradient)
        self._found(graph_task, ref, gradient, health, event)
        graph_task.nonfinite.discard(ref.index)
        if not health.is_finite:
            graph_task.nonfinite.add(ref.index)

    def result(self, graph_task: GraphTask, ref: NodeRef, gradient: Tensor, event: Event) -> None:
        """Measure a ``.grad`` or a result of ``grad`` that may not be what one node put out."""
        self._found(graph_task, ref, gradient, health_of(gradient), event)

    def hook(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        event: Event,
        given: Sequence[Tensor | None],
        gave: Sequence[Tensor | None],
    ) -> None:
        """Measure the first non-finite gradient that a hook gave in place of finite ones."""
        wrong = _first_nonfinite(gave)
        if wrong is not None and _first_nonfinite(given) is None:
            self._found(graph_task, ref, wrong, health_of(wrong), event)
            graph_task.nonfinite.add(ref.index)

    def _saved(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        outputs: Sequence[Tensor | None],
        row: Sequence[int],
        looked: Looked | None,
    ) -> None:
        """Measure what a node had saved that made something non-finite out of finite gradients."""
        registry = self._registry
        if ref.index not in graph_task.nonfinite and registry.saved_measured:
            live = self._emit.live(graph_task, ref)
            live.saved = saved.measured(ref) if looked is None else looked.saved
            live.outputs = outputs
            registry.dispatch(registry.saved_measured, expand(row)[0], live)
            live.saved = live.outputs = ()

    def _found(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        gradient: Tensor,
        health: Health,
        of: Event | tuple[int, ...],
    ) -> None:
        """Pass on what was found; ``of`` is the event that the gradient belongs to, or its row."""
        registry = self._registry
        if registry.health_journal is not None:
            registry.health_journal((of[0], graph_task.id, health.tensor_type, *health.figures))
        if registry.gradient_measured:
            live = self._emit.live(graph_task, ref)
            live.gradient, live.health = gradient, health
            event = expand(of)[-1] if type(of) is tuple else cast("Event", of)
            registry.dispatch(registry.gradient_measured, event, live)
            live.gradient = live.health = None


def _first_nonfinite(gradients: Sequence[Tensor | None]) -> Tensor | None:
    return next(
        (g for g in gradients if isinstance(g, Tensor) and not health_of(g).is_finite), None
    )
