"""Why gradients are missing: cases beside the gallery's, and random programs.

Torch's own engine says which gradients are None or zero; whether the cause is the right one is
tried out: taken out of the program, it no longer is the answer, until there is a gradient.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.causes import Cause
from agviz.analysis.gradients import GradientRow, Gradients
from agviz.analysis.untrained import untrained
from agviz.analysis.why import why
from agviz.cli.main import main
from agviz.traces.reader import Trace
from agviz.tui.answers import why_parameter
from tests.gallery_frame import programs
from tests.test_gallery_no_gradient import as_torch_has_it, natively

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Parts(nn.Module):
    """Two layers and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.p = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.a(x))

    def rest(self, hidden: Tensor) -> Tensor:
        """What follows the first layer."""
        found: Tensor = self.b(hidden) * self.p
        return found


def x() -> Tensor:
    return torch.randn(2, 4)


def wrapped(model: Parts) -> None:
    model.rest(nn.Parameter(model.a(x()))).sum().backward()


def on_another_thread(model: Parts) -> None:
    hidden: list[Tensor] = []
    thread = threading.Thread(target=lambda: hidden.append(model.a(x()).detach()))
    thread.start()
    thread.join()
    model.rest(hidden[0]).sum().backward()


def new_leaf(model: Parts) -> None:
    model.rest(model.a(x()).detach().requires_grad_()).sum().backward()


def detached_in_place(model: Parts) -> None:
    model.rest(model.a(x()).clone().detach_()).sum().backward()


def chosen(model: Parts) -> None:
    places = model.a(x()).topk(2).indices
    (model.rest(x()).gather(1, places)).sum().backward()


def out_of_no_grad(model: Parts) -> None:
    out = torch.empty(2, 4)
    hidden = model.a(x())
    with torch.no_grad():
        torch.mul(hidden, 2, out=out)
    model.rest(out).sum().backward()


def data_assigned(model: Parts) -> None:
    hidden = torch.zeros(2, 4)
    hidden.data = model.a(x())
    model.rest(hidden).sum().backward()


def copied(model: Parts) -> None:
    model.rest(copy.deepcopy(model.a)(x())).sum().backward()


def out_of_a_state_dict(model: Parts) -> None:
    own = model.a.state_dict()
    model.rest(functional.linear(x(), own["weight"], own["bias"])).sum().backward()


def a_number_of_a_choice(model: Parts) -> None:
    chosen = model.a(x()).argmax().item()
    (model.b(x()) * model.p * chosen).sum().backward()


def as_list(model: Parts) -> None:
    (model.b(x()) * torch.tensor(model.a(x()).tolist()) * model.p).sum().backward()


def asked_for_a_number(model: Parts) -> None:
    (model.rest(x()) * float(model.a(x()).detach().sum())).sum().backward()


def in_autocast(model: Parts) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.a(x())
        with torch.no_grad():
            hidden = hidden * 2
        loss = model.rest(hidden).sum()
    loss.backward()


def after_steps(model: Parts) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    norm = nn.BatchNorm1d(4, affine=False)
    for _ in range(3):
        optimizer.zero_grad()
        hidden = norm(model.a(x()))
        model.rest(hidden.detach()).sum().backward()
        optimizer.step()


def printed(model: Parts) -> None:
    loss = model.rest(x()).sum()
    extra = model.a(x()).mean()
    extra.item()  # too late to be part of the loss
    loss.backward()


def of_several_roots(model: Parts) -> None:
    hidden = model.a(x()).detach()
    torch.autograd.backward([model.b(hidden).sum(), model.p.sum()])


def failed(model: Parts) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, hidden: Tensor) -> Tensor:
            return hidden.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            raise ValueError("no")

    apply: Callable[[Tensor], Tensor] = Fails.apply
    with pytest.raises(ValueError, match="no"):
        model.rest(apply(model.a(x()))).sum().backward()


def taken_in_a_function(model: Parts) -> None:
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Tensor) -> Tensor:
            found: Tensor = model.a(inputs)
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    apply: Callable[[Tensor], Tensor] = Hidden.apply
    model.rest(apply(x().requires_grad_())).sum().backward()


