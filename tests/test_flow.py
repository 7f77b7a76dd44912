"""A gradient followed to a parameter: its norms are torch's own, what is unusual is found."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.flow import FlowReading, FlowTarget, ParameterHistory
from agviz.analysis.outcome import Outcome
from agviz.analysis.ways import Ways
from agviz.errors import TraceError
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from agviz.analysis.flow import FollowedGradient

STEPS = 4


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE edge SET slot = 1 << 40",
        "UPDATE edge SET producer = producer + 99; UPDATE event SET node = node + 99",
    ],
)
def test_an_edge_that_can_not_be_is_refused(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        torch.ones(3, requires_grad=True).square().sum().backward()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.executescript(lie)
    with Trace.open(path) as trace, pytest.raises(TraceError, match="an edge "):
        Ways(trace, trace.graph_tasks[0].id).read_on(trace)


class Sigmoids(nn.Module):
    """One of the models."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(30))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return x


class Recurrent(nn.Module):
    """One of the models."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 8)
        nn.init.orthogonal_(self.hidden.weight, gain=1.8)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for _ in range(40):
            state = self.hidden(state) + x
        return state


class Residual(nn.Module):
    """One of the models."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Encoder(nn.Module):
    """One of the models."""

    def __init__(self, *, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(16, 20)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
        y: Tensor = self.head(x)
        return y


def images(model: nn.Module) -> Tensor:
    y = model(torch.randn(6, 4, 8, 8)).mean((2, 3))
    loss: Tensor = nn.functional.cross_entropy(y, torch.randint(4, (6,)))
    return loss


def sentences(model: nn.Module) -> Tensor:
    x = torch.randint(20, (4, 6))
    return nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())


def numbers(model: nn.Module) -> Tensor:
    loss: Tensor = model(torch.randn(5, 8)).square().mean()
    return loss


def summed(model: nn.Module) -> Tensor:
    loss: Tensor = model(torch.randn(5, 8)).mean()
    return loss


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]] = {
    "sigmoids": (Sigmoids, numbers),
    "recurrent": (Recurrent, summed),
    "resnet": (lambda: nn.Sequential(*(Residual() for _ in range(5))), images),
    "transformer": (Encoder, sentences),
    "reentrant": (lambda: Encoder(reentrant=True), sentences),
    "not reentrant": (lambda: Encoder(reentrant=False), sentences),
}
HEALTHY = ("resnet", "transformer", "reentrant", "not reentrant")


def steps(name: str, each: Callable[[nn.Module, Tensor], None]) -> None:
    """Go through some steps of a program, the same each time."""
    make, loss = MODELS[name]
    torch.manual_seed(0)
    model = make()
    for _ in range(STEPS):
        model.zero_grad()
        each(model, loss(model))


def recorded(name: str, path: Path, **options: Any) -> Path:
    with agviz.trace(path=path, **options):
        steps(name, lambda _, loss: loss.backward())
    return path


def followed(trace: agviz.Trace, parameter: str, place: int = 0) -> FollowedGradient:
    graph_task = [task.id for task in trace.graph_tasks if task.parent < 0][place]
    reading = FlowReading(trace, FlowTarget(graph_task, parameter))
    assert reading.read_on(trace)
    return reading.flow()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("flow")
    return {name: recorded(name, folder / f"{at}.agviz") for at, name in enumerate(MODELS)}


