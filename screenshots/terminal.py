"""Pictures of ``agviz view``: the demo's trace at three sizes, and a planted NaN."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from agviz.demo.session import DemoSession
from agviz.tui.app import AgvizApp


class Shot(NamedTuple):
    """One picture: which trace, how large, in which colours, after which keys."""

    name: str
    plant_nan: bool
    columns: int
    rows: int
    theme: str
    keys: tuple[str, ...]


_INTO_THE_PASS = ("n",) * 46
_FILTER = ("f", *"leaf", "enter")
_DARK, _LIGHT = "textual-dark", "textual-light"

SHOTS = (
    Shot("view-80x24", False, 80, 24, _DARK, _INTO_THE_PASS),
    Shot("view-80x24-threads", False, 80, 24, _DARK, (*_INTO_THE_PASS, "1")),
    Shot("view-80x24-inspector", False, 80, 24, _DARK, (*_INTO_THE_PASS, "4")),
    Shot("view-80x24-events", False, 80, 24, _LIGHT, (*_INTO_THE_PASS, "3")),
    Shot("view-80x24-queues", False, 80, 24, _LIGHT, (*_INTO_THE_PASS, "5")),
    Shot("view-120x40", False, 120, 40, _DARK, _INTO_THE_PASS),
    Shot("view-200x60", False, 200, 60, _DARK, _INTO_THE_PASS),
    Shot("view-200x60-light", False, 200, 60, _LIGHT, _INTO_THE_PASS),
    Shot("view-light", False, 120, 40, _LIGHT, _INTO_THE_PASS),
    Shot("view-folded", False, 120, 40, _DARK, (*_INTO_THE_PASS, "left", "left", "left")),
    Shot("view-filtered", False, 120, 40, _DARK, (*_INTO_THE_PASS, "3", *_FILTER)),
    Shot("view-planted-nan", True, 120, 40, _DARK, ("x",)),
    Shot("view-why", True, 120, 40, _DARK, ("x", "w")),
    Shot("view-help", False, 120, 40, _DARK, ("question_mark",)),
)


def render(out_dir: Path) -> list[Path]:
    """Record the demo with and without its NaN, and photograph it; returns the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        traces = {}
        for plant_nan in (False, True):
            traces[plant_nan] = Path(folder) / str(plant_nan) / "agviz-demo.agviz"
            traces[plant_nan].parent.mkdir()
            DemoSession("char-lm", steps=1, plant_nan=plant_nan).record(traces[plant_nan])
        return [asyncio.run(_shoot(shot, traces[shot.plant_nan], out_dir)) for shot in SHOTS]


async def _shoot(shot: Shot, trace: Path, out_dir: Path) -> Path:
    app = AgvizApp([trace])
    async with app.run_test(size=(shot.columns, shot.rows)) as pilot:
        app.theme = shot.theme
        for key in ("", *shot.keys):
            if key:
                await pilot.press(key)
            while True:
                await pilot.pause()
                if await asyncio.to_thread(app.reader.wait):
                    break
        picture = out_dir / f"{shot.name}.svg"
        picture.write_text(app.export_screenshot(title="agviz view"), encoding="utf-8")
    return picture
