"""Where two recordings part. The oracle of first divergences is torch: hooks on its own nodes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.alignment import NOWHERE, Adjacency, align
from agviz.analysis.comparing import Tolerance
from agviz.analysis.diff import diff
from agviz.analysis.diff_rows import DivergenceKind, Level, PassDiff
from agviz.analysis.diff_words import TraceDiff, compared
from agviz.cli.main import main
from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.traces.rows import EdgeRow
from tests.engine.builders import Swallow, apply
from tests.graph_rows import Rows
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Gradients = tuple[Tensor | None, ...]
Seen = list[tuple[int, Gradients, Gradients]]
"""By node in a walk over the graph: sequence number, what it was given and what it put out."""


class Residual(nn.Module):
    """Two ways that meet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.second(torch.tanh(self.first(x)))
        normed: Tensor = self.norm(x + inside)
        return normed


class Recurrent(nn.Module):
    """The same layer again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 6)
        self.head = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for _ in range(4):
            state = self.cell(x, state)
        out: Tensor = self.head(state)
        return out


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6), nn.GELU()),
    "residual": lambda: nn.Sequential(Residual(), Residual()),
    "recurrent": Recurrent,
    "attention": lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0),
}


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


def batch(rows: int = 3) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))


def record(build: Callable[[], Tensor], path: Path, **options: Any) -> Tensor:
    """Record a forward and a backward pass; the graph stays."""
    with agviz.trace(path=path, provenance=False, **options):
        loss = build()
        loss.backward(retain_graph=True)
    return loss


def compare(a: Path, b: Path, **options: Any) -> TraceDiff:
    with Trace.open(a) as one, Trace.open(b) as other:
        return diff(one, other, **options)


def weighted(output: Tensor) -> Tensor:
    """A loss whose gradient is of a different size everywhere.

    That of a plain sum, behind a normalisation, is rounding: the same few numbers in other places,
    which no health tells apart.
    """
    return (output * torch.linspace(-1.0, 2.0, output.numel()).view_as(output)).sum()


def one(found: TraceDiff) -> PassDiff:
    (only,) = found.passes
    return only


def seen_by_hooks(loss: Tensor) -> Seen:
    """What torch's own engine gives to every node and gets from it, in order of a walk."""
    assert loss.grad_fn is not None
    walk: list[Any] = [loss.grad_fn]
    known = set(walk)
    for node in walk:
        for consumer, _ in node.next_functions:
            if consumer is not None and consumer not in known:
                known.add(consumer)
                walk.append(consumer)
    told: dict[int, tuple[Gradients, Gradients]] = {}

    def watch(place: int) -> Callable[[Gradients, Gradients], None]:
        def note(outputs: Gradients, inputs: Gradients) -> None:
            told[place] = copies(inputs), copies(outputs)

        return note

    handles = [node.register_hook(watch(place)) for place, node in enumerate(walk)]
    loss.backward(retain_graph=True)
    for handle in handles:
        handle.remove()
    return [(walk[place]._sequence_nr(), *told[place]) for place in sorted(told)]


def copies(gradients: Gradients) -> Gradients:
    return tuple(None if each is None else each.clone() for each in gradients)


