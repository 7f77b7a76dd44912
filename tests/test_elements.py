"""Which elements began it: index maps beside torch's own gradients, planted faults, hostile ones.

Where a fault is was decided when it was planted; that it is there, and nowhere else, torch itself
says: without it all gradients are finite (tests/planted/faults.py).
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import random
import sqlite3
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as users call it
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import agviz
from agviz.analysis.explanation import Explanation, explain
from agviz.analysis.places import place_of
from agviz.cli.main import main
from agviz.errors import AgvizError, TraceError
from agviz.measure.health import unseen
from agviz.record.elements import finding
from agviz.record.elements.box import Axis, coordinates, reshaped
from agviz.record.elements.forward_node import ForwardNode
from agviz.record.elements.maps import mapped
from agviz.record.elements.probing import probed
from agviz.traces.reader import Trace
from agviz.tui.node_details import read_node_details
from tests.planted.faults import FAULTS, HELD_OUT, KINDS, Expected, draw, is_finite
from tests.planted.tempting import TEMPTING
from tests.unnoticed import noticed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.places import ElementPlace
    from agviz.record.elements.box import Box


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors; several threads only wait for each other."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


def explained(
    loss: Callable[[], Tensor], model: nn.Module | None = None, **how: Any
) -> Explanation:
    """Why gradients are not finite."""
    with agviz.trace(model, **how) as recorded:
        loss().backward()
    found = explain(recorded.trace)
    assert found is not None
    return found


# -- boxes ----------------------------------------------------------------------------------------


def box(*axes: tuple[int, list[int] | None]) -> Box:
    return tuple(
        Axis(size, None if at is None else coordinates(at), number)
        for number, (size, at) in enumerate(axes)
    )


def test_a_box_in_another_shape_holds_the_same_elements() -> None:
    rng = random.Random(0)
    for _ in range(300):
        one_other_shape(rng)


def one_other_shape(rng: random.Random) -> None:
    sizes = [rng.choice([1, 2, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4))]
    others = regrouped(rng, math.prod(sizes))
    given = box(*((size, rng.sample(range(size), rng.randint(1, size))) for size in sizes))
    mask = torch.zeros(sizes, dtype=torch.bool)
    mask[torch.meshgrid(*(torch.tensor(list(a.at or ())) for a in given), indexing="ij")] = True
    found = reshaped(given, others)
    assert found is not None
    expected = mask.view(others).nonzero().unbind(1)
    for axis, at in zip(found, expected, strict=True):
        assert axis.at is not None
        assert list(axis.at) == sorted(set(at.tolist()))
    back = reshaped(found, sizes)
    assert back is not None
    assert all(set(a.at or ()) <= set(b.at or ()) for a, b in zip(given, back, strict=True))


def regrouped(rng: random.Random, count: int) -> list[int]:
    """A shape of so many elements."""
    sizes = []
    while count > 1:
        size = rng.choice([each for each in range(2, count + 1) if count % each == 0])
        sizes.append(size)
        count //= size
    for _ in range(rng.randint(0, 2)):
        sizes.insert(rng.randint(0, len(sizes)), 1)
    return sizes or [1]


def test_the_first_place_is_a_box_and_all_is_around_it() -> None:
    for seed in range(60):
        torch.manual_seed(seed)
        one_first_place()


def one_first_place() -> None:
    shape = [int(size) for size in torch.randint(1, 5, (int(torch.randint(0, 4, ())),))]
    tensor = torch.zeros(shape)
    tensor[torch.rand(shape) < 0.3] = math.nan
    found = finding.nonfinite(tensor)
    wrong = tensor.isnan()
    if not wrong.any():
        assert found is None
        return
    assert found is not None
    assert found.total == int(wrong.sum())
    first = torch.zeros(shape, dtype=torch.bool)
    for place in itertools.product(*(axis.at or () for axis in found.first)):
        first[place] = True
    assert bool((wrong | ~first).all())
    for dim, axis in enumerate(found.all):
        others = [d for d in range(wrong.dim()) if d != dim]
        here = wrong.any(dim=others) if others else wrong
        assert list(axis.at or ()) == here.nonzero().view(-1).tolist()


# -- maps beside torch's gradients ----------------------------------------------------------------


def leaf(*shape: int) -> Tensor:
    return (torch.rand(shape) + 0.5).requires_grad_()


def indices(*shape: int, below: int) -> Tensor:
    return torch.randint(0, below, shape)


def gathered() -> tuple[Any, ...]:
    index = indices(3, 2, below=5)
    return leaf(4, 5), lambda x: x.gather(1, index)


def selected() -> tuple[Any, ...]:
    index = indices(6, below=4)
    return leaf(3, 4, 2), lambda x: x.index_select(1, index)


def indexed(call: Callable[..., Tensor]) -> tuple[Any, ...]:
    i, j = indices(3, 1, below=4), indices(1, 2, below=3)
    return leaf(4, 3, 2), lambda x: call(x, i, j)


def convolved(**how: Any) -> tuple[Any, ...]:
    weight = leaf(4, 4 // how.get("groups", 1), 3, 2)
    return leaf(2, 4, 8, 7), weight, lambda x, w: F.conv2d(x, w, **how)


INDEXING: Final[dict[str, Callable[[], tuple[Any, ...]]]] = {
    "view": lambda: (leaf(3, 4, 2), lambda x: x.view(6, 4)),
    "transpose": lambda: (leaf(3, 4, 2), lambda x: x.transpose(0, -1)),
    "t": lambda: (leaf(3, 4), lambda x: x.t()),
    "permute": lambda: (leaf(3, 4, 2), lambda x: x.permute(2, 0, 1)),
    "expand": lambda: (leaf(3, 1, 2), lambda x: x.expand(5, 3, 4, 2)),
    "slice": lambda: (leaf(3, 9), lambda x: x[:, 1:8:3]),
    "slice_back": lambda: (leaf(3, 9), lambda x: x[:, -4:]),
    "select": lambda: (leaf(3, 4, 2), lambda x: x[:, -1]),
    "unbind": lambda: (leaf(3, 4, 2), lambda x: x.unbind(1)[2]),
    "split": lambda: (leaf(3, 7), lambda x: x.split(3, 1)[1]),
    "split_sizes": lambda: (leaf(3, 7), lambda x: x.split([2, 4, 1], -1)[1]),
    "chunk": lambda: (leaf(3, 6), lambda x: x.unsafe_chunk(3, 1)[2]),
    "cat": lambda: (leaf(3, 2), leaf(3, 4), lambda x, y: torch.cat([x, y], 1)),
    "stack": lambda: (leaf(3, 2), leaf(3, 2), lambda x, y: torch.stack([x, y], 1)),
    "squeeze": lambda: (leaf(3, 1, 2, 1), lambda x: x.squeeze()),
    "squeeze_dim": lambda: (leaf(3, 1, 2, 1), lambda x: x.squeeze(1)),
    "unsqueeze": lambda: (leaf(3, 2), lambda x: x.unsqueeze(-1)),
    "flip": lambda: (leaf(3, 4), lambda x: x.flip(0, -1)),
    "roll": lambda: (leaf(3, 4), lambda x: x.roll((1, -3), (0, 1))),
    "roll_flat": lambda: (leaf(3, 4), lambda x: x.roll(5)),
    "repeat": lambda: (leaf(3, 2), lambda x: x.repeat(2, 2, 3)),
    "pad": lambda: (leaf(3, 4), lambda x: F.pad(x, (1, 2, 0, 1))),
    "pad_less": lambda: (leaf(3, 4), lambda x: F.pad(x, (-1, 2))),
    "reflect": lambda: (leaf(1, 2, 5), lambda x: F.pad(x, (2, 1), mode="reflect")),
    "gather": gathered,
    "index_select": selected,
    "index": lambda: indexed(lambda x, i, j: x[i]),
    "index_two": lambda: indexed(lambda x, i, j: x[i, j]),
    "index_apart": lambda: indexed(lambda x, i, j: x[i, :, j % 2]),
    "index_last": lambda: indexed(lambda x, i, j: x[:, :, j % 2]),
    "index_negative": lambda: indexed(lambda x, i, j: x[:, -1 - j % 3]),
    "mask": lambda: (leaf(4, 3), lambda x: x[torch.arange(12).view(4, 3) % 3 != 1]),
    "mask_rows": lambda: (leaf(4, 3), lambda x: x[torch.tensor([True, False, True, True])]),
    "masked_select": lambda: (leaf(4, 3), lambda x: x.masked_select(x > 0.9)),
    "sort": lambda: (leaf(4, 5), lambda x: x.sort(1).values),
    "topk": lambda: (leaf(4, 5), lambda x: x.topk(2, 0).values),
    "max": lambda: (leaf(4, 5), lambda x: x.max(1).values),
    "max_kept": lambda: (leaf(4, 5), lambda x: x.max(0, keepdim=True).values),
    "kthvalue": lambda: (leaf(4, 5), lambda x: x.kthvalue(2, 1).values),
    "diagonal": lambda: (leaf(4, 4), lambda x: x.diagonal()),
    "tril": lambda: (leaf(4, 4), lambda x: x.tril()),
    "as_strided": lambda: (leaf(4, 4), lambda x: x.as_strided((3, 2), (5, 1), 1)),
    "unfold": lambda: (leaf(2, 7), lambda x: x.unfold(1, 3, 2)),
    "im2col": lambda: (leaf(1, 2, 4, 5), lambda x: F.unfold(x, 2)),
    "pixel_shuffle": lambda: (leaf(1, 8, 2, 3), lambda x: F.pixel_shuffle(x, 2)),
    "nearest": lambda: (leaf(1, 2, 3, 4), lambda x: F.interpolate(x, scale_factor=2)),
    "max_pool": lambda: (leaf(2, 2, 6, 7), lambda x: F.max_pool2d(x, 2)),
    "where": lambda: (leaf(3, 4), leaf(4), lambda x, y: torch.where(x > 1, x, y)),
    "broadcast": lambda: (leaf(3, 1, 4), leaf(2, 1), lambda x, y: x * y),
    "sub": lambda: (leaf(3, 4), leaf(4), lambda x, y: x - y),
    "pow": lambda: (leaf(3, 4), leaf(3, 1), lambda x, y: x**y),
    "mse": lambda: (leaf(3, 4), leaf(3, 4), lambda x, y: F.mse_loss(x, y, reduction="none")),
    "mse_mean": lambda: (leaf(3, 4), lambda x: F.mse_loss(x, torch.zeros(3, 4))),
    "sum": lambda: (leaf(3, 4, 2), lambda x: x.sum((0, 2))),
    "sum_kept": lambda: (leaf(3, 4, 2), lambda x: x.sum(1, keepdim=True)),
    "sum_all": lambda: (leaf(3, 4), lambda x: x.sum()),
    "mean": lambda: (leaf(3, 4), lambda x: x.mean(0)),
    "logsumexp": lambda: (leaf(3, 4), lambda x: x.logsumexp(-1)),
    "norm": lambda: (leaf(3, 4), lambda x: x.norm(dim=1)),
    "vector_norm": lambda: (leaf(3, 4), lambda x: torch.linalg.vector_norm(x, dim=0)),
    "std": lambda: (leaf(3, 5), lambda x: x.std(1)),
    "var_mean": lambda: (leaf(3, 5), lambda x: torch.var_mean(x, 1)[0]),
    "prod": lambda: (leaf(3, 4), lambda x: x.prod(1)),
    "amax": lambda: (leaf(3, 4), lambda x: x.amax(1)),
    "conv": lambda: convolved(stride=2, padding=1),
    "conv_dilated": lambda: convolved(dilation=2),
    "conv_groups": lambda: convolved(groups=2),
    "conv_transposed": lambda: (
        *(leaf(2, 2, 4, 5), leaf(2, 3, 3, 2)),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
    ),
    "conv1d": lambda: (leaf(2, 2, 9), leaf(4, 2, 3), lambda x, w: F.conv1d(x, w, padding=1)),
    "avg_pool": lambda: (leaf(2, 2, 7, 6), lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "adaptive": lambda: (leaf(2, 2, 7, 6), lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
    "mm": lambda: (leaf(3, 4), leaf(4, 5), lambda x, y: x @ y),
    "bmm": lambda: (leaf(2, 3, 4), leaf(2, 4, 5), torch.bmm),
    "addmm": lambda: (
        *(leaf(5), leaf(3, 4), leaf(4, 5)),
        torch.addmm,
    ),
    "baddbmm": lambda: (
        *(leaf(2, 3, 5), leaf(2, 3, 4), leaf(2, 4, 5)),
        torch.baddbmm,
    ),
    "mv": lambda: (leaf(3, 4), leaf(4), lambda x, y: x @ y),
    "attention": lambda: (
        *(leaf(2, 2, 3, 4), leaf(2, 2, 5, 4), leaf(2, 2, 5, 4)),
        F.scaled_dot_product_attention,
    ),
    "embedding": lambda: (leaf(9, 3), lambda x: F.embedding(indices(2, 4, below=9), x)),
    "index_add": lambda: (
        *(leaf(5, 2), leaf(7, 2)),
        lambda x, y: x.index_add(0, torch.arange(7) % 5, y),
    ),
    "nll": lambda: (leaf(4, 3), lambda x: F.nll_loss(x, torch.arange(4) % 3, reduction="none")),
    "nll2d": lambda: (
        leaf(2, 3, 4, 4),
        lambda x: F.nll_loss(x, torch.ones(2, 4, 4, dtype=torch.long), reduction="none"),
    ),
}
"""Operands and a function of them that is one node."""


LOOSE: Final = frozenset({"max_pool", "tril", "where", "amax", "mse_mean"})
"""Functions whose derivative is 0 at elements that their result is made of."""
UNTOLD: Final = frozenset({"mv", *(name for name in INDEXING if name.startswith("conv"))})
"""Functions of which nothing is told of the weight."""


@pytest.mark.parametrize("name", sorted(INDEXING))
def test_a_map_agrees_with_the_gradients_that_torch_computes(name: str) -> None:
    *operands, function = INDEXING[name]()
    given: list[Tensor] = operands
    result = function(*given)
    assert result.grad_fn is not None
    node = ForwardNode(result.grad_fn)
    variables = [getattr(edge, "variable", None) for edge, _ in node.operands]
    rng = random.Random(name)
    for _ in range(6):
        asked = box(*((size, rng.sample(range(size), min(size, 2))) for size in result.shape))
        with unseen():
            found = mapped(node, result.output_nr, asked)
            if found is None:
                found = probed(node, result.output_nr, asked)
        assert found is not None
        known = {variables[k]: part for k, part in found if isinstance(k, int)}
        for operand, grad in zip(given, influence(result, asked, given), strict=True):
            part = known.get(operand)
            if part is not None or name not in UNTOLD:
                compare(part, grad, is_exact=name not in LOOSE)


def influence(result: Tensor, asked: Box, given: list[Tensor]) -> list[Tensor]:
    """The gradients of what is asked about."""
    gradient = torch.zeros(result.shape)
    at = [torch.tensor(list(axis.at or ())) for axis in asked]
    gradient[torch.meshgrid(*at, indexing="ij") if at else ()] = 1
    return list(
        torch.autograd.grad(
            result, given, gradient, retain_graph=True, allow_unused=True, materialize_grads=True
        )
    )


def compare(part: Box | None, grad: Tensor, *, is_exact: bool) -> None:
    touched = grad != 0
    if part is None or any(axis.at is not None and not axis.at for axis in part):
        assert not touched.any()
        return
    assert tuple(axis.size for axis in part) == tuple(grad.shape)
    if not touched.any():
        assert not is_exact
        return
    for axis, here in zip(part, touched.nonzero().unbind(1), strict=True):
        if axis.at is not None:
            assert set(here.tolist()) <= set(axis.at)
            assert not is_exact or set(here.tolist()) == set(axis.at)


# -- planted faults -------------------------------------------------------------------------------

IN_CI: Final = [
    ("conv_length", 0),
    ("conv1d_length", 1),
    ("segmentation_log", 2),
    ("masked_row", 1),
    ("encoder_distance", 1),
    ("gathered_log", 3),
    ("rows_of_a_mask", 1),
    ("last_token", 2),
    ("mean_of_parts", 0),
    ("dice", 1),
    ("constant_token", 2),
    ("pair_distance", 3),
    ("two_streams", 4),
    ("stacked_steps", 5),
]


def place_found(kind: str, seed: int, *, check_forward: bool) -> ElementPlace | None:
    program = draw(kind, seed)
    return explained(program.loss, program.model, check_forward=check_forward).elements


def score(place: ElementPlace | None, expected: Expected) -> str:
    """``exact``; ``unknown``: something is not said; ``wrong``."""
    if place is None or not place.sample:
        return "unknown"
    position = tuple(each for where in place.position for each in where.at)
    column = () if place.column is None else place.column.at
    wanted = () if expected.column is None else (expected.column,)
    is_sample = place.sample == (expected.sample,)
    if is_sample and position == expected.position and (not wanted or column == wanted):
        return "exact"
    if is_sample and position == expected.position + wanted:
        return "exact"
    says_less = position in {(), expected.position} and column in {(), wanted}
    return "unknown" if is_sample and says_less else "wrong"


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(("kind", "seed"), IN_CI)
def test_a_planted_fault_is_found(kind: str, seed: int) -> None:
    program = draw(kind, seed)
    forward = program.breaks_forward
    found = place_found(kind, seed, check_forward=forward)
    assert score(found, program.expected) == "exact", found


def test_there_are_300_of_which_a_third_was_held_out() -> None:
    assert len(FAULTS) == 300
    assert len(HELD_OUT) * 3 == len(KINDS)
    assert sum(kind in HELD_OUT for kind, _ in FAULTS) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_all_planted_faults(kind: str) -> None:
    """At least 95 of 100 exact, and none wrong; without the forward, too, none is wrong."""
    for seed in (seed for each, seed in FAULTS if each == kind):
        program = draw(kind, seed)
        assert not is_finite(program)
        assert is_finite(draw(kind, seed, is_planted=False))
        recorded = program.breaks_forward or seed % 2 == 0
        found = place_found(kind, seed, check_forward=recorded)
        assert score(found, program.expected) == "exact", (seed, found)
        found = place_found(kind, seed, check_forward=False)
        assert score(found, program.expected) != "wrong", (seed, found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_native_engine_says_the_same(kind: str) -> None:
    program = draw(kind, 0)
    forward = program.breaks_forward
    found = explained(program.loss, program.model, check_forward=forward, engine="native").elements
    assert score(found, program.expected) == "exact", found


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", sorted(TEMPTING))
@pytest.mark.parametrize("check_forward", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_other_sample_is_named(name: str, check_forward: bool) -> None:
    model, loss, sample = TEMPTING[name]()
    found = explained(loss, model, check_forward=check_forward).elements
    assert found is None or found.sample in {(), (sample,)}


def test_the_answer_says_it_in_a_sentence() -> None:
    program = draw("masked_row", 1)
    found = explained(program.loss, program.model, check_forward=True)
    assert "which gives 0 / 0. That is sample 1, position 0. The backward pass met" in str(found)
    assert len(str(found).split()) <= 120
    told = found.as_json()["elements"]
    assert told["sample"] == [1]
    assert told["position"] == [{"what": "position", "at": [0], "of": [9]}]
    assert (told["index"], told["all"], told["met"]) == ("[1, :, 0, :]", True, False)


def test_the_inspector_says_it(tmp_path: Path) -> None:
    program, path = draw("encoder_distance", 1), tmp_path / "t.agviz"
    with agviz.trace(program.model, path):
        program.loss().backward()
    with Trace.open(path) as trace:
        origin = trace.first_nonfinite()
        assert origin is not None
        task, node = origin.graph_task, origin.node
        details = read_node_details(trace, trace.outline(task), task, node)
    assert details.elements == ((True, "sample 0, token 3"),)


def test_where_it_was_only_met_no_token_is_named() -> None:
    """NaN of one token is in all tokens behind attention, and the loss takes the first."""
    states = torch.randn(4, 6, 8)
    states[2, 3] = torch.nan
    attention = nn.MultiheadAttention(8, 2, batch_first=True)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, states: Tensor) -> Tensor:
            out: Tensor = self.attention(states, states, states)[0][:, 0]
            return out.pow(2)

    model = Net()
    found = explained(lambda: model(states).mean(), model)
    assert "It was met in sample 2." in str(found)
    assert found.elements is not None
    assert found.elements.position == ()
    found = explained(lambda: model(states).mean(), model, check_forward=True)
    assert "That is sample 2, position 3." in str(found)


def test_several_places_are_not_told_as_one() -> None:
    states = torch.rand(6, 5, 4) + 0.1
    for place in ((1, 2, 3), (4, 0, 1)):
        states[place] = 0
    gain = nn.Parameter(torch.ones(4))
    model = nn.Module()
    model.gain = gain
    found = explained(lambda: (states * gain).sqrt().sum())
    assert "Among its elements is sample 1, position 2, column 3." in str(found)
    assert found.elements is not None
    assert found.elements.count == 2


def test_an_index_is_told_where_no_sample_is_known() -> None:
    weight = torch.rand(3, 4)
    weight[1, 2] = 0
    weight.requires_grad_()
    found = explained(lambda: weight.sqrt().sum())
    assert "That is index [1, 2] of [3, 4]." in str(found)


# -- recording ------------------------------------------------------------------------------------


def test_the_program_does_not_notice() -> None:
    plain = noticed(agviz.trace(values="none"))
    found = noticed(agviz.trace(elements="."))
    assert found._replace(large_allocations=0) == plain._replace(large_allocations=0)


def test_nothing_is_drawn_unpacked_or_seen_where_it_is_not_finite() -> None:
    """With a function that has no map, so that it is probed."""

    def run(**how: Any) -> tuple[list[str], list[int], list[Tensor]]:
        seen: list[str] = []

        def unpacked(saved: Tensor) -> Tensor:
            seen.append("unpacked")
            return saved

        torch.manual_seed(3)
        states = torch.rand(4, 5)
        states[2] = 0
        gain = torch.ones(5, requires_grad=True)
        with (
            agviz.trace(**how),
            torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpacked),
        ):
            rotated = torch.rot90(states * gain, 2, (0, 1))
            loss = rotated.pow(2).sum(1).sqrt().sum()
            with OperationCounter(seen):
                loss.backward()
        grads = [] if gain.grad is None else [gain.grad]
        return seen, torch.get_rng_state().tolist(), grads

    plain, found = run(values="none"), run()
    assert found[:2] == plain[:2]
    assert torch.equal(found[2][0].isnan(), plain[2][0].isnan())


class OperationCounter(TorchDispatchMode):
    """Keeps the names of operations."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_few_passes_and_places_are_looked_at() -> None:
    states = torch.zeros(10, requires_grad=True)
    with agviz.trace() as recorded:
        for _ in range(40):
            sum(part.sqrt().sum() for part in states.split(1)).backward()
    trace = recorded.trace
    counts = [len(trace.located(task.id)) for task in trace.graph_tasks]
    assert counts[:32] == [8] * 32
    assert not any(counts[33:])


