"""Gradients that are of no use throughout a run are found by explain, without being asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.causes import Cause
from agviz.analysis.no_use import NoUse, no_use
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import Verdict, verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Adapter(nn.Module):
    """A low-rank addition to what it is given."""

    def __init__(self, down: float, up: float) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)
        for layer, scale in ((self.down, down), (self.up, up)):
            with torch.no_grad():
                layer.weight.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.up(self.down(x))
        return x + added


class Rounded(nn.Module):
    """A code of whole numbers, with or without a way past the rounding."""

    def __init__(self, *, straight: bool) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.straight = straight

    def forward(self, x: Tensor) -> Tensor:
        code = self.encode(x)
        whole = code.round()
        if self.straight:
            whole = code + (whole - code).detach()
        out: Tensor = self.decode(whole)
        return out


class Deep(nn.Module):
    """Layers of sigmoids."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return x


class Chosen(nn.Module):
    """Experts of which a router takes one, by its number or by its weight."""

    def __init__(self, *, hard: bool) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.hard = hard

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        outputs = torch.stack([expert(x) for expert in self.experts])
        if self.hard:
            return outputs[scores.argmax(1), torch.arange(len(x))]
        return torch.einsum("ebf,be->bf", outputs, scores.softmax(1))


class Probe(nn.Module):
    """A head on features that are not trained, on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).detach())
        return out


class Centred(nn.Module):
    """Takes each number from itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x


class Shifted(nn.Module):
    """An offset, of zeros at first, before a batch norm that takes it out again."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(6))
        self.norm, self.head = nn.BatchNorm1d(6, affine=False), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(x + self.offset))
        return out


class Weighted(nn.Module):
    """A head whose term is multiplied by a weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.main, self.beside = nn.Linear(6, 6), nn.Linear(6, 6)
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.main(x) + self.weight * self.beside(x)
        return out


class Filled(nn.Module):
    """Columns that are hidden take a value that is learned; none is hidden where a draw is 0."""

    def __init__(self, draws: int) -> None:
        super().__init__()
        self.hidden, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        is_hidden = torch.randint(0, self.draws, x.shape) > 0
        out: Tensor = self.head(x.masked_fill(is_hidden, 0.0) + is_hidden * self.hidden)
        return out


