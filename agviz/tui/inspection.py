"""What the inspector says about a node, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from agviz.traces.inferred import WITHDRAWN, is_observed, mark_of
from agviz.traces.rows import NodeStatus
from agviz.tui.highlighting import highlight
from agviz.tui.model import State
from agviz.tui.stop_tensors import stop_tensors
from agviz.tui.tensor_lines import Entry, measured
from agviz.tui.text import Line, Span, left, tail, wrap
from agviz.words.health import nonfinite
from agviz.words.labels import queue_label
from agviz.words.shapes import write_shape
from agviz.words.units import duration, milliseconds, plural, size
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.traces.rows import EdgeRow, Meta, NodeRow, SavedRow
    from agviz.tui.model import NodeDetails, View

_LABEL = 15
_MOST_SLOTS = 100
_RECEIVED = {"root", "sum", "captured", "replaced"}
_KEPT = {
    "accumulated": "Accumulated gradient (.grad)",
    "hook": "What a hook gave in place of it",
}
_WIDE = 52
"""Where the panel is narrower, columns are as narrow as what is in them."""


def inspect(view: View, story: NodeDetails, width: int) -> list[Entry]:
    """The description of a node for lines of ``width`` cells."""
    node = story.node
    return [
        *_state(view, node, width),
        *stop_tensors(view, width),
        *_facts(view, node, width),
        *_relatives(story, width),
        *_problems(node, story.events, width),
        *_elements(story, width),
        *_gradients_in(view, story, width),
        *_gradients_out(story, width),
        *_hooks(node, story.events, width, view.recording.meta),
        *_saved(view, node, story.events, story.saved, width),
        *_stack(story, width),
        *_edges(view, story, width),
        *_place_in_graph(view, node, width),
    ]


def _fact(label: str, value: str, width: int, look: str = "name") -> Iterator[Entry]:
    for number, piece in enumerate(wrap(value, width - _LABEL - 2)):
        yield Entry([Span(left("" if number else label, _LABEL), "muted"), Span(piece, look)])


def _heading(text: str) -> list[Entry]:
    return [Entry([]), Entry([Span(text, "heading")])]


def _state(view: View, node: NodeRow, width: int) -> Iterator[Entry]:
    moment = view.moment
    state = moment.node_state(node.index)
    remaining = moment.remaining(node.index, node.dependencies)
    words = f"{state.glyph} {state.label}"
    if state is State.WAITING and remaining:
        missing = f"{mark_of(view.recording.meta)}{remaining}"
        words += f" for {missing} of {plural(node.dependencies, 'dependency', 'dependencies')}"
    if view.stops_before(node.index):
        words = "■ stopped, has not run yet"
    yield from _fact("Node", node.name, width)
    yield from _fact("State", words, width, state.value)


def _facts(view: View, node: NodeRow, width: int) -> Iterator[Entry]:
    recording = view.recording
    if node.order is None or node.thread is None or node.start_ns is None:
        said = "never ran" if recording.is_over else "not yet"
        if node.status is NodeStatus.UNKNOWN:
            said = "its events were not recorded"
        yield from _fact("Execution", said, width)
    else:
        thread = recording.thread_label(node.thread)
        number = f"#{node.order:,} of {recording.nodes:,} on {thread}"
        yield from _fact("Execution", number, width)
        start = milliseconds(node.start_ns - recording.task.begin_ns)
        took = duration(node.duration_ns)
        is_on = not recording.is_over and recording.meta.end_ns is None
        when = f"at {start} ms for {took}"
        if view.stops_before(node.index):
            when = f"taken up at {start} ms"
        elif not took:
            when = f"at {start} ms, {'has not ended yet' if is_on else 'did not end'}"
        yield from _fact("Ran", when, width)
    if node.module:
        yield from _fact("Module", node.module, width, "place")
    if node.line:
        yield from _fact("Created by", node.line, width, "place")
    if node.parameter:
        dimensions = "" if node.shape is None else f" {write_shape(node.shape)}"
        yield from _fact("Parameter", node.parameter + dimensions, width, "place")


def _relatives(story: NodeDetails, width: int) -> Iterator[Entry]:
    """What the node began, and what its own graph task was begun by."""
    places = [("Inside", f"↓ {place.text}", place) for place in story.inside]
    if story.around is not None:
        places.append(("Called in", f"↑ {story.around.text}", story.around))
    for label, text, place in places:
        for entry in _fact(label, text, width, "place"):
            yield Entry(entry.line, place=place)


def _place_in_graph(view: View, node: NodeRow, width: int) -> Iterator[Entry]:
    yield from _heading("In the graph")
    sequence = "none (leaf)" if node.sequence_nr is None else f"{node.sequence_nr:,}"
    remaining = view.moment.remaining(node.index, node.dependencies)
    missing = f"{mark_of(view.recording.meta)}{remaining} of {node.dependencies} missing"
    if not view.recording.task.knows_queues(view.moment.state.seq):
        missing = f"of {node.dependencies}, those missing are {WITHDRAWN}"
    yield from _fact("Dependencies", missing, width)
    yield from _fact("Queue", queue_label(node.queue), width)
    yield from _fact("Sequence nr", sequence, width)
    yield from _fact("Topological nr", f"{node.topological_nr:,}", width)


def _problems(node: NodeRow, story: Iterable[e.Event], width: int) -> Iterator[Entry]:
    for event in story:
        match event:
            case e.NodeFailed(node=node.index, error=error, message=message):
                yield from _fact("Failed", f"✗ {error}: {message}", width, "failed")
            case e.NodeSkipped(node=node.index, reason=reason):
                yield from _fact("Skipped", f"⊘ {reason}", width, "skipped")
            case e.NonFiniteChecked(node=node.index, output=output):
                bad = nonfinite(event.nan, event.posinf, event.neginf)
                text = f"{'!' if bad else '✓'} output {output}: {bad or 'finite'}"
                yield from _fact("Checked", text, width, "nonfinite" if bad else "done")


def _elements(story: NodeDetails, width: int) -> Iterator[Entry]:
    for is_nonfinite, said in story.elements:
        label, look = ("Not finite", "nonfinite") if is_nonfinite else ("Largest", "name")
        yield from _fact(label, said, width, look)


def _gradients_in(view: View, story: NodeDetails, width: int) -> list[Entry]:
    node = story.node
    buffered = view.moment.buffer(node.index)
    arrived = {each.slot: each for each in story.arrived}
    running = view.moment.is_running(node.index)
    inferred = mark_of(view.recording.meta)
    entries = _heading(f"Gradients in ({plural(node.num_inputs, 'slot')})")
    for slot in range(min(node.num_inputs, _MOST_SLOTS)):
        shapes = node.input_shapes
        text = (
            write_shape(shapes[slot], "undefined")
            if shapes is not None and slot < len(shapes)
            else ""
        )
        given = arrived.get(slot)
        line = [
            Span(left(f"slot {slot}", _LABEL), "muted"),
            Span(left(text, 18), "name"),
            Span(f" {inferred + size(given.nbytes):>10}" if given else "", "number"),
            Span(f"  sum of {given.number:,}" if given and given.number > 1 else "", "muted"),
            Span(
                f"  {inferred}in {'use' if running else 'buffer'}" if slot in buffered else "",
                "ready",
            ),
        ]
        entries.append(Entry(line))
        for measure in story.measures:
            if measure.health.role in _RECEIVED and measure.health.slot == slot:
                entries += measured(measure, width)
        for edge, measure in story.received:
            if edge.slot == slot:
                producer = view.recording.label(edge.producer)
                entries += measured(measure, width, f"put out by {producer}")
    return entries + _more(node.num_inputs, _MOST_SLOTS)


def _gradients_out(story: NodeDetails, width: int) -> list[Entry]:
    node = story.node
    given = {
        (event.node, event.slot): event
        for event in story.events
        if isinstance(event, e.GradientAccumulated) and event.producer == node.index
    }
    shapes = node.output_shapes or ()
    outputs = 0 if node.is_leaf else max(len(shapes), story.degree.outputs)
    entries = _heading(f"Gradients out ({plural(outputs, 'output')})") if outputs else []
    by_output: dict[int, list[EdgeRow]] = {}
    for edge in story.edges_out:
        by_output.setdefault(edge.output, []).append(edge)
    for output in range(min(outputs, _MOST_SLOTS)):
        text = write_shape(shapes[output], "undefined") if output < len(shapes) else ""
        needed = by_output.get(output, [])
        sent = [given[e.consumer, e.slot] for e in needed if (e.consumer, e.slot) in given]
        line = [
            Span(left(f"output {output}", _LABEL), "muted"),
            Span(left(text, 18), "name"),
            Span(f" {size(sent[0].nbytes):>10}" if sent and not sent[0].added else "", "number"),
            Span("" if needed else "  not needed", "muted"),
        ]
        entries.append(Entry(line))
        for measure in story.measures:
            if measure.health.role == "output" and measure.health.slot == output:
                entries += measured(measure, width)
    entries += _more(outputs, _MOST_SLOTS)
    for measure in story.measures:
        if measure.health.role in _KEPT:
            entries += _heading(_KEPT[measure.health.role])
            entries += measured(measure, width)
    return entries


def _hooks(node: NodeRow, story: Iterable[e.Event], width: int, meta: Meta) -> list[Entry]:
    calls = [event for event in story if isinstance(event, e.HookCalled)]
    calls = [event for event in calls if event.node == node.index]
    if not calls and is_observed(meta):
        return [*_heading("Hooks"), Entry([Span("not seen: torch's own engine ran", "muted")])]
    if not calls:
        return []
    entries = _heading(f"{mark_of(meta)}Hooks ({plural(len(calls), 'call')})")
    for call in calls:
        change = ", changed the gradient" if call.changed else ""
        took = "" if is_observed(meta) else f"  {duration(call.duration_ns)}"
        text = f"{call.name}{took}{change}"
        entries += _fact(call.kind, text, width)
    return entries


def _saved(
    view: View, node: NodeRow, story: Iterable[e.Event], saved: Sequence[SavedRow], width: int
) -> list[Entry]:
    """The tensors saved for backward: a line each, as long as there is room for it."""
    if not saved:
        return []
    released = any(
        isinstance(event, e.SavedTensorsReleased)
        and event.node == node.index
        and event.seq <= view.moment.state.seq
        for event in story
    )
    now = f", {mark_of(view.recording.meta)}released" if released else ""
    entries = _heading(f"Saved tensors ({len(saved):,}{now})")
    longest = max(cell_len(row.name) for row in saved) + 1
    name = min(max(longest, _LABEL if width >= _WIDE else 0), width // 2)
    for row in saved:
        dtype = row.dtype or "not known"
        text = f"{dtype} {write_shape(row.shape)}".rstrip()
        room = width - name - 11
        line = [
            Span(left(row.name, name - 1) + " ", "muted"),
            Span(left(text, min(room, 26)), "name"),
            Span("" if row.nbytes is None else f" {size(row.nbytes):>10}", "number"),
        ]
        entries.append(Entry(line))
    return entries


def _stack(story: NodeDetails, width: int) -> list[Entry]:
    """The user's frames with their lines of source, the innermost first."""
    frames = [frame for frame in reversed(story.node.stack) if not frame.hidden]
    if len(frames) < 2 and not any(line.text for line in story.source):
        return []  # the only line is among the facts
    entries = _heading(f"Created by ({plural(len(frames), 'frame')})")
    for frame, text in story.source:
        entries.append(Entry([Span(tail(str(frame), width).rstrip(), "place")]))
        if text:
            entries.append(Entry([Span("  "), *highlight(text)]))
    if len(frames) > len(story.source):
        entries.append(Entry([Span(f"and {len(frames) - len(story.source)} more", "muted")]))
    return entries


