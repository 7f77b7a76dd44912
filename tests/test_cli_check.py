"""``agviz check`` as a user meets it: what it prints, its exit code, and a program that stays."""

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


def python(*arguments: str, cwd: Path, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return python_process.run(command, cwd=cwd, env=ENVIRONMENT, fresh=fresh)


def check(*arguments: str, cwd: Path, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    return python("-m", "agviz", "check", *arguments, cwd=cwd, fresh=fresh)


PROGRAM = """
import random, sys
import torch
from torch import nn
from torch.autograd import Function
IMPORTS

class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))

torch.manual_seed(0)
random.seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.Linear(8, 1))
OPTIMIZER
for _ in range(2):
    loss = FORWARD.square().mean()
    loss.backward()
    STEP
print([p.double().sum().item().hex() for p in net.parameters()], torch.rand(2), random.random())
print(sys.argv, __name__, sys.modules["__main__"].__file__)
"""
X = "Swish.apply(torch.randn(16, 6, requires_grad=True))"


def written(**parts: str) -> str:
    text = PROGRAM
    for name in ("imports", "optimizer", "forward", "step"):
        text = text.replace(name.upper(), parts.get(name, "pass"))
    return text


PLAIN = written(forward=f"net({X})")
WITH_CHECKPOINT = written(
    imports="from torch.utils.checkpoint import checkpoint",
    forward=f"checkpoint(net, {X}, use_reentrant=False)",
    optimizer="optimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
    step="optimizer.step()",
)
WRONG = PLAIN.replace("(s + x * s * (1 - s))", "s")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (PLAIN, "the shapes of losses"),
        pytest.param(WITH_CHECKPOINT, "2 recomputations of checkpoints", marks=pytest.mark.slow),
    ],
    ids=["plain", "checkpoint"],
)
def test_a_program_stays_as_it_is(text: str, seen: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    plain = python("train.py", "--lr", "1", cwd=tmp_path)
    ours = check("train.py", "--lr", "1", cwd=tmp_path)
    assert plain.returncode == ours.returncode == 0
    assert ours.stderr == plain.stderr == ""
    printed, _, report = ours.stdout.partition("✓")
    assert printed == plain.stdout
    assert "1 custom Function against numerical derivatives" in " ".join(report.split())
    assert seen in " ".join(report.split())


def test_a_wrong_derivative_as_json(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG)
    ours = check("--json", "-m", "train", cwd=tmp_path)
    assert ours.returncode == 1
    assert ours.stderr.count("forward\n") == 2
    report = json.loads(ours.stdout)
    assert report["outcome"] == "found"
    (verdict,) = report["verdicts"]
    line = WRONG.splitlines().index("        return grad * s") + 1
    assert verdict["line"] == f"train.py:{line} in backward"
    assert verdict["source"] == "return grad * s"
    assert "Swish" in verdict["heading"]


@pytest.mark.slow
def test_a_script_that_fails(tmp_path: Path) -> None:
    text = "import torch\ntorch.randn(2, requires_grad=True).sum().backward()\nraise SystemExit(3)"
    (tmp_path / "fails.py").write_text(text)
    ours = check("fails.py", cwd=tmp_path)
    assert ours.returncode == 1
    assert "The script failed" in ours.stdout
    assert "? the program failed; nothing unusual" in ours.stdout


@pytest.mark.slow
def test_tracebacks_are_the_programs_own(tmp_path: Path) -> None:
    text = (
        "import torch\nh = torch.randn(2, requires_grad=True).exp()\nout = h.sum()\nh.mul_(2)\n"
        "out.backward()\n"
    )
    (tmp_path / "fails.py").write_text(text)
    plain = python("fails.py", cwd=tmp_path)
    ours = check("fails.py", cwd=tmp_path)
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", ["transformer.py", "gan.py"])
def test_scripts_of_the_tests(script: str, tmp_path: Path) -> None:
    plain = python(str(SCRIPTS / script), cwd=tmp_path)
    ours = check(str(SCRIPTS / script), cwd=tmp_path)
    assert ours.stdout.startswith(plain.stdout)
    assert "✗" not in ours.stdout
    assert ours.returncode == 0


def test_a_script_without_torch_or_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print(1)")
    ours = check("plain.py", cwd=tmp_path, fresh=True)
    assert (ours.returncode, ours.stderr) == (2, "")
    assert "did not import torch" in ours.stdout
    missing = check("nothing.py", cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr == "agviz: there is no script nothing.py; check the path\n"


@pytest.mark.slow
def test_compiled_code_is_left_alone(tmp_path: Path) -> None:
    text = (
        "import torch\nnet = torch.compile(torch.nn.Linear(3, 3), backend='aot_eager')\n"
        "net(torch.randn(2, 3)).sum().backward()\nprint(net.weight.grad.sum())\n"
    )
    (tmp_path / "compiled.py").write_text(text)
    ours = check("compiled.py", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert "✓" in ours.stdout