NONE: Final[dict[Callable[[Parts], None], tuple[Cause, str]]] = {
    wrapped: (Cause.UNSEEN, "linear()"),
    on_another_thread: (Cause.UNSEEN, "linear()"),
    new_leaf: (Cause.DETACH, "detach()"),
    detached_in_place: (Cause.DETACH, "detach_()"),
    chosen: (Cause.INTEGER, "topk(), which gives int64"),
    out_of_no_grad: (Cause.NO_GRAD, "no_grad()"),
    data_assigned: (Cause.DATA, ".data"),
    copied: (Cause.COPIED, "copy.deepcopy()"),
    out_of_a_state_dict: (Cause.DETACH, "cut by detach(), inside of state_dict()"),
    a_number_of_a_choice: (Cause.INTEGER, "argmax(), which gives int64"),
    as_list: (Cause.LEFT_TORCH, "tolist()"),
    asked_for_a_number: (Cause.LEFT_TORCH, "torch, by float()"),
    in_autocast: (Cause.NO_GRAD, "no_grad()"),
    after_steps: (Cause.DETACH, "detach()"),
    printed: (Cause.NOT_IN_LOSS, "mean()"),
    of_several_roots: (Cause.DETACH, "detach()"),
    failed: (Cause.FAILED, "ValueError"),
    taken_in_a_function: (Cause.NOT_DIFFERENTIABLE, "Hidden.apply()"),
}
"""Programs in which only the layer ``a`` gets no gradient, the cause, and a word of the reason."""


def asked(program: Callable[[Parts], None], path: Path, **options: Any) -> Gradients:
    """What is said after a program was recorded; all of it agrees with torch's engine."""
    torch.manual_seed(0)
    model = Parts()
    state = torch.get_rng_state()
    program(model)
    left = natively(dict(model.named_parameters()))
    model.zero_grad()
    torch.manual_seed(0)
    model = Parts()
    torch.set_rng_state(state)
    with agviz.trace(model, path=path, **options):
        program(model)
    answer = agviz.load(path).why()
    own = {row.parameter.removeprefix("Parts."): as_torch_has_it(row) for row in answer}
    assert {name: own[name] for name in left} == left
    return answer


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", NONE, ids=lambda program: program.__name__)
def test_what_cut_the_graph_is_named(program: Callable[[Parts], None], tmp_path: Path) -> None:
    answer = asked(program, tmp_path / "t.agviz", check_forward=True)
    cause, words = NONE[program]
    missing = [row for row in answer if row.gradient == "none"]
    names = [row.parameter.removeprefix("Parts.") for row in missing]
    assert names == ["a.weight", "a.bias"]
    for row in missing:
        assert row.cause is cause, str(row)
        assert words in row.reason
        assert (row.line is None) == (cause is Cause.FAILED)
        assert row.line is None or "test_why.py:" in row.line


def test_why_a_call_gave_the_same_throughout_is_told(tmp_path: Path) -> None:
    said = {}
    for name, loss in {
        "cross_entropy() over 1 class ([4, 1]) gives 0": one_class,
        "softmax() over one entry gives 1": softmax_of_one,
        "layer_norm() over one feature gives its bias": normalised_alone,
        "grid_sample() gave 0 throughout, at coordinates from": outside_of_the_image,
        "outside of [-1, 1] there is nothing to sample": outside_of_the_image,
    }.items():
        path = tmp_path / "t.agviz"
        torch.manual_seed(0)
        layer = nn.Linear(3, 1)
        with agviz.trace(layer, path=path, check_forward=True):
            loss(layer).backward()
        assert layer.weight.grad is not None
        assert not layer.weight.grad.any()
        (row,) = agviz.load(path).why("weight")
        assert row.gradient == "zero"
        said[name] = row.reason
    assert [name for name, reason in said.items() if name not in reason] == []


def test_a_softmax_along_another_axis_is_not_taken_for_one_of_one(tmp_path: Path) -> None:
    layer = nn.Linear(3, 1)
    with agviz.trace(layer, path=tmp_path / "t.agviz", check_forward=True):
        functional.softmax(layer(torch.randn(4, 3)), dim=0).sum().mul(0).backward()
    assert "one entry" not in str(agviz.load(tmp_path / "t.agviz").why("weight"))


def one_class(layer: nn.Module) -> Tensor:
    return functional.cross_entropy(layer(torch.randn(4, 3)), torch.zeros(4, dtype=torch.long))


def softmax_of_one(layer: nn.Module) -> Tensor:
    return (functional.softmax(layer(torch.randn(4, 3)), dim=-1) * torch.randn(4, 1)).sum()