def _edges(view: View, story: NodeDetails, width: int) -> list[Entry]:
    into, out = story.edges_in, story.edges_out
    entries = []
    if into:
        entries += _heading(f"Edges in ({story.degree.into:,})")
        entries += [_edge(view, edge, edge.producer, "←", width) for edge in into]
        entries += _more(story.degree.into, len(into))
    if out:
        entries += _heading(f"Edges out ({story.degree.out:,})")
        entries += [_edge(view, edge, edge.consumer, "→", width) for edge in out]
        entries += _more(story.degree.out, len(out))
    return entries


def _more(number: int, shown: int) -> list[Entry]:
    return [Entry([Span(f"and {number - shown:,} more", "muted")])] if number > shown else []


def _edge(view: View, edge: EdgeRow, other: int, arrow: str, width: int) -> Entry:
    def line() -> Line:
        state = view.moment.node_state(other)
        name = min(34, max(16, (width - 22) // 2))
        ends = f" output {edge.output:,} → {edge.slot:,}  "
        return [
            Span(f"{arrow} "),
            Span(f"{state.glyph} ", state.value),
            Span(left(view.recording.label(other), name), "name"),
            Span(ends, "number"),
            Span(tail(view.recording.place(other), width - name - 4 - len(ends)), "place"),
        ]

    return Entry(line, other)
