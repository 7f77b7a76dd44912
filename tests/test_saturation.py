"""Activations at the rim: what is measured is held against torch, what is said against programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.outcome import Outcome
from agviz.analysis.saturation.finding import Saturation, share_at_the_rim
from agviz.analysis.saturation.openness import openness
from agviz.analysis.saturation.sites import PassSites
from agviz.analysis.verdict import verdicts
from agviz.measure.health import measure
from agviz.record.gates import gates_of
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# -- what is measured -------------------------------------------------------------------------

AT_THE_RIM: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda y: (y - 0.5).abs() >= 0.45,
    "tanh": lambda y: y.abs() >= 0.95,
    "relu": lambda y: y == 0,
    "softmax": lambda y: y.amax(-1) >= 0.95,
}


def put_out(function: str, x: Tensor) -> Tensor:
    if function == "softmax":
        return torch.softmax(x, -1)
    found: Tensor = getattr(torch, function)(x)
    return found


@pytest.mark.parametrize("function", AT_THE_RIM)
@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0, 60.0, 1e4])
def test_share_at_the_rim_is_never_more_than_torch_counts(function: str, scale: float) -> None:
    y = put_out(function, scale * torch.randn(200, 12))
    counted = AT_THE_RIM[function](y).float().mean().item()
    share = share_at_the_rim(function, measure(y))
    assert share is not None
    assert share <= counted + 1e-6
    if counted > 0.999:
        assert share > 0.5


@pytest.mark.parametrize(("function", "slope"), [("sigmoid", 0.25), ("tanh", 1.0), ("relu", 1.0)])
def test_openness_is_the_slope_that_the_gradient_met(
    function: str, slope: float, tmp_path: Path
) -> None:
    x = (2 * torch.randn(30, 5)).requires_grad_()
    weight = torch.randn(30, 5)
    with agviz.trace(path=tmp_path / "t.agviz"):
        (put_out(function, x) * weight).sum().backward()
    assert x.grad is not None
    by_torch = ((x.grad.norm() / weight.norm()).item() / slope) ** 2
    with Trace.open(tmp_path / "t.agviz") as trace:
        flow = GradientFlow(trace, trace.graph_tasks[0].id)
        (node,) = [each for each in flow.nodes if each.short_name.lower().startswith(function)]
        assert openness(flow, node) == pytest.approx(by_torch, rel=1e-4)


# -- what is said -----------------------------------------------------------------------------


def line_of(text: str) -> int:
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return number


def found(program: Callable[[], object], tmp_path: Path) -> Saturation:
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        program()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (verdict,) = verdicts(trace)
    assert verdict.outcome is Outcome.FOUND, verdict.paragraph
    assert isinstance(verdict.basis, Saturation)
    said = f"{verdict.heading} {verdict.line} {verdict.source} {verdict.paragraph}"
    assert len(said.split()) <= 120, said
    return verdict.basis


def fine(program: Callable[[], object], tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        program()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (verdict,) = verdicts(trace)
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL, verdict.heading


def steps(model: Callable[[Tensor], Tensor], parameters: list[nn.Parameter], rate: float) -> None:
    optimizer = torch.optim.SGD(parameters, lr=rate)
    for _ in range(6):
        optimizer.zero_grad()
        (model(torch.randn(16, 8)) - 1).square().mean().backward()
        optimizer.step()


class Net(nn.Module):
    """Three tanh layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)  # layers
        out: Tensor = self.head(x)
        return out


def test_a_layer_beside_its_siblings(tmp_path: Path) -> None:
    def program() -> None:
        net = Net()
        with torch.no_grad():
            next(net.layers[1].parameters()).mul_(500)
        steps(net, list(net.parameters()), 1e-4)

    one = found(program, tmp_path)
    assert one.trend == "siblings"
    assert one.module == "layers.1.1"
    assert one.frame is not None
    assert one.frame.line == line_of("layers")


def test_a_layer_beside_its_earlier_passes(tmp_path: Path) -> None:
    def program() -> None:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        for step in range(12):
            optimizer.zero_grad()
            (net(torch.randn(16, 8)) - 1).square().mean().backward()
            optimizer.step()
            if step == 6:
                with torch.no_grad():
                    next(net.layers[2].parameters()).mul_(500)

    one = found(program, tmp_path)
    assert one.trend == "passes"
    assert "(the 8th of 12, after 7 optimizer steps) on" in one.heading


