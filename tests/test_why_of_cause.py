"""Answers that name the cause rather than the place where it showed; each from a small program."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributions import Normal

import agviz
from agviz.analysis.causes import Cause
from agviz.analysis.outcome import Outcome
from agviz.analysis.why import why
from tests.answers_support import answered, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from agviz.analysis.gradients import GradientRow


SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def is_cause(line: int) -> bool:
    return SOURCE[line - 1].endswith("# cause")


def root_where_positive() -> None:
    x = torch.randn(20, requires_grad=True)
    torch.where(x > 0, torch.sqrt(x), x).sum().backward()  # cause


def cosine_of_what_is_masked() -> None:
    x = torch.rand(3, requires_grad=True)
    far = torch.cat([x, torch.full((2,), torch.inf)]) * x.mean()
    torch.where(far < 5, torch.cos(far), 0.0).sum().backward()  # cause


@pytest.mark.parametrize("program", [root_where_positive, cosine_of_what_is_masked])
def test_what_lets_a_masked_value_through_is_named(
    tmp_path: Path, program: Callable[[], None]
) -> None:
    found = answered(tmp_path / "t.agviz", program)
    assert found.outcome is Outcome.FOUND
    assert "behind torch.where" in found.heading
    assert "torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)" in found.paragraph
    assert found.frame is not None
    assert is_cause(found.frame.line), found


def features(x: Tensor) -> Tensor:
    return x.square().sin()


def test_what_an_earlier_step_left_is_named(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.rand(4, requires_grad=True)
        style = features(weight * 2)  # cause
        for _ in range(2):
            (features(weight) - style).square().mean().backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    assert "within tests/test_why_of_cause.py" in found.paragraph


class _Reshaped(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.view(-1)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def _reshaped(x: Tensor) -> Tensor:
    apply: Callable[[Tensor], Tensor] = _Reshaped.apply
    return apply(x)


def _view_under(mode: AbstractContextManager[object], w: Tensor) -> Tensor:
    x = w.mul(2)
    with mode:
        return x[:2]


@pytest.mark.parametrize(
    ("act", "error", "part"),
    [
        (lambda w: w.fill_(0.1), "leaf Variable", "torch.no_grad()"),
        (lambda w: w[0].fill_(0.1), "view of a leaf", "torch.no_grad()"),
        (lambda w: w.mul(2).requires_grad_(False), "requires_grad flags", "x.detach()"),
        (lambda w: w.mul(2).numpy(), "numpy", "detach().numpy()"),
        (lambda w: w.mul(2).unbind()[0].add_(1), "returns multiple views", "out of place"),
        (lambda w: next(iter(w.mul(2))).add_(1), "returns multiple views", "a loop over a tensor"),
        (lambda w: w.mul(2).chunk(2)[1].mul_(2), "returns multiple views", "clone() of the view"),
        (lambda w: _view_under(torch.no_grad(), w).mul_(2), "created in no_grad", "into no_grad"),
        (lambda w: _view_under(torch.inference_mode(), w).mul_(2), "inference mode", "Move both"),
        (lambda w: _reshaped(w.mul(2)).add_(1), "custom Function", "Return a clone()"),
    ],
)
def test_errors_of_autograd_outside_of_backward_are_explained(
    tmp_path: Path, act: Callable[[Tensor], object], error: str, part: str
) -> None:
    found = answered(tmp_path / "t.agviz", lambda: act(torch.rand(3, requires_grad=True)), error)
    assert found.outcome is Outcome.FOUND
    assert part in found.paragraph
    assert found.frame is not None
    assert "lambda w:" in SOURCE[found.frame.line - 1]


def test_who_made_a_view_that_must_not_be_modified_is_told(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.rand(4, 2, requires_grad=True).exp()
        a, b = x.unbind(-1)  # cause
        c, _ = (x * 2).unbind(-1)
        a += b + c

    found = answered(tmp_path / "t.agviz", program, "multiple views")
    made = next(i for i, row in enumerate(SOURCE, 1) if "x.unbind(-1)  # cause" in row)
    assert f"Tensor.unbind at tests/test_why_of_cause.py:{made} in program" in found.paragraph
    assert found.frame is not None
    assert found.frame.line == made + 2


def test_saved_tensors_that_are_read_after_backward(tmp_path: Path) -> None:
    def program() -> None:
        out = torch.rand(3, requires_grad=True).sigmoid()
        out.sum().backward()
        getattr(out.grad_fn, "_saved_result").sum()  # noqa: B009  # cause

    found = answered(tmp_path / "t.agviz", program, "already been freed")
    assert "before backward" in found.paragraph
    assert found.frame is not None
    assert is_cause(found.frame.line)


class Vae(nn.Module):
    """Draws without the reparametrisation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)
        self.spare = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        drawn = Normal(self.mean(x), 1.0).sample()
        decoded: Tensor = self.decoder(drawn)
        return decoded


