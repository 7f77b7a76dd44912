"""Lines of source are in the trace: they are shown from anywhere, after whatever became of them."""

from __future__ import annotations

import contextlib
import linecache
import os
import sqlite3
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
from agviz.analysis.explanation import explain
from agviz.analysis.place import backward_pass
from agviz.analysis.why import why
from agviz.errors import TraceError
from agviz.record.files import Files
from agviz.traces.rows import Frame, visible
from agviz.traces.schema import SOURCE_FILE_LIMIT, SOURCE_LIMIT
from agviz.traces.stacks import Stacks
from agviz.words.units import ordinal
from tests import python_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPT = """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    out = model(torch.ones(3, 2))
    if step == 3:
        out = out * 0
    loss = out.sum().sqrt() if step == 3 else out.square().sum()
    frozen = model.weight.detach().sum()
    loss.backward()
    optimizer.step()
"""
AGVIZ = [sys.executable, "-m", "agviz"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose program is gone."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    python_process.run([*AGVIZ, "run", "-o", "t.agviz", "train.py"], check=True, cwd=folder)
    (folder / "train.py").unlink()
    return folder / "t.agviz"


def asked(words: list[str], folder: Path) -> str:
    told = python_process.run([*AGVIZ, *words], cwd=folder)
    assert told.returncode == 1, told.stderr
    return told.stdout


def test_the_line_is_shown_from_another_folder_and_without_the_file(
    recorded: Path, tmp_path: Path
) -> None:
    said = asked(["explain", str(recorded)], tmp_path)
    assert "train.py:11 in <module>" in said
    assert "loss = out.sum().sqrt() if step == 3 else out.square().sum()" in said


def test_the_line_is_what_ran_and_not_what_the_file_holds_now(
    recorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("something else\n" * 20, encoding="utf-8")
    said = asked(["explain", str(recorded)], tmp_path)
    assert "out.sum().sqrt()" in said
    assert "something else" not in said


def test_the_heading_names_the_pass_and_the_steps_before_it(recorded: Path, tmp_path: Path) -> None:
    said = " ".join(asked(["explain", str(recorded)], tmp_path).split())
    assert "in backward pass 3 (the 4th of 5, after 3 optimizer steps)" in said.partition("It ")[0]


def test_only_the_users_lines_are_stored(recorded: Path) -> None:
    with contextlib.closing(sqlite3.connect(recorded)) as database:
        rows = database.execute(
            "SELECT string.text, line FROM source_line JOIN string ON string.id = file"
        ).fetchall()
    assert {file for file, _ in rows} == {"train.py"}
    assert {line for _, line in rows} <= set(range(1, SCRIPT.count("\n") + 1))


def test_why_shows_the_line_from_another_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    script = SCRIPT.replace("out.square()", "out.detach().square()").replace("step == 3", "False")
    script = script.replace("loss.backward()", "(loss + model.bias.sum()).backward()")
    (folder / "train.py").write_text(script, encoding="utf-8")
    command = [*AGVIZ, "run", "--check-forward", "-o", "t.agviz", "train.py"]
    python_process.run(command, check=True, cwd=folder)
    said = asked(["why", str(folder / "t.agviz")], tmp_path)
    assert "else out.detach().square().sum()" in said


def recorded_here(program: Callable[[], Any], path: Path) -> agviz.Trace:
    with agviz.trace(path=path):
        program()
    return agviz.Trace.open(path)


def compiled(source: str, file: str) -> Callable[[], Any]:
    """A program of a file that may not be there, as a cell of a notebook."""
    space: dict[str, Any] = {"torch": torch}
    exec(compile(source, file, "exec"), space)  # noqa: S102 - ours
    made: Callable[[], Any] = space["program"]
    return made


PROGRAM = (
    "def program():\n    x = torch.zeros(2, requires_grad=True)\n    x.sqrt().sum().backward()"
)


def line_of(trace: agviz.Trace) -> str:
    found = explain(trace)
    assert found is not None
    return found.source


def test_a_cell_of_a_notebook_has_its_lines(tmp_path: Path) -> None:
    name = "<ipython-input-7-cell>"
    lines = PROGRAM.splitlines(keepends=True)
    linecache.cache[name] = (len(PROGRAM), None, lines, name)
    with recorded_here(compiled(PROGRAM, name), tmp_path / "t.agviz") as trace:
        assert line_of(trace) == "x.sqrt().sum().backward()"


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """To open a pipe would wait for ever, and to read the terminal would take what is typed."""
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    for name in (str(pipe), "/dev/stdin", "<string>", "", "gone.py"):
        with recorded_here(compiled(PROGRAM, name), tmp_path / "t.agviz") as trace:
            assert line_of(trace) == ""


def test_long_lines_are_cut_and_nothing_speaks_to_the_terminal(tmp_path: Path) -> None:
    name = "<cell>"
    source = f"{PROGRAM}  # \x1b[31m\u202e{'y' * 1000}"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with recorded_here(compiled(source, name), tmp_path / "t.agviz") as trace:
        assert line_of(trace).startswith("x.sqrt().sum().backward()  # ")
        assert len(line_of(trace)) == SOURCE_LIMIT
        assert line_of(trace).isprintable()


def test_a_line_of_a_stranger_is_cut_and_cleaned_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    recorded_here(compiled(PROGRAM, __file__), path).close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO string VALUES (999999, ?)", ("\x1b]0;boo\x07" * 100,))
        database.execute("UPDATE source_line SET text = 999999")
    with agviz.Trace.open(path) as trace:
        assert line_of(trace).isprintable()
        assert len(line_of(trace)) == SOURCE_LIMIT
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE source_line SET text = 'x'")
    with agviz.Trace.open(path) as trace, pytest.raises(TraceError):
        explain(trace)


def test_frames_of_one_line_are_equal_before_and_after(tmp_path: Path) -> None:
    """A frame knows its text once it was read; all of that line in a trace are the same."""
    with recorded_here(compiled(PROGRAM, __file__), tmp_path / "t.agviz") as trace:
        task = trace.graph_tasks[0].id
        frames = [visible(node.stack) for node in trace.nodes(task) if node.stack]
        assert len(set(frames)) == 1
        assert isinstance(frames[0], Frame)


def test_files_know_only_the_frames_they_made() -> None:
    files = Files()
    made = files.frame(__file__, 1, "f")
    assert files.source(made).startswith('"""Lines of source')
    assert Files().source(made) == ""
    assert files.source(made._replace(line=10**9)) == ""


def test_why_says_nothing_of_passes_it_was_not_asked_about(recorded: Path) -> None:
    with agviz.Trace.open(recorded) as trace:
        assert why(trace, graph_task=0).is_fine


@pytest.mark.parametrize(
    ("number", "word"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"),
     (21, "21st"), (102, "102nd"), (111, "111th"), (1003, "1,003rd")],
)  # fmt: skip
def test_ordinals(number: int, word: str) -> None:
    assert ordinal(number) == word


def test_a_pass_is_named_by_its_outermost_one(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    def program() -> None:
        for _ in range(2):
            x = torch.ones(2, requires_grad=True)
            checkpoint(torch.sin, x, use_reentrant=True).sum().backward()

    with recorded_here(program, tmp_path / "t.agviz") as trace:
        outer, inner, last, _ = (task.id for task in trace.graph_tasks)
        assert backward_pass(trace, outer) == f"backward pass {outer} (the 1st of 2)"
        assert backward_pass(trace, inner) == f"backward pass {outer} (the 1st of 2)"
        assert backward_pass(trace, last) == f"backward pass {last} (the 2nd of 2)"
    with agviz.trace(path=tmp_path / "one.agviz"):
        torch.ones(2, requires_grad=True).sum().backward()
    with agviz.Trace.open(tmp_path / "one.agviz") as trace:
        assert backward_pass(trace, trace.graph_tasks[0].id).endswith(" (the only one)")
    with agviz.trace(path=tmp_path / "some.agviz", steps=range(1, 3)):
        for _ in range(4):
            torch.ones(2, requires_grad=True).sum().backward()
    with agviz.Trace.open(tmp_path / "some.agviz") as trace:
        last = trace.graph_tasks[-1].id
        assert backward_pass(trace, last).endswith(" (the 2nd of 2 recorded)")


def test_whole_files_are_in_the_trace_as_they_were(recorded: Path) -> None:
    with agviz.Trace.open(recorded) as trace:
        assert trace.source("train.py") == SCRIPT.splitlines()
        assert trace.source("other.py") == []


def test_a_stored_file_of_a_stranger_is_harmless(tmp_path: Path, recorded: Path) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(recorded.read_bytes())
    bomb = zlib.compress(b"x" * (SOURCE_FILE_LIMIT + 1))
    for blob, is_read in (
        (zlib.compress(b"a\x1b[31m\tb\n"), True),
        (b"no zlib", False),
        (bomb, False),
        (zlib.compress(b"x = 1")[:-2], False),
    ):
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE source_file SET bytes = ?", (blob,))
        with agviz.Trace.open(path) as trace:
            if is_read:
                (line,) = trace.source("train.py")
                assert line.isprintable()
            else:
                with pytest.raises(TraceError):
                    trace.source("train.py")


def test_large_files_and_what_has_no_room_are_left_out() -> None:
    class Large:
        def source(self, _frame: Frame) -> str:
            return "x"

        def whole_source(self, frame: Frame) -> str:
            return "x" * (SOURCE_FILE_LIMIT + (frame.file == "large.py"))

    strings: dict[str, int] = {"": 0}
    stacks = Stacks(lambda text: strings.setdefault(text, len(strings)), Large())
    stacks.number((Frame("large.py", 1, "f", False), Frame("fits.py", 1, "f", False)))
    stacks.number((Frame("fits.py", 2, "f", False), Frame("hidden.py", 2, "f", True)))
    rows = stacks.taken()["source_file"]
    assert rows[::2] == [strings["fits.py"]]
