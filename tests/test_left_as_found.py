"""What is recorded leaves every module and class of torch as it found them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.python_process import run

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = '''
import sys, warnings
import torch, torch.distributed as dist
import torch._dynamo, torch.utils.checkpoint
import agviz

warnings.simplefilter("ignore")
store = dist.FileStore("store", 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)

def found():
    """Each attribute of a module or class of torch that is no plain value."""
    held = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "torch" or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, (int, float, str, dict, list, set, tuple)):
                continue
            held[name, attribute] = value
            if isinstance(value, type) and str(value.__module__).startswith("torch"):
                for own, method in list(vars(value).items()):
                    held[value.__module__, value.__qualname__, own] = method
    return held

def step():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    dist.barrier()
    dist.all_reduce(torch.ones(2))

step()
before = found()
assert len(before) > 50_000
for options in ({}, {"engine": "native"}, {"check_forward": True}, {"values": "full"}):
    with agviz.trace(path="t.agviz", **options):
        step()
    after = found()
    changed = [name for name in before if after.get(name) is not before[name]]
    changed.remove(("torch.utils.hooks", "RemovableHandle", "next_id"))  # a counter
    assert not changed, (options, changed)
    step()
print("as it was")
'''


def test_torch_is_as_it_was_once_a_recording_has_ended(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", PROGRAM], cwd=tmp_path)
    assert done.stdout == "as it was\n", done.stderr
