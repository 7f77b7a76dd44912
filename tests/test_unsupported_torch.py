"""A torch that the engine does not fit: said in one sentence, never in the program's way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from agviz_engine.support import REQUIREMENT, WINDOW, is_tested, remark
from tests import python_process
from tests.slow_cases import slow_but

ROOT = Path(__file__).parent.parent
LACKING = {
    "a function": (
        "torch._meta_registrations",  # the last to be imported with torch: torch needs it itself
        "del sys.modules['torch.autograd.graph'].get_gradient_edge",
        "cannot import name 'get_gradient_edge'",
    ),
    "a private name": (
        "torch",
        "del torch._C._is_view_replay_enabled",
        "it has no torch._C._is_view_replay_enabled",
    ),
    "a method": (
        "torch",
        "from torch._C import DispatchKeySet; DispatchKeySet.raw_repr = property()",
        "property of 'DispatchKeySet' object has no getter",
    ),
    "its layout": (
        "torch",
        "import ctypes; torch.Tensor._cdata = property(lambda tensor: 4711)",
        "the TensorImpl was not found behind a tensor",
    ),
    "anything": (
        "torch",
        "torch.Tensor.retain_grad = lambda tensor: 1 / 0",
        "ZeroDivisionError: division by zero",
    ),
}
"""What a simulated torch lacks: after which import it goes, how, and what the sentence says."""
PROGRAM = """
import sys, torch
model = torch.nn.Linear(3, 2)
model(torch.ones(4, 3)).sum().backward()
print("ran", sys.argv[1:], model.weight.grad is not None)
sys.exit(7)
"""
TESTS = """
import torch
def test_that_passes():
    torch.ones(2, requires_grad=True).sum().backward()
def test_that_fails():
    torch.ones(2, requires_grad=True).sum().backward()
    assert False
