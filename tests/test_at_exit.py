"""When the interpreter ends, stderr holds what the program wrote there and agviz's own lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow_cases import slow_but
from tests.test_cli_run import ENVIRONMENT

ROOT = Path(__file__).parent.parent
HEAD = """
import atexit, builtins, gc, os, sys, threading, time, torch
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
def backward():
    loss = model(torch.ones(2, 3)).sum()
    loss.backward(retain_graph=True)
    return loss
def node():
    loss = model(torch.ones(2, 3)).sum()
    return loss, loss.grad_fn
backward()
"""
IN_A_HOOK = "loss, node = node(); node.register_prehook(lambda _: {}); loss.backward()"
ENDS = {
    "an exception": "raise ValueError('mine')",
    "sys.exit": "sys.exit('mine')",
    "an exception in backward": IN_A_HOOK.format("1 / 0"),
    "sys.exit in backward": IN_A_HOOK.format("sys.exit(4)"),
    "os._exit in backward": IN_A_HOOK.format("os._exit(5)"),
    "a daemon thread that stands in backward": """
begun = threading.Event()
def stand(_):
    begun.set()
    time.sleep(60)
def work():
    loss, top = node()
    top.register_prehook(stand)
    loss.backward()
threading.Thread(target=work, daemon=True).start()
begun.wait()
sys.exit(3)
""",
    "a fork": "if pid := os.fork(): os.waitpid(pid, 0)\nbackward(); raise ValueError('mine')",
}
"""How a program may end; what it prints natively is what has to be there."""
KEPT = {
    "a model": "builtins.kept = model; raise ValueError('mine')",
    "a cycle": "gc.disable(); model.me = [model]; model.loss = backward(); sys.exit(3)",
    "a deep graph": "x = torch.ones(2, requires_grad=True)\nfor _ in range(9_000): x = x * 1.0\n"
    "x.sum().backward(retain_graph=True); sys.kept = x; raise ValueError('mine')",
    "a generator": "def steps():\n    while True:\n        yield backward()\n"
    "made = steps(); next(made); raise ValueError('mine')",
    "a hook": "loss = backward(); loss.register_hook(lambda g: g); model.register_forward_hook("
    "lambda *_: None); builtins.kept = loss; raise ValueError('mine')",
    "a backward to come": "def last():\n    backward(); os.write(2, b'ran\\n')\n"
    "builtins.last = last; raise ValueError('mine')",
}
"""What may outlive the modules of agviz."""
CLEAR = """
import atexit, builtins, sys
def clear():
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"agviz", "agviz_engine"}:
            for key in list(vars(module)):
                if key != "__builtins__":
                    vars(module)[key] = None
    getattr(builtins, "last", bool)()
atexit.register(clear)  # the first to be registered is called last
"""
"""What Python does to modules that are still there when it ends, in an order of its own."""


def ended(
    program: str, folder: Path, *before: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(HEAD + program)
    return subprocess.run(
        [sys.executable, *before, "program.py"],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def check(program: str, folder: Path, *options: str, **environment: str) -> None:
    native = ended(program, folder, **environment)
    ours = ended(program, folder, "-m", "agviz", "run", *options, **environment)
    of_the_program = [line for line in ours.stderr.splitlines() if not line.startswith("agviz: ")]
    assert of_the_program == native.stderr.splitlines()
    assert (ours.returncode, ours.stdout) == (native.returncode, native.stdout)


@pytest.mark.parametrize("end", slow_but({"an exception in backward"}, ENDS))
def test_however_a_program_ends(end: str, tmp_path: Path) -> None:
    check(ENDS[end], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kept", slow_but({"a backward to come"}, KEPT))
@pytest.mark.parametrize(
    "option",
    [
        pytest.param("--values=health", marks=pytest.mark.slow),
        pytest.param("--values=full", marks=pytest.mark.slow),
        "--check-forward",
    ],
)
def test_what_outlives_our_modules_calls_nothing_of_theirs(
    kept: str, option: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLEAR)
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])
    check(KEPT[kept], tmp_path, option, PYTHONPATH=path)