def normalised_alone(layer: nn.Module) -> Tensor:
    normalised = functional.layer_norm(layer(torch.randn(4, 3)), [1])
    return (normalised * torch.randn(4, 1)).sum()


def outside_of_the_image(layer: nn.Module) -> Tensor:
    grid = layer(torch.randn(4, 3)).tanh().expand(4, 2).view(1, 2, 2, 2) + 8
    image = torch.rand(1, 1, 5, 5)
    return functional.grid_sample(image, grid, align_corners=False).sum()


def in_a_buffer(model: Parts) -> None:
    hidden = torch.zeros(2, 4)
    hidden[0].copy_(model.a(x())[0])
    model.rest(hidden).sum().backward()


def straight_through(model: Parts) -> None:
    hidden = model.a(x())
    model.rest(hidden + (hidden.round() - hidden).detach()).sum().backward()


def with_a_detached_target(model: Parts) -> None:
    (model(x()) - model(x()).detach()).square().sum().backward()


def scaled_by_its_own_size(model: Parts) -> None:
    hidden = model.a(x())
    with torch.no_grad():
        size = hidden.abs().max()
    model.rest(hidden / size).sum().backward()


def of_two_losses(model: Parts) -> None:
    model.a(x()).sum().backward()
    model.rest(x()).sum().backward()


def checkpointed(model: Parts) -> None:
    hidden = checkpoint(model.a, x().requires_grad_(), use_reentrant=True)
    model.rest(checkpoint(functional.silu, hidden, use_reentrant=False)).sum().backward()


def sorted_first(model: Parts) -> None:
    model.rest(model.a(x()).sort().values).sum().backward()


def hooked(model: Parts) -> None:
    hidden = model.a(x())
    hidden.register_hook(lambda gradient: gradient * 2)
    model.p.register_hook(lambda gradient: gradient.clamp(-1, 1))
    model.rest(hidden).sum().backward()


def with_an_average(model: Parts) -> None:
    slow = Parts().requires_grad_(requires_grad=False)
    for _ in range(2):
        model.zero_grad()
        (model(x()) - slow(x())).square().sum().backward()
        with torch.no_grad():
            for own, other in zip(slow.parameters(), model.parameters(), strict=True):
                own.lerp_(other, 0.1)


def clipped(model: Parts) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(x()).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


HEALTHY: Final = (
    in_a_buffer,
    straight_through,
    with_a_detached_target,
    scaled_by_its_own_size,
    of_two_losses,
    checkpointed,
    sorted_first,
    hooked,
    with_an_average,
    clipped,
)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("check_forward", [True, False], ids=["forward", "backward only"])
@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_a_healthy_program_is_left_in_peace(
    program: Callable[[Parts], None], tmp_path: Path, *, check_forward: bool
) -> None:
    answer = asked(program, tmp_path / "t.agviz", check_forward=check_forward)
    assert answer.is_fine
    assert answer.hint == ""
    assert all(row.gradient == "some" for row in answer if row.cause is None)
    assert {row.cause for row in answer} <= {None, Cause.FROZEN}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", programs("healthy"), ids=lambda program: program.name)
def test_of_the_healthy_gallery_nothing_false_is_said(program: Any, tmp_path: Path) -> None:
    called: list[nn.Module] = []
    hook = nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: called.append(module)
    )
    with hook:
        program.run()
    every = {id(p): p for module in called for p in module.parameters()}
    left = natively({str(number): parameter for number, parameter in every.items()})
    shapes = sorted((tuple(every[int(key)].shape), told) for key, told in left.items())
    program.record(tmp_path / "t.agviz", check_forward=True)
    answer = agviz.load(tmp_path / "t.agviz").why()
    # A bias that a normalisation takes out has a gradient of rounding errors, rightly called so.
    found = [(row.shape, "some" if row.cause is Cause.SHIFT else row.gradient) for row in answer]
    assert sorted(found) == shapes
    assert answer.is_fine == (set(left.values()) == {"some"})


def test_unused_rows_of_an_embedding_are_no_fault(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(50, 4), nn.Linear(4, 2))
    with agviz.trace(model, path=tmp_path / "t.agviz") as t:
        model(torch.tensor([1, 2, 2])).sum().backward()
        assert t.why().is_fine
        assert str(t.why("0.weight")).startswith("0.weight has a gradient, of norm")
    embedded = nn.Embedding(5, 4, padding_idx=0)
    with agviz.trace(embedded) as t:
        embedded(torch.tensor([0, 0])).sum().backward()
        (row,) = t.why()
    assert (row.gradient, row.cause, row.node_name) == ("zero", Cause.MASKED, "EmbeddingBackward0")


