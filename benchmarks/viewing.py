"""How quickly the terminal UI opens a long trace, and answers each key, in a terminal.

``python -m benchmarks.viewing FILE…`` measures traces that are there already. ``agviz view`` runs
behind a pseudo-terminal of 120 by 40; it opens with the passes of the run, and then shows one of
them. Measured are the time until the first
screen since the process was started, and the time from a key until the first and until the last of
what comes of it on the screen; that includes the turns at which Textual paints. CPU time is that of
all threads of the process.
"""

from __future__ import annotations

import compileall
import fcntl
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import agviz
import agviz_engine
from agviz.traces.reader import Trace
from agviz.tui.screens.tour import TOURS
from agviz.tui.settings import Settings
from benchmarks.reading import record_run, record_sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN_KEYS: Final = {
    "run: j": ("g", *("j",) * 20),
    "run: page down": ("g", *("pagedown",) * 10),
    "run: G and g": ("G", "g") * 5,
    "run: x": ("g", *("x",) * 5, *("X",) * 5),
    "run: sort": ("s",) * 6,
    "run: filter": ("/", "n", "a", "n", "enter"),
}
"""What is typed while the passes are shown, by what it is called."""
_KEYS: Final = {
    "n": ("n",) * 30,
    "N": ("N",) * 15,
    "s": ("s",) * 30,
    "S": ("S",) * 15,
    "jump to the end": ("G", "u", "g", "u") * 5,
    "S at the end": ("G", "u", *("S",) * 20),
    "j": ("g", *("j",) * 20),
    "page down": ("g", *("pagedown",) * 20),
    "page of events": ("3", "g", *("pagedown",) * 20, "2"),
    "another panel": ("1", "2", "3", "4", "5", "6", "7") * 3,
    "x": ("2", *("x", "g", "u") * 5),
    "search": ("/", "m", "m", "enter", *(".",) * 10),
}
"""What is typed, by what it is called."""
_BYTES: Final = {"enter": "\r", "escape": "\x1b", "pagedown": "\x1b[6~"}
_COLUMNS: Final = 120
_ROWS: Final = 40
_QUIET_S: Final = 0.15
"""Of a terminal on which nothing more comes."""
_IDLE_MS: Final = 10.0
"""CPU time between two such looks."""
_PATIENCE_S: Final = 120.0
_ESCAPES: Final = re.compile(rb"\x1b(\[[0-9;?<>=$]*[a-zA-Z]|\][^\x07]*\x07)")


class Latency(NamedTuple):
    """Of the keys of one kind, in ms; of those that changed the screen."""

    first: float
    """Median until something has changed on the screen."""
    first_p95: float
    last: float
    """Median until everything has."""
    last_p95: float
    cpu: float
    """Median of the CPU time."""

    @classmethod
    def of(cls, taken: Sequence[tuple[float, float, float]]) -> Latency:
        """From the times of each key."""
        first, last, cpu = ([each[place] for each in taken] for place in range(3))
        median = statistics.median
        return cls(median(first), _p95(first), median(last), _p95(last), median(cpu))


def _p95(taken: Sequence[float]) -> float:
    return sorted(taken)[int(0.95 * (len(taken) - 1))]


class Viewing(NamedTuple):
    """A trace in the terminal UI."""

    events: int
    nodes: int
    passes: int
    first_screen_s: float
    """Until the passes are listed."""
    first_screen_cpu_s: float
    """CPU time until then, of all threads of the process."""
    all_read_s: float
    """Until all norms are, and the outline of the pass that opens; keys are answered meanwhile."""
    peak_mb: float
    keys: dict[str, Latency]


def measure(*, quick: bool) -> dict[str, Viewing]:
    """A pass of a million events, 3,000 passes of 400, and 100,000 of 94; fewer to be quick."""
    with tempfile.TemporaryDirectory() as folder:
        one, run, long = (Path(folder, f"{name}.agviz") for name in ("one", "run", "long"))
        record_sequences(one, 8 if quick else 185)
        record_run(run, 100 if quick else 3_000)
        record_run(long, 1_000 if quick else 100_000, layers=2)
        return {"one backward pass": view(one), "a run": view(run), "a long run": view(long)}