class Mixed(nn.Module):
    """Neighbours are mixed by a matrix, of zeros where whole numbers are divided."""

    def __init__(self, *, is_whole: bool) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        ones = torch.ones(16, 16, dtype=torch.long)
        self.mean = (ones // 16).float() if is_whole else ones / 16

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.own(x) + self.others(self.mean @ x)
        return out


class Chooses(nn.Module):
    """The best of some branches, whose weights are made to sum to one."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"choice": nn.Linear(6, 3), "branches": nn.Linear(6, 18)})
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        weights, which = self.net["choice"](x).softmax(-1).topk(self.count)
        weights = weights / weights.sum(-1, keepdim=True)
        given = self.net["branches"](x).view(-1, 3, 6)
        taken = given.gather(1, which[..., None].expand(-1, -1, 6))
        mixed: Tensor = (weights[..., None] * taken).sum(1)
        return mixed


def judged(
    model: nn.Module,
    path: Path,
    *,
    held: Callable[[str], bool] = bool,
    check_forward: bool = False,
    steps: int = 8,
) -> Verdict:
    """The verdict on some steps of a model."""
    torch.manual_seed(0)
    parameters = [each for name, each in model.named_parameters() if held(name)]
    optimizer = torch.optim.SGD(parameters, 0.01)
    with agviz.trace(path=path, check_forward=check_forward):
        for _ in range(steps):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            (model(x) - x.flip(1)).square().mean().backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize(
    ("model", "parameters", "said"),
    [
        (Adapter(0, 0), {"down.weight", "up.weight"}, "initialise one factor"),
        (Rounded(straight=False), {"encode.weight", "encode.bias"}, "straight-through"),
        (Deep(20), {"layers.0.weight", "layers.0.bias"}, "shorten the way"),
    ],
    ids=["both factors are zero", "rounded", "sigmoids"],
)
def test_what_never_learns_is_found(
    model: nn.Module, parameters: set[str], said: str, tmp_path: Path
) -> None:
    verdict = judged(model, tmp_path / "t.agviz")
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.FOUND
    assert parameters <= {row.parameter for row in verdict.basis.group.rows}
    assert "test_no_use.py:" in verdict.line
    assert said in verdict.paragraph
    assert "and in all after it" in verdict.paragraph
    assert verdict.basis.as_json()["kind"] == "no_use"
    assert len(f"{verdict.heading} {verdict.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize(
    "model",
    [Adapter(1, 0), Rounded(straight=True), Deep(2), Weighted(0.0)],
    ids=["one factor is zero", "straight through", "shallow", "a weight of zero may be meant"],
)
def test_what_may_be_meant_is_not(model: nn.Module, tmp_path: Path) -> None:
    assert judged(model, tmp_path / "t.agviz").outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize(
    ("model", "parameters", "said"),
    [
        (Filled(1), {"hidden"}, "the mask"),
        (Mixed(is_whole=True), {"others.weight"}, "the other factor"),
        (Chooses(1), {"net.choice.weight", "net.choice.bias"}, "cancel"),
    ],
    ids=["nothing is hidden", "divided by whole numbers", "one branch of weight one"],
)
def test_zeros_in_every_pass_are_shown_though_they_may_be_meant(
    model: nn.Module, parameters: set[str], said: str, tmp_path: Path
) -> None:
    verdict = judged(model, tmp_path / "t.agviz", steps=12)
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.CANT_TELL
    assert {row.parameter for row in verdict.basis.group.rows} == parameters
    assert "test_no_use.py:" in verdict.line
    assert said in f"{verdict.heading} {verdict.paragraph}"
    assert "If that is meant" in verdict.paragraph


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize(
    "model",
    [Filled(2), Mixed(is_whole=False), Chooses(2)],
    ids=["half is hidden", "divided", "two branches"],
)
def test_what_is_now_and_then_zero_is_not(model: nn.Module, tmp_path: Path) -> None:
    assert judged(model, tmp_path / "t.agviz", steps=12).outcome is Outcome.NOTHING_UNUSUAL


def test_what_no_optimizer_holds_is_not(tmp_path: Path) -> None:
    verdict = judged(
        Rounded(straight=False),
        tmp_path / "t.agviz",
        held=lambda name: name.startswith("decode"),
    )
    assert not isinstance(verdict.basis, NoUse)


def test_what_is_cut_off_throughout_is_found_where_the_forward_was_recorded(tmp_path: Path) -> None:
    verdict = judged(Chosen(hard=True), tmp_path / "t.agviz", check_forward=True)
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.FOUND
    assert "argmax" in verdict.heading
    assert {row.parameter for row in verdict.basis.group.rows} == {"router.weight", "router.bias"}
    assert "test_no_use.py:" in verdict.line


def test_what_cuts_it_off_cant_be_told_otherwise(tmp_path: Path) -> None:
    verdict = judged(Chosen(hard=True), tmp_path / "t.agviz")
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.CANT_TELL
    assert "--check-forward" in verdict.paragraph


def test_what_is_trained_is_not(tmp_path: Path) -> None:
    verdict = judged(Chosen(hard=False), tmp_path / "t.agviz", check_forward=True)
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow
def test_what_is_detached_may_be_meant(tmp_path: Path) -> None:
    """No tick, though: an optimizer holds what never gets a gradient."""
    verdict = judged(Probe(), tmp_path / "t.agviz", check_forward=True)
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.CANT_TELL
    assert "cut by detach()" in verdict.heading
    assert "If that is meant, leave them out of the optimizer." in verdict.paragraph
    head = judged(
        Probe(),
        tmp_path / "head.agviz",
        held=lambda name: name.startswith("head"),
        check_forward=True,
    )
    assert head.outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow
def test_what_is_trained_after_something_else_is_found(tmp_path: Path) -> None:
    """The loop of the last pass counts, not that of the first."""
    torch.manual_seed(0)
    before, adapter = nn.Linear(6, 6), Adapter(0, 0)
    with agviz.trace(path=tmp_path / "t.agviz"):
        optimizer = torch.optim.SGD(before.parameters(), 0.01)
        for _ in range(4):
            before(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer = torch.optim.SGD(adapter.parameters(), 0.01)
        for _ in range(4):
            (adapter(before(torch.randn(16, 6)).detach()) - 1).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    with Trace.open(tmp_path / "t.agviz") as trace:
        verdict, fifth = verdicts(trace)[0], trace.graph_tasks[4].id
    assert isinstance(verdict.basis, NoUse)
    assert verdict.basis.first == fifth
    assert "initialise one factor" in verdict.paragraph


@pytest.mark.slow
def test_what_is_put_into_a_model_later_is_found(tmp_path: Path) -> None:
    """Passes count from the first in which the parameters are there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6))

    def train(steps: int) -> None:
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), 0.01)
        for _ in range(steps):
            (model(torch.randn(16, 6)) - 1).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    with agviz.trace(path=tmp_path / "t.agviz"):
        train(4)
        model[0].requires_grad_(False)
        model.append(Adapter(0, 0))
        train(5)
    with Trace.open(tmp_path / "t.agviz") as trace:
        verdict, fifth = verdicts(trace)[0], trace.graph_tasks[4].id
    assert isinstance(verdict.basis, NoUse)
    assert verdict.basis.first == fifth
    assert "initialise one factor" in verdict.paragraph


