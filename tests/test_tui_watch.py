"""Watched expressions and log points in the terminal UI, on a program that is acted out."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.debugger.breakpoint_file import PLACE
from agviz.tui.panels.output import Output
from tests.live_support import (
    Stage,
    begin,
    command,
    driver,
    program,
    settle,
    stands,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.screen import TraceScreen


def shown(session: TraceScreen) -> list[str]:
    """The lines of what is watched."""
    lines = driver(session).watches.lines
    assert lines.display
    return str(lines.render()).splitlines()


def printed(session: TraceScreen) -> str:
    """What is in Output."""
    panel = session.query_one(Output)
    return "\n".join(panel._at(index)[1] for index in range(panel.line_count))


def on_stage(
    folder: Path, act: Callable[[Pilot[None], Stage], Coroutine[None, None, None]], height: int = 24
) -> None:
    stage = Stage(folder, passes=2)
    try:

        async def play() -> None:
            async with stage.app.run_test(size=(80, height)) as pilot:
                await act(pilot, stage)

        asyncio.run(play())
    finally:
        stage.close()


def norm_of(stage: Stage, node: int) -> str:
    """Of the gradient that comes to a node."""
    return f"{torch.linalg.vector_norm(stage.props.gradient(node)).item():.6g}"


def test_what_is_watched_is_seen_at_every_stop(tmp_path: Path) -> None:
    async def act(pilot: Pilot[None], stage: Stage) -> None:
        session = await begin(pilot, stage)
        assert not driver(session).watches.lines.display
        await command(pilot, "watch input[0].norm()")
        session = await command(pilot, "display norm")
        first = norm_of(stage, 0)
        assert shown(session) == [f" 1 input[0].norm()  {first}"]
        assert f"2: norm = {first}" in printed(session)
        session = await command(pilot, "next")
        session = await until(pilot, lambda _: len(shown(session)[0]) > 30)
        node = program(session).stop
        assert node is not None
        assert node.node is not None
        second = norm_of(stage, node.node)
        assert shown(session) == [f" 1 input[0].norm()  {first} → {second}"]
        assert f"2: norm = {second}" in printed(session)
        document = json.loads((tmp_path / PLACE).read_text())
        assert document["watches"] == {
            "train.py": [{"watch": "input[0].norm()"}, {"display": "norm"}]
        }
        await command(pilot, "unwatch 1")
        session = await command(pilot, "undisplay")
        assert not driver(session).watches.lines.display
        assert "watches" not in json.loads((tmp_path / PLACE).read_text())

    on_stage(tmp_path, act)


def test_many_leave_room_for_the_rest(tmp_path: Path) -> None:
    async def act(pilot: Pilot[None], stage: Stage) -> None:
        await begin(pilot, stage)
        for number in range(6):
            session = await command(pilot, f"watch norm > {number}")
        assert len(shown(session)) == 3
        assert shown(session)[-1] == "   and 4 more: :watch lists them"
        session = await command(pilot, "watch")
        assert "norm > 5" in printed(session)
        assert "True" in printed(session)

    on_stage(tmp_path, act)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("line", ["watch __import__('os')", "watch norm +", "unwatch 7", "log Mul"])
def test_what_makes_no_sense_is_said(tmp_path: Path, line: str) -> None:
    async def act(pilot: Pilot[None], stage: Stage) -> None:
        session = await begin(pilot, stage)
        await command(pilot, line)
        assert pilot.app._notifications
        assert not driver(session).watches.lines.display

    on_stage(tmp_path, act)


def test_a_log_point_is_listed_and_prints(tmp_path: Path) -> None:
    async def act(pilot: Pilot[None], stage: Stage) -> None:
        session = await begin(pilot, stage)
        await command(pilot, "log node=3 'norm is {norm}'")
        (made,) = driver(session).breakpoints.known
        assert (made.log, made.describe()) == ("norm is {norm}", "node=3 log norm is {norm}")
        await command(pilot, "tbreak node=5")
        await command(pilot, "continue")
        session = await until(pilot, lambda session: stands(session, 5))
        assert f"norm is {norm_of(stage, 3)}" in printed(session)
        await settle(pilot)
        assert [each.hits for each in driver(session).breakpoints.known] == [1]

    on_stage(tmp_path, act)


def test_expressions_are_there_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir()
    watches = {"train.py": [{"watch": "norm"}], "other.py": [{"display": "max"}]}
    path.write_text(json.dumps({"version": 2, "programs": {}, "watches": watches}))

    async def act(pilot: Pilot[None], stage: Stage) -> None:
        session = await begin(pilot, stage)
        session = await until(pilot, lambda _: norm_of(stage, 0) in shown(session)[0])
        await command(pilot, "break Mul")
        kept = json.loads(path.read_text())
        assert kept["watches"] == watches
        assert kept["programs"] == {"train.py": [{"name": "Mul"}]}

    on_stage(tmp_path, act)
