"""A picture of a test that fails, as pytest shows it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

SUITE: Final = """\
import torch
from torch import nn


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, a, b):
        squares = (self.embed(a) - self.embed(b)) ** 2
        return squares.mean(-1).sqrt()


def test_apart():
    model = Distance()
    model(torch.zeros(2, 4), torch.ones(2, 4)).sum().backward()
    torch.testing.assert_close(model.embed.bias.grad, torch.zeros(3))


def test_same():
    model = Distance()
    model(torch.ones(2, 4), torch.ones(2, 4)).sum().backward()
    torch.testing.assert_close(model.embed.bias.grad, torch.zeros(3))
"""
COMMAND: Final = "pytest --agviz=retain-on-failure"
COLUMNS: Final = 112


def render(out_dir: Path) -> list[Path]:
    """Run the suite, and draw what the terminal shows."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_distance.py").write_text(SUITE, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", *COMMAND.split(), "-q", "--tb=short", "--color=yes"],
            cwd=folder,
            env=os.environ | {"COLUMNS": str(COLUMNS), "PYTEST_ADDOPTS": "-p no:cacheprovider"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(f"[bold]$[/] {COMMAND} -q --tb=short", highlight=False)
    console.print(Text.from_ansi(done.stdout))
    picture = out_dir / "pytest-failing.svg"
    console.save_svg(str(picture), title="pytest", theme=MONOKAI)
    return [picture]
