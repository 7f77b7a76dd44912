"""``agviz run`` against ``python``: a program can't tell them apart, and leaves a trace behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agviz.cli.main import build_parser
from agviz.errors import AgvizError
from agviz.record.options import read_size
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from tests import python_process

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k != "AGVIZ_OUTPUT"},
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")]),
}


def python(
    *arguments: str, cwd: Path, stdin: str = "", fresh: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return python_process.run(command, cwd=cwd, env=ENVIRONMENT | env, input=stdin, fresh=fresh)


def agviz(
    *arguments: str, cwd: Path, stdin: str = "", fresh: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    return python("-m", "agviz", *arguments, cwd=cwd, stdin=stdin, fresh=fresh, **env)


def without_our_lines(stderr: str) -> str:
    return "".join(
        line for line in stderr.splitlines(keepends=True) if not line.startswith("agviz: ")
    )


SAYS_ALL_IT_KNOWS = """
'''A program that tells what it knows of itself.'''
import os, pickle, sys
class Mine:
    pass
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], os.getcwd(), __name__, __file__, __doc__, __package__)
print(sorted(globals()), sorted(vars(main)) == sorted(globals()), main.__dict__ is globals())
print(type(__loader__), __spec__ and __spec__.name, __builtins__, __annotations__)
print(type(pickle.loads(pickle.dumps(Mine()))) is Mine, Mine.__module__)
print(repr(sys.stdin.read()), sys.stdout.isatty())
print("to stderr", file=sys.stderr)
"""

CHAINED = """
import functools
def inner():
    raise KeyError("inner")
def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("outer") from error
try:
    outer()
except ValueError:
    functools.reduce(lambda a, b: a / b, [1, 0])
"""

OWN_HOOK = """
import sys, traceback
def report(kind, error, tb):
    print("mine:", kind.__name__, error, [f.name for f in traceback.extract_tb(tb)],
          tb is error.__traceback__)
sys.excepthook = report
raise LookupError("x")
"""

LATE = """
import atexit, pickle, sys, threading
class Mine:
    pass
def late(who):
    main = sys.modules["__main__"]
    print(who, main.__dict__ is globals(), pickle.loads(pickle.dumps(Mine)) is Mine, flush=True)
atexit.register(late, "exit handler")
release = threading.Event()
def thread():
    release.wait()
    late("thread")
threading.Thread(target=thread).start()
threading.Timer(0.0, lambda: threading.main_thread().join() or release.set()).start()
"""

SPAWNS = """
import dataclasses, multiprocessing, sys
@dataclasses.dataclass
class Point:
    x: int
    y: "int" = 2
def double(point):
    return Point(point.x * 2), __name__, sys.argv
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [Point(1), Point(2)]))
    process = multiprocessing.get_context("fork").Process(target=print, args=("forked",))
    process.start()
    process.join()
    print(process.exitcode)
