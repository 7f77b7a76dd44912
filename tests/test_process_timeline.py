"""The timeline of a process against a direct computation from all events."""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.process_timeline import (
    IDLE,
    NODES,
    STEPS,
    WAITING,
    PartTimes,
    ProcessAxis,
    ProcessPicture,
    ProcessTimeline,
    SpanKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agviz.traces.reader import Trace


def transformer(steps: int = 3) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 5, 8)).square().mean().backward()
        optimizer.step()


def two_threads() -> None:
    threads = [threading.Thread(target=transformer, args=(4,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def checkpointing() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        x = torch.randn(4, 6, requires_grad=True)
        for part in model:
            x = checkpoint(part, x, use_reentrant=True)
        x.sum().backward()
        optimizer.step()


def closures() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


def steps_in_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda _, o=optimizer: o.step())
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()


def raises() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    for turn in range(3):
        out = model(torch.ones(2, 4))
        if turn == 1:
            out.register_hook(lambda _: 1 / 0)
        with contextlib.suppress(ZeroDivisionError):
            out.sum().backward()


PROGRAMS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (transformer, two_threads, checkpointing, closures, steps_in_hooks, raises)
}
_ENGINES: tuple[Literal["exact", "native"], ...] = ("exact", "native")


class Fact(NamedTuple):
    """What sqlite says of a stretch of a thread's time."""

    thread: int
    begin: int
    end: int
    kind: str
    name: str = ""
    graph_task: int = -1


def facts(path: Path) -> tuple[list[Fact], list[tuple[int, int]], int]:
    """From all rows, one by one; then the stops, and the end of the recording."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        texts = dict(database.execute("SELECT id, text FROM string"))
        meta = dict(database.execute("SELECT key, value FROM meta"))
        last = int(meta["end_ns"]) - int(meta["start_ns"])
        found = [
            Fact(thread, begin, last if end is None else end, "backward", graph_task=number)
            for number, thread, begin, end in database.execute(
                "SELECT id, thread, begin_t, end_t FROM graph_task"
            )
        ]
        names = {
            (number, node): texts[name].rpartition("::")[2]
            for number, node, name in database.execute("SELECT graph_task, idx, name FROM node")
        }
        under_way: dict[tuple[int, int], tuple[int, int]] = {}
        for t, thread, number, kind, node in database.execute(
            "SELECT t, thread, graph_task, kind, node FROM event ORDER BY seq"
        ):
            if kind == 26:
                under_way[number, node] = t, thread
            elif kind in {6, 7, 28} and (number, node) in under_way:
                begin, by = under_way.pop((number, node))
                assert by == thread
                found.append(Fact(by, begin, t, "node", names[number, node], number))
        ends = {one.graph_task: one.end for one in found if one.kind == "backward"}
        found += [
            Fact(by, begin, ends[number], "node", names[number, node], number)
            for (number, node), (begin, by) in under_way.items()
        ]
        begins = {one.graph_task: one for one in found if one.kind == "backward"}
        found += [
            Fact(begins[number].thread, t, begins[number].begin, "forward", graph_task=number)
            for number, t in database.execute("SELECT graph_task, t FROM forward_begun")
        ]
        found += [
            Fact(thread, begin, t, "step", texts[name])
            for begin, t, thread, name in database.execute(
                "SELECT begin_t, t, thread, optimizer FROM optimizer_step"
            )
        ]
        stops = database.execute("SELECT t, ifnull(end_t, ?) FROM held", (last,)).fetchall()
    return found, stops, last


def recorded(path: Path, program: Callable[[], None], **options: Any) -> None:
    torch.manual_seed(0)
    with agviz.trace(path=path, **options):
        program()


def whole(trace: Trace) -> ProcessTimeline:
    found = ProcessTimeline(trace)
    while found.read_on(0):
        pass
    return found


def picture(timeline: ProcessTimeline, begin: int, end: int, columns: int) -> ProcessPicture:
    while timeline.load(begin, end, columns, 0):
        pass
    return timeline.picture(begin, end, columns)


def summed(timeline: ProcessTimeline, begin: int, end: int) -> PartTimes:
    found = [*timeline.times(begin, end)][-1]
    assert found is not None
    return found


def overlap(begin: int, end: int, low: float, high: float) -> float:
    return max(0.0, min(end, high) - max(begin, low))


def union(stretches: list[tuple[int, int]], low: int, high: int) -> int:
    total, until = 0, low
    for begin, end in sorted(stretches):
        first, last = max(begin, until), min(end, high)
        if last > first:
            total += last - first
            until = last
    return total


def windows(timeline: ProcessTimeline, count: int) -> Iterator[tuple[int, int]]:
    low, high = timeline.span
    yield low, high
    chance = random.Random(0)
    for _ in range(count):
        length = max(50, int((high - low) * 10 ** chance.uniform(-3.5, 0)))
        begin = chance.randrange(low, max(low + 1, high - length))
        yield begin, begin + length


def held_by_a_debugger(path: Path) -> None:
    """As though threads had been stopped: in a pass, in a node, and between two passes."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        rows = database.execute("SELECT begin_t, end_t FROM graph_task WHERE parent < 0").fetchall()
        (begin, end), (_, before), (after, _) = rows[0], rows[1], rows[2]
        database.execute("INSERT OR IGNORE INTO string VALUES (900000, 'step')")
        stops = [
            (begin + (end - begin) // 3, begin + (end - begin) // 2),
            (begin + (end - begin) // 4, begin + (end - begin) * 2 // 5),
            (before + (after - before) // 4, before + (after - before) // 2),
        ]
        for number, (since, until) in enumerate(stops, 1):
            database.execute(
                "INSERT INTO held VALUES (?, ?, 0, 0, 0, 900000, ?)", (number, since, until)
            )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timelines")


CASES = [
    *((name, engine, False) for name in PROGRAMS for engine in _ENGINES),
    ("transformer", "exact", True),
    ("two_threads", "exact", True),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    name, engine, has_stops = request.param
    found: Path = folder / f"{name}-{engine}-{has_stops}.agviz"
    recorded(found, PROGRAMS[name], engine=engine)
    if has_stops:
        held_by_a_debugger(found)
    return found


def cut(facts_: list[Fact], stops: list[tuple[int, int]]) -> list[Fact]:
    """The same on an axis without stops: each moment less what was stopped before it."""

    def of(t: int) -> int:
        return t - union(stops, 0, t)

    return [fact._replace(begin=of(fact.begin), end=of(fact.end)) for fact in facts_]


@pytest.mark.slow_but_one_in(3)
def test_every_picture_has_what_the_events_say(path: Path) -> None:
    found, stops, last = facts(path)
    found = cut(found, stops)
    with agviz.Trace.open(path) as trace:
        timeline = whole(trace)
        assert timeline.span == (0, last - union(stops, 0, last))
        outermost = {task.id for task in trace.graph_tasks if task.parent < 0}
        for begin, end in windows(timeline, 12):
            columns = 40
            cell = (end - begin) / columns
            shown = picture(timeline, begin, end, columns)
            assert shown.is_read
            for lane in shown.lanes:
                mine = [fact for fact in found if fact.thread == lane.thread]
                bars = [bar for row in lane.rows for bar in row.bars]
                assert all(bar.end - bar.begin >= cell for bar in bars)
                # Passes, forwards and steps outside of them are all there, as wide as they were.
                wide = [
                    (fact.begin, fact.end, fact.kind, fact.graph_task)
                    for fact in mine
                    if fact.kind in {"backward", "forward"} and fact.graph_task in outermost
                    if fact.end - fact.begin >= cell and fact.end > begin and fact.begin < end
                ]
                drawn = [
                    (bar.begin, bar.end, bar.kind.value, bar.graph_task)
                    for bar in bars
                    if bar.kind in {SpanKind.FORWARD, SpanKind.BACKWARD}
                    and bar.graph_task in outermost
                ]
                assert sorted(drawn) == sorted(wide)
                # Nodes are drawn where their pass is as wide as two cells, and only then.
                passes = {
                    task.id for task in trace.graph_tasks
                    for root in [next(f for f in found if f.kind == "backward" and f.graph_task
                                      == root_of(trace, task.id))]
                    if root.end - root.begin >= 2 * cell and root.end > begin and root.begin < end
                }  # fmt: skip
                nodes = sorted(
                    (fact.begin, fact.end, fact.name)
                    for fact in mine
                    if fact.kind == "node" and fact.graph_task in passes
                    if fact.end - fact.begin >= cell and fact.end > begin and fact.begin < end
                )
                assert nodes == sorted(
                    (bar.begin, bar.end, bar.name) for bar in bars if bar.kind is SpanKind.NODE
                )
                # Nothing at a depth is drawn twice, nothing is outside of what it is in.
                for row in lane.rows:
                    for one, other in itertools.pairwise(row.bars):
                        assert one.end <= other.begin
                    assert all(0 <= share <= 1 for share in row.density)
                # What is idle is what nobody took, cell by cell.
                top = [
                    (fact.begin, fact.end)
                    for fact in mine
                    if fact.kind != "node" or fact.graph_task in passes
                ]
                for column, share in enumerate(lane.idle):
                    low, high = begin + column * cell, begin + (column + 1) * cell
                    busy = union(top, int(low), int(high)) / cell
                    assert share == pytest.approx(1 - busy, abs=3 / cell + 1e-6)


def root_of(trace: Trace, number: int) -> int:
    while (parent := trace.graph_task(number).parent) >= 0:
        number = parent
    return number


def own_times(found: list[Fact], low: int, high: int) -> dict[tuple[str, str], int]:
    """By kind and name: each nanosecond belongs to the innermost stretch that it is in."""
    total: dict[tuple[str, str], int] = {}
    for thread in {fact.thread for fact in found}:
        mine = sorted(
            (fact for fact in found if fact.thread == thread),
            key=lambda fact: (fact.begin, -fact.end),
        )
        edges = sorted({edge for fact in mine for edge in (fact.begin, fact.end)} | {low, high})
        stack: list[Fact] = []
        place = 0
        for first, last in itertools.pairwise(edges):
            while place < len(mine) and mine[place].begin <= first:
                stack.append(mine[place])
                place += 1
            stack = [fact for fact in stack if fact.end > first]
            if stack and low <= first < high:
                inner = stack[-1]
                key = inner.kind, inner.name
                total[key] = total.get(key, 0) + last - first
    return total


@pytest.mark.slow_but_one_in(4)
def test_sums_are_those_of_the_events_and_add_up(path: Path) -> None:
    found, stops, _ = facts(path)
    found = cut(found, stops)
    with agviz.Trace.open(path) as trace:
        timeline = whole(trace)
        for begin, end in windows(timeline, 6):
            sums = summed(timeline, begin, end)
            expected = own_times(found, begin, end)
            for parts in sums.threads.values():
                assert sum(parts.values()) == end - begin
                assert all(value >= 0 for value in parts.values())
            nodes = {name: ns for (kind, name), ns in expected.items() if kind == "node"}
            assert {name: ns for name, (ns, _) in sums.types.items() if ns} == nodes
            assert sum(ns for _, ns in sums.modules.values()) == sum(nodes.values())
            assert sum(parts[NODES] for parts in sums.threads.values()) == sum(nodes.values())
            steps = {name: ns for (kind, name), ns in expected.items() if kind == "step"}
            assert {name: ns for name, (ns, _) in sums.steps.items() if ns} == steps
            for name, (_, count) in sums.types.items():
                assert count == sum(
                    fact.kind == "node" and fact.name == name
                    for fact in found
                    if fact.end > begin and fact.begin < end
                )
            for thread, parts in sums.threads.items():
                mine = [(f.begin, f.end) for f in found if f.thread == thread]
                assert parts[IDLE] == end - begin - union(mine, begin, end)


def test_a_module_calls_time_is_its_own(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", transformer)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        sums = summed(timeline, *timeline.span)
        expected: dict[str, int] = {}
        for task in trace.graph_tasks:
            calls = trace.module_calls(task.id)
            for place, call in enumerate(calls):
                last = task.begin_ns if call.end_ns is None else call.end_ns
                inner = [
                    (one.begin_ns, one.end_ns or task.begin_ns)
                    for one in calls[place + 1 :]
                    if one.depth == call.depth + 1 and call.begin_ns <= one.begin_ns < last
                ]
                own = last - call.begin_ns - sum(end - begin for begin, end in inner)
                expected[call.module] = expected.get(call.module, 0) + own
        assert {name: ns for name, (ns, _) in sums.modules.items() if ns} == expected


def test_a_step_with_a_closure_holds_its_passes(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", closures)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        rows = picture(timeline, *timeline.span, 4000).lanes[0].rows
        assert {bar.kind for bar in rows[0].bars} == {SpanKind.STEP}
        assert SpanKind.BACKWARD in {bar.kind for bar in rows[1].bars}


def test_steps_in_hooks_are_inside_of_nodes(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", steps_in_hooks)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        sums = summed(timeline, *timeline.span)
        assert sums.steps["SGD"][1] == 12
        assert sum(parts[STEPS] for parts in sums.threads.values()) == sums.steps["SGD"][0]


def test_a_reentrant_pass_is_inside_of_the_node_that_began_it(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", checkpointing)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        task = next(task for task in trace.graph_tasks if task.parent >= 0)
        begin, end = timeline.pass_span(root_of(trace, task.id))
        rows = picture(timeline, begin, end, 5000).lanes[0].rows
        depth = next(
            depth for depth, row in enumerate(rows) for bar in row.bars
            if bar.kind is SpanKind.BACKWARD and bar.graph_task == task.id
        )  # fmt: skip
        inner = next(bar for bar in rows[depth].bars if bar.graph_task == task.id)
        around = [
            bar for row in rows[:depth] for bar in row.bars
            if bar.node == task.parent_node and bar.graph_task == task.parent
        ]  # fmt: skip
        assert len(around) == 1
        assert around[0].begin <= inner.begin <= inner.end <= around[0].end


def test_neighbours_of_a_node_are_those_of_its_edges(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", lambda: transformer(1))
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        number = trace.graph_tasks[0].id
        rows = {row.node: row for row in trace.executions(number)}
        edges = trace.edges(number)
        for node in rows:
            found = timeline.neighbours(number, node)
            into = {edge.producer for edge in edges if edge.consumer == node}
            out = {edge.consumer for edge in edges if edge.producer == node}
            assert {one.node for one in found if one.is_producer} == into
            assert {one.node for one in found if not one.is_producer} == out
            for one in found:
                row = rows[one.node]
                assert one.begin == timeline.axis.of(row.start_ns)
                assert row.end_ns is not None
                assert one.end == timeline.axis.of(row.end_ns)
                assert (one.thread, one.name) == (row.thread, row.name)


def test_device_threads_wait_for_each_other(tmp_path: Path) -> None:
    """Nodes that a device thread runs leave the caller waiting."""

    def policy(node: Any) -> int:
        return 1 if "Tanh" in node.name() or "Mul" in node.name() else 0

    def program() -> None:
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        for _ in range(2):
            model(torch.randn(64, 64)).square().sum().backward()

    recorded(tmp_path / "t.agviz", program, device_policy=policy)
    found, _, _ = facts(tmp_path / "t.agviz")
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        sums = summed(timeline, *timeline.span)
        caller = trace.graph_tasks[0].thread
        expected = 0
        for task in trace.graph_tasks:
            nodes = [f for f in found if f.kind == "node" and f.graph_task == task.id]
            begin, end = (
                task.begin_ns - trace.meta.start_ns,
                (task.end_ns or 0) - trace.meta.start_ns,
            )
            mine = [(f.begin, f.end) for f in nodes if f.thread == caller]
            others = [(f.begin, f.end) for f in nodes if f.thread != caller]
            expected += union(mine + others, begin, end) - union(mine, begin, end)
        assert sums.threads[caller][WAITING] == expected > 0


def test_the_axis_cuts_out_stops() -> None:
    axis = ProcessAxis(100, [(150, 250), (120, 130), (200, 300), (90, 110)])
    assert [axis.of(t) for t in (110, 115, 120, 125, 130, 149, 150, 299, 300, 310)] == [
        0, 5, 10, 10, 10, 29, 30, 30, 30, 40,
    ]  # fmt: skip
    assert [tuple(stop) for stop in axis.stops] == [(0, 10), (10, 10), (30, 150)]


def test_a_file_that_was_cut_off_is_drawn_to_its_last_event(tmp_path: Path) -> None:
    recorded(tmp_path / "t.agviz", transformer)
    with contextlib.closing(sqlite3.connect(tmp_path / "t.agviz")) as database, database:
        last = database.execute("SELECT max(id) FROM graph_task").fetchone()[0]
        seq = database.execute(
            "SELECT seq FROM event WHERE graph_task = ? AND kind = 13 LIMIT 1 OFFSET 20", (last,)
        ).fetchone()[0]
        database.execute("DELETE FROM event WHERE seq > ?", (seq,))
        database.execute("UPDATE graph_task SET end_t = NULL, end_seq = NULL WHERE id = ?", (last,))
        database.execute("UPDATE meta SET value = 'null' WHERE key = 'end_ns'")
        database.execute("DELETE FROM timeline")
        database.execute("DELETE FROM anchor")
        database.execute("DELETE FROM optimizer_step WHERE graph_task = ?", (last,))
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        timeline = whole(trace)
        begin, end = timeline.pass_span(last)
        assert end == timeline.span[1]
        shown = picture(timeline, begin, end, 100_000)
        bars = [bar for row in shown.lanes[0].rows for bar in row.bars]
        under_way = max((bar for bar in bars if bar.kind is SpanKind.NODE), key=lambda b: b.begin)
        assert under_way.end == end