def test_what_left_torch_and_came_back_as_a_new_tensor_is_named(tmp_path: Path) -> None:
    def program() -> None:
        scale = nn.Linear(2, 1)
        logits = torch.tensor([one.item() for one in scale(torch.randn(3, 2))])  # cause
        (logits * torch.ones(1, requires_grad=True)).sum().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert row.cause is Cause.LEFT_TORCH
    assert "torch.tensor() makes a new tensor" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line)
    assert row.remedy.startswith("Use torch.stack")


def test_a_sum_of_losses_that_backward_was_not_called_on_is_named(tmp_path: Path) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.aux = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.main(x).mean(), self.aux(x).mean()

    def program() -> None:
        loss, aux = Heads()(torch.randn(3, 2))
        total = loss + 0.3 * aux  # cause
        loss.backward()
        assert total.item() != loss.item() != aux.item()

    row = asked(tmp_path / "t.agviz", program)["aux.weight"]
    assert row.cause is Cause.NOT_IN_LOSS
    assert row.frame is not None
    assert is_cause(row.frame.line)


def test_a_clamp_tells_what_it_was_given(tmp_path: Path) -> None:
    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_std = nn.Parameter(torch.tensor([-25.0, -30.0]))

        def forward(self) -> Tensor:
            return self.log_std.clamp(-5, 2)  # cause

    row = asked(tmp_path / "t.agviz", lambda: Actor()().sum().backward())["log_std"]
    assert row.cause is Cause.DEAD_ACTIVATION
    assert "outside of its bounds (it was -30 to -25)" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line)


def test_targets_that_are_all_ignored_are_named(tmp_path: Path) -> None:
    def program() -> None:
        scores = nn.Linear(2, 3)(torch.randn(4, 2))
        ignored = torch.full((4,), -100)
        nn.functional.cross_entropy(scores, ignored, reduction="sum").backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert row.reason.endswith("all targets are ignore_index (-100)")


def test_a_sample_is_no_rsample(tmp_path: Path) -> None:
    model = Vae()
    rows = asked(tmp_path / "t.agviz", lambda: model(torch.randn(3, 4)).sum().backward())
    assert rows["mean.weight"].cause is Cause.SAMPLED
    assert "rsample()" in rows["mean.weight"].remedy
    assert rows["spare.weight"].cause is Cause.UNUSED
    frame = rows["spare.weight"].frame
    assert frame is not None
    assert "self.spare = " in SOURCE[frame.line - 1]


def test_a_bias_that_cancels_in_a_difference_is_no_fault(tmp_path: Path) -> None:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def program() -> None:
        real, fake = torch.randn(2, 8, 4)
        (critic(fake).mean() - critic(real).mean()).backward()

    rows = asked(tmp_path / "t.agviz", program)
    assert rows["2.bias"].cause is Cause.DIFFERENCE
    assert rows["2.bias"].is_fine
    assert rows["2.weight"].is_there


def test_two_equal_losses_that_cancel_are_a_fault(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)

    def program() -> None:
        x = torch.randn(3, 4)
        (model(x).mean() - model(x).mean()).backward()

    assert not asked(tmp_path / "t.agviz", program)["bias"].is_fine


