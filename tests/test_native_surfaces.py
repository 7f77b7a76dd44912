"""What users meet of the native engine, observed: how it is chosen, and what is marked inferred."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Static

import agviz
from agviz.analysis.contradiction import contradiction
from agviz.cli.main import main
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz.tui.app import AgvizApp
from agviz.tui.model import Key
from agviz.tui.panels.events import Events
from agviz.tui.panels.queues import Queues
from agviz.tui.title import Status, Title
from agviz_engine import events
from tests import python_process
from tests.test_tui_keys import view_of
from tests.tui_support import begin, lines, press, settle

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
from agviz_engine.ready_queue import InferredQueue

taken = 0
pop = InferredQueue.pop_if_first


def pop_if_first(*given):
    global taken
    taken += 1
    return -1 if taken == {at} else pop(*given)


InferredQueue.pop_if_first = pop_if_first
"""
"""Has the inference fail at a node of the first pass, as where torch does something unexpected."""
AT = 4


def cli(*arguments: str | Path, env: dict[str, str] | None = None) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AGVIZ")}
    command = [sys.executable, "-m", "agviz", *map(str, arguments)]
    return python_process.run(command, env={**clean, **(env or {})})


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


@pytest.mark.slow
def test_a_program_that_did_not_ask_runs_on_where_there_is_no_such_engine(
    enabled_python: str, tmp_path: Path
) -> None:
    script = tmp_path / "prog.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [enabled_python, script],
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


# -- what is inferred is marked --------------------------------------------------------------------

INFERRED = {
    *("QueuePush", "QueuePop", "DependencyDecremented", "GradientAccumulated"),
    *("SavedTensorsReleased", "GradientCaptured", "NodeSkipped", "HookCalled"),
}


def exported(path: Path, form: str, folder: Path, *options: str) -> str:
    out = folder / f"out.{form}"
    assert main(["export", str(path), "--format", form, "-o", str(out), *options]) == 0
    return out.read_text()


def test_the_json_says_which_events_are_inferred(
    native: Path, withdrawn: Path, tmp_path: Path
) -> None:
    for path in (native, withdrawn):
        document = json.loads(exported(path, "json", tmp_path))
        assert document["meta"]["engine"] == "native"
        kinds = {event["kind"] for event in document["events"] if event.get("inferred")}
        assert kinds
        assert kinds <= INFERRED
        assert all(
            event.get("inferred", False) is (event["kind"] in INFERRED)
            for event in document["events"]
        )
    assert [task["withdrawn_seq"] is None for task in document["graph_tasks"]] == [
        *(False, True, True)
    ]
    exact = json.loads(exported(record(tmp_path, PROGRAM), "json", tmp_path))
    assert exact["meta"]["engine"] == "exact"
    assert not any("inferred" in event for event in exact["events"])


def test_the_timeline_marks_its_counters_and_has_none_after_a_withdrawal(
    native: Path, withdrawn: Path, tmp_path: Path
) -> None:
    def read(path: Path) -> Any:
        return json.loads(exported(path, "chrome-trace", tmp_path, "--graph-task", "0"))

    seen, lost = read(native), read(withdrawn)
    for document in (seen, lost):
        assert document["otherData"]["engine"] == "native"
        assert "inferred, not seen" in document["otherData"]["inferred"]
    counters = {record["name"] for record in seen["traceEvents"] if record["ph"] == "C"}
    assert counters == {"~live gradient bytes", "~ReadyQueue CPU, MainThread"}
    events_ = lost["traceEvents"]
    assert {e["name"] for e in events_ if e["ph"] == "C"} == {"~live gradient bytes"}
    assert [e["args"]["node"] for e in events_ if e["name"] == "inference withdrawn"]
    (whole,) = (e for e in events_ if e.get("cat") == "graph_task")
    assert whole["args"]["queues"] == "unknown: inference was withdrawn"


def test_a_drawing_of_a_moment_marks_queues(native: Path, withdrawn: Path, tmp_path: Path) -> None:
    def drawn(path: Path) -> tuple[str, str]:
        with Trace.open(path) as trace:
            last = trace.events(0, 0, 1_000)[-2].seq
            first = next(
                event.seq
                for event in trace.events(0, 0, 1_000)
                if isinstance(event, events.QueuePush)
            )
        return (
            exported(path, "dot", tmp_path, "--graph-task", "0", "--at", str(first)),
            exported(path, "dot", tmp_path, "--graph-task", "0", "--at", str(last)),
        )

    early, _ = drawn(native)
    assert "~ReadyQueue of caller: 1 task" in early
    assert "~ inferred, not seen" in early
    early, late = drawn(withdrawn)
    assert "~ReadyQueue of caller: 1 task" in early
    assert "ReadyQueue of caller: unknown: inference was withdrawn" in late
    assert "inferred" not in exported(native, "dot", tmp_path, "--graph-task", "0")


