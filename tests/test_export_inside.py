"""Which pass is drawn of a program with several, and passes inside of a node of another one.

The programs are real ones; what torch and the trace say of them is the oracle.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.default_pass import default_pass, outermost
from agviz.cli.main import main
from agviz.export.draw import render_graph
from agviz.export.legend import heading
from agviz.export.palette import LIGHT
from agviz.graph.model import read_graph
from agviz.graph.picture import Cluster, compose
from agviz.graph.reading import read_view
from agviz.graph.view import By, GraphView
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz_engine.events import NodeStarted
from tests import svg_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")


class Block(nn.Module):
    """Layers, to be recomputed."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Checkpointed(nn.Module):
    """Two blocks that are recomputed in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a, self.b, self.last = nn.Linear(4, 4), Block(), Block(), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.a, self.first(x), use_reentrant=True)
        loss: Tensor = self.last(checkpoint(self.b, x, use_reentrant=True)).sum()
        return loss


def nested(depth: int) -> Tensor:
    """Checkpoints within checkpoints."""
    weight = nn.Parameter(torch.ones(4))

    def level(number: int) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            x = torch.tanh(x * weight)
            inner = level(number + 1)
            return torch.sin(checkpoint(inner, x, use_reentrant=True) if number < depth else x)

        return run

    x = torch.ones(4, requires_grad=True)
    loss: Tensor = checkpoint(level(1), x, use_reentrant=True).sum()
    return loss


class Twice(torch.autograd.Function):
    """Calls backward twice in its own backward, and once grad."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        with torch.enable_grad():
            for _ in range(2):
                y = torch.ones(3, requires_grad=True)
                (y * 2).sum().backward()
            z = torch.ones(3, requires_grad=True)
            torch.autograd.grad(z.exp().sum(), z)
        return gradients[0]


def twice() -> Tensor:
    loss: Tensor = Twice.apply(torch.ones(3, requires_grad=True)).sum()  # type: ignore[no-untyped-call]
    return loss


def failing() -> Tensor:
    def fails(x: Tensor) -> Tensor:
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda _: 1 / 0)
        return y.sin()

    x = torch.ones(3, requires_grad=True)
    loss: Tensor = checkpoint(fails, x, use_reentrant=True).sum()
    return loss


LOSSES: dict[str, Callable[[], Tensor]] = {
    "blocks": lambda: Checkpointed()(torch.ones(2, 4, requires_grad=True)),
    "nested": lambda: nested(4),
    "twice": twice,
    "failing": failing,
}


@pytest.fixture(params=LOSSES)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trace]:
    """A pass with others inside of it."""
    with agviz.trace(path=tmp_path / "t.agviz"):
        loss = LOSSES[request.param]()
        if request.param == "failing":
            with pytest.raises(ZeroDivisionError):
                loss.backward()
        else:
            loss.backward()
    with Trace.open(tmp_path / "t.agviz") as opened:
        yield opened


def frames(cluster: Cluster) -> Iterator[str]:
    """Paths of all frames within one."""
    for inner in cluster.clusters:
        yield inner.path or ""
        yield from frames(inner)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("format_", ["svg", "html", "dot"])
def test_every_node_of_every_pass_is_drawn_once(trace: Trace, tmp_path: Path, format_: str) -> None:
    tasks = trace.graph_tasks
    assert len(tasks) > 1
    rows = [(task.id, row.index) for task in tasks for row in trace.nodes(task.id)]
    graph = read_graph(trace)
    assert graph.size == len(rows)
    drawing = render_graph(trace, tmp_path / f"g.{format_}", format_)
    assert drawing.graph_tasks == tuple(task.id for task in tasks)
    assert drawing.nodes == sum(task.nodes for task in tasks) == len(rows)
    assert drawing.edges == sum(task.edges for task in tasks)
    written = drawing.path.read_text(encoding="utf-8").replace("&#45;", "-")
    pattern = r'ID="node-(\d+)(?:-use-\d+)?"' if format_ == "dot" else r'id="a_node-(\d+)'
    assert {int(index) for index in re.findall(pattern, written)} == set(range(len(rows)))


