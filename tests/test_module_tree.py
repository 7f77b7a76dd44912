"""The tree of modules: its figures are those of the trace and of torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.module_tree import ModuleReading, equal_runs

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.module_tree import ModuleFigures, ModuleTree


class Block(nn.Module):
    """A part of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.two = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.two(self.one(x)))


class Model(nn.Module):
    """A part of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.unused = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x * self.scale


def read(path: Path, seconds: float = math.inf) -> ModuleTree:
    with agviz.Trace.open(path) as trace:
        number = trace.graph_tasks[0].id
        reading = ModuleReading(trace, number)
        while not reading.read_on(trace, seconds):
            pass
        return reading.shown(trace, trace.event_count(number))


def found(tree: ModuleTree) -> dict[str, ModuleFigures]:
    return {each.path: each for top in tree.top for each in top.walk()}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Model()


@pytest.fixture(scope="module")
def path(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("modules") / "t.agviz"
    with agviz.trace(path=made):
        model(torch.randn(3, 6)).square().sum().backward()
    return made


def test_gradients_are_those_of_torch(model: nn.Module, path: Path) -> None:
    its = found(read(path))
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert its[name].gradient is None
            assert its[name].missing == 1
        else:
            assert its[name].gradient == pytest.approx(float(parameter.grad.norm()), rel=1e-5)
    for name in ("blocks.1", "blocks.1.two", "blocks"):
        grads = [p.grad for p in model.get_submodule(name).parameters() if p.grad is not None]
        norm = float(torch.cat([grad.flatten() for grad in grads]).norm())
        assert its[name].gradient == pytest.approx(norm, rel=1e-5)
    assert (its["unused"].parameters, its["unused"].missing) == (2, 2)
    assert its["Model"].missing == 2
    assert its["Model"].parameters == len(list(model.parameters()))


def test_figures_are_those_of_the_trace(path: Path) -> None:
    its = found(read(path))
    with agviz.Trace.open(path) as trace:
        number = trace.graph_tasks[0].id
        nodes, calls = trace.nodes(number), trace.module_calls(number)
        outputs = [row for row in trace.health(number) if row.role == "output"]
    for name in ("blocks.2", "blocks.2.one", "blocks"):
        own = [
            node
            for node in nodes
            if f"{node.module or (node.parameter or '').rpartition('.')[0]}.".startswith(f"{name}.")
        ]
        assert its[name].nodes == len(own)
        assert its[name].time_ns == sum(node.duration_ns or 0 for node in own)
        assert its[name].order == min(node.order or 0 for node in own)
        assert its[name].node == min(own, key=lambda node: node.order or 0).index
        of_own = {node.index for node in own}
        norms = [row.norm for row in outputs if row.node in of_own and row.norm is not None]
        assert its[name].norm == pytest.approx(max(norms))
    took = {call.module: (call.end_ns or 0) - call.begin_ns for call in calls}
    assert its["blocks.2"].forward_ns == took["blocks.2"]
    inside = took["blocks.2.one"] + took["blocks.2.two"]
    assert its["blocks.2"].own_forward_ns == took["blocks.2"] - inside
    assert its["blocks"].forward_ns == sum(took[f"blocks.{at}"] for at in range(4))
    assert sum(top.nodes for top in read(path).top) == len(nodes)


def test_the_tree_is_that_of_the_model(path: Path) -> None:
    tree = read(path)
    assert [top.path for top in tree.top] == ["Model", ""]
    root = tree.top[0]
    assert [child.path for child in root.children] == ["scale", "blocks", "unused"]
    runs = [len(run) for run in equal_runs(found(tree)["blocks"].children)]
    assert runs == [4]


def test_pieces_make_the_same_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(read(path))
    monkeypatch.setattr("agviz.analysis.pass_reading._PIECE", 3)
    pieces = found(read(path, 0))
    assert {name: vars(its) | {"children": 0} for name, its in pieces.items()} == {
        name: vars(its) | {"children": 0} for name, its in whole.items()
    }


def test_what_is_not_finite_is_marked_up_to_the_root(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with agviz.trace(path=path):
        y = model(torch.randn(2, 3))
        (y - y).abs().sum().sqrt().backward()
    its = found(read(path))
    with agviz.Trace.open(path) as trace:
        number = trace.graph_tasks[0].id
        first = trace.first_nonfinite(number)
        inside = [row for row in trace.nonfinite(number) if row.module == "0"]
    assert first is not None
    assert its[""].first_bad == (first.seq, first.node)
    assert its["0"].first_bad == (inside[0].seq, inside[0].node)
    assert math.isnan(its["0.weight"].gradient or 0)
    assert math.isnan(its["Sequential"].gradient or 0)


def test_without_values_only_what_was_not_reached_has_none(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    torch.manual_seed(0)
    model = Model()
    with agviz.trace(path=path, values="none"):
        model(torch.randn(3, 6)).sum().backward()
    its = found(read(path))
    assert its["unused.weight"].missing == 1
    assert its["blocks.0.one.weight"].missing is None
    assert its["Model"].missing is None


def test_without_modules_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        torch.ones(3, requires_grad=True).square().sum().backward()
    tree = read(path)
    assert not tree.has_modules
    assert [top.path for top in tree.top] == [""]
