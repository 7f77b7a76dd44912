"""Programs while the native engine is observed, against ``python``: nothing of theirs differs."""

from __future__ import annotations

import gc
import re
import socket
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
from agviz.traces.reader import Trace
from agviz_engine import events
from tests import python_process
from tests.engine.builders import apply
from tests.test_cli_run import ENVIRONMENT, without_our_lines

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = """
import hashlib, os, torch
torch.set_num_threads(1)
torch.manual_seed(0)
found = hashlib.sha256()
def add(*values):
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        elif isinstance(value, (tuple, list)):
            add(*value)
            continue
        found.update(value if isinstance(value, bytes) else repr(value).encode())
def add_model(model):
    for name, parameter in model.named_parameters():
        add(name, parameter, parameter.grad)
"""
END = """
print(found.hexdigest())
"""

CHECKPOINTING = """
from torch.utils.checkpoint import checkpoint
blocks = torch.nn.ModuleList(
    torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.2), torch.nn.Tanh())
    for _ in range(4)
)
optimizer = torch.optim.SGD(blocks.parameters(), 0.1)
for reentrant in (True, False):
    for nested in (False, True):
        for _ in range(2):
            x = torch.randn(3, 6, requires_grad=True)
            for block in blocks:
                inner = lambda x, block=block: checkpoint(block, x, use_reentrant=reentrant) + x
                x = checkpoint(inner if nested else block, x, use_reentrant=reentrant)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            add(x, loss)
add_model(blocks)
"""
FUNCTORCH = """
from torch.func import functional_call, grad, hessian, jacrev, vmap
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
parameters = dict(model.named_parameters())
def loss(parameters, x):
    return functional_call(model, parameters, (x,)).pow(2).sum()
x = torch.randn(6, 3)
add(list(grad(loss)(parameters, x[0]).values()))
add(list(vmap(grad(loss), (None, 0))(parameters, x).values()))
add(jacrev(model)(x[0]), hessian(lambda x: model(x).sum())(x[0]))
vmap(lambda x: model(x).sum())(x).pow(2).sum().backward()
grad(lambda x: model(x).pow(3).sum())(x).pow(2).sum().backward()
y = model(x)
add(torch.autograd.grad(
    y, list(model.parameters()), torch.eye(12).reshape(12, 6, 2), is_grads_batched=True
))
add_model(model)
"""
THREADS = """
import threading
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
with torch.no_grad():  # sums of eighths have no order: how memory is aligned changes no digit
    for each in model.parameters():
        each.copy_((each * 8).round() / 8)
weight = torch.ones(4, requires_grad=True)
shared = weight * 2
inputs, gradients = (torch.randn(6, 5, 4) * 4).round() / 4, {}
def train(which):
    for turn in range(8):
        loss = model(inputs[which]).pow(2).sum()
        gradients[which, turn] = torch.autograd.grad(loss, list(model.parameters()))
        weight.sum().backward()
        (shared * 1).sum().backward(retain_graph=True)
threads = [threading.Thread(target=train, args=(which,)) for which in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for key in sorted(gradients):
    add(gradients[key])
add(weight.grad)
"""
FAILING = """
import warnings
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")
x = torch.ones(3, requires_grad=True)
x.exp().sum().backward(create_graph=True)  # warns
y = x.exp()
z = y * 2
y.add_(1)
try:
    z.sum().backward()
except RuntimeError as error:
    print(error)
print("before", flush=True)
Bad.apply(x * 2).sum().backward()
"""
LEAVING = """
import sys
x = torch.ones(3, requires_grad=True)
y = x * 2
y.register_hook(lambda gradient: sys.exit(3))
y.sum().backward()
"""
COMPILED = """
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
compiled = torch.compile(model, backend="aot_eager")
for turn in range(3):
    x = torch.randn(4, 8, requires_grad=True)
    y = compiled(x)
    y.square().mean().backward()
    add(y, x.grad)
@torch.compile(backend="aot_eager")
def step(x):
    loss = model(x).pow(2).sum()
    loss.backward()
    return loss
add(step(torch.randn(3, 8)), step(torch.randn(3, 8)))
add_model(model)
"""
DDP = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.seldom = torch.nn.Linear(8, 64), torch.nn.Linear(64, 64)
        self.last = torch.nn.Linear(64, 3)
    def forward(self, x, seldom):
        x = self.first(x).relu()
        return self.last(x + self.seldom(x) if seldom else x)