def test_zeros_that_come_from_outside_a_reentrant_checkpoint(tmp_path: Path) -> None:
    def program(model: Parts) -> None:
        hidden = checkpoint(model.a, x().requires_grad_(), use_reentrant=True)
        model.rest(torch.relu(hidden - 100)).sum().backward()

    answer = asked(program, tmp_path / "t.agviz")
    for name in ("a.weight", "a.bias"):
        assert answer[name].cause is Cause.DEAD_ACTIVATION
        assert answer[name].node_name == "ReluBackward0"


def test_a_gradient_of_zeros_given_to_backward(tmp_path: Path) -> None:
    answer = asked(lambda model: model(x()).sum().backward(torch.tensor(0.0)), tmp_path / "t.agviz")
    assert {row.cause for row in answer} == {Cause.ROOT}
    assert [group.name for group in answer.groups()] == ["*"]


def test_what_grad_gives_back_is_not_called_missing() -> None:
    model = Parts()
    with agviz.trace(model) as t:
        torch.autograd.grad(model(x()).sum(), list(model.a.parameters()))
        answer = t.why()
    told = {row.parameter: (row.gradient, row.cause) for row in answer}
    assert told["a.weight"] == ("some", None)
    assert "grad()" in answer["a.weight"].reason
    assert told["b.weight"] == told["p"] == ("none", Cause.NOT_IN_INPUTS)


def test_a_hook_that_takes_the_gradient_away_afterwards_is_mentioned() -> None:
    model = Parts()

    def take(parameter: Tensor) -> None:
        parameter.grad = None

    model.p.register_post_accumulate_grad_hook(take)
    with agviz.trace(model) as t:
        model(x()).sum().backward()
        answer = t.why()
    assert "take" in answer["p"].reason
    assert answer["a.weight"].reason == ""


def test_one_backward_pass_can_be_asked_about() -> None:
    model = Parts()
    with agviz.trace(model, check_forward=True) as t:
        model.a(x()).sum().backward()
        model.rest(x()).sum().backward()
        first, second = (task.id for task in t.graph_tasks)
        assert t.why().is_fine
        assert t.why("a.weight").rows[0].reason.startswith(f"from backward pass {first}")
        only_first, only_second = t.why(graph_task=first), t.why(graph_task=second)
    assert {row.parameter for row in only_first if not row.is_fine} == {"b.weight", "b.bias", "p"}
    assert {row.parameter for row in only_second if not row.is_fine} == {"a.weight", "a.bias"}
    assert {row.cause for row in only_first if not row.is_fine} == {Cause.UNUSED}


def test_a_gradient_that_is_not_finite_is_not_called_missing() -> None:
    model = Parts()
    with agviz.trace(model) as t:
        (model(x()).sum() * torch.inf).backward()
        row = t.why("p")[0]
    assert row.gradient == "nonfinite"
    assert row.cause is Cause.NON_FINITE
    assert "agviz explain" in row.remedy


def test_asking_changes_nothing() -> None:
    model = Parts()
    loss = torch.relu(model(x())).square().sum()
    before = [(parameter.grad, parameter._version) for parameter in model.parameters()]
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor, lambda tensor: pytest.fail("unpacked")
    ):
        hooked_loss = model(x()).relu().sum()
    state = torch.get_rng_state()
    assert agviz.why(model, [loss, hooked_loss]).is_fine
    assert [(p.grad, p._version) for p in model.parameters()] == before
    assert torch.equal(torch.get_rng_state(), state)
    loss.backward()
    assert agviz.why(model, loss).is_fine  # what was saved is gone


def test_while_backward_runs_nothing_is_called_missing() -> None:
    model = Parts()
    answers: list[Gradients] = []
    with agviz.trace(model) as t:
        hidden = model.a(x())
        hidden.register_hook(lambda _: answers.append(t.why()))
        model.rest(hidden).sum().backward()
    (answer,) = answers
    assert {row.parameter: row.gradient for row in answer if row.gradient != "some"} == {
        "a.weight": "unknown",
        "a.bias": "unknown",
    }
    assert "not come there yet" in answer["a.bias"].reason
    assert answer.is_fine