def test_a_sample_that_moves_with_its_mean(tmp_path: Path) -> None:
    mean = nn.Linear(4, 2)

    def program() -> None:
        policy = Normal(mean(torch.randn(6, 4)), 0.5)
        action = policy.rsample()
        (policy.log_prob(action) * torch.randn(6, 1)).mean().backward()  # cause

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert row.cause is Cause.CANCELLED
    assert "part at log_prob(), and one leads through rsample()" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line), row


def test_a_mean_of_one_number_leaves_nothing(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)

    def program() -> None:
        gain = torch.tensor([0.7])
        centred = gain - gain.mean()  # cause
        (model(torch.rand(1, 3))[:, 0] * centred / 2).sum().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert "mean() over one number is that number itself" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line), row


def test_sampling_the_nearest_pixel_has_no_slope_by_coordinates(tmp_path: Path) -> None:
    place = nn.Linear(2, 2)

    def program() -> None:
        grid = place(torch.rand(1, 3, 3, 2)).tanh()
        image = torch.rand(1, 1, 8, 8)
        nn.functional.grid_sample(image, grid, mode="nearest", align_corners=False).sum().backward()

    assert "in mode nearest" in asked(tmp_path / "t.agviz", program)["weight"].reason


def saliency(*, is_late: bool) -> None:
    model, image = nn.Linear(4, 3), torch.rand(2, 4)
    if not is_late:
        image.requires_grad_()
    score = model(image).amax(1).sum()
    if is_late:
        image.requires_grad_()  # cause
    score.backward()


def test_a_leaf_that_asks_for_its_gradient_too_late(tmp_path: Path) -> None:
    found = answered(tmp_path / "a.agviz", lambda: saliency(is_late=True))
    assert "after the forward" in found.heading
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    fine = answered(tmp_path / "b.agviz", lambda: saliency(is_late=False))
    assert fine.outcome is Outcome.NOTHING_UNUSUAL


def tied(*, by_data: bool) -> None:
    embed, output = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    if by_data:
        output.weight.data = embed.weight.data  # cause
    else:
        output.weight = embed.weight
    model = nn.Sequential(embed, output)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_parameters_that_share_one_memory(tmp_path: Path) -> None:
    found = answered(tmp_path / "a.agviz", lambda: tied(by_data=True))
    assert "share one memory" in found.heading
    assert "1.weight = 0.weight" in found.paragraph
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    fine = answered(tmp_path / "b.agviz", lambda: tied(by_data=False))
    assert fine.outcome is Outcome.NOTHING_UNUSUAL


def test_a_parameter_that_nobody_fills(tmp_path: Path) -> None:
    def program(*, is_filled: bool) -> None:
        model = nn.Linear(4, 1)
        model.weight = type(model.weight)(torch.empty(1, 4))
        if is_filled:
            nn.init.constant_(model.weight, float("nan"))
        model(torch.rand(2, 4)).sum().square().backward()

    torch.use_deterministic_algorithms(mode=True)  # so that memory without values is NaN
    try:
        bare = answered(tmp_path / "a.agviz", lambda: program(is_filled=False))
        filled = answered(tmp_path / "b.agviz", lambda: program(is_filled=True))
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert "torch.empty made it" in bare.paragraph
    assert "torch.empty" not in filled.paragraph


def test_a_generator_that_waits_in_no_grad(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)

    def predictions() -> Iterator[Tensor]:
        with torch.no_grad():  # cause
            while True:
                yield model(torch.rand(2, 3))

    def program() -> None:
        peek = predictions()
        model(torch.rand(2, 3)).sum().backward()
        next(peek)
        model(torch.rand(2, 3)).sum().backward()

    try:
        found = answered(tmp_path / "t.agviz", program, "does not require grad")
    finally:
        torch.set_grad_enabled(True)
    assert "predictions is a generator, which waits at its yield" in found.paragraph
    assert found.frame is not None
    assert is_cause(found.frame.line), found