for options in ({"find_unused_parameters": True}, {"static_graph": True}):
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.01, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    torch.manual_seed(dist.get_rank())
    for turn in range(4):
        seldom = turn % 2 == 0 or "static_graph" in options
        if turn == 2:
            with model.no_sync():
                model(torch.randn(5, 8), seldom).square().mean().backward()
        loss = model(torch.randn(5, 8), seldom).square().mean()
        loss.backward()
        optimizer.step()
        add(loss)
    add_model(model)
dist.barrier()
dist.destroy_process_group()
"""
FSDP2 = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
blocks = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
          for _ in range(2)]
model = torch.nn.Sequential(*blocks)
for block in blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
torch.manual_seed(dist.get_rank())
for turn in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    add(loss)
for parameter in model.parameters():
    add(parameter.to_local())
dist.barrier()
dist.destroy_process_group()
"""
PIPELINE = """
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
halves = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU()), torch.nn.Linear(16, 2)]
stage = PipelineStage(halves[rank], rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(halves[rank].parameters(), 0.05)
for turn in range(3):
    x = torch.randn(8, 8)
    optimizer.zero_grad()
    losses = []
    schedule.step(x) if rank == 0 else schedule.step(target=x[:, :2], losses=losses)
    optimizer.step()
    add(*losses)
add_model(halves[rank])
dist.barrier()
dist.destroy_process_group()
"""


def run(
    folder: Path,
    program: str,
    options: list[str] | None,
    ranks: int = 1,
    engine: str = "native",
) -> list[list[str]]:
    """Run a program in as many processes, under ``agviz run`` unless ``options`` is None.

    Returns:
        Of each process: exit code, stdout, and stderr without our lines and times of day.
    """
    (folder / "program.py").write_text(BEGIN + program + END)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    distributed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}

    def of(rank: int) -> list[str]:
        ours = [] if options is None else ["-m", "agviz", "run", "-o", f"{rank}.agviz", *options]
        ended = python_process.run(
            [sys.executable, *ours, "program.py"],
            cwd=folder,
            env=ENVIRONMENT | distributed | {"RANK": str(rank), "AGVIZ_ENGINE": engine},
            timeout=240,
        )
        timeless = re.sub(r"\[W\d{4} [\d:.]+", "[W", without_our_lines(ended.stderr))
        return [str(ended.returncode), ended.stdout, timeless]

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(of, range(ranks)))


WARNING = """
import warnings
x = torch.randn(3, requires_grad=True)
for step in range(4):
    warnings.warn("said once, in the forward")
    y = x * 2
    y.register_hook(lambda gradient: warnings.warn("said once, in a hook"))
    y.sum().backward()
add(x.grad)
"""


