"""A file of limited size keeps the first passes, the last ones, and each that failed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import agviz
from agviz.analysis.coverage import coverage
from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.record.options import FILE_BYTES, Options, read_limit
from agviz.record.recorder import Recorder
from agviz.record.retention import Retention
from agviz.record.watchdog import Watchdog
from agviz.traces import schema
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

LIMIT = 1_000_000
ROOMY = 1_500_000
"""Of 1 MB the tables alone take a quarter, and passes that are hardly there yet would go."""
PASSES = 500
NAN, RAISES = PASSES // 2, PASSES * 2 // 3


def train(path: Path, **recording: Any) -> None:
    """Many backward passes of which one meets NaN and one raises."""
    weight = torch.nn.Parameter(torch.ones(3))
    model = torch.nn.ParameterDict({"weight": weight})

    def refuse(gradient: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    with agviz.trace(model, path, max_bytes=LIMIT, **recording):
        for number in range(PASSES):
            weight.grad = None
            product = weight * (float("nan") if number == NAN else 2.0)
            if number == RAISES:
                product.register_hook(refuse)
                with pytest.raises(ZeroDivisionError):
                    product.sum().backward()
            else:
                product.sum().backward()


def check(path: Path) -> None:
    """What is in the file belongs together."""
    database = sqlite3.connect(path)
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table in schema.OF_GRAPH_TASK:
            orphans = (
                f"SELECT count(*) FROM {table} WHERE graph_task >= 0"  # noqa: S608 - our tables
                " AND graph_task NOT IN (SELECT id FROM graph_task)"
            )
            assert database.execute(orphans).fetchone() == (0,), table
        for table in ("health", "tensor", "part"):
            orphans = f"SELECT count(*) FROM {table} WHERE seq NOT IN (SELECT seq FROM event)"  # noqa: S608 - our tables
            assert database.execute(orphans).fetchone() == (0,), table
        chunks = "SELECT count(*) FROM part WHERE chunk > 0 AND chunk NOT IN (SELECT id FROM chunk)"
        assert database.execute(chunks).fetchone() == (0,)
        (count,) = database.execute(
            "SELECT count(*) FROM event WHERE graph_task >= 0"
            " AND graph_task NOT IN (SELECT id FROM graph_task)"
        ).fetchone()
        assert count == 0
    finally:
        database.close()
    with Trace.open(path) as trace:
        for task in trace.graph_tasks:
            count = trace.event_count(task.id)
            events = trace.events(task.id, limit=count + 1)
            assert len(events) == count
            assert trace.position(events[-1].seq, task.id) == count - 1
            state = trace.state_at(task.id, count)
            assert state.seq == events[-1].seq
            assert len(trace.nodes(task.id)) == task.nodes
        assert len(trace.events(limit=10**6)) == trace.event_count()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded in a process of its own, where graph tasks are counted from 0."""
    path = tmp_path_factory.mktemp("trained") / "t.agviz"
    program = "import pathlib, sys; from tests.test_trace_retention import train;"
    program += " train(pathlib.Path(sys.argv[1]))"
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, path], cwd=root, env=environment, check=True)
    return path


def test_first_last_and_failed_passes_stay(trained: Path) -> None:
    assert trained.stat().st_size <= LIMIT
    check(trained)
    with Trace.open(trained) as trace:
        assert not trace.meta.stopped
        kept = [task.id for task in trace.graph_tasks]
        assert {0, NAN, RAISES, PASSES - 1} <= set(kept)
        assert trace.graph_task(RAISES).status is GraphTaskStatus.FAILED
        assert trace.nonfinite_graph_tasks() == [NAN]
        assert all(trace.passes_before(number) == number for number in (*kept, PASSES))
        gone = trace.left_out
        assert sorted(
            [*kept, *(n for each in gone for n in range(each.first, each.last + 1))]
        ) == list(range(PASSES))
        assert all(each.passes == each.last - each.first + 1 for each in gone)
        found = coverage(trace)
        assert (found.recorded, found.between) == (PASSES, 2)
        assert min(found.first, found.last) > 20
        with pytest.raises(TraceError, match="holds no graph task"):
            trace.nodes(gone[0].first)


