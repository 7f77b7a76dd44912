"""All ways to start several ranks: each leaves one trace, and the program can't tell."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main
from agviz.ranks.folder import Folder
from tests.rank_support import launch

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
for step in range(3):
    model(torch.ones(3, 4)).sum().backward()
dist.barrier()
if dist.get_rank() == 1:
    print(*sys.argv[1:], os.environ["OMP_NUM_THREADS"], model.module.weight.grad.sum().item())
dist.destroy_process_group()
if "bad" in sys.argv:
    sys.exit(3)
"""
SPAWNED = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(train, (sys.argv[1],), nprocs=2, start_method=sys.argv[2])
"""
ACCELERATED = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model, optimizer = torch.nn.Linear(4, 2), None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(3):
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(3, 4)).sum())
    optimizer.step()
accelerator.wait_for_everyone()
accelerator.end_training()
"""


def agviz(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    left_out = ("OMP_NUM_THREADS", "AGVIZ", "AGVIZ_OUTPUT")
    return subprocess.run(
        [sys.executable, "-m", "agviz", *arguments],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in left_out} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def passes(folder: Path, script: str = "train", ranks: int = 2) -> list[int]:
    """How many backward passes each rank has; the names of the traces are as they should be."""
    found = Folder.open(folder)
    assert (found.world_size, found.missing) == (ranks, [])
    for rank in found.ranks:
        name = rf"agviz-{script}\.rank{rank.number}\.{rank.meta.pid}\.agviz"
        assert re.fullmatch(name, rank.path.name)
    return [len(trace.graph_tasks) for _, trace in found.traces()]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_ranks_are_recorded_into_a_folder(program: Path) -> None:
    ended = agviz(program, "run", "--ranks", "2", "--values", "none", "train.py", "--ranks", "5")
    assert (ended.returncode, ended.stdout) == (0, "--ranks 5 1 72.0\n")
    says = "agviz: recorded 2 ranks in agviz-train.ranks; to read what they did: agviz explain"
    assert ended.stderr == f"{says} agviz-train.ranks\n"
    assert passes(program / "agviz-train.ranks") == [3, 3]
    with Folder.open(program / "agviz-train.ranks").trace(0) as trace:
        assert trace.meta.script == "train.py"
        assert trace.meta.argv == ("--ranks", "5")
        assert trace.meta.values == "none"


@pytest.mark.slow
def test_a_folder_of_earlier_ranks_is_left_alone(program: Path) -> None:
    earlier = program / "agviz-train.ranks"
    earlier.mkdir()
    (earlier / "agviz-train.rank0.1.agviz").write_text("of yesterday")
    ended = agviz(program, "run", "--ranks", "2", "train.py")
    assert "recorded 2 ranks in agviz-train.2.ranks;" in ended.stderr
    assert passes(program / "agviz-train.2.ranks") == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["option", "variable"])
def test_the_folder_can_be_named(program: Path, named: str) -> None:
    option = ("-o", "a/b") if named == "option" else ()
    variable = {} if named == "option" else {"AGVIZ_OUTPUT": "a/b"}
    ended = agviz(program, "run", *option, "--ranks=2", "-m", "train", **variable)
    assert "recorded 2 ranks in a/b;" in ended.stderr
    assert passes(program / "a/b") == [3, 3]


@pytest.mark.slow
def test_the_exit_code_is_that_of_torchrun(program: Path) -> None:
    bare = launch(program, 2, "train.py", "bad")
    ended = agviz(program, "run", "--ranks", "2", "train.py", "bad")
    assert ended.returncode == bare.returncode == 1
    assert "recorded 2 ranks in agviz-train.ranks;" in ended.stderr


@pytest.mark.slow
def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time, torch\n"
        "torch.ones(1, requires_grad=True).backward()\n"
        "print('there', flush=True)\n"
        "time.sleep(100)\n"
    )
    call = [sys.executable, "-m", "agviz", "run", "--ranks", "2", "train.py"]
    with subprocess.Popen(
        call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == ["there\n"] * 2
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) != 0
        assert "recorded 2 ranks in agviz-train.ranks;" in process.stderr.read()
    assert passes(tmp_path / "agviz-train.ranks") == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ranks", "2", "no.py"), "there is no script no.py"),
        (("--ranks", "0", "train.py"), "'0' is no number from 1 on"),
        (("--ranks", "2", "--keep", "3", "train.py"), "--keep is for a flight recorder"),
        (("--ranks", "2", "--live", "train.py"), "--live debugs one process"),
        (("--ranks", "2", "-o", "train.py", "train.py"), "can't be recorded into (File exists)"),
    ],
)
def test_a_wrong_call_starts_no_rank(
    program: Path,
    arguments: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(program)
    with contextlib.suppress(SystemExit):
        assert main(["run", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in program.iterdir()] == ["train.py"]


@pytest.mark.slow
def test_torchrun_of_agviz_run(program: Path) -> None:
    ended = launch(program, 2, "-m", "agviz", "run", "train.py", "a")
    assert (ended.returncode, ended.stdout) == (0, "a 1 72.0\n")
    assert passes(program) == [3, 3]
    said = sorted(line for line in ended.stderr.splitlines() if line.startswith("agviz: "))
    assert [line.partition(" recorded 3 backward passes in ")[0] for line in said] == [
        "agviz: rank 0:",
        "agviz: rank 1:",
    ]


@pytest.mark.slow
def test_torchrun_with_agviz_enabled(program: Path, enabled_python: str) -> None:
    ended = launch(program, 2, "train.py", python=enabled_python, environment={"AGVIZ": "1"})
    assert (ended.returncode, ended.stdout) == (0, "1 72.0\n")
    assert passes(program) == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_spawned_ranks(method: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    ended = agviz(tmp_path, "run", "train.py", str(tmp_path / "store"), method)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr.count("recorded 3 backward passes") == 2
    assert passes(tmp_path) == [3, 3]
    with Folder.open(tmp_path).trace(1) as trace:
        assert trace.meta.script == "train.py"


@pytest.mark.slow
def test_spawned_ranks_with_agviz_enabled(tmp_path: Path, enabled_python: str) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    ended = subprocess.run(
        [enabled_python, "train.py", str(tmp_path / "store"), "spawn"],
        cwd=tmp_path,
        env={**os.environ, "AGVIZ": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0
    assert passes(tmp_path) == [3, 3]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="without accelerate")
@pytest.mark.parametrize("way", ["module", "variable"])
def test_accelerate(way: str, tmp_path: Path, enabled_python: str) -> None:
    (tmp_path / "train.py").write_text(ACCELERATED)
    call = "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"
    what = ("--module", "agviz", "run", "train.py") if way == "module" else ("train.py",)
    ended = subprocess.run(
        [enabled_python, *call, *what],
        cwd=tmp_path,
        env={**os.environ, "ACCELERATE_USE_CPU": "1", "AGVIZ": "1" if way == "variable" else ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert passes(tmp_path) == [3, 3]