@pytest.mark.slow
def test_nothing_is_learnt_where_all_gradients_cancel(tmp_path: Path) -> None:
    """A loss of what is normalised to one."""
    verdict = judged(nn.Sequential(nn.Linear(6, 6), Centred()), tmp_path / "t.agviz")
    assert isinstance(verdict.basis, NoUse)
    assert verdict.outcome is Outcome.FOUND
    assert len(verdict.basis.group.rows) == 2


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize("frozen", [False, True])
def test_what_a_normalisation_takes_out_is_found_where_nothing_else_is_trained(
    tmp_path: Path, *, frozen: bool
) -> None:
    model = Shifted()
    model.head.requires_grad_(not frozen)
    verdict = judged(model, tmp_path / "t.agviz")
    assert isinstance(verdict.basis, NoUse) == frozen
    answer = agviz.load(tmp_path / "t.agviz").why()
    assert (answer.is_fine, answer.outcome is Outcome.FOUND) == (not frozen, frozen)
    (row,) = (row for row in answer if row.parameter == "offset")
    assert (row.gradient, row.cause) == ("faint", Cause.SHIFT)
    if frozen:
        assert "x + self.offset" in verdict.source
        assert "train what is behind that" in verdict.paragraph


def trained(
    path: Path, model: nn.Module, loss: Callable[[Tensor], Tensor], steps: int = 40
) -> Verdict:
    """The verdict on a longer training, with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    with agviz.trace(path=path):
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(torch.randn(16, 6))).backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def _mlp(depth: int, scale: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(6, 6)
        nn.init.normal_(linear.weight, std=scale)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(6, 4))


def _of_noise(out: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out, torch.randint(0, 4, (16,)))


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize("detaches", [False, True])
def test_a_policy_whose_ratio_cancels_is_found(tmp_path: Path, *, detaches: bool) -> None:
    """The value beside it learns all the same."""
    policy, value = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*policy.parameters(), *value.parameters()], lr=0.1)

    def collect(x: Tensor) -> Tensor:
        chosen: Tensor = policy(x).log_softmax(-1)[:, 0]
        return chosen

    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(8):
            x = torch.randn(4, 4)
            old = collect(x).detach() if detaches else collect(x)
            ratio = (policy(x).log_softmax(-1)[:, 0] - old).exp()  # now
            loss = (value(x) - 1).square().mean() - (ratio * torch.randn(4)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.is_found is not detaches
    if not detaches:
        assert found.source.endswith("# now")
        assert "detach it or compute it under no_grad" in found.paragraph
        assert found.paragraph.count("test_no_use.py:") == 2


@pytest.mark.slow
def test_units_that_die_of_weights_that_start_too_small_are_told_as_that(tmp_path: Path) -> None:
    torch.manual_seed(1)
    verdict = trained(tmp_path / "t.agviz", _mlp(9, 0.03), _of_noise)
    assert isinstance(verdict.basis, NoUse)
    assert "weights of its layers are too small" in verdict.heading
    assert "initialised" in verdict.paragraph


@pytest.mark.slow
def test_nor_are_weights_that_start_well(tmp_path: Path) -> None:
    torch.manual_seed(1)
    verdict = trained(tmp_path / "t.agviz", _mlp(9, (2 / 6) ** 0.5), _of_noise)
    assert "too small" not in verdict.heading


@pytest.mark.slow
def test_an_output_that_cant_reach_its_targets_is_found(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1), nn.ReLU())
    verdict = trained(tmp_path / "t.agviz", model, lambda out: (out + 3).square().mean())
    assert isinstance(verdict.basis, NoUse)
    assert "what the model puts out" in verdict.paragraph
    assert len(verdict.basis.group.rows) == verdict.basis.of == 4
    assert len(f"{verdict.heading} {verdict.paragraph}".split()) <= 120


@pytest.mark.slow
def test_a_hinge_that_is_satisfied_is_not(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    verdict = trained(tmp_path / "t.agviz", model, lambda out: (1 - out).relu().mean(), 120)
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize("goes_on", [True, False])
def test_an_optimizer_that_steps_rarely_still_steps(tmp_path: Path, *, goes_on: bool) -> None:
    """Each 24th of its passes; or it did, before another training of as many."""
    torch.manual_seed(0)
    used, unused = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*used.parameters(), *unused.parameters()], lr=0.01)
    with agviz.trace(path=tmp_path / "t.agviz"):
        unused(torch.randn(3, 4))
        for turn in range(118):  # no step follows the last 22
            is_over = turn >= 48 and not goes_on
            (used(torch.randn(3, 4)).square().mean()).backward()
            if turn % 24 == 23 and not is_over:
                optimizer.step()
                optimizer.zero_grad()
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = no_use(trace)
    assert (found is not None) is goes_on
    if found is not None:
        assert {row.parameter.rpartition(".")[2] for row in found.group.rows} == {"weight", "bias"}


def test_a_head_that_few_batches_need_is_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    used, rare = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*used.parameters(), *rare.parameters()], lr=0.01)
    with agviz.trace(path=tmp_path / "t.agviz"):
        rare(torch.randn(3, 4))
        for turn in range(60):
            optimizer.zero_grad()
            (rare if turn == 20 else used)(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert no_use(trace) is None


class Turned(nn.Module):
    """Reads images at places that it computes, between pixels or at the nearest ones."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.place, self.mode = nn.Linear(36, 6), mode

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(-1, 1, 6, 6)
        straight = torch.eye(2, 3).flatten()
        theta = straight + 0.1 * self.place(x.flatten(1)).tanh()
        size = [len(x), 1, 6, 6]
        grid = nn.functional.affine_grid(theta.unflatten(1, (2, 3)), size, align_corners=False)
        return nn.functional.grid_sample(x, grid, mode=self.mode, align_corners=False)


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_grid_of_the_nearest_pixels_gets_nothing(tmp_path: Path, mode: str) -> None:
    torch.manual_seed(0)
    model = Turned(mode)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(10):
            x = torch.randn(8, 36)
            optimizer.zero_grad()
            (model(x) - x.reshape(-1, 1, 6, 6).roll(1, -1)).square().mean().backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (verdict,) = verdicts(trace)
    if mode == "bilinear":
        assert verdict.outcome is Outcome.NOTHING_UNUSUAL
    else:
        assert verdict.outcome is Outcome.FOUND
        assert "mode=self.mode" in verdict.source
        assert verdict.paragraph.endswith("interpolate (mode='bilinear').")