def test_steps_of_a_recurrence(tmp_path: Path) -> None:
    cell, head = nn.Linear(8, 8, bias=False), nn.Linear(8, 1)
    nn.init.normal_(cell.weight, std=8.0)

    def model(x: Tensor) -> Tensor:
        state = x * 1e-3
        for _ in range(8):
            state = torch.tanh(cell(state))  # recurrence
        out: Tensor = head(state)
        return out

    one = found(lambda: steps(model, [*cell.parameters(), *head.parameters()], 1e-4), tmp_path)
    assert one.trend == "calls"
    assert one.frame is not None
    assert one.frame.line == line_of("recurrence")
    assert "recurrent" in one.paragraph


def test_all_relus_negative_from_the_start(tmp_path: Path) -> None:
    first, head = nn.Linear(8, 8), nn.Linear(8, 1)
    with torch.no_grad():
        first.bias.fill_(-40)
    one = found(
        lambda: steps(
            lambda x: head(first(x).relu()), [*first.parameters(), *head.parameters()], 1e-4
        ),
        tmp_path,
    )
    assert (one.trend, one.function, one.slope) == ("start", "relu", 0)
    assert "100 % of its outputs are 0" in one.paragraph


def test_a_net_of_small_weights_is_fine(tmp_path: Path) -> None:
    net = Net()
    fine(lambda: steps(net, list(net.parameters()), 1e-3), tmp_path)


def test_an_output_that_is_sure_is_no_fault(tmp_path: Path) -> None:
    layer = nn.Linear(8, 3)
    with torch.no_grad():
        layer.weight.mul_(100)
    fine(lambda: steps(lambda x: layer(x).softmax(-1), list(layer.parameters()), 1e-4), tmp_path)


def test_a_loss_that_fell_meanwhile_says_that_it_learns(tmp_path: Path) -> None:
    first, head = nn.Linear(8, 8), nn.Linear(8, 1)
    with torch.no_grad():
        first.weight.mul_(300)
        head.bias.fill_(4)

    def program() -> None:
        steps(lambda x: head(first(x).tanh()), [*first.parameters(), *head.parameters()], 0.1)

    fine(program, tmp_path)


def test_a_hook_that_takes_the_gradient_is_no_saturation(tmp_path: Path) -> None:
    first, head = nn.Linear(8, 8), nn.Linear(8, 1)

    def model(x: Tensor) -> Tensor:
        hidden = first(x).sigmoid()
        hidden.register_hook(torch.zeros_like)
        out: Tensor = head(hidden)
        return out

    with agviz.trace(path=tmp_path / "t.agviz"):
        steps(model, [*first.parameters(), *head.parameters()], 1e-4)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not any(isinstance(each.basis, Saturation) for each in verdicts(trace))


def test_a_policy_that_is_undecided_is_no_saturation(tmp_path: Path) -> None:
    """Of equal probabilities the entropy has the same gradient for all: softmax lets none through.

    The logits get theirs by the logarithm of the probability, past the softmax.
    """
    policy, value = nn.Linear(8, 2), nn.Linear(8, 1)
    with torch.no_grad():
        policy.weight.mul_(0.01)
        policy.bias.zero_()
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 1e-4)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(6):
            x, wanted = torch.randn(64, 8), torch.randint(2, (64,))
            chosen = torch.distributions.Categorical(logits=policy(x))
            loss = -chosen.log_prob(wanted).mean() - 0.01 * chosen.entropy().mean()
            optimizer.zero_grad()
            (loss + (value(x) - 1).square().mean()).backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not any(isinstance(each.basis, Saturation) for each in verdicts(trace))


