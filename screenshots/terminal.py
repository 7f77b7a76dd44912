"""Pictures of ``agviz view``: the demo's trace at three sizes, and a planted NaN."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from agviz.demo.session import DemoSession
from agviz.tui.app import AgvizApp
from agviz.tui.drivers import RecordedDriver
from screenshots.shooting import DARK, LIGHT, Shot

_DIVERGING = Path(__file__).with_name("diverging.py")
_INTO_THE_PASS = ("n",) * 46
_FILTER = ("f", *"leaf", "enter")

SHOTS = (
    Shot("view-80x24", 80, 24, DARK, _INTO_THE_PASS),
    Shot("view-80x24-threads", 80, 24, DARK, (*_INTO_THE_PASS, "1")),
    Shot("view-80x24-inspector", 80, 24, DARK, (*_INTO_THE_PASS, "4")),
    Shot("view-80x24-events", 80, 24, LIGHT, (*_INTO_THE_PASS, "3")),
    Shot("view-80x24-queues", 80, 24, LIGHT, (*_INTO_THE_PASS, "5")),
    Shot("view-120x40", 120, 40, DARK, _INTO_THE_PASS),
    Shot("view-200x60", 200, 60, DARK, _INTO_THE_PASS),
    Shot("view-200x60-light", 200, 60, LIGHT, _INTO_THE_PASS),
    Shot("view-light", 120, 40, LIGHT, _INTO_THE_PASS),
    Shot("view-folded", 120, 40, DARK, (*_INTO_THE_PASS, "left", "left", "left")),
    Shot("view-filtered", 120, 40, DARK, (*_INTO_THE_PASS, "3", *_FILTER)),
    Shot("view-help", 120, 40, DARK, ("question_mark",)),
)
PLANTED = (
    Shot("view-planted-nan", 120, 40, DARK, ("x",)),
    Shot("view-why", 120, 40, DARK, ("x", "w")),
)
"""Of the demo with its NaN."""
RUN = (
    Shot("view-run-80x24", 80, 24, DARK),
    Shot("view-run-120x40", 120, 40, DARK),
    Shot("view-run-200x60-light", 200, 60, LIGHT),
    Shot("view-source", 120, 40, DARK, ("enter", "f4")),
    Shot("view-timeline", 120, 40, DARK, ("enter", "f5")),
    Shot("view-compare", 120, 40, DARK, ("d",)),
    Shot("view-flow", 120, 40, DARK, ("k", "L")),
    Shot("view-modules", 120, 40, DARK, ("enter", "7", "E")),
)
"""Of all passes of a run, one of which has a square root of zero."""


def render(out_dir: Path) -> list[Path]:
    """Record the demo with and without its NaN, and photograph it; returns the pictures."""
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        for shots in (SHOTS, PLANTED):
            trace = Path(folder) / str(len(shots)) / "agviz-demo.agviz"
            trace.parent.mkdir()
            DemoSession("char-lm", steps=1, plant_nan=shots is PLANTED).record(trace)
            for shot in shots:
                app = AgvizApp([trace])
                shooting = shot.shoot(app, app.reader.wait, "agviz view", out_dir)
                pictures.append(asyncio.run(shooting))
        trace = Path(folder) / "agviz-train.agviz"
        (Path(folder) / "train.py").write_bytes(_DIVERGING.read_bytes())
        command = [sys.executable, "-m", "agviz", "run", "-o", str(trace), "train.py"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        for shot in RUN:
            app = AgvizApp([trace], make_driver=partial(RecordedDriver, begins_with_run=True))
            shooting = shot.shoot(app, app.reader.wait, "agviz view", out_dir)
            pictures.append(asyncio.run(shooting))
    return pictures