def test_an_expert_without_tokens_is_no_fault(tmp_path: Path) -> None:
    experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = experts

        def forward(self, x: Tensor) -> Tensor:
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                (token,) = (torch.arange(len(x)) % 2 == number).nonzero(as_tuple=True)
                out = out.index_add(0, token, expert(x[token]))
            return out

    routed = Routed()
    rows = asked(tmp_path / "t.agviz", lambda: routed(torch.randn(6, 4)).square().sum().backward())
    assert rows["experts.0.weight"].is_there
    assert rows["experts.2.weight"].cause is Cause.NO_ELEMENTS
    assert rows["experts.2.weight"].is_fine


@pytest.mark.parametrize("is_held", [False, True])
def test_a_target_network_is_no_fault_unless_an_optimizer_holds_it(
    tmp_path: Path, is_held: bool
) -> None:
    online = nn.Linear(4, 2)
    target = copy.deepcopy(online)
    held = [*online.parameters(), *(target.parameters() if is_held else ())]

    def program() -> None:
        optimizer = torch.optim.SGD(held, lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                goal = target(torch.randn(3, 4))
            optimizer.zero_grad()
            (online(torch.randn(3, 4)) - goal).square().mean().backward()
            optimizer.step()

    rows = asked(tmp_path / "t.agviz", program)
    missing = [row for row in rows.values() if not row.is_there]
    assert len(missing) == 2
    assert {row.cause for row in missing} == {Cause.NO_GRAD if is_held else Cause.NOT_HELD}


def test_gradients_that_the_program_puts_there_are_no_fault(tmp_path: Path) -> None:
    """As for each sample, by torch.func, so that no pass writes ``.grad``."""
    net = nn.Sequential(nn.Linear(4, 2))

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(net, weights, (x[None],))
        return out.square().mean()

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    by_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(24):
            with torch.no_grad():
                net(torch.randn(3, 4))
            found = by_sample(
                {name: each.detach() for name, each in net.named_parameters()}, torch.randn(3, 4)
            )
            for name, each in net.named_parameters():
                each.grad = found[name].mean(0)
            optimizer.step()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        rows = why(trace)
    assert {row.cause for row in rows} == {Cause.PUT_THERE}
    assert all(row.is_fine for row in rows)


def test_a_power_of_negative_numbers_by_a_learned_exponent(tmp_path: Path) -> None:
    def program() -> None:
        exponent = torch.full((), 3.0, requires_grad=True)
        torch.randn(20).pow(exponent).clamp(min=0).sum().backward()  # cause

    found = answered(tmp_path / "t.agviz", program)
    assert "pow of a negative base" in found.heading
    assert "the base goes down to -" in found.paragraph
    assert found.frame is not None
    assert is_cause(found.frame.line), found


class _Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale
        if scale is None:
            scale = self.weight.exp() * 2
            self.scale = scale  # cause
        return x * scale


def test_what_a_caller_keeps_and_never_lets_go_of_is_named(tmp_path: Path) -> None:
    policy = nn.Linear(3, 2)
    kept: list[tuple[Tensor, float]] = []

    def act() -> tuple[int, Tensor]:
        logs = policy(torch.randn(3)).log_softmax(-1)
        action = int(torch.multinomial(logs.exp().detach(), 1))
        return action, logs[action]

    def update() -> None:
        logs, rewards = zip(*kept, strict=True)
        (torch.stack(logs) * torch.tensor(rewards)).sum().backward()

    def program() -> None:
        for _ in range(2):
            for _ in range(4):
                action, log = act()
                kept.append((log, float(action)))  # cause
            update()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    assert "log, which is put into kept with its graph, and stays there. Empty kept" in (
        found.paragraph
    )


def test_what_is_kept_on_an_object_with_its_graph_is_named(tmp_path: Path) -> None:
    def program() -> None:
        model = _Cached()
        for _ in range(2):
            model(torch.rand(3)).square().sum().backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    assert "scale, which is put into .scale with its graph" in found.paragraph


def test_parameters_that_backward_was_not_asked_for(tmp_path: Path) -> None:
    def program() -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        model(torch.rand(5, 3)).sum().backward(inputs=list(model[1].parameters()))  # cause

    row = asked(tmp_path / "t.agviz", program)["0.weight"]
    assert row.cause is Cause.NOT_IN_INPUTS
    assert row.frame is not None
    assert is_cause(row.frame.line), row


def test_a_norm_over_single_values_gives_its_bias(tmp_path: Path) -> None:
    def program() -> None:
        model = nn.Sequential(
            nn.Conv2d(2, 4, 1, bias=False), nn.GroupNorm(4, 4), nn.Conv2d(4, 1, 1)
        )
        model(torch.rand(6, 2, 1, 1) * 1e-3).square().sum().backward()  # cause

    rows = asked(tmp_path / "t.agviz", program)
    found = [row for row in rows.values() if "over groups of one value each" in row.reason]
    assert found
    assert all(row.frame is not None and is_cause(row.frame.line) for row in found)


def _start(weight: Tensor) -> None:
    nn.init.normal_(weight, std=1e-4)  # cause


def test_weights_that_start_too_small_are_named_with_the_line_that_drew_them(
    tmp_path: Path,
) -> None:
    def program() -> None:
        layers = [nn.Linear(12, 12) for _ in range(5)]
        for layer in layers:
            _start(layer.weight)
        nn.Sequential(*layers)(torch.rand(5, 12)).sum().backward()

    row = asked(tmp_path / "t.agviz", program)["0.weight"]
    assert "weights of its layers are too small (about 1e-04)" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line), row


