"""The program runs whatever happens to its recording, and the recording finds a place."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import agviz
from agviz import recording
from agviz.errors import TraceError
from agviz.record import new_file
from agviz.traces.reader import Trace
from tests import python_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parent.parent
AFTER_SETUP = """
import os, sys
exec(os.environ.pop("SETUP"))
from agviz.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
LEFT_OUT = {"AGVIZ", "AGVIZ_OUTPUT", "XDG_RUNTIME_DIR"}
PROGRAM = """
import sys, torch
torch.ones(2, requires_grad=True).sum().backward()
print("ran to its end")
sys.exit(3)
"""


def run(
    *options: str, cwd: Path, setup: str = "", before: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """``agviz run`` in a process of its own, after what ``setup`` says was done in it."""
    inherited = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    ours = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'engine'}", "SETUP": setup}
    return python_process.run(
        [*before, sys.executable, "-c", AFTER_SETUP, "run", *options, "program.py"],
        cwd=cwd,
        env=inherited | ours | environment,
    )


def ran(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """That the program did what it does without agviz; what agviz said."""
    assert (ended.returncode, ended.stdout) == (3, "ran to its end\n"), ended.stderr
    assert all(line.startswith("agviz: ") for line in ended.stderr.splitlines()), ended.stderr
    return ended.stderr.splitlines()


def recorded_into(said: list[str], why: str) -> Path:
    """The place that was taken instead, of which there is one sentence, and which is complete."""
    (sentence,) = [line for line in said if "instead" in line]
    found = re.fullmatch(r"agviz: (.*); this program is recorded into (.*) instead", sentence)
    assert found, sentence
    assert why in found[1]
    assert f"recorded 1 backward pass in {found[2]}" in said[-1]
    return Path(found[2])


def is_complete(path: Path) -> bool:
    with Trace.open(path) as trace:
        return trace.meta.end_ns is not None and len(trace.graph_tasks) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the program is, and may write."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


AT_ONCE = """
import os, sys
from pathlib import Path
from random import Random
from agviz.record.options import Options
from agviz.recording import Recording
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
folder, start, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(rounds):
    recording = Recording(folder / f"{number}.agviz", Options(values="none", provenance=False))
    os.read(start, 1)
    recorder = recording.open_somewhere()
    assert recorder is not None
    registry = Registry()
    registry.add(recorder)
    simulator = Simulator(registry, Random(os.getpid()), devices=1)
    for _ in range(3):
        simulator.backward(random_graph(simulator.rng, 30, 1))
    recorder.close()
    print(recording.path, len(simulator.emitted), flush=True)
"""


@pytest.mark.slow
def test_many_processes_record_into_one_name_at_once(tmp_path: Path) -> None:
    """Each has a file in the end, and in it is what it did."""
    processes, rounds = 6, 8
    pipes = [os.pipe() for _ in range(processes)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, str(tmp_path), str(ready), str(rounds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[ready],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for ready, _ in pipes
    ]
    try:
        written: dict[str, list[int]] = {}
        for _ in range(rounds):
            for _, go in pipes:
                os.write(go, b"x")
            for child in children:
                assert child.stdout is not None
                line = child.stdout.readline()
                assert line, child.communicate()[1]
                path, events = line.rsplit(" ", 1)
                written.setdefault(path, []).append(int(events))
    finally:
        for descriptor in chain.from_iterable(pipes):
            os.close(descriptor)
        ended = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * processes, ended
    assert len(written) > rounds, "they were never at it at once"
    for path, counts in written.items():
        with Trace.open(path) as trace:
            assert trace.meta.end_ns is not None
            assert trace.event_count() in counts
    assert {Path(path).parent for path in written} == {tmp_path}


@pytest.mark.slow
def test_a_file_that_another_process_records_into(folder: Path) -> None:
    with agviz.trace(path=folder / "t.agviz"):
        said = ran(run("-o", "t.agviz", cwd=folder))
    path = recorded_into(said, "t.agviz is in use by another process")
    assert re.fullmatch(r"t\.\d+\.agviz", str(path))
    assert is_complete(folder / path)
    assert agviz.load(folder / "t.agviz").graph_tasks == []


def test_a_file_made_between_the_look_and_the_making(folder: Path) -> None:
    setup = """
import os
from pathlib import Path
lexists = os.path.lexists
def late(path):
    found = lexists(path)
    if Path(path).name == "t.agviz":
        Path(path).write_text("somebody's")
    return found
os.path.lexists = late
"""
    said = ran(run("-o", "t.agviz", cwd=folder, setup=setup))
    path = recorded_into(said, "t.agviz was made by another process at this moment")
    assert is_complete(folder / path)
    assert (folder / "t.agviz").read_text() == "somebody's"


def test_a_database_made_between_the_look_and_the_making(tmp_path: Path) -> None:
    """Its tables would have been joined by ours."""
    path = tmp_path / "t.agviz"
    look = os.path.lexists
    with pytest.MonkeyPatch.context() as patch:

        def late(given: object) -> bool:
            found = look(str(given))
            database = sqlite3.connect(path)
            database.execute("CREATE TABLE mine (x)")
            database.close()
            return found

        patch.setattr(os.path, "lexists", late)
        with pytest.raises(TraceError, match="made by another process"):
            new_file.create(path, {})
    database = sqlite3.connect(path)
    assert database.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    database.close()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param("disk I/O error", marks=pytest.mark.slow),
        "database or disk is full",
        pytest.param("no such table", marks=pytest.mark.slow),
    ],
)
def test_sqlite_fails_while_the_file_is_made(folder: Path, error: str) -> None:
    setup = f"""
import sqlite3
from agviz.record import new_file
fill, calls = new_file._fill, []
def once(path, *given):
    calls.append(path)
    if len(calls) == 1:
        raise sqlite3.OperationalError({error!r})
    fill(path, *given)
new_file._fill = once
"""
    said = ran(run("-o", "t.agviz", cwd=folder, setup=setup))
    path = recorded_into(said, f"t.agviz can't be written ({error})")
    assert is_complete(folder / path)
    assert not (folder / "t.agviz").exists()


