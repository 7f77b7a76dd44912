"""Variables: what there is to see at a moment, in scopes. They are read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import dtype_and_shape, extent, number
from agviz.dap.gradients import measured, received
from agviz.dap.instant import MOST_OUTPUTS, module_of
from agviz.traces.event_row import EventRow
from agviz.traces.inferred import WITHDRAWN, mark_of
from agviz.words.health import nonfinite
from agviz.words.labels import of_owner, queue_label
from agviz.words.shapes import write_shape
from agviz.words.units import duration, plural, size
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agviz.dap.gradients import GradientIn
    from agviz.dap.instant import Instant, StackFrame
    from agviz.measure.values import Health
    from agviz.traces.rows import NodeRow

_MOST: Final = 200
"""Things of one kind that are listed."""
_NOT_MEASURED: Final = "not measured"


@dataclass(frozen=True)
class Variable:
    """A name and its value."""

    name: str
    value: str
    type: str = ""
    children: Callable[[], Iterable[Variable]] | None = None
    """What is in it, where there is anything."""


@dataclass(frozen=True)
class VariableScope:
    """Variables of one kind."""

    name: str
    variables: Callable[[], Iterable[Variable]]
    are_inputs: bool = False
    is_dear: bool = False
    """Whether an editor should not open it by itself."""


def scopes(instant: Instant, frame: StackFrame) -> Iterator[VariableScope]:
    """What there is to see at a frame of a stack."""
    if frame.node is not None:
        row = instant.trace.node(frame.graph_task, frame.node, most_outputs=MOST_OUTPUTS)
        yield from of_node(instant, row)
    yield VariableScope("Engine", lambda: _engine(instant), is_dear=True)
    yield VariableScope("Pass", lambda: _pass(instant, frame.graph_task), is_dear=True)


def of_node(instant: Instant, row: NodeRow) -> Iterator[VariableScope]:
    """What there is to see of a node."""
    yield VariableScope("Gradients in", lambda: _inputs(instant, row), are_inputs=True)
    yield VariableScope("Gradients out", lambda: _outputs(instant, row))
    yield VariableScope("Saved tensors", lambda: _saved(instant, row))
    if row.is_leaf:
        yield VariableScope("Parameter", lambda: _parameter(instant, row))
    yield VariableScope("Node", lambda: _node(instant, row))
    module = module_of(row)
    if module:
        name = f"Parameters of {module}"
        yield VariableScope(name, lambda: _parameters(instant, row, module), is_dear=True)


def of_health(
    name: str, health: Health, more: Callable[[], Iterable[Variable]] = tuple
) -> Variable:
    """A tensor that was measured."""

    def inside() -> list[Variable]:
        return [*_numbers(health), *more()]

    return Variable(name, _in_words(health), dtype_and_shape(health), inside)


def _in_words(health: Health) -> str:
    """``float32 [8, 16], -0.3 … 0.8, norm 1.25, 3 NaN``."""
    facts = [dtype_and_shape(health)]
    if health.unknown:
        return f"{facts[0]}, {_NOT_MEASURED}: {health.unknown}"
    facts.append(extent(health))
    if health.norm is not None:
        facts.append(f"norm {number(health.norm)}")
    if health.zero:
        facts.append(plural(health.zero, "zero"))
    if found := nonfinite(health.nan, health.posinf, health.neginf):
        facts.append(found)
    return ", ".join(facts)


def _numbers(health: Health) -> Iterator[Variable]:
    yield Variable("shape", write_shape(health.shape, "not known"))
    for name in ("dtype", "device", "layout"):
        yield Variable(name, getattr(health, name))
    yield Variable("numel", str(health.numel))
    yield Variable("nbytes", size(health.nbytes) if health.nbytes else "not known")
    if health.unknown:
        return
    for name in ("nan", "posinf", "neginf", "zero"):
        yield Variable(name, str(getattr(health, name)))
    for name in ("min", "max", "mean", "norm"):
        value = getattr(health, name)
        yield Variable(name, "nothing finite" if value is None else repr(float(value)))


def _inputs(instant: Instant, row: NodeRow) -> Iterator[Variable]:
    known = received(instant.trace, row.graph_task, row.index, instant.seq)
    shapes = row.input_shapes or ()
    arrived = _arrived(instant, row) if len(known) < row.num_inputs else {}
    for slot in range(min(row.num_inputs, _MOST)):
        name = f"input {slot}"
        if slot in known:
            came = known[slot]
            yield of_health(name, came.health, partial(_origin, instant, row, came))
        elif slot in arrived:
            shape = write_shape(shapes[slot]) if slot < len(shapes) else ""
            said = f"{size(arrived[slot])}, {_NOT_MEASURED}" if arrived[slot] else "None"
            yield Variable(name, f"{shape} {said}".strip())
        else:
            yield Variable(name, "has not arrived")
    yield from _more(row.num_inputs)


def _origin(instant: Instant, row: NodeRow, came: GradientIn) -> list[Variable]:
    if came.producer < 0:
        return [Variable("from", _ORIGINS[came.role])]
    return [Variable("from", instant.label(row.graph_task, came.producer))]


_ORIGINS: Final = {
    "root": "the caller",
    "sum": "several nodes: this is the sum",
    "captured": "its producers; grad took it",
    "replaced": "a debugger, which put it in place of what came",
}


def _arrived(instant: Instant, row: NodeRow) -> dict[int, int]:
    """Bytes of what arrived by now, by slot; 0: an undefined gradient."""
    trace = instant.trace
    kinds = [e.GradientAccumulated]
    seqs = trace.seqs_where(row.graph_task, kinds, node=row.index)
    seqs = [seq for seq in seqs if seq <= instant.seq][-_MOST:]
    return {
        event.slot: event.nbytes
        for event in trace.events_of(seqs)
        if isinstance(event, e.GradientAccumulated) and event.node == row.index
    }


def _outputs(instant: Instant, row: NodeRow) -> Iterator[Variable]:
    if row.is_leaf:
        return
    trace, task = instant.trace, row.graph_task
    put_out = {
        each.slot: measured(each)
        for each in trace.health(task, row.index)
        if each.role == "output" and each.seq <= instant.seq
    }
    edges = trace.edges_from(task, row.index, MOST_OUTPUTS)
    count = max([len(row.output_shapes), *(slot + 1 for slot in put_out)], default=0)
    for slot in range(min(count, _MOST)):
        name = f"output {slot}"
        to = [instant.label(task, edge.consumer) for edge in edges if edge.output == slot]
        goes = [Variable("to", ", ".join(to) or "no node")]
        if slot in put_out:
            yield of_health(name, put_out[slot], goes.copy)
        elif not instant.is_over(row):
            yield Variable(name, "has not been put out")
        else:
            shape = row.output_shapes[slot] if slot < len(row.output_shapes) else None
            said = f"{write_shape(shape)} {_NOT_MEASURED}".strip() if to else "not needed"
            yield Variable(name, said)
    yield from _more(count)


def _saved(instant: Instant, row: NodeRow) -> Iterator[Variable]:
    trace = instant.trace
    known = {each.name: each for each in trace.saved_health(row.graph_task, row.index)}
    released = _released(instant, row)
    for each in trace.saved(row.graph_task, row.index)[:_MOST]:
        found = known.pop(each.name, None)
        if found is not None and found.health is not None:
            yield of_health(each.name, found.health)
            continue
        nbytes = "" if each.nbytes is None else f", {size(each.nbytes)}"
        shape = write_shape(each.shape, "of unknown shape")
        yield Variable(each.name, f"{each.dtype or 'tensor'} {shape}{nbytes}{released}")
    for name, found in known.items():
        if found.value is not None:
            yield Variable(name, found.value)
        elif found.health is not None:
            yield of_health(name, found.health)


def _released(instant: Instant, row: NodeRow) -> str:
    """What to add where what was saved is gone by now."""
    kinds = [e.SavedTensorsReleased]
    seqs = instant.trace.seqs_where(row.graph_task, kinds, node=row.index)
    mark = mark_of(instant.trace.meta)
    return f", {mark}released" if any(seq <= instant.seq for seq in seqs) else ""


def _parameter(instant: Instant, row: NodeRow) -> Iterator[Variable]:
    """The variable of an AccumulateGrad, and its ``.grad``."""
    yield Variable("name", row.parameter or "not known")
    facts = next(
        (each for each in instant.trace.parameters(row.graph_task) if each.node == row.index), None
    )
    shape = row.shape if facts is None else facts.shape
    dtype = "" if facts is None else f"{facts.dtype} "
    yield Variable("parameter", f"{dtype}{write_shape(shape, 'of unknown shape')}")
    if facts is not None and facts.norm is not None:
        yield Variable("norm", repr(facts.norm), "of the parameter when it was first known")
    yield _grad(instant, row, None if facts is None else facts.had_grad)


def _grad(instant: Instant, row: NodeRow, had_grad: bool | None, name: str = "grad") -> Variable:
    trace = instant.trace
    wrote = trace.seqs_where(row.graph_task, [e.LeafAccumulated], node=row.index)
    if not any(seq <= instant.seq for seq in wrote):
        before = "from before this pass, not measured" if had_grad else "None"
        return Variable(name, "not known" if had_grad is None else before)
    for each in trace.health(row.graph_task, row.index):
        if each.role == "accumulated" and each.seq <= instant.seq:
            return of_health(name, measured(each))
    came = received(trace, row.graph_task, row.index, instant.seq).get(0)
    if came is None:
        return Variable(name, f"accumulated, {_NOT_MEASURED}")
    return of_health(name, came.health)  # where it may be anything else, it was measured itself


def _parameters(instant: Instant, row: NodeRow, module: str) -> Iterator[Variable]:
    """What has accumulated in the parameters of a module by now."""
    trace, task = instant.trace, row.graph_task
    facts = {each.node: each for each in trace.parameters(task)}
    leaves = [
        (name, node) for node, name in trace.leaves(task).items() if name.startswith(f"{module}.")
    ]
    for name, node in leaves[:_MOST]:
        had_grad = facts[node].had_grad if node in facts else None
        yield _grad(instant, trace.node(task, node, most_outputs=0), had_grad, f"{name}.grad")
    yield from _more(len(leaves))


def _node(instant: Instant, row: NodeRow) -> Iterator[Variable]:
    mark = mark_of(instant.trace.meta)
    yield Variable("name", row.name)
    yield Variable("index", str(row.index), "in its graph task")
    yield Variable("sequence_nr", "none" if row.sequence_nr is None else str(row.sequence_nr))
    yield Variable("topological_nr", str(row.topological_nr))
    yield Variable("device", f"{row.queue} ({queue_label(row.queue)})")
    yield Variable("status", instant.status(row).value)
    yield Variable("dependencies", f"{mark}{_missing(instant, row)}")
    if row.order is not None and instant.has_started(row):
        yield Variable("order", str(row.order), "in the order of execution, from 1")
        yield Variable("thread", f"T{row.thread}")
        if instant.is_over(row):
            yield Variable("duration", duration(row.duration_ns))
    if row.module:
        yield Variable("module", row.module)
    if row.line:
        yield Variable("line", row.line, "of the forward that made it")
    hooks = instant.trace.seqs_where(row.graph_task, [e.HookCalled], node=row.index)
    for event in instant.trace.events_of([seq for seq in hooks if seq <= instant.seq][:_MOST]):
        if isinstance(event, e.HookCalled):
            change = ", changed the gradient" if event.changed else ""
            yield Variable(f"{event.kind} hook", f"{event.name}{change}")


def _missing(instant: Instant, row: NodeRow) -> str:
    if not instant.trace.graph_task(row.graph_task).knows_queues(instant.seq):
        return f"of {row.dependencies}, those missing are {WITHDRAWN}"
    try:
        remaining = instant.state.remaining(row.graph_task, row.index)
    except (KeyError, IndexError):
        remaining = row.dependencies
    return f"{remaining} of {row.dependencies} missing"


def _engine(instant: Instant) -> Iterator[Variable]:
    trace, state = instant.trace, instant.state
    mark = mark_of(trace.meta)
    row = EventRow.of(instant.event, trace.meta)
    yield Variable("event", repr(row))
    for queue in state.queues():
        whose = "" if queue.thread is None else f" T{queue.thread}"
        name = f"ReadyQueue of {queue_label(queue.queue)}{whose}"
        if not queue.is_known:
            yield Variable(name, WITHDRAWN)
            continue
        tasks = queue.tasks[:_MOST]
        waiting = [
            Variable(str(place), instant.label(task.graph_task, task.node))
            for place, task in enumerate(tasks)
        ]
        inside = waiting.copy if waiting else None
        yield Variable(name, f"{mark}{plural(len(queue.tasks), 'node')}", children=inside)
    for thread, nodes in state.running().items():
        within = " in ".join(instant.label(*node) for node in reversed(nodes))
        yield Variable(f"T{thread} runs", within)
    yield Variable("InputBuffers", f"{mark}{size(state.live_bytes)}")


def _pass(instant: Instant, graph_task: int) -> Iterator[Variable]:
    trace = instant.trace
    task = trace.graph_task(graph_task)
    yield Variable("graph task", str(graph_task))
    yield Variable("call", "backward" if task.accumulate_grad else "grad")
    yield Variable("status", task.status.value if instant.has_ended(graph_task) else "running")
    executed = instant.state.executed(graph_task) if graph_task in instant.state.graph_tasks else 0
    yield Variable("executed", f"{executed:,} of {plural(task.nodes, 'node')}")
    yield Variable("thread", f"T{task.thread}", "that called")
    if task.parent >= 0:
        around = instant.label(task.parent, task.parent_node)
        yield Variable("inside", of_owner(around, f"graph task {task.parent}"))
        yield Variable("reentrant_depth", str(task.reentrant_depth))
    yield Variable("keep_graph", str(task.keep_graph))
    yield Variable("create_graph", str(task.create_graph))
    yield Variable("inputs", str(task.inputs) if task.inputs else "every leaf")
    for root in trace.roots(graph_task):
        yield of_health(f"root {root.number}", root.health)
    if instant.has_ended(graph_task) and task.error:
        yield Variable("error", f"{task.error}: {task.message}")


def _more(count: int) -> Iterator[Variable]:
    if count > _MOST:
        yield Variable("…", f"and {count - _MOST:,} more")
