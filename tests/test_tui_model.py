"""The terminal UI's plain data: the playhead, moments, folding, times to cells, texts, commands."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import agviz
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz.tui import command_line, text
from agviz.tui.commands import usages
from agviz.tui.describe import SHORT, describe
from agviz.tui.inspection import inspect
from agviz.tui.model import Key, LoadedPass, Moment, NodeDetails, Playhead, State, View
from agviz.tui.node_details import read_node_details
from agviz.tui.reader_thread import Loaded, ReaderThread
from agviz.tui.timeline import Lane, Window
from agviz.tui.track import TraceTrack
from agviz_engine import graph_task
from agviz_engine.events import EVENT_TYPES, NodeFailed, NodeStarted, NonFiniteChecked
from tests.tui_support import LAYERS, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agviz_engine.events import Event


@functools.cache
def load(path: Path) -> LoadedPass:
    """What the reader thread makes of the first graph task."""
    posted: list[Any] = []
    reader = ReaderThread([path], posted.append)
    reader.load(Key(0, 0))
    reader.stop()
    reader.run()
    recording = next(message.recording for message in posted if isinstance(message, Loaded))
    assert recording.columns.is_complete
    return recording


@functools.cache
def events_of(path: Path) -> list[Event]:
    with Trace.open(path) as trace:
        return trace.events(0, limit=10_000)


def moment(path: Path, position: int) -> Moment:
    with Trace.open(path) as trace:
        last = trace.events(0, position - 1, 1) if position else []
        state = trace.state_at(0, position)
    return Moment(graph_task=0, position=position, event=last[0] if last else None, state=state)


@contextmanager
def playhead(path: Path) -> Iterator[Playhead]:
    with Trace.open(path) as trace:
        yield Playhead(TraceTrack(trace, 0, trace.outline(0)))


def started(recording: LoadedPass) -> list[int]:
    return list(recording.columns.started)


moves = st.lists(
    st.tuples(st.sampled_from(["events", "nodes", "stops"]), st.sampled_from([-2, -1, 1, 2])),
    max_size=40,
)


@pytest.fixture(scope="module")
def with_nan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("nan") / "nan.agviz", nan_at=7)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("failed") / "failed.agviz", fail_at=12)


@given(moves)
def test_the_playhead_moves_as_a_walk_over_all_events_would(
    with_nan: Path, moves: list[tuple[str, int]]
) -> None:
    events = events_of(with_nan)
    kinds: dict[str, Callable[[Event], bool]] = {
        "events": lambda event: True,
        "nodes": lambda event: isinstance(event, NodeStarted),
        "stops": lambda event: isinstance(event, NonFiniteChecked) and event.nan > 0,
    }
    position = 0
    with playhead(with_nan) as head:
        for kind, count in moves:
            getattr(head, f"by_{kind}")(count)
            step = 1 if count > 0 else -1
            for _ in range(abs(count)):
                position += step
                while 0 < position < len(events) and not kinds[kind](events[position - 1]):
                    position += step
                position = min(max(position, 0), len(events))
            assert head.position == position
            assert head.seq == (events[position - 1].seq if position else -1)


def test_the_playhead_keeps_to_one_thread(with_nan: Path) -> None:
    events = events_of(with_nan)
    visited = []
    with playhead(with_nan) as head:
        while True:
            head.by_nodes(1, thread=2)
            if head.position == len(events):
                break
            visited.append(events[head.position - 1])
    assert visited == [e for e in events if isinstance(e, NodeStarted) and e.thread == 2]


def test_continue_stops_at_failures(failed: Path) -> None:
    recording, events = load(failed), events_of(failed)
    failures = [event for event in events if isinstance(event, NodeFailed)]
    assert recording.columns.stops == [failures[0].seq]


def test_a_moment_says_what_the_replayed_state_says(with_nan: Path) -> None:
    with Trace.open(with_nan) as trace:
        nodes, count = trace.nodes(0), trace.event_count(0)
        for position in range(2, count + 1, 7):
            then = moment(with_nan, position)
            state = trace.state_at(0, position)
            for node in nodes:
                status = state.status(0, node.index)
                if state.is_nonfinite(0, node.index):
                    assert then.node_state(node.index) is State.NONFINITE
                else:
                    assert then.node_state(node.index).value == status.value
                assert then.remaining(node.index, node.dependencies) == state.remaining(
                    0, node.index
                )


def test_before_the_dependencies_are_computed_every_node_waits_for_all(with_nan: Path) -> None:
    for position in (0, 1):
        then = moment(with_nan, position)
        with Trace.open(with_nan) as trace:
            for node in trace.nodes(0):
                assert then.node_state(node.index) is State.WAITING
                assert then.remaining(node.index, node.dependencies) == node.dependencies
                assert then.buffer(node.index) == {}
        assert then.executed == 0


def test_every_state_has_a_glyph_of_its_own() -> None:
    glyphs = [state.glyph for state in State]
    assert len(set(glyphs)) == len(glyphs)
    assert all(cell_len(glyph) == 1 for glyph in glyphs)
    assert {status.value for status in NodeStatus} < {state.value for state in State}


def test_nodes_are_found_by_name_module_and_parameter(with_nan: Path) -> None:
    recording = load(with_nan)
    find = recording.columns.find
    assert len(find("accumulategrad")) == 2 * LAYERS
    assert len(find("AccumulateGrad")) == 2 * LAYERS
    assert find("aCCUMULATE") == []
    assert {recording.place(node) for node in find("layers.1.act")} == {"layers.1.activation"}
    assert len(find(".bias")) == LAYERS


executions = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20)


@given(executions, st.integers(1, 60), st.integers(0, 200), st.integers(1, 2_000))
def test_every_cell_shows_an_execution_of_its_time(
    gaps: list[tuple[int, int]], columns: int, begin: int, length: int
) -> None:
    rows, now = [], 0
    for gap, duration in gaps:
        start = now + gap
        now = start + duration + 1
        rows.append((start, now))
    window = Window(begin, begin + length, columns)
    lane = Lane([row[0] for row in rows], [row[1] for row in rows], (), now)
    for column, index in enumerate(lane.cells(window)):
        low, high = window.time(column), window.time(column + 1)
        fitting = {number for number, (start, end) in enumerate(rows) if start < high and end > low}
        assert index in fitting if fitting else index == -1


def test_a_non_finite_node_is_seen_however_small_it_is() -> None:
    starts = range(0, 10_000, 10)
    ends = range(9, 10_009, 10)
    cells = Lane(starts, ends, (777,), 10_000).cells(Window(0, 10_000, 10))
    assert cells[7] == 777


def test_the_node_under_way_is_seen_however_many_share_its_cell() -> None:
    starts = range(0, 10_000, 10)
    ends = range(9, 10_009, 10)
    lane = Lane(starts, ends, (777, 778), 10_000)
    window = Window(0, 10_000, 10)
    assert lane.cells(window, 7_512.0)[7] == 751
    assert lane.cells(window, 7_509.5)[7] == 777


@given(
    st.floats(0.05, 20),
    st.integers(0, 1_000_000),
    st.lists(st.floats(-100, 100), max_size=5),
)
def test_zoom_and_pan_stay_within_the_graph_task(
    factor: float, around: int, pans: list[float]
) -> None:
    whole = (0, 1_000_000)
    window = Window(*whole, 100).zoomed(factor, around, whole)
    for columns in pans:
        window = window.panned(columns, whole)
        assert whole[0] - 1e-6 <= window.begin < window.end <= whole[1] + 1e-6
    if factor < 1 and not pans:
        assert window.begin - 1e-6 <= around <= window.end + 1e-6


@given(st.text(max_size=30), st.integers(0, 40))
def test_columns_are_as_wide_as_they_should_be(words: str, width: int) -> None:
    for fit in (text.left, text.right, text.tail):
        assert cell_len(fit(words, width)) == width


@given(st.text(alphabet="ab c…宽\n", max_size=60), st.integers(2, 12))
def test_lines_are_wrapped_between_words_where_words_have_room(words: str, width: int) -> None:
    pieces = text.wrap(words, width)
    assert all(cell_len(piece) <= width for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(words.split())
    whole = [word for word in words.split() if cell_len(word) <= width]
    assert not Counter(whole) - Counter(word for piece in pieces for word in piece.split())


def test_every_kind_of_event_has_a_word_that_fits() -> None:
    assert set(SHORT) == set(EVENT_TYPES)
    assert all(len(word) < 11 for word in SHORT.values())


def test_every_event_is_described_on_one_line(with_nan: Path, failed: Path) -> None:
    for path in (with_nan, failed):
        recording = load(path)
        with Trace.open(path) as trace:
            for event in trace.events(None, limit=10_000):
                assert "\n" not in describe(event, recording)


def test_events_of_other_graph_tasks_nodes_are_described_too(with_nan: Path) -> None:
    event = NodeStarted(0, 0, 0, 5, 99_999)
    assert describe(event, load(with_nan)) == "node 99999"


def story(path: Path, node: int) -> NodeDetails:
    with Trace.open(path) as trace:
        return read_node_details(trace, trace.outline(0), 0, node)


def test_the_inspector_tells_what_the_trace_holds(with_nan: Path) -> None:
    recording = load(with_nan)
    node = recording.columns.find("layers.2.linear")[0]
    then = moment(with_nan, recording.event_count)
    of_node = story(with_nan, node)
    view = View(recording=recording, moment=then, selected=node, story=of_node)
    told = [text.plain(entry.line) for entry in inspect(view, of_node, 100)]
    everything = "\n".join(told)
    assert "! non-finite" in everything
    assert "! output 0: 1 NaN" in everything
    assert "layers.2.linear" in everything
    assert "[32, 64]" in everything
    with Trace.open(with_nan) as trace:
        edges = trace.edges(0)
    out = {edge.consumer for edge in edges if edge.producer == node}
    into = {edge.producer for edge in edges if edge.consumer == node}
    links = {entry.node for entry in inspect(view, of_node, 100)} - {None}
    assert links == out | into


def test_the_inspector_shows_what_was_saved_for_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_task, "_next_id", itertools.count().__next__)
    path = tmp_path / "t.agviz"
    x = torch.randn(3, 4, requires_grad=True)
    with agviz.trace(path=path):
        product = x @ torch.randn(4, 5, dtype=x.dtype).requires_grad_()
        loss = product.softmax(1).double().sum()
        assert product.grad_fn is not None
        softmax: Any = loss.grad_fn
        for _ in range(2):
            softmax = softmax.next_functions[0][0]
        held = {
            node.name(): {
                name.removeprefix("_saved_"): getattr(node, name)
                for name in dir(node)
                if name.startswith("_saved_") and isinstance(getattr(node, name), torch.Tensor)
            }
            for node in (product.grad_fn, softmax)
        }
        loss.backward()
    assert {name: len(saved) for name, saved in held.items()} == {
        "MmBackward0": 2,
        "SoftmaxBackward0": 1,
    }
    recording = load(path)
    with Trace.open(path) as trace:
        nodes = list(trace.nodes(0))
    for node in nodes:
        saved = held.get(node.name, {})
        for width in (38, 100):
            for position in (2, recording.event_count):
                then = moment(path, position)
                of_node = story(path, node.index)
                view = View(recording=recording, moment=then, selected=node.index, story=of_node)
                told = [text.plain(entry.line) for entry in inspect(view, of_node, width)]
                headings = [line for line in told if line.startswith("Saved")]
                if node.name not in held:
                    continue
                now = ", released" if position > 2 else ""
                assert headings == [f"Saved tensors ({len(saved)}{now})"]
                at = told.index(headings[0])
                assert max(map(cell_len, told[at : at + 1 + len(saved)])) <= width
                found = [line.split() for line in told[at + 1 : at + 1 + len(saved)]]
                wanted = [
                    f"{name} float32 {list(tensor.shape)} {4 * tensor.numel()} B".split()
                    for name, tensor in sorted(saved.items())
                ]
                assert found == wanted


def test_of_many_outputs_the_first_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_task, "_next_id", itertools.count().__next__)
    path = tmp_path / "t.agviz"
    x = torch.ones((), requires_grad=True)
    with agviz.trace(path=path):
        torch.stack([x * 2 for _ in range(240)]).sum().backward()
    recording = load(path)
    stack = next(
        node for node in range(recording.nodes) if recording.node(node).short_name[:5] == "Stack"
    )
    of_node = story(path, stack)
    then = moment(path, recording.event_count)
    view = View(recording=recording, moment=then, selected=stack, story=of_node)
    told = [text.plain(entry.line).rstrip() for entry in inspect(view, of_node, 60)]
    assert "Gradients out (240 outputs)" in told
    assert sum(line.startswith("output ") and "not needed" not in line for line in told) == 100
    assert {"and 140 more", "and 40 more"} <= set(told)  # outputs, edges
    assert len(recording.columns.consumers(stack)) == 240


def test_the_inspector_names_the_exception(failed: Path) -> None:
    recording = load(failed)
    (node,) = recording.columns.notable
    then = moment(failed, recording.event_count)
    of_node = story(failed, node)
    view = View(recording=recording, moment=then, selected=node, story=of_node)
    told = [text.plain(entry.line) for entry in inspect(view, of_node, 60)]
    at = next(number for number, line in enumerate(told) if "✗ RuntimeError: no" in line)
    assert told[at + 1].split() == ["way"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("next", ("next", "")),
        ("  until   layers.0 ", ("until", "layers.0")),
        ("c", ("continue", "")),
        ("u 12", ("until", "12")),
        ("s -1", ("step", "-1")),
        ("theme nord", ("theme", "nord")),
    ],
)
def test_a_command_is_read(line: str, expected: tuple[str, str]) -> None:
    assert command_line.parse(line, usages(frozenset())) == expected


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("brake 12", "There is no command brake"),
        ("t 1", "could be thread or tbreak or timeline or task or theme or tour"),
        ("quit now", "takes no argument"),
        ("until", "needs an argument: until NODE"),
    ],
)
def test_a_wrong_command_is_explained(line: str, complaint: str) -> None:
    with pytest.raises(command_line.CommandError, match=complaint):
        command_line.parse(line, usages(frozenset()))


def test_nodes_are_meant_by_number_or_name(with_nan: Path) -> None:
    recording = load(with_nan)
    assert command_line.node("3", recording) == started(recording)[2]
    assert command_line.node("#3", recording) == started(recording)[2]
    assert command_line.node("layers.0.act", recording) == recording.columns.find("layers.0.act")[0]
    for nonsense in ("0", "999", "no such thing"):
        with pytest.raises(command_line.CommandError):
            command_line.node(nonsense, recording)
    with pytest.raises(command_line.CommandError, match="no whole number"):
        command_line.number("x")
    assert command_line.number("1,024") == 1_024