"""

PROGRAMS = {
    "says all it knows": SAYS_ALL_IT_KNOWS,
    "ends well": "print('done')",
    "exit code": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('no more')",
    "exit without a code": "raise SystemExit",
    "raises": "def f(x):\n    return 1 / x\n\nprint('before')\nf(0)",
    "chained exceptions": CHAINED,
    "group": "raise ExceptionGroup('all', [ValueError(1), ExceptionGroup('in', [OSError(2)])])",
    "its own AgvizError": "from agviz.errors import AgvizError\nraise AgvizError('mine')",
    "syntax error": "print('never'\n",
    "not UTF-8": "# coding: latin-1\nprint(ascii('\\xe9'), 'h\\xf6')",
    "its own excepthook": OWN_HOOK,
    "interrupted": "print('before', flush=True)\nraise KeyboardInterrupt",
    "aborts": "import os; os._exit(7)",
    "threads and exit handlers": LATE,
    "multiprocessing": SPAWNS,
    "future import": "from __future__ import annotations\nx: undefined = 1\nprint(__annotations__)",
    "shadows a module": "import statistics\nprint(statistics.MINE)",
}


ALSO_AS_MODULES = ("says all it knows", "exit code", "syntax error", "multiprocessing")


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("name", "as_module"),
    [
        *((name, False) for name in PROGRAMS),
        ("raises", True),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ALSO_AS_MODULES),
    ],
)
def test_a_program_can_not_tell(name: str, as_module: bool, tmp_path: Path) -> None:
    folder = tmp_path if as_module else tmp_path / "sub folder"
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_bytes(PROGRAMS[name].encode("latin-1"))
    (folder / "statistics.py").write_text("MINE = 'the program has its own'")
    call = ["-m", "program"] if as_module else ["sub folder/program.py"]
    call += ["a b", "--output", "c", "-m", "--", "--help"]
    plain = python(*call, cwd=tmp_path, stdin="typed\n")
    ours = agviz("run", "-o", "t.agviz", *call, cwd=tmp_path, stdin="typed\n", fresh=True)
    assert ours.stdout == plain.stdout
    assert without_our_lines(ours.stderr) == plain.stderr
    assert ours.returncode == plain.returncode


def test_interrupting_ends_the_process_by_the_signal(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise KeyboardInterrupt")
    ended = agviz("run", "program.py", cwd=tmp_path, fresh=True)
    assert ended.returncode == -signal.SIGINT


@pytest.mark.parametrize("call", [["./program.py"], ["link.py"], ["sub/../program.py"]])
def test_paths_are_those_of_python(call: list[str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "real.py").write_text("import sys\nprint(__file__, sys.argv, sys.path[0])")
    (tmp_path / "program.py").write_text("import sys\nprint(__file__, sys.argv, sys.path[0])")
    (tmp_path / "link.py").symlink_to(tmp_path / "sub" / "real.py")
    ours = agviz("run", *call, cwd=tmp_path, fresh=True)
    assert ours.stdout == python(*call, cwd=tmp_path).stdout


def test_a_module_that_can_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for name in ("package", "package.missing"):
        plain = python("-m", name, cwd=tmp_path)
        ours = agviz("run", "-m", name, cwd=tmp_path, fresh=True)
        assert (ours.returncode, without_our_lines(ours.stderr)) == (1, plain.stderr)


TRAINS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
for step in range(5):
    model(torch.full((3, 4), float(step))).sum().backward()
"""


def test_a_training_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    ours = agviz("run", "train.py", cwd=tmp_path, fresh=True)
    assert (ours.returncode, ours.stdout) == (0, "")
    (path,) = tmp_path.glob("*.agviz")
    assert re.fullmatch(r"agviz-train\.\d+\.agviz", path.name)
    assert ours.stderr == (
        f"agviz: recorded 5 backward passes in {path.name}; to look at it: agviz view {path.name}\n"
    )
    with Trace.open(path) as trace:
        assert [task.status for task in trace.graph_tasks] == [GraphTaskStatus.FINISHED] * 5
        assert trace.meta.script == "train.py"
        names = {node.parameter for node in trace.nodes(0) if node.is_leaf}
        assert names == {"0.weight", "0.bias", "2.weight", "2.bias"}
        assert {node.module for node in trace.nodes(0)} >= {"0", "1", "2"}


@pytest.mark.slow
def test_steps_chooses_backward_passes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    ours = agviz("run", "--steps", "1:3", "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert ours.returncode == 0
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.id for task in trace.graph_tasks] == [1, 2]
        assert trace.meta.partial


def run_and_read(folder: Path, *options: str, program: str = TRAINS) -> tuple[str, Trace]:
    (folder / "train.py").write_text(program)
    ours = agviz("run", *options, "-o", "t.agviz", "train.py", cwd=folder)
    assert ours.returncode == 0, ours.stderr
    return ours.stderr, Trace.open(folder / "t.agviz")


@pytest.mark.slow
def test_one_backward_pass_in_some(tmp_path: Path) -> None:
    _, trace = run_and_read(tmp_path, "--every", "2")
    with trace:
        assert [task.id for task in trace.graph_tasks] == [0, 2, 4]
    _, trace = run_and_read(tmp_path, "--steps", "1:", "--every", "3")
    with trace:
        assert [task.id for task in trace.graph_tasks] == [1, 4]
        assert trace.meta.choice == "only the backward passes 1:, one in 3"