def withdrawn(folder: Path) -> tuple[int, int]:
    """Of all traces: how many passes there are, and of how many the inference was withdrawn."""
    passes = 0
    times = 0
    for file in folder.glob("*.agviz"):
        with Trace.open(file) as trace:
            for graph_task in trace.graph_tasks:
                passes += 1
                times += bool(trace.seqs_where(graph_task.id, [events.InferenceWithdrawn]))
    return passes, times


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="defaults"),
        pytest.param(["--check-forward"], id="check-forward", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("program", "code", "passes"),
    [
        pytest.param(CHECKPOINTING, 0, 8, id="checkpointing", marks=pytest.mark.slow),
        pytest.param(FUNCTORCH, 0, 8, id="functorch", marks=pytest.mark.slow),
        pytest.param(THREADS, 0, 144, id="threads"),
        pytest.param(FAILING, 1, 3, id="failing"),
        pytest.param(LEAVING, 3, 1, id="leaving", marks=pytest.mark.slow),
        pytest.param(WARNING, 0, 4, id="warning", marks=pytest.mark.slow),
        pytest.param(COMPILED, 0, 3, id="compiled", marks=pytest.mark.slow),
    ],
)
def test_a_program_is_what_it_is_without(
    tmp_path: Path, program: str, code: int, passes: int, options: list[str]
) -> None:
    plain = run(tmp_path, program, None)
    assert plain[0][0] == str(code)
    assert run(tmp_path, program, options) == plain
    recorded, times = withdrawn(tmp_path)
    assert recorded >= passes
    assert not times


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize("engine", ["native", "exact"])
@pytest.mark.parametrize("options", [[], ["--check-forward"]], ids=["defaults", "check-forward"])
@pytest.mark.parametrize("program", [DDP, FSDP2, PIPELINE], ids=["ddp", "fsdp2", "pipeline"])
def test_ranks_are_what_they_are_without(
    tmp_path: Path, program: str, options: list[str], engine: str
) -> None:
    plain = run(tmp_path, program, None, ranks=2)
    assert [process[0] for process in plain] == ["0", "0"]
    assert run(tmp_path, program, options, ranks=2, engine=engine) == plain
    recorded, times = withdrawn(tmp_path)
    assert recorded >= 6
    assert not times


BROKEN = """
import torch
from agviz_engine.observe import observed_pass, observing_engine
count = 0
def breaking(kept):
    def broken(*args):
        global count
        count += 1
        if count == WHEN:
            raise TypeError("planted")
        return kept(*args)
    return broken
WHERE
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
print([p.grad.tolist() for p in model.parameters()])
"""
NODE = "observed_pass.ObservedPass._ended = breaking(observed_pass.ObservedPass._ended)"
WALK = "observing_engine.walk = breaking(observing_engine.walk)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "store",
    [
        pytest.param([], id="stream"),
        pytest.param(["--on", "nonfinite"], id="ring", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("where", "when"),
    [
        pytest.param(NODE, 18, id="node"),
        pytest.param(WALK, 2, id="walk", marks=pytest.mark.slow),
    ],
)
def test_observing_that_fails_ends_the_recording_not_the_program(
    tmp_path: Path, where: str, when: int, store: list[str]
) -> None:
    """The program runs on as it is, and no answer is sure of what was not observed."""
    program = tmp_path / "program.py"
    program.write_text(BROKEN.replace("WHERE", where).replace("WHEN", str(when)))
    run = [sys.executable, "-m", "agviz"]
    plain = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    recorded = python_process.run(
        [*run, "run", "--engine", "native", "-o", "t.agviz", *store, str(program)],
        cwd=tmp_path,
        check=True,
        env=ENVIRONMENT,
    )
    assert recorded.stdout == plain.stdout
    said = "agviz failed to observe on (TypeError: planted)"
    if store:
        assert not (tmp_path / "t.agviz").exists()
        assert f"recording stopped ({said})" in recorded.stderr
        return
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.stopped == said
        assert [task.status for task in trace.graph_tasks] == ["finished", "cut"]
    assert said in recorded.stderr
    asked = subprocess.run(
        [*run, "explain", "t.agviz"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2
    assert asked.stdout.startswith("? backward pass 1 was under way when the recording stopped")


class _Box:
    """What the context of a custom Function holds."""


def test_the_graph_of_a_pass_that_is_over_is_let_go_of(tmp_path: Path) -> None:
    boxes: list[weakref.ref[_Box]] = []

    class Holds(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.box = _Box()
            boxes.append(weakref.ref(ctx.box))
            return x * 2

        @staticmethod
        def backward(_ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    x = torch.ones(2, requires_grad=True)
    gc.disable()  # nothing of it is garbage
    try:
        with agviz.trace(path=tmp_path / "t.agviz", engine="native"):
            for _ in range(3):
                apply(Holds, x).sum().backward()
                assert [box() for box in boxes] == [None] * len(boxes)
    finally:
        gc.enable()