def equal(a: Gradients, b: Gradients) -> bool:
    return len(a) == len(b) and all(
        (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


def first_by_hooks(a: Seen, b: Seen) -> set[tuple[int, int]]:
    """Nodes that put out something else though they were given the same, in both."""
    return {
        (number_a, number_b)
        for (number_a, given_a, out_a), (number_b, given_b, out_b) in zip(a, b, strict=True)
        if equal(given_a, given_b) and not equal(out_a, out_b)
    }


def first_told(found: TraceDiff) -> set[tuple[int | None, int | None]]:
    return {
        (each.a and each.a.sequence_nr, each.b and each.b.sequence_nr)  # type: ignore[misc]
        for each in one(found).first
    }


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("values", ["none", "health", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_program_twice(name: str, values: str, tmp_path: Path) -> None:
    for file in ("a", "b"):
        record(lambda: model(name)(batch()).pow(2).mean(), tmp_path / file, values=values)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.same
    assert found.first is None
    only = one(found)
    assert only.aligned == only.a.nodes == only.b.nodes
    assert (only.level, only.gradients > 0) == {
        "none": (Level.STRUCTURE, False),
        "health": (Level.HEALTH, True),
        "full": (Level.ELEMENTS, True),
    }[values]


PARAMETERS = [
    (name, place) for name in MODELS for place in range(len(list(model(name).parameters())))
]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "of",
    slow_but(
        {f"{name}-{place}" for name in MODELS for place in (0, 3)},
        PARAMETERS,
        lambda of: f"{of[0]}-{of[1]}",
    ),
)
def test_one_changed_weight(of: tuple[str, int], tmp_path: Path) -> None:
    name, parameter = of
    values = ("health", "full")[parameter % 2]

    def build(*, changed: bool) -> Tensor:
        built = model(name)
        if changed:
            with torch.no_grad():
                list(built.parameters())[parameter].mul_(1.5).add_(0.25)
        return weighted(built(batch()))

    seen = []
    for file, changed in (("a", False), ("b", True)):
        loss = record(lambda: build(changed=changed), tmp_path / file, values=values)  # noqa: B023
        seen.append(seen_by_hooks(loss))
    expected = first_by_hooks(*seen)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert first_told(found) == expected
    assert found.same == (not expected)
    if expected:
        assert found.first is not None
        divergence = found.first[1]
        assert divergence.node.order == min(each.node.order or 0 for each in one(found).first)
        assert divergence.kind is DivergenceKind.GRADIENT
        if values == "full":
            assert divergence.largest is not None
            assert divergence.largest > 0


def test_the_largest_difference_is_that_of_the_elements(tmp_path: Path) -> None:
    a, b = torch.randn(40), torch.randn(40)
    for file, factor in (("a", a), ("b", b)):
        x = torch.ones(40, requires_grad=True)
        record((x * factor).sum, tmp_path / file, values="full")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.first is not None
    assert found.first[1].largest == pytest.approx(float((a - b).abs().max()))


def test_only_elements_tell_gradients_apart_that_are_permuted(tmp_path: Path) -> None:
    for values, same in (("health", True), ("full", False)):
        for file, factor in (("a", [1.0, 2.0]), ("b", [2.0, 1.0])):
            x = torch.ones(2, requires_grad=True)
            record((x * torch.tensor(factor)).sum, tmp_path / file, values=values)
        found = compare(tmp_path / "a", tmp_path / "b")
        assert found.same is same
    assert found.first is not None
    assert found.first[1].facts == ("elements",)
    assert found.first[1].largest == 1.0
    assert "elements up to 1 apart" in str(found)


def test_what_there_was_no_room_for_is_compared_by_its_health(tmp_path: Path) -> None:
    for file in ("a", "b"):
        build = lambda: model("mlp")(batch()).sum()  # noqa: E731
        record(build, tmp_path / file, values="full", max_values_bytes=1600)
    only = one(compare(tmp_path / "a", tmp_path / "b"))
    assert only.same
    assert 0 < only.elements < only.gradients
    said = compared([only])
    assert f"the elements of {only.elements} gradients, and NaN" in said
    assert f"norm of {only.gradients - only.elements} other gradients." in said


def test_elements_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, factor in (("a", [1.0, 2.0]), ("b", [2.0, 1.0])):
        x = torch.ones(2, requires_grad=True)
        record((x * torch.tensor(factor)).sum, tmp_path / file, values="full")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert compare(tmp_path / "a", tmp_path / "a").same
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.first is not None
    assert (found.first[1].facts, found.first[1].largest) == (("elements",), None)
    assert compare(tmp_path / "a", tmp_path / "b", tolerance=Tolerance(atol=1e-9)).same


@pytest.mark.parametrize("values", ["health", "full"])
def test_a_tolerance(values: str, tmp_path: Path) -> None:
    for file, more in (("a", 0.0), ("b", 1e-4)):
        x = torch.ones(5, requires_grad=True)
        record((x * (3.0 + more)).sum, tmp_path / file, values=values)
    for tolerance, same in (
        (Tolerance(), False),
        (Tolerance(rtol=1e-3), True),
        (Tolerance(rtol=1e-6), False),
        (Tolerance(atol=1e-3), True),
        (Tolerance(atol=1e-5), False),
    ):
        assert compare(tmp_path / "a", tmp_path / "b", tolerance=tolerance).same is same
    for wrong in (Tolerance(rtol=-1.0), Tolerance(atol=float("nan"))):
        with pytest.raises(AgvizError, match="0 or more"):
            compare(tmp_path / "a", tmp_path / "b", tolerance=wrong)


def test_nan_is_never_within_a_tolerance(tmp_path: Path) -> None:
    for values in ("health", "full"):
        for file, factor in (("a", 1.0), ("b", float("nan"))):
            x = torch.ones(3, requires_grad=True)
            scaled = x * torch.tensor([1.0, factor, 2.0])
            record(scaled.sum, tmp_path / file, values=values)
        assert compare(tmp_path / "b", tmp_path / "b").same, "NaN is NaN where it was NaN"
        found = compare(tmp_path / "a", tmp_path / "b", tolerance=Tolerance(1e6, 1e6))
        assert found.first is not None
        assert "nan" in found.first[1].facts


SIZES = (4, 5, 5, 7, 3)
"""A norm of 5 has parameters of the same shape as the bias of the layer it displaces."""
INSERTED: dict[str, Callable[[int], list[nn.Module]]] = {
    "tanh": lambda _: [nn.Tanh()],
    "norm": lambda size: [nn.LayerNorm(size)],
    "linear": lambda size: [nn.Linear(size, size + 20), nn.ReLU(), nn.Linear(size + 20, size)],
}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("place", range(len(SIZES)))
@pytest.mark.parametrize("what", INSERTED)
def test_a_layer_in_between_leaves_the_others_aligned(
    what: str, place: int, numbered: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    blocks = [
        (f"block{number}", [nn.Linear(size, SIZES[number + 1]), nn.ReLU()])
        for number, size in enumerate(SIZES[:-1])
    ]
    longer = [*blocks[:place], ("new", INSERTED[what](SIZES[place])), *blocks[place:]]

    def stack(parts: Sequence[tuple[str, Sequence[nn.Module]]]) -> nn.Module:
        if numbered:
            return nn.Sequential(*(layer for _, layers in parts for layer in layers))
        whole = nn.Sequential()
        for name, layers in parts:
            whole.add_module(name, nn.Sequential(*layers))
        return whole

    x = torch.randn(2, SIZES[0])
    models = stack(blocks), stack(longer)
    for built, file in zip(models, ("a", "b"), strict=True):
        record(lambda: built(x).sum(), tmp_path / file)  # noqa: B023
    parameters = [dict(built.named_parameters()) for built in models]
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        nodes = [trace.nodes(trace.graph_tasks[0].id) for trace in (a, b)]
        graphs = [
            Adjacency(rows, trace.edges(rows[0].graph_task))
            for rows, trace in zip(nodes, (a, b), strict=True)
        ]
        for here, there in ((0, 1), (1, 0)):
            partners = align(graphs[here], graphs[there]).a_to_b
            found_nodes = [at for at in partners if at != NOWHERE]
            assert len(found_nodes) == len(nodes[0]), "each node of the smaller one is found"
            for left, at in zip(nodes[here], partners, strict=True):
                if at == NOWHERE:
                    continue
                right = nodes[there][at]
                assert left.name == right.name
                if left.is_leaf:
                    kept = parameters[here][left.parameter or ""]
                    assert kept is parameters[there][right.parameter or ""], "it is one object"
        found = diff(a, b)
        assert not one(found).only_in_a
        assert len(one(found).only_in_b) == len(graphs[1]) - len(graphs[0])


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("what", ["tanh", "exp", "sin"])
@pytest.mark.parametrize("place", range(7))
def test_an_operation_in_between_without_modules(place: int, what: str, tmp_path: Path) -> None:
    def build(more: int | None) -> Tensor:
        y = torch.full((3,), 0.5, requires_grad=True)
        for number in range(7):
            y = y * torch.full((3,), 0.9, requires_grad=True)
            y = y.sin() if number % 2 else y.exp()
            if number == more:
                y = getattr(y, what)()
        return y.sum()

    record(lambda: build(None), tmp_path / "a")
    record(lambda: build(place), tmp_path / "b")
    for files in ("ab", "ba"):
        found = one(compare(*(tmp_path / file for file in files)))
        (alone,) = found.only_in_b if files == "ab" else found.only_in_a
        assert alone.short_name == f"{what.title()}Backward0"
        (change,) = found.changes
        assert change.what == "output 0 leads to", "only what leads to it leads elsewhere"


def test_two_operations_in_between_without_modules(tmp_path: Path) -> None:
    def build(more: tuple[int, ...]) -> Tensor:
        y = torch.full((3,), 0.5, requires_grad=True)
        for number in range(7):
            y = (y * torch.full((3,), 0.9, requires_grad=True)).sin()
            if number in more:
                y = y.tanh()
        return y.sum()

    record(lambda: build(()), tmp_path / "a")
    record(lambda: build((1, 4)), tmp_path / "b")
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    assert not found.only_in_a
    assert [node.short_name for node in found.only_in_b] == ["TanhBackward0"] * 2


class Both(nn.Module):
    """The same module on two ways, of which one may be longer."""

    def __init__(self, *, longer: bool) -> None:
        super().__init__()
        self.shared, self.longer = nn.Tanh(), longer

    def forward(self, x: Tensor) -> Tensor:
        one_way: Tensor = self.shared(x.sin())
        if self.longer:
            one_way = one_way.sigmoid()
        both: Tensor = one_way + self.shared(x.cos())
        return both


def test_the_same_module_on_two_ways_and_another_batch_size(tmp_path: Path) -> None:
    for file, rows in (("a", 3), ("b", 5)):
        x = torch.ones(rows, 2, requires_grad=True)
        record(lambda: Both(longer=rows == 5)(x).sum(), tmp_path / file)  # noqa: B023
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    assert not found.only_in_a
    assert [node.short_name for node in found.only_in_b] == ["SigmoidBackward0"]
    moved = [change for change in found.changes if change.what.startswith("output")]
    assert [change.a.short_name for change in moved] == ["AddBackward0"]


def test_two_layers_in_between_and_another_batch_size(tmp_path: Path) -> None:
    def build(rows: int, *, more: bool) -> Tensor:
        whole = nn.Sequential()
        for name in "abcde":
            whole.add_module(name, nn.Tanh())
            if more and name in "ad":
                whole.add_module(f"after_{name}", nn.Sigmoid())
        output: Tensor = whole(torch.ones(rows, 2, requires_grad=True))
        return output.sum()

    record(lambda: build(3, more=False), tmp_path / "a")
    record(lambda: build(5, more=True), tmp_path / "b")
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        nodes = [trace.nodes(trace.graph_tasks[0].id) for trace in (a, b)]
        graphs = [
            Adjacency(rows, trace.edges(rows[0].graph_task))
            for rows, trace in zip(nodes, (a, b), strict=True)
        ]
        partners = align(*graphs).a_to_b
    assert NOWHERE not in partners
    for node, at in zip(nodes[0], partners, strict=True):
        assert node.module == nodes[1][at].module


def test_another_dtype(tmp_path: Path) -> None:
    record(lambda: model("mlp")(batch()).sum(), tmp_path / "a")
    record(lambda: model("mlp")(batch()).sum(dtype=torch.float64), tmp_path / "b")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.first is not None
    assert found.first[1].facts == ("dtype",)
    assert found.first[1].role == "root"
    assert "dtype float32 in A, float64 in B" in str(found)


def test_another_batch_size_is_aligned(tmp_path: Path) -> None:
    for file, rows in (("a", 3), ("b", 5)):
        record(lambda: model("mlp")(batch(rows)).sum(), tmp_path / file)  # noqa: B023
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    assert found.aligned == found.a.nodes == found.b.nodes
    assert "shape" in found.first[0].facts
    assert {change.what for change in found.changes} == {"shapes of inputs"}


def test_several_device_threads_give_the_same(tmp_path: Path) -> None:
    places = None, lambda _: 0, lambda node: node._sequence_nr() % 3
    build = lambda: model("residual")(batch()).sum()  # noqa: E731
    for number, place in enumerate(places):
        record(build, tmp_path / str(number), values="full", device_policy=place)
    for number in (1, 2):
        assert compare(tmp_path / "0", tmp_path / str(number)).same


def test_several_device_threads_and_one_changed_weight(tmp_path: Path) -> None:
    def build(factor: float) -> Tensor:
        built = model("residual")
        with torch.no_grad():
            built[0].second.weight *= factor  # type: ignore[index]
        return weighted(built(batch()))

    seen = []
    for file, factor in (("a", 1.0), ("b", 1.5)):
        loss = record(
            lambda: build(factor),  # noqa: B023
            tmp_path / file,
            device_policy=lambda node: node._sequence_nr() % 2,
        )
        seen.append(seen_by_hooks(loss))
    expected = first_by_hooks(*seen)
    assert expected
    assert first_told(compare(tmp_path / "a", tmp_path / "b")) == expected


def test_another_order_of_execution_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*, sine_first: bool) -> Tensor:
        x = torch.full((3,), 0.5, requires_grad=True)
        if sine_first:
            sine, cosine = x.sin(), x.cos()
        else:
            cosine, sine = x.cos(), x.sin()
        return (sine * 2 + cosine * 3).sum()

    record(lambda: build(sine_first=True), tmp_path / "a", values="full")
    record(lambda: build(sine_first=False), tmp_path / "b", values="full")
    found = compare(tmp_path / "a", tmp_path / "b")
    orders = []
    for file in ("a", "b"):
        with Trace.open(tmp_path / file) as trace:
            orders.append([row.name for row in trace.executions(trace.graph_tasks[0].id)])
    assert orders[0] != orders[1]
    assert found.same
    assert one(found).other_order is not None
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "another order" in " ".join(capsys.readouterr().out.split())


def test_without_values_only_the_graphs_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.ones(3, requires_grad=True)
    record((x * 2).sum, tmp_path / "a", values="none")
    record((x * 3).sum, tmp_path / "b")
    record(lambda: (x * 2).sin().sum(), tmp_path / "c", values="none")
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "Only the graphs were compared" in capsys.readouterr().out
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "c")]) == 1
    assert "SinBackward0" in capsys.readouterr().out


