"""What users meet of the native engine, observed: how it is chosen, and what is marked inferred."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agviz.analysis.contradiction import contradiction
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz_engine import events

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
x = torch.randn(3, 4)
net(x).sum().backward()
(net(x) + net(x)).sum().backward()
y = torch.randn(3, requires_grad=True)
torch.autograd.grad((y * y).sum(), y)
print("done")
"""
REFUSE = """\
from agviz_engine.ready_queue import ReadyQueue

taken = 0
pop = ReadyQueue.pop_if_first


def pop_if_first(queue, graph_task, ref):
    global taken
    taken += 1
    return None if taken == {at} else pop(queue, graph_task, ref)


ReadyQueue.pop_if_first = pop_if_first
"""
"""Has the inference fail at a node of the first pass, as where torch does something unexpected."""
AT = 4


def cli(*arguments: str | Path, env: dict[str, str] | None = None) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AGVIZ")}
    return subprocess.run(
        [sys.executable, "-m", "agviz", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **(env or {})},
    )


def record(folder: Path, program: str, *options: str, **env: str) -> Path:
    script, path = folder / "prog.py", folder / "prog.agviz"
    script.write_text(program)
    done = cli("run", "-o", path, *options, script, env=env)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return path


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is recorded from the native engine."""
    return record(tmp_path_factory.mktemp("native"), PROGRAM, "--engine", "native")


@pytest.fixture(scope="module")
def withdrawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, where the inference about the first pass does not come true."""
    program = REFUSE.format(at=AT) + PROGRAM
    return record(tmp_path_factory.mktemp("withdrawn"), program, "--engine", "native")


# -- the choice -----------------------------------------------------------------------------------


def engine_of(path: Path) -> str:
    with Trace.open(path) as trace:
        return trace.meta.engine


def test_run_takes_the_engine_from_the_option_then_from_the_environment(tmp_path: Path) -> None:
    assert engine_of(record(tmp_path, PROGRAM, AGVIZ_ENGINE="native")) == "native"
    assert engine_of(record(tmp_path, PROGRAM, "--engine", "exact", AGVIZ_ENGINE="native")) == (
        "exact"
    )
    assert engine_of(record(tmp_path, PROGRAM)) == "exact"


def test_no_such_engine_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    script = tmp_path / "prog.py"
    script.write_text(PROGRAM)
    verbs: list[list[str | Path]] = [["run", script], ["demo", "--output-dir", tmp_path]]
    for verb in verbs:
        by_option = cli(verb[0], "--engine", "fast", *verb[1:])
        assert by_option.returncode == 2
        assert "'auto', 'exact', 'native'" in by_option.stderr
        by_variable = cli(*verb, env={"AGVIZ_ENGINE": "fast"})
        assert by_variable.returncode == 2
        said = "agviz: AGVIZ_ENGINE='fast' is none of auto, exact, native\n"
        assert (by_variable.stdout, by_variable.stderr) == ("", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prog.py"]


def test_a_program_that_did_not_ask_runs_on_where_there_is_no_such_engine(tmp_path: Path) -> None:
    script = tmp_path / "prog.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "AGVIZ": "1", "AGVIZ_ENGINE": "fast"},
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == (
        "agviz: AGVIZ_ENGINE='fast' is none of auto, exact, native; the program goes on without"
        " being recorded\n"
    )


# -- a pass whose inference was withdrawn ----------------------------------------------------------


def test_states_after_a_withdrawal_are_those_that_can_be_known(withdrawn: Path) -> None:
    with Trace.open(withdrawn) as trace:
        assert [task.withdrawn_seq is None for task in trace.graph_tasks] == [False, True, True]
        task = trace.graph_task(0)
        story = trace.events(0, 0, 1_000)
        place = next(
            place
            for place, event in enumerate(story)
            if isinstance(event, events.InferenceWithdrawn)
        )
        assert task.withdrawn_seq == story[place].seq
        inferred = {events.QueuePush, events.QueuePop, events.DependencyDecremented}
        assert inferred <= set(map(type, story[:place]))
        assert not inferred & set(map(type, story[place:]))
        replay = trace.replay()
        for position, event in enumerate(story, 1):
            replay.apply(event)
            state = trace.state_at(0, position)
            assert state.statuses(0) == replay.statuses(0)
            assert state.queues() == replay.queues()
            assert state.buffers(0) == replay.buffers(0)
            assert state.running() == replay.running()
            is_known = position <= place or position == len(story)
            assert [queue.is_known for queue in state.queues()] == [is_known]
            not_started = {NodeStatus.WAITING, NodeStatus.READY}
            assert is_known or not not_started & set(state.statuses(0))
            assert is_known or not state.queues()[0].tasks
        assert set(state.statuses(0)) == {NodeStatus.DONE}
        assert contradiction(trace, 0) is None


def test_a_growing_file_says_the_same_about_a_withdrawal(withdrawn: Path, tmp_path: Path) -> None:
    import sqlite3

    cut = tmp_path / "cut.agviz"
    cut.write_bytes(withdrawn.read_bytes())
    with sqlite3.connect(cut) as database:  # as a process leaves it that was killed
        for table in ("timeline", "anchor", "node_block"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - our words
        database.execute("UPDATE meta SET value = 'null' WHERE key = 'end_ns'")
    database.close()
    with Trace.open(withdrawn) as closed, Trace.open(cut) as open_:
        assert open_.meta.end_ns is None
        for position in range(closed.event_count(0) + 1):
            one, other = closed.state_at(0, position), open_.state_at(0, position)
            assert one.queues() == other.queues()
            assert one.graph_tasks == other.graph_tasks
            if one.graph_tasks:
                assert one.statuses(0) == other.statuses(0)
