"""Every key on recorded programs, typed in a real terminal: each is answered, and soon.

The programs are those that a debugger has a hard time with: 20,000 nodes in one chain, four
simulated devices, a reentrant backward pass inside a node.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.debugger_support import CHAIN, CHECKPOINTED, ENVIRONMENT, FOUR_DEVICES, save
from tests.test_tui_terminal import TMUX, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ANSWER_S = 1.0
"""Until each key is answered, with tmux and what else the machine does; nobody waits longer."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "tmux", 80, 24)
    opened.type(f"export XDG_STATE_HOME={tmp_path / 'state'}", "Enter")
    opened.type(f"export PYTHONPATH={ENVIRONMENT['PYTHONPATH']}; cd {tmp_path}; clear", "Enter")
    yield opened
    opened.run("kill-server")


class Typist:
    """Types keys and sees what they do."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.slowest = 0.0
        self.keys = 0

    def screen(self) -> str:
        """Its text, and its looks: escape sequences of colours."""
        return self._terminal.run("capture-pane", "-e", "-p", "-t", "agviz")

    def answer(self, *keys: str, to: Callable[[str], bool]) -> str:
        """Type, and wait until the screen is such; its text."""
        began = time.monotonic()
        self._terminal.type(*keys)
        while not to(screen := self._terminal.screen()):
            took = time.monotonic() - began
            assert took < ANSWER_S, f"{keys} were not answered in {took:.1f} s:\n{screen}"
            time.sleep(0.005)
        self._count(began)
        return screen

    def shows(self, *keys: str, text: str) -> str:
        """Type, and wait until a text that was not there is on the screen."""
        before = self._terminal.screen()
        assert re.search(text, before) is None, f"{text} was there before {keys}:\n{before}"
        return self.answer(*keys, to=lambda screen: re.search(text, screen) is not None)

    def changes(self, key: str) -> None:
        """Type, and wait until the screen looks different."""
        before = self.screen()
        began = time.monotonic()
        self._terminal.type(*([key] if not key.startswith("\x1b") else ["-l", key]))
        while self.screen() == before:
            took = time.monotonic() - began
            assert took < ANSWER_S, f"{key!r} was not answered in {took:.1f} s:\n{before}"
            time.sleep(0.005)
        self._count(began)

    def _count(self, began: float) -> None:
        self.keys += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def position(self) -> int:
        """Number of events before the playhead."""
        return position(self._terminal.screen())


def position(screen: str) -> int:
    found = re.search(r"event ([\d,]+)/", screen)
    assert found is not None, screen
    return int(found[1].replace(",", ""))


def at(position_wanted: int) -> Callable[[str], bool]:
    return lambda screen: "event " in screen and position(screen) == position_wanted


def last(screen: str) -> bool:
    """Whether the playhead is behind the last event."""
    found = re.search(r"event ([\d,]+)/([\d,]+)", screen)
    return found is not None and found[1] == found[2]


@pytest.mark.parametrize(
    ("program", "nodes"),
    [(CHAIN, 20_002), (FOUR_DEVICES, None), (CHECKPOINTED, None)],
    ids=["20,000 nodes", "four devices", "reentrant"],
)
def test_every_key_is_answered(
    terminal: Terminal, tmp_path: Path, program: str, nodes: int | None
) -> None:
    save(tmp_path, program)
    command = [sys.executable, "-m", "agviz", "run", "-o", "trace.agviz", "program.py"]
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    terminal.type(f"{sys.executable} -m agviz view trace.agviz; echo left with $?", "Enter")
    terminal.wait_for(lambda screen: " by number" in screen)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "event 0/" in screen and "reading …" not in screen)
    typist = Typist(terminal)

    # Nodes, events, what is next to be seen; and all of them backwards.
    typist.shows("n", text="started #1 ")
    typist.shows("n", text="started #2 ")
    here = typist.position()
    typist.answer("s", to=at(here + 1))
    typist.answer("S", to=at(here))
    typist.shows("N", text="started #1 ")
    typist.answer("c", to=last)
    typist.answer("C", to=at(0))

    # Moving, and running to what was moved to.
    for key in ("j", "j", "Down", "k", "Up", "G", "g", "NPage", "PPage"):
        typist.changes(key)
    for button in "Mm":  # pressed and let go of on the second node
        terminal.run("send-keys", "-t", "agviz", "-l", f"\x1b[<0;30;6{button}")
    typist.shows("u", text="started #2 ")
    if nodes is not None:
        typist.shows("G", text=rf"{nodes:,} \d? +AccumulateGrad")
        typist.shows("u", text=f"started #{nodes} ")
    typist.changes("g")
    typist.shows("u", text="started #1 ")

    # Threads.
    typist.shows(">", text="only T")
    typist.answer("m", to=lambda screen: "only T" not in screen)
    typist.shows("<", text="only T")
    typist.answer("m", to=lambda screen: "only T" not in screen)

    # Folds.
    typist.changes("e")
    typist.shows("y", text="Copied: ")  # what "e" said is said again by the next key
    typist.changes("Space")

    # Searching.
    typist.changes("/")
    typist.shows("Backward0", "Enter", text=r"\b1 of [\d,]+ matches")
    typist.shows(".", text=r"\b2 of [\d,]+ matches")
    typist.shows(",", text=r"\b1 of [\d,]+ matches")

    # What answers in words, of which a narrow screen makes several lines.
    typist.shows("x", text="Every gradient that was checked is")
    for key, text in (("b", "nothing"), ("!", "its tensors are"), ("B", "nothing")):
        typist.shows(key, text=text)
        typist.shows("y", text="Copied: ")

    # One panel alone is what a narrow screen shows anyway. Other screens, and back.
    for key, text in (("p", "by number"), ("T", "timeline of the process"), ("L", "flow to")):
        typist.shows(key, text=text)
        typist.answer("Escape", to=lambda screen: re.search("event [0-9]", screen) is not None)
    for key, text in (("7", "━ Modules ━"), ("6", "━ Source ━"), ("2", "━ Graph ━")):
        typist.shows(key, text=text)

    # The command line, the palette, help.
    typist.changes(":")
    typist.shows("until 3", "Enter", text="started #3 ")
    for verb in ("break 3", "tbreak 3", "condition 1", "ignore 1 2", "enable 1", "disable 1"):
        typist.shows(f":{verb}", "Enter", text="This is a recording")
        typist.answer("y", to=lambda screen: "This is a recording" not in screen)
    typist.shows("C-p", text="Search for commands")
    typist.answer("Escape", to=lambda screen: "Search for commands" not in screen)
    for key in ("?", "F1"):
        typist.shows(key, text="The lanes at the left are the edges")
        typist.answer("Escape", to=lambda screen: "The lanes at the left" not in screen)
    assert typist.keys > 40

    if nodes is None:  # of a chain of 20,000 it is not the key that takes its time
        terminal.type(":export dot graph.dot", "Enter")
        terminal.wait_for(lambda screen: "Wrote graph.dot" in screen)
        assert "digraph" in (tmp_path / "graph.dot").read_text()
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)
    print(f"{typist.keys} keys, the slowest was answered in {1e3 * typist.slowest:.0f} ms")
