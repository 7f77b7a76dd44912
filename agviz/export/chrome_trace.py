"""A trace in the Trace Event Format, for Perfetto and ``chrome://tracing``.

docs/formats.md says what is in it. Process, threads and arguments are numbered and named as in the
export of ``torch.profiler``, so that both can be read side by side.

Note [Where time begins]
``ts`` counts from the start of the recording, and ``baseTimeNanoseconds`` says when that was.
``torch.profiler`` counts from a date up to three months ago: readers, which take ``ts`` for a
double, then err by a nanosecond, and Perfetto drops a slice that begins one before another's end.

Note [Slices that nest]
Both viewers drop a slice that crosses the end of another one on its thread. Times of one thread
never go back, so nodes and graph tasks nest as they ran. Of a hook only the end and the duration
are recorded, and the latter is read from the clock a moment after the former: what it would cross
before its beginning is cut off (:meth:`_Thread.leaf`). A slice comes before those inside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.analysis.counters import LIVE_BYTES, CounterReadings
from agviz.analysis.passes import Passes
from agviz.export.trace_event import metadata, micros
from agviz.traces.inferred import LEGEND, UNSEEN, WITHDRAWN, is_inferred, is_observed, mark_of
from agviz.traces.rows import NodeStatus
from agviz.words.documents import head
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agviz.export.overlay import Overlay
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, Meta, NodeRow
    from agviz_engine.events import Event


def chrome_trace(
    trace: Trace, graph_task: int | None = None, overlay: Overlay | None = None
) -> Iterator[str]:
    """The trace as JSON in the Trace Event Format, piece by piece, in ASCII.

    No more than the largest call of backward, with the reentrant ones inside it, is held at once.

    Args:
        trace: the trace.
        graph_task: only this one and the reentrant ones inside it; None: everything.
        overlay: what another profiler saw of the same run, all of which is laid over it.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged; also between
            two pieces.
    """
    meta = trace.meta
    lead = 0 if overlay is None else overlay.lead_ns
    facts = {"script": meta.script, "argv": list(meta.argv)} | versions(meta)
    process = Process(meta.pid, meta.script or "python", meta.start_ns - lead)
    records = ProcessRecords(trace, Passes(trace, graph_task), process).records()
    if overlay is not None:
        records = overlay.laid_over(records, -lead)
        facts |= {"overlay": overlay.note}
    return document(facts, meta.started_unix_ns - lead, records)


def versions(meta: Meta) -> dict[str, Any]:
    """What recorded a trace, and how."""
    facts = {
        "python": meta.python,
        "torch": meta.torch,
        "agviz": meta.agviz,
        "engine": meta.engine,
    }
    if is_observed(meta):
        facts["inferred"] = f"{LEGEND}; {UNSEEN}"
    return facts


def document(
    facts: Mapping[str, Any], started_unix_ns: int, records: Iterable[str]
) -> Iterator[str]:
    """A whole file, piece by piece.

    Args:
        facts: what is said of it.
        started_unix_ns: wall clock where time begins.
        records: its events.
    """
    yield '{\n"schemaVersion": 1,\n"displayTimeUnit": "ns",\n'
    yield f'"baseTimeNanoseconds": {started_unix_ns},\n'
    yield f'"otherData": {json.dumps({**head("chrome-trace"), **facts})},\n'
    yield '"traceEvents": [\n'
    separator = ""
    for record in records:
        yield separator + record
        separator = ",\n"
    yield "\n]\n}\n"


class Process(NamedTuple):
    """How the process of a trace is called in the file, and where its time begins."""

    pid: int
    title: str
    zero_ns: int
    """Where ``ts`` is 0, by ``time.monotonic_ns()`` of the process."""
    tracks: int = 0
    """How many tracks of its own the file has before its threads."""
    first_flow: int = 1
    """Number of its first arrow."""


@dataclass(slots=True)
class _Thread:
    """One engine thread; its slices are written in the order in which they end or begin."""

    tid: int
    floor: int = 0
    """When the last thing that the next hook can't enclose happened, ns."""
    outer: list[int] = field(default_factory=list)
    """The floors outside of the graph tasks under way."""
    nested: tuple[int, int] = (0, 0)
    """Begin and end of the graph task that ended last, ns."""

    def enter(self, now: int) -> None:
        """A graph task begins."""
        self.outer.append(self.floor)
        self.floor = now

    def leave(self, begin: int, end: int) -> None:
        """A graph task ends."""
        self.floor = self.outer.pop() if self.outer else end
        self.nested = begin, end

    def leaf(self, end: int, duration: int) -> int:
        """When something began that took ``duration`` until shortly after ``end``, all in ns."""
        begin = max(end - duration, self.floor)
        if self.nested[0] < begin < self.nested[1]:
            begin = self.nested[1]
        self.floor = max(self.floor, end)
        return min(begin, end)