def test_it_is_said(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(trained)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    with Trace.open(trained) as trace:
        found = coverage(trace)
    sentence = (
        f"of {PASSES:,} backward passes the file keeps the first {found.first:,}, 2 between that"
        f" failed or were not finite and the last {found.last:,}; with a larger --max-bytes it"
        " keeps more"
    )
    assert f"! {sentence}" in said


@pytest.mark.parametrize(
    "call",
    [
        ("summary", "--json"),
        ("explain",),
        ("why",),
        ("whatif", "--order", "fifo"),
        ("export", "--format", "json"),
        ("export", "--format", "chrome-trace"),
        ("export", "--format", "dot"),
    ],
)
def test_every_verb_reads_it(
    trained: Path, tmp_path: Path, call: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *options = call
    output = ["-o", str(tmp_path / "out")] if verb == "export" else []
    assert main([verb, str(trained), *options, *output]) in {0, 1}
    assert "damaged" not in capsys.readouterr().err


def test_a_pass_is_numbered_among_all(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(trained)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"in backward pass {NAN} (the {NAN + 1}st of {PASSES:,})" in said
    assert main(["explain", str(trained), "--graph-task", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Of {PASSES:,} backward passes the file keeps the first" in said


@pytest.mark.slow
def test_it_is_compared_with_itself(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(trained), str(trained)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param({"values": "full"}, id="full", marks=pytest.mark.slow),
        pytest.param({"check_forward": True}, id="forward", marks=pytest.mark.slow),
        pytest.param({"steps": range(0, 9999, 2)}, id="some", marks=pytest.mark.slow),
    ],
)
def test_whatever_is_recorded(tmp_path: Path, recording: dict[str, Any]) -> None:
    path = tmp_path / "t.agviz"
    train(path, **recording)
    assert path.stat().st_size <= LIMIT
    check(path)
    with Trace.open(path) as trace:
        tasks = trace.graph_tasks
        assert not trace.meta.stopped
        assert trace.left_out
        every = 2 if "steps" in recording else 1
        kept = {trace.passes_before(task.id) * every: task for task in tasks}
        assert max(kept) >= PASSES - every
        assert kept[NAN].status is GraphTaskStatus.FINISHED
        if every == 1:
            assert kept[RAISES].status is GraphTaskStatus.FAILED


@pytest.mark.slow
def test_where_all_fail_the_first_and_the_last_of_them_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    weight = torch.nn.Parameter(torch.ones(3))
    with agviz.trace(path=path, max_bytes=ROOMY):
        for number in range(PASSES):
            (weight * (float("nan") if number >= NAN else 2.0)).sum().backward()
    check(path)
    assert path.stat().st_size <= ROOMY
    with Trace.open(path) as trace:
        kept = [trace.passes_before(task.id) for task in trace.graph_tasks]
        assert not trace.meta.stopped
        assert {0, NAN, NAN + 1, PASSES - 2, PASSES - 1} <= set(kept)
        assert trace.passes_before(10**9) == PASSES


@pytest.mark.slow
def test_passes_of_several_threads_and_inside_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.ones(2, requires_grad=True).exp().sum().backward()
            return gradient

    apply: Any = Inner.apply

    def work() -> None:
        for _ in range(120):
            apply(torch.ones(3, requires_grad=True)).sum().backward()

    with agviz.trace(path=path, max_bytes=LIMIT):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check(path)
    with Trace.open(path) as trace:
        assert trace.left_out
        assert sum(each.reentrant for each in trace.left_out) == sum(
            each.passes for each in trace.left_out
        )
        assert trace.passes_before(10**9) == 360
        for task in trace.graph_tasks:
            assert len(trace.family(task.id)) == 1 + (task.parent < 0)


@pytest.mark.slow
def test_passes_that_run_while_a_batch_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their events wait for the next batch, as their graphs do."""
    dumps = Watchdog.dumps

    def slowly(watchdog: Watchdog) -> Any:
        time.sleep(0.05)
        return dumps(watchdog)

    monkeypatch.setattr(Watchdog, "dumps", slowly)
    path = tmp_path / "t.agviz"
    train(path)
    check(path)


@pytest.mark.slow
def test_a_file_is_read_while_passes_go(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path, max_bytes=LIMIT) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=1)
        graph = random_graph(simulator.rng, 30, 1)
        with Trace.open(path) as trace:
            seen: set[int] = set()
            for _ in range(40):
                for _ in range(10):
                    simulator.backward(graph)
                recorder.flush()
                numbers = [task.id for task in trace.graph_tasks]
                seen |= set(numbers)
                for number in (numbers[0], numbers[-2], max(seen) // 2, max(seen) * 3 // 4):
                    try:
                        count = trace.event_count(number)
                        if number in numbers:
                            assert trace.state_at(number, count).seq > 0
                        else:
                            assert count == 0
                            trace.nodes(number)
                    except TraceError as error:
                        assert "holds no graph task" in str(error)  # noqa: PT017
            assert trace.left_out
            assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 2 * LIMIT
    check(path)


_LARGE = """
import sys
import torch
import agviz
from agviz.record.file_thread import FileThread

drain = FileThread._drain
def drain_late(self, writer):
    if sys.argv[2] != "lags" or self._closing.is_set():
        drain(self, writer)
FileThread._drain = drain_late
x = torch.ones(2, requires_grad=True)
with agviz.trace(path=sys.argv[1], max_bytes=int(sys.argv[4])):
    x.exp().sum().backward()
    for _ in range(int(sys.argv[3])):
        x = x + 1
    x.sum().backward()
    torch.ones(2, requires_grad=True).exp().sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writer", "nodes"),
    [
        pytest.param("keeps up", 4_000, id="its events"),
        pytest.param("lags", 4_500, id="all but its graph, late"),
        pytest.param("keeps up", 12_000, id="its graph"),
        pytest.param("lags", 4_000, id="its events, late", marks=pytest.mark.slow),
        pytest.param("keeps up", 4_500, id="all but its graph", marks=pytest.mark.slow),
        pytest.param("lags", 12_000, id="its graph, late", marks=pytest.mark.slow),
    ],
)
def test_a_pass_that_is_larger_than_the_file(writer: str, nodes: int, tmp_path: Path) -> None:
    """What came before it is kept, also where both wait to be written."""
    path = tmp_path / "t.agviz"
    command = [sys.executable, "-c", _LARGE, str(path), writer, str(nodes), str(LIMIT)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert path.stat().st_size <= LIMIT
    assert "has reached its limit of 1,000,000 bytes" in said
    with Trace.open(path) as trace:
        assert trace.meta.stopped
        assert trace.graph_tasks[0].status is GraphTaskStatus.FINISHED


def test_the_limit_and_how_it_is_named() -> None:
    assert Options().limit == FILE_BYTES
    assert Options(max_bytes=0).limit is None
    assert Options(max_bytes=LIMIT).limit == LIMIT
    assert Options(max_values_bytes=FILE_BYTES).limit == FILE_BYTES
    assert Options(max_values_bytes=FILE_BYTES, values="full").limit == 4 * FILE_BYTES
    assert [read_limit(text) for text in ("none", "0", "NONE", "2MB")] == [0, 0, 0, 2_000_000]
    for wrong in (1, -1, LIMIT - 1):
        with pytest.raises(agviz.AgvizError, match="at least 1,000,000 bytes"):
            Options(max_bytes=wrong)


@given(st.lists(st.tuples(st.sampled_from("bbbefi"), st.integers(1, 400)), max_size=300))
def test_what_is_chosen(steps: list[tuple[str, int]]) -> None:
    """Whatever happens, in whatever order: who goes is known, and nobody goes who must not."""
    retention = Retention(2_000)
    size, number = 0, 0
    under_way: list[int] = []
    present: dict[int, int] = {}
    failed: set[int] = set()
    gone: set[int] = set()
    for what, amount in steps:
        if what == "b" or not under_way:
            retention.begun(number, -1, number)
            under_way.append(number)
            number += 1
        else:
            one = under_way.pop(amount % len(under_way))
            if what == "f":
                failed.add(one)
            if what == "i":
                retention.begun(number, one, number)
                retention.ended(number, has_failed=False)
                number += 1
            retention.ended(one, has_failed=what == "f")
            present[one] = amount
            size += amount
        retention.look(size)
        while missing := retention.missing(size, 50):
            chosen = retention.leave_out(missing)
            if not chosen:
                break
            for each in chosen:
                size -= present.pop(each.tasks[0])
                gone.add(each.tasks[0])
                if each.has_failed:
                    good = set(present) - failed
                    assert not {n for n in good if n > min(gone)}
            retention.look(size)
        assert not gone & set(under_way)
        assert not gone or min([*gone, 0]) == 0 or 0 not in gone
        told = [(each.first, each.last) for each in retention.left_out]
        for begin, end in told:
            assert not [n for n in (*present, *under_way) if begin <= n <= end]
        assert all(any(begin <= n <= end for begin, end in told) for n in gone)
        assert sum(each.passes for each in retention.left_out) == len(gone)
        assert all(one[1] < two[0] for one, two in pairwise(told))


def test_a_pass_whose_loss_alone_is_not_finite_stays(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, max_bytes=LIMIT):
        for number in range(PASSES):
            loss = (weight * 2.0).sum()
            (loss + float("nan") if number == NAN else loss).backward()
    assert bool(weight.grad is not None and weight.grad.isfinite().all())
    with Trace.open(path) as trace:
        assert trace.left_out
        assert NAN in [trace.passes_before(task.id) for task in trace.graph_tasks]
        assert len(trace.nonfinite_roots()) == 1
