"""Handlers of signals that train, wherever they strike: they do, and all goes on being recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agviz.traces.reader import Trace
from tests.test_alarms import _run

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import hashlib, signal, torch

torch.set_num_threads(1)

def made():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

def step(model, batch):
    model.zero_grad()
    model(batch).pow(2).mean().backward()
    with torch.no_grad():
        for each in model.parameters():
            each.sub_(each.grad * 1e-3)

def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))

struck, failed, busy = [], [], []

def strike(number, frame):
    if not busy:
        busy.append(True)
        try:
            with torch.enable_grad():
                step(other, small)
            struck.append(True)
        except Exception as error:
            failed.append(error)
        busy.clear()

batch, small = torch.ones(3, 4), torch.full((2, 4), 0.5)
model, other = made(), made()
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.0017)
steps = 0
while len(struck) + len(failed) < STRIKES:
    step(model, batch)
    steps += 1
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
same = []
for trained, count, given in (model, steps, batch), (other, len(struck), small):
    again = made()
    for _ in range(count):
        step(again, given)
    same.append(digest(again).digest() == digest(trained).digest())
print(failed[:1], same)
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    ("engine", "options", "strikes"),
    [
        ("exact", ("--check-forward",), 100),
        ("native", (), 100),
        pytest.param("exact", ("--check-forward",), 300, marks=pytest.mark.slow),
        pytest.param("native", (), 300, marks=pytest.mark.slow),
        pytest.param("exact", (), 300, marks=pytest.mark.slow),
        pytest.param("native", ("--check-forward",), 300, marks=pytest.mark.slow),
    ],
)
def test_a_handler_strikes_everywhere(
    engine: str, options: tuple[str, ...], strikes: int, tmp_path: Path
) -> None:
    program = PROGRAM.replace("STRIKES", str(strikes))
    done = _run(program, tmp_path, "--engine", engine, *options)
    assert done.stdout == "[] [True, True]\n", done.stderr
    with Trace.open(next(tmp_path.glob("*.agviz"))) as trace:
        assert trace.meta.stopped == ""
