"""The long runs of ``test_soak.py``, each in a process of its own, told as JSON.

``python -m tests.engine.soak interrupts reentrant devices`` runs one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agviz_engine import installed, torch_layout
from tests.engine.builders import Multiply, apply, custom, leaf, throw
from tests.engine.idle import engine_threads, leftovers
from tests.engine.oracle import same_value
from tests.engine.test_reentrant import _Nested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz_engine.device_policy import DevicePolicy

NATIVE = "native"
POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "device": lambda _: 0,
    "devices": lambda node: node._sequence_nr() % 3 - 1,
}
THREADS = 8
THREADS_SECONDS = 60
INTERRUPTS = 250
PASSES = 10_000
_WARM_UP = 500
"""Passes before the first measurement: caches are filled, the allocator has its arenas."""
_STUCK = 120
"""Seconds without progress after which every stack is shown and the process ends."""


def _engine(policy: str) -> contextlib.AbstractContextManager[Any]:
    if policy == NATIVE:
        return contextlib.nullcontext()
    return installed(device_policy=POLICIES[policy])


# -- threads ------------------------------------------------------------------------------------


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last((x + self.norm(self.first(x)).relu()).mean((2, 3)))
        return out


class _Doubled(nn.Module):
    """A custom Function with two outputs, behind one that calls backward in its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        product, total = apply(Multiply, apply(_Nested, self.linear(x), 2, 1), x)
        out: Tensor = product.sin() + total
        return out


class _Checkpointed(nn.Module):
    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        out: Tensor = checkpoint(self.second, h, use_reentrant=self.use_reentrant)
        return out


class _Hooked(nn.Module):
    """Tensor hooks, pre- and post-hooks, retain_grad, a hook behind accumulation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.weight.register_hook(lambda g: g * 3)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.linear(x).exp()
        h.retain_grad()
        h.register_hook(lambda g: g * 2)
        assert h.grad_fn is not None
        h.grad_fn.register_prehook(lambda g: (g[0] + 1,))
        h.grad_fn.register_hook(lambda given, _: (given[0] - 1,))
        return h.tanh()


_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), (5, 4)),
    "conv": (_Residual, (2, 3, 6, 6)),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 5, 8),
    ),
    "custom Function": (_Doubled, (3, 4)),
    "checkpoint": (lambda: _Checkpointed(use_reentrant=False), (3, 4)),
    "reentrant checkpoint": (lambda: _Checkpointed(use_reentrant=True), (3, 4)),
    "hooks": (_Hooked, (3, 4)),
}


def _training_step(model: nn.Module, shape: tuple[int, ...]) -> Callable[[], list[Any]]:
    """Gradients of one step, always the same ones."""
    inputs = torch.randn(shape)

    def step() -> list[Any]:
        model.zero_grad()
        x = inputs.clone().requires_grad_()
        model(x).pow(2).sum().backward()
        return [x.grad, *(parameter.grad for parameter in model.parameters())]

    return step


def _penalty_step() -> Callable[[], list[Any]]:
    """Double backward: the gradient of a gradient's norm."""
    model, inputs = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(3, 4)

    def step() -> list[Any]:
        x = inputs.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return list(torch.autograd.grad(slope.pow(2).sum(), [x, *model.parameters()][:4]))

    return step


def _steps() -> dict[str, Callable[[], list[Any]]]:
    steps = {kind: _training_step(make(), shape) for kind, (make, shape) in _MODELS.items()}
    return steps | {"double backward": _penalty_step()}


def threads(policy: str) -> dict[str, Any]:
    """Many threads train models of their own, each of several kinds, for some time."""
    mine = [_steps() for _ in range(THREADS)]
    expected = [{kind: step() for kind, step in steps.items()} for steps in mine]
    expected = [{k: [_copy(v) for v in found] for k, found in one.items()} for one in expected]
    until = time.monotonic() + THREADS_SECONDS
    done: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        draw = random.Random(number)
        while time.monotonic() < until:
            kind = draw.choice(list(mine[number]))
            try:
                same = same_value(mine[number][kind](), expected[number][kind])
                outcome = "" if same else f"{kind}: other gradients"
            except Exception as error:  # noqa: BLE001 - told by its name
                outcome = f"{kind}: {error!r}"
            with lock:
                done[kind] += 1
                if outcome:
                    wrong[outcome] += 1

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    with _engine(policy):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(THREADS_SECONDS + _STUCK)
        left = leftovers()
        stuck = sum(worker.is_alive() for worker in workers)
    return {
        "done": done,
        "wrong": wrong,
        "stuck": stuck,
        "leftovers": left,
        "threads": sorted(engine_threads()),
    }


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


# -- interrupts ---------------------------------------------------------------------------------

_SENDER = """
import os, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(int(sys.argv[1]), 2)
"""


def _chain(x: Tensor) -> Tensor:
    y = x
    for _ in range(60):
        y = (y * 1.01 + x).sin()
    return y


def _hooks_all_along(x: Tensor) -> Tensor:
    y = x
    for _ in range(20):
        y = (y * 1.01).sin()
        y.register_hook(lambda g: g * 1.5)
        assert y.grad_fn is not None
        y.grad_fn.register_prehook(lambda _: None)
        y.grad_fn.register_hook(lambda *_: None)
    return y


