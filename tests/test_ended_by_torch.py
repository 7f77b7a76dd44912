"""Programs that an exception of torch ends, outside of backward or in it: what it means."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from tests import python_process
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

SCALED = """
import torch
torch.manual_seed(0)
model, other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
first, second = (torch.optim.SGD(each.parameters(), 0.1) for each in (model, other))
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
loss = model(torch.ones(2, 4)).mean()
scaler.scale(loss).backward()
"""
UNUSED = SCALED + "scaler.step(first)\nscaler.step(second)\n"
UNSCALED_TWICE = SCALED + "scaler.unscale_(first)\nscaler.unscale_(first)\n"
STEPPED_TWICE = SCALED + "scaler.step(first)\nscaler.step(first)\n"
HALF = SCALED + "model.half()\nfor p in model.parameters():\n    p.grad = p.detach().clone()\n"
HALF += "scaler.unscale_(first)\n"
NEVER_STEPPED = SCALED + "first.step()\nscaler.update()\n"
OF_WHAT_IS_COMPUTED = SCALED + "torch.optim.SGD([model.weight * 2], 0.1)\n"
OF_NOTHING = SCALED + "torch.optim.SGD((p for p in []), 0.1)\n"
SPARSE = SCALED + "table = torch.nn.Embedding(4, 2, sparse=True)\n"
SPARSE += "table(torch.tensor([1, 1])).sum().backward()\n"
SPARSE += "torch.optim.Adam(table.parameters()).step()\n"
ASSIGNED = SCALED + "model.weight = model.weight * 2\n"
COPIED = SCALED + "import copy\nmodel.last = loss\ncopy.deepcopy(model)\n"
ONE_SAMPLE = SCALED + "torch.nn.BatchNorm1d(4)(torch.ones(1, 4))\n"
OTHER_GROUPS = SCALED + "first.param_groups[0]['params'].pop()\n"
OTHER_GROUPS += "first.load_state_dict(second.state_dict())\n"
TWICE_IN_GROUPS = SCALED + "groups = [{'params': model.parameters()}] * 2\n"
TWICE_IN_GROUPS += "torch.optim.SGD([{'params': list(model.parameters())}, groups[0]], 0.1)\n"
TOO_OFTEN = SCALED + "cycle = torch.optim.lr_scheduler.OneCycleLR(first, 0.1, total_steps=2)\n"
TOO_OFTEN += "first.step()\nfor _ in range(3):\n    cycle.step()\n"
NO_GRADIENT = SCALED + "print(sum(p.grad.norm() for p in other.parameters()))\n"
BOUND_ANEW = """
import torch
w = torch.zeros(3, requires_grad=True)
for _ in range(2):
    (w - 1).square().sum().backward()
    w = w - 0.1 * w.grad
"""
A_NUMBER = SCALED + "loss = model(torch.ones(2, 4)).mean().item()\nloss.backward()\n"
A_METHOD = SCALED + "torch.optim.SGD(other.parameters, 0.1)\n"
OUTPUTS = SCALED + "output, labels = model(torch.ones(2, 4)), torch.tensor([1, 2])\n"
OUTPUTS += "F, nn = torch.nn.functional, torch.nn\n"
FROM_ONE = OUTPUTS + "F.cross_entropy(output.expand(2, 2), labels)\n"
NO_ROW = OUTPUTS + "nn.Embedding(2, 3)(labels)\n"
NO_PROBABILITIES = OUTPUTS + "F.binary_cross_entropy(output * 9 + 9, output.detach())\n"
FLOATS = OUTPUTS + "F.cross_entropy(output, labels.float())\n"
ONE_HOT = OUTPUTS + "F.cross_entropy(output, labels[:, None])\n"
COLUMN = OUTPUTS + "F.cross_entropy(output.expand(2, 2), labels[:, None])\n"
OTHER_SHAPE = OUTPUTS + "F.binary_cross_entropy_with_logits(output, labels.float())\n"
OTHER_SIZE = OUTPUTS + "F.binary_cross_entropy(output.sigmoid(), labels.float())\n"
INTEGERS = OUTPUTS + "loss = F.binary_cross_entropy_with_logits(output, labels[:, None])\n"
LOSS_MADE_OF = OUTPUTS + "nn.CrossEntropyLoss(output.expand(2, 2), labels)\n"
OF_NUMPY = OUTPUTS + "model(torch.ones(2, 4).double())\n"
A_MODULE = OUTPUTS + "torch.optim.SGD(model, 0.1)\n"
NOT_INITIALISED = OUTPUTS + "class Net(nn.Module):\n    def __init__(self):\n"
NOT_INITIALISED += "        self.layer = nn.Linear(2, 2)\nNet()\n"
NO_TENSORS = OUTPUTS + "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    a: int\n"
NO_TENSORS += "torch.save(Config(1), 'c.pt')\ntorch.load('c.pt')\n"
ANOTHER_WAY = """
import random, torch
from torch.utils.checkpoint import checkpoint
layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
ways = [True, False]
def block(x):
    return layers(x) if ways.pop(0) else x * 1
checkpoint(block, torch.ones(2, 4), use_reentrant=False).sum().backward()
"""
UNPACKED_TWICE = """
import torch
from torch.utils.checkpoint import checkpoint
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] * 0 + ctx.saved_tensors[0] * 0 + 2)
w = torch.ones(3, requires_grad=True)
checkpoint(lambda x: Twice.apply(x.sin()), w, use_reentrant=False).sum().backward()
"""
OF_TWO_DTYPES = SCALED + "target = torch.ones(2, 1).double()\n"
OF_TWO_DTYPES += "torch.nn.functional.huber_loss(model(torch.ones(2, 4)), target).backward()\n"
RENORMALISED = """
import torch
torch.manual_seed(0)
items = torch.nn.Embedding(5, 3, max_norm=0.1)
scores = torch.ones(2, 3) @ items.weight.T
(scores.sigmoid().sum() + (items.weight @ torch.ones(3, 1, requires_grad=True)).sum()
 + items(torch.tensor([0, 1])).sum()).backward()
