"""Every program of the gallery that hangs is told what holds it, after it was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agviz.analysis.hang import Hang, hang
from agviz.cli.main import main
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from tests.gallery_frame import Program, programs
from tests.hanging import TIMEOUT
from tests.json_documents import hold
from tests.slow_cases import slow_but
from tests.spoken import check_length

PROGRAMS = programs("hang")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of all programs, which were killed while they hung."""
    made = tmp_path_factory.mktemp("hang")
    call = [sys.executable, "-m", "tests.hanging", str(made), *(p.name for p in PROGRAMS)]
    root = Path(__file__).parents[1]
    ended = subprocess.run(call, cwd=root, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return made


def answer(program: Program, folder: Path) -> Hang:
    """What is said of the trace that it left."""
    with Trace.open(folder / f"{program.name}.agviz") as trace:
        assert trace.meta.end_ns is None
        assert any(task.status is GraphTaskStatus.CUT for task in trace.graph_tasks)
        found = hang(trace)
    assert found is not None
    return found


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 5
    assert all(program.cause is not None and program.all("thread") for program in PROGRAMS)


def name_of(program: Program) -> str:
    return program.name


@pytest.mark.parametrize(
    "program",
    slow_but({program.name for program in PROGRAMS} - {"ddp_rank_that_skips"}, PROGRAMS, name_of),
)
def test_what_holds_which_thread_is_named(program: Program, folder: Path) -> None:
    found = answer(program, folder)
    held = [stand for stand in found.threads if stand.is_held]
    assert [stand.name for stand in held] == program.all("thread")
    nodes = [stand.running[-1].short_name for stand in held if stand.running]
    assert nodes == program.all("node")
    assert [stand.call.name for stand in held if stand.call] == program.all("hook")
    for kind in program.all("kind"):
        assert [stand.call.kind for stand in held if stand.call] == [kind]
    for parameter in program.all("parameter"):  # of several models, it has the name of one before
        names = [stand.running[-1].parameter or "" for stand in held]
        assert all(name.endswith(parameter) for name in names)
    assert found.frame is not None
    assert (Path(found.frame.file).name, found.frame.line) == (program.path.name, program.cause)
    begun = min(task.begin_ns for task in found.tasks)
    assert found.now_ns - begun >= TIMEOUT * 1e9
    assert found.still_ns > 0
    assert all(stand.for_ns is None or stand.for_ns > 0 for stand in held)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_answer_says_it_in_words(
    program: Program, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paragraph = answer(program, folder).paragraph
    for key in ("node", "thread", "hook", "waiting", "parameter"):
        assert all(name in paragraph for name in program.all(key)), key
    assert f"{program.path.name}:{program.cause} in " in paragraph
    path = folder / f"{program.name}.agviz"
    assert main(["explain", "--json", str(path)]) == 1
    told = hold(capsys.readouterr().out, "explain")["failure"]
    assert [thread["name"] for thread in told["threads"] if thread["held"]] == program.all("thread")
    check_length(path, capsys, "explain")
    assert main(["explain", "--verbose", str(path)]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "stood still when the recording was cut off" in words
    assert "had run for at least" in words  # how long it stood after the last sample is in no file
    said = (folder / f"{program.name}.err").read_text()
    assert f"agviz: a backward pass has been under way for {TIMEOUT} s\n" in said
    assert all(
        f"agviz: thread {stand['thread']} ({stand['name']}) " in said
        for stand in told["threads"]
        if stand["held"]
    )


def by_name(name: str) -> Program:
    (program,) = (program for program in PROGRAMS if program.name == name)
    return program


def test_who_waits_for_a_reentrant_backward_is_told(folder: Path) -> None:
    found = answer(by_name("reentrant_waits_for_device"), folder)
    (waiting,) = (stand for stand in found.threads if stand.waits)
    assert (waiting.name, waiting.waits_for) == ("MainThread", 1 + found.graph_task)
    assert waiting.running[-1].short_name == "MulBackward0"
    assert waiting.call is not None
    assert waiting.call.name == "inner_step"
    assert [task.reentrant_depth for task in found.tasks] == [0, 1]
    first = found.waits[0]
    assert [node.short_name for node in first.missing] in (["ExpBackward0"], ["MulBackward0"])


def test_hooks_made_in_cpp_are_told(folder: Path) -> None:
    found = answer(by_name("ddp_rank_that_skips"), folder)
    assert "with hooks made there, such as DDP's: look at other ranks" in found.paragraph
    found = answer(by_name("sleep_in_post_hook"), folder)
    assert "C++" not in found.paragraph


def test_threads_that_take_no_part_are_told(folder: Path) -> None:
    found = answer(by_name("lock_held_by_main_thread"), folder)
    (other,) = (stand for stand in found.threads if stand.thread is None)
    assert other.name == "MainThread"
    assert found.paragraph.count("MainThread is at ") == 1, "and for which thread it waits"
    paragraphs = [answer(program, folder).paragraph for program in PROGRAMS]
    assert any("Of the other threads, MainThread is at " in each for each in paragraphs)


def test_nodes_that_wait_and_who_has_to_deliver(folder: Path) -> None:
    found = answer(by_name("full_queue"), folder)
    assert {wait.node.graph_task for wait in found.waits} == {found.graph_task}
    (next_,) = (wait for wait in found.waits if wait.missing[0].status == "running")
    assert next_.node.short_name == "AddmmBackward0"
    assert next_.missing[0].short_name == "TanhBackward0"
    found = answer(by_name("rank_that_skips"), folder)
    assert (found.waits[0].node.short_name, found.waits[0].missing) == ("MmBackward0", ())
