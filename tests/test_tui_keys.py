"""The terminal UI's behaviour: every key, typed into the running application."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz.tui.app import AgvizApp
from agviz.tui.model import State
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import Graph
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.panel import Panel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.threads import Threads
from agviz.tui.screens.help import Help
from agviz.tui.screens.tasks import TaskPicker
from agviz.tui.title import PanelTab, Status, Title
from agviz_engine.events import NodeFailed, NodeStarted, NonFiniteChecked
from tests.tui_support import NODES, lines, mlp, press, record, settle, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.model import View
    from agviz.tui.session import Session

NAN_AT = 7


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("trace") / "nan.agviz", nan_at=NAN_AT)


@asynccontextmanager
async def opened(*paths: Path, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[None]]:
    app = AgvizApp(paths)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        yield pilot


def view_of(session: Session) -> View:
    assert session.view is not None
    return session.view


def position(session: Session) -> int:
    return view_of(session).moment.position


def notices(session: Session) -> list[str]:
    return [notice.message for notice in session.app._notifications]


def started(session: Session) -> int:
    """Number in execution order of the node the playhead has just started."""
    view = view_of(session)
    assert isinstance(view.moment.event, NodeStarted)
    order = view.recording.node(view.moment.event.node).order
    assert order is not None
    return order


async def test_it_opens_before_anything_has_happened(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        assert position(session) == 0
        assert isinstance(session.focused, Graph)
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
        row = next(line for line in lines(session.query_one(Graph)) if line.startswith("▶"))
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
        panel = session.query_one(Graph)
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
        assert f"of {len(of_thread)} nodes on T1" in str(session.query_one(Graph).border_subtitle)
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
        assert isinstance(session.focused, Graph)
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
        assert isinstance(session.focused, Graph)
        assert started(await press(pilot, "n")) == 1


async def test_the_cursor_moves(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        nodes = session.query_one(Graph)
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
        nodes = session.query_one(Graph)
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
        assert notices(session) == ["This node stands alone: there is nothing to fold."]


async def test_a_folded_group_counts_its_states(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await press(pilot, "E", "n", "n", "n", "n")
        row = next(line for line in lines(session.query_one(Graph)) if line.startswith("▶"))
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
        assert session.app.clipboard == "0 ns to 155 µs"


async def test_numbers_and_tab_choose_panels(trace: Path) -> None:
    async with opened(trace) as pilot:
        kinds = (Threads, Graph, Events, Inspector, Queues)
        for number, kind in enumerate(kinds, start=1):
            assert isinstance((await press(pilot, str(number))).focused, kind)
        for kind in kinds:
            assert isinstance((await press(pilot, "tab")).focused, kind)
        assert isinstance((await press(pilot, "shift+tab")).focused, Inspector)


async def test_a_small_screen_shows_one_panel(trace: Path) -> None:
    async with opened(trace, size=(80, 24)) as pilot:
        for number, kind in enumerate((Threads, Graph, Events, Inspector, Queues), start=1):
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
        assert any(line.startswith("▶") for line in lines(session.query_one(Graph)))


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


async def test_no_key_waits_for_what_does_not_exist_yet(trace: Path) -> None:
    async with opened(trace) as pilot:
        session = await settle(pilot)
        assert not {"b", "B", "exclamation_mark"} & set(session.active_bindings)


async def test_commands_do_what_they_say(trace: Path) -> None:
    async with opened(trace) as pilot:

        async def command(line: str) -> Session:
            await press(pilot, "colon")
            await write(pilot, line)
            return await press(pilot, "enter")

        assert started(await command("next 3")) == 3
        assert started(await command("next -1")) == 2
        assert started(await command("until 12")) == 12
        assert position(await command("event 5")) == 5
        assert position(await command("step")) == 6
        session = await command("node 9")
        recording = view_of(session).recording
        assert view_of(session).selected == recording.columns.started[8]
        assert view_of(await command("thread 2")).thread == 2
        assert view_of(await command("thread all")).thread is None
        session = await command("nonfinite")
        assert isinstance(view_of(session).moment.event, NonFiniteChecked)
        await command("theme nord")
        assert session.app.theme == "nord"
        await command("break 3")
        assert notices(session)[-1] == "There is no command break; :help lists them."
        await command("thread 9")
        assert notices(session)[-1] == "No node ran on a thread T9."
        await command("task 7")
        assert notices(session)[-1] == "There is no graph task 7 in this file."
        await command("help")
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
        session = await press(pilot, "n", "n", "t")
        assert isinstance(pilot.app.screen, TaskPicker)
        await press(pilot, "j", "j", "enter")
        assert view_of(session).recording.key == (0, 2)
        assert position(session) == 0
        await press(pilot, "t", "j", "enter")
        assert view_of(session).recording.key == (1, 0)
        assert started(await press(pilot, "n")) == 1
        await press(pilot, "t", "escape")
        assert view_of(session).recording.key == (1, 0)
        await pilot.click(Title)
        assert isinstance(pilot.app.screen, TaskPicker)


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
        assert threads.copy_text() == "0 ns to 77.5 µs".replace("77.5", "77.5")
        await press(pilot, "l")
        assert threads.copy_text() != "0 ns to 77.5 µs"
        await press(pilot, "h")
        assert threads.copy_text() == "0 ns to 77.5 µs"
        await press(pilot, "G")
        assert threads.copy_text() == "77.5 µs to 155 µs"
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
        await pilot.click(Graph, offset=(10, 5))
        await settle(pilot)
        assert session.query_one(Graph).cursor == 3
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
        await press(pilot, "n", "x", "slash", "t", "question_mark", "1")
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