@pytest.mark.slow
def test_some_nodes_only(tmp_path: Path) -> None:
    _, trace = run_and_read(tmp_path, "--nodes", r"^2\.|Relu")
    with trace:
        known = [n for n in trace.nodes(0) if n.status is not NodeStatus.UNKNOWN]
        assert sorted(n.parameter or n.short_name for n in known) == [
            *("2.bias", "2.weight", "ReluBackward0"),
        ]
    for verb in ("summary", "export --format dot -o -", "export --format json -o -"):
        name, *options = verb.split()
        told = agviz(name, "t.agviz", *options, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
    summary = agviz("summary", "t.agviz", cwd=tmp_path).stdout
    assert "only the events of nodes that match" in summary


@pytest.mark.slow
def test_the_file_stays_within_its_size_and_the_program_goes_on(tmp_path: Path) -> None:
    program = TRAINS.replace("range(5)", "range(3_000)") + "print('went on')\n"
    errors, trace = run_and_read(tmp_path, "--max-bytes", "1MB", program=program)
    with trace:
        assert (tmp_path / "t.agviz").stat().st_size <= 1_000_000
        assert not trace.meta.stopped
        kept = [task.id for task in trace.graph_tasks]
        (gone,) = trace.left_out
        assert (kept[0], kept[-1], gone.passes + len(kept)) == (0, 2_999, 3_000)
    said = (
        rf"recorded {len(kept)} backward passes in .* \(of 3,000 backward passes the file keeps"
        rf" the first {gone.first} and the last {2_999 - gone.last}; with a larger --max-bytes it"
        r" keeps more\)"
    )
    assert re.search(said, errors)


RUNS_INTO_NAN = """
import torch
w = torch.nn.Parameter(torch.ones(3))
for step in range(9):
    (w * (float("nan") if step >= 6 else 1.0)).sum().backward()
"""


@pytest.mark.slow
def test_a_flight_recorder(tmp_path: Path) -> None:
    on = ["--on", "nonfinite,exception"]
    errors, trace = run_and_read(tmp_path, *on, "--keep", "2", program=RUNS_INTO_NAN)
    with trace:
        assert [task.id for task in trace.graph_tasks] == [5, 6]
        assert trace.first_nonfinite() is not None
    assert "recorded 2 backward passes in t.agviz" in errors
    (tmp_path / "t.agviz").unlink()
    (tmp_path / "train.py").write_text(TRAINS)
    ours = agviz("run", *on, "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert ours.stderr == (
        "agviz: nothing happened to write on (exception, nonfinite), so there is no file\n"
    )
    assert not list(tmp_path.glob("*.agviz*"))
    (tmp_path / "train.py").write_text(TRAINS + "raise ValueError('outside of backward')\n")
    ours = agviz("run", *on, "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert ours.returncode == 1
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.id for task in trace.graph_tasks] == [2, 3, 4]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("200MB", 200_000_000), ("1.5 GB", 1_500_000_000), ("1GiB", 2**30), ("2MiB", 2**21)),
        *(("3000000", 3_000_000), ("3000000B", 3_000_000), ("1t", 10**12), ("64kib", 2**16)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1iB", "nan", "1e9", "1.MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(AgvizError, match="is no size"):
        read_size(text)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1:3", range(1, 3)),
        ("3:", range(3, sys.maxsize)),
        (":1", range(1)),
        (":", range(sys.maxsize)),
    ],
)
def test_the_range_of_steps(text: str, steps: range) -> None:
    assert build_parser().parse_args(["run", "--steps", text, "train.py"]).steps == steps


@pytest.mark.slow
def test_the_environment_sets_up_torch_before_we_import_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "assert 'torch' not in sys.modules\n"
        "os.environ['OMP_NUM_THREADS'] = '1'\n"
        "import torch\n"
        "print(torch.get_num_threads(), type(torch.__loader__), type(torch.__spec__.loader))\n"
        "torch.ones(3, requires_grad=True).sum().backward()\n"
    )
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path, fresh=True)
    plain = python("program.py", cwd=tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0)
    assert "recorded 1 backward pass in" in ours.stderr