def natively(model: nn.Module, loss: Tensor) -> dict[str, list[list[float]]]:
    """By the name of a node, the norms of all that such nodes put out, in torch's own engine."""
    found: dict[str, list[list[float]]] = {}
    seen: set[Any] = set()
    left = [loss.grad_fn]

    def hook_on(name: str) -> Any:
        def hook(outputs: Any, _inputs: Any) -> None:
            norms = [float(each.double().norm()) for each in outputs if each is not None]
            found.setdefault(name, []).append(norms)

        return hook

    while left:
        node = left.pop()
        if node is not None and node not in seen and "AccumulateGrad" not in node.name():
            seen.add(node)
            node.register_hook(hook_on(node.name()))
            left += [each for each, _ in node.next_functions]
    loss.backward()
    return found


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("name", ["sigmoids", "recurrent", "resnet", "transformer"])
def test_norms_at_nodes_are_those_of_torch(name: str, traces: dict[str, Path]) -> None:
    native: list[dict[str, list[list[float]]]] = []
    steps(name, lambda model, loss: native.append(natively(model, loss)))
    with agviz.Trace.open(traces[name]) as trace:
        parameter = trace.parameters(trace.graph_tasks[0].id)[0].name
        for place in (0, STEPS - 1):
            flow = followed(trace, parameter, place)
            for step in flow.steps[:-1]:
                norms = [norm for each in native[place][step.name] for norm in each]
                assert any(step.norm == pytest.approx(norm, rel=1e-4) for norm in norms), step


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("name", MODELS)
def test_the_way_leads_from_the_loss_to_the_parameter(name: str, traces: dict[str, Path]) -> None:
    norms: list[dict[str, float]] = []

    def take(model: nn.Module, loss: Tensor) -> None:
        loss.backward()
        named = model.named_parameters()
        norms.append({key: float(p.grad.double().norm()) for key, p in named if p.grad is not None})

    steps(name, take)
    with agviz.Trace.open(traces[name]) as trace:
        for parameter, norm in norms[0].items():
            flow = followed(trace, parameter)
            assert flow.steps[0].came == 1.0
            assert flow.steps[0].order == 1
            assert flow.steps[-1].name == "AccumulateGrad"
            assert flow.steps[-1].norm == pytest.approx(norm, rel=1e-4)
        parameter = next(iter(norms[0]))
        history = ParameterHistory(trace, parameter)
        assert history.read_on(math.inf)
        assert history.norms() == pytest.approx([each[parameter] for each in norms], rel=1e-4)


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("name", HEALTHY)
def test_of_healthy_models_nothing_is_said(name: str, traces: dict[str, Path]) -> None:
    with agviz.Trace.open(traces[name]) as trace:
        for row in trace.parameters(trace.graph_tasks[0].id):
            finding = followed(trace, row.name).finding
            assert finding.outcome is Outcome.NOTHING_UNUSUAL, (row.name, finding)


def test_a_gradient_that_vanishes_is_found(traces: dict[str, Path]) -> None:
    with agviz.Trace.open(traces["sigmoids"]) as trace:
        first, last = (
            trace.parameters(trace.graph_tasks[0].id)[0].name,
            trace.parameters(trace.graph_tasks[0].id)[-2].name,
        )
        finding = followed(trace, first).finding
        assert finding.outcome is Outcome.FOUND
        assert "falls" in finding.sentence
        assert "30 SigmoidBackward0 at " in finding.sentence
        assert followed(trace, last).finding.outcome is Outcome.NOTHING_UNUSUAL


def test_a_gradient_that_explodes_is_found(traces: dict[str, Path]) -> None:
    with agviz.Trace.open(traces["recurrent"]) as trace:
        finding = followed(trace, "hidden.bias").finding
    assert finding.outcome is Outcome.FOUND
    assert "grows" in finding.sentence
    assert "AddmmBackward0 at " in finding.sentence


def test_ways_in_reentrant_passes_lead_through_the_pass_around(traces: dict[str, Path]) -> None:
    with agviz.Trace.open(traces["reentrant"]) as trace:
        flow = followed(trace, "layers.0.linear1.weight")
        tasks = list(dict.fromkeys(step.graph_task for step in flow.steps))
        inside = {task.id: task.parent for task in trace.graph_tasks}
    assert len(tasks) == 2
    assert inside[tasks[1]] == tasks[0]
    assert [step.name for step in flow.steps].count("CheckpointFunctionBackward") == 3


