"""The terminal UI's behaviour: every key, typed into the running application."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
import torch

import agviz
from agviz.analysis.explanation import explain
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.errors import AgvizError
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.arrangement import PANELS
from agviz.tui.drivers import RecordedDriver
from agviz.tui.hints import Hints
from agviz.tui.keys import bindings
from agviz.tui.model import State
from agviz.tui.panels.events import Events
from agviz.tui.panels.files import FileList
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.modules import ModulesPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.source import SourcePanel
from agviz.tui.panels.threads import Threads
from agviz.tui.panels.what_happened import WhatHappened
from agviz.tui.screens.answer import Answer
from agviz.tui.screens.help import Help
from agviz.tui.screens.run import RunScreen
from agviz.tui.screens.tour import TOURS
from agviz.tui.settings import Settings
from agviz.tui.title import PanelTab, Status, Title
from agviz_engine import graph_task
from agviz_engine.events import NodeFailed, NodeFinished, NodeStarted, NonFiniteChecked
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.slow_cases import slow_but
from tests.tui_support import NODES, begin, lines, mlp, press, record, settle, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

    from agviz.record.names import Names
    from agviz.tui.model import View
    from agviz.tui.screen import TraceScreen

NAN_AT = 7


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("trace") / "nan.agviz", nan_at=NAN_AT)


@asynccontextmanager
async def opened(*paths: Path, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[None]]:
    app = AgvizApp(paths)
    async with app.run_test(size=size, notifications=True) as pilot:
        await begin(pilot)
        yield pilot


def view_of(session: TraceScreen) -> View:
    assert session.view is not None
    return session.view


def position(session: TraceScreen) -> int:
    return view_of(session).moment.position


def notices(session: TraceScreen) -> list[str]:
    return [notice.message for notice in session.app._notifications]


def started(session: TraceScreen) -> int:
    """Number in execution order of the node the playhead has just started."""
    view = view_of(session)
    assert isinstance(view.moment.event, NodeStarted)
    order = view.recording.node(view.moment.event.node).order
    assert order is not None
    return order


async def test_it_opens_before_anything_has_happened(tmp_path: Path) -> None:
    async with opened(record(tmp_path / "fine.agviz")) as pilot:
        session = await settle(pilot)
        assert position(session) == 0
        assert isinstance(session.focused, GraphPanel)
        assert view_of(session).selected == view_of(session).recording.columns.node_at(0)
        assert "nothing has happened yet" in session.query_one(Status).render().plain


async def test_n_goes_to_the_next_node_and_capital_n_back(trace: Path) -> None:
    async with opened(trace) as pilot:
        for order in (1, 2, 3):
            assert started(await press(pilot, "n")) == order
        for order in (2, 1):
            assert started(await press(pilot, "N")) == order
        assert position(await press(pilot, "N")) == 0
        assert started(await press(pilot, "G", "u")) == NODES
        session = await press(pilot, "n")
        assert position(session) == view_of(session).recording.event_count
        await press(pilot, "n")
        assert notices(session) == ["The playhead is at the end."]


async def test_n_marks_the_node_as_running_in_every_panel(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "n", "n", "n")
        view = view_of(session)
        node = view.moment.node
        assert node is not None
        assert view.selected == node
        assert view.moment.node_state(node) is State.RUNNING
        row = next(line for line in lines(session.query_one(GraphPanel)) if line.startswith("▶"))
        assert re.search(r"●.* 3 ", row)
        event = next(line for line in lines(session.query_one(Events)) if line.startswith("▶"))
        assert "started" in event
        assert "#3 " in event
        assert any("● running" in line for line in lines(session.query_one(Inspector)))
        assert any("┃" in line for line in lines(session.query_one(Threads)))


async def test_s_goes_to_the_next_event_and_capital_s_back(trace: Path) -> None:
    async with opened(trace) as pilot:
        for expected in (1, 2, 3):
            assert position(await press(pilot, "s")) == expected
        for expected in (2, 1, 0):
            assert position(await press(pilot, "S")) == expected
        session = await press(pilot, "S")
        assert notices(session) == ["The playhead is at the beginning."]


async def test_c_stops_at_every_non_finite_output_and_at_the_end(trace: Path) -> None:
    async with opened(trace) as pilot:
        found = 0
        session = await press(pilot, "c")
        while isinstance(event := view_of(session).moment.event, NonFiniteChecked):
            assert (event.node, event.nan) == (NAN_AT, 1)
            found += 1
            session = await press(pilot, "c")
        assert found == 3
        assert position(session) == view_of(session).recording.event_count
        session = await press(pilot, "C")
        assert isinstance(view_of(session).moment.event, NonFiniteChecked)
        assert position(await press(pilot, "C", "C", "C")) == 0


async def test_c_stops_at_a_failure(tmp_path: Path) -> None:
    async with opened(record(tmp_path / "failed.agviz", fail_at=12)) as pilot:
        session = await press(pilot, "c")
        view = view_of(session)
        assert isinstance(view.moment.event, NodeFailed)
        assert view.moment.node_state(12) is State.FAILED
        assert any("✗ RuntimeError" in line for line in lines(session.query_one(Inspector)))
        assert "✗ RuntimeError" in session.query_one(Title).render().plain


async def test_nodes_that_were_not_recorded_are_unknown_in_every_panel(tmp_path: Path) -> None:
    path = record(tmp_path / "some.agviz", chosen=re.compile("Addmm|Relu"))
    recorded = {n.index for n in mlp()[0] if n.name in {"AddmmBackward0", "ReluBackward0"}}
    unknown = sorted(set(range(NODES)) - recorded)
    async with opened(path, size=(160, 80)) as pilot:
        session = await press(pilot, "n")
        first = view_of(session)
        assert first.selected in recorded
        while position(session) < first.recording.event_count:
            view = view_of(session)
            states = [view.moment.node_state(node) for node in range(NODES)]
            assert [n for n, state in enumerate(states) if state is State.UNKNOWN] == unknown
            session = await press(pilot, "n")
        states = [view_of(session).moment.node_state(node) for node in range(NODES)]
        assert [n for n, state in enumerate(states) if state is State.DONE] == sorted(recorded)
        panel = session.query_one(GraphPanel)
        rows = [line for line in lines(panel) if "Backwar" in line or "Accumulate" in line]
        assert len(rows) == NODES
        assert sum("?" in line for line in rows) == len(unknown)
        assert sum("✓" in line for line in rows) == len(recorded)
        assert all(("Addmm" in line or "Relu" in line) == ("?" not in line) for line in rows)
        panel.focus()
        session = await press(pilot, "G")
        assert view_of(session).selected in unknown
        told = lines(session.query_one(Inspector))
        assert any("? unknown" in line for line in told)
        assert any("its events were not recorded" in line for line in told)
        lanes = session.query_one(Threads)
        assert not any("?" in line for line in lines(lanes))


async def test_x_goes_to_the_first_non_finite_gradient(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "x")
        view = view_of(session)
        assert view.recording.first_nonfinite is not None
        assert view.moment.event is not None
        assert view.moment.event.seq == view.recording.first_nonfinite
        assert view.moment.node_state(NAN_AT) is State.NONFINITE


async def test_x_says_when_there_is_none(tmp_path: Path) -> None:
    async with opened(record(tmp_path / "fine.agviz")) as pilot:
        session = await press(pilot, "x")
        assert position(session) == 0
        assert notices(session) == ["Every gradient that was checked is finite."]


async def test_u_runs_to_the_cursor(trace: Path) -> None:
    async with opened(trace) as pilot:
        assert started(await press(pilot, "j", "j", "j", "u")) == 4
        session = await press(pilot, "3", "j", "j", "j")
        cursor = session.query_one(Events).cursor
        assert position(await press(pilot, "u")) == cursor + 1
        assert started(await press(pilot, "2", "g", "u")) == 1


async def test_u_says_when_the_node_never_ran(tmp_path: Path) -> None:
    async with opened(record(tmp_path / "failed.agviz", fail_at=12)) as pilot:
        session = await press(pilot, "G", "u")
        assert position(session) == 0
        assert notices(session) == ["This node never ran: there is no such moment."]


async def test_threads_are_chosen_and_merged(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "greater_than_sign", "greater_than_sign")
        assert view_of(session).thread == 1
        of_thread = view_of(session).recording.columns.by_thread[1]
        assert started(await press(pilot, "n")) == of_thread[0]
        assert f"of {len(of_thread)} nodes on T1" in str(
            session.query_one(GraphPanel).border_subtitle
        )
        assert "only T1" in session.query_one(Status).render().plain
        assert any(line.startswith("▶ T1") for line in lines(session.query_one(Threads)))
        assert view_of(await press(pilot, "less_than_sign")).thread == 0
        assert view_of(await press(pilot, "less_than_sign")).thread == 2
        assert view_of(await press(pilot, "m")).thread is None
        await press(pilot, "m")
        assert notices(session) == ["All threads are shown already; < and > choose one."]


async def test_a_search_walks_through_its_matches(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "slash")
        await write(pilot, "relu")
        session = await press(pilot, "enter")
        recording = view_of(session).recording
        order = range(len(recording.columns))
        nodes = [recording.columns.node_at(row) for row in order]
        matches = [n for n in nodes if "Relu" in recording.node(n).short_name]
        assert view_of(session).selected == matches[0]
        assert isinstance(session.focused, GraphPanel)
        for node in [*matches[1:], matches[0]]:
            assert view_of(await press(pilot, "full_stop")).selected == node
        for node in reversed(matches):
            assert view_of(await press(pilot, "comma")).selected == node
        event = view_of(session).recording.columns.execution_of(matches[0])
        assert event is not None
        at_cursor = session.query_one(Events).event_at(session.query_one(Events).cursor)
        assert at_cursor is not None
        assert at_cursor.seq == event.seq


async def test_a_search_without_matches_says_so(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "comma")
        assert notices(session) == ["Search first: press / and type a part of a name."]
        await press(pilot, "slash")
        await write(pilot, "[red]")
        await press(pilot, "enter")
        assert notices(session)[-1] == "No node matches “[red]”."


async def test_escape_leaves_the_search(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "slash")
        await write(pilot, "nnn")
        session = await press(pilot, "escape")
        assert position(session) == 0
        assert isinstance(session.focused, GraphPanel)
        assert started(await press(pilot, "n")) == 1


async def test_the_cursor_moves(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        nodes = session.query_one(GraphPanel)
        for key, line in [
            ("j", 1),
            ("down", 2),
            ("k", 1),
            ("up", 0),
            ("up", 0),
            ("G", NODES - 1),
            ("j", NODES - 1),
            ("g", 0),
            ("end", NODES - 1),
            ("home", 0),
        ]:
            await press(pilot, key)
            assert nodes.cursor == line, key
            assert view_of(session).selected == view_of(session).recording.columns.node_at(line)
        await press(pilot, "pagedown")
        assert nodes.cursor > 5
        await press(pilot, "pageup")
        assert nodes.cursor == 0


async def test_a_group_folds_and_unfolds(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "j", "j", "j")
        nodes = session.query_one(GraphPanel)
        for key in ("e", "space"):
            await press(pilot, key)
            assert nodes.line_count == NODES - 3
            assert any("▸" in line and "4 nodes  layers.3.linear" in line for line in lines(nodes))
            await press(pilot, key)
            assert nodes.line_count == NODES
        await press(pilot, "E")
        assert nodes.line_count < NODES - 3
        await press(pilot, "E")
        assert nodes.line_count == NODES
        await press(pilot, "g", "e")
        assert notices(session) == ["This node is alone: there is nothing to fold."]


async def test_a_folded_group_counts_its_states(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "E", "n", "n", "n", "n")
        row = next(line for line in lines(session.query_one(GraphPanel)) if line.startswith("▶"))
        states = Counter(
            view_of(session).moment.node_state(node)
            for node in view_of(session).recording.columns.started[2:6]
        )
        for state, number in states.items():
            assert f"{state.glyph}{number}" in row
        assert len(states) > 1
        assert "4 nodes" in row


async def test_y_copies_what_is_selected(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "j", "y")
        assert "ReluBackward0 layers.3.activation" in session.app.clipboard
        await press(pilot, "1", "y")
        assert session.app.clipboard == "0 ns to 114 µs"


async def test_numbers_and_tab_choose_panels(trace: Path) -> None:
    async with opened(trace) as pilot:
        kinds = (Threads, GraphPanel, Events, Inspector, Queues, SourcePanel, ModulesPanel)
        for number, kind in enumerate(kinds, start=1):
            assert isinstance((await press(pilot, str(number))).focused, kind)
        for kind in kinds:
            assert isinstance((await press(pilot, "tab")).focused, kind)
        assert isinstance((await press(pilot, "shift+tab")).focused, SourcePanel)


async def test_a_small_screen_shows_one_panel(trace: Path) -> None:
    async with opened(trace, size=(80, 24)) as pilot:
        for number, kind in enumerate(PANELS, start=1):
            session = await press(pilot, str(number))
            assert [type(p) for p in session.query(Panel) if p.display and p.region] == [kind]
            assert session.query_one(kind).content_size.height > 12
        await pilot.click("#tab-events")
        assert isinstance((await settle(pilot)).focused, Events)
        chosen = [tab.id for tab in session.query(PanelTab) if tab.has_class("-chosen")]
        assert chosen == ["tab-events"]


async def test_resizing_keeps_everything(trace: Path) -> None:
    async with opened(trace, size=(80, 24)) as pilot:
        await press(pilot, "n", "n")
        for size in ((200, 60), (120, 40), (40, 10), (20, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            session = await settle(pilot)
            assert started(session) == 2
        assert any(line.startswith("▶") for line in lines(session.query_one(GraphPanel)))


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("key", "panel", "own"),
    [("question_mark", "1", "Zoom in"), ("f1", "2", "Fold"), ("question_mark", "4", "Follow")],
)
async def test_help_explains_the_focused_panel(trace: Path, key: str, panel: str, own: str) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, panel)
        focused = session.focused
        assert isinstance(focused, Panel)
        await press(pilot, key)
        screen = pilot.app.screen
        assert isinstance(screen, Help)
        shown = pilot.app.export_screenshot().replace("&#160;", " ")
        assert f"Help: {focused.HEADING}" in shown
        assert own in shown
        await press(pilot, "escape")
        assert pilot.app.screen is session


async def test_every_key_has_an_id_and_an_action_that_exists(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        for panel in session.query(Panel):
            panel.focus()
            await settle(pilot)
            for node, binding, _, _ in session.active_bindings.values():
                if node is session or node is panel:
                    inherited = binding.id is None and not binding.show
                    assert binding.id or inherited, binding
                    name = binding.action.split("(")[0].rpartition(".")[2]
                    owner = session.app if binding.action.startswith("app.") else node
                    owner = session if binding.action.startswith("screen.") else owner
                    assert hasattr(owner, f"action_{name}"), binding


async def test_keys_can_be_remapped(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        session.app.set_keymap({"go.next-node": "f5"})
        assert started(await press(pilot, "f5")) == 1
        assert started(await press(pilot, "n")) == 1


async def test_commands_do_what_they_say(trace: Path) -> None:
    async with opened(trace) as pilot:
        assert started(await command(pilot, "next 3")) == 3
        assert started(await command(pilot, "next -1")) == 2
        assert started(await command(pilot, "until 12")) == 12
        assert position(await command(pilot, "event 5")) == 5
        assert position(await command(pilot, "step")) == 6
        session = await command(pilot, "node 9")
        recording = view_of(session).recording
        assert view_of(session).selected == recording.columns.started[8]
        assert view_of(await command(pilot, "thread 2")).thread == 2
        assert view_of(await command(pilot, "thread all")).thread is None
        session = await command(pilot, "nonfinite")
        assert isinstance(view_of(session).moment.event, NonFiniteChecked)
        await command(pilot, "theme nord")
        assert session.app.theme == "nord"
        await command(pilot, "brake 3")
        assert notices(session)[-1] == "There is no command brake; :help lists them."
        await command(pilot, "thread 9")
        assert notices(session)[-1] == "No node ran on a thread T9."
        await command(pilot, "task 7")
        assert notices(session)[-1] == "There is no graph task 7 in this file."
        await command(pilot, "help")
        assert isinstance(pilot.app.screen, Help)


async def test_the_command_line_completes_and_remembers(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "colon")
        await write(pilot, "unt")
        await press(pilot, "tab")
        await write(pilot, " 4")
        await press(pilot, "enter")
        session = await settle(pilot)
        assert started(session) == 4
        await press(pilot, "g", "u")
        assert started(session) == 1
        await press(pilot, "colon", "up", "enter")
        assert started(session) == 4


async def test_the_palette_runs_keys(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "ctrl+p")
        await write(pilot, "First non-finite")
        await pilot.pause()  # the palette searches by itself
        session = await press(pilot, "down", "enter")
        await pilot.pause()
        assert isinstance(view_of(await settle(pilot)).moment.event, NonFiniteChecked)
        assert pilot.app.screen is session


async def test_graph_tasks_are_chosen(tmp_path: Path) -> None:
    first = record(tmp_path / "first.agviz", graph_tasks=3)
    second = record(tmp_path / "second.agviz", fail_at=12)
    async with opened(first, second) as pilot:
        session = await press(pilot, "p")
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        assert screen.file == 1
        await press(pilot, "tab", "k", "tab", "j", "j", "enter")
        assert view_of(session).recording.key == (0, 2)
        assert position(session) == 0
        await press(pilot, "p", "tab", "j", "enter", "enter")
        assert view_of(session).recording.key == (1, 0)
        await press(pilot, "p", "tab", "k", "escape")
        assert view_of(session).recording.key == (1, 0)
        await pilot.click(Title)
        assert isinstance(pilot.app.screen, RunScreen)


async def test_one_file_is_not_to_be_chosen(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "p")
        assert not pilot.app.screen.query_one(FileList).display
        before = pilot.app.screen.focused
        await press(pilot, "tab")
        assert pilot.app.screen.focused is before


async def test_a_file_without_a_pass_says_what_is_known(tmp_path: Path) -> None:
    first = record(tmp_path / "first.agviz", fail_at=12)
    with Recorder(tmp_path / "second.agviz"):
        pass
    async with opened(first, tmp_path / "second.agviz", size=(120, 40)) as pilot:
        await press(pilot, "p")
        assert "failed" in " ".join(lines(pilot.app.screen.query_one(WhatHappened)))
        await press(pilot, "tab", "j")
        said = " ".join(lines(pilot.app.screen.query_one(WhatHappened)))
        assert "failed" not in said
        with Trace.open(tmp_path / "second.agviz") as told:
            assert verdicts(told)[0].heading in said
        await press(pilot, "tab", "enter", "d", "m", "L")
        assert isinstance(pilot.app.screen, RunScreen)


async def test_edges_are_followed(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "j", "j", "4", "G")
        inspector = session.query_one(Inspector)
        while "← " not in inspector.copy_text():
            await press(pilot, "k")
        before = view_of(session).selected
        session = await press(pilot, "enter")
        with Trace.open(trace) as told:
            producers = {e.producer for e in told.edges(0) if e.consumer == before}
        assert view_of(session).selected in producers
        await press(pilot, "g", "enter")
        assert notices(session)[-1].startswith("This line is no edge")


async def test_queues_show_their_tasks_in_the_order_of_the_heap(trace: Path) -> None:
    async with opened(trace, size=(80, 24)) as pilot:
        session = await settle(pilot)
        queues = session.query_one(Queues)
        seen = 0
        await press(pilot, "5", "n", "n", "n")
        for _ in range(14):
            session = await press(pilot, "s")
            shown = "\n".join(lines(queues))
            for queue in view_of(session).moment.queues:
                assert f"depth {len(queue.tasks)}" in shown
                labels = [view_of(session).recording.label(task.node) for task in queue.tasks]
                places = [shown.index(label) for label in labels]
                assert places == sorted(places)
                seen = max(seen, len(labels))
        assert seen > 1


async def test_a_task_in_a_queue_is_shown(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "s", "s", "s", "s", "5", "j", "enter")
        assert view_of(session).selected == 0
        await press(pilot, "g", "enter")
        assert notices(session)[-1] == "There is no node of this graph task on this line."


async def test_the_lanes_zoom_and_pan(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "1")
        threads = session.query_one(Threads)
        whole = threads.copy_text()
        await press(pilot, "plus")
        assert threads.copy_text() == "0 ns to 57.0 µs"
        await press(pilot, "l")
        assert threads.copy_text() != "0 ns to 57.0 µs"
        await press(pilot, "h")
        assert threads.copy_text() == "0 ns to 57.0 µs"
        await press(pilot, "G")
        assert threads.copy_text() == "57.0 µs to 114 µs"
        await press(pilot, "g", "minus")
        assert threads.copy_text() == whole
        await press(pilot, "plus", "plus", "0")
        assert threads.copy_text() == whole
        await press(pilot, "j")
        assert view_of(session).thread == 0


async def test_the_zoomed_lanes_follow_the_playhead(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "1", "plus", "plus", "plus", "c")
        assert any("┃" in line or "!" in line for line in lines(session.query_one(Threads)))
        assert "▼" in lines(session.query_one(Threads))[0]


async def test_the_mouse_moves_the_playhead_and_the_cursor(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        await pilot.click(GraphPanel, offset=(10, 5))
        await settle(pilot)
        assert session.query_one(GraphPanel).cursor == 3
        line = lines(session.query_one(Threads))[3]
        column = line.rindex("░")
        await pilot.click(Threads, offset=(column + 1, 4))
        session = await settle(pilot)
        assert isinstance(view_of(session).moment.event, NodeStarted)
        event = view_of(session).moment.event
        assert event is not None
        assert event.thread == 2
        await pilot.click(Events, offset=(10, 6))
        await settle(pilot)
        assert isinstance(session.focused, Events)


async def test_q_quits(trace: Path) -> None:
    async with opened(trace) as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running
        assert pilot.app.return_code == 0


async def test_a_trace_without_a_backward_pass_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.agviz"
    with Recorder(path):
        pass
    async with opened(path) as pilot:
        shown = pilot.app.export_screenshot().replace("&#160;", " ")
        assert "This trace holds no backward pass." in shown
        await press(pilot, "n", "x", "slash", "p", "question_mark", "1")
        assert "This trace holds no backward pass." in shown


async def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "other.agviz"
    path.write_bytes(b"not a trace at all, whatever its name says")
    async with opened(path) as pilot:
        shown = pilot.app.export_screenshot().replace("&#160;", " ")
        assert "other.agviz" in shown
        await press(pilot, "n")
        await pilot.press("q")
        assert not pilot.app.is_running


async def test_only_the_pages_on_the_screen_are_read(tmp_path: Path) -> None:
    path = record(tmp_path / "long.agviz", graph_tasks=1)
    async with opened(path, size=(80, 24)) as pilot:
        session = await press(pilot, "3")
        events = session.query_one(Events)
        assert set(events._pages) == {0}


async def test_names_are_never_markup(tmp_path: Path) -> None:
    path = record(tmp_path / "[red]x[b].agviz")
    async with opened(path) as pilot:
        session = await settle(pilot)
        assert "[red]x[b].agviz" in session.query_one(Title).render().plain


async def command(pilot: Pilot[None], line: str) -> TraceScreen:
    await press(pilot, "colon")
    await write(pilot, line)
    return await press(pilot, "enter")


@pytest.mark.parametrize("key", ["b", "B", "exclamation_mark"])
async def test_what_only_a_live_program_can_do_says_so(trace: Path, key: str) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, key)
        assert "agviz run --live" in notices(session)[-1]
        assert position(session) == 0
        await command(pilot, "break 3")
        assert "agviz run --live" in notices(session)[-1]


async def test_events_are_filtered_by_kind_thread_and_node(trace: Path) -> None:
    with Trace.open(trace) as told:
        everything = told.events(0, limit=10_000)
    async with opened(trace, size=(200, 60)) as pilot:
        session = await command(pilot, "filter started finished T2")
        wanted = [
            (number, event)
            for number, event in enumerate(everything, start=1)
            if isinstance(event, NodeStarted | NodeFinished) and event.thread == 2
        ]
        panel = session.query_one(Events)
        assert panel.line_count == len(wanted)
        shown = [line.split()[0] for line in lines(panel)[1 : len(wanted) + 1]]
        assert shown == [str(number) for number, _ in wanted]
        await press(pilot, "3", "g", "j", "j", "u")
        assert position(session) == wanted[2][0]
        assert lines(panel)[3].startswith("▶")
        await press(pilot, "2", "g")
        session = await command(pilot, "filter .")
        node = view_of(session).selected
        assert panel.line_count == sum(getattr(e, "node", None) == node for e in everything)
        await command(pilot, "filter nonsense")
        assert notices(session)[-1].startswith("nonsense is no kind of event")
        await command(pilot, "filter capture")
        assert notices(session)[-1] == "No event fits “capture”; :filter lists all."
        await command(pilot, "filter")
        assert panel.line_count == len(everything)


async def test_f_asks_for_a_filter_and_tab_completes_it(trace: Path) -> None:
    async with opened(trace) as pilot:
        await press(pilot, "3", "f")
        await write(pilot, "rel")
        await press(pilot, "tab")
        session = await press(pilot, "enter")
        assert "release" in str(session.query_one(Events).border_subtitle)


async def test_the_graph_folds_outwards_and_inwards(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "j", "j", "left")
        graph = session.query_one(GraphPanel)
        counts = [graph.line_count]
        for key in ("left", "left"):
            await press(pilot, key)
            counts.append(graph.line_count)
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == 2
        await press(pilot, "left")
        assert notices(session)[-1] == "There is no larger group around this one."
        await press(pilot, "right")
        assert 2 < graph.line_count < NODES
        for _ in range(3):
            await press(pilot, "right")
        assert notices(session)[-1] == "Nothing is folded here."


async def test_a_message_takes_the_place_of_the_one_before(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "b", "exclamation_mark", "C")
        assert notices(session) == ["The playhead is at the beginning."]
        session.notify("This is worse.", severity="error")
        assert notices(await press(pilot, "C")) == ["The playhead is at the beginning."]


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("width", slow_but({"20", "120"}, [20, 40, 80, 120]))
async def test_the_hints_have_room_and_press_keys(trace: Path, width: int) -> None:
    async with opened(trace, size=(width, 24)) as pilot:
        session = await settle(pilot)
        hints = session.query_one(Hints)
        line = hints.render().plain
        assert len(line) <= width
        assert ("palette" in line) == (width == 120)
        assert "? Help" in line
        assert "q Quit" in line or width == 20
        if width >= 40:
            await pilot.click(Hints, offset=(line.index("N Node"), 0))
            assert position(await settle(pilot)) == 0  # it was there before
            await pilot.click(Hints, offset=(line.index("nN"), 0))
            assert started(await settle(pilot)) == 1
        await pilot.click(Hints, offset=(line.index("Help"), 0))
        await settle(pilot)
        assert isinstance(pilot.app.screen, Help)
        bottom = pilot.app.screen.query_one("#help")
        await press(pilot, "G")
        assert bottom.scroll_y == bottom.max_scroll_y > 0
        await press(pilot, "g")
        assert bottom.scroll_y == 0


async def test_the_hints_keep_their_order_with_other_keys(tmp_path: Path, trace: Path) -> None:
    keys = tmp_path / "agviz" / "keys.toml"
    keys.parent.mkdir()
    keys.write_text('[keys]\n"go.next-node" = "f8,n"\n"help" = "f2"\n', encoding="utf-8")
    app = AgvizApp([trace], Settings.read(tmp_path / "agviz"))
    async with app.run_test(size=(80, 24)) as pilot:
        session = await settle(pilot)
        line = session.query_one(Hints).render().plain
        assert line == " e Fold  f8N Node  sS Event  cC Continue  x NaN  / Search  f2 Help  q Quit "


async def test_the_hints_are_those_of_the_prompt_while_it_is_open(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "slash")
        assert session.query_one(Hints).render().plain.startswith(" esc Cancel  tab Complete ")
        session = await press(pilot, "escape")
        assert session.query_one(Hints).render().plain.startswith(" e Fold  nN Node ")


@pytest.mark.slow
async def test_the_mouse_scrubs_while_its_button_is_held(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        region = session.query_one(Threads).content_region
        seen = []
        await pilot.mouse_down(Threads, offset=(20, 4))
        for x in (25, 35, 45, 80):
            await pilot.hover(Threads, offset=(x, 4))
            await settle(pilot)
            seen.append(position(session))
        await pilot.mouse_up(Threads, offset=(80, 4))
        await settle(pilot)
        assert region.width > 80
        assert seen == sorted(seen)
        assert len(set(seen)) > 2
        await pilot.hover(Threads, offset=(30, 4))
        await settle(pilot)
        assert position(session) == seen[-1]


async def test_threads_that_do_something_are_told_first_where_there_is_no_room(
    tmp_path: Path,
) -> None:
    registry, rng = Registry(), Random(5)
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        Simulator(registry, rng, devices=4).backward(random_graph(rng, 40, 4))
    async with opened(tmp_path / "t.agviz", size=(200, 60)) as pilot:
        session = await press(pilot, *("n" * 9))
        running = view_of(session).moment.state.running()
        shown = lines(session.query_one(Threads))
        told = [line.split()[0] for line in shown[1 + len(view_of(session).threads) + 1 :]]
        assert 0 < len(told) < len(view_of(session).threads)
        inside = [f"T{thread}" for thread in view_of(session).threads if running.get(thread)]
        assert inside
        assert told[: len(inside)] == inside[: len(told)]


@pytest.mark.slow
async def test_why_is_answered(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_task, "_next_id", itertools.count().__next__)
    path = tmp_path / "root.agviz"
    x = torch.zeros(3, requires_grad=True)
    with agviz.trace(path=path):
        x.sqrt().sum().backward()
    with Trace.open(path) as told:
        expected = explain(told, 0)
    assert expected is not None
    async with opened(path) as pilot:
        session = await press(pilot, "w")
        screen = pilot.app.screen
        assert isinstance(screen, Answer)
        (verdict,) = screen.answer.verdicts
        assert verdict.outcome is Outcome.FOUND
        assert verdict.heading == expected.heading
        assert verdict.paragraph == expected.paragraph
        assert verdict.source == "x.sqrt().sum().backward()"
        await press(pilot, "y", "escape")
        assert expected.paragraph in pilot.app.clipboard
        assert pilot.app.screen is session
    async with opened(trace) as pilot:
        await press(pilot, "w")
        screen = pilot.app.screen
        assert isinstance(screen, Answer)
        with Trace.open(trace) as told:
            assert screen.answer.verdicts == verdicts(told, 0)
        assert screen.answer.verdicts[0].outcome is Outcome.FOUND
        await press(pilot, "escape")
        session = await command(pilot, "why no.such.parameter")
        assert pilot.app.screen is session
        assert "no.such.parameter" in notices(session)[-1]


async def test_a_graph_is_exported(tmp_path: Path) -> None:
    path = record(tmp_path / "fine.agviz")
    async with opened(path) as pilot:
        session = await command(pilot, f"export dot {tmp_path / 'graph.dot'}")
        await session.workers.wait_for_complete()
        await settle(pilot)
        assert notices(session)[-1] == f"Wrote {tmp_path / 'graph.dot'}."
        assert "digraph" in (tmp_path / "graph.dot").read_text()
        await command(pilot, "export jpeg")
        assert notices(session)[-1].startswith("jpeg is none of svg, png")


async def test_commands_complete_their_arguments(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        assert session.complete("unt") == ["until"]
        assert session.complete("until layers.0.l") == [
            "until layers.0.linear",
            "until layers.0.linear.bias",
            "until layers.0.linear.weight",
        ]
        assert session.complete("thread ") == ["thread all", "thread 0", "thread 1", "thread 2"]
        assert session.complete("theme nor") == ["theme nord"]
        assert session.complete("quit n") == []


async def test_a_trace_grows_while_it_is_shown(tmp_path: Path) -> None:
    nodes, names = mlp()
    registry = Registry()
    path = tmp_path / "growing.agviz"
    with Recorder(path, names=cast("Names", names), script="train.py", argv=[]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(7), devices=2)
        simulator.backward(nodes)
        recorder.flush()
        async with opened(path) as pilot:
            session = await press(pilot, "F")
            view = view_of(session)
            assert view.follows
            assert "following" in session.query_one(Title).render().plain
            assert position(session) == view.recording.event_count
            first = view.recording.key
            simulator.backward(nodes, nan_at=3)
            recorder.flush()
            session.reader.poll()
            session = await settle(pilot)
            assert view_of(session).recording.key != first
            assert view_of(session).follows
            assert position(session) == view_of(session).recording.event_count > 0
            assert len(session.board.tasks[0]) == 2
            session = await press(pilot, "N")
            assert not view_of(session).follows


async def test_a_file_that_is_replaced_or_deleted_is_told_of(tmp_path: Path) -> None:
    path = record(tmp_path / "first.agviz")
    other = record(tmp_path / "second.agviz", fail_at=12)
    async with opened(path) as pilot:
        session = await press(pilot, "n")
        other.replace(path)
        session.reader.poll()
        await settle(pilot)
        assert "another file has taken its place" in session.query_one(Title).render().plain
        await press(pilot, "n")
        assert started(session) == 2
        session = await press(pilot, "R")
        assert "✗ RuntimeError" in session.query_one(Title).render().plain
        path.unlink()
        session.reader.poll()
        await settle(pilot)
        assert "the file is gone" in session.query_one(Title).render().plain


async def test_choices_are_kept_and_keys_are_read(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "agviz"
    folder.mkdir()
    (folder / "toured").write_text(" ".join(TOURS))
    (folder / "keys.toml").write_text('[keys]\n"go.next-node" = "f8"\n"no.such" = "f9"\n')
    app = AgvizApp([trace], Settings.read(folder))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        session = await settle(pilot)
        assert notices(session) == ["keys.toml names bindings that are not there: no.such."]
        await begin(pilot)
        assert started(await press(pilot, "f8")) == 1
        await command(pilot, "theme nord")
    app = AgvizApp([trace], Settings.read(folder))
    async with app.run_test(size=(100, 30)):
        assert app.theme == "nord"
    for nonsense in ('"go.next-node" = "f8"', "[keys]\nx = 3", "[keys"):
        (folder / "keys.toml").write_text(nonsense)
        with pytest.raises(AgvizError, match=r"keys\.toml can't be"):
            Settings.read(folder)


async def test_a_folder_of_traces_opens_with_its_files(tmp_path: Path) -> None:
    paths = [record(tmp_path / f"rank{rank}.agviz") for rank in (0, 1)]
    app = AgvizApp(
        paths,
        make_driver=partial(RecordedDriver, begins_with_run=True),
        notes=["rank2.agviz is empty"],
    )
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        session = await settle(pilot)
        assert isinstance(app.screen, RunScreen)
        assert "rank1.agviz" in " ".join(lines(app.screen.query_one(FileList)))
        assert notices(session) == ["rank2.agviz is empty"]
        await press(pilot, "tab", "j", "enter", "enter")
        assert view_of(session).recording.key == (1, 0)


def test_every_binding_is_documented() -> None:
    told = Path(__file__).parent.parent.joinpath("docs", "terminal.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", told, re.MULTILINE)
    assert dict(rows) == {name: binding.key for name, binding in bindings().items()}