def test_threads_and_exit_handlers_are_recorded_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import atexit, threading, torch\n"
        "def backward():\n"
        "    torch.ones(3, requires_grad=True).sum().backward()\n"
        "atexit.register(backward)\n"
        "def thread():\n"
        "    threading.main_thread().join()\n"
        "    backward()\n"
        "threading.Thread(target=thread).start()\n"
    )
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert (ours.stdout, ours.returncode) == ("", 0)
    assert "recorded 2 backward passes in" in ours.stderr


def test_what_a_program_leaves_open_is_nobodys_business_at_its_end(tmp_path: Path) -> None:
    """Python ignores it, by filters of warnings that have to be the program's."""
    program = (
        "import torch\ntorch.ones(2, requires_grad=True).sum().backward()\nf = open(__file__)\n"
    )
    (tmp_path / "program.py").write_text(program)
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert "recorded 1 backward pass in" in ours.stderr
    assert "ResourceWarning" not in ours.stderr


SHY = """
import torch
class Shy:
    def __getattribute__(self, name):
        raise RuntimeError(f"asked for {name}")
class Odd(dict):
    def items(self):
        raise RuntimeError("asked for items")
model = torch.nn.Linear(4, 2)
model.shy, model.odd = [Shy()], Odd(one=1)
optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
optimizer.shy = Shy()
def train(shy, odd):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
train(Shy(), Odd())
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("option", ["--check-forward", "--no-provenance"])
def test_objects_of_the_program_are_not_asked_for_anything(option: str, tmp_path: Path) -> None:
    """A lazy one would load what it stands for."""
    (tmp_path / "program.py").write_text(SHY)
    ours = agviz("run", "-o", "t.agviz", option, "program.py", cwd=tmp_path)
    assert ours.returncode == 0
    assert "recorded 3 backward passes" in ours.stderr
    assert "asked for" not in ours.stderr


RAISES_IN_BACKWARD = """
import torch
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        raise ZeroDivisionError("no gradient today")
layer = torch.nn.Linear(4, 2)
layer(torch.ones(3, 4)).sum().backward()
def step():
    Double.apply(layer(torch.ones(3, 4))).exp().sum().backward()
