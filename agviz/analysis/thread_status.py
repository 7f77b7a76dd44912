"""What threads do in backward passes that have not ended, and which nodes wait for what."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.source import source_line
from agviz.traces.held import held_ns
from agviz.traces.rows import NodeStatus, ThreadRow, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import (
        DumpedCall,
        DumpedThread,
        DumpedWait,
        DumpRow,
        Frame,
        GraphTaskRow,
        HeldRow,
        NodeRow,
    )

_ENGINE: Final = re.compile(r"(?:^|/)(?:agviz_engine|agviz/measure)/[^/]+\.py$")
WAITS: Final = ("ready_queue", "leaving", "stand_in")
"""Kinds of calls in which a thread waits for others."""
_NATIVE: Final = "native_run.py"
"""The file of the engine in which torch runs a node with its hooks."""

HOOKS: Final = {
    "tensor_pre": "tensor hook",
    "pre": "pre-hook",
    "post": "post-hook",
    "post_accumulate_grad": "post-accumulate-grad hook",
    "final_callback": "final callback",
}
"""Kinds of what the engine calls besides nodes, in words."""


class Wait(NamedTuple):
    """A node that waits for gradients, or in a ReadyQueue."""

    node: NodeRow
    missing: tuple[NodeRow, ...]
    """The nodes that have to deliver a gradient to it; empty: it is in a ReadyQueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStatus:
    """What one thread of the recorded process does."""

    name: str
    thread: ThreadRow | None
    """None: it takes no part in what is under way."""
    running: tuple[NodeRow, ...] = ()
    """The nodes it is in, each in a reentrant backward pass inside the one before."""
    for_ns: int | None = None
    """How long it has been in the last of them."""
    waits: bool = False
    """Whether it waits at its ReadyQueue for others."""
    waits_for: int | None = None
    """The graph task that it called and whose end it waits for there; None: none."""
    calls: tuple[DumpedCall, ...] = ()
    """What of the engine it is in the midst of, each inside the one before."""
    stack: tuple[Frame, ...] = ()
    """Outermost frame first; empty where it was not recorded since it came here."""
    source: str = ""
    """The text of the line :attr:`frame`; empty where the file is not there."""
    wait: DumpedWait | None = None
    """What it waits for inside that; None: for nothing, or it is not known."""
    native_id: int = 0
    """Thread id of the operating system; 0: not known."""

    @property
    def call(self) -> DumpedCall | None:
        """The hook or final callback that it is in the midst of; None: none, or not known."""
        calls = [call for call in self.calls if call.kind not in WAITS]
        return calls[-1] if calls and calls[-1].kind != "node" else None

    @property
    def depth(self) -> int:
        """Number of backward passes that are each inside a node of the one before."""
        return max(len(self.running) - 1, 0)

    @property
    def frame(self) -> Frame | None:
        """Where in the user's code it is, inside what the engine called; None where not there."""
        return visible(inside_engine(self.stack))

    @property
    def is_in_torch(self) -> bool:
        """Whether it is in torch's C++ code, as far as its stack shows."""
        return bool(self.stack) and not inside_engine(self.stack)

    @property
    def is_with_native_hooks(self) -> bool:
        """The same, in an AccumulateGrad that torch runs with hooks made in C++, such as DDP's."""
        is_leaf = bool(self.running) and self.running[-1].is_leaf
        return is_leaf and self.is_in_torch and self.stack[-1].file.endswith(_NATIVE)

    @property
    def is_held(self) -> bool:
        """Whether it takes part, and does not wait at its ReadyQueue."""
        return self.thread is not None and not self.waits

    @property
    def title(self) -> str:
        """``thread 1 (pt_autograd_0)``, ``MainThread``."""
        return self.name if self.thread is None else f"thread {self.thread.id} ({self.name})"


def find_thread_statuses(
    trace: Trace,
    tasks: Sequence[GraphTaskRow],
    nodes: Mapping[int, Sequence[NodeRow]],
    dump: DumpRow | None,
    now_ns: int,
    held: Sequence[HeldRow] = (),
) -> list[ThreadStatus]:
    """What each thread does: held ones first, those that take no part last.

    Args:
        trace: the trace.
        tasks: the graph tasks under way.
        nodes: of each.
        dump: what the threads were doing since the last event; None: that was not recorded.
        now_ns: the moment that is described.
        held: where a debugger stopped threads, which is no time in a node.
    """
    running: defaultdict[int, list[NodeRow]] = defaultdict(list)
    for rows in nodes.values():
        for node in rows:
            if node.status is NodeStatus.RUNNING and node.thread is not None:
                running[node.thread].append(node)
    threads = {thread.id: thread for thread in trace.threads}
    stopped = {row.thread for row in held if row.end_ns is None}
    taking_part = {*running, *(task.thread for task in tasks)}
    dumped = {} if dump is None else {seen.native_id: seen for seen in dump.threads}
    for thread in threads.values():
        if thread.native_id in dumped and dumped[thread.native_id].calls:
            taking_part.add(thread.id)
    found = []
    for number in sorted(taking_part):
        thread = threads.get(number) or ThreadRow(number, f"thread {number}", -1, 0)
        inside = tuple(sorted(running[number], key=lambda node: node.start_ns or 0))
        began = inside[-1].start_ns if inside else None
        seen = dumped.pop(thread.native_id, None)
        called = [task for task in tasks if task.thread == number]
        waits = number not in stopped and _is_waiting(called, inside, seen)
        frame = None if seen is None else visible(inside_engine(seen.stack))
        found.append(
            ThreadStatus(
                name=thread.name,
                thread=thread,
                running=inside,
                for_ns=None if began is None else now_ns - began - held_ns(held, began, now_ns),
                waits=waits,
                waits_for=called[-1].id if waits and called else None,
                calls=() if seen is None else seen.calls,
                stack=() if seen is None else seen.stack,
                source="" if frame is None else source_line(frame, trace.path),
                wait=None if seen is None else seen.wait,
                native_id=thread.native_id,
            )
        )
    others = map(outside_passes, dumped.values())
    return [*sorted(found, key=lambda status: not status.is_held), *others]


def outside_passes(seen: DumpedThread) -> ThreadStatus:
    """What a thread does that takes no part in a backward pass."""
    return ThreadStatus(
        name=seen.name, thread=None, stack=seen.stack, wait=seen.wait, native_id=seen.native_id
    )


def _is_waiting(
    called: Sequence[GraphTaskRow], running: Sequence[NodeRow], seen: DumpedThread | None
) -> bool:
    """Whether a thread waits at its ReadyQueue."""
    if seen is not None:
        return bool(seen.calls) and seen.calls[-1].kind in WAITS
    if not called:
        return False
    innermost = called[-1]
    if running:
        last = running[-1].graph_task, running[-1].index
        return (innermost.parent, innermost.parent_node) == last
    return innermost.executed < innermost.nodes


def named(call: DumpedCall) -> str:
    """A hook or callback by its name, and where that is defined."""
    where = "" if call.definition is None else f" ({call.definition.file}:{call.definition.line})"
    return f"{call.name or 'or several'}{where}"


def inside_engine(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """What lies inside the innermost frame of the engine."""
    own = [i for i, frame in enumerate(stack) if _ENGINE.search(frame.file)]
    return stack[own[-1] + 1 :] if own else stack


def find_waits(
    trace: Trace, tasks: Sequence[GraphTaskRow], nodes: Mapping[int, Sequence[NodeRow]]
) -> list[Wait]:
    """The nodes that wait: those in queues first, then by the number of gradients they lack.

    None of a graph task in which inference was withdrawn: it is not known.

    Args:
        trace: the trace.
        tasks: the graph tasks under way.
        nodes: of each.
    """
    waits = []
    for task in tasks:
        if task.withdrawn_seq is not None:
            continue
        found = nodes[task.id]
        missing = defaultdict(list)
        for edge in trace.edges(task.id):
            producer = found[edge.producer]
            if producer.status not in {NodeStatus.DONE, NodeStatus.SKIPPED}:
                missing[edge.consumer].append(producer)
        for node in found:
            if node.status is NodeStatus.READY:
                waits.append(Wait(node, ()))
            elif node.status is NodeStatus.WAITING and missing[node.index]:
                waits.append(Wait(node, tuple(missing[node.index])))
    return sorted(waits, key=lambda wait: (len(wait.missing), not _is_next(wait)))


def _is_next(wait: Wait) -> bool:
    return any(node.status is NodeStatus.RUNNING for node in wait.missing)