def view(path: Path) -> Viewing:
    """The terminal UI on a trace."""
    for package in (agviz, agviz_engine):  # as pip does where it installs them
        compileall.compile_dir(package.__path__[0], quiet=2)
    with Trace.open(path) as trace:
        passes = trace.graph_tasks
        events, nodes = trace.event_count(), sum(task.nodes for task in passes)
    with Terminal([sys.executable, "-m", "agviz", "view", str(path)]) as terminal:
        began = time.perf_counter()
        first_screen = terminal.wait_for(b" by number") - began
        first_screen_cpu = terminal.cpu_ms() / 1e3
        all_read = terminal.wait_until_idle() - began
        taken = {kind: terminal.answers(typed) for kind, typed in _RUN_KEYS.items()}
        for key in ("escape", "enter"):  # all passes again, then the one under the cursor
            terminal.press(key)
        terminal.wait_until_idle()
        taken |= {kind: terminal.answers(typed) for kind, typed in _KEYS.items()}
        taken["all of these"] = [each for several in taken.values() for each in several]
        peak = terminal.peak_bytes() / 1e6
        found = {kind: Latency.of(several) for kind, several in taken.items() if several}
        shown = first_screen, first_screen_cpu
        return Viewing(events, nodes, len(passes), *shown, all_read, peak, found)


class Terminal:
    """A program behind a pseudo-terminal."""

    def __init__(self, command: Sequence[str]) -> None:
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"COLUMNS", "LINES", "NO_COLOR", "PYTHONDONTWRITEBYTECODE"}
        }
        self._folder = tempfile.TemporaryDirectory()
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment["XDG_CONFIG_HOME"] = self._folder.name
        settings = Settings.read(Path(self._folder.name, "agviz"))
        for name in TOURS:
            settings.take_tour(name)
        self._program = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._side, b"q")
        try:
            while self._program.poll() is None:
                self._read(_QUIET_S)
        except OSError:  # its end of the terminal is closed
            self._program.wait()
        os.close(self._side)
        self._folder.cleanup()

    def wait_for(self, text: bytes) -> float:
        """When the program showed a text."""
        shown = b""
        end = time.perf_counter() + _PATIENCE_S
        while text not in _ESCAPES.sub(b"", shown):
            if time.perf_counter() > end:
                raise TimeoutError(f"{text!r} was never shown")
            shown += self._read(1.0)
        return time.perf_counter()

    def wait_until_idle(self) -> float:
        """When the program began to do next to nothing for a second."""
        busy = time.perf_counter()
        while time.perf_counter() < busy + 1:
            cpu = self.cpu_ms()
            while self._read(_QUIET_S):
                pass
            if self.cpu_ms() - cpu > _IDLE_MS:
                busy = time.perf_counter()
        return busy

    def press(self, key: str) -> tuple[float, float, float] | None:
        """Times in ms until the first and the last change, and of CPU; None: nothing changed."""
        cpu = self.cpu_ms()
        began = time.perf_counter()
        os.write(self._side, _BYTES.get(key, key).encode())
        first = last = 0.0
        while self._read(_QUIET_S):
            last = 1e3 * (time.perf_counter() - began)
            first = first or last
        return (first, last, self.cpu_ms() - cpu) if first else None

    def answers(self, typed: Sequence[str]) -> list[tuple[float, float, float]]:
        """Of several keys, as :meth:`press` has them; of those that changed anything."""
        return [answer for key in typed if (answer := self.press(key)) is not None]

    def peak_bytes(self) -> int:
        """The most memory that the program had."""
        status = Path(f"/proc/{self._program.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def cpu_ms(self) -> float:
        """CPU time of all threads of the program."""
        threads = Path(f"/proc/{self._program.pid}/task").iterdir()
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e6

    def _read(self, patience: float) -> bytes:
        ready, _, _ = select.select([self._side], [], [], patience)
        return os.read(self._side, 1 << 16) if ready else b""


def main() -> None:
    """Measure traces that are named, and print a table of each."""
    from rich.console import Console

    from benchmarks import report

    console = Console(width=160)
    for name in sys.argv[1:]:
        console.print(report.viewing(Path(name).name, view(Path(name))), "")


if __name__ == "__main__":
    main()
