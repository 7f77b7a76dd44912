"""The command line's reading verbs, as a user calls them."""

import fcntl
import gzip
import json
import os
import pty
import re
import select
import shlex
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from agviz import __version__
from agviz.cli.main import VERBS, load_verb, main
from tests import python_process
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent

PROGRAM = """
import torch
torch.manual_seed(0)
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("a message\\x1b[31m in red")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
hidden = model[0](torch.ones(3, 4))
hidden.register_hook(lambda gradient: gradient * 2)
model[1:](hidden).sum().backward()
model(torch.ones(3, 4)).sub(torch.inf).abs().log().sum().backward()
y = model(torch.full((3, 4), 0.0))
(y - y).sqrt().sum().backward()
try:
    Fails.apply(model(torch.ones(3, 4))).sum().backward()
except ValueError:
    pass
"""


def run(
    *arguments: str, cwd: Path, encoding: str = "utf-8", fresh: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR"}}
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    return python_process.run(
        [sys.executable, "-m", "agviz", *arguments],
        cwd=cwd,
        env={**environment, "PYTHONPATH": path, "PYTHONIOENCODING": encoding, **env},
        encoding=encoding,
        fresh=fresh,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of four backward passes: fine, fine, with NaN, failed."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "program.py").write_text(PROGRAM)
    finished = run("run", "-o", "t.agviz", "program.py", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return folder / "t.agviz"


def summary(path: Path, *options: str) -> dict[str, object]:
    finished = run("summary", str(path), "--json", *options, cwd=path.parent)
    assert finished.stderr == ""
    facts = json.loads(finished.stdout)
    assert isinstance(facts, dict)
    return facts


def test_the_version() -> None:
    finished = run("--version", cwd=ROOT)
    assert (finished.returncode, finished.stdout) == (0, f"agviz {__version__}\n")


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert (load_verb(verb).__doc__ or "").strip() in capsys.readouterr().out


@pytest.mark.parametrize("call", [[], ["nosuchverb"], ["summary"], ["export", "t.agviz"]])
def test_a_wrong_call_is_told_with_the_usage(
    call: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(call)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: agviz")


READING = {
    "summary": ["summary", "{}"],
    "json": ["summary", "--json", "{}"],
    "dot": ["export", "--format", "dot", "{}"],
    "svg": ["export", "--format", "svg", "{}"],
    "chrome-trace": ["export", "--format", "chrome-trace", "{}"],
    "json of all": ["export", "--format", "json", "{}"],
    "view": ["view", "{}"],
    "diff": ["diff", "{}", "{}"],
    "whatif": ["whatif", "{}"],
    "repro": ["repro", "{}"],
    "issue": ["issue", "{}"],
}


@pytest.mark.parametrize("call", slow_but({"summary", "view"}, READING))
def test_what_is_no_trace_is_refused_in_one_sentence(call: str, tmp_path: Path) -> None:
    bad: dict[str, Callable[[Path], object]] = {
        "nothere.agviz": lambda path: None,
        "folder.agviz": lambda path: path.mkdir(),
        "empty.agviz": lambda path: path.touch(),
        "text.agviz": lambda path: path.write_text("Dear reader, " * 100),
        "other.agviz": lambda path: sqlite3.connect(path).execute("CREATE TABLE mine (x)"),
        "\x1b]0;owned\x07.agviz": lambda path: None,
    }
    for name, make in bad.items():
        make(tmp_path / name)
        finished = run(*(part.format(name) for part in READING[call]), cwd=tmp_path)
        assert finished.returncode == 2, name
        assert finished.stdout == ""
        assert finished.stderr.startswith("agviz: ")
        assert finished.stderr.count("\n") == 1
        assert finished.stderr[:-1].isprintable()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        name for name in bad if name not in {"nothere.agviz", "\x1b]0;owned\x07.agviz"}
    )


def test_a_newer_trace_is_refused(recorded: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.agviz"
    shutil.copy(recorded, newer)
    database = sqlite3.connect(newer)
    database.execute("PRAGMA user_version = 999")
    database.close()
    finished = run("summary", "newer.agviz", cwd=tmp_path)
    assert finished.returncode == 2
    assert "newer.agviz" in finished.stderr


def test_reading_leaves_torch_out(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is absent on this machine')")
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])
    for call in (
        ["summary"],
        ["summary", "--json"],
        ["export", "--format", "dot", "-o", str(tmp_path / "t.dot")],
        ["export", "--format", "chrome-trace", "-o", str(tmp_path / "t.json.gz")],
        ["export", "--format", "json", "-o", str(tmp_path / "all.json")],
        ["diff", str(recorded)],
        ["issue", "-o", str(tmp_path)],
        ["whatif"],
    ):
        finished = run(*call, str(recorded), cwd=tmp_path, fresh=True, PYTHONPATH=path)
        assert (finished.returncode, finished.stderr) == (0, "False\n"), call


def test_the_summary_tells_what_happened(recorded: Path) -> None:
    facts = summary(recorded)
    assert facts["script"] == "program.py"
    assert facts["complete"] is True
    tasks = facts["graph_tasks"]
    assert isinstance(tasks, dict)
    assert (tasks["count"], tasks["failed"]) == (4, 1)
    assert [task["graph_task"] for task in tasks["shown"]] == [0, 1, 2, 3]
    threads = facts["threads"]
    assert isinstance(threads, list)
    assert sum(thread["executed"] for thread in threads) == 10 + 13 + 12 + 2
    assert all(0 < thread["utilisation"] <= 1 for thread in threads)
    hooks = facts["hooks"]
    assert isinstance(hooks, list)
    assert any(hook["kind"] == "tensor_pre" and hook["changed"] for hook in hooks)


def test_the_summary_names_where_nan_began(recorded: Path) -> None:
    findings = summary(recorded)["non_finite"]
    assert isinstance(findings, list)
    (found,) = (finding for finding in findings if finding["graph_task"] == 2)
    # The gradient of sqrt at 0 is infinite; both signs of it meet in y - y.
    assert (found["first"]["name"], found["first"]["posinf"]) == ("SqrtBackward0", 3)
    assert (found["leaves"], len(found["reached"])) == (4, 4)
    assert "0.weight" in found["reached"]


def test_the_summary_tells_alike_beginnings_of_nan_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "weight = torch.ones(3, requires_grad=True)\n"
        "for step in range(16):\n"
        "    root, log = (weight * 0).sqrt(), (weight - 1).log() * 0\n"
        "    (log if step == 5 else root).sum().backward()\n"
    )
    run("run", "-o", "t.agviz", "train.py", cwd=tmp_path)
    told = " ".join(run("summary", str(tmp_path / "t.agviz"), cwd=tmp_path).stdout.split())
    assert told.count("begin at SqrtBackward0") == 1
    assert told.count("begin at LogBackward0") == 1
    assert "so do those of 8 later backward passes: 1, 2, 3, … 9" in told
    assert "✗ 6 more backward passes have non-finite gradients, the last 15" in told
    whole = run("summary", "--top", "16", str(tmp_path / "t.agviz"), cwd=tmp_path).stdout
    assert "more backward passes" not in whole
    assert "so do those of 14 later backward passes" in whole


def test_the_summary_over_time(recorded: Path) -> None:
    facts: Any = summary(recorded, "--graph-task", "0")
    over_time = facts["over_time"]
    (task,) = facts["graph_tasks"]["shown"]
    assert over_time["graph_task"] == 0
    assert over_time["duration_ns"] == task["duration_ns"]
    memory, queue = over_time["gauges"]
    assert (memory["gauge"], memory["unit"]) == ("live gradient bytes", "bytes")
    assert (queue["gauge"], queue["unit"]) == ("ReadyQueue CPU, MainThread", "tasks")
    for gauge in (memory, queue):
        assert len(gauge["values"]) == 40
        assert max(gauge["values"]) == gauge["peak"]
    # At most at once: 3 rows of 8, for the weight and the node beside it, and 8 for the bias.
    assert memory["peak"] >= 3 * 8 * 4
    assert queue["peak"] in {1, 2, 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE event SET b = 1000 WHERE kind = 2 AND graph_task = 0", "tells of 1,000 tasks in"),
        ("DELETE FROM event WHERE kind = 28 AND graph_task = 0", "can't have happened"),
    ],
    ids=["a queue's depth", "nodes that never finished"],
)
def test_numbers_of_events_that_can_not_have_happened_are_called_false(
    recorded: Path, tmp_path: Path, change: str, said: str
) -> None:
    good: Any = summary(recorded, "--graph-task", "0")
    assert good["over_time"]["contradiction"] is None
    path = tmp_path / "changed.agviz"
    shutil.copyfile(recorded, path)
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(change).rowcount > 0
    facts: Any = summary(path, "--graph-task", "0")
    assert said in facts["over_time"]["contradiction"]
    told = run("summary", str(path), "--graph-task", "0", cwd=tmp_path).stdout
    assert "These numbers are false: event " in " ".join(told.split())


def test_of_many_backward_passes_the_slowest_are_shown(recorded: Path) -> None:
    tasks = summary(recorded, "--top", "3")["graph_tasks"]
    assert isinstance(tasks, dict)
    times = [task["duration_ns"] for task in tasks["shown"]]
    assert len(times) == 3
    assert times == sorted(times, reverse=True)


def test_the_summary_of_one_backward_pass(recorded: Path) -> None:
    facts = summary(recorded, "--graph-task", "0", "--top", "2")
    assert facts["non_finite"] == []
    assert facts["errors"] == []
    nodes = facts["slowest_nodes"]
    assert isinstance(nodes, list)
    assert [node["graph_task"] for node in nodes] == [0, 0]
    missing = run("summary", str(recorded), "--graph-task", "99", cwd=recorded.parent)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "99" in missing.stderr


def test_the_summary_in_tables(recorded: Path) -> None:
    finished = run("summary", str(recorded), cwd=recorded.parent)
    assert (finished.returncode, finished.stderr) == (0, "")
    text = finished.stdout
    assert "\x1b" not in text, "neither colours for a pipe nor those of the error's message"
    assert max(map(len, text.splitlines())) <= 80
    for expected in (
        "4 backward passes",
        "Graph tasks",
        "Threads",
        "Slowest types of nodes",
        "Slowest nodes",
        "Hooks",
        "Over time, in backward pass ",
        "live gradient bytes",
        "ReadyQueue CPU, MainThread",
        "FailsBackward",
        "ValueError: a message",
        "SqrtBackward0",
        "0.weight",
    ):
        assert expected in text


def test_the_summary_on_a_terminal_that_knows_only_ascii(recorded: Path) -> None:
    finished = run("summary", str(recorded), cwd=recorded.parent, encoding="ascii")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert re.search(r"live gradient bytes +\| [_.:=+*#-]{40} ", finished.stdout)


def test_a_reader_that_goes_away_is_no_error_of_ours(recorded: Path) -> None:
    command = f'"{sys.executable}" -m agviz summary --json t.agviz | true'
    finished = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        cwd=recorded.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.stderr == ""


def test_export_writes_beside_the_trace_or_where_it_is_told(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(recorded, tmp_path / "t.agviz")
    finished = run("export", "t.agviz", "--format", "dot", cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (0, "wrote t.dot\n")
    text = (tmp_path / "t.dot").read_text()
    assert "AddmmBackward0" in text
    to_stdout = run("export", "t.agviz", "--format", "dot", "-o", "-", cwd=tmp_path)
    assert to_stdout.stdout == text
    other = run("export", "t.agviz", "--format", "dot", "--graph-task", "3", "-o-", cwd=tmp_path)
    assert "FailsBackward" in other.stdout
    drawn = run("export", "t.agviz", "--format", "svg", "-o", "g.svg", cwd=tmp_path)
    assert (drawn.returncode, drawn.stdout) == (0, "wrote g.svg\n")
    assert ET.parse(tmp_path / "g.svg").getroot().tag.endswith("svg")  # noqa: S314 # ours


def test_export_writes_timelines_and_json(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(recorded, tmp_path / "t.agviz")
    for format_, name in (("chrome-trace", "t.trace.json"), ("json", "t.json")):
        finished = run("export", "t.agviz", "--format", format_, cwd=tmp_path)
        assert (finished.returncode, finished.stdout) == (0, f"wrote {name}\n")
        content = (tmp_path / name).read_text()
        json.loads(content)
        printed = run("export", "t.agviz", "--format", format_, "-o", "-", cwd=tmp_path)
        assert (printed.stdout, printed.stderr) == (content, "")
        named = run("export", "t.agviz", "--format", format_, "-o", "x.json.gz", cwd=tmp_path)
        assert named.stdout == "wrote x.json.gz\n"
        assert gzip.decompress((tmp_path / "x.json.gz").read_bytes()).decode() == content
    one = run("export", "t.agviz", "--format", "json", "--graph-task", "3", "-o-", cwd=tmp_path)
    assert [task["id"] for task in json.loads(one.stdout)["graph_tasks"]] == [3]
    none = run("export", "t.agviz", "--format", "json", "--graph-task", "9", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert "no graph task 9" in none.stderr


def test_export_tells_programs_what_it_wrote(recorded: Path, tmp_path: Path) -> None:
    for format_, name in (("dot", "a.dot"), ("chrome-trace", "a.json")):
        call = "export", str(recorded), "--format", format_, "-o", name, "--json"
        finished = run(*call, cwd=tmp_path)
        said = json.loads(finished.stdout)
        drawn = {key: said.pop(key) for key in ("graph_tasks", "nodes", "edges") if key in said}
        about = {"document": "export", "version": 1}
        assert said == {**about, "format": format_, "path": name, "notes": []}
        assert set(drawn) == ({"graph_tasks", "nodes", "edges"} if format_ == "dot" else set())
        assert (tmp_path / name).stat().st_size > 1000
    both = run("export", str(recorded), "--format", "json", "-o", "-", "--json", cwd=tmp_path)
    assert (both.returncode, both.stdout) == (2, "")
    assert "name a file with --output" in both.stderr


@pytest.mark.slow
def test_an_export_that_fails_half_way_leaves_nothing(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(recorded, tmp_path / "t.agviz")
    database = sqlite3.connect(tmp_path / "t.agviz", isolation_level=None)
    database.execute(
        "UPDATE event SET kind = 77"
        " WHERE seq = (SELECT seq FROM event ORDER BY seq DESC LIMIT 1 OFFSET 3)"
    )
    database.close()
    for format_ in ("chrome-trace", "json"):
        for name in ("x.json", "x.json.gz"):
            call = "export", "t.agviz", "--format", format_, "-o", name
            finished = run(*call, cwd=tmp_path)
            assert (finished.returncode, finished.stdout) == (2, "")
            assert "damaged" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.agviz"]


def test_export_on_a_full_disk(recorded: Path) -> None:
    call = "export", str(recorded), "--format", "json", "-o", "/dev/full"
    finished = run(*call, cwd=recorded.parent)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == "agviz: /dev/full can't be written: No space left on device\n"
    assert Path("/dev/full").exists()


@pytest.mark.parametrize("format_", slow_but({"json"}, ["dot", "json", "chrome-trace"]))
@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("t.agviz", "is the trace itself"),
        ("no/such/folder.dot", "no/such/folder.dot can't be written"),
        (".", ". is a folder"),
    ],
)
def test_export_refuses_a_place_it_can_not_write(
    output: str, sentence: str, format_: str, recorded: Path, tmp_path: Path
) -> None:
    shutil.copy(recorded, tmp_path / "t.agviz")
    finished = run("export", "t.agviz", "--format", format_, "-o", output, cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert sentence in finished.stderr
    assert (tmp_path / "t.agviz").read_bytes() == recorded.read_bytes()


def test_view_without_a_terminal_says_what_to_do(recorded: Path) -> None:
    finished = run("view", str(recorded), cwd=recorded.parent)
    assert finished.returncode == 2
    assert finished.stderr.startswith("agviz: view needs a terminal")


def in_a_terminal(*arguments: str, cwd: Path, wait_for: str, then_type: str) -> tuple[int, str]:
    """Run agviz in a terminal of 80x24; type when it has shown something; its exit code, output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    process = subprocess.Popen(
        [sys.executable, "-m", "agviz", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, typed = b"", False
    try:
        while select.select([ours], [], [], 120)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other end is closed
                break
            if not typed and wait_for.encode() in shown:
                os.write(ours, then_type.encode())
                typed = True
        return process.wait(timeout=120), shown.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_view_opens_in_a_terminal(recorded: Path) -> None:
    code, shown = in_a_terminal(
        "view", str(recorded), cwd=recorded.parent, wait_for="What happened", then_type="q"
    )
    assert code == 0
    assert "\x1b[?1049h" in shown, "the alternate screen was entered"
    assert "\x1b[?1049l" in shown, "and left"


@pytest.mark.slow
def test_the_demo_opens_the_view_in_a_terminal(tmp_path: Path) -> None:
    code, shown = in_a_terminal(
        *("demo", "--model", "mlp", "--steps", "2"),
        cwd=tmp_path,
        wait_for="What happened",
        then_type="q",
    )
    assert code == 0, shown
    assert "bit for bit" in " ".join(shown.split())
    assert "\x1b[?1049l" in shown


@pytest.mark.slow
def test_the_doctor_in_a_terminal_that_is_large_enough(tmp_path: Path) -> None:
    code, shown = in_a_terminal("doctor", cwd=tmp_path, wait_for="80 columns", then_type="")
    assert code == 0
    assert "\x1b[32m" in shown, "in colour"


def test_no_color_is_honoured(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    code, shown = in_a_terminal(
        "summary", str(recorded), cwd=recorded.parent, wait_for="Threads", then_type=""
    )
    assert code == 0
    assert re.search("\x1b\\[[0-9;]*3[0-9]", shown) is None


def test_the_doctor_in_json() -> None:
    finished = run("doctor", "--json", cwd=ROOT)
    facts = json.loads(finished.stdout)
    findings = {finding["subject"]: finding for finding in facts["findings"]}
    assert set(findings) == {
        *("python", "torch", "engine", "gradients", "provenance", "graphviz", "terminal")
    }
    assert findings["torch"]["ok"] is True
    assert finished.returncode == 0


def test_the_doctor_demo_and_run_without_torch(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "class NoTorch:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(\"No module named 'torch'\", name=name)\n"
        "sys.meta_path.insert(0, NoTorch)\n"
        "real = importlib.util.find_spec\n"
        "def find_spec(name, *more): return None if name == 'torch' else real(name, *more)\n"
        "importlib.util.find_spec = find_spec\n"
    )
    (tmp_path / "program.py").write_text("print('ran')")
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])
    doctor = run("doctor", cwd=tmp_path, fresh=True, PYTHONPATH=path)
    assert doctor.returncode == 1
    assert "not installed" in doctor.stdout
    assert "pip install 'torch>=2.10,<2.16'" in doctor.stdout
    refused = run("demo", cwd=tmp_path, fresh=True, PYTHONPATH=path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "not installed" in refused.stderr
    ended = run("run", "program.py", cwd=tmp_path, fresh=True, PYTHONPATH=path)
    assert (ended.returncode, ended.stdout) == (0, "ran\n")
    assert ended.stderr.startswith("agviz: no backward pass was recorded in ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_where_the_answer_can_not_be_written(recorded: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agviz", "summary", str(recorded)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "agviz: [Errno 28] No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["", ">&-"])
def test_without_docstrings_and_without_a_stdout(closed: str, recorded: Path) -> None:
    call = [sys.executable, "-OO", "-m", "agviz", "summary", str(recorded)]
    shell = ["/bin/sh", "-c", f"{shlex.join(call)} {closed}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
