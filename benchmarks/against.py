"""Compare this tree with another: ``python -m benchmarks.against OTHER [--quick] [--tree TREE]``.

Each tree has a process of its own, and only one of the two works at any time: a sample of one and a
sample of the other are taken one right after the other, in turns first and second. Figures are
ratios of medians, ours to theirs, in brackets the interval that holds the true one in 95 of 100
cases (bootstrap of the pairs). CPU time is that of the calling thread. ``native`` is torch's own
engine in both processes: how far its interval is from 1 says how much of the others to believe.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[1]
WIDTH: Final = 150
HOW: Final = {
    "native": "native",
    "engine": "engine alone",
    "none": "recorded, no values, no provenance",
    "health": "recorded with defaults",
    "forward": "recorded, --check-forward",
    "attached": "a debugger attached",
    "observed": "native observed, no values, no provenance",
    "observed health": "native observed, health, no provenance",
}
GRAPHS: Final = {
    "transformer": (0, 1),
    "conv": (1, 1),
    "chain": (0, 1),
    "small mlp": (2, 3),
    "small lstm": (2, 3),
    "small gnn": (2, 3),
    "small gan": (2, 3),
}
"""With the steps that warm up, and those that are measured."""
PARTS: Final = ("forward, CPU", "forward, wall", "backward, CPU", "backward, wall")
_DRAWS: Final = 2_000


class Interval(NamedTuple):
    """A ratio of medians."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        """From pairs; the interval by drawing pairs again, with a fixed seed."""
        rng = random.Random(0)
        pairs = list(zip(ours, theirs, strict=True))
        drawn = sorted(_ratio(rng.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
        return cls(_ratio(pairs), drawn[_DRAWS // 40], drawn[-_DRAWS // 40])

    def __str__(self) -> str:
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


class Worker:
    """A process that measures one tree."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        own = tree / ".venv" / "bin" / "python"
        python = str(own) if own.exists() else sys.executable
        script = str(ROOT / "benchmarks" / "against_worker.py")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AGVIZ")}
        self._process = subprocess.Popen(
            [python, script, str(tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        )
        self._calls = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        imported = self._answer()
        for path in imported:
            if not Path(path).is_relative_to(tree):
                raise RuntimeError(f"the process for {tree} has imported {path}")

    def ask(self, *call: Any) -> Any:
        """Have a function of the worker called."""
        self._calls.write(json.dumps(call) + "\n")
        self._calls.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the process for {self.tree} ended with {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """Let the process end."""
        self._calls.close()
        self._process.wait()
        self._answers.close()


def in_turns(ours: Worker, theirs: Worker, rounds: int, *call: Any) -> list[tuple[Any, Any]]:
    """Pairs of answers; empty where a tree has none. The first round warms up."""
    found = []
    for number in range(rounds + 1):
        if number % 2:
            pair = ours.ask(*call), theirs.ask(*call)
        else:
            second = theirs.ask(*call)
            pair = ours.ask(*call), second
        if None in pair:
            return []
        if number:
            found.append(pair)
    return found


def speed(
    ours: Worker, theirs: Worker, graph: str, rounds: int
) -> Iterator[tuple[str, list[Interval]]]:
    """For each way of running, the ratios of the parts."""
    before, steps = GRAPHS[graph]
    for how in HOW:
        pairs = in_turns(ours, theirs, rounds, "sample", graph, how, before, steps)
        if pairs:
            columns = [
                Interval.of([a[part] for a, _ in pairs], [b[part] for _, b in pairs])
                for part in range(len(PARTS))
            ]
            yield how, columns


def reading(
    ours: Worker, theirs: Worker, sequences: int, rounds: int
) -> dict[str, tuple[float, float, Interval]]:
    """By figure: medians of ours and theirs, and their ratio."""
    pairs = in_turns(ours, theirs, rounds, "reading", sequences)
    found = {}
    for name in pairs[0][0]:
        a, b = ([each[name] for each in side] for side in zip(*pairs, strict=True))
        found[name] = statistics.median(a), statistics.median(b), Interval.of(a, b)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("other", type=Path, help="the tree to compare with")
    parser.add_argument("--tree", type=Path, default=ROOT, help="ours (default: this one)")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--rounds", type=int, help="of each way to run (default: 30, quick: 5)")
    parser.add_argument("--graph", action="append", choices=[*GRAPHS, "reading"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (5 if arguments.quick else 30)
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    trees = arguments.tree.resolve(), arguments.other.resolve()
    began = time.monotonic()
    ours, theirs = map(Worker, trees)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    console.print(f"ours {trees[0]}, theirs {trees[1]}; {rounds} rounds; load {load}", "")
    measured: dict[str, Any] = {}
    for graph in arguments.graph or [*GRAPHS, "reading"]:
        if graph == "reading":
            table = _table("reading and closing", "ours", "theirs", "ratio")
            size = (20, 2) if arguments.quick else (185, 3)
            found = measured[graph] = reading(ours, theirs, *size)
            for name, (a, b, interval) in found.items():
                table.add_row(name, f"{a:,.3f}", f"{b:,.3f}", str(interval))
        else:
            table = _table(f"{graph}: ours / theirs", *PARTS)
            measured[graph] = dict(speed(ours, theirs, graph, rounds))
            for how, columns in measured[graph].items():
                table.add_row(HOW[how], *map(str, columns))
        console.print(table, "")
        if arguments.json:
            arguments.json.write_text(json.dumps(measured, indent=1) + "\n")
    ours.end()
    theirs.end()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    console.print(f"{time.monotonic() - began:.0f} s; load {load}")


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


if __name__ == "__main__":
    main()