@pytest.mark.slow
def test_the_thread_that_writes_can_not_open_or_begin(folder: Path) -> None:
    for setup in (
        """
import sqlite3
from agviz.record import file_thread
Writer, calls = file_thread.Writer, []
def once(*given):
    calls.append(given)
    if len(calls) == 1:
        raise sqlite3.OperationalError("disk I/O error")
    return Writer(*given)
file_thread.Writer = once
""",
        """
import threading
start, calls = threading.Thread.start, []
def once(thread):
    if thread.name == "agviz-recorder":
        calls.append(thread)
        if len(calls) == 1:
            raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = once
""",
    ):
        said = ran(run("-o", "t.agviz", cwd=folder, setup=setup))
        path = recorded_into(said, "t.agviz can't be written (")
        assert is_complete(folder / path)
        assert not (folder / "t.agviz").exists()


@pytest.mark.slow
def test_what_is_no_trace_is_left_alone_and_the_program_runs(folder: Path) -> None:
    (folder / "letter.txt").write_text("Dear reader,")
    database = sqlite3.connect(folder / "other.db")
    database.execute("CREATE TABLE mine (x)")
    database.close()
    os.mkfifo(folder / "pipe.agviz")
    (folder / "dangling.agviz").symlink_to(folder / "no" / "such")
    before = (folder / "other.db").read_bytes()
    for name, why in {
        "letter.txt": "letter.txt exists and is not a trace",
        "other.db": "other.db exists and is not a trace",
        "pipe.agviz": "pipe.agviz is not a regular file",
        "dangling.agviz": "dangling.agviz is not a regular file",
    }.items():
        path = recorded_into(ran(run("-o", name, cwd=folder)), why)
        assert path.suffix == Path(name).suffix
        assert path.parent == Path()
        assert is_complete(folder / path)
    assert (folder / "letter.txt").read_text() == "Dear reader,"
    assert (folder / "other.db").read_bytes() == before
    assert not (folder / "no").exists()


