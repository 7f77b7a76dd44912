"""Gradients that are there and of no use: not finite, or next to nothing."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import agviz
from agviz.analysis.causes import Cause
from agviz.cli.main import main
from tests.gallery_frame import Program, programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.gradients import Gradients

FAINT = programs("faint")


def test_a_gradient_that_is_not_finite_is_no_tick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor has it a norm; what is said of each parameter is what stands in ``.grad``."""
    path = tmp_path / "t.agviz"
    model = nn.ModuleDict({name: nn.Linear(2, 1) for name in ("fine", "nan", "inf", "before")})
    for parameter in model["before"].parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    with agviz.trace(model, path=path) as t:
        x = torch.ones(3, 2)
        loss = model["fine"](x).sum() + model["before"](x).sum()
        loss = loss + (model["nan"](x) * 0).sqrt().mul(0).sum()
        (loss + (model["inf"](x) * 1e20).sum() * 1e20).backward()
        answer = t.why()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        is_finite = bool(parameter.grad.isfinite().all())
        assert is_finite == name.startswith("fine"), "what the program is for"
        assert answer[name].is_fine == is_finite
        assert answer[name].gradient == ("some" if is_finite else "nonfinite")
        assert (answer[name].norm is None) == (not is_finite)
        assert main(["why", str(path), name]) == int(not is_finite)
        said = capsys.readouterr().out
        assert ("✓" in said) == is_finite
        assert ("not finite" in said) == (not is_finite)
        assert is_finite or "norm" not in said
    assert main(["why", str(path)]) == 1
    table = capsys.readouterr().out
    assert table.startswith("✗ 6 of 8 parameters have a gradient that is not finite")
    told, _, rows = table.partition("───")
    assert [line[0] for line in rows.splitlines() if ".*" in line[:20]] == list("✓✗✗")
    assert [line[0] for line in told.splitlines() if ".*" in line[:20]] == list("✗✗")


