"""``agviz check --ranks`` on programs of two ranks: which end up with other gradients than one.

Whether the planted programs are wrong is decided by torch alone, before agviz is asked.
"""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz.analysis.outcome import Outcome
from agviz.check.ranks.together import TogetherReport, read_together
from tests import python_process
from tests.planted import ranks, ranks_unseen
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    import subprocess

    from tests.planted.ranks import RankProgram

ROOT = Path(__file__).parent.parent
RANKS = 2
WRONG = ranks.WRONG | ranks_unseen.WRONG
RIGHT = ranks.RIGHT | ranks_unseen.RIGHT


def in_ranks(folder: Path, *command: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a command of Python in two ranks, with the variables of torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    world = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def run(rank: int) -> subprocess.CompletedProcess[str]:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        environment = os.environ | world | own | {"PYTHONPATH": path}
        return python_process.run([sys.executable, *command], cwd=folder, env=environment)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(run, range(RANKS)))


SAVES = """\
import os
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def save(optimizer, args, kwargs):
    if not os.path.exists(name := f"gradients.{os.environ['RANK']}"):
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        torch.save([each.grad for each in parameters], name)


register_optimizer_step_pre_hook(save)
"""
SAME = 1e-2
"""Of the norm of all gradients: float16 on the way is as close."""


def are_those_of_one(program: RankProgram, folder: Path) -> bool:
    """Whether all ranks give the optimizer what one process gets; torch alone says so."""
    (folder / "plain.py").write_text(SAVES + program.text, encoding="utf-8")
    for ended in in_ranks(folder, "plain.py"):
        assert ended.returncode == 0, ended.stderr
    names: dict[str, Any] = {}
    exec(program.text_of_one, names)  # noqa: S102 - a program of the tests
    alone = torch.cat([each.grad.reshape(-1) for each in names["model"].parameters()])
    for rank in range(RANKS):
        gradients = torch.load(folder / f"gradients.{rank}")
        got = torch.cat([each.reshape(-1) for each in gradients])
        if float((got - alone).norm()) > SAME * float(alone.norm()):
            return False
    return True


def checked(text: str, folder: Path) -> TogetherReport:
    (folder / "train.py").write_text(text, encoding="utf-8")
    notes = folder / "notes"
    notes.mkdir()
    for ended in in_ranks(folder, "-m", "agviz", "check", "--of-ranks", str(notes), "train.py"):
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_together(notes, RANKS)


def said(report: TogetherReport) -> str:
    return "\n".join(f"{one.heading} {one.line} {one.paragraph}" for one in report.verdicts)


@pytest.mark.parametrize("name", slow_but({"no_sync_never_ends", "loss_is_a_sum"}, WRONG))
def test_gradients_that_are_others_than_those_of_one_process(name: str, tmp_path: Path) -> None:
    program: RankProgram = WRONG[name]
    assert not program.one or not are_those_of_one(program, tmp_path)
    report = checked(program.text, tmp_path)
    first = report.verdicts[0]
    assert report.outcome is Outcome.FOUND, said(report)
    text = f"{first.heading} {first.paragraph}"
    assert all(word in text for word in program.words), said(report)
    if program.line:
        assert first.line.startswith(f"train.py:{program.line} "), said(report)
    assert len(text.split()) <= 120
    assert len([one for one in report.verdicts if one.is_found]) == 1, said(report)


@pytest.mark.parametrize("name", slow_but({"accumulation_that_syncs"}, RIGHT))
def test_gradients_that_are_those_of_one_process(name: str, tmp_path: Path) -> None:
    program: RankProgram = RIGHT[name]
    assert not program.one or are_those_of_one(program, tmp_path)
    report = checked(program.text, tmp_path)
    assert report.outcome is Outcome.NOTHING_UNUSUAL, said(report)
    assert report.ranks == RANKS
