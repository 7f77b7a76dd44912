"""Nothing is lost and nobody is harmed: kill -9, full disks, forks, bad paths, two processes."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz_engine.events import GraphTaskFinished
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
from random import Random
from agviz.record.recorder import Recorder
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
recorder = Recorder(sys.argv[1])
registry = Registry()
registry.add(recorder)
simulator = Simulator(registry, Random(0), devices=1)
graph = random_graph(simulator.rng, 50, 1)
"""


def start(body: str, path: Path) -> subprocess.Popen[str]:
    """A process that records into ``path`` and then does what ``body`` says."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(body), path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def ends(child: subprocess.Popen[str], code: int = 0) -> None:
    """Wait for its end, with nothing on stderr."""
    _, errors = child.communicate()
    assert (child.returncode, errors) == (code, "")


def finished_graph_tasks(path: Path) -> int:
    """Counted by SQLite alone, from outside the recording process."""
    try:
        database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        found = database.execute("SELECT count(*) FROM graph_task WHERE end_t IS NOT NULL")
        return int(found.fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        database.close()


def test_kill_9_loses_nothing_committed(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    child = start("while True: simulator.backward(graph)", path)
    try:
        while finished_graph_tasks(path) < 20:  # the recorder commits by itself
            assert child.poll() is None, child.communicate()[1]
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    seen = finished_graph_tasks(path)
    assert seen >= 20
    with Trace.open(path) as trace:
        assert trace.meta.end_ns is None
        assert not trace.is_growing
        rows = trace.graph_tasks
        assert sum(row.status is GraphTaskStatus.FINISHED for row in rows) == seen
        assert {row.status for row in rows} <= {GraphTaskStatus.FINISHED, GraphTaskStatus.CUT}
        for row in rows[: seen - 1]:
            assert [n.status for n in trace.nodes(row.id)] == [NodeStatus.DONE] * 50
            state = trace.state_at(row.id, trace.event_count(row.id))
            assert state.executed(row.id) == 50
        assert len(trace.story(0, 1)) > 5  # without the indexes


TRAINS = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def slowly(gradient):
    time.sleep(0.04)
    if step == 50:
        print("in the middle of step 50", flush=True)
        time.sleep(60)
for step in range(100):
    output = torch.tanh(model(torch.ones(4, 8)))
    output.register_hook(slowly)
    output.sum().backward()
    print(step, time.monotonic_ns(), flush=True)
    optimizer.step()
"""


