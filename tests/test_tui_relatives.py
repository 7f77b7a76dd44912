"""From a backward pass to those that its nodes began, and back; and files that are opened anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.panels.inspector import Inspector
from tests.tui_support import lines, press, record, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.model import View
    from agviz.tui.screen import TraceScreen


def part(x: torch.Tensor) -> torch.Tensor:
    """Its gradient is NaN where an element is zero: 0 times infinity."""
    return (x * 0).sqrt() * 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    x = torch.ones(3, requires_grad=True)
    with agviz.trace(path=tmp_path / "training.agviz"):
        (2 * checkpoint(part, 3 * x, use_reentrant=True)).sum().backward()
    return tmp_path / "training.agviz"


def view_of(session: TraceScreen) -> View:
    assert session.view is not None
    return session.view


def at(session: TraceScreen) -> tuple[int, int]:
    """Graph task and ``seq`` of the event behind which the playhead is."""
    view = view_of(session)
    assert view.moment.event is not None
    return view.recording.key.graph_task, view.moment.event.seq


def notices(pilot: Pilot[None]) -> str:
    return " ".join(each.message for each in pilot.app._notifications)


async def outermost(pilot: Pilot[None]) -> TraceScreen:
    """Go to the beginning of the pass that the user called."""
    session = await settle(pilot)
    session.carry_out(f"task {session.board.tasks[0][0].id}")
    return await settle(pilot)


async def follow(pilot: Pilot[None], arrow: str) -> TraceScreen:
    """Press enter on the line of the inspector that has an arrow."""
    session = await press(pilot, "4", "g")
    shown = lines(session.query_one(Inspector))
    (line,) = (y for y, line in enumerate(shown) if arrow in line)
    return await press(pilot, *("j" * line), "enter")


async def test_x_goes_to_the_pass_around_that_it_came_to_and_back(path: Path) -> None:
    with Trace.open(path) as trace:
        outer, inner = trace.graph_tasks
        assert inner.parent == outer.id
        firsts = {row.id: trace.first_nonfinite(row.id) for row in (outer, inner)}
    places = {number: (number, first.seq) for number, first in firsts.items() if first is not None}
    assert places[inner.id][1] < places[outer.id][1]
    async with AgvizApp([path]).run_test(size=(120, 40), notifications=True) as pilot:
        session = await settle(pilot)
        assert at(session) == places[inner.id]
        session = await press(pilot, "x")
        assert at(session) == places[outer.id]
        assert f"non-finite gradient of backward #{outer.id}" in notices(pilot)
        session = await press(pilot, "x")
        assert at(session) == places[inner.id]


async def test_x_says_where_nothing_else_is(tmp_path: Path) -> None:
    path = record(tmp_path / "t.agviz", nan_at=7)
    async with AgvizApp([path]).run_test(size=(120, 40), notifications=True) as pilot:
        session = await press(pilot, "x")
        there = at(session)
        session = await press(pilot, "x")
        assert at(session) == there
        assert "The playhead is there" in notices(pilot)


async def test_the_inspector_leads_into_a_reentrant_pass_and_back(path: Path) -> None:
    with Trace.open(path) as trace:
        outer, inner = trace.graph_tasks
        began = trace.node(outer.id, inner.parent_node)
    async with AgvizApp([path]).run_test(size=(160, 60)) as pilot:
        session = await outermost(pilot)
        session = await press(pilot, *("n" * (began.order or 0)))
        assert view_of(session).selected == began.index
        session = await follow(pilot, f"↓ backward #{inner.id}, {inner.nodes} nodes")
        assert at(session) == (inner.id, inner.begin_seq)
        session = await follow(pilot, f"↑ backward #{outer.id}")
        view = view_of(session)
        assert view.recording.key.graph_task == outer.id
        assert view.moment.node == view.selected == began.index
        assert view.moment.is_running(began.index)


async def test_files_are_opened_anew_where_one_was(path: Path, tmp_path: Path) -> None:
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        await outermost(pilot)
        session = await press(pilot, "n", "n", "greater_than_sign", "j")
        before = view_of(session)
        assert before.selected != before.moment.node
        session = await press(pilot, "R")
        after = view_of(session)
        assert after.recording is not before.recording
        assert not after.recording.is_same(before.recording)
        assert at(session) == (before.recording.key.graph_task, before.moment.state.seq)
        assert (after.selected, after.thread) == (before.selected, before.thread)
        session = await press(pilot, "n")
        assert view_of(session).moment.position > before.moment.position

        record(tmp_path / "other.agviz").replace(path)
        session = await press(pilot, "R")  # what was looked at is gone
        assert view_of(session).moment.position == 0
        assert view_of(session).recording.nodes == 21