"""


def environment(folder: Path, lacking: str, engine: str = "exact") -> dict[str, str]:
    """The environment of a process whose torch lacks something."""
    module, change, _ = LACKING[lacking]
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "from agviz.after_import import after_import\n"
        "def change():\n"
        "    import torch\n"
        f"    {change}\n"
        f"after_import({module!r}, change)\n"
    )
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "engine")])
    left_out = {"AGVIZ", "AGVIZ_OUTPUT"}
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    return kept | {"PYTHONPATH": path, "AGVIZ_ENGINE": engine}


def run(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def is_the_sentence(text: str, lacking: str, end: str) -> bool:
    """Whether a line says which torch is there, what is in the way and what to do."""
    return (
        re.search(r"\btorch \d+\.\d+\S* does not fit agviz's engine", text) is not None
        and f"made for torch {WINDOW} (" in text
        and LACKING[lacking][2] in text
        and "install one of these or update agviz" in text
        and text.endswith(end)
    )


@pytest.mark.slow
@pytest.mark.parametrize("lacking", slow_but({"its layout"}, LACKING))
def test_agviz_run_lets_the_program_run(lacking: str, tmp_path: Path) -> None:
    env = environment(tmp_path, lacking)
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = run("-m", "agviz", "run", "train.py", "--epochs", "2", cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stdout) == (7, "ran ['--epochs', '2'] True\n")
    (line,) = ended.stderr.splitlines()
    assert is_the_sentence(line, lacking, "; the program goes on without being recorded")
    assert not list(tmp_path.glob("*.agviz*"))


@pytest.mark.slow
@pytest.mark.parametrize("lacking", slow_but({"its layout"}, ["a private name", "its layout"]))
def test_torchs_own_engine_is_observed_where_that_will_do(lacking: str, tmp_path: Path) -> None:
    env = environment(tmp_path, lacking, "auto")
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = run("-m", "agviz", "run", "-o", "t.agviz", "train.py", cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stdout) == (7, "ran [] True\n")
    why, outcome = ended.stderr.splitlines()
    assert "does not fit agviz's engine" in why
    assert LACKING[lacking][2] in why
    assert why.endswith("; torch's own engine is observed instead")
    assert outcome.startswith("agviz: recorded 1 backward pass in t.agviz; ")
    explained = run("-m", "agviz", "explain", "t.agviz", cwd=tmp_path, env=env)
    assert (explained.returncode, explained.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    slow_but({"--listen"}, ["--listen", "--check-forward", "--on=nonfinite", "--steps=:2"]),
)
def test_whatever_was_to_be_recorded(option: str, tmp_path: Path) -> None:
    env = environment(tmp_path, "a function")
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = run("-m", "agviz", "run", option, "train.py", cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stdout) == (7, "ran [] True\n")
    lines = [line for line in ended.stderr.splitlines() if "agviz attach" not in line]
    assert len(lines) == 1
    assert is_the_sentence(lines[0], "a function", "; the program goes on without being recorded")


@pytest.mark.slow
def test_the_doctor_and_a_verification_say_so(tmp_path: Path) -> None:
    env = environment(tmp_path, "its layout") | {"COLUMNS": "400"}
    (tmp_path / "train.py").write_text(PROGRAM.replace("sys.exit(7)", ""))
    doctor = run("-m", "agviz", "doctor", cwd=tmp_path, env=env)
    assert doctor.returncode == 1
    (line,) = (line for line in doctor.stdout.splitlines() if line.startswith("✗"))
    assert is_the_sentence(line.rstrip(), "its layout", "update agviz")
    assert f"pip install '{REQUIREMENT}'" in doctor.stdout
    verified = run("-m", "agviz", "verify", "train.py", cwd=tmp_path, env=env)
    assert verified.returncode == 1, "what could not be compared is not equal"
    assert verified.stdout.startswith("ran [] True\ntrain.py: nothing was compared\n?")
    (line,) = verified.stderr.splitlines()
    assert is_the_sentence(line, "its layout", "; the program goes on, and nothing is compared")


@pytest.mark.slow
def test_what_asks_for_the_engine_is_told_and_reading_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    assert run("-m", "agviz", "run", "-o", "t.agviz", "train.py", cwd=tmp_path).returncode == 7
    env = environment(tmp_path, "a function")
    (tmp_path / "ask.py").write_text(
        "import agviz, agviz_engine, torch\n"
        "loss = torch.ones(2, requires_grad=True).sum()\n"
        "def record():\n"
        "    with agviz.trace(): pass\n"
        "for ask in (lambda: agviz_engine.probe(), lambda: agviz_engine.native, record,\n"
        "            agviz.enable, agviz.set_trace, lambda: agviz.draw(loss),\n"
        "            lambda: agviz.why(None, loss)):\n"
        "    try:\n"
        "        ask()\n"
        "    except agviz_engine.UnsupportedTorchError as error:\n"
        "        print(error)\n"
        "loss.backward()\n"
        "print(agviz.load('t.agviz').explain(), agviz.disable())\n"
    )
    asked = run("ask.py", cwd=tmp_path, env=env)
    assert (asked.returncode, asked.stderr) == (0, "")
    *told, read = asked.stdout.splitlines()[:8]
    assert len(told) == 7
    assert all(is_the_sentence(line, "a function", "update agviz") for line in told)
    assert not is_the_sentence(read, "a function", "update agviz")
    for verb in (["summary"], ["explain"], ["why"], ["export", "--format=json", "-o", "t.json"]):
        read_by = run("-m", "agviz", verb[0], "t.agviz", *verb[1:], cwd=tmp_path, env=env)
        assert (read_by.returncode, read_by.stderr) == (0, ""), verb


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    [
        pytest.param("--agviz=on", marks=pytest.mark.slow),
        "--agviz=retain-on-failure",
        pytest.param("--agviz-verify", marks=pytest.mark.slow),
    ],
)
def test_tests_run_and_one_line_says_it(option: str, tmp_path: Path) -> None:
    env = environment(tmp_path, "a private name")
    (tmp_path / "test_it.py").write_text(TESTS)
    plugin = ["-p", "agviz.pytest_plugin"] if "agviz" not in _plugins() else []
    ended = run("-m", "pytest", "-q", *plugin, option, "test_it.py", cwd=tmp_path, env=env)
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    lines = [line for line in ended.stdout.splitlines() if "agviz's engine" in line]
    assert len(lines) == 1, ended.stdout
    assert is_the_sentence(lines[0], "a private name", "update agviz (2 tests)")
    assert re.match("! nothing was (recorded|compared): ", lines[0])
    assert "ran a backward pass" not in ended.stdout
    assert not (tmp_path / "agviz-results").exists()


def _plugins() -> set[str]:
    from importlib.metadata import entry_points

    return {each.name for each in entry_points(group="pytest11")}


ANOTHER = """
import sys
from agviz.after_import import after_import
def change():
    import torch
    torch.__version__ = "2.99.1+cpu"
