"""The room: one panel alone, borders that move and are remembered, modes, and the tour."""

from __future__ import annotations

import json
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.tui.app import AgvizApp
from agviz.tui.drivers import RecordedDriver
from agviz.tui.modes import ModeBar
from agviz.tui.panel_grid import PanelGrid
from agviz.tui.panels.panel import Panel
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.compare import CompareScreen
from agviz.tui.screens.process import ProcessScreen
from agviz.tui.screens.run import RunScreen
from agviz.tui.screens.tour import TOURS, Tour
from agviz.tui.settings import Settings
from agviz.tui.shares import Shares, Tracks, moved
from tests.tui_support import press, record, settle, write

if TYPE_CHECKING:
    from pathlib import Path

    from textual.screen import Screen

    from agviz.tui.screens.tour import TourName

BIG = (120, 40)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("layout") / "t.agviz")


def shown(screen: TraceScreen) -> set[str]:
    return {str(panel.id) for panel in screen.query(Panel) if panel.display and panel.region.height}


@given(
    st.lists(st.integers(4, 60), min_size=2, max_size=5),
    st.data(),
    st.integers(-20, 400),
    st.integers(1, 20),
)
def test_a_moved_border_takes_from_its_neighbours_only(
    sizes: list[int], data: st.DataObject, to: int, least: int
) -> None:
    edges = [0, *accumulate(sizes)]
    place = data.draw(st.integers(1, len(sizes) - 1))
    found = moved(edges, place, to, least)
    assert sum(found) == sum(sizes)
    others = [size for at, size in enumerate(sizes) if at not in {place - 1, place}]
    assert [size for at, size in enumerate(found) if at not in {place - 1, place}] == others
    if sizes[place - 1] + sizes[place] >= 2 * least:
        assert min(found[place - 1], found[place]) >= least
        is_free = edges[place - 1] + least <= to <= edges[place + 1] - least
        assert not is_free or sum(found[:place]) == to
    else:
        assert found == sizes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"normal": 3}',
        '{"normal": {"columns": "wide", "rows": [0, -1]}}',
        '{"normal": {"columns": [1, 99999999], "rows": [true]}}',
        '{"normal": {"columns": [1,1,1,1,1,1,1,1,1,1,1]}}',
    ],
)
def test_a_file_that_is_not_ours_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "layout.json"
    file.write_text(text)
    assert Shares(file).of("normal") == Tracks()


async def test_one_panel_has_all_the_room_until_the_key_is_pressed_again(path: Path) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        several = shown(app.shown)
        assert {"threads", "graph", "events", "inspector", "queues"} == several
        await press(pilot, "3", "z")
        assert shown(app.shown) == {"events"}
        assert app.shown.query_one("#events").region.height > 30
        await press(pilot, "tab")
        assert shown(app.shown) == {"inspector"}
        await press(pilot, "z")
        assert shown(app.shown) == several


@pytest.mark.slow
async def test_keys_and_the_mouse_move_borders_which_are_there_the_next_time(
    path: Path, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, "", {})
    (tmp_path / "toured").write_text("run pass program\n")
    app = AgvizApp([path], settings)
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        grid, graph = app.shown.query_one(PanelGrid), app.shown.query_one("#graph")
        width, height = graph.region.width, graph.region.height
        await press(pilot, "2", "ctrl+right", "ctrl+down")
        assert (graph.region.width, graph.region.height) == (width + 2, height + 1)
        right, bottom = graph.region.right, graph.region.bottom
        await pilot.mouse_down(grid, offset=(right - grid.region.x, 20))
        await pilot.hover(grid, offset=(right - grid.region.x - 12, 20))
        await pilot.mouse_up(grid, offset=(right - grid.region.x - 12, 20))
        await settle(pilot)
        assert graph.region.right == right - 12
        await pilot.mouse_down(grid, offset=(10, bottom - 1 - grid.region.y))
        await pilot.hover(grid, offset=(10, bottom + 4 - grid.region.y))
        await pilot.mouse_up(grid, offset=(10, bottom + 4 - grid.region.y))
        await settle(pilot)
        assert graph.region.bottom == bottom + 5
        edges = grid.edges("columns"), grid.edges("rows")
    assert json.loads((tmp_path / "layout.json").read_text()).keys() == {"normal"}

    app = AgvizApp([path], settings)
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        grid = app.shown.query_one(PanelGrid)
        assert (grid.edges("columns"), grid.edges("rows")) == edges
        await press(pilot, "colon")
        await write(pilot, "layout")
        await press(pilot, "enter")
        assert app.shown.query_one("#graph").region.width == width
    assert json.loads((tmp_path / "layout.json").read_text()) == {}


@pytest.mark.parametrize("size", [BIG, (200, 60)])
async def test_the_source_has_its_own_mode_and_another_panel_leads_out_of_it(
    path: Path, size: tuple[int, int]
) -> None:
    app = AgvizApp([path])
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        several = shown(app.shown)
        await press(pilot, "f4")
        assert shown(app.shown) == {"graph", "inspector", "source"}
        regions = [app.shown.query_one(f"#{name}").region for name in shown(app.shown)]
        assert all(one is other or not one.overlaps(other) for one in regions for other in regions)
        await press(pilot, "3")
        assert shown(app.shown) >= several - {"queues"}
        assert app.shown.focused is app.shown.query_one("#events")


@pytest.mark.slow
async def test_the_names_of_modes_lead_to_them(path: Path) -> None:
    app = AgvizApp([path], make_driver=partial(RecordedDriver, begins_with_run=True))
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        on_screen: Screen[object] = app.screen
        assert isinstance(on_screen, RunScreen)
        await pilot.click(ModeBar, offset=(13, 0))
        await settle(pilot)
        assert shown(app.shown) == {"graph", "inspector", "source"}
        await pilot.click(ModeBar, offset=(7, 0))
        await settle(pilot)
        assert "events" in shown(app.shown)
        await pilot.click(ModeBar, offset=(1, 0))
        await settle(pilot)
        assert isinstance(app.screen, RunScreen)


@pytest.mark.slow
async def test_a_key_leads_from_each_mode_to_each_other(tmp_path: Path) -> None:
    app = AgvizApp([record(tmp_path / "t.agviz", graph_tasks=2)])
    screens: dict[str, type[object]] = {"f2": RunScreen, "f3": TraceScreen}
    screens |= {"f5": ProcessScreen, "f6": CompareScreen}
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        for here in screens:
            for there, kind in screens.items():
                await press(pilot, here, there)
                assert isinstance(app.screen, kind), (here, there)
                assert len(app.screen_stack) <= 3


@pytest.mark.slow
async def test_the_tour_is_shown_once(path: Path, tmp_path: Path) -> None:
    settings = Settings(tmp_path, "", {})
    make_driver = partial(RecordedDriver, begins_with_run=True)
    app = AgvizApp([path], settings, make_driver=make_driver)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        both: list[tuple[TourName, type[object]]] = [("run", RunScreen), ("pass", TraceScreen)]
        for name, below in both:
            for _ in TOURS[name]:
                assert isinstance(app.screen, Tour)
                await press(pilot, "enter")
            assert isinstance(app.screen, below)
            await press(pilot, "p")
    assert (tmp_path / "toured").read_text() == "run pass\n"

    app = AgvizApp([path], settings)
    async with app.run_test(size=BIG) as pilot:
        await settle(pilot)
        assert app.screen is app.shown
        await press(pilot, "colon")
        await write(pilot, "tour")
        await press(pilot, "enter")
        assert isinstance(app.screen, Tour)
        await press(pilot, "escape")
        assert app.screen is app.shown