@pytest.mark.parametrize("program", FAINT, ids=lambda program: program.name)
def test_what_is_practically_zero_is_named(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the node where it fell, and its line; of all other parameters nothing is said."""
    path = tmp_path / "t.agviz"
    model = program.record(path)
    answer = agviz.load(path).why()
    expected = {
        name
        for name, _ in model.named_parameters()
        if any(fnmatchcase(name, pattern) for pattern in program.all("parameter"))
    }
    assert expected
    assert {row.parameter for row in answer if row.gradient == "faint"} == expected
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None
            assert parameter.grad.any(), "natively it is not zero"
            is_faint = parameter.grad.norm() <= 1e-6 * parameter.norm()
            assert is_faint == (name in expected), name
    for name in expected:
        row = answer[name]
        assert row.cause == program.one("cause")
        assert row.node_name == program.one("node")
        assert row.frame is not None
        assert row.frame.line == program.cause
        assert row.norm == pytest.approx(float(model.get_parameter(name).grad.norm()), rel=1e-3)
        assert f"beside a parameter of norm {model.get_parameter(name).norm():.3g}" in str(row)
        assert main(["why", str(path), name]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "practically zero" in said
        assert "✓" not in said
        assert " ".join(row.frame.source.split()) in said
    is_meant = program.one("cause") == Cause.SHIFT
    assert answer.is_fine == is_meant
    assert main(["why", str(path)]) == int(not is_meant)
    table = capsys.readouterr().out
    assert "≈ 0" in table
    assert "practically zero" in table


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", programs("healthy"), ids=lambda program: program.name)
def test_in_what_is_healthy_nothing_is_practically_zero(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    program.record(path)
    rows = [row for row in agviz.load(path).why() if row.gradient == "faint"]
    assert not [row for row in rows if not row.is_fine]


def minimised(loss_of: Callable[[nn.Module], Tensor], model: nn.Module) -> Gradients:
    """The last pass of a training that has come to its minimum, or next to it."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=300, tolerance_grad=0.0, tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    optimizer.zero_grad()
    with agviz.trace(model) as t:
        loss_of(model).backward()
        return t.why()


X = torch.linspace(-1, 1, 128).reshape(32, 4).sin()
LINE = X @ torch.tensor([[0.5], [-1.0], [2.0], [0.25]]) + 0.3
CLASSES = torch.arange(32) % 2
TRAINED: dict[str, Callable[[nn.Module], Tensor]] = {
    "mse_loss": lambda model: functional.mse_loss(model(X), LINE),
    "squares by hand": lambda model: (model(X) - LINE).square().mean(),
    "weighted": lambda model: ((model(X) - LINE).pow(2) * LINE.abs()).mean() * 0.01,
    "huber": lambda model: functional.smooth_l1_loss(model(X), LINE, reduction="sum") / 1e5,
    "mean of a power of the norm": lambda model: (model(X) - LINE).norm(dim=-1).pow(2).mean(),
    "as a product": lambda model: ((model(X) - LINE) * (model(X) - LINE)).mean(),
}


@pytest.mark.parametrize("loss_of", TRAINED.values(), ids=TRAINED)
def test_a_training_at_its_minimum_is_no_fault(loss_of: Callable[[nn.Module], Tensor]) -> None:
    torch.manual_seed(0)
    answer = minimised(loss_of, nn.Linear(4, 1))
    assert all(row.norm is None or row.norm < 1e-4 for row in answer), "it has to be at the minimum"
    assert answer.is_fine, answer


@pytest.mark.parametrize("scale", [30.0, 200.0])
def test_a_classifier_that_is_sure_and_right_is_no_fault(scale: float) -> None:
    model = nn.Linear(4, 2)
    inputs = functional.one_hot(CLASSES, 4).float()
    with torch.no_grad():
        model.weight.copy_(torch.eye(2, 4) * scale)
    losses: list[Callable[[Tensor], Tensor]] = [
        lambda out: functional.cross_entropy(out, CLASSES),
        lambda out: -functional.log_softmax(out, -1)[torch.arange(32), CLASSES].mean(),
        lambda out: functional.binary_cross_entropy_with_logits(out, inputs[:, :2]),
    ]
    for loss_of in losses:
        with agviz.trace(model) as t:
            loss_of(model(inputs)).backward()
            assert not [row for row in t.why() if row.gradient == "faint"]
        model.zero_grad()


def test_parameters_that_begin_at_zero_are_judged_by_the_way_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.zero_()
    with agviz.trace(model) as t:
        hidden = model[1](model[0](X) * 1e-3)
        (model[2](hidden).square().mean() * 1e-3).backward()
        assert t.why().is_fine
    with agviz.trace(model) as t:
        hidden = model[1](model[0](X) * 1e-12 + X)
        model[2](hidden).square().mean().backward()
        answer = t.why()
    assert {row.parameter for row in answer if not row.is_fine} == {"0.weight", "0.bias"}


def test_a_model_in_half_precision_is_judged_alike() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).bfloat16()
    with agviz.trace(model) as t:
        (model(X.bfloat16()).float().square().mean() * 2**-8).backward()
        assert t.why().is_fine


def test_the_norms_of_parameters_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model: Any = nn.ModuleDict({"a": nn.Linear(3, 2), "empty": nn.ParameterList([torch.empty(0)])})
    model["float16"] = nn.Linear(2, 2).half()
    model["complex64"] = nn.Linear(2, 2, dtype=torch.complex64)
    model["infinite"] = nn.Linear(2, 2)
    with torch.no_grad():
        model["infinite"].weight.fill_(torch.inf)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with agviz.trace(model, path=path):
        for _ in range(3):
            model["a"](torch.ones(1, 3)).sum().backward()
            with torch.no_grad():
                model["a"].weight.mul_(2)
            model["a"].bias.requires_grad_(not model["a"].bias.requires_grad)
    with agviz.Trace.open(path) as trace:
        for task in trace.graph_tasks:
            for row in trace.parameters(task.id):
                was = before[row.name]
                if row.name.startswith(("empty", "infinite.weight")):
                    assert row.norm is None
                else:
                    wide = was if was.is_complex() else was.float()
                    assert row.norm == pytest.approx(float(torch.linalg.vector_norm(wide)))
