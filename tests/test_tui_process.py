"""The timeline of a process on the screen: what is drawn, chosen, summed up and opened."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from textual.events import Key
from torch import nn

import agviz
from agviz.analysis.process_timeline import SpanKind
from agviz.tui.app import AgvizApp
from agviz.tui.panels.process import ProcessLanes, ProcessSums
from agviz.tui.panels.threads import Threads
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.process import ProcessScreen
from agviz.tui.text import plain
from agviz.words.units import duration
from tests.slow_cases import slow_but
from tests.test_process_timeline import summed, whole
from tests.tui_support import calm, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.panels.panel import Panel


def train(passes: int, began: threading.Event | None = None) -> None:
    """Train a model; ``began`` is set in the first backward pass."""
    model = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(32, 32), nn.Tanh())))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(passes):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 32)).square().mean()
        if began is not None:
            loss.register_hook(lambda _: began.set())
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two threads that train at the same time; the main one's backward pass is the first."""
    torch.manual_seed(0)
    found = tmp_path_factory.mktemp("process") / "t.agviz"
    with agviz.trace(path=found):
        began = threading.Event()

        def train_too() -> None:
            began.wait()
            train(3)

        thread = threading.Thread(target=train_too)
        thread.start()
        train(3, began)
        thread.join()
    return found


def text_of(panel: Panel) -> list[str]:
    width, height = panel.scrollable_content_region.size
    return [plain(panel.row(y, width)[0]) for y in range(height)]


async def wait(pilot: Pilot[None], *keys: str) -> ProcessScreen:
    if keys:
        await pilot.press(*keys)
    for _ in range(400):
        await pilot.pause(0.01)
        screen = pilot.app.screen
        if isinstance(screen, ProcessScreen):
            picture = screen.query_one(ProcessLanes).picture
            window = screen.query_one(ProcessLanes).window
            if picture and picture.is_read and window in {None, (picture.begin, picture.end)}:
                await calm(pilot)
                return screen
    raise AssertionError("the timeline was not read")


async def hold(pilot: Pilot[None], key: str, times: int) -> None:
    """Have a key come so often as of a keyboard, which does not wait in between."""
    for _ in range(times):
        pilot.app.post_message(Key(key, None))
    await settle(pilot)


async def opened(pilot: Pilot[None]) -> ProcessScreen:
    await settle(pilot)
    return await wait(pilot, "T")


@pytest.mark.parametrize("size", slow_but({"(80, 24)"}, [(80, 24), (120, 40), (200, 60)]))
async def test_it_opens_at_the_pass_and_has_every_thread(path: Path, size: tuple[int, int]) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        lanes = screen.query_one(ProcessLanes)
        lines = text_of(lanes)
        assert "▼" in lines[0]
        assert lines[1].startswith("▶ T0")
        assert "backward #" in "".join(lines)
        width = lanes.scrollable_content_region.width
        assert all(len(line) <= width for line in lines)
        await wait(pilot, "0")
        assert lanes.window is not None
        assert lanes.picture is not None
        # Threads are numbered in the process, in which other tests have had threads of their own.
        named = [lane.thread for lane in lanes.picture.lanes]
        assert named[0] == 0
        assert len(named) == 2
        assert any(line.startswith(f"  T{named[1]} ") for line in text_of(lanes))
        with agviz.Trace.open(path) as trace:
            assert lanes.window == whole(trace).active


@pytest.mark.slow
async def test_what_is_under_the_cursor_is_said_and_opened(path: Path) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=(160, 40)) as pilot:
        screen = await opened(pilot)
        lanes = screen.query_one(ProcessLanes)
        await wait(pilot, "j", "j", "n")
        for _ in range(30):
            span = lanes.span
            if span is not None and span.kind is SpanKind.NODE:
                break
            await wait(pilot, "n")
        assert span is not None
        assert span.kind is SpanKind.NODE
        for _ in range(100):
            await pilot.pause(0.01)
            said = text_of(lanes)[-2:]
            if said[1]:
                break
        assert f"node {span.node} of backward #{span.graph_task}" in said[0]
        assert duration(span.end - span.begin) in said[0]
        with agviz.Trace.open(path) as trace:
            edges = trace.edges(span.graph_task)
            assert ("↗" in said[1]) == any(edge.consumer == span.node for edge in edges)
            assert ("↘" in said[1]) == any(edge.producer == span.node for edge in edges)
        await pilot.press("enter")
        await settle(pilot)
        trace_screen = cast("TraceScreen", pilot.app.screen)
        assert isinstance(trace_screen, TraceScreen)
        view = trace_screen.view
        assert view is not None
        assert view.recording.key.graph_task == span.graph_task
        assert view.moment.node == span.node


async def test_a_stretch_is_summed_up(path: Path) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=(120, 50)) as pilot:
        screen = await opened(pilot)
        lanes, sums = screen.query_one(ProcessLanes), screen.query_one(ProcessSums)
        assert " nodes" in " ".join(text_of(sums)[:4])
        await hold(pilot, "right", 20)
        await wait(pilot, "left_square_bracket")
        await hold(pilot, "right", 40)
        await wait(pilot, "right_square_bracket", "s")
        begin, end = cast("tuple[int, int]", tuple(lanes.range))
        assert begin < end
        for _ in range(200):
            await pilot.pause(0.01)
            lines = [plain(sums.line(place, 118)) for place in range(sums.line_count)]
            if str(sums.border_subtitle) == f"{duration(end - begin)} from {duration(begin)} on":
                break
        with agviz.Trace.open(path) as trace:
            expected = summed(whole(trace), begin, end)
        for name, took in [
            *((name, times[0]) for name, times in expected.types.items()),
            *((name, sum(times)) for name, times in expected.modules.items() if name),
        ]:
            assert any(name[-20:] in line and duration(took) in line for line in lines), name
        await pilot.press("escape")
        assert lanes.range == [None, None]
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(pilot.app.screen, TraceScreen)


async def test_the_mouse_moves_the_cursor_and_chooses_a_stretch(path: Path) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        lanes: Any = screen.query_one(ProcessLanes)
        await pilot.mouse_down(lanes, offset=(30, 2))
        first = lanes._at
        await pilot.hover(lanes, offset=(60, 2))
        await pilot.mouse_up(lanes, offset=(60, 2))
        assert lanes._at > first
        await pilot.mouse_down(lanes, offset=(40, 2), shift=True)
        await pilot.mouse_up(lanes, offset=(40, 2))
        assert lanes.range[0] is not None


async def test_fitting_what_fits_already_leads_to_the_process(path: Path) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("1", "plus", "0")
        await pilot.pause()
        assert pilot.app.screen.query_one(Threads).has_focus
        screen = await wait(pilot, "0")
        await pilot.press("question_mark")
        await pilot.pause()
        assert not isinstance(pilot.app.screen, ProcessScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.screen is screen


async def test_the_whole_process_grows_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "growing.agviz"
    with agviz.trace(path=path) as recording:
        train(1)
        assert len(recording.trace.graph_tasks) == 1  # which brings all to the file
        async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
            lanes = (await opened(pilot)).query_one(ProcessLanes)
            await wait(pilot, "0")
            assert lanes.picture is not None
            before = lanes.picture
            train(1)
            for _ in range(200):
                await pilot.pause(0.05)
                is_other = lanes.picture.is_read and lanes.picture.end > before.end
                if is_other and lanes.picture.lanes[0].idle[-1] < 1:
                    break
            assert lanes.picture.end > before.end
            assert lanes.picture.lanes[0].idle[-1] < 1  # the step comes last
