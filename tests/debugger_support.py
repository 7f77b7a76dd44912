"""Programs to debug in child processes, and what tests ask of them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agviz.debugger.launch import Debuggee
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.debugger.messages import Notice

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k not in {"AGVIZ_OUTPUT", "AGVIZ"}},
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")]),
}
SECONDS = 60.0

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
rate = 0.1  # the first optimizer of a process imports torch's compiler, which takes two seconds
for step in range(3):
    hidden = model(torch.randn(5, 4))
    loss = hidden.square().sum()
    model.zero_grad()
    loss.backward()
    for p in model.parameters(): p.grad is None or p.data.add_(p.grad, alpha=-rate)
torch.save([p.grad for p in model.parameters()], "result.pt")
print("done")
"""

PRODUCT = """
import torch
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
x = torch.tensor([4.0, 5.0, 6.0])
product = w * x
product.sum().backward()
torch.save([w.grad], "result.pt")
print("done")
"""

PLANTED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 4)
for step in range(3):
    value = model(torch.randn(2, 4))
    if step == 1:
        value = (value * 0).sqrt()  # cause
    value.sum().backward()
print("done")
"""

FOUR_DEVICES = """
import torch
from agviz_engine.api import engine
import sys
engine().device_policy = lambda node: node._sequence_nr() % 4
torch.manual_seed(0)
leaves = [torch.randint(-4, 5, (8, 8)).float().requires_grad_() for _ in range(8)]
total = 0
for round in range(6):  # sums of whole numbers, which are the same in any order
    total = sum((leaf.neg().abs() * leaf.square()).sum() for leaf in leaves) + total
total.backward()
torch.save([leaf.grad for leaf in leaves], "result.pt")
print("done")
"""

CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
outer = nn.Linear(3, 3)
x = torch.randn(2, 3, requires_grad=True)
out = outer(checkpoint(inner, x, use_reentrant=True))
out.sum().backward()
torch.save([x.grad, *(p.grad for p in [*inner.parameters(), *outer.parameters()])], "result.pt")
print("done")
"""

CHAIN = """
import torch
x = torch.ones(2, requires_grad=True)
value = x
for _ in range(20_000):
    value = value * 1.0001
value.sum().backward()
torch.save([x.grad], "result.pt")
print("done")
"""


def save(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def debug(
    folder: Path,
    text: str,
    *options: str,
    on_notice: Callable[[Notice], None] | None = None,
    arguments: Sequence[str] = (),
) -> Debuggee:
    """Start a program; it stands nowhere until that is asked for."""
    save(folder, text)
    given = ["-o", "trace.agviz", *options, "program.py", *arguments]
    return Debuggee(given, cwd=folder, env=ENVIRONMENT, on_notice=on_notice)


def finish(debuggee: Debuggee) -> str:
    """Wait until it has ended well; what it printed."""
    assert debuggee.exit_code() == 0, debuggee.stderr.read().decode()
    return debuggee.stdout.read().decode()


@functools.cache
def natively(text: str) -> list[Any]:
    """What the same program leaves behind in Python alone."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        save(place, text.replace("engine().device_policy =", "unused ="))
        subprocess.run(
            [sys.executable, "program.py"],
            cwd=place,
            env=ENVIRONMENT,
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        found: list[Any] = torch.load(place / "result.pt")
    return found


def result(folder: Path) -> list[Any]:
    """What a debugged program has left behind."""
    import torch

    found: list[Any] = torch.load(folder / "result.pt")
    return found


def trace_of(debuggee: Debuggee) -> Trace:
    """Its trace, as far as it has come."""
    return Trace.open(debuggee.client.hello.trace)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
