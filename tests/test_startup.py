"""``AGVIZ=1``: any Python process that imports torch is recorded, and none that does not."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from agviz.record.options import asked_to_check_forward
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path


def run(
    python: str, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    left_out = {"AGVIZ", "AGVIZ_OUTPUT", "AGVIZ_ENGINE", "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in left_out} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


MANY_PROCESSES = """
import importlib.util, multiprocessing, os, subprocess, sys
assert importlib.util.find_spec("torch"), "which does not import it"
assert "torch" not in sys.modules
import torch
def work(passes):
    model = torch.nn.Linear(4, 1)
    for _ in range(passes):
        model(torch.ones(3, 4)).sum().backward()
if __name__ == "__main__":
    work(2)
    for method, passes in ("fork", 3), ("spawn", 4):
        process = multiprocessing.get_context(method).Process(target=work, args=(passes,))
        process.start()
        process.join()
        assert process.exitcode == 0
    if not (pid := os.fork()):
        work(5)
        sys.exit()
    os.waitpid(pid, 0)
    if not (pid := os.fork()):
        sys.exit()
    os.waitpid(pid, 0)
    backward = "import torch; torch.ones(1, requires_grad=True).backward()"
    subprocess.run([sys.executable, "-c", backward])
    subprocess.run([sys.executable, "-c", "import torch"])
    work(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("output", [None, pytest.param("all.agviz", marks=pytest.mark.slow)])
def test_each_process_that_calls_backward_has_a_file(
    enabled_python: str, output: str | None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(MANY_PROCESSES)
    named = {} if output is None else {"AGVIZ_OUTPUT": output}
    ended = run(enabled_python, "train.py", cwd=tmp_path, AGVIZ="1", **named)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert all(line.startswith("agviz: recorded ") for line in ended.stderr.splitlines())
    found = {}
    for path in tmp_path.glob("*.agviz*"):
        with Trace.open(path) as trace:
            assert trace.meta.end_ns is not None
            assert output == path.name or str(trace.meta.pid) in path.name
            found[len(trace.graph_tasks)] = path.name
            assert all(trace.nodes(task.id)[0].name for task in trace.graph_tasks)
    # The parent's three, those of the children made by fork, spawn and os.fork, the subprocess's.
    assert sorted(found) == [1, 3, 4, 5]
    assert len(list(tmp_path.glob("*.agviz*"))) == 5
    assert len(ended.stderr.splitlines()) == 5
    if output is not None:
        assert (tmp_path / output).exists()


FALSE = ("", " ", "0", "off", "no", "false", "n", "f", "OFF", "No", " False ", "oFf\t")
TRUE = ("1", "on", "yes", "true", "TRUE", " y ", "00", "offf", "none")


@pytest.mark.parametrize("value", [None, *FALSE])
def test_where_it_is_not_set_nothing_is_imported(
    enabled_python: str, value: str | None, tmp_path: Path
) -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('agviz')])"
    named = {} if value is None else {"AGVIZ": value}
    assert run(enabled_python, "-c", program, cwd=tmp_path, **named).stdout == "[]\n"


@pytest.mark.parametrize("value", TRUE)
def test_every_other_word_records(enabled_python: str, value: str, tmp_path: Path) -> None:
    program = "import sys; print('agviz.startup' in sys.modules)"
    assert run(enabled_python, "-c", program, cwd=tmp_path, AGVIZ=value).stdout == "True\n"


@pytest.mark.parametrize("value", [*FALSE, *TRUE])
def test_the_forward_is_checked_by_the_same_words(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGVIZ_CHECK_FORWARD", value)
    assert asked_to_check_forward() is (value in TRUE)


def test_a_program_without_torch_notices_little(enabled_python: str, tmp_path: Path) -> None:
    program = "import sys; print({'torch', 'sqlite3', 'agviz.recording'} & {*sys.modules})"
    ended = run(enabled_python, "-c", program, cwd=tmp_path, AGVIZ="1")
    assert (ended.stdout, ended.stderr) == ("set()\n", "")
    assert list(tmp_path.iterdir()) == []


BACKWARD = "import torch; torch.ones(1, requires_grad=True).backward(); print('went on')"


@pytest.mark.slow
def test_where_it_can_not_be_written_another_place_is_taken(
    enabled_python: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "letter").write_text("Dear reader,")
    places = {"no/t.agviz": "there is no folder no", "folder": "folder is a folder"}
    for place, why in places.items():
        ended = run(
            enabled_python,
            "-c",
            BACKWARD,
            cwd=tmp_path,
            AGVIZ="1",
            AGVIZ_OUTPUT=place,
            TMPDIR=str(tmp_path / "temporary"),
        )
        assert (ended.returncode, ended.stdout) == (0, "went on\n")
        elsewhere, outcome = ended.stderr.splitlines()
        assert elsewhere.startswith(f"agviz: {why}; this program is recorded into ")
        path = tmp_path / elsewhere.removesuffix(" instead").rpartition(" ")[2]
        assert outcome.startswith("agviz: recorded 1 backward pass in ")
        with Trace.open(path) as trace:
            assert len(trace.graph_tasks) == 1
    ended = run(enabled_python, "-c", BACKWARD, cwd=tmp_path, AGVIZ="1", AGVIZ_OUTPUT="letter")
    assert "agviz: recorded 1 backward pass in letter." in ended.stderr
    assert (tmp_path / "letter").read_text() == "Dear reader,"


@pytest.mark.slow
def test_where_nothing_can_be_written_the_program_goes_on(
    enabled_python: str, tmp_path: Path
) -> None:
    nowhere = "import tempfile; tempfile._candidate_tempdir_list = lambda: []; "
    ended = run(
        enabled_python, "-c", nowhere + BACKWARD, cwd=tmp_path, AGVIZ="1", AGVIZ_OUTPUT="no/t.agviz"
    )
    assert (ended.returncode, ended.stdout) == (0, "went on\n")
    (line,) = ended.stderr.splitlines()
    assert line == "agviz: there is no folder no; the program goes on without being recorded"


@pytest.mark.slow
def test_an_earlier_file_is_never_replaced(enabled_python: str, tmp_path: Path) -> None:
    for _ in range(2):
        run(enabled_python, "-c", BACKWARD, cwd=tmp_path, AGVIZ="1", AGVIZ_OUTPUT="t.agviz")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2
    assert "t.agviz" in names


@pytest.mark.slow
def test_agviz_itself_is_not_recorded_twice(enabled_python: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BACKWARD)
    call = ["-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    assert run(enabled_python, *call, cwd=tmp_path, AGVIZ="1").stdout == "went on\n"
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "t.agviz"}


NO_FIT = """
import sys
from agviz.after_import import after_import
def change():
    del sys.modules["torch.autograd.graph"].get_gradient_edge
after_import("torch._meta_registrations", change)
"""


@pytest.mark.slow
def test_where_the_engine_does_not_fit_the_program_goes_on(
    enabled_python: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_FIT)
    named = {"AGVIZ": "1", "AGVIZ_ENGINE": "exact", "PYTHONPATH": str(tmp_path)}
    ended = run(enabled_python, "-c", BACKWARD, cwd=tmp_path, **named)
    assert (ended.returncode, ended.stdout) == (0, "went on\n")
    (line,) = ended.stderr.splitlines()
    assert "does not fit agviz's engine" in line
    assert line.endswith("the program goes on without being recorded")
    assert not list(tmp_path.glob("*.agviz"))