@pytest.mark.parametrize("by", By)
def test_a_pass_stands_in_a_frame_of_its_own_below_its_node(trace: Trace, by: By) -> None:
    graph = read_graph(trace)
    picture = compose(graph, 10_000, by=by, one_column=True)
    (column,) = picture.columns
    paths = list(frames(column))
    for number, inner in graph.inside.items():
        maker = trace.node(inner.task.parent, inner.task.parent_node)
        (path,) = [each for each in paths if each.endswith(f"pass {number} in {maker.short_name}")]
        members = {
            row.graph_task
            for item in picture.items
            if item.module is not None and f"{item.module}.".startswith(f"{path}.")
            for row in (node.row for node in item.nodes)
        }
        below = {each.id for each in trace.graph_tasks if each.parent == number}
        assert {number} <= members
        assert below <= members
        around = graph.inside.get(inner.task.parent)
        assert around is None or f"pass {around.task.id} in " in path
    calls = [edge for edge in graph.edges if edge.is_call]
    assert {edge.row.producer for edge in calls} == {x.maker for x in graph.inside.values()}
    assert len(calls) >= len(graph.inside)


def test_turns_are_told_apart_and_found(trace: Trace) -> None:
    graph = read_graph(trace)
    rows = [node.row for node in graph.nodes]
    rows += [leaf.row for node in graph.nodes for leaf in node.leaves if leaf.use == 1]
    turns = [graph.turn(row) for row in rows if row.order is not None]
    assert len(set(turns)) == len(turns)
    for node in graph.nodes:
        turn = graph.turn(node.row)
        if turn:
            part = read_view(trace, GraphView(around=turn, depth=0))
            assert [each.row.index for each in part.nodes] == [node.row.index]


def test_counts_agree_with_summary_and_the_report(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", str(trace.path), "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["graph_tasks"]["shown"]
    path = str(tmp_path / "g.svg")
    main(["export", str(trace.path), "--format", "svg", "-o", path, "--json"])
    said = json.loads(capsys.readouterr().out)
    assert sorted(said["graph_tasks"]) == sorted(task["graph_task"] for task in tasks)
    assert said["nodes"] == sum(task["nodes"] for task in tasks)
    assert said["edges"] == sum(task["edges"] for task in tasks)
    texts = " ".join(svg_reader.texts((tmp_path / "g.svg").read_bytes()))
    counted = re.search(
        r"([\d,]+) nodes?, ([\d,]+) edges? in (\d+) pass(?:es)? inside of it", texts
    )
    assert counted
    outer, *inner = sorted(tasks, key=lambda task: int(task["graph_task"]))
    assert int(counted[1]) == sum(task["nodes"] for task in inner)
    assert int(counted[2]) == sum(task["edges"] for task in inner)
    assert int(counted[3]) == len(inner)
    assert f"{outer['nodes']} nodes, {outer['edges']} edge" in texts


def test_a_moment_inside_of_a_pass_inside(trace: Trace) -> None:
    """At each event, each node is as far as the events up to it say."""
    outer = trace.graph_tasks[0]
    events = [event for event in trace.events() if event.graph_task >= 0]
    for at in events[:: max(1, len(events) // 25)]:
        graph = read_view(trace, GraphView(graph_task=outer.id, at=at.seq))
        started = {
            (event.graph_task, event.node)
            for event in events
            if event.seq <= at.seq and isinstance(event, NodeStarted)
        }
        rows = [node.row for node in graph.nodes]
        rows += [leaf.row for node in graph.nodes for leaf in node.leaves]
        for row in rows:
            inner = graph.inside.get(row.graph_task)
            node = row.index - (inner.first if inner is not None else 0)
            taken_up = row.status not in {NodeStatus.WAITING, NodeStatus.READY}
            assert taken_up == ((row.graph_task, node) in started) or (
                row.status is NodeStatus.SKIPPED
            )


def test_a_nan_that_begins_inside_is_marked_inside(tmp_path: Path) -> None:
    x = torch.zeros(3, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        (checkpoint(lambda x: (x * x).sqrt() * 0, x, use_reentrant=True).sum() * 2).backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = trace.first_nonfinite()
        assert found is not None
        outer, inner = (task.id for task in trace.graph_tasks)
        assert found.graph_task == inner
        assert default_pass(trace) == inner
        assert outermost(trace.graph_tasks, inner) == outer
        graph = read_graph(trace)
        assert graph.task.id == outer
        assert graph.first_nonfinite == graph.inside[inner].first + found.node
        assert "first non-finite" in heading(compose(graph), LIGHT)


def test_one_inside_is_drawn_alone_where_it_is_asked_for(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz"):
        nested(3).backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        outer, *inner = (task.id for task in trace.graph_tasks)
        graph = read_graph(trace, inner[0])
        assert [graph.task.id, *graph.inside] == inner
        assert f"pass {inner[0]}, inside of pass {outer}" in heading(compose(graph), LIGHT)


def test_what_a_comparison_leaves_out_is_said(tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.manual_seed(0)
        with agviz.trace(path=tmp_path / f"{name}.agviz"):
            nested(2).backward()
    with Trace.open(tmp_path / "a.agviz") as a, Trace.open(tmp_path / "b.agviz") as b:
        graph = read_view(a, GraphView(), b)
        assert not graph.inside
        assert any("2 passes inside of it" in note for note in graph.notes)


def compiled(backend: str) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(4, 4), nn.Tanh())))
    step = torch.compile(model, backend=backend)
    # What was compiled before is not traced again.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        for _ in range(2):
            step(torch.ones(2, 4)).sum().backward()


def compiled_and_grad() -> None:
    """The user's own passes are calls of grad, too, and smaller than what is traced."""
    torch._dynamo.reset()
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(4, 4), nn.Tanh())))
    loss = torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).sum()
    torch.autograd.grad(loss, list(model.parameters()))