class _Graph:
    """The nodes of a graph task under way, and the numbers of the arrows between them."""

    def __init__(self, nodes: Sequence[NodeRow], edges: list[EdgeRow], first_flow: int) -> None:
        self.nodes = nodes
        self.outgoing: dict[int, list[int]] = {}
        self.incoming: dict[int, list[int]] = {}
        self.flows = 0
        for edge in edges:
            if _handed_on(nodes[edge.producer], nodes[edge.consumer]):
                number = first_flow + self.flows
                self.flows += 1
                self.outgoing.setdefault(edge.producer, []).append(number)
                self.incoming.setdefault(edge.consumer, []).append(number)


def _handed_on(producer: NodeRow, consumer: NodeRow) -> bool:
    """Whether the consumer got what it waited for: it runs only after all its producers."""
    return (
        producer.status is NodeStatus.DONE
        and producer.start_ns is not None
        and consumer.start_ns is not None
        and producer.start_ns < consumer.start_ns
    )


class ProcessRecords:
    """What one process does, as records; the methods named after events give those of one event.

    Args:
        trace: of the process.
        passes: what of it is meant.
        process: how it is called.
    """

    def __init__(self, trace: Trace, passes: Passes, process: Process) -> None:
        self._trace = trace
        self._passes = passes
        self._meta = trace.meta
        self._process = process
        self._last_ns = max(passes.last_ns(), self._meta.end_ns or 0)
        self._threads: dict[int, _Thread] = {}
        self._graphs: dict[int, _Graph] = {}
        self.next_flow = process.first_flow
        """Number that the next arrow would get."""

    def records(self) -> Iterator[str]:
        """All of them."""
        yield from self._introduce()
        gauges = CounterReadings(self._passes)
        for event in self._passes.events():
            if self._passes.covers(event):
                handler = self._HANDLERS.get(type(event))
                if handler is not None:
                    yield from handler(self, event)
            for reading in gauges.apply(event):
                unit = "bytes" if reading.gauge == LIVE_BYTES else "depth"
                yield self._record(
                    "C",
                    f"{mark_of(self._meta)}{reading.gauge}",
                    reading.time_ns,
                    f'"args":{{"{unit}":{reading.value}}}',
                )

    def _introduce(self) -> Iterator[str]:
        pid = self._process.pid
        yield metadata("process_name", pid, 0, name=self._process.title)
        threads = sorted(self._trace.threads, key=lambda thread: (thread.queue, thread.id))
        native = [thread.native_id for thread in threads]
        for position, thread in enumerate(threads):
            tid = thread.native_id
            if not self._process.tracks < tid < 2**31 or native.count(tid) > 1:
                tid = self._free_tid(native)
            self._threads[thread.id] = _Thread(tid)
            yield metadata("thread_name", pid, tid, name=thread.name)
            yield metadata(
                "thread_sort_index", pid, tid, sort_index=self._process.tracks + position
            )

    def _free_tid(self, native: list[int]) -> int:
        taken = {*native, *(thread.tid for thread in self._threads.values())}
        return next(number for number in count(self._process.tracks + 1) if number not in taken)

    def _thread(self, number: int) -> _Thread:
        """A thread by its id in events; one that the trace does not introduce gets a number."""
        thread = self._threads.get(number)
        if thread is None:
            native = [known.native_id for known in self._trace.threads]
            thread = self._threads[number] = _Thread(self._free_tid(native))
        return thread

    def _graph(self, number: int) -> _Graph:
        graph = self._graphs.get(number)
        if graph is None:
            nodes, edges = self._trace.nodes(number), self._trace.edges(number)
            graph = self._graphs[number] = _Graph(nodes, edges, self.next_flow)
            self.next_flow += graph.flows
        return graph

    def _us(self, ns: int) -> str:
        """A time of the recorded process since the recording began, in µs."""
        return micros(max(0, ns - self._process.zero_ns))

    def _record(self, phase: str, name: str, time_ns: int, rest: str) -> str:
        return (
            f'{{"ph":"{phase}","name":{json.dumps(name)},"pid":{self._process.pid},'
            f'"ts":{self._us(time_ns)},{rest}}}'
        )

    def _slice(
        self, category: str, name: str, thread: _Thread, span: tuple[int, int], args: dict[str, Any]
    ) -> str:
        begin, end = span
        rest = (
            f'"tid":{thread.tid},"dur":{micros(max(0, end - begin))},"cat":"{category}",'
            f'"args":{json.dumps(args)}'
        )
        return self._record("X", name, begin, rest)

    def _instant(self, category: str, name: str, event: Event, args: dict[str, Any]) -> str:
        tid = self._thread(event.thread).tid
        rest = f'"tid":{tid},"s":"t","cat":"{category}","args":{json.dumps(args)}'
        return self._record("i", name, event.time_ns, rest)

    def _flow(self, phase: str, number: int, thread: _Thread, time_ns: int) -> str:
        binding = ',"bp":"e"' if phase == "f" else ""
        rest = f'"tid":{thread.tid},"id":{number},"cat":"gradient"{binding}'
        return self._record(phase, "gradient", time_ns, rest)

    # -- what becomes of each kind of event -----------------------------------------------------

    def _begun(self, event: events.GraphTaskBegun) -> Iterator[str]:
        task = self._passes.tasks[event.graph_task]
        thread = self._thread(task.thread)
        thread.enter(task.begin_ns)
        end = self._last_ns if task.end_ns is None else task.end_ns
        args = {
            "graph task": task.id,
            "status": str(task.status),
            "nodes": task.nodes,
            "edges": task.edges,
            "executed": task.executed,
            "roots": task.roots,
            "inputs": task.inputs,
            "keep_graph": task.keep_graph,
            "create_graph": task.create_graph,
            "reentrant depth": task.reentrant_depth,
        }
        if task.traced:
            args["traced"] = True
        if task.withdrawn_seq is not None:
            args["queues"] = WITHDRAWN
        if task.parent >= 0:
            args |= {"parent graph task": task.parent, "parent node": task.parent_node}
        name = "backward" if task.accumulate_grad else "grad"
        yield self._slice("graph_task", name, thread, (task.begin_ns, end), args)

    def _ended(self, event: events.GraphTaskFinished | events.GraphTaskFailed) -> Iterator[str]:
        task = self._passes.tasks[event.graph_task]
        self._thread(task.thread).leave(task.begin_ns, event.time_ns)
        graph = self._graphs.pop(event.graph_task, None)
        if graph is not None:
            self._passes.forget(len(graph.nodes))
        if isinstance(event, events.GraphTaskFailed):
            args = {"graph task": task.id, "error": event.error, "message": event.message}
            yield self._instant("failure", "graph task failed", event, args)

    def _started(self, event: events.NodeStarted) -> Iterator[str]:
        graph = self._graph(event.graph_task)
        if not 0 <= event.node < len(graph.nodes):
            return
        node = graph.nodes[event.node]
        task = self._passes.tasks[event.graph_task]
        thread = self._thread(event.thread)
        thread.floor = begin = event.time_ns
        end = node.end_ns
        if end is None:
            end = self._last_ns if task.end_ns is None else task.end_ns
        yield self._slice("node", node.name, thread, (begin, end), _node_args(node))
        for number in graph.incoming.get(node.index, ()):
            yield self._flow("f", number, thread, begin)
        for number in graph.outgoing.get(node.index, ()):
            yield self._flow("s", number, thread, begin)

    def _left(self, event: events.NodeFinished | events.NodeSkipped) -> tuple[str, ...]:
        self._thread(event.thread).floor = event.time_ns
        return ()

    def _failed(self, event: events.NodeFailed) -> Iterator[str]:
        self._thread(event.thread).floor = event.time_ns
        args = self._about(event) | {"error": event.error, "message": event.message}
        yield self._instant("failure", "node failed", event, args)

    def _hook(self, event: events.HookCalled) -> Iterator[str]:
        thread = self._thread(event.thread)
        begin = thread.leaf(event.time_ns, event.duration_ns)
        args = self._about(event) | {"kind": event.kind, "changed": event.changed}
        if is_inferred(self._meta, event):
            args["inferred"] = True
        yield self._slice("hook", event.name, thread, (begin, event.time_ns), args)

    def _callback(self, event: events.FinalCallbackRun) -> Iterator[str]:
        thread = self._thread(event.thread)
        begin = thread.leaf(event.time_ns, event.duration_ns)
        args = {"graph task": event.graph_task, "callback": event.callback}
        yield self._slice("callback", "final callback", thread, (begin, event.time_ns), args)

    def _checked(self, event: events.NonFiniteChecked) -> Iterator[str]:
        if event.nan or event.posinf or event.neginf:
            args = self._about(event) | {
                "output": event.output,
                "nan": event.nan,
                "posinf": event.posinf,
                "neginf": event.neginf,
            }
            yield self._instant("non_finite", "non-finite gradient", event, args)

    def _delegated(self, event: events.Delegated) -> Iterator[str]:
        args = {"reason": event.reason}
        yield self._instant("delegated", "handed to the native engine", event, args)

    def _delegated_failed(self, event: events.DelegatedFailed) -> Iterator[str]:
        args = {"error": event.error, "message": event.message}
        yield self._instant("failure", "the native engine raised", event, args)

    def _withdrawn(self, event: events.InferenceWithdrawn) -> Iterator[str]:
        args = self._about(event) | {"expected": event.expected, "queues": WITHDRAWN}
        yield self._instant("inferred", "inference withdrawn", event, args)

    def _intervened(self, event: events.Intervened) -> Iterator[str]:
        args = self._about(event) | {"kind": event.kind, "slot": event.slot}
        yield self._instant("intervened", f"changed by hand: {event.kind}", event, args)

    def _about(
        self,
        event: events.HookCalled
        | events.NodeFailed
        | events.NonFiniteChecked
        | events.Intervened
        | events.InferenceWithdrawn,
    ) -> dict[str, Any]:
        """Which node an event concerns."""
        args: dict[str, Any] = {"graph task": event.graph_task, "node": event.node}
        nodes = self._graph(event.graph_task).nodes
        if 0 <= event.node < len(nodes):
            args |= _names(nodes[event.node])
        return args

    _HANDLERS: Final[dict[type[Any], Callable[[ProcessRecords, Any], Iterable[str]]]] = {
        events.GraphTaskBegun: _begun,
        events.GraphTaskFinished: _ended,
        events.GraphTaskFailed: _ended,
        events.NodeStarted: _started,
        events.NodeFinished: _left,
        events.NodeSkipped: _left,
        events.NodeFailed: _failed,
        events.HookCalled: _hook,
        events.FinalCallbackRun: _callback,
        events.NonFiniteChecked: _checked,
        events.Delegated: _delegated,
        events.Intervened: _intervened,
        events.InferenceWithdrawn: _withdrawn,
        events.DelegatedFailed: _delegated_failed,
    }


def _names(node: NodeRow) -> dict[str, Any]:
    args: dict[str, Any] = {"name": node.name}
    if node.module is not None:
        args["module"] = node.module
    if node.parameter is not None:
        args["parameter"] = node.parameter
    return args


def _node_args(node: NodeRow) -> dict[str, Any]:
    args = {"graph task": node.graph_task, "node": node.index, "order": node.order, **_names(node)}
    if node.sequence_nr is not None:
        args["Sequence number"] = node.sequence_nr
    if node.input_shapes is not None:
        args["Input Dims"] = node.input_shapes
    args["topological number"] = node.topological_nr
    args["status"] = str(node.status)
    if node.line is not None:
        args["created by"] = node.line
        args["Call stack"] = "".join(
            f"{frame.file}({frame.line}): {frame.function};"
            for frame in reversed(node.stack)
            if not frame.hidden
        )
    return args