class _Grouped(nn.Module):
    """Scores of choices, weighed by rewards that a mean over their group is taken away from."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        rewards = x[:, 0].reshape(-1, self.size)
        beyond = rewards - rewards.mean(1, keepdim=True)
        out: Tensor = self.score(x) * beyond.reshape(-1, 1)
        return out


@pytest.mark.slow
def test_what_a_mean_over_one_number_leaves_is_found(tmp_path: Path) -> None:
    verdict = judged(_Grouped(1), tmp_path / "one.agviz", check_forward=True)
    assert verdict.outcome is Outcome.FOUND
    assert "mean() over one number is that number itself" in verdict.heading
    verdict = judged(_Grouped(2), tmp_path / "two.agviz", check_forward=True)
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL


class _First(nn.Module):
    """A recurrence of which one step is used."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(6, 6, batch_first=True)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cells(x.expand(3, *x.shape).transpose(0, 1))[0][:, self.step]
        return out


@pytest.mark.slow
def test_weights_between_steps_of_which_only_the_first_is_used_are_shown(tmp_path: Path) -> None:
    verdict = judged(_First(0), tmp_path / "first.agviz", steps=10)
    assert verdict.outcome is Outcome.CANT_TELL
    assert "cells.weight_hh_l0" in verdict.heading
    assert "batch_first" in verdict.paragraph
    verdict = judged(_First(-1), tmp_path / "last.agviz", steps=10)
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL
