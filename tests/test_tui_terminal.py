"""``agviz view`` in a real terminal: keys typed through tmux, the screen read back."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agviz.tui.screens.tour import TOURS
from tests.tui_support import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TMUX = shutil.which("tmux")
SECONDS = 60.0

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


class Terminal:
    """A terminal of a tmux server of its own, of a user who has been on every tour."""

    def __init__(self, socket: Path, columns: int, rows: int) -> None:
        config = socket.parent / "config"
        (config / "agviz").mkdir(parents=True)
        (config / "agviz" / "toured").write_text(" ".join(TOURS))
        self._tmux = [str(TMUX), "-S", str(socket), "-f", "/dev/null"]
        size = ["-x", str(columns), "-y", str(rows)]
        # A size in the environment would be believed more than the terminal's own.
        shell = ["env", "-u", "COLUMNS", "-u", "LINES", "PS1=ready> "]
        shell += [f"XDG_CONFIG_HOME={config}", "sh"]
        self.run("new-session", "-d", "-s", "agviz", *size, *shell)

    def run(self, *arguments: str) -> str:
        finished = subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, text=True, timeout=SECONDS
        )
        return finished.stdout

    def type(self, *keys: str) -> None:
        self.run("send-keys", "-t", "agviz", *keys)

    def screen(self) -> str:
        return self.run("capture-pane", "-p", "-t", "agviz")

    def wait_for(self, shown: Callable[[str], bool]) -> str:
        """The screen, as soon as it shows what is waited for."""
        deadline = time.monotonic() + SECONDS
        while not shown(screen := self.screen()):
            assert time.monotonic() < deadline, f"this never came:\n{screen}"
            time.sleep(0.02)  # the terminal has no other way to say that it has changed
        return screen


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "tmux", 80, 24)
    yield opened
    opened.run("kill-server")


def test_a_trace_is_viewed(terminal: Terminal, tmp_path: Path) -> None:
    record(tmp_path / "training.agviz", nan_at=7)
    terminal.type(f"cd {tmp_path}", "Enter")
    terminal.type(f"{sys.executable} -m agviz view training.agviz; echo left with $?", "Enter")
    screen = terminal.wait_for(lambda screen: "put out" in screen)
    assert re.search(r"┃ !    0  backward", screen)
    assert "│ ✗ " in screen
    assert "backward pass 0" in screen
    terminal.type("Enter")
    screen = terminal.wait_for(
        lambda screen: (
            "opened at the first non-finite gradient" in screen and "MseLossBackward0" in screen
        )
    )
    assert "agviz  training.agviz  backward #0 · finished · ! non-finite" in screen
    assert max(map(len, screen.splitlines())) <= 80

    terminal.type(":event 0", "Enter")
    terminal.wait_for(lambda screen: "event 0/" in screen)
    terminal.type("n", "n")
    terminal.wait_for(lambda screen: "started #2 ReluBackward0" in screen)
    terminal.type("x")
    screen = terminal.wait_for(lambda screen: "check #8" in screen)
    assert any(line.startswith("┃▶") and "! " in line for line in screen.splitlines())
    terminal.type("3")
    terminal.wait_for(lambda screen: "check" in screen and "accumulate" in screen)
    terminal.type("/layers.0")
    terminal.wait_for(lambda screen: "/ layers.0" in screen)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "1 of 5 matches" in screen)
    terminal.type("4")
    terminal.wait_for(lambda screen: "layers.0.activation" in screen and "Edges in" in screen)

    terminal.run("resize-window", "-t", "agviz", "-x", "200", "-y", "60")
    screen = terminal.wait_for(
        lambda screen: all(
            f" {name} " in screen for name in ("Threads", "Graph", "Events", "Inspector", "Queues")
        )
    )
    terminal.type("q")
    screen = terminal.wait_for(lambda screen: re.search(r"left with \d", screen) is not None)
    assert "left with 0" in screen


def test_the_terminal_is_left_as_it_was_when_the_process_is_ended(
    terminal: Terminal, tmp_path: Path
) -> None:
    record(tmp_path / "training.agviz")
    terminal.type(f"cd {tmp_path}", "Enter")
    terminal.type(f"{sys.executable} -m agviz view training.agviz; echo left with $?", "Enter")
    terminal.wait_for(lambda screen: "What happened" in screen)
    pid = terminal.run("display-message", "-p", "-t", "agviz", "#{pane_pid}").strip()
    child = subprocess.run(
        ["pgrep", "-P", pid],  # noqa: S607 - wherever procps is
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()[0]
    subprocess.run(["kill", "-TERM", child], check=True)  # noqa: S607 - wherever it is
    screen = terminal.wait_for(lambda screen: re.search(r"left with \d", screen) is not None)
    assert "left with 143" in screen
    assert "What happened" not in screen
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.wait_for(lambda screen: "still 42" in screen)