def penalty() -> None:
    """A large grad() for a part of the loss, then a small backward()."""
    x = torch.ones(3, requires_grad=True)
    y = x
    for _ in range(30):
        y = y.sin()
    (slope,) = torch.autograd.grad(y.sum(), x)
    ((x * slope).sum() ** 2).backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("program", "traced", "chosen"),
    [
        (lambda: compiled("aot_eager"), [0], 1),
        pytest.param(
            lambda: compiled("inductor"),
            [0],
            1,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
            ],
        ),
        (compiled_and_grad, [0], 1),
        (penalty, [], 1),
    ],
    ids=["aot_eager", "inductor", "grad", "penalty"],
)
def test_the_pass_of_the_user_is_chosen_and_the_others_are_named(
    tmp_path: Path, program: Callable[[], None], traced: list[int], chosen: int
) -> None:
    with agviz.trace(path=tmp_path / "t.agviz"):
        program()
    with Trace.open(tmp_path / "t.agviz") as trace:
        tasks = trace.graph_tasks
        assert [task.traced for task in tasks] == [place in traced for place in range(len(tasks))]
        largest = max(tasks, key=lambda task: task.nodes)
        assert largest == tasks[0], "the size alone would choose another one"
        assert default_pass(trace) == tasks[chosen].id
        graph = read_graph(trace)
        assert graph.task == tasks[chosen]
        said = heading(compose(graph), LIGHT)
        for other in tasks:
            call = "backward()" if other.accumulate_grad else "grad()"
            named = f"pass {other.id} {call}, {other.nodes} node"
            assert (named in said) == (other != tasks[chosen])
        assert ("traced while compiling" in said) == bool(traced)


def test_a_pass_that_failed_is_chosen_and_then_one_with_a_nan(tmp_path: Path) -> None:
    large = torch.ones(2, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        large.sin().cos().exp().sum().backward()
        torch.zeros(2, requires_grad=True).sqrt().mul(0).sum().backward()
        with pytest.raises(ZeroDivisionError):
            failing().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert default_pass(trace) == trace.graph_tasks[2].id
        assert read_graph(trace).task == trace.graph_tasks[2]
    with agviz.trace(path=tmp_path / "u.agviz"):
        large.sin().cos().exp().sum().backward()
        torch.zeros(2, requires_grad=True).sqrt().mul(0).sum().backward()
    with Trace.open(tmp_path / "u.agviz") as trace:
        assert default_pass(trace) == trace.graph_tasks[1].id