class _LowRank(nn.Module):
    def __init__(self, down: float) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.full((2, 6), down))
        self.up = nn.Parameter(torch.zeros(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x @ self.down.t() @ self.up.t()
        return found


class _Gated(nn.Module):
    def __init__(self, _: float) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4)
        nn.init.zeros_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.scale * self.inner(x)
        return found


@pytest.mark.parametrize("made", [_LowRank, _Gated])
def test_two_factors_of_zeros_never_learn(
    tmp_path: Path, made: Callable[[float], nn.Module]
) -> None:
    def rows(start: float) -> Iterator[GradientRow]:
        model = made(start)
        path = tmp_path / f"{start}.agviz"
        with agviz.trace(path=path):
            model(torch.rand(3, 6)).sum().backward()
        with agviz.Trace.open(path) as trace:
            yield from why(trace)

    for row in rows(0.0):
        assert row.cause is Cause.ZERO_FACTOR, row
        assert "both factors of this product were zeros" in row.remedy
    if made is _LowRank:
        (down,) = [row for row in rows(0.5) if not row.is_there]
        assert down.parameter == "down"
        assert "never" not in down.remedy


def test_factors_that_came_to_zero_are_told_from_a_mask(tmp_path: Path) -> None:
    def program(*, is_mask: bool) -> None:
        model = nn.Linear(3, 1)
        reward = torch.full((5, 1), 0.5)
        centred = reward - reward.mean()
        weight = (reward > 1).float() if is_mask else centred[:, :1]
        (model(torch.rand(5, 3)) * weight).sum().backward()

    factor = asked(tmp_path / "a.agviz", lambda: program(is_mask=False))["weight"]
    mask = asked(tmp_path / "b.agviz", lambda: program(is_mask=True))["weight"]
    assert (factor.cause, mask.cause) == (Cause.ZERO_FACTOR, Cause.MASKED)
    line = next(i for i, row in enumerate(SOURCE, 1) if "reward - reward.mean()" in row)
    assert f"what sub() gave, at tests/test_why_of_cause.py:{line}" in factor.reason


def test_the_bias_of_keys_is_taken_out_by_a_softmax_behind_which_the_loss_is(
    tmp_path: Path,
) -> None:
    def program() -> None:
        key, query = nn.Linear(4, 4), torch.rand(6, 4, requires_grad=True)
        scores = (key(torch.rand(6, 5, 4)) @ query[:, :, None]).squeeze(-1)
        scores.log_softmax(-1)[torch.arange(6), torch.arange(6) % 5].sum().backward()

    assert asked(tmp_path / "t.agviz", program)["bias"].cause is Cause.SHIFT


def test_a_collective_that_cuts_the_graph_is_named(tmp_path: Path) -> None:
    def program() -> None:
        model = nn.Linear(3, 2)
        out = model(torch.rand(4, 3))
        parts = [torch.empty_like(out)]
        dist.all_gather(parts, out)  # cause
        loss = torch.cat(parts).sum() * torch.ones((), requires_grad=True)
        loss.backward()

    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
            program()
    finally:
        dist.destroy_process_group()
    with agviz.Trace.open(next(tmp_path.glob("*.agviz"))) as trace:
        row = why(trace)["weight"]
    assert row.cause is Cause.COLLECTIVE
    assert row.frame is not None
    assert is_cause(row.frame.line), row


@pytest.mark.parametrize("choose", [torch.minimum, torch.min])
def test_a_clip_that_is_chosen_throughout(
    tmp_path: Path, choose: Callable[[Tensor, Tensor], Tensor]
) -> None:
    model = nn.Linear(3, 1)

    def program() -> None:
        ratio = model(torch.randn(5, 3)).square() + 2
        clipped = ratio.clamp(0.8, 1.2)  # cause
        choose(ratio * 3, clipped * 3).mean().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert model.weight.grad is not None
    assert not model.weight.grad.any()
    assert row.frame is not None
    assert is_cause(row.frame.line), row
    assert "outside of its bounds" in row.reason


def test_a_choice_that_always_takes_the_other(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)

    def program() -> None:
        torch.maximum(model(torch.randn(5, 3)).tanh(), torch.full((5, 1), 2.0)).mean().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert "the other argument throughout" in row.reason
    assert "mask" not in f"{row.reason} {row.remedy}"


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda out, y: nn.functional.mse_loss(out, y) / out.numel(),  # cause
        lambda out, y: (out - y).square().mean().div(float(out.numel())),  # cause
        lambda out, y: nn.L1Loss()(out, y) / (out.shape[1] * out.shape[2] * out.shape[3]),  # cause
    ],
)
def test_a_mean_that_is_divided_once_more(
    tmp_path: Path, loss_of: Callable[[Tensor, Tensor], Tensor]
) -> None:
    net = nn.Conv2d(3, 3, 3, padding=1)
    images = torch.rand(4, 3, 20, 20)
    found = answered(tmp_path / "t.agviz", lambda: loss_of(net(images), images).backward())
    assert found.frame is not None
    assert is_cause(found.frame.line), found
    assert "sum (reduction='sum')" in found.paragraph


