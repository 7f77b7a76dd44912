"""The Chrome trace: Perfetto reads it, a strict reader too, and it says what happened."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sqlite3
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis import passes as passes_module
from agviz.export.chrome_trace import chrome_trace
from agviz.export.output import write
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz_engine import events
from agviz_engine.instruments import Registry
from tests import trace_event_format
from tests.emitting import emit
from tests.engine.builders import apply
from tests.event_simulator import SimulatedTask, Simulator, live_view, random_graph
from tests.peak_memory import peak_bytes
from tests.perfetto_reader import Perfetto

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.trace_event_format import Slice, Timeline


class Fails(torch.autograd.Function):
    """Its backward raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise ValueError("no\nway")


def backward_in_a_hook(gradient: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        weight = torch.ones(2, requires_grad=True)
        (weight * weight).sum().backward()
    return gradient * 2


def program() -> None:
    """Eight graph tasks: hooks, reentrant calls in a hook and in a node, NaN, grad, a failure."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    x = torch.randn(3, 4, requires_grad=True)
    hidden = model[0](x)
    hidden.register_hook(backward_in_a_hook)
    hidden.register_hook(lambda gradient: None)
    loss = model[1:](hidden).sum()
    loss.grad_fn.register_hook(lambda *_: None)
    loss.backward()
    checkpoint(model, x, use_reentrant=True).sum().backward()
    y = model(x)
    (y - y).sqrt().sum().backward()
    torch.autograd.grad(model(x).sum(), [x])
    with pytest.raises(ValueError, match="way"):
        apply(Fails, model(x)).sum().backward()


def by_parity(node: Any) -> int:
    """Nodes of odd sequence number run on device 1, the others on device 0."""
    return int(node._sequence_nr()) % 2


@pytest.fixture(scope="module", params=["one thread", "devices"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "t.agviz"
    with agviz.trace(path=path, device_policy=by_parity if request.param == "devices" else None):
        program()
    return path


def export(path: Path, graph_task: int | None = None) -> bytes:
    with Trace.open(path) as trace:
        return "".join(chrome_trace(trace, graph_task)).encode("ascii")


def timeline(path: Path, graph_task: int | None = None) -> Timeline:
    return trace_event_format.read(export(path, graph_task))


def simulated(
    path: Path, *, seed: int = 0, size: int = 40, passes: int = 3, inner: int = 6
) -> Simulator:
    registry = Registry()
    with Recorder(path, script="train.py", argv=[]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(seed), devices=2)
        simulator._clock = itertools.count(time.monotonic_ns(), 1_000)
        for number in range(passes):
            nodes = random_graph(simulator.rng, size, 2)
            called = random_graph(simulator.rng, inner, 2) if inner and number % 2 else None
            simulator.backward(nodes, reentrant=called, nan_at=3)
    return simulator


def everything(path: Path) -> tuple[Trace, list[events.Event]]:
    trace = Trace.open(path)
    return trace, trace.events(limit=10**9)


# -- outside checkers -------------------------------------------------------------------------


def agrees_with_perfetto(data: bytes) -> Perfetto:
    """Perfetto understands all of it exactly as the strict reader does."""
    read, perfetto = trace_event_format.read(data), Perfetto(data)
    assert perfetto.complaints() == []
    depths: dict[int, int] = {}
    for slice_ in read.slices:  # parents come before their children
        depths[id(slice_)] = 0 if slice_.parent is None else depths[id(slice_.parent)] + 1
    assert sorted(
        perfetto.query(
            "SELECT s.name, s.category, s.ts, s.dur, s.depth, tid FROM slice s"
            " JOIN thread_track t ON s.track_id = t.id JOIN thread USING (utid)"
            " WHERE s.category NOT IN ('failure', 'non_finite', 'delegated')"
        )
    ) == sorted(
        (s.name, s.category, s.begin, s.end - s.begin, depths[id(s)], s.tid) for s in read.slices
    )
    ((instants,),) = perfetto.query(
        "SELECT count(*) FROM slice WHERE category IN ('failure', 'non_finite', 'delegated')"
    )
    assert instants == len(read.instants)
    node = "extract_arg({}.arg_set_id, 'args.node')"
    assert Counter(
        perfetto.query(
            f"SELECT o.ts, {node.format('o')} AS out, i.ts AS t, {node.format('i')} AS into_"  # noqa: S608
            " FROM flow"
            " JOIN slice o ON o.id = slice_out JOIN slice i ON i.id = slice_in"
        )
    ) == Counter(
        (out.begin, out.args["node"], into.begin, into.args["node"]) for out, into in read.flows
    )
    counters = perfetto.query(
        "SELECT t.name, ts, value FROM counter c JOIN counter_track t ON c.track_id = t.id"
    )
    assert sorted(counters) == sorted(
        (f"{name} {'bytes' if 'bytes' in name else 'depth'}", ts, float(value))
        for name, readings in read.counters.items()
        for ts, value in readings
    )
    names = perfetto.query("SELECT tid, name FROM thread WHERE name IS NOT NULL ORDER BY tid")
    assert names == sorted(read.threads.items())
    return perfetto


def test_perfetto_reads_it(recorded: Path) -> None:
    agrees_with_perfetto(export(recorded))


def test_perfetto_reads_many_overlapping_threads(tmp_path: Path) -> None:
    simulated(tmp_path / "t.agviz", passes=4)
    agrees_with_perfetto(export(tmp_path / "t.agviz"))


def test_the_checkers_see_slices_that_cross() -> None:
    def crossing(*spans: tuple[str, str]) -> bytes:
        records = [
            f'{{"ph":"X","name":"a","pid":1,"tid":2,"ts":{ts},"dur":{dur},"cat":"node","args":{{}}}}'
            for ts, dur in spans
        ]
        events = ",".join(records)
        return f'{{"displayTimeUnit":"ns","traceEvents":[{events}]}}'.encode()

    for fine in ([("1", "2"), ("3", "1")], [("1", "2"), ("2.999", "0.001")]):
        assert len(trace_event_format.read(crossing(*fine)).slices) == 2
        assert Perfetto(crossing(*fine)).complaints() == []
    for bad in ([("1", "2"), ("2.999", "1")], [("1", "2"), ("2", "1.001")]):
        with pytest.raises(AssertionError, match="crosses"):
            trace_event_format.read(crossing(*bad))
        assert Perfetto(crossing(*bad)).complaints() == [
            ("slice_drop_overlapping_complete_event", 1)
        ]


# -- it says what happened ----------------------------------------------------------------------


def test_every_execution_is_a_slice_to_the_nanosecond(recorded: Path) -> None:
    read = timeline(recorded)
    trace, _ = everything(recorded)
    with trace:
        zero = trace.meta.start_ns
        tids = {thread.id: thread.native_id for thread in trace.threads}
        wanted = []
        for task in trace.graph_tasks:
            nodes = trace.nodes(task.id)
            for row in trace.executions(task.id):
                assert row.end_ns is not None
                node = nodes[row.node]
                span = row.start_ns - zero, row.end_ns - zero
                key = task.id, row.node, node.name, node.module, node.parameter
                wanted.append((*key, node.sequence_nr, row.order, tids[row.thread], *span))
        tasks = [
            (task.id, "backward" if task.accumulate_grad else "grad", task.begin_ns - zero)
            for task in trace.graph_tasks
        ]
        assert read.facts["baseTimeNanoseconds"] == trace.meta.started_unix_ns
    found = [
        (
            *(s.args["graph task"], s.args["node"], s.name, s.args.get("module")),
            *(s.args.get("parameter"), s.args.get("Sequence number"), s.args["order"]),
            *(s.tid, s.begin, s.end),
        )
        for s in read.named("node")
    ]
    assert sorted(found) == sorted(wanted)
    found_tasks = [(s.args["graph task"], s.name, s.begin) for s in read.named("graph_task")]
    assert found_tasks == tasks
    assert [name for _, name, _ in tasks].count("grad") == 1


def ancestors(slice_: Slice) -> list[Slice]:
    found = []
    while slice_.parent is not None:
        slice_ = slice_.parent
        found.append(slice_)
    return found


def test_slices_lie_in_what_they_happened_in(recorded: Path) -> None:
    read = timeline(recorded)
    tasks = {s.args["graph task"]: s for s in read.named("graph_task")}
    for slice_ in read.named("node"):
        task = tasks[slice_.args["graph task"]]
        if task.tid == slice_.tid:
            assert slice_.parent is task
        else:
            assert slice_.parent is None
            assert task.begin < slice_.begin < slice_.end < task.end
    for hook in read.named("hook"):
        assert hook.parent is not None
        assert hook.parent.category == "node"
        for key in ("graph task", "node"):
            assert hook.parent.args[key] == hook.args[key]
    reentrant = [s for s in tasks.values() if "parent graph task" in s.args]
    inside = set()
    for task in reentrant:
        node = next(s for s in ancestors(task) if s.category == "node")
        assert node.args["graph task"] == task.args["parent graph task"]
        assert node.args["node"] == task.args["parent node"]
        assert task.parent is not None
        inside.add(task.parent.name)
    assert inside == {"backward_in_a_hook", "CheckpointFunctionBackward"}


def test_arrows_are_the_dependencies_that_were_met(recorded: Path) -> None:
    trace, told = everything(recorded)
    with trace:
        started = {(e.graph_task, e.node) for e in told if isinstance(e, events.NodeStarted)}
    met = Counter(
        (e.graph_task, e.producer, e.node)
        for e in told
        if isinstance(e, events.DependencyDecremented) and (e.graph_task, e.node) in started
    )
    found: Counter[tuple[int, int, int]] = Counter()
    for out, into in timeline(recorded).flows:
        assert out.args["graph task"] == into.args["graph task"]
        assert out.end < into.begin
        found[out.args["graph task"], out.args["node"], into.args["node"]] += 1
    assert found == met
    assert met.total() > 40


def test_counters_show_queues_and_memory(recorded: Path) -> None:
    trace, told = everything(recorded)
    with trace:
        zero = trace.meta.start_ns
    depths: dict[str, list[tuple[int, int]]] = {}
    held: dict[tuple[int, int], dict[int, int]] = {}
    memory = []
    live = 0
    for event in told:
        before = live
        if isinstance(event, events.QueuePush | events.QueuePop):
            device = f"device {event.queue}" if event.queue >= 0 else "CPU, MainThread"
            reading = event.time_ns - zero, event.size
            depths.setdefault(f"ReadyQueue {device}", []).append(reading)
        elif isinstance(event, events.GradientAccumulated):
            held.setdefault((event.graph_task, event.node), {})[event.slot] = event.nbytes
        elif isinstance(event, events.NodeFinished | events.NodeSkipped | events.NodeFailed):
            held.pop((event.graph_task, event.node), None)
        elif isinstance(event, events.GraphTaskFinished | events.GraphTaskFailed):
            held = {key: slots for key, slots in held.items() if key[0] != event.graph_task}
        live = sum(sum(slots.values()) for slots in held.values())
        if live != before:
            memory.append((event.time_ns - zero, live))
    found = timeline(recorded).counters
    assert found == {**depths, "live gradient bytes": memory}
    assert max(live for _, live in memory) >= 3 * 8 * 4, "the hidden layer's gradient"


def test_findings_and_failures_are_instants(recorded: Path) -> None:
    instants = timeline(recorded).instants
    trace, _ = everything(recorded)
    with trace:
        rows = trace.nonfinite()
    found = [instant for instant in instants if instant["cat"] == "non_finite"]
    assert [
        tuple(i["args"][key] for key in ("graph task", "node", "output", "nan", "posinf", "neginf"))
        for i in found
    ] == [(r.graph_task, r.node, r.output, r.nan, r.posinf, r.neginf) for r in rows]
    assert found[0]["args"]["name"] == "SqrtBackward0"
    failures = {i["name"]: i["args"] for i in instants if i["cat"] == "failure"}
    assert set(failures) == {"node failed", "graph task failed"}
    assert failures["node failed"]["name"] == "FailsBackward"
    for args in failures.values():
        assert (args["error"], args["message"]) == ("ValueError", "no\nway")


def test_arguments_line_up_with_the_profilers(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    loss = model(torch.ones(3, 4)).sum()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        loss.backward(retain_graph=True)
    profiler.export_chrome_trace(str(tmp_path / "torch.json"))
    with agviz.trace(path=tmp_path / "t.agviz"):
        loss.backward()
    theirs = json.loads((tmp_path / "torch.json").read_text())
    arguments = "Sequence number", "Input Dims"
    wanted = [
        (event["name"], event["tid"], *(event["args"].get(key) for key in arguments))
        for event in theirs["traceEvents"]
        if event["ph"] == "X" and event["name"].endswith(("Backward0", "AccumulateGrad"))
        if not event["name"].startswith("autograd::engine")
    ]
    found = [
        (slice_.name, slice_.tid, *(slice_.args.get(key) for key in arguments))
        for slice_ in timeline(tmp_path / "t.agviz").named("node")
    ]
    assert found == wanted
    assert len(found) == 10


def frames(stack: str) -> list[tuple[str, str]]:
    """File and function of the frames in an argument ``Call stack`` that belong to this file."""
    found = re.findall(r"([^;]*?)\((\d+)\): ([^;]*);", stack)
    assert "".join(f"{file}({line}): {name};" for file, line, name in found) in stack
    return [(file, name) for file, _, name in found if file.endswith("test_export_chrome_trace.py")]


def test_call_stacks_are_written_as_in_the_profiler_of_torch(tmp_path: Path) -> None:
    """The profiler sees the operation that makes a node, which has the same sequence number."""

    def inner(x: torch.Tensor) -> torch.Tensor:
        return (x * x).tanh()

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x.exp()).relu()

    x = torch.ones(2, 3, requires_grad=True)
    verbose = _ExperimentalConfig(verbose=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        with profile(with_stack=True, experimental_config=verbose) as profiler:
            loss = outer(x).sum()
        loss.backward()
    profiler.export_chrome_trace(str(tmp_path / "torch.json"))
    theirs: dict[int, list[str]] = {}
    for event in json.loads((tmp_path / "torch.json").read_text())["traceEvents"]:
        number = event.get("args", {}).get("Sequence number")
        if number is not None:
            theirs.setdefault(number, []).append(event["args"]["Call stack"])
    found = [slice_.args for slice_ in timeline(tmp_path / "t.agviz").named("node")]
    depths = Counter[int]()
    for args in found:
        if "Sequence number" not in args:
            continue  # AccumulateGrad
        ours = frames(args["Call stack"])
        assert ours in [frames(stack) for stack in theirs[args["Sequence number"]]]
        file, line, function = re.findall(r"^(.*?)\((\d+)\): (.*?);", args["Call stack"])[0]
        assert args["created by"] == f"{file}:{line} in {function}"
        depths[len(ours)] += 1
    assert depths == {1: 1, 2: 2, 3: 2}


# -- threads, times, one graph task ---------------------------------------------------------------


def changed(path: Path, *statements: str) -> Path:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        database.execute(statement)
    database.close()
    return path


def test_callers_come_before_device_threads(tmp_path: Path) -> None:
    simulated(tmp_path / "t.agviz")
    changed(
        tmp_path / "t.agviz",
        "UPDATE thread SET id = 102 - id",
        "UPDATE thread SET id = id - 100",
        "UPDATE event SET thread = 2 - thread",
    )
    data = trace_event_format.parse(export(tmp_path / "t.agviz"))
    metadata = [event for event in data["traceEvents"] if event["ph"] == "M"]
    order = {
        e["tid"]: e["args"]["sort_index"] for e in metadata if e["name"].endswith("sort_index")
    }
    names = {e["args"]["name"]: e["tid"] for e in metadata if e["name"] == "thread_name"}
    assert sorted(names, key=lambda name: order[names[name]]) == [
        "MainThread",
        "pt_autograd_0",
        "pt_autograd_1",
    ]
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert names == {thread.name: thread.native_id for thread in trace.threads}


@pytest.mark.parametrize("native", [0, -7, 1000, 2**40])
def test_threads_that_can_not_be_told_apart_get_numbers(native: int, tmp_path: Path) -> None:
    simulated(tmp_path / "t.agviz")
    before = timeline(tmp_path / "t.agviz")
    changed(tmp_path / "t.agviz", f"UPDATE thread SET native_id = {native} WHERE id < 2")  # noqa: S608
    after = timeline(tmp_path / "t.agviz")
    assert sorted(after.threads.values()) == ["MainThread", "pt_autograd_0", "pt_autograd_1"]
    assert [(s.name, s.begin, s.end) for s in after.slices] == [
        (s.name, s.begin, s.end) for s in before.slices
    ]
    tids = [before.threads, after.threads]
    assert Counter(tids[0][s.tid] for s in before.slices) == Counter(
        tids[1][s.tid] for s in after.slices
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_recording_that_was_cut_off(seed: int, tmp_path: Path) -> None:
    simulated(tmp_path / "t.agviz", passes=2)
    last = Random(seed).randrange(20, 600)
    changed(
        tmp_path / "t.agviz",
        f"DELETE FROM event WHERE seq > {last}",  # noqa: S608
        f"DELETE FROM graph_task WHERE begin_seq > {last}",  # noqa: S608
        f"UPDATE graph_task SET end_seq = NULL, end_t = NULL, executed = NULL"  # noqa: S608
        f" WHERE end_seq > {last}",
        "UPDATE meta SET value = 'null' WHERE key = 'end_ns'",
        "UPDATE meta SET value = '0' WHERE key = 'pid'",
    )
    read = timeline(tmp_path / "t.agviz")
    trace, told = everything(tmp_path / "t.agviz")
    with trace:
        started = sum(isinstance(event, events.NodeStarted) for event in told)
    assert len(read.named("node")) == started > 0
    end = max(slice_.end for slice_ in read.slices)
    for slice_ in read.slices:
        if slice_.args["status"] in {"running", "cut"}:
            assert slice_.end == end
    if seed < 2:
        agrees_with_perfetto(export(tmp_path / "t.agviz"))


def told_by_hand(path: Path, *told: tuple[Callable[..., Any], int, Any]) -> Timeline:
    """A trace of events at given times (ns), all on one thread, in one graph of one node."""
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        zero = recorder._start_ns
        simulator = Simulator(Registry(), Random(0))
        nodes = random_graph(simulator.rng, 1)
        made: list[events.Event] = []
        for seq, (kind, time, fields) in enumerate(told):
            # Every other number is left out: a node's end is the second event of its step.
            event: Any = kind(2 * seq, zero + time, 0, *fields)
            made.append(event)
            if kind is events.NodeStarted:
                made[-1] = event._replace(seq=2 * seq - 1)
            if kind is not events.QueuePop:
                live = live_view(SimulatedTask(event.graph_task, 0, nodes, [0]))
                emit(registry, made, live)
                made.clear()
    return timeline(path)


def test_hooks_and_callbacks_whose_duration_reaches_too_far_back(tmp_path: Path) -> None:
    """The clock is read once more for the duration, see Note [Slices that nest]."""
    call = (-1, -1, 1, False, False, True, 1, 0)
    read = told_by_hand(
        tmp_path / "t.agviz",
        (events.GraphTaskBegun, 1_000, (0, *call)),
        (events.DependenciesComputed, 1_100, (0, 1, 0)),
        (events.QueuePush, 1_200, (0, -1, 0, 1)),
        (events.QueuePop, 2_000, (0, -1, 0, 0)),
        (events.NodeStarted, 2_000, (0, 0)),
        (events.HookCalled, 3_000, (0, 0, "pre", "first", 1_001, False)),
        (events.HookCalled, 4_000, (0, 0, "pre", "second", 1_001, True)),
        (events.GraphTaskBegun, 5_000, (1, 0, 0, *call[2:])),
        (events.DependenciesComputed, 5_100, (1, 1, 0)),
        (events.GraphTaskFinished, 6_000, (1, 0)),
        (events.HookCalled, 7_000, (0, 0, "post", "after the inner call", 1_001, False)),
        (events.GraphTaskBegun, 7_500, (2, 0, 0, *call[2:])),
        (events.DependenciesComputed, 7_600, (2, 1, 0)),
        (events.GraphTaskFinished, 7_900, (2, 0)),
        (events.HookCalled, 8_000, (0, 0, "post", "around the inner call", 900, False)),
        (events.NodeFinished, 9_000, (0, 0, 0)),
        (events.FinalCallbackRun, 9_500, (0, 0, 501)),
        (events.GraphTaskFinished, 10_000, (0, 1)),
    )
    spans = {s.name: (s.begin, s.end) for s in read.slices if s.category in {"hook", "callback"}}
    assert spans == {
        "first": (2_000, 3_000),
        "second": (3_000, 4_000),
        "after the inner call": (6_000, 7_000),
        "around the inner call": (7_100, 8_000),
        "final callback": (9_000, 9_500),
    }
    inner = next(s for s in read.named("graph_task") if s.args["graph task"] == 2)
    assert inner.parent is not None
    assert inner.parent.name == "around the inner call"


def test_one_graph_task_comes_with_those_inside_it(recorded: Path) -> None:
    with Trace.open(recorded) as trace:
        first, inner = trace.graph_tasks[:2]
    whole, part = timeline(recorded), timeline(recorded, first.id)
    assert inner.parent == first.id
    wanted = {first.id, inner.id}
    assert {s.args["graph task"] for s in part.slices} == wanted

    def of(read: Timeline) -> list[tuple[Any, ...]]:
        slices = [s for s in read.slices if s.args["graph task"] in wanted]
        return [(s.name, s.begin, s.end, s.tid, s.args) for s in slices]

    assert of(part) == of(whole)
    assert part.counters == {
        name: [reading for reading in readings if reading[0] <= max(s.end for s in part.slices)]
        for name, readings in whole.counters.items()
    }


# -- files ------------------------------------------------------------------------------------


def test_the_same_trace_gives_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    assert export(recorded) == export(recorded)
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        with Trace.open(recorded) as trace:
            write(tmp_path / name, chrome_trace(trace))
    assert (tmp_path / "a.json").read_bytes() == export(recorded)
    compressed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(compressed) == export(recorded)
    assert (tmp_path / "b.json.gz").read_bytes() == compressed
    assert len(compressed) < len(export(recorded)) / 4


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes_module, "_NODES_KEPT", 50)
    monkeypatch.setattr(passes_module, "_EVENTS_PER_PAGE", 500)
    peaks = []
    for passes in (8, 24):
        path = tmp_path / f"{passes}.agviz"
        simulated(path, passes=passes, size=100, inner=0)
        peaks.append(peak_bytes(path, chrome_trace))
    assert peaks[1] < 1.8 * peaks[0], peaks


def test_what_was_never_executed_is_no_slice(recorded: Path) -> None:
    trace, _ = everything(recorded)
    with trace:
        waiting = [
            (task.id, node.index)
            for task in trace.graph_tasks
            for node in trace.nodes(task.id)
            if node.status is NodeStatus.WAITING
        ]
    assert waiting, "the pass that failed"
    told = {(s.args["graph task"], s.args["node"]) for s in timeline(recorded).named("node")}
    assert not told & set(waiting)


def test_a_trace_without_a_backward_pass(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.agviz", script="nothing.py"):
        pass
    assert timeline(tmp_path / "t.agviz").slices == []
    assert Perfetto(export(tmp_path / "t.agviz")).complaints() == []