def test_summary_and_explain_say_what_is_inferred(
    native: Path, withdrawn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: str | Path) -> str:
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    said = told("summary", native)
    assert "~ inferred, not seen: torch's own engine ran" in said
    assert "hooks are not seen" in said
    assert "~ReadyQueue CPU, MainThread" in said
    assert "withdrawn" not in said
    said = told("summary", withdrawn, "--graph-task", "0")
    assert "! inference was withdrawn in backward pass 0" in said
    assert "ReadyQueue" not in said
    facts = json.loads(told("summary", withdrawn, "--json"))
    assert facts["engine"] == "native"
    assert facts["withdrawn"].startswith("inference was withdrawn in backward pass 0:")
    assert [task["withdrawn"] for task in facts["graph_tasks"]["shown"]] == [True, False, False]
    assert "! inference was withdrawn in backward pass 0" in told("explain", withdrawn)
    assert "withdrawn" not in told("explain", native)
    assert json.loads(told("explain", native, "--json"))["engine"] == "native"


def test_every_other_verb_reads_a_pass_with_a_withdrawal(withdrawn: Path, tmp_path: Path) -> None:
    calls: list[list[str | Path]] = [
        ["why", withdrawn],
        ["diff", withdrawn, withdrawn],
        ["whatif", withdrawn, "--order", "fifo"],
        ["export", withdrawn, "--format", "html", "-o", tmp_path / "out.html"],
    ]
    for arguments in calls:
        assert main([*map(str, arguments)]) == 0


def test_rows_for_tables_say_it(native: Path) -> None:
    rows = list(agviz.load(native).events)
    assert {row.event for row in rows if row.inferred} <= INFERRED
    assert all(row.inferred is (row.event in INFERRED) for row in rows)


# -- the terminal UI -------------------------------------------------------------------------------


async def test_the_terminal_marks_what_is_inferred(native: Path) -> None:
    app = AgvizApp([native])
    async with app.run_test(size=(140, 40)) as pilot:
        session = await begin(pilot)
        await press(pilot, "5", "2")
        session.reader.load(Key(0, 0))
        session = await settle(pilot)
        assert "~ native engine, observed" in session.query_one(Title).render().plain
        listed = lines(session.query_one(Events))
        assert any(" ~push " in line for line in listed)
        assert any(" ~accumulate #1 " in line for line in listed)
        assert any(" started " in line and "~" not in line for line in listed)
        for _ in range(5):
            session = await press(pilot, "s")
        shown = lines(session.query_one(Queues))
        assert any("~depth" in line for line in shown), shown
        assert "~" in session.query_one(Status).render().plain
        session = await press(pilot, "question_mark")
        said = "\n".join(str(part.render()) for part in app.screen.query(Static))
        assert "~ inferred, not seen" in said
        assert "hooks are not seen" in said


@pytest.mark.slow
async def test_the_terminal_shows_no_number_after_a_withdrawal(withdrawn: Path) -> None:
    app = AgvizApp([withdrawn])
    async with app.run_test(size=(140, 40)) as pilot:
        session = await begin(pilot)
        await press(pilot, "5", "2")
        session.reader.load(Key(0, 0))
        session = await settle(pilot)
        assert "inference withdrawn" in session.query_one(Title).render().plain
        has_been_known = has_been_unknown = False
        while True:
            view = view_of(session)
            shown = "\n".join(lines(session.query_one(Queues)))
            if view.recording.task.knows_queues(view.moment.state.seq):
                has_been_known = has_been_known or "~depth" in shown
            elif view.moment.position < view.recording.event_count:
                has_been_unknown = True
                assert "depth unknown: inference was withdrawn" in shown
                assert "~depth" not in shown
                assert "unknown" in str(session.query_one(Queues).border_subtitle)
            if view.moment.position == view.recording.event_count:
                break
            session = await press(pilot, "s")
        assert has_been_known
        assert has_been_unknown


# -- pytest ----------------------------------------------------------------------------------------

TEST = """\
import torch


def test_it():
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
"""


def pytest_run(folder: Path, *options: str, **env: str) -> Any:
    (folder / "test_it.py").write_text(TEST)
    clean = {name: value for name, value in os.environ.items() if "AGVIZ" not in name}
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "--agviz=on", *options]
    return python_process.run([sys.executable, *command], cwd=folder, env={**clean, **env})


ENVIRONMENTS = {"PYTEST_AGVIZ_ENGINE": "native", "AGVIZ_ENGINE": "exact"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "env", "ini", "engine"),
    [
        (["--agviz-engine", "native"], {"PYTEST_AGVIZ_ENGINE": "exact"}, "", "native"),
        pytest.param([], ENVIRONMENTS, "exact", "native", marks=pytest.mark.slow),
        pytest.param([], {"AGVIZ_ENGINE": "native"}, "exact", "native", marks=pytest.mark.slow),
        pytest.param([], {}, "native", "native", marks=pytest.mark.slow),
        ([], {}, "", "exact"),
    ],
)
def test_the_plugin_takes_the_engine(
    options: list[str], env: dict[str, str], ini: str, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nagviz_engine = {ini}\n" if ini else "")
    done = pytest_run(tmp_path, *options, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("agviz-results/*/trace.agviz")
    assert engine_of(path) == engine


def test_the_plugin_refuses_what_is_no_engine(tmp_path: Path) -> None:
    done = pytest_run(tmp_path, AGVIZ_ENGINE="fast")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "agviz-engine='fast' is none of auto, exact, native" in done.stderr
