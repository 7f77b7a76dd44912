"""The looks of the live debugger, pinned: how a program stands, at three sizes in two themes.

``pytest tests/test_tui_live_looks.py --snapshot-update`` renews them; look at what changed then.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.live_support import (
    Stage,
    begin,
    command,
    press,
    program,
    settle,
    stands,
    until,
)
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import TypeAlias

    from textual.pilot import Pilot

    from agviz.tui.screen import TraceScreen

    SnapCompare: TypeAlias = Callable[..., bool]
    Play: TypeAlias = Callable[[Pilot[None], Stage], Awaitable[None]]

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks must not depend on who runs the tests."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "COLORTERM", "TEXTUAL"):
        monkeypatch.delenv(name, raising=False)


async def at_a_breakpoint(pilot: Pilot[None], stage: Stage) -> None:
    """It has stopped before a parameter's gradient is accumulated; other breakpoints are there."""
    await begin(pilot, stage)
    for line in (
        "break parameter=layers.2.linear.weight if norm > 1",
        "break module=layers.1.activation",
        "tbreak parameter=layers.0.linear.weight",
        "disable 2",
    ):
        await command(pilot, line)
    stage.stdout.waiting = b"step 1  loss 0.693\nstep 2  loss 0.641\n"
    await press(pilot, "c")
    await until(
        pilot, lambda session: stands(session, 10) and program(session).stop_tensors is not None
    )


async def at_a_nonfinite(pilot: Pilot[None], stage: Stage) -> None:
    """It has stopped where a gradient is not finite."""
    await begin(pilot, stage)
    await press(pilot, "c")
    await until(
        pilot, lambda session: stands(session, 7) and program(session).stop_tensors is not None
    )


async def at_an_exception(pilot: Pilot[None], stage: Stage) -> None:
    """A node has raised."""
    await begin(pilot, stage)
    stage.stderr.waiting = b"UserWarning: this will not end well\n"
    await until(pilot, lambda session: program(session).output.line_count == 1)
    await press(pilot, "c")
    await until(pilot, lambda session: stands(session, 12))


async def running(pilot: Pilot[None], stage: Stage) -> None:
    """It runs on, and is inside a node."""
    await begin(pilot, stage)
    stage.props.hold_at = 11
    await press(pilot, "c")
    stage.stdout.waiting = b"step 1  loss 0.693\n"
    await until(
        pilot, lambda session: stage.props.holds.is_set() and last_seq(session) == stage.props.seq
    )


async def dead(pilot: Pilot[None], stage: Stage) -> None:
    """It was killed where it stood."""
    await begin(pilot, stage)
    await press(pilot, *"nnnn")
    await until(pilot, stands)
    stage.end(-9)
    await until(pilot, lambda session: program(session).is_over and is_closed(session))


def is_closed(session: TraceScreen) -> bool:
    """Whether it was seen that the recording has ended."""
    return session.view is not None and session.view.recording.meta.end_ns is not None


def last_seq(session: TraceScreen) -> int:
    """Of the last event that is shown."""
    view = session.view
    return -1 if view is None or view.moment.event is None else view.moment.event.seq


HOW: dict[str, Play] = {
    "breakpoint": at_a_breakpoint,
    "nonfinite": at_a_nonfinite,
    "exception": at_an_exception,
    "running": running,
    "dead": dead,
}


def stage_for(how: str, folder: Path) -> Stage:
    """The program for one of them."""
    nan_at = 7 if how == "nonfinite" else None
    return Stage(folder, nan_at=nan_at, fail_at=12 if how == "exception" else None)


def playing(
    stage: Stage, play: Play, *keys: str, theme: str = "textual-dark"
) -> Callable[[Pilot[None]], Awaitable[None]]:
    async def act(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await play(pilot, stage)
        await press(pilot, *keys)
        pilot.app.clear_notifications()
        await settle(pilot)

    return act


THEMES = ["textual-dark", "textual-light"]
QUICK = {"breakpoint-200x60-textual-light", *(f"{how}-80x24-textual-dark" for how in HOW)}
"""Each in the least room, and that with most panels where there is the most."""
LOOKS = slow_but(
    QUICK,
    itertools.product(HOW, SIZES, THEMES),
    lambda look: f"{look[0]}-{look[1][0]}x{look[1][1]}-{look[2]}",
)
"""How, size and theme."""


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("look", LOOKS)
def test_how_it_stands(
    tmp_path: Path, snap_compare: SnapCompare, look: tuple[str, tuple[int, int], str]
) -> None:
    how, size, theme = look
    stage = stage_for(how, tmp_path)
    act = playing(stage, HOW[how], theme=theme)
    try:
        assert snap_compare(stage.app, terminal_size=size, run_before=act)
    finally:
        stage.close()
