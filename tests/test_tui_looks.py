"""The terminal UI's looks, pinned: three sizes in a dark and a light theme, and each panel alone.

``pytest tests/test_tui_looks.py --snapshot-update`` renews them; look at what has changed then.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agviz.tui.app import AgvizApp
from tests.slow_cases import slow_but
from tests.tui_support import begin, press, record, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot

    SnapCompare = Callable[..., bool]

SIZES = [(80, 24), (120, 40), (200, 60)]
THEMES = ["textual-dark", "textual-light"]
WHOLE = slow_but(
    {"80x24-textual-light", "200x60-textual-dark"},
    itertools.product(SIZES, THEMES),
    lambda look: f"{look[0][0]}x{look[0][1]}-{look[1]}",
)
"""Size and theme."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("trace") / "training.agviz", nan_at=7)


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks must not depend on who runs the tests."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "COLORTERM", "TEXTUAL"):
        monkeypatch.delenv(name, raising=False)


def typing(*keys: str, theme: str = "textual-dark") -> Callable[[Pilot[None]], Awaitable[None]]:
    async def type_them(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await begin(pilot)
        await press(pilot, *keys)
        await settle(pilot)

    return type_them


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("look", WHOLE)
def test_the_whole(
    trace: Path, snap_compare: SnapCompare, look: tuple[tuple[int, int], str]
) -> None:
    size, theme = look
    keys = ["n"] * 6 + ["s"] * 5
    assert snap_compare(
        AgvizApp([trace]), terminal_size=size, run_before=typing(*keys, theme=theme)
    )


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("panel", ["1", "3", "4", "5"])
def test_each_panel_alone(trace: Path, snap_compare: SnapCompare, panel: str) -> None:
    app = AgvizApp([trace])
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("x", panel))


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_folded_graph(trace: Path, snap_compare: SnapCompare, size: tuple[int, int]) -> None:
    keys = [*"nnn", "left", "j", "j", "j", "left", "left"]
    app = AgvizApp([trace])
    assert snap_compare(app, terminal_size=size, run_before=typing(*keys))


def test_filtered_events(trace: Path, snap_compare: SnapCompare) -> None:
    keys = [*"nnn", "3", "f", *"check", "enter"]
    app = AgvizApp([trace])
    assert snap_compare(app, terminal_size=(120, 40), run_before=typing(*keys))


@pytest.mark.parametrize("theme", slow_but({"textual-dark"}, THEMES))
def test_an_answer(trace: Path, snap_compare: SnapCompare, theme: str) -> None:
    app = AgvizApp([trace])
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("w", theme=theme))


def test_help(trace: Path, snap_compare: SnapCompare) -> None:
    app = AgvizApp([trace])
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("question_mark"))


def test_a_failure(tmp_path: Path, snap_compare: SnapCompare) -> None:
    path = record(tmp_path / "failed.agviz", fail_at=12)
    assert snap_compare(AgvizApp([path]), terminal_size=(120, 40), run_before=typing("c", "E"))


def test_a_file_that_is_no_trace(
    tmp_path: Path, snap_compare: SnapCompare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("notes.agviz")
    path.write_text("no trace", encoding="utf-8")
    assert snap_compare(AgvizApp([path]), terminal_size=(80, 24), run_before=typing())
