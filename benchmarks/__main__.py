"""Measure the engine against torch's own: ``python -m benchmarks [--quick] [--json FILE]``.

Ratios are medians of pairs taken side by side, in brackets the interval that holds the true median
in 95 of 100 cases. "CPU" is CPU time of the calling thread in backward; "forward + backward" is the
same for both together, because some tools pay in the forward.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

import agviz_engine
from benchmarks import (
    drawing,
    explaining,
    measure,
    memory,
    phases,
    plugin,
    provenance,
    rank_steps,
    reading,
    report,
    tiny,
    training_steps,
    verbs,
    viewing,
    whole_steps,
)
from benchmarks.contenders import OBSERVING, OURS, PEERS, RECORDING
from benchmarks.graphs import GRAPHS
from benchmarks.small_models import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.contenders import Contender
    from benchmarks.graphs import Graph

LARGE = ("transformer", "conv", "conv32")
"""Graphs worth sharing out to several threads."""
WIDTH = 150


class Bench:
    """A run of the benchmarks: which graphs, how many rounds, where to print."""

    def __init__(self, graphs: Sequence[str], console: Console, *, quick: bool) -> None:
        self.graphs = graphs
        self.console = console
        self.quick = quick
        self.threads = torch.get_num_threads()
        self.rounds = 5 if quick else 40
        self.rounds_of_others = 1 if quick else 10
        self.rounds_of_origins = 2 if quick else 30
        self.rounds_of_tiny = 5 if quick else 30
        self.rounds_of_small = 3 if quick else 20
        self.processes = 1 if quick else 5
        self.passes = 4 if quick else 20

    def speed(self) -> dict[str, dict[str, dict[str, measure.Measured]]]:
        """By graph, number of threads, contender."""
        found: dict[str, dict[str, dict[str, measure.Measured]]] = {}
        for name in self.graphs:
            graph = self._make(name)
            results = self._contest(graph, 1, [OURS], self.rounds)
            results |= self._contest(
                graph, 1, [*RECORDING, *OBSERVING, *PEERS], self.rounds_of_others
            )
            found[name] = {"1": results}
            self.console.print(report.speed(graph.title, 1, results), "")
            if name in LARGE and self.threads > 1:
                results = self._contest(graph, self.threads, [OURS], self.rounds)
                found[name][str(self.threads)] = results
                self.console.print(report.speed(graph.title, self.threads, results), "")
        return found

    def tiny(self) -> dict[str, tiny.Tiny]:
        """By kind of call."""
        torch.set_num_threads(1)
        results = tiny.measure(self.rounds_of_tiny)
        self.console.print(report.tiny(results), "")
        return results

    def small_models(self) -> dict[str, training_steps.Compared]:
        """By model."""
        found = {}
        for name, make in SMALL.items():
            torch.manual_seed(0)
            model = make()
            found[name] = training_steps.measure(model, self.rounds_of_small)
            self.console.print(report.small_model(model.title, found[name]), "")
        return found

    def memory(self) -> dict[str, dict[str, memory.Peak]]:
        """By graph and engine."""
        results = {name: memory.measure(name, self.processes) for name in self.graphs}
        self.console.print(report.memory(results), "")
        return results

    def reading(self) -> dict[str, reading.Reading]:
        """By trace."""
        torch.set_num_threads(1)
        results = reading.measure(quick=self.quick)
        self.console.print(report.reading(results), "")
        return results

    def explaining(self) -> dict[str, explaining.Explained]:
        """By trace."""
        torch.set_num_threads(1)
        results = explaining.measure(quick=self.quick)
        self.console.print(report.explaining(results), "")
        return results

    def viewing(self) -> dict[str, viewing.Viewing]:
        """By trace."""
        torch.set_num_threads(1)
        found = viewing.measure(quick=self.quick)
        for title, each in found.items():
            self.console.print(report.viewing(title, each), "")
        return found

    def provenance(self) -> dict[str, provenance.Cost]:
        """By graph."""
        results = {}
        for name in self.graphs:
            results[name] = provenance.measure(self._make(name), self.rounds_of_origins)
        self.console.print(report.provenance(results), "")
        return results

    def phases(self) -> dict[str, phases.Breakdown]:
        """By graph."""
        found = {}
        for name in self.graphs:
            graph = self._make(name)
            found[name] = phases.measure(graph, self.passes)
            for table in report.breakdown(graph.title, found[name]):
                self.console.print(table, "")
        return found

    def drawing(self) -> dict[str, drawing.Result]:
        """By graph."""
        results = drawing.measure(quick=self.quick)
        self.console.print(report.drawing(results), "")
        return results

    def plugin(self) -> dict[str, plugin.PluginCost]:
        """By suite of tests and mode."""
        results = plugin.measure(quick=self.quick)
        self.console.print(report.plugin(results), "")
        return results

    def rank_steps(self) -> dict[str, rank_steps.RankCost]:
        """By engine."""
        results = rank_steps.measure(quick=self.quick)
        self.console.print(report.rank_steps(results), "")
        return results

    def verbs(self) -> dict[str, verbs.VerbCost]:
        """By model."""
        results = verbs.measure(quick=self.quick)
        self.console.print(report.verbs(results), "")
        return results

    def whole_steps(self) -> dict[str, whole_steps.StepCost]:
        """By model."""
        results = whole_steps.measure(quick=self.quick)
        self.console.print(report.whole_steps(results), "")
        return results

    def _make(self, name: str) -> Graph:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        return GRAPHS[name]()

    def _contest(
        self, graph: Graph, threads: int, contenders: Sequence[Contender], rounds: int
    ) -> dict[str, measure.Measured]:
        torch.set_num_threads(threads)
        taken = measure.pairs(graph, contenders, rounds)
        return {title: measure.summarise(samples) for title, samples in taken.items()}


def main() -> None:
    """Measure, print, write."""
    sections = {
        "speed": Bench.speed,
        "tiny": Bench.tiny,
        "small": Bench.small_models,
        "memory": Bench.memory,
        "phases": Bench.phases,
        "reading": Bench.reading,
        "viewing": Bench.viewing,
        "explaining": Bench.explaining,
        "provenance": Bench.provenance,
        "drawing": Bench.drawing,
        "plugin": Bench.plugin,
        "ranks": Bench.rank_steps,
        "verbs": Bench.verbs,
        "steps": Bench.whole_steps,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, for a first impression")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures there")
    parser.add_argument("--graph", action="append", choices=GRAPHS, help="only this one")
    parser.add_argument("--section", action="append", choices=sections, help="only this one")
    arguments = parser.parse_args()
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    with agviz_engine.installed():
        pass  # what is made once per process is made now
    bench = Bench(arguments.graph or list(GRAPHS), console, quick=arguments.quick)
    machine = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": bench.threads,
    }
    console.print(*(f"{what} {found}" for what, found in machine.items()), "", sep="  ")
    measured: dict[str, Any] = {"machine": machine}
    for section in arguments.section or sections:
        measured[section] = sections[section](bench)
        if arguments.json:
            arguments.json.write_text(json.dumps(_plain(measured), indent=1) + "\n")


def _plain(value: Any) -> Any:
    """``value`` with named tuples turned into dicts."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
