"""``agviz.draw``, with torchviz as its oracle, and ``draw`` of what was recorded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import graphviz
import pytest
import torch
from torch import Tensor, nn
from torchviz import make_dot

import agviz
from agviz.errors import AgvizError
from tests import svg_reader
from tests.test_graph_view import record_networks, record_two_layers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Two(nn.Module):
    """Two layers, a parameter used twice, and a custom Function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(self.first(x).tanh()) * self.scale
        halved: Tensor = Half.apply(hidden * self.scale)  # type: ignore[no-untyped-call]
        return halved.sum()


class Half(torch.autograd.Function):
    """What it says."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        return gradients[0] / 2


def double_backward() -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    return gradient.sum(), {"x": x}


def two() -> tuple[Tensor, dict[str, Tensor]]:
    model = Two()
    return model(torch.ones(2, 4)), dict(model.named_parameters())


def nodes_of_torchviz(loss: Tensor, params: dict[str, Tensor]) -> Counter[str]:
    """Names of the nodes in its picture, without the tensors it draws beside them."""
    source = make_dot(loss, params=params).source
    labels = re.findall(r'^\t\d+ \[label="?([\w:]+)"?\]', source, re.MULTILINE)
    return Counter(label for label in labels if "Backward" in label)


@pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")  # torchviz's
@pytest.mark.parametrize("make", [two, double_backward])
def test_the_nodes_are_those_that_torchviz_draws(
    make: Callable[[], tuple[Tensor, dict[str, Tensor]]],
) -> None:
    loss, params = make()
    svg = agviz.draw(loss, params).svg().encode()
    drawn = Counter(
        word
        for text in svg_reader.texts(svg)
        if "graph of" not in text
        for word in text.split()
        if "Backward" in word
    )
    assert drawn == nodes_of_torchviz(loss, params) != Counter()
    said = " ".join(svg_reader.texts(svg))
    for name in params:
        assert f"θ {name} " in said
    assert "not run yet" in said


def test_what_it_gives_is_a_digraph_that_shows_itself() -> None:
    loss, params = two()
    drawn = agviz.draw(loss, params)
    assert isinstance(drawn, graphviz.Digraph)
    assert drawn.source == agviz.draw(loss, params).source
    bundle = drawn._repr_mimebundle_()
    assert bundle["image/svg+xml"] == drawn._repr_svg_()
    assert (
        bundle["text/plain"]
        == repr(drawn)
        == ("<graph of SumBackward0 · 12 nodes, 14 edges · not run yet>")
    )
    assert svg_reader.parse(str(bundle["image/svg+xml"]).encode()).tag.endswith("svg")


def test_names_come_from_a_model_a_mapping_or_pairs() -> None:
    model = Two()
    loss = model(torch.ones(2, 4))
    named = dict(model.named_parameters())
    assert (
        agviz.draw(loss, model).source
        == agviz.draw(loss, named).source
        == agviz.draw([loss], list(named.items())).source
    )
    assert "leaf tensor" in agviz.draw(loss).source


def test_nothing_is_run_and_nothing_is_changed() -> None:
    model = Two()
    loss = model(torch.ones(2, 4))
    agviz.draw(loss, model, show_saved=True)
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_shapes_and_saved_tensors_are_those_of_torch() -> None:
    model = Two()
    source = agviz.draw(model(torch.ones(2, 4)), model, show_saved=True).source
    assert "saved result  [2, 4]  float32  32 B" in source
    assert "gradients are float32" in source


@pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")  # torchviz's
def test_attributes_are_those_that_torchviz_shows() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    loss = x.transpose(0, 1).softmax(-1).sum(0).clamp(max=0.7).mean()
    theirs = make_dot(loss, None, True, True, 12).source
    shown = set(re.findall(r"^(\w+) *: +(?!\[saved)(.*?)$", theirs, re.MULTILINE))
    assert {name for name, _ in shown} >= {"dim", "dim0", "max", "self_sym_sizes"}
    texts = [
        text.strip()
        for text in svg_reader.texts(agviz.draw(loss, None, True, True, 12).svg().encode())
    ]
    ours = {tuple(text.split(": ", 1)) for text in texts if ": " in text and "graph" not in text}
    for name, value in shown:
        said = value.strip().rstrip('"]').removesuffix("...").replace(str(2**64 - 1), "-1")
        if not said.startswith("184467"):  # cut off by torchviz: -1 as an unsigned number
            assert any(n == name and v.startswith(said) for n, v in ours), (name, said, ours)
    assert ("dim", "-1") in ours
    assert any("saved result" in text for text in texts)


def test_what_a_model_gives_may_be_nested() -> None:
    model = Two()
    loss, other = model(torch.ones(2, 4)), model(torch.zeros(2, 4))
    whole = agviz.draw([loss, other], model).source
    given = {"loss": loss, "more": (other, {"hidden": None, "names": "ab"}), "step": 3}
    assert agviz.draw(given, model).source == whole
    assert agviz.draw((each for each in (loss, other)), model).source == whole


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": torch.ones(3)}, "no tensor that was given requires grad"),
        ({"to": "third.weight"}, "No gradient comes to 'third.weight'"),
        ({"fold": "everything"}, "fold is 'everything': choose auto, repeats, chains"),
        ({"theme": "pink"}, "theme is 'pink': choose light, dark"),
        ({"params": {"x": 3}}, "params names 'x', which is no tensor"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(given: dict[str, object], said: str) -> None:
    loss, params = two()
    with pytest.raises(AgvizError, match=re.escape(said)):
        agviz.draw(**{"loss": loss, "params": params, **given})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("length", [10_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_deep_chain_needs_no_recursion(length: int) -> None:
    program = (
        "import inspect, sys, torch, agviz\n"
        "x = value = torch.ones(2, requires_grad=True)\n"
        f"for _ in range({length}):\n"
        "    value = value * 1.0\n"
        "loss = value.sum()\n"
        "agviz.draw(x.sum())\n"
        "sys.setrecursionlimit(len(inspect.stack(0)) + 60)\n"
        "drawn = agviz.draw(loss)\n"
        "print(drawn.notes)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert finished.stderr == ""
    assert f"{length - 1:,} equal blocks of 1 node drawn as one" in finished.stdout


def test_a_recording_draws_itself_in_every_view(tmp_path: Path) -> None:
    record_two_layers(tmp_path / "t.agviz")
    recorded = agviz.load(tmp_path / "t.agviz")
    whole = recorded.draw()
    assert "number: order of execution" in whole.source
    assert recorded.draw().source == whole.source
    sources = {
        recorded.draw(**view).source
        for view in (
            {"by": "device"},
            {"theme": "dark"},
            {"around": "TanhBackward0", "depth": 1},
            {"to": "0.weight"},
            {"at": recorded.events[40]},
            {"saved": True},
            {"links": "vscode"},
        )
    }
    assert len(sources | {whole.source}) == 8
    assert recorded.draw(around=6, depth=1).notes == (
        "1 edge around 6 TanhBackward0: 5 of 10 nodes",
    )


def test_a_recording_is_laid_over_another_one_or_its_file(tmp_path: Path) -> None:
    a, b = record_networks(tmp_path, 2, 3)
    drawn = agviz.load(a).draw(diff=b)
    assert drawn.source == agviz.load(a).draw(diff=agviz.load(b)).source
    assert "compared with 1.agviz (B)" in drawn.source
    assert "+ only there" in drawn.source
