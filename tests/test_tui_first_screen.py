"""The first screen of real recordings says what happened, in a real terminal, without a key.

The oracle is plain torch, or the rows of the file.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import sys
from typing import TYPE_CHECKING

import pytest

from tests import python_process
from tests.ranks_support import record_ranks
from tests.slow_cases import slow_but
from tests.test_tui_terminal import TMUX, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")

SIZES = [(80, 24), (120, 40), (200, 60)]

NAN = """\
import torch
from torch import nn

torch.manual_seed(0)


class Distance(nn.Module):
    def forward(self, x):
        return x.square().sum(-1).sqrt()


model = nn.ModuleDict({"embed": nn.Linear(8, 16), "distance": Distance()})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    a, b = torch.randn(16, 8), torch.randn(16, 8)
    if step == 30:
        b[3] = a[3]
    far = model["distance"](model["embed"](a) - model["embed"](b))
    loss = (far - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

GAN = """\
import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
judge = nn.functional.binary_cross_entropy_with_logits
real, fake = torch.ones(64, 1), torch.zeros(64, 1)
losses = []
for step in range(15):
    made = generator(torch.randn(64, 4))
    loss = judge(critic(torch.randn(64, 2) + 1), real) + judge(critic(made.detach()), fake)
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    losses.append(f"{loss:.4g}")
    loss = judge(critic(made), real)
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
    losses.append(f"{loss:.4g}")
print(losses[0], losses[-2], losses[1], losses[-1])
"""

THREADS = """\
import threading
import time

import torch
from torch import nn

barrier = threading.Barrier(2)


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        barrier.wait()  # until the other pass is here as well
        return gradient


def train(model):
    for _ in range(3):
        Both.apply(model(torch.randn(4, 4))).square().mean().backward()


workers = [threading.Thread(target=train, args=(nn.Linear(4, 4),)) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""

CHECKPOINTS = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4))
head = nn.Linear(32, 1)
for step in range(6):
    x = torch.randn(16, 32, requires_grad=True)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    head(x).square().mean().backward()
"""

RANKS = """\
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if rank == 2:
            time.sleep(0.2)
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 1)

    def forward(self, x):
        return self.second(Slow.apply(self.first(x)))


model = DistributedDataParallel(Model())
for step in range(5):
    model(torch.randn(16, 8)).square().mean().backward()
dist.destroy_process_group()
"""


def recorded(folder: Path, program: str) -> tuple[Path, str]:
    """The trace of a program that is run in a folder, and what it printed."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finished = python_process.run(command, cwd=folder, env=environment, check=True)
    return folder / "t.agviz", finished.stdout


@pytest.fixture(params=slow_but({str(SIZES[0])}, SIZES))
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Path, str], str]]:
    """Opens a trace; returns what is on the screen once it shows some words, on one line."""
    columns, rows = request.param
    terminal = Terminal(tmp_path / "tmux", columns, rows)

    def opened(path: Path, words: str) -> str:
        terminal.type(f"clear; {shlex.quote(sys.executable)} -m agviz view {path}", "Enter")
        screen = terminal.wait_for(lambda screen: words in flat(screen))
        assert max(map(len, screen.splitlines())) <= columns
        return flat(screen)

    yield opened
    terminal.run("kill-server")


def flat(screen: str) -> str:
    """The words of a screen, without borders and line ends."""
    return " ".join(re.sub(r"[│┃╭╮╰╯━─┏┓┗┛]", " ", screen).split())


@pytest.fixture(scope="module")
def nan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("nan"), NAN)[0]


@pytest.fixture(scope="module")
def gan(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return recorded(tmp_path_factory.mktemp("gan"), GAN)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("threads"), THREADS)[0]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("checkpoints"), CHECKPOINTS)[0]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(RANKS)
    return record_ranks(folder / "train.py", folder, size=4)


def test_nan_at_step_30(view: Callable[[Path, str], str], nan: Path) -> None:
    screen = view(nan, "the square root is 0")
    assert "40 backward passes · 10 not good" in screen
    assert "✗ norm at zero, in SqrtBackward0 of Distance, in backward pass 30" in screen
    line = next(n for n, text in enumerate(NAN.splitlines(), 1) if ".sqrt()" in text)
    assert f"train.py:{line} in forward return x.square().sum(-1).sqrt()" in screen
    assert re.search(r"! 30 backward \S+ NaN", screen)


@pytest.mark.slow
def test_a_gan(view: Callable[[Path, str], str], gan: tuple[Path, str]) -> None:
    path, printed = gan
    first, last, first_of_other, last_of_other = printed.split()[-4:]
    screen = view(path, "take turns")
    assert "✓ nothing unusual in 30 backward passes" in screen
    called = [n for n, text in enumerate(GAN.splitlines(), 1) if "backward()" in text]
    assert f"at train.py:{called[0]} in <module>, loss {first} in the first and {last}" in screen
    other = f"train.py:{called[1]} in <module>, loss {first_of_other} in the first"
    assert f"{other} and {last_of_other} in the last" in screen


def test_two_threads(view: Callable[[Path, str], str], threads: Path) -> None:
    with sqlite3.connect(threads) as database:
        callers = sorted({row[0] for row in database.execute("SELECT thread FROM graph_task")})
    screen = view(threads, "They were called on 2 threads")
    one, other = callers
    assert f"(3 on T{one}, 3 on T{other}); 6 of them ran while one of another thread" in screen
    assert f"backward T{one}" in screen
    assert f"backward T{other}" in screen


@pytest.mark.slow
def test_checkpoints(view: Callable[[Path, str], str], checkpoints: Path) -> None:
    screen = view(checkpoints, "begun inside them")
    assert "✓ nothing unusual in 6 backward passes (and 24 reentrant ones)" in screen
    assert "24 reentrant passes were begun inside them by CheckpointFunctionBackward." in screen


def test_four_ranks(view: Callable[[Path, str], str], ranks: Path) -> None:
    screen = view(ranks, "is a straggler")
    assert "✗ rank 2 is a straggler: the others wait" in screen
    assert "in SlowBackward of module" in screen
    line = next(n for n, text in enumerate(RANKS.splitlines(), 1) if "Slow.apply" in text)
    assert f"train.py:{line} in forward" in screen
    assert "waiting for rank 2" in screen