def test_kill_9_in_the_middle_of_a_training(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    (tmp_path / "train.py").write_text(TRAINS)
    child = subprocess.Popen(
        [sys.executable, "-m", "agviz", "run", "-o", path, "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    ended = {}
    for line in child.stdout:
        if line.startswith("in the middle"):
            break
        step, now = line.split()
        ended[int(step)] = int(now)
    killed = time.monotonic_ns()
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL
    whole = [step for step, now in ended.items() if now < killed - 1_000_000_000]
    assert 20 < len(whole) < 50
    with Trace.open(path) as trace:
        assert trace.meta.end_ns is None
        assert not trace.is_growing
        for number in whole:
            task = trace.graph_task(number)
            assert task.status is GraphTaskStatus.FINISHED
            assert {node.status for node in trace.nodes(number)} == {NodeStatus.DONE}
            told = trace.events(number, limit=10_000)
            assert type(told[-1]) is GraphTaskFinished
            assert trace.state_at(number, len(told)).executed(number) == task.nodes
            assert trace.health(number)


def test_a_growing_file_is_read_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    child = start("while True: simulator.backward(graph)", path)
    try:
        while finished_graph_tasks(path) < 2:
            assert child.poll() is None, child.communicate()[1]
        with Trace.open(path) as trace:
            before = len(trace.graph_tasks)
            assert trace.is_growing
            while len(trace.graph_tasks) < before + 5:
                assert child.poll() is None
            assert trace.nodes(before + 1)
            with trace.one_moment():
                rows, now = len(trace.graph_tasks), finished_graph_tasks(path)
                while finished_graph_tasks(path) < now + 5:
                    assert child.poll() is None
                assert len(trace.graph_tasks) == rows
            assert len(trace.graph_tasks) >= rows + 5
    finally:
        child.kill()
        child.communicate()


def test_the_interpreter_closes_the_recording_at_its_end(tmp_path: Path) -> None:
    child = start("simulator.backward(graph); raise SystemExit(3)", tmp_path / "t.agviz")
    ends(child, 3)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.end_ns is not None
        assert trace.graph_task(0).executed == 50


def test_a_full_disk_stops_the_recording_only(tmp_path: Path) -> None:
    child = start(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        tasks = 0
        while recorder.is_recording:
            simulator.backward(graph)
            tasks += 1
        simulator.backward(graph)
        assert not recorder.flush()
        recorder.close()
        print("the program went on")
        """,
        tmp_path / "t.agviz",
    )
    output, errors = child.communicate()
    assert (child.returncode, output) == (0, "the program went on\n"), errors
    assert re.fullmatch(r".*t\.agviz can't be written any longer \(.*\): recording.*\n", errors)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.end_ns is None
        finished = [row for row in trace.graph_tasks if row.end_ns]
        assert all(len(trace.nodes(row.id)) == 50 for row in finished)


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    child = start(
        """
        import os
        simulator.backward(graph)
        pid = os.fork()
        simulator.backward(graph)
        if not pid:
            assert not recorder.is_recording
            recorder.close()
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        simulator.backward(graph)
        """,
        tmp_path / "t.agviz",
    )
    ends(child)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [row.id for row in trace.graph_tasks] == [0, 1, 2]
        seqs = [event.seq for event in trace.events(limit=10**6)]
        assert seqs == sorted(set(seqs))
        assert len(seqs) == 3 * len(trace.events(trace.graph_tasks[0].id, limit=10**6)) + 2


def test_no_fork_while_the_file_is_written(tmp_path: Path) -> None:
    child = start(
        """
        import os, time
        from agviz.record.writer import Writer
        write, inside = Writer.write, []
        def slowly(*given):
            inside.append(1)
            time.sleep(0.3)
            write(*given)
            inside.clear()
        Writer.write = slowly
        simulator.backward(graph)
        while not inside:
            time.sleep(0.001)
        if not (pid := os.fork()):
            os._exit(len(inside))
        assert os.waitpid(pid, 0)[1] == 0
        simulator.backward(graph)
        """,
        tmp_path / "t.agviz",
    )
    ends(child)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [row.id for row in trace.graph_tasks] == [0, 1]


def test_two_processes_with_one_path(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    child = start("while True: simulator.backward(graph)", path)
    try:
        while not finished_graph_tasks(path):
            assert child.poll() is None, child.communicate()[1]
        with pytest.raises(TraceError, match="in use by another process"):
            Recorder(path)
        before = finished_graph_tasks(path)
        while finished_graph_tasks(path) <= before:
            assert child.poll() is None, "the first recording goes on"
    finally:
        child.kill()
        child.communicate()


def test_an_old_trace_is_replaced(tmp_path: Path) -> None:
    for size in (10, 20):
        registry = Registry()
        with Recorder(tmp_path / "t.agviz") as recorder:
            registry.add(recorder)
            simulator = Simulator(registry, Random(0))
            simulator.backward(random_graph(simulator.rng, size))
        with Trace.open(tmp_path / "t.agviz") as trace:
            assert [row.nodes for row in trace.graph_tasks] == [size]


def test_a_killed_recording_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    child = start("while True: simulator.backward(graph)", path)
    while not finished_graph_tasks(path):
        assert child.poll() is None, child.communicate()[1]
    child.kill()
    child.communicate()
    Recorder(path).close()
    with Trace.open(path) as trace:
        assert trace.graph_tasks == []


def test_a_file_that_is_no_trace_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")
    with pytest.raises(TraceError, match="exists and is not a trace"):
        Recorder(tmp_path / "train.py")
    assert (tmp_path / "train.py").read_text() == "import torch"
    database = sqlite3.connect(tmp_path / "other.db")
    database.execute("CREATE TABLE kept (x)")
    database.close()
    with pytest.raises(TraceError, match="exists and is not a trace"):
        Recorder(tmp_path / "other.db")


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a folder"):
        Recorder(tmp_path)
    with pytest.raises(TraceError, match="there is no folder"):
        Recorder(tmp_path / "absent" / "t.agviz")
    with pytest.raises(TraceError, match="can't be written"):
        Recorder("/proc/t.agviz")


def test_a_finished_file_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir()
    Recorder(folder / "t.agviz").close()
    (folder / "t.agviz").chmod(0o444)
    folder.chmod(0o555)
    try:
        with Trace.open(folder / "t.agviz") as trace:
            assert trace.graph_tasks == []
    finally:
        folder.chmod(0o755)


def test_closing_twice_and_recording_after(tmp_path: Path) -> None:
    registry = Registry()
    recorder = Recorder(tmp_path / "t.agviz")
    registry.add(recorder)
    recorder.close()
    recorder.close()
    simulator = Simulator(registry, Random(0))
    simulator.backward(random_graph(simulator.rng, 5))
    assert not recorder.flush()
    assert recorder in registry.instruments


def test_a_lagging_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agviz.record.recorder._MOST_WAITING", 0)
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0))
        for number in range(3):
            simulator.backward(random_graph(simulator.rng, 20))
            assert finished_graph_tasks(tmp_path / "t.agviz") >= number
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.events(limit=10**6) == simulator.emitted


@pytest.mark.slow
def test_kill_9_right_after_a_graph_was_walked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file says of a pass that its graph was walked only once it holds the graph."""
    path = tmp_path / "t.agviz"
    program = """
import os, signal, sys
import torch
import agviz
from agviz.record.recorder import Recorder

graph = Recorder._graph
def killed(self, task):
    if len(task.nodes) > 200:
        self.file.flush(10)
        os.kill(os.getpid(), signal.SIGKILL)
    return graph(self, task)
Recorder._graph = killed
with agviz.trace(path=sys.argv[1]):
    for nodes in (100, 300):
        x = torch.ones(2, requires_grad=True)
        for _ in range(nodes):
            x = x + 1
        x.sum().backward()
"""
    ended = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert main(["explain", str(path)]) == 1
    assert "was under way when the recording was cut off" in capsys.readouterr().out
    assert main(["export", "--format", "svg", "-o", str(tmp_path / "t.svg"), str(path)]) == 0