@pytest.mark.slow
def test_a_lazy_model_and_a_compiled_one_can_be_asked() -> None:
    lazy = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    answer = agviz.why(lazy, lazy[1](torch.ones(2, 3)).sum())
    assert (answer["0.weight"].shape, answer["0.weight"].gradient) == (None, "none")
    assert answer["1.weight"].gradient == "unknown"
    model = Parts()
    compiled = torch.compile(model, backend="aot_eager")
    with agviz.trace(model) as t:
        compiled(x()).sum().backward()
        assert t.why().is_fine
        assert len(t.why()) == 5


def test_what_is_no_loss_is_refused() -> None:
    model = Parts()
    with pytest.raises(agviz.AgvizError, match="the loss is a float"):
        agviz.why(model, 1.0)  # type: ignore[arg-type]
    with pytest.raises(agviz.AgvizError, match="the loss is a NoneType"):
        agviz.why(model, lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(agviz.AgvizError, match=r"no parameter 'q' is known"):
        agviz.why(model, model(x()).sum(), "q")
    assert [row.parameter for row in agviz.why(model, model(x()).sum(), "p")] == ["p"]


def test_a_deep_graph_can_be_asked_and_let_go() -> None:
    weight = nn.Parameter(torch.ones(2))
    value = weight * 1
    for _ in range(60_000):
        value = value + 1
    assert agviz.why(nn.ParameterList([weight]), torch.relu(-value).sum())[0].gradient == "zero"


def row(name: str, cause: Cause | None, line: str | None = None) -> GradientRow:
    gradient: Any = "some" if cause is None else "none"
    return GradientRow(name, (1,), "float32", gradient, None, cause, cause or "", line)


def test_parameters_of_a_module_stand_together_where_they_are_alike() -> None:
    rows = [
        row("stem.weight", None),
        row("layers.0.a.weight", Cause.DETACH, "m.py:1 in f"),
        row("layers.0.a.bias", Cause.DETACH, "m.py:1 in f"),
        row("layers.0.b", Cause.DETACH, "m.py:1 in f"),
        row("layers.1.weight", Cause.DETACH, "m.py:2 in f"),
        row("layers.1.bias", None),
        row("layers.2.weight", None),
        row("head", Cause.UNUSED),
    ]
    answer = Gradients(rows)
    assert [(group.name, len(group.rows)) for group in answer.groups()] == [
        ("stem.weight", 1),
        ("layers.0.*", 3),
        ("layers.1.weight", 1),
        ("layers.1.bias … layers.2.weight", 2),
        ("head", 1),
    ]
    assert [group.name for group in answer.groups(apart=True)] == [r.parameter for r in rows]
    assert answer.verdict == "5 of 8 parameters have no gradient (None)"
    assert len(str(answer).splitlines()) == 4
    assert answer[1:3] == rows[1:3]
    with pytest.raises(KeyError, match="stem"):
        _ = answer["stem"]


def test_a_notebook_shows_a_table_in_which_nothing_is_markup() -> None:
    rows = [
        row("<b>", Cause.DETACH, "<i>.py:1 in f"),
        row("a.w", None)._replace(norm=0.5),
        row("a.v", None)._replace(norm=2.0),
    ]
    shown = Gradients(rows, "more & more")._repr_html_()
    assert "<td>&lt;b&gt;</td>" in shown
    assert "&lt;i&gt;.py:1 in f" in shown
    assert "<td>a.* (2 of them)</td><td>ok</td><td>0.5…2</td>" in shown
    assert "more &amp; more" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 3


class Heads(nn.Module):
    """Two heads, the loss of one of which is lost; ``expert`` begins as ``ex`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.ex = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1))
        self.expert = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.body(x).tanh()
        loss: torch.Tensor = self.expert(made).mean() + self.ex(made).mean().detach()
        return loss


@pytest.mark.parametrize(
    ("name", "parameters", "outcome"),
    [
        ("ex", {"ex.0.weight", "ex.0.bias", "ex.2.weight", "ex.2.bias"}, 1),
        ("ex.*", {"ex.0.weight", "ex.0.bias", "ex.2.weight", "ex.2.bias"}, 1),
        ("ex.2", {"ex.2.weight", "ex.2.bias"}, 1),
        ("expert", {"expert.0.weight", "expert.0.bias", "expert.2.weight", "expert.2.bias"}, 0),
        ("body.bias", {"body.bias"}, 0),
    ],
)
def test_a_module_is_asked_about_by_its_path(
    name: str,
    parameters: set[str],
    outcome: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = Heads()
    path = tmp_path / "t.agviz"
    with agviz.trace(model, path=path, check_forward=True) as t:
        loss = model(torch.randn(5, 3))
        live = agviz.why(model, loss, name)
        loss.backward()
        assert {row.parameter for row in t.why(name)} == parameters
    assert {row.parameter for row in live} == parameters
    assert main(["why", str(path), name]) == outcome
    said = capsys.readouterr().out
    whole = "body.bias" if name == "body.bias" else f"{name.removesuffix('.*')}.*"
    assert f" {whole} " in said
    assert ("cut by detach()" in said) is bool(outcome)
    with Trace.open(path) as trace:
        shown = SimpleNamespace(key=SimpleNamespace(graph_task=trace.graph_tasks[0].id))
        (verdict,) = why_parameter(name, None)(trace, cast("Any", shown)).verdicts
    assert whole in verdict.heading, ":why of the terminal UI"
    assert verdict.is_found is bool(outcome)
    assert ("detach" in verdict.source) is bool(outcome)
    for other in ("e", "ex.1", "ex.", "*", "weight"):
        with pytest.raises(agviz.AgvizError, match="no parameter"):
            agviz.why(model, loss, other)


def test_without_modules_no_parameter_is_known() -> None:
    weight = torch.ones(2, requires_grad=True)
    with agviz.trace() as t:
        weight.sum().backward()
        answer = t.why()
        assert str(answer).startswith("no parameter is known\n")
        assert "agviz.trace(model)" in answer.hint
        with pytest.raises(agviz.AgvizError, match="no parameter 'weight' is known, and no other"):
            t.why("weight")


# -- random programs --------------------------------------------------------------------------

CUTS: Final[dict[str, Cause]] = {
    "detach": Cause.DETACH,
    "data": Cause.DATA,
    "no_grad": Cause.NO_GRAD,
    "inference": Cause.INFERENCE_MODE,
    "compare": Cause.INTEGER,
}
ZEROS: Final[dict[str, Cause]] = {
    "dead": Cause.DEAD_ACTIVATION,
    "where": Cause.MASKED,
    "round": Cause.FLAT,
    "mask": Cause.MASKED,
}
KINDS: Final = ("scale", "scale", "add", "pass", *CUTS, *ZEROS)


class Step(nn.Module):
    """One function of a random program; its module path says which it is."""

    def __init__(self, kind: str, places: Sequence[int]) -> None:
        super().__init__()
        self.kind, self.places = kind, places
        self.factor = nn.Parameter(torch.full((3,), 1.25)) if kind == "scale" else None

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        if self.factor is not None:
            return one * self.factor
        return FUNCTIONS[self.kind](one, other)


def under_no_grad(one: Tensor, other: Tensor) -> Tensor:
    with torch.no_grad():
        return one * 1.5


def under_inference_mode(one: Tensor, other: Tensor) -> Tensor:
    with torch.inference_mode():
        made = one * 1.5
    return made.clone()


FUNCTIONS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": lambda one, other: one + other,
    "pass": lambda one, other: one.clone(),
    "detach": lambda one, other: one.detach(),
    "data": lambda one, other: one.data,
    "no_grad": under_no_grad,
    "inference": under_inference_mode,
    "compare": lambda one, other: (one > 0).float(),
    "dead": lambda one, other: torch.relu(one - 1e6),
    "where": lambda one, other: torch.where(torch.zeros(3) > 1, one, torch.ones(3)),
    "round": lambda one, other: one.round(),
    "mask": lambda one, other: one * torch.zeros(3),
}


class Random(nn.Module):
    """Steps that take what earlier ones put out; the loss is the sum of some."""

    def __init__(self, steps: Sequence[tuple[str, Sequence[int]]], ends: Sequence[int]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Step(kind, places) for kind, places in steps)
        self.start = nn.Parameter(torch.tensor([0.75, 1.5, 2.25]))
        self.ends = ends

    def forward(self) -> Tensor:
        values = [self.start]
        for step in self.steps:
            assert isinstance(step, Step)
            values.append(step(*(values[place % len(values)] for place in step.places)))
        return torch.stack([values[end % len(values)].sum() for end in self.ends]).sum()


@st.composite
def random_programs(draw: st.DrawFn) -> tuple[Any, Any]:
    places = st.tuples(st.integers(0, 8), st.integers(0, 8))
    steps = draw(st.lists(st.tuples(st.sampled_from(KINDS), places), min_size=1, max_size=8))
    return steps, draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))


@settings(max_examples=settings().max_examples // 6, suppress_health_check=[HealthCheck.too_slow])
@given(random_programs())
def test_who_follows_the_advice_gets_a_gradient(program: tuple[Any, Any]) -> None:
    model = Random(*program)
    for _ in range(len(model.steps) + 1):
        model.zero_grad()
        loss = model()
        if not loss.requires_grad:
            advice = agviz.why(model, model)
            assert all(row.gradient == "none" for row in advice)
        else:
            early = {row.parameter: row.gradient for row in agviz.why(model, loss)}
            loss.backward()
            left = natively(dict(model.named_parameters()))
            for name, told in early.items():
                assert left[name] == ("some" if told == "unknown" else told)
            with agviz.trace(model, check_forward=True) as t:
                model().backward()
                advice = t.why()
            assert {row.parameter: as_torch_has_it(row) for row in advice} == left
        to_change = {
            row.module: row for row in advice if row.cause in {*CUTS.values(), *ZEROS.values()}
        }
        if not to_change:
            assert {row.cause for row in advice} <= {None, Cause.UNUSED, Cause.NOT_IN_LOSS}
            return
        path, told_row = next(iter(to_change.items()))
        assert path is not None
        step = model.get_submodule(path)
        assert isinstance(step, Step)
        assert {**CUTS, **ZEROS}[step.kind] is told_row.cause
        step.kind = "pass"
    pytest.fail("all steps were taken out, and still something is missing")


def test_a_pass_that_is_under_way_has_not_refused_a_gradient(tmp_path: Path) -> None:
    """Asked in a hook of a parameter, while other parameters wait for theirs."""
    path = tmp_path / "t.agviz"
    last = nn.Linear(3, 1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), last)
    told: dict[str, str] = {}

    def ask(gradient: torch.Tensor) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and "is there now" not in told.get("2.weight", ""):
            time.sleep(0.3)  # until the writer has come so far
            with (
                agviz.Trace.open(path) as trace,
                contextlib.suppress(agviz.AgvizError),  # the leaves of this pass come later
            ):
                told["0.weight"] = why(trace)["0.weight"].reason
                told["2.weight"] = why(trace, "2.weight", trace.graph_tasks[-1].id)[0].reason

    with agviz.trace(model, path=path):
        model(torch.randn(4, 3)).sum().backward()
        last.weight.register_hook(ask)
        model(torch.randn(4, 3)).sum().backward()
    assert told["0.weight"].endswith("later ones gave it none yet")
    assert told["2.weight"] == "the backward pass is there now, in its AccumulateGrad"


def test_what_earlier_passes_led_to_is_told(tmp_path: Path) -> None:
    """Two models are trained, one after the other, for longer than the last passes reach back."""
    first, second = nn.Linear(2, 1), nn.Linear(3, 1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for model in (first, second):
            for _ in range(25):
                model(torch.ones(1, model.in_features)).sum().backward()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        looked_at = trace.graph_tasks.ids[23]  # of those before the last 20, every second
        found = why(trace)
        said = untrained(trace)
        asked = why(trace, graph_task=trace.graph_tasks.ids[-1])
    reasons = {row.parameter: row.reason for row in found}
    assert sorted(reasons) == ["Linear#2.bias", "Linear#2.weight", "Linear.bias", "Linear.weight"]
    for name in ("Linear.weight", "Linear.bias"):
        assert reasons[name].endswith(f"; backward pass {looked_at} led to it, the last 20 did not")
    assert not any("led to it" in row.reason for row in asked)
    assert said == (
        "2 of 4 parameters got no gradient in the last 20 backward passes, but earlier ones led to"
        " all of these (Linear.weight, Linear.bias)"
    )


def test_a_model_whose_names_lose_their_class_again(tmp_path: Path) -> None:
    """Names begin with a class only while there are several models: the last pass knows one."""

    def net() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        first = net()
        first(torch.randn(3, 4)).sum().backward()
        second = net()
        second(torch.randn(3, 4)).sum().backward()
        del second
        first(torch.randn(3, 4)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        answer = why(trace)
        assert [len(trace.parameters(task.id)) for task in trace.graph_tasks] == [4, 8, 4]
    assert (len(answer), answer.is_fine) == (8, True)
