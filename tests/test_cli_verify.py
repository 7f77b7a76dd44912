"""``agviz verify`` as a user meets it: what it prints, and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import python_process

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(__file__).parent / "scripts"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")]),
    "COLUMNS": "150",
}


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python_process.run([sys.executable, *arguments], cwd=cwd, env=ENVIRONMENT)


def verify(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "agviz", "verify", *arguments, cwd=cwd)


@pytest.mark.slow
def test_a_script_that_is_equal(tmp_path: Path) -> None:
    script = str(SCRIPTS / "transformer.py")
    plain = python(script, "--steps", "2", cwd=tmp_path)
    ours = verify(script, "--steps", "2", cwd=tmp_path)
    assert ours.returncode == 0
    assert ours.stderr == ""
    printed, _, report = ours.stdout.partition(script)
    assert printed == plain.stdout
    assert report.splitlines()[0] == ": 4 backward passes, 4 compared"
    assert [line.split()[:2] for line in report.splitlines()[1:]] == [
        ["✓", "gradients"], ["✓", "order"], ["✓", "exceptions"]
    ]  # fmt: skip


WRONG = """
import runpy, sys, torch
from agviz_engine.engine import Engine
right = Engine._call_accumulate_grad
def wrong(self, graph_task, ref, inputs):
    (gradient,) = inputs
    if gradient.shape == (16, 4):
        gradient = gradient * 1.5
    return right(self, graph_task, ref, (gradient,))
Engine._call_accumulate_grad = wrong
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("as_json", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_engine_that_is_wrong(tmp_path: Path, *, as_json: bool) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "gan.py").write_text((SCRIPTS / "gan.py").read_text())
    options = ["--json"] if as_json else []
    ours = verify(*options, "-m", "wrong", "gan.py", cwd=tmp_path)
    plain = python("gan.py", cwd=tmp_path)
    assert ours.returncode == 1
    line = next(
        number
        for number, text in enumerate((tmp_path / "gan.py").read_text().splitlines(), 1)
        if text.strip().startswith("loss.backward(")
    )
    if as_json:
        assert ours.stderr == plain.stdout
        report = json.loads(ours.stdout)
        assert report["passes"] == 12
        assert report["equal"] == 8
        assert report["different"] == 4
        first = report["first_difference"]
        assert (first["number"], first["call"], first["place"]) == (2, "backward", f"gan.py:{line}")
        (difference,) = first["differences"]
        assert difference["where"] == "gradient of Sequential.0.weight, element [0, 0]"
        factor = float(difference["agviz"]) / float(difference["native"])
        assert factor == pytest.approx(1.5)
    else:
        printed, _, report = ours.stdout.partition("wrong: ")
        assert printed == plain.stdout
        assert "✗  gradients   different in 4 passes:" in report
        assert f"pass 2, backward() at gan.py:{line}, gradient of Sequential.0.weight" in report
        assert "✓  order       the same in 12 passes" in report


FAILS = """
import torch
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        raise ZeroDivisionError("no [bold]gradient[/] \\x1b[31mtoday")
Fails.apply(torch.ones(3, requires_grad=True)).sum().backward()
"""


@pytest.mark.slow
def test_a_script_that_fails_fails_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FAILS)
    plain = python("program.py", cwd=tmp_path)
    ours = verify("program.py", cwd=tmp_path)
    assert (plain.returncode, ours.returncode) == (1, 1)
    assert ours.stderr == plain.stderr != ""
    assert "✓  exceptions  the same in 1 pass that raised one" in ours.stdout
    assert "✗  script      it failed, see above" in ours.stdout


ENDS = {
    "import sys; sys.exit(3)": (1, ""),
    "import sys; sys.exit('no more')": (1, "no more\n"),
    "import sys; sys.exit()": (0, ""),
    "raise SystemExit(0)": (0, ""),
}


@pytest.mark.parametrize("program", ENDS)
def test_the_exit_code_says_whether_the_script_failed(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    ours = verify("program.py", cwd=tmp_path)
    assert (ours.returncode, ours.stderr) == ENDS[program]
    assert "no backward pass ran" in ours.stdout


THREADS = """
import concurrent.futures, threading, torch
weight = torch.ones(3, requires_grad=True)
def late():
    threading.main_thread().join(0.01)
    (weight * 2).sum().backward()
executor = concurrent.futures.ThreadPoolExecutor()
executor.submit(late)
threading.Thread(target=late).start()
"""


def test_threads_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(THREADS)
    ours = verify("--json", "program.py", cwd=tmp_path)
    assert ours.returncode == 0
    assert json.loads(ours.stdout)["equal"] == 2


COMPILED = """
import torch
def function(x, w):
    return (torch.cos(torch.sin(x @ w)) @ w).exp() @ w
x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
compiled = torch.compile(function, backend="aot_eager")
for _ in range(2):
    compiled(x, w).sum().backward()
"""


@pytest.mark.slow
def test_a_compiled_model_is_compared(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED)
    ours = verify("--json", "program.py", cwd=tmp_path)
    said = [line for line in ours.stderr.splitlines() if "triton not found" not in line]
    assert (ours.returncode, said) == (0, [])  # a build for CUDA misses triton where it is not
    report = json.loads(ours.stdout)
    assert report["equal"] == 2
    assert report["not_compared"] == 1  # compiling takes a gradient of fake tensors
    assert report["findings"][0]["reason"] == "a torch-dispatch mode is active"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (["nothere.py"], "there is no script nothere.py"),
        (["-m", "nosuchmodule"], "there is no module named nosuchmodule"),
        (["--steps", "3", "x.py"], "'3' is no range"),
        ([], "arguments are required"),
    ],
)
def test_wrong_calls_are_told_in_one_sentence(
    call: list[str], complaint: str, tmp_path: Path
) -> None:
    ours = verify(*call, cwd=tmp_path)
    assert ours.returncode == 2
    assert complaint in ours.stderr
    assert ours.stdout == ""
