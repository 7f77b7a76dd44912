"""Each event in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.traces.inferred import is_observed
from agviz.tui.text import one_line
from agviz.words.health import nonfinite
from agviz.words.labels import queue_label
from agviz.words.units import duration, plural, size
from agviz_engine import events as e

if TYPE_CHECKING:
    from agviz.tui.model import LoadedPass


SHORT: Final[dict[type[e.Event], str]] = {
    e.GraphTaskBegun: "begun",
    e.DependenciesComputed: "graph",
    e.QueuePush: "push",
    e.QueuePop: "pop",
    e.NodeStarted: "started",
    e.NodeFinished: "finished",
    e.NodeFailed: "failed",
    e.NodeSkipped: "skipped",
    e.HookCalled: "hook",
    e.DependencyDecremented: "decrement",
    e.GradientAccumulated: "accumulate",
    e.GradientCaptured: "capture",
    e.LeafAccumulated: "leaf",
    e.NonFiniteChecked: "check",
    e.SavedTensorsReleased: "release",
    e.FinalCallbackQueued: "queued",
    e.FinalCallbackRun: "callback",
    e.GraphTaskFinished: "completed",
    e.GraphTaskFailed: "failed",
    e.WorkerStarted: "worker up",
    e.WorkerStopped: "worker end",
    e.ShutdownTaskPushed: "shutdown",
    e.Delegated: "delegated",
    e.DelegatedFailed: "refused",
    e.Intervened: "changed",
    e.InferenceWithdrawn: "withdrawn",
}
"""A word for each kind of event."""
WORDS: Final = {kind.__name__: word for kind, word in SHORT.items()}
"""The same by the name of its class."""


def describe(event: e.Event, recording: LoadedPass) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of event
    """What happened, without the kind of the event, its time and its thread."""

    def node(index: int) -> str:
        if not 0 <= index < recording.nodes:
            return f"node {index}"
        return recording.label(index)

    match event:
        case e.GraphTaskBegun(roots=roots, accumulate_grad=accumulate):
            return f"{'backward' if accumulate else 'grad'} from {plural(roots, 'root')}"
        case e.DependenciesComputed(nodes=nodes, edges=edges):
            return f"{plural(nodes, 'node')}, {plural(edges, 'edge')}"
        case e.QueuePush(node=index, queue=queue, size=depth):
            return f"{node(index)} → {queue_label(queue)}, depth {depth:,}"
        case e.QueuePop(node=index, queue=queue, size=depth):
            return f"{node(index)} ← {queue_label(queue)}, depth {depth:,}"
        case e.NodeFinished(node=index, outputs=outputs):
            return f"{node(index)}, {plural(outputs, 'output')}"
        case e.NodeFailed(node=index, error=error, message=message):
            return f"{error}: {node(index)}: {one_line(message)}"
        case e.NodeSkipped(node=index, reason=reason):
            return f"{node(index)}, {reason}"
        case e.HookCalled(node=index, kind=kind, name=name, duration_ns=ns, changed=changed):
            change = ", changed the gradient" if changed else ""
            took = "" if is_observed(recording.meta) else f", {duration(ns)}"
            return f"{node(index)}: {kind} {name}{took}{change}"
        case e.DependencyDecremented(node=index, producer=producer, remaining=remaining):
            return f"{node(index)} needs {remaining:,} more, from {node(producer)}"
        case e.GradientAccumulated(node=index, producer=producer, slot=slot, added=added):
            source = "the caller" if producer < 0 else node(producer)
            way = "added" if added else "first"
            return f"{node(index)}[{slot}] {way}, {size(event.nbytes)}, from {source}"
        case e.GradientCaptured(node=index, slot=slot, output_index=output):
            return f"{node(index)}[{slot}], result {output}"
        case e.NonFiniteChecked(node=index, output=output, nan=nan, posinf=pos, neginf=neg):
            return f"{nonfinite(nan, pos, neg) or 'finite'}: {node(index)}[{output}]"
        case e.FinalCallbackQueued(index=index):
            return f"callback {index}"
        case e.FinalCallbackRun(index=index, duration_ns=ns):
            return f"callback {index}, {duration(ns)}"
        case e.GraphTaskFinished(executed=executed):
            return f"{plural(executed, 'node')} executed"
        case (
            e.GraphTaskFailed(error=error, message=message)
            | e.DelegatedFailed(error=error, message=message)
        ):
            return f"{error}: {one_line(message)}"
        case e.WorkerStarted(name=name, queue=queue):
            return f"{name}, {queue_label(queue)}"
        case e.ShutdownTaskPushed(queue=queue):
            return queue_label(queue)
        case e.Delegated(reason=reason):
            return reason
        case e.Intervened(node=index, kind="gradient", slot=slot):
            return f"{node(index)}[{slot}] was given another gradient"
        case e.Intervened(node=index, kind="hooks"):
            return f"{node(index)} runs without its hooks"
        case e.Intervened(node=index, kind="back", slot=before):
            return f"{node(index)} runs again: up to here this is what graph task {before} did"
        case e.Intervened(node=index):
            return f"{node(index)} was chosen to run next"
        case e.InferenceWithdrawn(node=index, expected=expected):
            return f"{node(index)} started, {node(expected) if expected >= 0 else 'none'} was due"
        case e.NodeStarted() | e.LeafAccumulated() | e.SavedTensorsReleased():
            place = recording.place(event.node) if 0 <= event.node < recording.nodes else ""
            return f"{node(event.node)} {place}".rstrip()
        case e.WorkerStopped():
            return ""


def is_bad(event: e.Event) -> bool:
    """Whether the event is a failure or a non-finite finding."""
    match event:
        case e.NodeFailed() | e.GraphTaskFailed():
            return True
        case e.NonFiniteChecked(nan=nan, posinf=posinf, neginf=neginf):
            return bool(nan or posinf or neginf)
    return False
