"""An export of torch.profiler under our nodes, as Perfetto's own trace processor reads both."""

from __future__ import annotations

import gzip
import json
import threading
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import agviz
from agviz.cli.main import main
from agviz.traces.reader import Trace
from tests.perfetto_reader import Perfetto

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 3
OTHER_RUN = """{"traceEvents": [{"ph": "X", "name": "a", "tid": 1, "ts": 1}],
"baseTimeNanoseconds": 0}"""


def record(
    folder: Path, engine: Literal["exact", "native"], *, with_stack: bool = False
) -> tuple[Path, Path]:
    """Some steps that both have seen; our trace, and their export."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    ours, theirs = folder / "t.agviz", folder / "profiler.json"
    model(torch.randn(8, 16)).sum().backward()
    with (
        agviz.trace(model, path=ours, engine=engine),
        profile(activities=[ProfilerActivity.CPU], with_stack=with_stack) as profiler,
    ):
        for _ in range(STEPS):
            model(torch.randn(8, 16)).sum().backward()
    profiler.export_chrome_trace(str(theirs))
    return ours, theirs


def export(ours: Path, theirs: Path, out: Path) -> bytes:
    arguments = [str(ours), "--format", "chrome-trace", "--with", str(theirs), "-o", str(out)]
    assert main(["export", *arguments]) == 0
    return out.read_bytes()


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("engine", ["exact", "native"])
@pytest.mark.parametrize("with_stack", [False, True])
def test_each_node_holds_its_operations(
    tmp_path: Path,
    engine: Literal["exact", "native"],
    with_stack: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = record(tmp_path, engine, with_stack=with_stack)
    perfetto = Perfetto(export(ours, theirs, tmp_path / "both.json"))
    assert "clocks are aligned to " in capsys.readouterr().out
    assert perfetto.complaints() == []
    with Trace.open(ours) as trace:
        nodes = [node for task in trace.graph_tasks for node in trace.nodes(task.id)]
    around = perfetto.query(
        "SELECT op.id AS op, op.name AS name, node.name AS node FROM slice op"
        " JOIN ancestor_slice(op.id) node WHERE op.category = 'cpu_op' AND node.category = 'node'"
    )
    own = [name for _, name, node in around if name == node]
    assert len(own) == len(nodes)
    # Whatever ran in a node's time is under it, on its track.
    within = perfetto.query(
        "SELECT count(*) AS n FROM slice op JOIN slice node USING (track_id) WHERE"
        " op.category = 'cpu_op' AND node.category = 'node' AND node.ts <= op.ts"
        " AND op.ts + op.dur <= node.ts + node.dur"
    )
    assert within == [(len(around),)]
    assert {"aten::mm", "aten::sum"} <= {name for _, name, _ in around}
    told = {event["name"] for event in events(theirs) if event.get("cat") == "cpu_op"}
    kept = {name for (name,) in perfetto.query("SELECT name FROM slice WHERE category = 'cpu_op'")}
    assert {name for name in told if not name.startswith("autograd::engine::")} == kept


@pytest.mark.slow
def test_stacks_of_idle_threads_do_not_enclose_the_main_thread(tmp_path: Path) -> None:
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(120)]
    for thread in threads:
        thread.start()
    try:
        ours, theirs = record(tmp_path, "native", with_stack=True)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sum(event.get("tid") == 0 and event["ph"] == "X" for event in events(theirs)) > 512
    perfetto = Perfetto(export(ours, theirs, tmp_path / "both.json"))
    within = perfetto.query(
        "SELECT count(*) AS n FROM slice op JOIN ancestor_slice(op.id) node"
        " WHERE op.name = node.name AND op.category = 'cpu_op' AND node.category = 'node'"
    )
    with Trace.open(ours) as trace:
        assert within == [(sum(task.nodes for task in trace.graph_tasks),)]


def test_kernels_arrows_and_counters_keep_their_places(tmp_path: Path) -> None:
    """As a GPU's: tracks of its own, which hang on operations by arrows."""
    ours, theirs = record(tmp_path, "native")
    told = json.loads(theirs.read_text())
    mm = next(event for event in told["traceEvents"] if event["name"] == "aten::mm")
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
    kernel |= {"ts": mm["ts"] + 2, "dur": 1.5, "args": {"stream": 7}}
    arrow = {"cat": "ac2g", "name": "ac2g", "id": 1}
    told["traceEvents"] += [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "GPU 0"}},
        kernel,
        arrow | {"ph": "s", "pid": mm["pid"], "tid": mm["tid"], "ts": mm["ts"]},
        arrow | {"ph": "f", "pid": 0, "tid": 7, "ts": kernel["ts"], "bp": "e"},
        "no event",
        {"ph": "X", "name": "without a time", "pid": 0, "tid": 7},
    ]
    packed = tmp_path / "profiler.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(told).encode()))
    perfetto = Perfetto(export(ours, packed, tmp_path / "both.json"))
    assert perfetto.complaints() == []
    ((begin, length, process),) = perfetto.query(
        "SELECT s.ts AS begin, s.dur AS length, process.name AS process FROM slice s"
        " JOIN thread_track track ON s.track_id = track.id JOIN thread USING (utid)"
        " JOIN process USING (upid) WHERE s.category = 'kernel'"
    )
    ((first,),) = perfetto.query(
        "SELECT min(ts) AS first FROM slice WHERE category = 'cpu_op' AND name = 'aten::mm'"
    )
    assert (process, length) == ("GPU 0", 1_500)
    assert begin - first == pytest.approx(2_000, abs=2)
    ends = perfetto.query(
        "SELECT a.name AS a, b.name AS b FROM flow JOIN slice a ON slice_out = a.id"
        " JOIN slice b ON slice_in = b.id WHERE b.category = 'kernel'"
    )
    assert ends == [("aten::mm", "gemm")]
    with Trace.open(ours) as trace:
        edges = sum(len(trace.edges(task.id)) for task in trace.graph_tasks)
    arrows = perfetto.query(
        "SELECT count(*) AS n FROM flow JOIN slice b ON slice_in = b.id WHERE b.category = 'node'"
    )
    assert arrows == [(edges,)]


