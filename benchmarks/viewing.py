"""How quickly the terminal UI opens a long trace, and answers each key.

``python -m benchmarks.viewing FILE`` is the process that shows it, on a screen of 120 by 40 that
nobody sees. Measured are wall time until the first screen since the process was started, and wall
time and CPU time (of all threads) from a key until the last change on the screen that came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from textual import events

from agviz.tui import app as app_module
from agviz.tui.app import AgvizApp, calm_the_collector
from benchmarks.reading import record_sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.pilot import Pilot
    from textual.screen import Screen

    from agviz.tui.model import View

_KEYS: Final = {
    "n": ("n",) * 30,
    "N": ("N",) * 15,
    "s": ("s",) * 30,
    "S": ("S",) * 15,
    "jump to the end": ("G", "u", "g", "u") * 5,
    "S at the end": ("G", "u", *("S",) * 20),
    "page down": ("g", *("pagedown",) * 20),
    "page of events": ("3", "g", *("pagedown",) * 20, "2"),
    "x": ("x", "g", "u") * 5,
    "search": ("slash", "m", "m", "enter", *("full_stop",) * 10),
}
"""What is typed, by what it is called."""
_QUIET: Final = 3
_PATIENCE: Final = 120.0


class Latency(NamedTuple):
    """Of the keys of one kind, in ms."""

    median: float
    p95: float
    cpu_median: float
    cpu_p95: float

    @classmethod
    def of(cls, taken: Sequence[tuple[float, float]]) -> Latency:
        """From wall time and CPU time of each key."""
        wall, cpu = ([each[place] for each in taken] for place in (0, 1))
        return cls(statistics.median(wall), _p95(wall), statistics.median(cpu), _p95(cpu))


def _p95(taken: Sequence[float]) -> float:
    return sorted(taken)[int(0.95 * (len(taken) - 1))]


class Viewing(NamedTuple):
    """One trace in the terminal UI."""

    events: int
    nodes: int
    first_screen_s: float
    all_read_s: float
    """Until the whole outline of the graph was read; keys are answered meanwhile, too."""
    peak_mb: float
    keys: dict[str, Latency]


def measure(*, quick: bool) -> Viewing:
    """One backward pass of a million events (40,000 where it is to be quick)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        record_sequences(path, 8 if quick else 185)
        environment = os.environ | {"AGVIZ_STARTED": repr(time.time())}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.viewing", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=environment,
        )
    found = json.loads(done.stdout)
    return Viewing(**found | {"keys": {key: Latency(*of) for key, of in found["keys"].items()}})


class _Watched(AgvizApp):
    """Remembers when the screen last changed."""

    CSS_PATH = str(Path(app_module.__file__).with_name("agviz.tcss"))
    changed = 0.0, 0.0
    """Wall time and CPU time."""

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        super()._display(screen, renderable)
        self.changed = time.perf_counter(), time.process_time()


async def _main(path: Path) -> None:
    started = float(os.environ["AGVIZ_STARTED"])
    calm_the_collector()
    app = _Watched([path])
    async with app.run_test(size=(120, 40)) as pilot:
        async with asyncio.timeout(_PATIENCE):
            view = await _view(app)
            await pilot.pause(0)
            first_screen = time.time() - started
            await _settle(app, pilot)
        all_read = time.time() - started
        keys = {}
        for kind, typed in _KEYS.items():
            keys[kind] = Latency.of([await _press(app, pilot, key) for key in typed])
        recording = view.recording
        peak = _peak_bytes() / 1e6
        found = Viewing(recording.event_count, recording.nodes, first_screen, all_read, peak, keys)
        print(json.dumps(found._asdict()))


def _peak_bytes() -> int:
    """Of this process alone: what ``getrusage`` gives may be what it was forked from."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


async def _view(app: _Watched) -> View:
    """What is shown, as soon as anything is."""
    while app.session.view is None:  # noqa: ASYNC110 - the application tells nobody
        await asyncio.sleep(0.001)
    return app.session.view


async def _press(app: _Watched, pilot: Pilot[None], key: str) -> tuple[float, float]:
    """Times in ms until the last change; the answer of the reader thread is waited for."""
    character = {"slash": "/"}.get(key, key if len(key) == 1 else None)
    began = app.changed = time.perf_counter(), time.process_time()
    app.post_message(events.Key(key, character))
    await _settle(app, pilot)
    wall, cpu = (1e3 * (to - since) for to, since in zip(app.changed, began, strict=True))
    return wall, cpu


async def _settle(app: _Watched, pilot: Pilot[None]) -> None:
    quiet = 0
    while quiet < _QUIET:
        await pilot.pause(0)
        quiet = quiet + 1 if await asyncio.to_thread(app.reader.wait) else 0


if __name__ == "__main__":
    asyncio.run(partial(_main, Path(sys.argv[1]))())
