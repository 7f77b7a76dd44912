"""``∅ all zero`` at a parameter, with what torch left in ``.grad`` as the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.export.facts import leaf_findings
from agviz.graph.model import read_graph
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Forward = Callable[[Tensor], Tensor]

X = torch.tensor([1.0, 2.0, 3.0])


def one_of_two(w: Tensor) -> Tensor:
    return (w * X).sum() + (w * 0.0).sum()


def one_of_three(w: Tensor) -> Tensor:
    return (w * 0.0).sum() + (w * X).sum() + (w * torch.zeros(3)).sum()


def none(w: Tensor) -> Tensor:
    return (w * X).sum() + w.sum()


def every(w: Tensor) -> Tensor:
    return (w * 0.0).sum() + (w * torch.zeros(3)).sum()


def alone(w: Tensor) -> Tensor:
    return (w * 0.0).sum()


def cancelling(w: Tensor) -> Tensor:
    return (w * X).sum() - (w * X).sum()


PROGRAMS = [one_of_two, one_of_three, none, every, alone, cancelling]


def said_zero(path: Path) -> list[bool]:
    """Of each line of the parameter, whether it is marked."""
    with Trace.open(path) as trace:
        graph = read_graph(trace)
        leaves = [leaf for node in graph.nodes for leaf in node.leaves]
        said = [[found.words for found in leaf_findings(graph, leaf)] for leaf in leaves]
    return ["∅ all zero" in words for words in said]


@pytest.mark.parametrize("already", [False, True], ids=["first", "accumulating"])
@pytest.mark.parametrize("forward", PROGRAMS, ids=lambda each: each.__name__)
def test_it_is_said_where_the_whole_gradient_is_zero(
    tmp_path: Path, forward: Forward, already: bool
) -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3) if already else None
    with agviz.trace(path=tmp_path / "t.agviz"):
        forward(parameter).backward()
    assert parameter.grad is not None
    is_zero = not parameter.grad.any().item()
    said = said_zero(tmp_path / "t.agviz")
    assert said
    assert said == [is_zero] * len(said)


@pytest.mark.parametrize("forward", PROGRAMS, ids=lambda each: each.__name__)
def test_it_is_said_where_grad_gives_zero(tmp_path: Path, forward: Forward) -> None:
    parameter = nn.Parameter(torch.ones(3))
    with agviz.trace(path=tmp_path / "t.agviz"):
        (gradient,) = torch.autograd.grad(forward(parameter), parameter)
    said = said_zero(tmp_path / "t.agviz")
    assert said == [not gradient.any().item()] * len(said)
