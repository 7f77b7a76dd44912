"""Tables of what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from benchmarks.training_steps import ATTACHED, TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from benchmarks import drawing as drawn
    from benchmarks.explaining import Explained
    from benchmarks.measure import Measured, Ratio
    from benchmarks.memory import Peak
    from benchmarks.phases import Breakdown
    from benchmarks.plugin import PluginCost
    from benchmarks.provenance import Cost
    from benchmarks.rank_steps import RankCost
    from benchmarks.reading import Reading, Times
    from benchmarks.tiny import Tiny
    from benchmarks.training_steps import Compared
    from benchmarks.verbs import VerbCost
    from benchmarks.viewing import Viewing
    from benchmarks.whole_steps import StepCost

HOTTEST = 12
_MB = 1e6


def speed(title: str, threads: int, results: Mapping[str, Measured]) -> Table:
    """One row per contender."""
    native_ns = next(iter(results.values())).native_ns
    how = "1 thread" if threads == 1 else f"{threads} threads"
    table = _table(f"{title}, {how}; native backward {native_ns / 1e6:,.1f} ms")
    for column in ("CPU", "all threads' CPU", "wall", "forward + backward", "rounds"):
        table.add_column(column, justify="right")
    for contender, found in results.items():
        ratios = (found.thread, found.process, found.wall, found.step)
        table.add_row(contender, *(_ratio(r) for r in ratios), str(found.rounds))
    return table


def tiny(results: Mapping[str, Tiny]) -> Table:
    """One row per kind of call."""
    table = _table("a tiny backward")
    for column in ("native", "agviz", "CPU"):
        table.add_column(column, justify="right")
    for title, found in results.items():
        table.add_row(title, _micro(found.native_ns), _micro(found.ours_ns), _ratio(found.ratio))
    return table


def small_model(title: str, found: Compared) -> Table:
    """One row per contender, as a multiple of the native engine; the debugger of the recording."""
    table = _table(title)
    for column in ("forward, CPU", "", "forward, wall", "backward, CPU", "", "backward, wall"):
        table.add_column(column, justify="right", no_wrap=True)
    forward, backward = found.native
    times = (f"{ns / 1e6:.2f} ms" for part in (forward, backward) for ns in part[1::-1])
    table.add_row(f"native, {found.nodes} nodes", *_with_targets(times, ("", "")))
    rows = {**found.ratios, f"{ATTACHED.title}, to recording alone": found.attached}
    for contender, ratios in rows.items():
        most = TARGETS.get(contender.partition(",")[0], (None, None))
        table.add_row(
            contender,
            *_with_targets(
                (f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]" for ratio in ratios),
                (_target(most[0], ratios.forward), _target(most[1], ratios.backward)),
            ),
        )
    return table


def _with_targets(figures: Iterable[str], targets: tuple[str, str]) -> list[str]:
    """CPU and wall of the forward, then of the backward, each target behind its CPU."""
    (forward, forward_wall, backward, backward_wall) = figures
    return [forward, targets[0], forward_wall, backward, targets[1], backward_wall]


def _target(most: float | None, found: Ratio) -> str:
    if most is None:
        return ""
    return f"{'✓' if found.median <= most else '✗'} ≤ {most:g}"


def memory(results: Mapping[str, Mapping[str, Peak]]) -> Table:
    """One row per graph and contender."""
    table = _table("memory during backward, MB: native, agviz, ratio")
    table.add_column("")
    for column in ("growth of tensors", "growth of the process", "peak of the process"):
        table.add_column(column, justify="right")
    for title, contenders in results.items():
        (_, native), *others = contenders.items()
        for number, (name, ours) in enumerate(others):
            table.add_row(
                "" if number else title,
                name,
                *(
                    f"{a / _MB:,.2f}  {b / _MB:,.2f}  {b / a:.3f}" if a else "-"
                    for a, b in zip(native, ours, strict=True)
                ),
            )
    return table


def reading(results: Mapping[str, Reading]) -> Table:
    """One column per trace."""
    table = _table("reading a trace; CPU time in ms")
    for title in results:
        table.add_column(title, justify="right")
    lines: dict[str, Callable[[Reading], str]] = {
        "events": lambda found: f"{found.events:,}",
        "graph tasks; nodes of the largest": lambda found: f"{found.graph_tasks}; {found.nodes:,}",
        "file, bytes per event": lambda found: f"{found.bytes_per_event:.1f}",
        "recording; closing, wall, s": lambda found: f"{found.record_s:.1f}; {found.close_s:.1f}",
        "import of the reader": lambda found: f"{found.import_:.0f}",
        "Trace.open": lambda found: f"{found.open:.1f}",
        "first page of events": lambda found: f"{found.first_page:.1f}",
        "page of events, median; worst": lambda found: _times(found.page),
        "Trace.nodes of the largest": lambda found: f"{found.node_columns:.0f}",
        "first state in the largest": lambda found: f"{found.first_seek:.0f}",
        "state anywhere, median; worst": lambda found: _times(found.seek),
        "state one event on, median; worst": lambda found: _times(found.step),
        "agviz summary, wall, s": lambda found: f"{found.summary_s:.1f}",
    }
    for line, figure in lines.items():
        table.add_row(line, *map(figure, results.values()))
    return table


def explaining(results: Mapping[str, Explained]) -> Table:
    """One row per trace."""
    table = _table("explaining non-finite gradients; CPU time")
    for column in ("events", "non-finite gradients", "answer", "explain, ms"):
        table.add_column(column, justify="right")
    for title, found in results.items():
        table.add_row(
            title,
            f"{found.events:,}",
            f"{found.nonfinite:,}",
            found.answer,
            f"{found.explain_ms:,.0f}",
        )
    return table


def viewing(title: str, found: Viewing) -> Table:
    """One row per kind of key."""
    counts = f"{found.events:,} events, {found.nodes:,} nodes, {found.passes:,} passes"
    table = _table(f"agviz view, {title}: {counts}; ms")
    for column in ("first change", "p95", "last change", "p95", "CPU"):
        table.add_column(column, justify="right")
    first, whole = 1e3 * found.first_screen_s, 1e3 * found.all_read_s
    cpu = f"{1e3 * found.first_screen_cpu_s:,.0f}"
    table.add_row("first screen, since the process was started", f"{first:,.0f}", "", "", "", cpu)
    table.add_row("all norms and the whole graph read", f"{whole:,.0f}")
    for key, times in found.keys.items():
        table.add_row(f"key: {key}", *(f"{each:.1f}" for each in times))
    table.add_row("peak memory of the process, MB", f"{found.peak_mb:.0f}")
    return table


def provenance(results: Mapping[str, Cost]) -> Table:
    """One row per graph."""
    table = _table("a forward whose nodes are recorded with their origin, CPU time")
    for column in (
        "nodes", "plain, ms", "with origins", "anomaly mode", "more per node", "by torch's call",
        "of anomaly mode's",
        "reading a node", "resolving it",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for title, found in results.items():
        table.add_row(
            title,
            f"{found.nodes:,}",
            f"{found.plain_ns / 1e6:,.1f}",
            _ratio(found.captured),
            _ratio(found.anomaly),
            _micro(found.captured_per_node_ns),
            _micro(found.told_per_node_ns),
            _ratio(found.share),
            _micro(found.reading_per_node_ns),
            _micro(found.resolving_per_node_ns),
        )
    return table


def whole_steps(results: Mapping[str, StepCost]) -> Table:
    """One row per model."""
    table = _table("training steps, recorded with and without what is observed around backward")
    for column in ("rounds", "native, ms", "recorded", "observing steps, CPU", "of all threads"):
        table.add_column(column, justify="right")
    for title, found in results.items():
        table.add_row(
            title,
            str(found.rounds),
            f"{found.native_ns / 1e6:.2f}",
            _ratio(found.recorded),
            _ratio(found.thread),
            _ratio(found.process),
        )
    return table


def breakdown(title: str, found: Breakdown) -> list[Table]:
    """Phases, and the hottest lines."""
    phases = _table(f"where it goes: {title} ({found.samples:,} samples)")
    phases.add_column("share", justify="right")
    for phase in found.phases:
        phases.add_row(phase.name, f"{phase.share:.1%}")
    phases.add_row("(garbage collector, within the above)", f"{found.garbage:.1%}")
    lines = _table("hottest lines")
    lines.add_column("share", justify="right")
    lines.add_column("")
    for line in found.lines[:HOTTEST]:
        lines.add_row(line.where, f"{line.share:.1%}", escape(line.text))
    return [phases, lines]


def drawing(results: Mapping[str, drawn.Result]) -> Table:
    """One row per graph and contender."""
    table = _table("drawing as SVG")
    for column in ("", "time", "CPU", "nodes drawn", "SVG", ""):
        table.add_column(column, justify="right")
    for graph, result in results.items():
        for contender, found in result.contenders.items():
            table.add_row(
                f"{graph}, {result.nodes:,} nodes",
                contender,
                f"{found.seconds:.2f} s",
                f"{found.cpu_seconds:.2f} s",
                f"{found.drawn:,}" if not found.failure else "",
                f"{found.bytes / 1000:,.0f} kB" if not found.failure else "",
                found.failure,
            )
    return table


def plugin(results: Mapping[str, PluginCost]) -> Table:
    """One row per comparison."""
    table = _table("pytest with agviz's plugin")
    for column in ("without, CPU s", "more, CPU s", "CPU", "wall"):
        table.add_column(column, justify="right")
    for title, found in results.items():
        seconds = f"{found.native_s:.2f}", f"{found.extra_s:.3f}"
        table.add_row(title, *seconds, _ratio(found.cpu), _ratio(found.wall))
    return table


def rank_steps(results: Mapping[str, RankCost]) -> Table:
    """One row per engine."""
    table = _table("a DDP step of a transformer in 2 ranks of one thread")
    for column in ("without, ms", "time of a step", "CPU of the thread that trains"):
        table.add_column(column, justify="right")
    for engine, found in results.items():
        table.add_row(engine, f"{found.native_ms:.0f}", _ratio(found.wall), _ratio(found.thread))
    return table


def verbs(results: Mapping[str, VerbCost]) -> Table:
    """One row per model."""
    table = _table("agviz check and explain, processes of their own")
    for column in (
        "steps",
        "plain, CPU s",
        "checked, CPU",
        "after, CPU s",
        "explain, CPU s",
        "wall",
    ):
        table.add_column(column, justify="right")
    for title, found in results.items():
        table.add_row(
            title,
            f"{found.steps:,}",
            f"{found.plain_s:.3f}",
            _ratio(found.checked),
            *(f"{each:.2f}" for each in (found.after_s, found.explain_s, found.explain_wall_s)),
        )
    return table


def _table(title: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    return table


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _times(times: Times) -> str:
    return f"{times.median:.1f}; {times.worst:.1f}"


def _micro(ns: float) -> str:
    return f"{ns / 1000:,.1f} µs"