def test_a_module_that_is_given_data_keeps_none_of_it_alive() -> None:
    model = nn.Linear(3, 2)
    data = torch.randn(4, 3)
    ref = weakref.ref(data)
    with agviz.trace(model), torch.no_grad():
        model(data)
        del data
        gc.collect()
        assert ref() is None


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE located SET axes = 0 WHERE number = 1",
        "UPDATE located SET axes = 99999",
        "UPDATE located SET what = 0",
        "UPDATE located SET node = NULL",
        "UPDATE located SET total = 'x'",
        "UPDATE string SET text = ':4:9:' WHERE id IN (SELECT axes FROM located)",
        "UPDATE string SET text = ':4:3-1:' WHERE id IN (SELECT axes FROM located)",
        "UPDATE string SET text = ':4:1-2-3:' WHERE id IN (SELECT axes FROM located)",
        "UPDATE string SET text = '::*:' WHERE id IN (SELECT axes FROM located)",
    ],
)
def test_lies_are_noticed(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "t.agviz"
    states = torch.zeros(4, requires_grad=True)
    with agviz.trace(path=path):
        states.sqrt().sum().backward()
    database = sqlite3.connect(path, isolation_level=None)
    try:
        assert database.execute(lie).rowcount
    except sqlite3.IntegrityError:
        return  # SQLite itself does not have it
    finally:
        database.close()
    with Trace.open(path) as trace, pytest.raises(TraceError, match="damaged"):
        place_of(trace.located(trace.graph_tasks[0].id)[0])


# -- the largest element --------------------------------------------------------------------------


def largest(path: Path, **how: Any) -> None:
    torch.manual_seed(0)
    words = torch.randint(0, 9, (4, 6))
    weights = torch.ones(4, 6)
    weights[2, 5] = 1e4
    model = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 3))
    with agviz.trace(model, path, **how):
        (model(words).pow(2).sum(-1) * weights).mean().backward()


def test_the_largest_element_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    largest(path, elements="Linear|1")
    assert main(["explain", str(path), "--element", "1"]) == 2  # a number, and it is no such node
    capsys.readouterr()
    assert main(["explain", str(path), "--element", "ViewBackward0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["elements"]["sample"] == [2]
    assert told["elements"]["position"] == [{"what": "token", "at": [5], "of": [6]}]
    assert main(["explain", str(path), "--element", "ViewBackward0"]) == 0
    said = capsys.readouterr().out
    assert "It is the largest element by magnitude" in said
    assert "sample 2, token 5" in " ".join(said.split())


def test_what_was_not_kept_is_said_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    largest(path)
    assert main(["explain", str(path), "--element", "MulBackward0"]) == 2
    said = capsys.readouterr().err
    assert "agviz run --elements MulBackward0" in said
    with pytest.raises(AgvizError, match="record their health"):
        agviz.trace(values="none", elements=".")
    with pytest.raises(AgvizError, match="is no regular expression"):
        agviz.trace(elements="(")