step()
print("never reached")
"""


def test_an_error_in_backward_is_the_one_of_python(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RAISES_IN_BACKWARD)
    plain = python("program.py", cwd=tmp_path)
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert plain.returncode == ours.returncode == 1
    assert "ZeroDivisionError: no gradient today" in plain.stderr
    assert without_our_lines(ours.stderr) == plain.stderr
    with Trace.open(tmp_path / "t.agviz") as trace:
        first, second = trace.graph_tasks
        assert (first.status, second.status) == (GraphTaskStatus.FINISHED, GraphTaskStatus.FAILED)
        assert (second.error, second.message) == ("ZeroDivisionError", "no gradient today")
        statuses = {node.short_name: node.status for node in trace.nodes(1)}
        assert statuses["ExpBackward0"] is NodeStatus.DONE
        assert statuses["DoubleBackward"] is NodeStatus.FAILED
        assert statuses["AddmmBackward0"] is NodeStatus.WAITING


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            "x = torch.ones(3, requires_grad=True)\ny = x.exp().sum()\ny.backward()\ny.backward()",
            id="twice",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "x = torch.ones(3, requires_grad=True)\ny = x.exp()\nz = y.sum()\ny += 1\nz.backward()",
            id="changed in place",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "x = torch.ones(3, requires_grad=True)\nx.register_hook(str)\nx.sum().backward()",
            id="wrong hook",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_error_of_the_engine_is_the_one_of_python(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import torch\n{program}\n")
    plain = python("program.py", cwd=tmp_path)
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert "Error: " in plain.stderr
    assert without_our_lines(ours.stderr) == plain.stderr
    assert plain.returncode == ours.returncode == 1


def test_a_killed_program_leaves_a_readable_trace(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        TRAINS + "import os, signal, sys, time\n"
        "from agviz.record.recorder import Recorder\n"
        "import gc\n"
        "(recorder,) = [x for x in gc.get_objects() if type(x) is Recorder]\n"
        "assert recorder.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert ours.returncode == -signal.SIGKILL
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.graph_tasks) == 5
        assert trace.meta.end_ns is None
    summary = agviz("summary", "t.agviz", cwd=tmp_path)
    assert summary.returncode == 0
    assert "! the recording was cut off" in summary.stdout


def test_reentrant_calls_are_no_backward_passes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "for _ in range(2):\n"
        "    checkpoint(torch.exp, x, use_reentrant=True).sum().backward()\n"
    )
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path)
    assert "recorded 2 backward passes (and 2 reentrant ones) in" in ours.stderr
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.reentrant_depth for task in trace.graph_tasks] == [0, 1, 0, 1]
    summary = agviz("summary", "t.agviz", cwd=tmp_path)
    assert "2 backward passes (and 2 reentrant ones)" in summary.stdout


def test_the_environment_names_the_file_unless_the_call_does(tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    assert agviz("run", "program.py", cwd=tmp_path, AGVIZ_OUTPUT="env.agviz").returncode == 0
    assert (tmp_path / "env.agviz").exists()
    call = ["run", "--output", "option.agviz", "program.py"]
    assert agviz(*call, cwd=tmp_path, AGVIZ_OUTPUT="other.agviz").returncode == 0
    assert sorted(path.name for path in tmp_path.glob("*.agviz")) == ["env.agviz", "option.agviz"]


def test_a_program_without_torch_leaves_an_empty_trace_and_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('no torch here')")
    ours = agviz("run", "-o", "t.agviz", "program.py", cwd=tmp_path, fresh=True)
    assert ours.stderr == "agviz: no backward pass was recorded in t.agviz\n"


def test_an_older_trace_is_replaced_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    agviz("run", "-o", "t.agviz", "program.py", "first", cwd=tmp_path)
    again = agviz("run", "-o", "t.agviz", "program.py", "second", cwd=tmp_path)
    assert "agviz: t.agviz was an earlier trace and is replaced\n" in again.stderr
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.argv == ("second",)


@pytest.mark.slow
def test_wrong_calls_are_told_in_one_sentence_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('ran')")
    (tmp_path / "folder").mkdir()
    (tmp_path / "program.pyc").write_bytes(b"\xa7\r\r\n")
    calls = {
        ("nothere.py",): "there is no script nothere.py",
        ("folder",): "folder is a directory",
        ("program.pyc",): "program.pyc is no Python source",
        ("-m", "nosuchmodule"): "there is no module named nosuchmodule",
        ("--steps", "3", "program.py"): "'3' is no range",
        ("--steps", "3:3", "program.py"): "'3:3' is no range",
        ("--every", "0", "program.py"): "'0' is no number from 1 on",
        ("--nodes", "(", "program.py"): "'(' is no regular expression",
        ("--max-bytes", "much", "program.py"): "'much' is no size",
        ("--max-bytes", "10kB", "program.py"): "at least 1,000,000 bytes",
        ("--on", "monday", "program.py"): "'monday' is no occasion",
        ("--keep", "3", "program.py"): "say with --on when it writes",
        ("--values", "all", "program.py"): "invalid choice: 'all'",
        (): "arguments are required: script.py",
        ("\x1b[31mred.py",): "there is no script \N{REPLACEMENT CHARACTER}[31mred.py",
    }
    for call, sentence in calls.items():
        ours = agviz("run", *call, cwd=tmp_path)
        assert (ours.returncode, ours.stdout) == (2, ""), call
        last_line = ours.stderr.splitlines()[-1]
        assert last_line.startswith("agviz"), call
        assert sentence in last_line, call
        assert "Traceback" not in ours.stderr
    assert not list(tmp_path.glob("*.agviz"))