@pytest.mark.slow
def test_a_policy_that_becomes_sure_is_no_saturation(tmp_path: Path) -> None:
    """Its entropy is a term beside: what the logits learn comes by the logarithm."""
    policy, value = nn.Linear(4, 3), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 0.3)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(60):
            x, noise = torch.randn(64, 4), torch.randn(64, 1)
            chosen = torch.distributions.Categorical(logits=policy(x))
            taken = chosen.sample()
            reward = (taken == x[:, :3].argmax(1)).float() - 0.5
            loss = -(chosen.log_prob(taken) * reward).mean() - 1e-3 * chosen.entropy().mean()
            optimizer.zero_grad()
            (loss + (value(x) - noise).square().mean()).backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not any(isinstance(each.basis, Saturation) for each in verdicts(trace))


# -- gates of an LSTM -------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [True, False])
def test_gates_of_an_lstm_are_those_of_its_cell(*, batch_first: bool) -> None:
    weights = [torch.randn(16, 3), torch.randn(16, 4), torch.randn(16), torch.randn(16)]
    of_input, of_state, bias, other = weights
    x = torch.randn(5, 6, 3)
    steps = x.transpose(0, 1) if batch_first else x
    h = c = torch.zeros(steps.shape[1], 4)
    by_hand = []
    for step in steps:
        i, f, g, o = (step @ of_input.T + h @ of_state.T + bias + other).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        by_hand.append(torch.cat([i, f, o], 1).sigmoid())
    state = torch.zeros(1, steps.shape[1], 4), torch.zeros(1, steps.shape[1], 4)
    how = True, 1, 0.0, True, False, batch_first
    found = gates_of((x, state, weights, *how), torch.lstm(x, state, weights, *how))
    assert found is not None
    assert torch.allclose(found, torch.stack(by_hand, 1).reshape(-1, 12), atol=1e-6)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(("deviation", "is_shut"), [(8.0, True), (0.3, False)])
def test_gates_of_an_lstm_that_are_shut_from_the_start(
    deviation: float, *, is_shut: bool, tmp_path: Path
) -> None:
    lstm, out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)
    for weight in lstm.parameters():
        nn.init.normal_(weight, std=deviation)
    optimizer = torch.optim.SGD([*lstm.parameters(), *out.parameters()], lr=0.01)
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        for _ in range(4):
            states, _ = lstm(torch.randn(16, 10, 4))
            optimizer.zero_grad()
            nn.functional.cross_entropy(out(states[:, -1]), torch.arange(16) % 2).backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (found,) = verdicts(trace)
    assert (found.outcome is Outcome.FOUND) is is_shut
    assert found.heading.startswith("the gates of ") is is_shut


# -- a loss that falls without what lies before -----------------------------------------------