def test_what_is_not_finite_or_zero_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    with agviz.trace(path=path):
        y = model(torch.randn(2, 3))
        (y - y).abs().sum().sqrt().backward()
        (model(torch.randn(2, 3)).relu() * 0.0).sum().backward()
        model(torch.randn(2, 3)).detach().requires_grad_().sum().backward()
    with agviz.Trace.open(path) as trace:
        first, second, third = (followed(trace, "weight", place).finding for place in range(3))
        history = ParameterHistory(trace, "weight")
        history.read_on(math.inf)
    assert first.sentence.startswith("Not finite from #1 SqrtBackward0 at ")
    assert second.sentence.startswith("Zero from #2 MulBackward0 at ")
    assert "not in the graph of this pass" in third.sentence
    assert {each.outcome for each in (first, second, third)} == {Outcome.FOUND}
    assert [None if norm is None else math.isnan(norm) for norm in history.norms()] == [
        True,
        True,
        None,
    ]


def test_a_node_that_makes_what_is_not_finite_is_not_called_usual(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model = nn.Linear(3, 3)
    with agviz.trace(path=path):
        y = model(torch.randn(2, 3))
        (y - y).abs().sqrt().sum().backward()
    with agviz.Trace.open(path) as trace:
        task = trace.graph_tasks[0].id
        nodes = {trace.node(task, node).short_name: node for node in range(4)}
        found = {}
        for name, node in nodes.items():
            reading = FlowReading(trace, FlowTarget(task, node=node))
            reading.read_on(trace)
            found[name] = reading.flow().finding
    assert found["SumBackward0"].outcome is Outcome.NOTHING_UNUSUAL
    assert found["SqrtBackward0"].outcome is Outcome.FOUND
    assert found["SqrtBackward0"].sentence.startswith("What comes to #2 SqrtBackward0 at ")
    assert found["AbsBackward0"].sentence.startswith("Not finite from ")


def test_where_nothing_was_measured_nothing_is_said(tmp_path: Path) -> None:
    path = recorded("resnet", tmp_path / "t.agviz", values="none")
    with agviz.Trace.open(path) as trace:
        flow = followed(trace, "0.conv.weight")
    assert flow.finding.outcome is Outcome.CANT_TELL
    assert "--values none" in flow.finding.sentence


def test_other_ways_are_followed_in_turn(traces: dict[str, Path]) -> None:
    with agviz.Trace.open(traces["resnet"]) as trace:
        reading = FlowReading(trace, FlowTarget(trace.graph_tasks[0].id, "0.conv.weight"))
        reading.read_on(trace)
        whole = reading.flow()
        at = max(place for place, step in enumerate(whole.steps) if step.ways > 1)
        assert not reading.choose(0)
        assert reading.choose(at)
        reading.read_on(trace)
        other = reading.flow()
        place = len(other.steps) - (len(whole.steps) - at)
        assert other.steps[place].node == whole.steps[at].node
        assert other.steps[place].chosen == 1
        assert other.steps[place - 1].node != whole.steps[at - 1].node
        assert reading.choose(place)
        reading.read_on(trace)
        assert reading.flow() == whole


def test_pieces_make_the_same_whole(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with agviz.Trace.open(traces["transformer"]) as trace:
        whole = followed(trace, "embed.weight")
        monkeypatch.setattr("agviz.analysis.ways._PIECE", 50)
        reading = FlowReading(trace, FlowTarget(trace.graph_tasks[0].id, "embed.weight"))
        pieces = 1
        while not reading.read_on(trace, 0):
            pieces += 1
        assert pieces > 20
        assert reading.flow() == whole
        monkeypatch.setattr("agviz.analysis.flow._LONG", 3)
        steps = followed(trace, "embed.weight").steps
    assert steps == tuple(step._replace(order=None) for step in whole.steps)