after_import("torch", change)
"""


@pytest.mark.slow
def test_a_torch_that_fits_is_not_refused_for_its_number(tmp_path: Path) -> None:
    env = environment(tmp_path, "a function")
    (tmp_path / "sitecustomize.py").write_text(ANOTHER)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "test_it.py").write_text(TESTS)
    ended = run("-m", "agviz", "run", "train.py", cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stdout) == (7, "ran [] True\n")
    said, recorded = ended.stderr.splitlines()
    assert said == f"agviz: {remark('2.99.1+cpu')}"
    assert "torch 2.99.1+cpu is not one of 2.10 to 2.15, which" in said
    assert recorded.startswith("agviz: recorded 1 backward pass in ")
    doctor = run("-m", "agviz", "doctor", cwd=tmp_path, env=env | {"COLUMNS": "400"})
    assert doctor.returncode == 0
    (line,) = (line for line in doctor.stdout.splitlines() if line.startswith("!"))
    assert remark("2.99.1+cpu") in line
    tested = run("-m", "pytest", "-q", "--agviz=on", "test_it.py", cwd=tmp_path, env=env)
    assert [line for line in tested.stdout.splitlines() if "2.99.1" in line] == [
        f"! {remark('2.99.1+cpu')}"
    ]


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.15", "2.15.1a0+git12"])
def test_there_is_nothing_to_say_of_a_torch_that_it_is_tested_with(version: str) -> None:
    assert is_tested(version)
    assert remark(version) == ""


@pytest.mark.parametrize("version", ["2.1.0", "2.9.1", "2.16.0.dev1", "2.100", "3.10.0", "unknown"])
def test_any_other_is_named(version: str) -> None:
    assert not is_tested(version)
    assert version in remark(version)


def test_the_torch_that_is_there_fits_or_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Also one that is much older: nothing of it ends the process (`make test-torch`)."""
    env = environment(tmp_path, "a function")
    (tmp_path / "sitecustomize.py").unlink()
    (tmp_path / "train.py").write_text(PROGRAM)
    ended = run("-X", "faulthandler", "-m", "agviz", "run", "train.py", cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stdout) == (7, "ran [] True\n"), ended.stderr
    *said, last = ended.stderr.splitlines()
    doctor = run("-m", "agviz", "doctor", cwd=tmp_path, env=env | {"COLUMNS": "400"})
    if last.startswith("agviz: recorded 1 backward pass in "):
        assert said == [f"agviz: {text}" for text in [remark(version("torch"))] if text]
        assert (doctor.returncode, "agviz's serves" in doctor.stdout) == (0, True)
    else:
        assert not is_tested(version("torch"))
        assert not said
        assert re.fullmatch(
            r"agviz: torch \S+ does not fit agviz's engine, .* \(.*\); install one of these or"
            r" update agviz; the program goes on without being recorded",
            last,
        )
        assert (doctor.returncode, "torch's own serves" in doctor.stdout) == (1, True)


EXPERIMENT = """
import sys, torch
from agviz_engine import torch_layout
from agviz_engine.errors import UnsupportedTorchError
where, value = sys.argv[1], int(sys.argv[2])
if where == "node":
    torch_layout.node_base.__defaults__ = (value,)
else:
    setattr(torch_layout, where, value)
experiments = (torch_layout.calibrate_node, torch_layout.python_hook_vtables,
               torch_layout.calibrate_tensor, torch_layout.calibrate_metadata)
for each in (torch_layout._copy_slices, *experiments):
    each.cache_clear()
for experiment in (torch_layout._pointer, *experiments):
    try:
        experiment()
    except UnsupportedTorchError as error:
        assert "does not fit" in str(error)
    else:
        print(experiment.__name__)
print("alive")
"""


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("where", "value"),
    [
        # A tensor's object has its reference count, its type, and flags where the pointer was.
        *(("POINTER", word) for word in (0, 1, 3, 4)),
        *(("node", byte) for byte in (0, 8, 24, 32)),
        ("_LOWEST_HEAP_ADDRESS", 0),
        ("_VTABLE_HEADER", -(10**6)),
    ],
)
def test_an_experiment_follows_no_word_that_is_no_pointer(
    where: str, value: int, tmp_path: Path
) -> None:
    env = environment(tmp_path, "a function")
    (tmp_path / "sitecustomize.py").unlink()
    command = [sys.executable, "-c", EXPERIMENT, where, str(value)]
    ended = python_process.run(command, cwd=tmp_path, env=env)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert ended.stdout.endswith("alive\n")