@pytest.mark.parametrize(
    "given",
    [
        "traces",
        pytest.param(".", marks=pytest.mark.slow),
        pytest.param("traces/..", marks=pytest.mark.slow),
    ],
)
def test_a_folder_takes_the_file_in(folder: Path, given: str) -> None:
    (folder / "traces").mkdir()
    path = recorded_into(ran(run("-o", given, cwd=folder)), "is a folder")
    assert re.fullmatch(r"agviz-program\.\d+\.agviz", path.name)
    assert (folder / path).parent.samefile(folder / given)
    assert is_complete(folder / path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("no/such/t.agviz", "there is no folder no/such"),
        pytest.param("program.py/t.agviz", "there is no folder program.py", marks=pytest.mark.slow),
        pytest.param("a" * 250 + ".agviz", "can't be written", marks=pytest.mark.slow),
        ("a" * 243 + ".agviz", "can't be written"),
    ],
    ids=["no folder", "in a file", "too long", "too long for SQLite"],
)
def test_a_place_that_can_not_be(folder: Path, tmp_path: Path, given: str, why: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = recorded_into(ran(run("-o", given, cwd=folder, TMPDIR=str(temporary))), why)
    assert path.parent.parent == temporary
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert is_complete(path)
    assert list(temporary.glob("agviz-trace-*")) == [path.parent]


@pytest.fixture
def unprivileged() -> list[str]:
    """What a program is run by so that it can't write where it must not, also for root."""
    if os.geteuid():
        return []
    call = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    if shutil.which(call[0]) is None or subprocess.run([*call, "true"], check=False).returncode:
        pytest.skip("root writes everywhere, and setpriv can't take that away")
    return call


@pytest.fixture
def sealed(folder: Path) -> Iterator[Path]:
    """The folder of the program, which can only be read."""
    (folder / "temporary").mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("-o", "t.agviz"), marks=pytest.mark.slow),
        pytest.param(("--on", "exception,nonfinite"), marks=pytest.mark.slow),
    ],
)
def test_a_folder_that_can_only_be_read(
    sealed: Path, unprivileged: list[str], options: tuple[str, ...]
) -> None:
    temporary = sealed / "temporary"
    said = ran(run(*options, cwd=sealed, before=unprivileged, TMPDIR=str(temporary)))
    (sentence,) = [line for line in said if "instead" in line]
    assert "can't be written (Permission denied); this program is recorded into" in sentence
    if "--on" in options:
        assert list(temporary.glob("agviz-trace-*/*")) == []
    else:
        path = recorded_into(said, "can't be written (Permission denied)")
        assert path.parent.parent == temporary
        assert is_complete(path)


@pytest.mark.slow
def test_nowhere(sealed: Path, unprivileged: list[str]) -> None:
    no_other = "import tempfile; tempfile._candidate_tempdir_list = lambda: []"
    (sentence,) = ran(run(cwd=sealed, before=unprivileged, setup=no_other))
    assert sentence.endswith("(Permission denied); the program goes on without being recorded")
    assert sorted(each.name for each in sealed.iterdir()) == ["program.py", "temporary"]


TRACES = """
import sys
import torch
import agviz
with agviz.trace(*sys.argv[1:]) as t:
    torch.ones(2, requires_grad=True).sum().backward()
    print("went on")
try:
    print(len(t.graph_tasks))
except agviz.TraceError as error:
    print("none:", error)
"""