def test_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def build(message: str) -> Tensor:
        x = torch.ones(3, requires_grad=True)
        y = x.sin()

        def fail(_: Tensor) -> NoReturn:
            raise ValueError(message)

        if message:
            y.grad_fn.register_hook(lambda *_: fail(y))  # type: ignore[union-attr]
        return (y * 2 + x.cos()).sum()

    for file, message in (("a", ""), ("b", "not today"), ("c", "not today"), ("d", "not ever")):
        with agviz.trace(path=tmp_path / file):
            loss = build(message)
            if message:
                with pytest.raises(ValueError, match=message):
                    loss.backward()
            else:
                loss.backward()
    found = compare(tmp_path / "a", tmp_path / "b")
    (first,) = one(found).first
    assert (first.kind, first.node.short_name) == (DivergenceKind.FAILED, "SinBackward0")
    assert one(found).failure == ("finished", "failed with ValueError: not today")
    assert compare(tmp_path / "b", tmp_path / "c").same
    (first,) = one(compare(tmp_path / "b", tmp_path / "d")).first
    assert first.kind is DivergenceKind.FAILED
    assert main(["diff", str(tmp_path / "b"), str(tmp_path / "a")]) == 1
    assert "A failed with ValueError: not today; B finished." in " ".join(
        capsys.readouterr().out.split()
    )


