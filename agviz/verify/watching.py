"""Noting the order in which nodes run, on either engine."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, cast

from agviz_engine.instruments import Instrument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.graph import Node

    from agviz.verify.calls import BackwardCall
    from agviz_engine import events
    from agviz_engine.instruments import Live


@contextlib.contextmanager
def watched_natively(call: BackwardCall) -> Iterator[None]:
    """Note the order in which the native engine runs the nodes of ``call``: a hook on each."""
    handles = []
    for node in call.labels:

        def note(_gradients: object, node: Node = node) -> None:
            call.ran(threading.get_ident(), node)

        handle = cast("Any", node).register_prehook(note)
        handle.hooks_dict_ref().move_to_end(handle.id, last=False)
        handles.append(handle)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Watcher(Instrument):
    """Notes the order in which our engine runs the nodes of calls."""

    def __init__(self) -> None:
        self._expected = _Expected()
        self._by_task: dict[int, BackwardCall] = {}

    @contextlib.contextmanager
    def watched(self, call: BackwardCall) -> Iterator[None]:
        """The graph task that begins next on this thread is that of ``call``."""
        call.seen = False
        self._expected.call = call
        try:
            yield
        finally:
            self._expected.call = None
            self._by_task = {task: of for task, of in self._by_task.items() if of is not call}

    def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
        """A call got its number."""
        call, self._expected.call = self._expected.call, None
        if call is not None:
            call.seen = True
            self._by_task[event.graph_task] = call

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        """A node was taken up."""
        call = self._by_task.get(event.graph_task)
        if call is not None:
            call.ran(event.thread, cast("Any", live.node).node)

    def node_skipped(self, event: events.NodeSkipped, _live: Live) -> None:
        """A node was taken up for its incoming gradient only: natively its hooks do not run."""
        call = self._by_task.get(event.graph_task)
        if call is not None and event.reason == "captured":
            call.order[event.thread].pop()

    def node_failed(self, event: events.NodeFailed, live: Live) -> None:
        """A node raised, maybe before the native engine would have called its hooks."""
        call = self._by_task.get(event.graph_task)
        if call is not None:
            call.failed_at = call.labels.get(cast("Any", live.node).node, "")

    def hook_called(self, event: events.HookCalled, _live: Live) -> None:
        """A hook of the program was called."""
        call = self._by_task.get(event.graph_task)
        if call is not None:
            call.hooks += 1


class _Expected(threading.local):
    call: BackwardCall | None = None
