"""``agviz check --ranks`` on programs of two ranks: which end up with other gradients than one.

Whether the planted programs are wrong is decided by torch alone, before agviz is asked.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz.analysis.outcome import Outcome
from agviz.check.ranks.together import TogetherReport, read_together
from agviz.errors import AgvizError
from tests import python_process
from tests.json_documents import hold
from tests.planted import ranks, ranks_unseen
from tests.planted.ranks import RankProgram
from tests.rank_pairs import RANKS, ROOT, in_pairs
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

CHECK = "check --of-ranks notes train.py"
WRONG = ranks.WRONG | ranks_unseen.WRONG
RIGHT = ranks.RIGHT | ranks_unseen.RIGHT


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
    """Whether all ranks gave the optimizer what one process gets; torch alone says so."""
    names: dict[str, Any] = {}
    exec(program.text_of_one, names)  # noqa: S102 - a program of the tests
    alone = torch.cat([each.grad.reshape(-1) for each in names["model"].parameters()])
    for rank in range(RANKS):
        gradients = torch.load(folder / f"gradients.{rank}")
        got = torch.cat([each.reshape(-1) for each in gradients])
        if float((got - alone).norm()) > SAME * float(alone.norm()):
            return False
    return True


def agviz(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "150"}
    command = [sys.executable, "-m", "agviz", *arguments]
    return python_process.run(command, cwd=cwd, env=environment, timeout=240)


def checked(program: RankProgram, folder: Path) -> TogetherReport:
    """What is found of a program, which has run without agviz as well where it is to be judged."""
    (folder / "train.py").write_text(program.text, encoding="utf-8")
    (folder / "plain.py").write_text(SAVES + program.text, encoding="utf-8")
    (folder / "notes").mkdir()
    commands = [CHECK, "plain.py"] if program.one else [CHECK]
    for ended in itertools.chain.from_iterable(in_pairs(folder, *commands)):
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_together(folder / "notes", RANKS)


def said(report: TogetherReport) -> str:
    return "\n".join(f"{one.heading} {one.line} {one.paragraph}" for one in report.verdicts)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("name", slow_but({"no_sync_never_ends", "loss_is_a_sum"}, WRONG))
def test_gradients_that_are_others_than_those_of_one_process(name: str, tmp_path: Path) -> None:
    program: RankProgram = WRONG[name]
    report = checked(program, tmp_path)
    assert not program.one or not are_those_of_one(program, tmp_path)
    first = report.verdicts[0]
    assert report.outcome is Outcome.FOUND, said(report)
    text = f"{first.heading} {first.paragraph}"
    assert all(word in text for word in program.words), said(report)
    if program.line:
        assert first.line.startswith(f"train.py:{program.line} "), said(report)
    assert len(text.split()) <= 120
    assert len([one for one in report.verdicts if one.is_found]) == 1, said(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"accumulation_that_syncs"}, RIGHT))
def test_gradients_that_are_those_of_one_process(name: str, tmp_path: Path) -> None:
    program: RankProgram = RIGHT[name]
    report = checked(program, tmp_path)
    assert not program.one or are_those_of_one(program, tmp_path)
    assert report.outcome is Outcome.NOTHING_UNUSUAL, said(report)
    assert report.ranks == RANKS


STAYS = """
from torch import nn
model = DDP(nn.Sequential(network(last=4), nn.Dropout(0.3), nn.Linear(4, 1)))
model.module[2].weight.register_hook(lambda gradient: gradient * 0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for number, (x, y) in enumerate(loader(features, targets)):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()
print([each.double().sum().item().hex() for each in model.parameters()], torch.rand(1))
hooks = [each._backward_hooks for each in model.parameters()]
print([None if each is None else len(each) for each in hooks])
"""


@pytest.mark.slow
def test_a_program_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(RankProgram(STAYS).text, encoding="utf-8")
    (tmp_path / "notes").mkdir()
    plain, checked = in_pairs(tmp_path, "plain.py", CHECK.replace("train", "plain"))
    assert [one.stdout for one in checked] == [one.stdout for one in plain]
    assert all("[None, None, None, None, 1, None]" in one.stdout for one in checked)
    assert [one.stderr for one in checked] == [one.stderr for one in plain]


@pytest.mark.slow
def test_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    program = WRONG["loss_is_a_sum"]
    (tmp_path / "train.py").write_text(f"{program.text}print('printed')\n", encoding="utf-8")
    ended = agviz("check", "--ranks", "2", "--json", "train.py", cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    report = hold(ended.stdout, "check")
    assert (report["outcome"], report["ranks"], report["not_ranks"]) == ("found", 2, None)
    assert report["verdicts"][0]["line"].startswith(f"train.py:{program.line} ")
    assert ended.stderr.count("printed") == RANKS


@pytest.mark.slow
def test_a_rank_that_fails(tmp_path: Path) -> None:
    text = ranks.RIGHT["mean_and_sampler"].text
    text = text.replace("dist.barrier()", "if rank: raise SystemExit('too hot')")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    ended = agviz("check", "--ranks", "2", "train.py", cwd=tmp_path)
    assert ended.returncode == 1
    assert "too hot" in ended.stderr
    assert "The script failed" in ended.stdout
    assert "? the program failed; nothing unusual" in ended.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ranks", "1", "train.py"], "one rank has no other to be compared with"),
        (["--ranks", "0", "train.py"], "'0' is no number from 1 on"),
        (["--ranks", "2", "nothing.py"], "there is no script nothing.py"),
    ],
)
def test_calls_that_are_wrong(options: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n", encoding="utf-8")
    ended = agviz("check", *options, cwd=tmp_path)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert ended.stdout == ""


def test_notes_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "0.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(AgvizError, match="damaged"):
        read_together(tmp_path, RANKS)


def test_ranks_that_left_nothing(tmp_path: Path) -> None:
    report = read_together(tmp_path, RANKS)
    assert report.outcome is Outcome.CANT_TELL
    assert report.failed
    assert "ranks 0 and 1 did not come to the end" in said(report)