def test_an_undefined_gradient(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    record((apply(mine(1.0), x) * 2).sum, tmp_path / "a")
    record((apply(mine(None), x) * 2).sum, tmp_path / "b")
    (first,) = one(compare(tmp_path / "a", tmp_path / "b")).first
    assert (first.kind, first.role, first.slot) == (DivergenceKind.ABSENT, "output", 0)
    assert first.node.short_name == "MineBackward"


def mine(factor: float | None) -> type[torch.autograd.Function]:
    """A Function of one and the same name, which lets a gradient through or doesn't."""

    class Mine(Swallow):
        @staticmethod
        def backward(_ctx: Any, *gradients: Any) -> Any:
            return None if factor is None else gradients[0] * factor

    return Mine


def test_a_node_that_ran_in_one_only(tmp_path: Path) -> None:
    for file, everything in (("a", True), ("b", False)):
        x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
        with agviz.trace(path=tmp_path / file):
            (x.sin() * y.cos()).sum().backward(inputs=[x, y] if everything else [x])
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    (first,) = found.first
    assert (first.kind, first.node.short_name) == (DivergenceKind.ABSENT, "MulBackward0")
    assert DivergenceKind.RAN in {each.kind for each in found.divergences}


def test_a_gradient_that_was_there_before(tmp_path: Path) -> None:
    for file, before in (("a", 1.0), ("b", 2.0)):
        x = torch.ones(3, requires_grad=True)
        x.grad = torch.full((3,), before)
        record((x * 2).sum, tmp_path / file)
    (first,) = one(compare(tmp_path / "a", tmp_path / "b")).first
    assert (first.role, first.node.is_leaf) == ("accumulated", True)


def test_reentrant_passes_are_aligned_within_their_nodes(tmp_path: Path) -> None:
    def build(factor: float) -> Tensor:
        built = model("residual")
        with torch.no_grad():
            built[1].first.weight *= factor  # type: ignore[index]
        x = batch().requires_grad_()
        for part in built:  # type: ignore[attr-defined]
            x = checkpoint(part, x, use_reentrant=True)
        return x.sum()

    for file, factor in (("a", 1.0), ("b", 1.0), ("c", 1.5)):
        record(lambda: build(factor), tmp_path / file)  # noqa: B023
    same = compare(tmp_path / "a", tmp_path / "b")
    assert same.same
    assert len(same.passes) == 3
    found = compare(tmp_path / "a", tmp_path / "c")
    assert found.first is not None
    inner, divergence = found.first
    assert inner.a.parent == found.passes[0].a.id
    # What the weight changed in the forward comes to the norm's backward before any other.
    assert divergence.node.short_name == "NativeLayerNormBackward0"
    assert ", inside CheckpointFunctionBackward (" in str(found)


def test_what_diverges_inside_an_earlier_node_comes_first(tmp_path: Path) -> None:
    class Scale(torch.autograd.Function):
        """Its backward runs another one, for a parameter of its own."""

        @staticmethod
        def forward(_ctx: Any, x: Tensor, _factor: float) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, *gradients: Any) -> Any:
            own = torch.ones(3, requires_grad=True)
            with torch.enable_grad():
                (own * factor).sum().backward()
            return gradients[0], None

    for file, factor in (("a", 1.0), ("b", 2.0)):
        x = torch.full((3,), 0.5, requires_grad=True)
        y = apply(Scale, x.sin() * factor, factor)
        record(y.sum, tmp_path / file)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert len(found.passes) == 2
    assert [each.first[0].node.short_name for each in found.passes] == ["MulBackward0"] * 2
    assert found.first is not None
    assert found.first[0] is found.passes[1], "the one inside ran first"


