"""Pictures of ``agviz run --live`` on a script that goes wrong in its second step."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agviz.debugger.launch import Debuggee
from agviz.tui.live_app import LiveApp
from agviz.tui.live_driver import LiveDriver

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from agviz.tui.screen import TraceScreen

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 4)

    def forward(self, x, scale):
        hidden = self.norm(self.encoder(x))
        return self.head((hidden * scale).square().sqrt())

torch.manual_seed(0)
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 16), scale=step != 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss:.4f}", flush=True)
"""
_SECONDS = 60.0


class Shot(NamedTuple):
    """One picture: how large, in which colours, after which commands and keys."""

    name: str
    columns: int
    rows: int
    theme: str
    commands: tuple[str, ...]
    keys: tuple[str, ...]


_BREAKPOINTS = ("break parameter=encoder.2.weight if norm > 0", "tbreak module=encoder.0")
_DARK, _LIGHT = "textual-dark", "textual-light"

SHOTS = (
    Shot("live-120x40", 120, 40, _DARK, _BREAKPOINTS, ("c",)),
    Shot("live-200x60", 200, 60, _LIGHT, _BREAKPOINTS, ("c",)),
    Shot("live-80x24-nonfinite", 80, 24, _DARK, (), ("c", "4")),
)


def render(out_dir: Path) -> list[Path]:
    """Debug the script as far as each picture wants it; returns the pictures."""
    return [asyncio.run(_shoot(shot, out_dir)) for shot in SHOTS]


async def _shoot(shot: Shot, out_dir: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "train.py").write_text(SCRIPT, encoding="utf-8")
        with Debuggee(["-o", "train.agviz", "train.py"], cwd=place) as debuggee:
            app = LiveApp(debuggee.client, debuggee, place)
            async with app.run_test(size=(shot.columns, shot.rows)) as pilot:
                app.theme = shot.theme
                session = await _stopped(pilot)
                for command in shot.commands:
                    await pilot.press("colon")
                    session.query_one("#prompt-field").value = command  # type: ignore[attr-defined]
                    await pilot.press("enter")
                for key in shot.keys:
                    await pilot.press(key)
                    await _stopped(pilot)
                app.clear_notifications()
                await _stopped(pilot)
                picture = out_dir / f"{shot.name}.svg"
                title = "agviz run --live train.py"
                picture.write_text(app.export_screenshot(title=title), encoding="utf-8")
    return picture


async def _stopped(pilot: Pilot[None]) -> TraceScreen:
    """Wait until the program has stopped, and all that is known of that is shown."""
    deadline = time.monotonic() + _SECONDS
    app = pilot.app
    while time.monotonic() < deadline:
        await pilot.pause(0.3)
        screen = app.shown if isinstance(app, LiveApp) else None
        if screen is not None and isinstance(screen.driver, LiveDriver) and screen.view:
            tensors, event = screen.driver.program.stop_tensors, screen.view.moment.event
            if tensors is not None and event is not None and event.seq == tensors.seq:
                return screen
    raise TimeoutError("the program stops nowhere")