@pytest.mark.slow
def test_a_block_without_a_name_runs_whatever_happens(
    sealed: Path, unprivileged: list[str]
) -> None:
    nowhere = "import tempfile; tempfile._candidate_tempdir_list = lambda: []\n"
    for program, counted in ((TRACES, "1"), (nowhere + TRACES, "none: ")):
        ended = subprocess.run(
            [*unprivileged, sys.executable, "-c", program],
            cwd=sealed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith(f"went on\n{counted}")
        if counted != "1":
            assert "the program goes on without being recorded" in ended.stderr


def test_a_block_with_a_name_says_so_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader,")
    for path in ("no/t.agviz", "letter.txt", "."):
        with (
            pytest.raises(agviz.TraceError, match="record"),
            agviz.trace(path=tmp_path / path),
        ):
            pytest.fail("it ran")


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("when", ["while it is made", "soon", "late"])
def test_a_disk_that_gets_full(folder: Path, when: str) -> None:
    """A limit of the size of any file of the process stands for it."""
    most = {"while it is made": 5_000, "soon": 200_000, "late": 900_000}[when]
    (folder / "program.py").write_text(
        "import resource, sys, torch\n"
        "layers = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(20)])\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        "for _ in range(60):\n"
        "    layers(torch.ones(3)).sum().backward()\n"
        "print('ran to its end')\n"
        "sys.exit(3)\n"
    )
    limit = f"import resource, torch; resource.setrlimit(resource.RLIMIT_FSIZE, ({most},) * 2)"
    ended = run("-o", "t.agviz", cwd=folder, setup=limit if when == "while it is made" else "")
    assert (ended.returncode, ended.stdout) == (3, "ran to its end\n"), ended.stderr
    assert "Traceback" not in ended.stderr
    if when == "while it is made":
        assert "t.agviz can't be written (" in ended.stderr
        assert "the program goes on without being recorded" in ended.stderr
        assert not (folder / "t.agviz").exists()
    else:
        assert "recording has stopped, the program goes on" in ended.stderr
        with Trace.open(folder / "t.agviz") as trace:
            assert len(trace.graph_tasks) < 60


def test_what_the_process_had_locked_is_let_go_of_in_a_child_too(tmp_path: Path) -> None:
    """A child that was made while the folder was locked must not keep it so."""
    with new_file.alone_in(tmp_path):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        with new_file.alone_in(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_folder_that_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_file, "_SECONDS_TO_WAIT", 0.1)
    with (
        new_file.alone_in(tmp_path),
        pytest.raises(TraceError, match=r"other processes keep .* locked"),
        new_file.alone_in(tmp_path),
    ):
        pytest.fail("two at once")


def test_the_places_that_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = os.getpid()
    found = list(recording.places(Path("a/t.agviz"), "x/train.py"))
    assert found[:2] == [Path("a/t.agviz"), Path(f"a/t.{own}.agviz")]
    assert (found[2].name, found[2].parent.parent) == ("t.agviz", tmp_path)
    default = Path(f"agviz-train.{own}.agviz")
    assert next(iter(recording.places(default, "train.py"))) == default
    assert [each.name for each in recording.places(tmp_path, "-m pkg.train")][1:] == [
        f"agviz-pkg.train.{own}.agviz"
    ] * 2
    assert not list(tmp_path.iterdir()), "the folders that were not needed are gone"


def test_a_program_that_goes_to_another_folder(folder: Path) -> None:
    """Where it ends, what was recorded is read from where it began."""
    (folder / "program.py").write_text(
        """
import os, shutil, sys, tempfile, torch
gone = tempfile.mkdtemp()
os.chdir(gone)
for _ in range(3):
    torch.ones(2, requires_grad=True).exp().sum().backward()
shutil.rmtree(gone)
print("ran to its end")
sys.exit(3)
"""
    )
    said = ran(run("-o", "t.agviz", cwd=folder))
    assert said == [
        "agviz: recorded 3 backward passes in t.agviz; to look at it: agviz view t.agviz"
    ]


CLOSES = """
import os, sys, time, torch

def train(passes):
    for _ in range(passes):
        model(torch.ones(2, 4)).sum().backward()

model = torch.nn.Linear(4, 4)
train(20)
time.sleep(0.6)
os.closerange(3, 512)
files = [open(f"mine{number}", "w+b", buffering=0) for number in range(12)]
for file in files:
    file.write(b"m" * 100_000)
train(300)
time.sleep(0.6)
train(300)
for file in files:
    file.seek(0)
    assert file.read() == b"m" * 100_000, file.name
print("ran to its end")
sys.stdout.flush()
sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--on", "signal"), ("--engine", "native")])
def test_a_program_that_closes_all_files(options: tuple[str, ...], folder: Path) -> None:
    """Files that it opens then get the numbers that ours had: nothing may be written into them."""
    (folder / "program.py").write_text(CLOSES)
    ended = run("-o", "t.agviz", *options, cwd=folder)
    assert (ended.returncode, ended.stdout) == (3, "ran to its end\n"), ended.stderr
    for number in range(12):
        assert (folder / f"mine{number}").read_bytes() == b"m" * 100_000
    if not options:
        said = "recorded until the program closed t.agviz; to look at it: agviz view t.agviz"
        assert f"agviz: {said}\n" in ended.stderr
        with Trace.open(folder / "t.agviz") as trace:
            assert 20 <= len(trace.graph_tasks) < 620