def test_passes_that_only_one_has(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    for file, count in (("a", 1), ("b", 2)):
        with agviz.trace(path=tmp_path / file):
            for _ in range(count):
                x.grad = None
                x.sin().sum().backward()
    found = compare(tmp_path / "a", tmp_path / "b")
    assert not found.same
    assert [task.id for task in found.only_in_b] == [found.passes[0].b.id + 1]
    assert str(found) == f"Only in B: backward pass {found.only_in_b[0].id}."
    with Trace.open(tmp_path / "b") as trace:
        numbers = tuple(task.id for task in trace.graph_tasks)
        assert diff(trace, trace, graph_tasks=(numbers[0], numbers[1])).same


def test_a_sum_in_another_order_is_where_it_begins(tmp_path: Path) -> None:
    def build(order: Sequence[int]) -> Tensor:
        y = torch.full((3,), 0.5, requires_grad=True).sin()
        parts = dict.fromkeys(range(3), y)
        for number in order:
            parts[number] = y * (1e8, -1e8, 1.0)[number]
        return (parts[0] + parts[1] + parts[2]).sum()

    record(lambda: build((0, 1, 2)), tmp_path / "a")
    record(lambda: build((2, 1, 0)), tmp_path / "b")
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    assert [(each.role, each.node.short_name) for each in found.divergences] == [
        ("sum", "SinBackward0"),
        ("output", "SinBackward0"),
    ]
    assert [each.role for each in found.first] == ["sum"]


def test_all_passes_are_compared_and_the_later_ones_are_cut_short(tmp_path: Path) -> None:
    for file, factor in (("a", 1.0), ("b", 2.0)):
        with agviz.trace(path=tmp_path / file):
            for _ in range(12):
                x = torch.ones(3, requires_grad=True)
                y = x * factor
                for _ in range(15):
                    y = y.sin()
                y.sum().backward()
    found = compare(tmp_path / "a", tmp_path / "b")
    assert len(found.differing) == 12
    assert [len(each.divergences) for each in found.passes] == [16] * 10 + [10] * 2
    assert {each.diverged for each in found.passes} == {16}
    assert "11 other backward passes of 12 differ, too." in str(found)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 40))
