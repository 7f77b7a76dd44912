"""What attention looks at: how masks are read in the text, and which targets are the next ones."""

from __future__ import annotations

import runpy
from textwrap import indent
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

LOOKS = """
import torch
from torch import nn
from torch.nn import functional as F

PAD = 0

def past(n):
    return torch.ones(n, n).tril().bool()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pad_id = nn.Embedding(9, 4), PAD
        self.look = nn.MultiheadAttention(4, 2, batch_first=True)
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 3)
        self.register_buffer("earlier", torch.tril(torch.ones(6, 6)) == 1)

    def forward(self, tokens, lengths):
        h, n = self.embed(tokens), tokens.shape[1]
        q, k, v = self.qkv(h).chunk(3, -1)
{call}
        return self.out(h).mean(1)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(2):
    tokens, lengths = torch.randint(1, 9, (5, 6)), torch.randint(2, 5, (5,))
    tokens[:, 4:] = PAD
    optimizer.zero_grad()
    F.cross_entropy(net(tokens, lengths), tokens[:, 0] % 3).backward()
    optimizer.step()
"""
MODULE = "h = h + torch.nan_to_num(self.look(h, h, h, attn_mask={})[0])"
KEYS = "h = h + torch.nan_to_num(self.look(h, h, h, {})[0])"
FUSED = "h = h + torch.nan_to_num(F.scaled_dot_product_attention(q, k, v, {}))"

COPIES = """
import torch
from torch import nn

class Names(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.read = nn.Embedding(9, 4), nn.GRU(4, 8, batch_first=True)
        self.out = nn.Linear(8, 9)

    def forward(self, letters):
        states, _ = self.read(self.embed(letters))
        return self.out(states)

names, net, criterion = torch.randint(9, (40, 7)), Names(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for batch in names.split(8):
    optimizer.zero_grad()
    {loss}.backward()
    optimizer.step()
"""


def asked(folder: Path, text: str) -> Verdict:
    (folder / "train.py").write_text(text, encoding="utf-8")
    torch.manual_seed(0)
    with agviz.trace(path=folder / "t.agviz"):
        runpy.run_path(str(folder / "train.py"))
    with Trace.open(folder / "t.agviz") as trace:
        return verdicts(trace)[0]


def looked(folder: Path, call: str) -> Verdict:
    return asked(folder, LOOKS.replace("{call}", indent(call, " " * 8)))


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize(
    "call",
    [
        MODULE.format("past(n)"),
        MODULE.format("self.earlier[:n, :n]"),
        MODULE.format("torch.arange(n)[:, None] >= torch.arange(n)"),
        "later = torch.ones(n, n).triu(1).bool()\n" + MODULE.format("later.logical_not()"),
        "mask = None\nif n > 1:\n    mask = past(n)\n" + MODULE.format("mask"),
        KEYS.format("tokens != PAD"),
        KEYS.format("tokens.ne(self.pad_id)"),
        KEYS.format("~(tokens == 0)"),
        KEYS.format("key_padding_mask=torch.arange(n)[None] < lengths[:, None]"),
        KEYS.format("key_padding_mask=lengths.unsqueeze(1) > torch.arange(n)"),
        "real = (torch.arange(n) < lengths[:, None]).long()\n" + KEYS.format("real.bool()"),
        FUSED.format("~past(n)"),
        FUSED.format("attn_mask=(tokens == PAD)[:, None]"),
        FUSED.format("torch.arange(n)[None, :] > torch.arange(n).view(-1, 1)"),
    ],
)
def test_masks_that_are_the_wrong_way_round_are_named(tmp_path: Path, call: str) -> None:
    found = looked(tmp_path, call)
    assert found.outcome is Outcome.FOUND
    assert "wrong way round" in found.heading
    assert found.source in call
    assert len(f"{found.heading} {found.paragraph}".split()) <= 70


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize(
    "call",
    [
        MODULE.format("~past(n)"),
        MODULE.format("torch.arange(n)[:, None] < torch.arange(n)"),
        "mask = past(n)\nmask = ~mask\n" + MODULE.format("mask"),
        MODULE.format("past(n) if n > 99 else ~past(n)"),
        MODULE.format("torch.ones(n, n).tril(-1).bool()"),
        MODULE.format("self.earlier[:n, :n].t()"),
        "mask = torch.zeros(n, n)\nmask[~past(n)] = -1e9\n" + MODULE.format("mask"),
        KEYS.format("tokens == PAD"),
        KEYS.format("key_padding_mask=torch.arange(n) >= lengths[:, None]"),
        KEYS.format("key_padding_mask=torch.arange(n) < (n - lengths)[:, None]"),
        "prompt_len = lengths - 1\n" + KEYS.format("torch.arange(n) < prompt_len[:, None]"),
        KEYS.format("(torch.arange(n) < (n // 2)).expand(5, n)"),
        "flags = (tokens == PAD).int()\n" + KEYS.format("flags != 0"),
        FUSED.format("past(n)"),
        FUSED.format("torch.ones(n, n).triu().bool()"),
        FUSED.format("(tokens != PAD)[:, None] & self.earlier"),
    ],
)
def test_those_that_are_right_or_not_known_are_left_alone(tmp_path: Path, call: str) -> None:
    found = looked(tmp_path, call)
    assert "wrong way round" not in found.heading
    assert "0 and 1" not in found.heading


def test_targets_that_are_what_is_given_may_be_meant(tmp_path: Path) -> None:
    found = asked(tmp_path, COPIES.format(loss="criterion(net(batch).transpose(1, 2), batch)"))
    assert found.outcome is Outcome.CANT_TELL
    assert "not the next ones" in found.heading
    assert len(f"{found.heading} {found.paragraph}".split()) <= 80


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize(
    "loss",
    [
        "criterion(net(batch[:, :-1]).transpose(1, 2), batch[:, 1:])",
        "criterion(net(batch)[:, :-1].transpose(1, 2), batch[:, 1:])",
        "criterion(net(batch.roll(1, 1)).transpose(1, 2), batch)",
        "criterion(net(batch).transpose(1, 2), batch.flip(1))",
    ],
)
def test_targets_that_follow_are_left_alone(tmp_path: Path, loss: str) -> None:
    assert asked(tmp_path, COPIES.format(loss=loss)).outcome is Outcome.NOTHING_UNUSUAL


def test_a_reader_of_both_directions_is_left_alone(tmp_path: Path) -> None:
    text = COPIES.format(loss="criterion(net(batch).transpose(1, 2), batch)")
    text = text.replace("8, batch_first=True", "4, batch_first=True, bidirectional=True")
    assert asked(tmp_path, text).outcome is Outcome.NOTHING_UNUSUAL