class Raw(nn.Module):
    """Numbers as large as ``scale`` go into a hidden layer; the last one learns the mean."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.hidden = nn.Linear(8, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(torch.sigmoid(self.hidden(self.scale * x)))  # raw
        return found


def learn(model: nn.Module) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    data = torch.rand(64, 8)
    for _ in range(40):
        optimizer.zero_grad()
        (model(data) - 3).square().mean().backward()
        optimizer.step()


@pytest.mark.slow
def test_raw_numbers_are_told_though_the_loss_falls(tmp_path: Path) -> None:
    what = found(lambda: learn(Raw(2550.0)), tmp_path)
    assert what.trend == "start"
    assert what.frame is not None
    assert what.frame.line == line_of("raw")
    assert "What hidden.weight is multiplied by is not normalised" in what.paragraph


def test_the_scale_that_gradients_prove_is_never_more_than_it_is(tmp_path: Path) -> None:
    for scale in (1.0, 30.0, 300.0):
        model = Raw(scale)
        data = torch.randn(64, 8)
        with agviz.trace(path=tmp_path / f"{scale}.agviz"):
            model(data).sum().backward()
        with Trace.open(tmp_path / f"{scale}.agviz") as trace:
            sites = PassSites(trace, trace.graph_tasks[0].id)
            (key,) = sites.sites
            proven = sites.scale_before(key)
        assert proven[0] == "hidden.weight"
        assert 0 < proven[1] <= scale * data.square().mean().sqrt().item() * (1 + 1e-5)


def test_numbers_of_size_one_are_fine(tmp_path: Path) -> None:
    fine(lambda: learn(Raw(2.0)), tmp_path)


def test_a_gate_that_is_shut_while_the_rest_learns_is_fine(tmp_path: Path) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(8, 16)
            nn.init.constant_(self.gate.bias, -12.0)
            self.hidden = nn.Linear(8, 16)
            self.out = nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            held = self.hidden(x).relu()
            found: Tensor = self.out(held + torch.sigmoid(self.gate(x)) * held)
            return found

    fine(lambda: learn(Gated()), tmp_path)


# -- clamps, and activations with bounds --------------------------------------------------------


def depths(error: Callable[[Tensor], Tensor]) -> None:
    """A depth for each pixel, in metres, by a network that begins near 0."""
    conv = nn.Conv2d(3, 1, 3, padding=1)
    images, metres = torch.rand(4, 3, 8, 8), 20 + 60 * torch.rand(4, 1, 8, 8)
    optimizer = torch.optim.Adam(conv.parameters(), lr=1e-2)
    for _ in range(6):
        loss = error(conv(images) - metres).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_errors_clamped_to_a_bound_that_most_exceed(tmp_path: Path) -> None:
    def clamped(off: Tensor) -> Tensor:
        return off.square().clamp_max(500.0)  # errors beyond the bound

    what = found(lambda: depths(clamped), tmp_path)
    assert (what.function, what.trend) == ("clamp", "start")
    assert what.frame is not None
    assert what.frame.line == line_of("errors beyond the bound")


@pytest.mark.slow
def test_a_clamp_beyond_most_errors_is_fine(tmp_path: Path) -> None:
    fine(lambda: depths(lambda off: off.square().clamp_max(1e4)), tmp_path)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", ["hardtanh", "relu6", "hardsigmoid"])
def test_an_activation_with_bounds_that_pixels_of_255_exceed(name: str, tmp_path: Path) -> None:
    first, last = nn.Linear(6, 16), nn.Linear(16, 3)
    x, y = 255 * torch.rand(40, 6), torch.randint(3, (40,))

    def model(given: Tensor) -> Tensor:
        hidden: Tensor = getattr(nn.functional, name)(first(given))  # shut by pixels
        out: Tensor = last(hidden)
        return nn.functional.cross_entropy(out, y)

    what = found(
        lambda: steps(lambda _: model(x), [*first.parameters(), *last.parameters()], 1e-4),
        tmp_path,
    )
    assert what.frame is not None
    assert what.frame.line == line_of("shut by pixels")


def test_a_hinge_with_few_samples_within_its_margin_is_fine(tmp_path: Path) -> None:
    layer = nn.Linear(4, 1)
    x = torch.randn(60, 4)
    y = x[:, :1].sign()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[9.0, 0.0, 0.0, 0.0]]))
        layer.bias.zero_()

    def margins(_: Tensor) -> Tensor:
        loss: Tensor = (1 - y * layer(x)).clamp(0.0, 100.0).mean()
        return loss

    fine(lambda: steps(margins, [*layer.parameters()], 1e-3), tmp_path)


@pytest.mark.slow
def test_bits_that_are_free_are_fine(tmp_path: Path) -> None:
    encode, decode = nn.Linear(5, 4), nn.Linear(2, 5)
    x = torch.randn(30, 5)

    def bound(_: Tensor) -> Tensor:
        mean, log = encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp()
        divergence = 0.5 * (mean.square() + log.exp() - log - 1)
        loss: Tensor = (decode(z) - x).square().mean() + divergence.clamp(3.0, 1e3).mean()
        return loss

    fine(lambda: steps(bound, [*encode.parameters(), *decode.parameters()], 1e-3), tmp_path)


@pytest.mark.slow
def test_the_ratio_of_a_policy_is_clamped_on_purpose(tmp_path: Path) -> None:
    policy = nn.Linear(4, 3)
    states, chosen, gain = torch.randn(40, 4), torch.randint(3, (40,)), torch.randn(40)
    before = torch.full((40,), -0.1)  # of another policy: all ratios are beyond the bounds

    def surrogate(_: Tensor) -> Tensor:
        chance = policy(states).log_softmax(-1).gather(1, chosen[:, None])[:, 0]
        ratio = (chance - before).exp()
        return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    fine(lambda: steps(surrogate, [*policy.parameters()], 1e-3), tmp_path)