def test_the_same_graph_with_other_numbers_is_aligned_node_by_node(seed: int, size: int) -> None:
    rng = random.Random(seed)
    names = [f"Name{rng.randrange(3)}Backward0" for _ in range(size)]
    edges = [
        (producer, consumer, rng.randrange(2))
        for consumer in range(1, size)
        for producer in {rng.randrange(consumer) for _ in range(rng.randint(1, 3))}
    ]
    to = [0, *rng.sample(range(1, size), size - 1)]
    plain, shuffled = Rows(), Rows()
    outputs: dict[int, int] = {}
    told = []
    for producer, consumer, slot in edges:
        output = outputs[producer] = outputs.get(producer, -1) + 1
        told.append((producer, output, consumer, slot))
    for number in range(size):
        plain.node(names[number])
        shuffled.node(names[to.index(number)], sequence_nr=rng.randrange(100))
    graph = Adjacency(plain.nodes, list(map(EdgeRow._make, told)))
    moved = [(to[p], output, to[c], slot) for p, output, c, slot in told]
    rng.shuffle(moved)
    found = align(graph, Adjacency(shuffled.nodes, list(map(EdgeRow._make, moved))))
    assert list(found.a_to_b) == to
    assert list(found.b_to_a) == [to.index(number) for number in range(size)]


