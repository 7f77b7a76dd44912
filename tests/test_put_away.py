"""Where a program keeps what an earlier step left, by its text and in runs that torch refuses."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

from agviz.analysis.put_away import put_away
from agviz.traces.rows import Frame
from tests.answers_support import answered

if TYPE_CHECKING:
    from pathlib import Path


def _found(text: str) -> tuple[int, str, str] | None:
    """What is found between the lines that end with ``# made`` and ``# used``."""
    lines = text.splitlines()
    made, used = (
        next(n for n, line in enumerate(lines, 1) if line.endswith(mark))
        for mark in ("# made", "# used")
    )
    frames = (Frame("train.py", line, "<module>", False) for line in (made, used))
    found = put_away(lines, *frames)
    return None if found is None else (found.frame.line, found.name, found.container)


STEP = """
for step in range(3):
    loss = sum(value for value in kept)  # used
    loss.backward()
    h = net(x)  # made
    {}
"""


@pytest.mark.parametrize(
    "put",
    ["kept.append(h)", "kept.append((x, h))", "kept = [*kept, h][-2:]", "kept[step] = h"],
)
def test_the_line_that_puts_it_away(put: str) -> None:
    assert _found(STEP.format(put)) == (6, "h", "kept")


@pytest.mark.parametrize(
    "put",
    [
        "kept.append(h.detach())",  # without its graph
        "others.append(h)",  # the line does not read that one
        "kept.append(h); kept.insert(0, h)" + "\n    kept.extend([h])",  # several lines
    ],
)
def test_what_the_text_does_not_show_is_not_told(put: str) -> None:
    assert _found(STEP.format(put)) is None


def test_a_variable_that_is_read_itself_may_be_what_was_kept() -> None:
    text = "kept = []\nh = net(x)  # made\nkept.append(h)\nfor step in range(3):\n"
    assert _found(f"{text}    loss = h + kept[0]  # used\n") is None


def test_a_way_over_other_variables() -> None:
    text = "h = net(x)  # made\nmemory.append((h, 1))\nbatch = random.sample(memory, 6)\n"
    assert _found(f"{text}loss = sum(q for q, _ in batch)  # used\n") == (2, "h", "memory")


def test_values_in_a_replay_buffer(tmp_path: Path) -> None:
    def program() -> None:
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        memory = []
        for _ in range(4):
            value = net(torch.randn(3)).max()
            memory.append((value, 1.0))  # kept
        for _ in range(2):
            batch = random.sample(memory, 4)
            loss = torch.stack([(q - r) ** 2 for q, r in batch]).mean()
            loss.backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert found.frame is not None
    assert found.source.endswith("# kept")
    assert "value.detach()" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


class _Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(4, 4, bias=False))
        self.bias = nn.Parameter(torch.randn(4))

    @functools.lru_cache(maxsize=1)  # noqa: B019 # the fault
    def table(self) -> torch.Tensor:
        return torch.softmax(self.bias, 0) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def test_a_parametrization_that_is_cached_for_several_steps(tmp_path: Path) -> None:
    def program() -> None:
        net = _Kept()
        with parametrize.cached():  # around all steps
            for _ in range(2):
                net(torch.randn(2, 4)).sum().backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert found.source.endswith("# around all steps")
    assert "in each step" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


def test_a_function_whose_result_is_memoised(tmp_path: Path) -> None:
    def program() -> None:
        net = _Kept()
        for _ in range(2):
            (net(torch.randn(2, 4)) + net.table()).sum().backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert "lru_cache" in found.source
    assert "keeps what table() gave" in found.paragraph


def test_a_cache_that_keeps_nothing_of_it(tmp_path: Path) -> None:
    def program() -> None:
        net = _Kept()
        h = torch.tanh(net.bias)  # carried over
        with parametrize.cached():
            for _ in range(2):
                (net(torch.randn(2, 4)).detach() + h).square().sum().backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert "cached()" not in f"{found.source} {found.paragraph}"