"""


def _verdict(program: str, folder: Path, *options: str) -> Verdict:
    (folder / "train.py").write_text(program)
    call = ["-m", "agviz", "run", "-o", "t.agviz", *options, "train.py"]
    done = python_process.run([sys.executable, *call], cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 1
    with Trace.open(folder / "t.agviz") as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(12)
@pytest.mark.parametrize(
    ("program", "options", "heading", "words"),
    [
        (UNUSED, (), "none of whose parameters had a gradient", "took no part in the loss"),
        (UNSCALED_TWICE, (), "gradients were unscaled twice", "scaler.update() once"),
        (STEPPED_TWICE, (), "an optimizer twice without update()", "scaler.update() once"),
        (HALF, (), "given gradients in float16", "Keep them in float32"),
        (NEVER_STEPPED, (), "updated that has stepped no optimizer", "scaler.step(optimizer)"),
        (OF_WHAT_IS_COMPUTED, (), "given a tensor that is computed", "Make it a leaf"),
        (OF_NOTHING, (), "given no parameters", "its generator was used up"),
        (SPARSE, (), "a sparse gradient that it can't take", "SparseAdam"),
        (ASSIGNED, (), "assigned where a module has a parameter", "parametrize"),
        (COPIED, (), "copied by deepcopy", "x.detach()"),
        (ONE_SAMPLE, (), "given one value per channel", "drop_last=True"),
        (OTHER_GROUPS, (), "into one that holds other parameters", "the same groups"),
        (TWICE_IN_GROUPS, (), "given parameters twice", "belongs to one group"),
        (TOO_OFTEN, (), "more often than it was made for", "total_steps"),
        (NO_GRADIENT, (), ".grad is None where it is read", "if p.grad is not None"),
        (BOUND_ANEW, (), "no leaf was read", "w -= rate * w.grad"),
        (BOUND_ANEW, ("--check-forward",), "no leaf was read", "Tensor.sub gave"),
        (A_NUMBER, (), "backward was called on a number", ".item()"),
        (A_METHOD, (), "given a method in place of parameters", "model.parameters()"),
        (FROM_ONE, (), "a class for which there is no output", "count from 1"),
        (NO_ROW, (), "an index for which it has no row", "num_embeddings less 1"),
        (NO_PROBABILITIES, (), "no probabilities", "binary_cross_entropy_with_logits"),
        (FLOATS, (), "is not of integers", "as long()"),
        (ONE_HOT, (), "the shape of the outputs, and integers", "argmax(dim=1)"),
        (COLUMN, (), "a dimension too many", "squeeze(1)"),
        (OTHER_SHAPE, (), "another shape than the outputs", "cross_entropy"),
        (OTHER_SIZE, (), "another shape than the outputs", "squeeze(1)"),
        (INTEGERS, (), "the target of a loss is of integers", "float()"),
        (LOSS_MADE_OF, (), "where it takes its options", "criterion(output, target)"),
        (OF_NUMPY, (), "another dtype than its weights", ".float()"),
        (A_MODULE, (), "a module in place of parameters", "model.parameters()"),
        (NOT_INITIALISED, (), "before nn.Module was initialised", "super().__init__()"),
        (NO_TENSORS, (), "loads tensors only", "weights_only=False"),
        (ANOTHER_WAY, (), "CheckpointError", "ran otherwise when it was computed anew"),
        (OF_TWO_DTYPES, (), "failed in HuberLossBackward0", "target in float64"),
        (RENORMALISED, ("--check-forward",), "modified by an inplace operation", "max_norm"),
    ],
)
def test_what_torch_raised_means(
    program: str, options: tuple[str, ...], heading: str, words: str, tmp_path: Path
) -> None:
    found = _verdict(program, tmp_path, *options)
    assert heading in found.heading
    assert words in found.paragraph


@pytest.mark.parametrize(
    "line",
    [
        "torch.autograd.grad(first_loss, other.weight, allow_unused=True)[0].norm()",
        "other.weight.grad_fn.next_functions",
        "(first_loss, other).backward()",
    ],
)
def test_other_exceptions_are_not_taken_for_these(line: str, tmp_path: Path) -> None:
    program = SCALED + f"first_loss = model(torch.ones(2, 4)).mean()\n{line}\n"
    found = _verdict(program, tmp_path)
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading.startswith("the program ended with ")
    assert "; nothing unusual in " in found.heading


def test_no_tick_is_put_over_a_program_that_failed(tmp_path: Path) -> None:
    program = SCALED + "raise ValueError('\\x1b[1mtoo\\x1b[0m\\n' + 'many ' * 99)\n"
    found = _verdict(program, tmp_path)
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading == "the program ended with ValueError; nothing unusual in 1 backward pass"
    assert "The program ended with ValueError: too many many" in found.paragraph
    assert "… at train.py:" in found.paragraph


def test_a_program_that_was_told_to_end_did_not_fail(tmp_path: Path) -> None:
    found = _verdict(SCALED + "raise SystemExit(1)\n", tmp_path)
    assert found.outcome is Outcome.NOTHING_UNUSUAL


def test_what_is_unpacked_twice_did_not_run_otherwise(tmp_path: Path) -> None:
    found = _verdict(UNPACKED_TWICE, tmp_path)
    assert "already unpacked once" in found.paragraph
    assert "ran otherwise" not in found.paragraph