@given(seeds=st.tuples(st.integers(0, 500), st.integers(0, 500)))
def test_any_two_graphs_are_aligned_one_to_one(seeds: tuple[int, int]) -> None:
    graphs = []
    for seed in seeds:
        rng, rows = random.Random(seed), Rows()
        for number in range(rng.randint(1, 25)):
            producers = {rng.randrange(number) for _ in range(rng.randint(1, 2))} if number else ()
            module = rng.choice([None, "a", "b"])
            rows.node(f"Name{rng.randrange(3)}", *producers, module=module, slot=rng.randrange(2))
        graphs.append(Adjacency(rows.nodes, rows.edges))
    found = align(*graphs)
    for left, right in ((found.a_to_b, found.b_to_a), (found.b_to_a, found.a_to_b)):
        for number, partner in enumerate(left):
            assert partner == NOWHERE or right[partner] == number
    for number, partner in enumerate(found.a_to_b):
        if partner != NOWHERE:
            assert graphs[0][number].name == graphs[1][partner].name


def test_what_is_not_finite_in_one_only_is_told_wherever_it_is(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    record((x.exp() * 2).sum, tmp_path / "a")
    record(((x - x).sqrt().exp() * 2.5).sum, tmp_path / "b")
    found = one(compare(tmp_path / "a", tmp_path / "b"))
    assert found.first[0].node.short_name == "MulBackward0"
    alone = found.nonfinite[1]
    assert found.nonfinite[0] is None
    assert alone is not None
    assert alone.short_name == "SqrtBackward0"
    assert one(compare(tmp_path / "b", tmp_path / "b")).nonfinite == (None, None)


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """The same program with another factor."""
    for file, factor in (("a.agviz", 2.0), ("b.agviz", float("inf"))):
        x = torch.ones(3, requires_grad=True)
        record((x.sin() * factor).sum, tmp_path / file)
    return str(tmp_path / "a.agviz"), str(tmp_path / "b.agviz")


def test_the_command_line(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["diff", *two]) == 1
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    assert "differs first at MulBackward0" in said
    assert "+Inf 0 in A, 3 in B" in said
    assert "≠ posinf" in said
    assert "In B only, gradients are not finite from MulBackward0 (node 1) on: 3 +Inf." in said
    assert main(["diff", *two, "--verbose"]) == 1
    longer = capsys.readouterr().out
    assert max(map(len, longer.splitlines())) <= 80
    assert "SinBackward0" in longer
    assert main(["diff", two[0], two[0]]) == 0
    assert "No difference" in capsys.readouterr().out


def test_json_is_strict(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    def fail(word: str) -> NoReturn:
        raise AssertionError(word)

    assert main(["diff", *two, "--json"]) == 1
    facts = json.loads(capsys.readouterr().out, parse_constant=fail)
    assert (facts["same"], facts["first"]["a"]["name"]) == (False, "MulBackward0")
    assert facts["first"]["health_b"]["posinf"] == 3
    (only,) = facts["graph_tasks"]
    assert [each["is_first"] for each in only["divergences"]] == [True, False]
    assert main(["diff", two[0], two[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_two_folders(
    two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, files in (("x", two), ("y", (two[0], two[0])), ("z", two[:1]), ("e", ())):
        (tmp_path / folder).mkdir()
        for number, file in enumerate(files):
            (tmp_path / folder / f"rank{number}.agviz").symlink_to(file)
    x, y, z, empty = (str(tmp_path / folder) for folder in "xyze")
    assert main(["diff", x, x]) == 0
    assert capsys.readouterr().out.count("No difference") == 2
    assert main(["diff", x, y, "--json"]) == 1
    assert [each["same"] for each in json.loads(capsys.readouterr().out)["pairs"]] == [True, False]
    for pair in ((x, z), (empty, empty)):
        assert main(["diff", *pair]) == 2
        assert "it must be as many" in capsys.readouterr().err


def test_a_wrong_call(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for more, sentence in (
        (["--graph-task", "999999"], "no graph task 999999"),
        (["--rtol", "-1"], "rtol is -1.0"),
        (["--atol", "nan"], "atol is nan"),
    ):
        assert main(["diff", *two, *more]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["diff", *two, "--graph-task", "one"])
    assert ended.value.code == 2
    assert main(["diff", two[0]]) == 2
    assert "say which trace to compare it with" in capsys.readouterr().err
    number = agviz.load(two[0]).graph_tasks[0].id
    assert main(["diff", *two, "--graph-task", f"{number}:{number + 1}"]) == 1


def test_from_python(two: tuple[str, str]) -> None:
    a, b = map(agviz.load, two)
    assert a.diff(a).same
    found = a.diff(b)
    assert found.first is not None
    assert found.first[1].node.short_name == "MulBackward0"
    assert a.diff(two[1], rtol=1.0, atol=1.0).same is False
