"""Hooks that read a variable of their loop late are found; those that bind it, or share it, not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.steps.asking import found_in_steps
from agviz.analysis.steps.run import RunSteps
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from tests import python_process

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import functools
import torch
from torch import nn

RATES = [0.5, 0.9]
OPTIONS = {{"0": 0.5, "2": 0.5}}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

torch.manual_seed(0)
net, norms, constant = Net(), {{}}, 0.5
params = list(net.parameters())
groups = [{{"params": params, "rate": 0.5}}]

def backward():
    net.zero_grad()
    net(torch.randn(8, 4).requires_grad_()).square().mean().backward()

{}
for _ in range(4):
    backward()
"""
FOUND = {
    "loop": ["for i, p in enumerate(params):", "    p.register_hook(lambda g: g * 0.9**i)"],
    "comprehension": ["[p.register_hook(lambda g: g / n) for n, p in enumerate(params, 1)]"],
    "lambda with a name": [
        "for p, rate in zip(params, RATES * 2):",
        "    scale = lambda g: g * rate",
        "    p.register_hook(scale)",
    ],
    "function": [
        "for i, p in enumerate(params):",
        "    def scale(g, *more):",
        "        g = g * 2",
        "        return g * 0.9**i",
        "    p.register_hook(scale)",
    ],
    "in place": [
        "for i, p in enumerate(params):",
        "    def scale(p):",
        "        p.grad.mul_(0.9**i)",
        "    p.register_post_accumulate_grad_hook(scale)",
    ],
    "modules": [
        "for i, b in enumerate(net.blocks):",
        "    hook = lambda _, given, __: tuple(g * 0.9**i for g in given)",
        "    b.register_full_backward_hook(hook)",
    ],
    "an if chooses": [
        "for n, p in net.named_parameters():",
        "    rate = 0.9",
        "    if 'bias' in n:",
        "        rate = 0.1",
        "    p.register_hook(lambda g: g * rate)",
    ],
    "a search": [
        "for n, p in net.named_parameters():",
        "    for key in OPTIONS:",
        "        if key in n:",
        "            rate = OPTIONS[key]",
        "    p.register_hook(lambda g: g * rate)",
    ],
    "taken one by one": [
        "rates = iter([0.1, 0.2, 0.3, 0.4])",
        "for p in params:",
        "    rate = next(rates)",
        "    p.register_hook(lambda g: g * rate)",
    ],
    "layers around": [
        "for i, block in enumerate(net.blocks):",
        "    for p in block.parameters():",
        "        p.register_hook(lambda g: g * 0.9**i)",
    ],
    "a function within two loops": [
        "factor = 1.0",
        "for block in net.blocks:",
        "    factor *= 0.5",
        "    for p in block.parameters():",
        "        def scale(g):",
        "            return g * factor",
        "        p.register_hook(scale)",
    ],
    "a list around": [
        "for block, rate in zip(net.children(), RATES):",
        "    [p.register_hook(lambda g: g * rate) for p in params]",
    ],
    "within the training": [
        "for _ in range(2):",
        "    made = [p.register_hook(lambda g: g * 0.9**i) for i, p in enumerate(params)]",
        "    backward()",
        "    [each.remove() for each in made]",
    ],
}
LEFT_ALONE = {
    "default": ["for i, p in enumerate(params):", "    p.register_hook(lambda g, i=i: g * 0.9**i)"],
    "partial": [
        "for i, p in enumerate(params):",
        "    p.register_hook(functools.partial(lambda i, g: g * 0.9**i, i))",
    ],
    "own function": [
        "def register(p, i):",
        "    p.register_hook(lambda g: g * 0.9**i)",
        "for i, p in enumerate(params):",
        "    register(p, i)",
    ],
    "constant": [
        "for p in params:",
        "    rate = constant * 2",
        "    p.register_hook(lambda g: g * rate)",
    ],
    "constant of some": [
        "for n, p in net.named_parameters():",
        "    if 'bias' in n:",
        "        rate = constant",
        "        p.register_hook(lambda g: g * rate)",
    ],
    "device": ["for p in params:", "    p.register_hook(lambda g: g.to(p.device) * 0.5)"],
    "one turn": ["for i, p in enumerate(params[:1]):", "    p.register_hook(lambda g: g * 0.9**i)"],
    "one group": [
        "for group in groups:",
        "    for p in group['params']:",
        "        p.register_hook(lambda g: g * group['rate'])",
    ],
    "noted": [
        "for n, p in net.named_parameters():",
        "    def clip(g):",
        "        norms[n] = g.norm()",
        "        print(n)",
        "        return g.clamp(-0.1, 0.1)",
        "    p.register_hook(clip)",
    ],
    "looks only": [
        "for n, p in net.named_parameters():",
        "    p.register_hook(lambda g: norms.update({n: g}))",
    ],
    "called within the turn": [
        "for i in range(3):",
        "    made = [p.register_hook(lambda g: g * 0.9**i) for p in params]",
        "    backward()",
        "    [each.remove() for each in made]",
    ],
    "own variable": [
        "for i, p in enumerate(params):",
        "    def scale(g):",
        "        i = 2",
        "        return g * i",
        "    p.register_hook(scale)",
    ],
    "another may be meant": [
        "for i, p in enumerate(params[:1]):",
        "    p.register_hook(lambda g: g * 0.9**i)",
        "for p in params:",
        "    p.register_hook(lambda g: g * 2)",
    ],
}


def recorded(tmp_path: Path, lines: list[str]) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM.format("\n".join(lines)), encoding="utf-8")
    agviz = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    python_process.run(agviz, cwd=tmp_path, check=True)
    return tmp_path / "t.agviz"


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", FOUND)
def test_what_is_read_late_is_found_with_its_line(tmp_path: Path, name: str) -> None:
    with Trace.open(recorded(tmp_path, FOUND[name])) as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.heading.startswith("the hooks of this loop all use the last ")
    assert ".register_" in found.source
    assert len(found.paragraph.split()) <= 70


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_bound_or_shared_is_not(tmp_path: Path, name: str) -> None:
    with Trace.open(recorded(tmp_path, LEFT_ALONE[name])) as trace:
        assert not [
            each
            for each in found_in_steps(trace, RunSteps(trace.beginning))
            if each.kind == "late binding"
        ]


@pytest.mark.parametrize(
    ("lines", "remedy"),
    [
        (FOUND["loop"], "lambda g, i=i: g * 0.9 ** i."),
        (FOUND["function"], "def scale(g, *more, i=i)."),
        (FOUND["a list around"], "lambda g, rate=rate: g * rate."),
    ],
)
def test_the_remedy_binds_it(tmp_path: Path, lines: list[str], remedy: str) -> None:
    with Trace.open(recorded(tmp_path, lines)) as trace:
        assert verdicts(trace)[0].paragraph.endswith(remedy)