def test_clocks_that_drift_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = record(tmp_path, "native")
    told = json.loads(theirs.read_text())
    for event in told["traceEvents"]:
        if event.get("name") == "TanhBackward0":
            event["ts"] += 5_000
    theirs.write_text(json.dumps(told))
    export(ours, theirs, tmp_path / "both.json")
    assert "clocks drift by " in capsys.readouterr().out
    other = json.loads((tmp_path / "both.json").read_text())["otherData"]["overlay"]
    assert other.startswith("clocks drift by ")


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read: No such file"),
        ("{", "is no export of torch.profiler"),
        ("[]", "is no export of torch.profiler"),
        ('{"traceEvents": [], "baseTimeNanoseconds": 0}', "holds no event"),
        (OTHER_RUN, "holds none of the nodes of"),
    ],
)
def test_what_is_no_export_of_the_same_run_is_said(
    tmp_path: Path, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "t.agviz"
    with agviz.trace(path=ours):
        torch.ones(2, requires_grad=True).sum().backward()
    theirs = tmp_path / "profiler.json"
    if content is not None:
        theirs.write_text(content)
    out = tmp_path / "both.json"
    arguments = [str(ours), "--with", str(theirs), "-o", str(out)]
    assert main(["export", *arguments, "--format", "chrome-trace"]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", *arguments, "--format", "json"]) == 2
    assert "--with is for a chrome-trace" in capsys.readouterr().err


def test_device_threads_that_the_profiler_does_not_know_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.ones(2, requires_grad=True)
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
        agviz.trace(path=tmp_path / "t.agviz", device_policy=lambda _: 0),
    ):
        (x * 2).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "profiler.json"))
    arguments = ["--with", str(tmp_path / "profiler.json"), "-o", str(tmp_path / "both.json")]
    given = ["export", str(tmp_path / "t.agviz"), "--format", "chrome-trace", *arguments]
    assert main(given) == 2
    assert "record with --engine native" in capsys.readouterr().err
