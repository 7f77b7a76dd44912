"""What is recorded where not everything is: some nodes, some steps, so many bytes."""

from __future__ import annotations

import re
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from agviz.errors import TraceError
from agviz.record.file_thread import FileThread
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.record.writer import Writer
    from agviz_engine import events

CHOSEN = re.compile("Simulated[36]")


def record(path: Path, nodes: re.Pattern[str] | None, **backward: int) -> Simulator:
    registry = Registry()
    with Recorder(path, nodes=nodes) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(3), devices=1)
        inner = random_graph(simulator.rng, 6)
        for _ in range(3):
            graph = random_graph(simulator.rng, 40, 1)
            simulator.backward(graph, reentrant=inner, nan_at=backward.get("nan_at"))
        if "fail_at" in backward:
            simulator.backward(random_graph(simulator.rng, 40, 1), fail_at=backward["fail_at"])
    return simulator


def concerned(event: events.Event) -> set[int]:
    return {getattr(event, name) for name in ("node", "producer") if hasattr(event, name)}


def test_events_of_other_nodes_are_left_out_and_graphs_are_whole(tmp_path: Path) -> None:
    emitted = record(tmp_path / "some.agviz", CHOSEN, nan_at=4).emitted
    record(tmp_path / "all.agviz", None, nan_at=4)
    with Trace.open(tmp_path / "some.agviz") as some, Trace.open(tmp_path / "all.agviz") as whole:
        assert some.meta.partial
        assert not whole.meta.partial
        assert "match 'Simulated[36]'" in some.meta.choice
        expected = []
        for event in emitted:
            known = some.nodes(event.graph_task) if event.graph_task >= 0 else ()
            chosen = {n.index for n in known if CHOSEN.search(n.name)}
            if not concerned(event) or concerned(event) & chosen:
                expected.append(event)
        assert some.events(limit=10**6) == expected
        assert 100 < sum(bool(concerned(event)) for event in expected) < len(emitted) / 2
        for task in whole.graph_tasks:
            assert some.edges(task.id) == whole.edges(task.id)
            for mine, full in zip(some.nodes(task.id), whole.nodes(task.id), strict=True):
                assert (mine.name, mine.dependencies) == (full.name, full.dependencies)
                if CHOSEN.search(mine.name):
                    assert (mine.status, mine.end_ns) == (full.status, full.end_ns)
                    assert mine.nonfinite == full.nonfinite
                    assert some.story(task.id, mine.index) == whole.story(task.id, mine.index)
                else:
                    assert mine.status is NodeStatus.UNKNOWN
                    assert mine.order is mine.thread is mine.end_ns is None


@pytest.mark.parametrize("fail_at", [None, 9])
def test_replay_says_what_it_can_not_know(tmp_path: Path, fail_at: int | None) -> None:
    fails = {} if fail_at is None else {"fail_at": fail_at}
    record(tmp_path / "some.agviz", CHOSEN, **fails)
    record(tmp_path / "all.agviz", None, **fails)
    with Trace.open(tmp_path / "some.agviz") as some, Trace.open(tmp_path / "all.agviz") as whole:
        for task in some.graph_tasks:
            left_out = {n.index for n in some.nodes(task.id) if not CHOSEN.search(n.name)}
            for position in range(some.event_count(task.id) + 1):
                state = some.state_at(task.id, position)
                full = whole.state_at(task.id, whole.position(state.seq, task.id) + 1)
                if position < 2:  # before the dependencies are computed
                    continue
                assert not state.knows_all
                assert full.knows_all
                for node, status in enumerate(full.statuses(task.id)):
                    known = NodeStatus.UNKNOWN if node in left_out else status
                    assert state.status(task.id, node) is known
                    assert state.statuses(task.id)[node] is known
                    if node not in left_out:
                        assert state.remaining(task.id, node) == full.remaining(task.id, node)
                        assert state.buffer(task.id, node) == full.buffer(task.id, node)
                    else:
                        assert not state.buffer(task.id, node)
                assert state.live_bytes <= full.live_bytes


def test_nodes_are_known_by_parameter_and_module_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import agviz_engine
    from agviz.record.names import Names

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with (
        Names() as names,
        Recorder(
            tmp_path / "t.agviz", names=names, nodes=re.compile(r"^2\.weight$|^1$")
        ) as recorder,
        agviz_engine.installed(recorder),
    ):
        model(torch.ones(2, 3)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (task,) = trace.graph_tasks
        known = [n for n in trace.nodes(task.id) if n.status is not NodeStatus.UNKNOWN]
        assert {(n.module, n.parameter) for n in known} == {("1", None), (None, "2.weight")}
        assert {n.status for n in known} == {NodeStatus.DONE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "lag"),
    [
        (1_000_000, None),
        pytest.param(1_000_000, 1_000_000, marks=pytest.mark.slow),
        pytest.param(1_000_000, 1_500_000, marks=pytest.mark.slow),
        pytest.param(3_000_000, None, marks=pytest.mark.slow),
        pytest.param(3_000_000, 1_000_000, marks=pytest.mark.slow),
        pytest.param(3_000_000, 1_500_000, marks=pytest.mark.slow),
    ],
)
def test_the_file_keeps_within_its_size(
    tmp_path: Path, limit: int, lag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the writer comes to its turn only after so many numbers have come to wait."""
    if lag is not None:
        drain = FileThread._drain_until_closed

        def late(file: FileThread, writer: Writer) -> None:
            while len(file.journal) < lag and not file.is_closing:
                time.sleep(0.01)
            drain(file, writer)

        monkeypatch.setattr(FileThread, "_drain_until_closed", late)
    path = tmp_path / "t.agviz"
    registry = Registry()
    passes = 80
    with Recorder(path, max_bytes=limit) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=1)
        graph = random_graph(simulator.rng, 400, 1)
        for _ in range(passes):
            simulator.backward(graph)
        assert recorder.is_recording
    assert limit / 2 < path.stat().st_size <= limit
    assert [p.name for p in tmp_path.iterdir()] == ["t.agviz"]
    with Trace.open(path) as trace:
        assert not trace.meta.stopped
        assert trace.meta.end_ns is not None
        (gone,) = trace.left_out
        kept = [task.id for task in trace.graph_tasks]
        assert kept == [*range(gone.first), *range(gone.last + 1, passes)]
        emitted = [event for event in simulator.emitted if event.graph_task in {*kept, -1}]
        assert trace.events(limit=len(emitted) + 1) == emitted
        for number in kept[0], kept[-1]:
            count = trace.event_count(number)
            assert trace.state_at(number, count).seq == trace.events(number, count - 1)[0].seq


def test_a_limit_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="needs at least 1,000,000 bytes"):
        Recorder(tmp_path / "t.agviz", max_bytes=1_000)
    assert not (tmp_path / "t.agviz").exists()