INTERRUPTED: dict[str, Callable[[Tensor], Tensor]] = {
    "chain": _chain,
    "hooks": _hooks_all_along,
    "reentrant": lambda x: apply(_Nested, x.exp(), 4, 1),
    "reentrant in the pool": lambda x: apply(_Nested, x.exp(), 45, 1),
}


def interrupts(policy: str, kind: str) -> dict[str, Any]:
    """SIGINT from another process at random moments of backward passes that never end."""
    x = torch.linspace(0.1, 1.0, 3).requires_grad_()
    y = INTERRUPTED[kind](x).sum()
    (expected,) = torch.autograd.grad(y, x, retain_graph=True)
    draw = random.Random(0)
    seen: Counter[str] = Counter()
    passes = 0

    def forever() -> None:
        nonlocal passes
        while True:
            y.backward(retain_graph=True)
            torch.autograd.grad(y, x, retain_graph=True)
            passes += 2

    with _engine(policy), _sender() as strike_in:
        y = INTERRUPTED[kind](x).sum()
        began = time.perf_counter()
        y.backward(retain_graph=True)
        longest = max(0.02, 4 * (time.perf_counter() - began))  # so that some pass comes through
        for _ in range(INTERRUPTS):
            faulthandler.dump_traceback_later(_STUCK, exit=True)
            try:
                strike_in(draw.random() * longest)
                forever()
            except KeyboardInterrupt:
                seen["KeyboardInterrupt"] += 1
            except Exception as error:  # noqa: BLE001 - told by its name
                seen[repr(error)] += 1
            seen.update(leftovers())
            x.grad = None
            (found,) = torch.autograd.grad(y, x, retain_graph=True)
            y.backward(retain_graph=True)
            if not (same_value(found, expected) and same_value(x.grad, expected)):
                seen["other gradients"] += 1
        seen.update(leftovers())
    return {"seen": seen, "passes": passes, "threads": sorted(engine_threads())}


@contextlib.contextmanager
def _sender() -> Iterator[Callable[[float], None]]:
    """A process that sends SIGINT to this one, so many seconds after it was asked to."""
    arguments = [sys.executable, "-c", _SENDER, str(os.getpid())]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
    ) as process:
        assert process.stdin is not None
        stdin = process.stdin
        yield lambda seconds: print(seconds, file=stdin)
        stdin.close()


# -- many passes --------------------------------------------------------------------------------


def _failing_node() -> list[Any]:
    y = custom(lambda _context, _gradient: throw(ValueError("stop")))(leaf(50).exp())
    with contextlib.suppress(ValueError):
        y.sum().backward()
    return []


def _failing_hook() -> list[Any]:
    y = leaf(50).exp()
    y.register_hook(lambda _: throw(ValueError("stop")))
    with contextlib.suppress(ValueError):
        (y * y).sum().backward()
    return []


def _refused() -> list[Any]:
    x, unused = leaf(50), leaf(3)
    with contextlib.suppress(RuntimeError):
        torch.autograd.grad(x.exp().sum(), [x, unused])
    return []


def _deep() -> list[Any]:
    x = leaf(50)
    apply(_Nested, x, 40, 1).sum().backward()
    return [x.grad]


def _resident() -> int:
    """Resident memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _measured() -> dict[str, int]:
    for remembered in (torch_layout._fitting, torch_layout._contiguous_blocks):
        remembered.clear()  # of what kinds there are is kept in bounds, and fills up slowly
    gc.collect()
    return {
        "threads": threading.active_count(),
        "native threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - names are enough
        "file descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names are enough
        "gc objects": len(gc.get_objects()),
        "allocated blocks": sys.getallocatedblocks(),
        "resident bytes": _resident(),
    }


def passes(policy: str) -> dict[str, Any]:
    """Thousands of calls of backward and grad of all kinds; what grew between begin and end."""
    steps = [*_steps().values(), _failing_node, _failing_hook, _refused, _deep]
    with _engine(policy):
        for number in range(_WARM_UP):
            steps[number % len(steps)]()
        before = _measured()
        for number in range(PASSES // 2):
            steps[number % len(steps)]()
        midway = _measured()
        for number in range(PASSES // 2):
            steps[number % len(steps)]()
        after = _measured()
        left = leftovers()
    grown = {what: after[what] - before[what] for what in after}
    memory = "resident bytes"  # malloc takes a large step now and then, a leak grows in both halves
    grown[memory] = 2 * min(midway[memory] - before[memory], after[memory] - midway[memory])
    return {
        "grown": grown,
        "leftovers": left,
        "threads": sorted(engine_threads()),
    }


def main() -> None:
    """Run what the command line names, and print what came of it."""
    faulthandler.enable()
    torch.set_num_threads(1)  # so that every sum is made in the same order, in whatever thread
    torch.manual_seed(0)
    name, *arguments = sys.argv[1:]
    runs: dict[str, Callable[..., dict[str, Any]]]
    runs = {"threads": threads, "interrupts": interrupts, "passes": passes}
    sys.stdout.write(json.dumps(runs[name](*arguments)))


if __name__ == "__main__":
    main()