def test_sums_that_are_divided_by_their_values(tmp_path: Path) -> None:
    net = nn.Conv2d(3, 3, 3, padding=1)
    images = torch.rand(4, 3, 20, 20)

    def program() -> None:
        error = (net(images) - images).square()
        per_pixel = error.mean(0).sum() / 1_200
        mean = nn.functional.mse_loss(net(images), images) / 4
        (error.sum() / error.numel() + per_pixel + mean).backward()

    assert answered(tmp_path / "t.agviz", program).outcome is Outcome.NOTHING_UNUSUAL


GENERATED = """
import torch
from torch import nn

torch.manual_seed(0)


def step():
    target.weight = nn.Parameter(net(torch.ones(3)).view(2, 4))  # cause
    target(torch.ones(5, 4)).sum().backward()


net, target = nn.Sequential(nn.Linear(3, 8), nn.Tanh()), nn.Linear(4, 2)
for _ in range({steps}):
    step()
"""


@pytest.mark.parametrize("steps", [1, 2])
def test_a_parameter_that_is_made_of_what_was_computed(tmp_path: Path, steps: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(GENERATED.format(steps=steps))
    left: list[dict[str, Any]] = []
    rows = asked(tmp_path / "t.agviz", lambda: left.append(runpy.run_path(str(script))))
    assert left[0]["net"][0].weight.grad is None
    row = next(row for name, row in rows.items() if name.endswith("0.weight"))
    assert row.frame is not None
    assert script.read_text().splitlines()[row.frame.line - 1].endswith("# cause")
    assert "new leaf" in row.reason
    assert "functional_call" in row.remedy
