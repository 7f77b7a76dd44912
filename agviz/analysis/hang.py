"""Backward passes that have not ended: what holds which thread, and what waits."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.blocked import FOREVER, why_it_waits
from agviz.analysis.place import described, place
from agviz.analysis.stopped import stopped_at
from agviz.analysis.thread_status import HOOKS, find_thread_statuses, find_waits, named
from agviz.traces.dumps import EXIT, STALL, TIMEOUT
from agviz.traces.held import held_ns
from agviz.traces.inferred import LEGEND, MARK, is_observed
from agviz.traces.rows import GraphTaskStatus, NodeStatus, visible
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.stopped import StoppedAt
    from agviz.analysis.thread_status import ThreadStatus, Wait
    from agviz.traces.reader import Trace
    from agviz.traces.rows import DumpedCall, DumpRow, Frame, GraphTaskRow, HeldRow, NodeRow

STILL_NS: Final = 5_000_000_000
"""A backward pass without an event for so long hangs."""
_MOST_SHOWN: Final = 5
_MOST_OTHERS: Final = 3
_ENOUGH_SAID: Final = 90
"""Words of an answer to which nothing is added that does not matter; 120 are its bound."""
_FEW: Final = 3
"""Threads in one state that are listed one by one; times that a line recurs without recursion."""
_MOST_THREADS: Final = 16
_OUTERMOST: Final = 8
_INNERMOST: Final = 56
"""Of very many graph tasks inside each other, those that are looked at."""
_UNDER_WAY: Final = {GraphTaskStatus.RUNNING, GraphTaskStatus.CUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Backward passes that have not ended, as they are; ``paragraph`` is the answer."""

    graph_task: int
    """The outermost call of backward or grad that has waited longest for its next event."""
    tasks: tuple[GraphTaskRow, ...]
    """Those that have not ended, outer ones before those inside them; of very many, the outermost
    and the innermost."""
    count: int
    """How many have not ended."""
    repeated: DumpedCall | None
    """The hook or callback that is under way most often, one inside the other; None: none is more
    than a few times."""
    call: Frame | None
    """The line that called ``graph_task``."""
    is_growing: bool
    """Whether the process is alive, and records."""
    is_closed: bool
    """Whether the recording came to a regular end."""
    recording_stopped: str
    """Why the recording stopped while the program went on, of which nothing is known; empty where
    it did not, or where the pass stood still before."""
    now_ns: int
    """The last moment that is known of."""
    still_ns: int
    """Time without an event of ``graph_task`` until then, but for that at a debugger's stops."""
    stop: StoppedAt | None
    """Where a debugger holds a thread, or did when the recording ended; None: nowhere."""
    held: tuple[HeldRow, ...]
    """All such stops, in order of time."""
    is_dumped: bool
    """Whether the stacks were recorded since."""
    has_stood: bool
    """Whether that was asked for, or came after it had stood still for long."""
    has_timed_out: bool
    """Whether it has taken longer than the recording was told that a pass may take."""
    is_exit: bool
    """Whether the program called ``os._exit`` then."""
    threads: tuple[ThreadStatus, ...]
    """The threads: held ones first, those that take no part last."""
    waits: tuple[Wait, ...]
    """The nodes that wait: those in queues first, then by the number of gradients they lack."""
    knows_all: bool
    """Whether the events of all nodes were recorded."""
    is_observed: bool
    """Whether torch's own engine ran: what is in queues is inferred."""

    @property
    def is_still(self) -> bool:
        """Whether nothing has happened for so long that nothing may happen any more."""
        return (self.has_stood and not self.is_exit) or self.still_ns >= STILL_NS

    @property
    def is_stopped(self) -> bool:
        """Whether a debugger holds it, and it did not hang before."""
        return self.stop is not None and not self.is_still

    @property
    def is_over_due(self) -> bool:
        """Whether something is wrong: it hangs, or its process ended before it did."""
        is_known = self.is_still or self.has_timed_out
        return is_known or not (self.is_growing or self.recording_stopped or self.is_left)

    @property
    def is_left(self) -> bool:
        """Whether all that is known is that it went on when the recording came to a regular end."""
        is_over = self.is_closed and not self.is_growing
        return is_over and not (
            self.is_still or self.is_exit or self.stop or self.recording_stopped
        )

    @property
    def frame(self) -> Frame | None:
        """The line to look at: where the first thread that is held is; else the call."""
        held = (status.frame for status in self.threads if status.is_held)
        return next((frame for frame in held if frame is not None), self.call)

    @property
    def heading(self) -> str:
        """What has not ended."""
        if self.is_stopped:
            stopped = f"stopped by the debugger at {self.stop}"
            cut = "" if self.is_growing else f" when the recording {self._ended}"
            is_ = "is" if self.is_growing else "was"
            return f"backward pass {self.graph_task} {is_} {stopped}{cut}"
        if self.is_growing:
            doing = "stands still" if self.is_still else "is under way"
            return f"backward pass {self.graph_task} {doing}"
        if self.is_exit:
            return f"backward pass {self.graph_task} was under way when the program called os._exit"
        did = "stood still" if self.is_still else "was under way"
        return f"backward pass {self.graph_task} {did} when the recording {self._ended}"

    @property
    def paragraph(self) -> str:
        """What each thread is in, what holds it, and what waits."""
        if self.recording_stopped:
            return (
                f"{' '.join(self._how_long())} The recording stopped there, not the program:"
                f" {self.recording_stopped}. What came after is not known."
            )
        parts = self._how_long(), self._stopped(), self._where()
        said = " ".join(sentence for part in parts for sentence in part)
        if FOREVER not in said:
            said = " ".join([said, *self._waiting()])
        return " ".join([said, *self._others(said)])

    def ran_ns(self, begin_ns: int) -> int:
        """Time since a moment, but for that at a debugger's stops."""
        return self.now_ns - begin_ns - held_ns(self.held, begin_ns, self.now_ns)

    def _how_long(self) -> Iterator[str]:
        task = next(task for task in self.tasks if task.id == self.graph_task)
        call = "" if self.call is None else f", called at {self.call},"
        still = f", the last {duration(self.still_ns)} without an event" if self.is_still else ""
        has = "has" if self.is_growing else "had"
        # Of a hang, the threads are looked at more and more rarely: the last look may be long ago.
        is_known = self.is_growing or self.is_closed or self.is_exit
        ran = ("" if is_known else "at least ") + duration(self.ran_ns(task.begin_ns))
        yield (
            f"Backward pass {task.id}{call} {has} run for {ran}{still}:"
            f" {task.executed:,} of {plural(task.nodes, 'node')} done."
        )

    def _stopped(self) -> Iterator[str]:
        if self.stop is None:
            return
        held = self.stop.held
        for_ = f" for {duration(ns)}" if (ns := self.now_ns - held.time_ns) > 0 else ""
        has = "has" if self.is_growing else "had"
        yield f"Thread {held.thread} {has} been held by the debugger{for_} ({held.reason})."

    def _is_reported(self, status: ThreadStatus) -> bool:
        """Whether all that is known of a thread is that a debugger holds it."""
        stopped = {row.thread for row in self.held if row.end_ns is None}
        return status.thread is not None and status.thread.id in stopped and not status.running

    @property
    def _ended(self) -> str:
        if self.recording_stopped:
            return "stopped"
        return "ended" if self.is_closed else "was cut off"

    def _where(self) -> Iterator[str]:
        if self.repeated is not None:
            kind = HOOKS.get(self.repeated.kind, self.repeated.kind)
            yield (
                f"The {kind} {named(self.repeated)} calls backward, in which it is called again:"
                f" {self.count - 1:,} reentrant backward passes are inside each other."
            )
        held = [
            status for status in self.threads if status.is_held and not self._is_reported(status)
        ]
        yield from self._held_threads(held)
        yield from self._callers(is_known=bool(held))
        if (
            not self.is_dumped
            and not self.is_stopped
            and any(status.running for status in self.threads)
        ):
            yield (
                "What a thread does inside a node is recorded once nothing has happened for a"
                " second."
            )

    def _held_threads(self, held: Sequence[ThreadStatus]) -> Iterator[str]:
        """What threads are in, and what they wait for, each once."""
        told = ""
        for status in held[:_MOST_SHOWN]:
            is_told = f"{status.name} is at " in told  # where others wait for it
            yield f"{_upper(status.title)} {self._holds(status, is_told=is_told)}."
            if not is_told and (why := " ".join(why_it_waits(status, self.threads))):
                told += why
                yield why
        if len(held) > _MOST_SHOWN:
            yield f"{len(held) - _MOST_SHOWN:,} more threads are in nodes."

    def _callers(self, *, is_known: bool) -> Iterator[str]:
        """Threads that called backward and wait for others.

        Args:
            is_known: whether it is told what holds others.
        """
        waiting = defaultdict(list)
        for status in self.threads:
            if status.waits_for is not None:
                waiting[_held_in(status) if status.running else ""].append(status)
        for around, callers in waiting.items():
            inside = f", inside {around}" if around else ""
            if len(callers) > _FEW:
                yield f"{len(callers):,} threads wait for others{inside}."
                continue
            for status in callers:
                what = f"the end of backward pass {status.waits_for}"
                if is_known and not status.running:
                    what = "that"
                yield f"{_upper(status.title)} waits for {what}{inside}."

    def _holds(self, status: ThreadStatus, *, is_told: bool) -> str:
        """What a thread is in, and where, unless that ``is_told``."""
        has_been = "is"
        if status.for_ns is not None and abs(status.for_ns - self.still_ns) > self.still_ns // 10:
            has_been = f"has been for {duration(status.for_ns)}"
        nested = f", at reentrant depth {status.depth:,}" if status.depth else ""
        is_shown = status.frame is not None and status.frame == self.frame
        if is_told and status.running:
            hook = "" if status.call is None else f", in the hook {status.call.name}"
            return f"is in {place(status.running[-1])}{hook}"
        now = _at(status.frame, "" if is_shown else status.source)
        if status.is_with_native_hooks:
            now = ", in torch's C++ code, with hooks made there, such as DDP's: look at other ranks"
        elif status.is_in_torch:
            now = ", in torch's C++ code"
        if not status.running:
            where = "at the begin or the end of a backward pass"
            if self.is_observed:  # a hook of the program may be called before that of the observer
                where = f"between two nodes, in hooks before the next one, or {where}"
            if status.call is not None:
                where = f"in {_held_in(status)}"
            return f"is {where}{now}"
        return f"{has_been} in {_held_in(status)}{nested}{now}"

    def _waiting(self) -> Iterator[str]:
        if not self.waits:
            return
        first = self.waits[0]
        why = "for its turn" + " (inferred)" * self.is_observed
        if first.missing:
            why = f"for the gradient of {_list([place(node) for node in first.missing], 2)}"
        if len(self.waits) == 1:
            yield f"{place(first.node)} waits {why}."
        else:
            yield f"{len(self.waits):,} nodes wait, {place(first.node)} first: {why}."

    def _others(self, said: str) -> Iterator[str]:
        """Where threads are that take no part, but for those of which that is ``said``."""
        if len(said.split()) > _ENOUGH_SAID:
            return  # the details have them
        others = [
            status
            for status in self.threads
            if status.thread is None and f"{status.name} is at " not in said
        ]
        frames = [(status.name, visible(status.stack)) for status in others]
        shown = [f"{name} is at {frame}" for name, frame in frames if frame is not None]
        if shown:
            more = f", and {len(shown) - _MOST_OTHERS} more" if len(shown) > _MOST_OTHERS else ""
            yield f"Of the other threads, {', '.join(shown[:_MOST_OTHERS])}{more}."

    def details(self) -> Iterator[str]:
        """What every thread does, line by line."""
        shown = self.tasks
        if len(shown) > 2 * _MOST_SHOWN:
            shown = (*shown[:_MOST_SHOWN], *shown[-_MOST_SHOWN:])
            yield f"{self.count:,} backward passes have not ended, of which {len(shown)} are shown"
        for task in shown:
            inside = f" inside backward pass {task.parent}" if task.parent >= 0 else ""
            yield (
                f"backward pass {task.id}{inside} has run for"
                f" {duration(max(0, self.ran_ns(task.begin_ns)))}:"
                f" {task.executed:,} of {task.nodes:,} nodes done"
            )
        for status in self.threads[:_MOST_THREADS]:
            yield from _thread_lines(status)
        if len(self.threads) > _MOST_THREADS:
            yield f"{len(self.threads) - _MOST_THREADS:,} more threads"
        yield from self._queue_lines()
        for task in shown:
            yield from self._wait_lines(task.id)
        if self.is_observed and self.waits:
            yield LEGEND
        if not self.knows_all:
            yield "not all nodes are recorded: more may be running, queued or waiting"

    def _queue_lines(self) -> Iterator[str]:
        queues = defaultdict(list)
        for wait in self.waits:
            if not wait.missing:
                queues[wait.node.queue].append(_node(wait.node))
        for queue, nodes in sorted(queues.items()):
            name = f"device {queue}" if queue >= 0 else "of the caller"
            yield f"{MARK * self.is_observed}ReadyQueue {name} holds {len(nodes):,}: {_list(nodes)}"

    def _wait_lines(self, graph_task: int) -> Iterator[str]:
        waits = [w for w in self.waits if w.missing and w.node.graph_task == graph_task]
        if waits:
            shown = [
                f"{_node(wait.node)} ({len(wait.missing)} of {wait.node.dependencies} gradients"
                f" missing, from {_list([_node(node) for node in wait.missing], 2)})"
                for wait in waits
            ]
            wait = "node waits" if len(waits) == 1 else "nodes wait"
            yield f"{len(waits):,} {wait} in backward pass {graph_task}: {_list(shown)}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; times in ns."""
        return {
            "kind": "hang",
            "graph_task": self.graph_task,
            "graph_tasks": [
                {
                    "graph_task": task.id,
                    "parent": task.parent if task.parent >= 0 else None,
                    "ran_ns": self.ran_ns(task.begin_ns),
                    "executed": task.executed,
                    "nodes": task.nodes,
                }
                for task in self.tasks
            ],
            "called_at": None if self.call is None else str(self.call),
            "growing": self.is_growing,
            "still_ns": self.still_ns,
            "stands_still": self.is_still,
            "recording_stopped": self.recording_stopped or None,
            "stopped": None if self.stop is None else self.stop.as_json(),
            "stacks_recorded": self.is_dumped,
            "threads": [_thread_json(status) for status in self.threads],
            "waiting": [
                {
                    "graph_task": wait.node.graph_task,
                    "node": wait.node.index,
                    "name": wait.node.short_name,
                    "missing": [node.index for node in wait.missing],
                }
                for wait in self.waits
            ],
            "knows_all": self.knows_all,
        }


def hang(trace: Trace, now_ns: int | None = None) -> Hang | None:
    """What is known of backward passes that have not ended; None where all have.

    Args:
        trace: the trace.
        now_ns: ``time.monotonic_ns()`` in the recorded process; None: this moment where the process
            is alive, else the last moment that the trace knows of.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    with trace.one_moment():  # nodes and edges of a file that grows between two queries don't fit
        return _hang(trace, now_ns)


def _hang(trace: Trace, now_ns: int | None) -> Hang | None:
    every = tuple(task for task in trace.graph_tasks.unfinished if task.status in _UNDER_WAY)
    if not every:
        return None
    tasks = every
    if len(every) > _OUTERMOST + _INNERMOST:
        tasks = (*every[:_OUTERMOST], *every[-_INNERMOST:])
    last = {task.id: _last_ns(trace, task) for task in tasks}
    unfinished = {task.id for task in every}
    moved = {
        task.id: max(last.get(number, 0) for number in trace.family(task.id))
        for task in tasks
        if task.parent not in unfinished
    } or last
    stop, held = stopped_at(trace), tuple(trace.held())
    stuck = min(
        moved,
        key=lambda number: (not _is_in(trace, stop, number), moved[number], number),
    )
    dumps = trace.dumps()
    dump = dumps[-1] if dumps and dumps[-1].time_ns >= moved[stuck] else None
    if dump is not None and any(
        row.time_ns <= dump.time_ns and (row.end_ns is None or dump.time_ns <= row.end_ns)
        for row in held
    ):
        dump = None  # it shows the debugger
    if now_ns is None:
        seen = *(row.time_ns for row in dumps), *(row.time_ns for row in held)
        known = max(*moved.values(), 0, *seen)
        now_ns = time.monotonic_ns() if trace.is_growing else trace.meta.end_ns or known
    nodes = {task.id: trace.nodes(task.id) for task in tasks}
    still_ns = max(now_ns - moved[stuck] - held_ns(held, moved[stuck], now_ns), 0)
    has_stood = dump is not None and (
        dump.reason != STALL or dump.time_ns - moved[stuck] >= STILL_NS
    )
    return Hang(
        graph_task=stuck,
        tasks=tasks,
        count=len(every),
        repeated=_repeated(dumps[-1] if dumps else None),
        call=visible(trace.call_site(stuck)),
        is_growing=trace.is_growing,
        is_closed=trace.meta.end_ns is not None,
        recording_stopped="" if has_stood or still_ns >= STILL_NS else trace.meta.stopped,
        now_ns=now_ns,
        still_ns=still_ns,
        stop=stop,
        held=held,
        is_dumped=dump is not None,
        has_stood=has_stood,
        has_timed_out=any(
            row.reason == TIMEOUT and row.time_ns >= trace.graph_task(stuck).begin_ns
            for row in dumps
        ),
        is_exit=dump is not None and dump.reason == EXIT,
        threads=tuple(find_thread_statuses(trace, tasks, nodes, dump, now_ns, held)),
        waits=tuple(find_waits(trace, tasks, nodes)),
        is_observed=is_observed(trace.meta),
        knows_all=all(
            node.status is not NodeStatus.UNKNOWN for found in nodes.values() for node in found
        ),
    )


def _is_in(trace: Trace, stop: StoppedAt | None, graph_task: int) -> bool:
    return stop is not None and stop.held.graph_task in trace.family(graph_task)


def _repeated(dump: DumpRow | None) -> DumpedCall | None:
    """The hook or callback that is under way most often."""
    threads = () if dump is None else dump.threads
    calls = [call for thread in threads for call in thread.calls if call.kind in HOOKS]
    places = Counter((call.kind, call.name, call.definition) for call in calls)
    if not places:
        return None
    ((common, times),) = places.most_common(1)
    if times <= _FEW:
        return None
    return next(call for call in calls if (call.kind, call.name, call.definition) == common)


def _last_ns(trace: Trace, task: GraphTaskRow) -> int:
    last = trace.events(task.id, max(trace.event_count(task.id) - 1, 0), 1)
    return last[0].time_ns if last else task.begin_ns


def _held_in(status: ThreadStatus) -> str:
    """The innermost node, and the hook or callback that holds it."""
    call = status.call
    hook = "" if call is None else f"{HOOKS.get(call.kind, call.kind)} {named(call)}"
    if not status.running:
        return f"the {hook}"
    return described(status.running[-1]) + (f", held by its {hook}" if hook else "")


def _at(frame: Frame | None, source: str) -> str:
    if frame is None:
        return ""
    return f", at {frame}" + (f": {source}" if source else "")


def _thread_lines(status: ThreadStatus) -> Iterator[str]:
    doing = [
        f"runs {_node(node)} of backward pass {node.graph_task}"
        for node in status.running[-_MOST_SHOWN:]
    ]
    if doing and status.for_ns is not None:
        doing[-1] += f" for {duration(max(0, status.for_ns))}"
    if status.waits:
        doing.append("waits for its ReadyQueue")
    nothing = "takes no part" if status.thread is None else "runs no node"
    yield f"{status.title} {', inside it '.join(doing) or nothing}"
    for call in [call for call in status.calls if call.kind in HOOKS][-_MOST_SHOWN:]:
        yield f"  in the {HOOKS[call.kind]} {named(call)}"
    frame = status.frame or visible(status.stack)
    if frame is not None:
        yield f"  at {frame}" + (f": {status.source}" if status.source else "")


def _thread_json(status: ThreadStatus) -> dict[str, Any]:
    return {
        "thread": None if status.thread is None else status.thread.id,
        "name": status.name,
        "held": status.is_held,
        "nodes": [
            {"graph_task": node.graph_task, "node": node.index, "name": node.short_name}
            for node in status.running
        ],
        "for_ns": status.for_ns,
        "waits": status.waits,
        "waits_for": status.waits_for,
        "depth": status.depth,
        "waits_on": None
        if status.wait is None
        else {
            "what": status.wait.what,
            "thread": status.wait.name or None,
            "held_at": None if status.wait.held_at is None else str(status.wait.held_at),
        },
        "calls": [
            {
                "kind": call.kind,
                "graph_task": call.graph_task,
                "node": call.node,
                "name": call.name,
                "defined_at": None if call.definition is None else str(call.definition),
            }
            for call in status.calls
        ],
        "stack": [str(frame) for frame in status.stack],
    }


def _node(node: NodeRow) -> str:
    where = node.parameter or node.module
    return f"{node.short_name} [{where}]" if where else f"{node.short_name} (node {node.index})"


def _list(texts: Sequence[str], most: int = _MOST_SHOWN) -> str:
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
