"""Only lines that changed are painted: the screen must look as if all were."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from textual.widget import Widget

from agviz.tui.app import AgvizApp
from agviz.tui.panels.panel import Panel
from tests.tui_support import press, record, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.strip import Strip

    from agviz.tui.screen import TraceScreen

KEYS = [
    *("n", "n", "n", "s", "s", "N", "S", "c", "C", "x", "u"),
    *("j", "k", "g", "G", "pagedown", "pageup", "down", "up", "left", "right"),
    *("less_than_sign", "greater_than_sign", "m", "space", "e", "E", "comma", "full_stop"),
    *("1", "2", "3", "4", "5", "6", "7", "v", "tab", "shift+tab", "plus", "minus", "0", "enter"),
]


def painted(session: TraceScreen) -> list[Strip]:
    return session._compositor.render_strips()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "rounds"),
    [
        ((120, 40), 15),
        *(
            pytest.param(size, 60, marks=pytest.mark.slow)
            for size in [(80, 24), (120, 40), (200, 60)]
        ),
    ],
)
async def test_what_is_painted_is_what_would_be_painted_anew(
    tmp_path: Path, size: tuple[int, int], rounds: int
) -> None:
    app = AgvizApp([record(tmp_path / "t.agviz", nan_at=7)])
    random = Random(size[0])
    async with app.run_test(size=size) as pilot:
        session = await press(pilot, "slash", "r", "e", "l", "u", "enter")
        for _ in range(rounds):
            keys = [random.choice(KEYS) for _ in range(random.choice([1, 1, 2, 5]))]
            await press(pilot, *keys)
            found = painted(session)
            for widget in session.query(Widget):
                widget.refresh()
            await settle(pilot)
            assert found == painted(session), keys


async def test_a_key_paints_the_lines_that_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AgvizApp([record(tmp_path / "t.agviz")])
    lines = 0
    async with app.run_test(size=(120, 40)) as pilot:
        session = await press(pilot, *"nnnnnn")
        draw = Panel.render_line

        def counted(panel: Panel, y: int) -> Strip:
            nonlocal lines
            lines += 1
            return draw(panel, y)

        monkeypatch.setattr(Panel, "render_line", counted)
        await press(pilot, "s")
        every = sum(panel.content_size.height for panel in session.query(Panel))
        assert 0 < lines < every / 3
