"""What ``agviz check`` sees of a program besides custom Functions, in this process.

What is right is decided by torch: the gradient of the same loss without the fault.
"""

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.utils.checkpoint as checkpointing
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.variable import Variable
from torch.nn import functional

from agviz.analysis.outcome import Outcome
from agviz.check.report import CheckReport
from agviz.check.session import GradientCheck


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    own, checkpoint, train = _parts()
    yield
    assert _parts() == (own, checkpoint, train), "torch is left as it was"


def _parts() -> tuple[object, ...]:
    engine = Variable._execution_engine
    return engine, checkpointing.checkpoint, nn.Module.train


def checked(program: Callable[[], object]) -> CheckReport:
    check = GradientCheck()
    check.start()
    try:
        program()
    finally:
        report = check.stop()
    return report


def line_of(function: Callable[..., object], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    numbers = [first + n for n, line in enumerate(lines) if text in line]
    return f"tests/{Path(inspect.getfile(function)).name}:{numbers[0]} "


def found(report: CheckReport, place: str, *words: str) -> None:
    assert report.outcome is Outcome.FOUND
    (verdict,) = report.verdicts
    assert place in f"{verdict.line} "
    said = f"{verdict.heading} {verdict.paragraph}"
    assert all(word in said for word in words), said
    assert len(said.split()) <= 120


def fine(report: CheckReport) -> str:
    assert report.outcome is Outcome.NOTHING_UNUSUAL, report.verdicts
    return report.verdicts[0].paragraph


# -- saved tensors ----------------------------------------------------------------------------


def write_through_data() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    h = x.sigmoid()
    out = h * 2
    h.data.clamp_(0.4, 0.6)  # the write
    out.sum().backward()


def test_a_write_through_data() -> None:
    place = line_of(write_through_data, "# the write")
    found(checked(write_through_data), place, "clamp_", "version")


def write_through_numpy() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    h = x.exp()
    out = h.sum()
    array = h.detach().numpy()  # the write
    array[0] = 0
    out.backward()


def test_a_write_through_numpy() -> None:
    found(checked(write_through_numpy), line_of(write_through_numpy, "# the write"), "numpy")


def write_to_an_array_of_before() -> None:
    x = torch.rand(4, 3)
    array = x.numpy()
    layer = nn.Linear(3, 2)
    out = layer(x).sum()
    array -= 0.5  # the write
    out.backward()


def test_a_write_to_an_array_that_was_there_before() -> None:
    place = line_of(write_to_an_array_of_before, "# the write")
    found(checked(write_to_an_array_of_before), place, "array", "shares its memory")


def read_an_array_and_write_elsewhere() -> None:
    x = torch.rand(4, 3)
    array = x.numpy()
    other = array.copy()
    layer = nn.Linear(3, 2)
    out = layer(x).sum()  # saved
    other -= 0.5
    np.subtract(array, 0.5, out=array)
    out.backward()


def test_a_write_that_the_text_does_not_show_is_laid_to_no_line() -> None:
    place = line_of(read_an_array_and_write_elsewhere, "# saved")
    found(checked(read_an_array_and_write_elsewhere), place, "No torch function was seen")


def resize_what_was_saved() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    h = x.exp()
    h.sum().backward()
    h.untyped_storage().resize_(0)  # as FSDP does


def test_memory_stays_resizable() -> None:
    resize_what_was_saved()
    fine(checked(resize_what_was_saved))


def use_a_view_of_before() -> None:
    x, states = torch.randn(4, 3, requires_grad=True), torch.zeros(4, 3)
    with torch.no_grad():
        before = states[0]
    states += x
    assert before.data.isfinite().all()
    states.square().mean().backward()


def choose_one_of_two() -> None:
    policy = torch.distributions.Categorical(logits=torch.randn(2, requires_grad=True))
    policy.log_prob(torch.tensor(1)).backward()


@pytest.mark.parametrize("program", [choose_one_of_two, use_a_view_of_before])
def test_tensors_that_are_hard_to_look_at(program: Callable[[], None]) -> None:
    fine(checked(program))


def use_freed_memory() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    h = x.exp()
    freed = torch.randn(4)
    freed.untyped_storage().resize_(0)
    freed.detach()  # as FSDP does: nothing is read
    h.sum().backward()


def test_freed_memory_is_not_read() -> None:
    assert "memory of a tensor was freed" in fine(checked(use_freed_memory))


class _KeepsOnCtx(Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.x = x  # type: ignore[attr-defined]
        return x.square()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad * 2 * ctx.x  # type: ignore[attr-defined, no-any-return]


def write_to_ctx() -> None:
    x = torch.randn(4, requires_grad=True) * 1
    out = _KeepsOnCtx.apply(x).sum()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        x.mul_(3)  # the write
    out.backward()


def test_a_write_to_a_tensor_kept_on_ctx() -> None:
    found(checked(write_to_ctx), line_of(write_to_ctx, "# the write"), "ctx.x", "mul_")


SHARED = torch.empty(4, 3)


class _KeepsWhatIsShared(Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        torch.exp(x, out=SHARED)
        ctx.out = SHARED  # type: ignore[attr-defined]  # it is kept
        return SHARED.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad * ctx.out  # type: ignore[attr-defined, no-any-return]


def test_memory_that_a_later_call_overwrites_is_told_once() -> None:
    def program() -> None:
        apply: Callable[[Tensor], Tensor] = _KeepsWhatIsShared.apply
        apply(apply(torch.randn(4, 3, requires_grad=True) * 0.1)).sum().backward()

    place = line_of(_KeepsWhatIsShared.forward, "# it is kept")
    found(checked(program), place, "later call of forward", "save_for_backward")


def write_that_backward_does_not_use() -> None:
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    loss = (a.exp() + b).sum()
    c = b.square()
    total = loss + c.sum()
    b.data.zero_()
    torch.autograd.grad(total, [a])


def test_a_write_to_what_this_pass_does_not_use() -> None:
    fine(checked(write_that_backward_does_not_use))


def batch_norm_twice() -> None:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    real, fake = net(torch.randn(3, 2, 8, 8)), net(torch.randn(3, 2, 8, 8))
    (real - fake).mean().backward()


def test_statistics_of_batch_norm_are_not_used_in_training() -> None:
    fine(checked(batch_norm_twice))


def version_error() -> None:
    h = torch.randn(3, requires_grad=True).exp()
    out = h.sum()
    h.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_what_torch_refuses_itself_stays_refused() -> None:
    fine(checked(version_error))


def logarithm_of_zero() -> None:
    weight = torch.ones(3, requires_grad=True)
    for factor in (1.0, 0.0, 0.0):
        (weight * factor).log().sum().backward()


def test_no_tick_where_the_loss_is_not_finite() -> None:
    (verdict,) = checked(logarithm_of_zero).verdicts
    assert verdict.outcome is Outcome.CANT_TELL
    assert verdict.heading == "the loss was not finite in 2 of 3 backward passes"
    assert "The first was backward pass 1." in verdict.paragraph


def spectral_norm_and_clipping() -> None:
    net = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
        nn.Tanh(),
        nn.LSTM(4, 3, batch_first=True),
    )
    for _ in range(2):
        out, _ = net(torch.randn(2, 5, 4))
        out.square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.data.sub_(parameter.grad)
            parameter.grad = None


def test_writes_between_passes_are_fine() -> None:
    assert "saved tensors" in fine(checked(spectral_norm_and_clipping))


# -- losses -----------------------------------------------------------------------------------


def mse_of_a_column() -> None:
    model = nn.Linear(3, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = nn.MSELoss()(model(torch.randn(8, 3)), torch.randn(8))  # the loss
    loss.backward()


def difference_of_a_column() -> None:
    model = nn.Linear(3, 1)
    loss = (model(torch.randn(8, 3)) - torch.randn(8)).pow(2).mean()  # the loss
    loss.backward()


def weights_in_a_column() -> None:
    model, weights = nn.Linear(3, 2), torch.rand(16, 1)
    losses = nn.functional.cross_entropy(
        model(torch.randn(8, 3)), torch.zeros(8, dtype=torch.long), reduction="none"
    )
    weighted = losses * weights[:8]  # the loss
    weighted.mean().backward()


def likelihood_of_a_column() -> None:
    p, y = nn.Linear(3, 1)(torch.randn(8, 3)).sigmoid(), torch.ones(8)
    terms = y * p.log() + (1 - y) * (1 - p).log()  # the loss
    torch.where(terms < -9, -9.0, terms).sum().neg().backward()


def target_of_a_column() -> None:
    q = nn.Linear(3, 1)(torch.randn(8, 3))
    with torch.no_grad():
        target = torch.rand(8) + 0.9 * torch.randn(8, 2).max(1, keepdim=True).values  # the loss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.functional.smooth_l1_loss(q, target).backward()


@pytest.mark.parametrize(
    "program",
    [
        mse_of_a_column,
        difference_of_a_column,
        weights_in_a_column,
        likelihood_of_a_column,
        target_of_a_column,
    ],
)
def test_a_loss_that_broadcasts(program: Callable[[], None]) -> None:
    found(checked(program), line_of(program, "# the loss"), "broadcast", "shape")


def pairwise_distances() -> None:
    x = nn.Linear(3, 1)(torch.randn(8, 3)).squeeze(1)
    (x[:, None] - x).abs().mean().backward(retain_graph=True)
    (x.unsqueeze(1) * 2 - x).square().mean().backward()
    nn.functional.mse_loss(nn.Linear(3, 4)(torch.randn(8, 3)), torch.randn(8, 4)).backward()


def distances_by_norms() -> None:
    x, y = nn.Linear(3, 4)(torch.randn(8, 3)), nn.Linear(3, 4)(torch.randn(8, 3))
    squares = x.square().sum(1, keepdim=True) + y.square().sum(1) - 2 * x @ y.T
    squares.mean().backward()


def pairs_under_a_mask() -> None:
    score, grade = nn.Linear(3, 1)(torch.randn(8, 3)), torch.randn(8)
    better = (grade[:, None] > grade).float()
    losses = nn.functional.softplus(score - score.T) * better * torch.rand(8)
    (losses.mean() + ((score - grade) * better).mean()).backward()


def kernel_over_a_grid() -> None:
    score = nn.Linear(3, 1)(torch.randn(8, 3))
    (-(score - torch.linspace(0, 1, 8) * 2).square()).exp().mean().backward()
    score = nn.Linear(3, 1)(torch.randn(8, 3))
    (score - score.squeeze(1)).abs().mean().backward()


@pytest.mark.parametrize(
    "program", [pairwise_distances, distances_by_norms, pairs_under_a_mask, kernel_over_a_grid]
)
def test_differences_that_are_meant_to_broadcast(program: Callable[[], None]) -> None:
    fine(checked(program))


def late_lookup() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    layers = [nn.Linear(4, 4) for _ in range(3)]
    for layer in layers:
        x = checkpointing.checkpoint(
            lambda h: layer(h).tanh(),  # noqa: B023 # the fault
            x,
            use_reentrant=False,
        )
    x.sum().backward()


def test_a_variable_that_a_checkpoint_looks_up_again() -> None:
    report = checked(late_lookup)
    assert len(report.verdicts) == 1
    found(
        report, line_of(late_lookup, "checkpointing.checkpoint("), "looks layer up", "layer=layer"
    )


def test_a_variable_that_is_handed_over() -> None:
    def program() -> None:
        x = torch.randn(3, 4, requires_grad=True)
        for layer in [nn.Linear(4, 4) for _ in range(3)]:
            x = checkpointing.checkpoint(lambda h, layer=layer: layer(h), x, use_reentrant=False)
        x.sum().backward()

    fine(checked(program))


def probabilities_to_kl_div() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    target = torch.rand(4, 3).softmax(1)
    functional.kl_div(x.softmax(1), target, reduction="batchmean").backward()  # the call


def probabilities_to_nll_loss() -> None:
    x = torch.randn(2, 5, 3, requires_grad=True)
    chances = x.softmax(2).transpose(1, 2).reshape(6, 5)
    functional.nll_loss(chances, torch.arange(6) % 5).backward()  # the call


def sigmoid_twice() -> None:
    x = torch.randn(4, 1, requires_grad=True)
    chance = torch.sigmoid(x)[:, 0]
    nn.BCEWithLogitsLoss()(chance, torch.rand(4)).backward()  # the call


def softmax_twice() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    nn.CrossEntropyLoss()(nn.Softmax(1)(x), torch.arange(4) % 3).backward()  # the call


@pytest.mark.parametrize(
    "program",
    [probabilities_to_kl_div, probabilities_to_nll_loss, sigmoid_twice, softmax_twice],
)
def test_a_loss_that_takes_probabilities_for_something_else(program: Callable[[], None]) -> None:
    found(checked(program), line_of(program, "# the call"), "probabilities", "expects")


def test_losses_that_get_what_they_expect() -> None:
    def program() -> None:
        x = torch.randn(4, 3, requires_grad=True)
        target = torch.rand(4, 3).softmax(1)
        loss = functional.kl_div(x.log_softmax(1), target, reduction="sum") + functional.kl_div(
            x.softmax(1).log(), target, reduction="sum"
        )
        loss = loss + functional.nll_loss(x.log_softmax(1), torch.arange(4) % 3)
        gate = x.sigmoid() * x
        loss = loss + functional.binary_cross_entropy_with_logits(gate, target)
        (loss + functional.binary_cross_entropy(x.sigmoid(), target)).backward()

    fine(checked(program))


def seen_as_batch_first() -> None:
    outputs, _ = nn.GRU(3, 4)(torch.randn(9, 6, 3))
    outputs.view(6, 9, -1)[0].sum().backward()  # the call


def last_states_joined() -> None:
    _, state = nn.GRU(3, 4, num_layers=2)(torch.randn(9, 5, 3))
    state.reshape(5, -1)[0].sum().backward()  # the call


@pytest.mark.parametrize("program", [seen_as_batch_first, last_states_joined])
def test_a_view_that_mixes_samples(program: Callable[[], None]) -> None:
    found(checked(program), line_of(program, "# the call"), "use transpose or permute first")


def test_views_that_mix_nothing() -> None:
    def program() -> None:
        x = torch.randn(6, 3, 4, requires_grad=True)
        joined = x.view(3, 24)  # pairs of neighbours
        heads = x.view(6, 3, 2, 2).transpose(1, 2).reshape(12, 3, 2)
        swapped = x.transpose(0, 1).reshape(3, 24)
        inputs = torch.randn(12, 4, 5, requires_grad=True)  # 3 samples, 4 heads, 4 positions
        attended = inputs.transpose(0, 1).contiguous().view(12, 20)
        (joined.sum() + heads.sum() + swapped.sum() + attended.sum()).backward()

    fine(checked(program))


def recurrence_over_the_batch() -> None:
    outputs, _ = nn.LSTM(3, 4)(torch.randn(9, 6, 3))  # the call
    outputs[:, -1].sum().backward()


def last_sample_for_the_last_step() -> None:
    outputs, _ = nn.GRU(3, 4, batch_first=True)(torch.randn(9, 6, 3))  # the call
    outputs[-1].sum().backward()


def attention_over_the_batch() -> None:
    attention = nn.MultiheadAttention(4, 2)
    x = torch.randn(9, 6, 4)
    outputs = attention(x, x, x)[0]  # the call
    outputs[:, 0].sum().backward()


@pytest.mark.parametrize(
    "program",
    [attention_over_the_batch, last_sample_for_the_last_step, recurrence_over_the_batch],
)
def test_a_layer_of_which_one_sample_is_used(program: Callable[[], None]) -> None:
    found(checked(program), line_of(program, "# the call"), "batch_first", "one sample")


def test_recurrent_layers_of_which_all_samples_are_used() -> None:
    def program() -> None:
        time_first, _ = nn.LSTM(3, 4)(torch.randn(9, 6, 3))
        batch_first, _ = nn.LSTM(3, 4, batch_first=True)(torch.randn(6, 9, 3))
        shown, _ = nn.GRU(3, 4, batch_first=True)(torch.randn(6, 9, 3))
        assert shown[-1].isfinite().all()  # one of them, to look at
        (time_first[-1].sum() + batch_first[:, -1].sum() + shown.mean()).backward()

    fine(checked(program))


def losses_of_nine(layer: nn.Module, use: Callable[[Tensor], Tensor]) -> None:
    for _ in range(2):
        out = layer(torch.randn(9, 6, 4))  # the call
        out = use(out[0] if isinstance(out, tuple) else out)
        functional.cross_entropy(out, torch.arange(9) % 3).backward()


def mean_over_the_batch() -> None:
    losses_of_nine(nn.LSTM(4, 5), lambda out: out.tanh().mean(1))


def maximum_over_the_batch() -> None:
    losses_of_nine(nn.TransformerEncoderLayer(4, 2, 8), lambda out: out.max(dim=1).values)


def batch_joined_with_features() -> None:
    losses_of_nine(nn.GRU(4, 5), lambda out: out.flatten(1))


def values_by_a_mean_over_the_batch() -> None:
    layer = nn.RNN(4, 1)
    for _ in range(2):
        x = torch.randn(9, 6, 4)
        out = layer(x)[0].mean(1).squeeze(1)  # the call
        functional.mse_loss(out, x.mean((1, 2))).backward()


@pytest.mark.parametrize(
    "program",
    [
        batch_joined_with_features,
        maximum_over_the_batch,
        mean_over_the_batch,
        values_by_a_mean_over_the_batch,
    ],
)
def test_a_layer_whose_samples_are_reduced(program: Callable[[], None]) -> None:
    is_of_nine = program is not values_by_a_mean_over_the_batch
    place = line_of(losses_of_nine if is_of_nine else program, "# the call")
    found(checked(program), place, "batch_first", "together", "9 steps of 6 samples")


def test_layers_whose_samples_may_be_reduced() -> None:
    def of_steps() -> None:
        losses_of_nine(nn.LSTM(4, 5, batch_first=True), lambda out: out.mean(1))
        trials, mean = nn.LSTM(4, 5, batch_first=True), torch.randn(6, 5)
        for _ in range(2):
            functional.mse_loss(trials(torch.randn(9, 6, 4))[0].mean(0), mean).backward()

    def over_both_axes() -> None:
        columns, rows = (nn.TransformerEncoderLayer(4, 2, 8) for _ in range(2))

        def both(out: Tensor) -> Tensor:
            return torch.as_tensor(columns(out.transpose(0, 1)).transpose(0, 1).mean(1))

        losses_of_nine(rows, both)

    def of_single_steps() -> None:
        between = nn.TransformerEncoderLayer(4, 2, 8)  # samples on purpose
        losses_of_nine(nn.Linear(4, 4), lambda out: between(out[:, :1]).squeeze(1))

    for program in (of_single_steps, of_steps, over_both_axes):
        fine(checked(program))


# -- derivatives in losses ----------------------------------------------------------------------


def penalty(*, create_graph: bool) -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(1)
    critic = nn.Linear(3, 1)
    x = torch.randn(8, 3, requires_grad=True)
    score = critic(x.tanh())
    by = torch.autograd.grad
    (slope,) = by(score.sum(), x, retain_graph=True, create_graph=create_graph)  # the derivative
    return critic, score, (slope.norm(dim=1) - 1).square()


def penalty_without_a_graph() -> None:
    _, score, terms = penalty(create_graph=False)
    (score.mean() + 10 * terms.mean()).backward()


def residual_without_a_graph() -> None:
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(8, 1, requires_grad=True)
    u = net(x)
    slope = torch.autograd.grad(u.sum(), x, retain_graph=True)[0]  # the derivative
    (slope - u).square().mean().backward()


def penalty_read_from_grad() -> None:
    model = nn.Linear(3, 1)
    x = torch.randn(8, 3, requires_grad=True)
    loss = model(x.tanh()).mean()
    loss.backward(retain_graph=True)
    slope = x.grad  # the derivative
    assert slope is not None
    smooth = slope.square().mean()
    (loss + smooth).backward()


def variance_of_derivatives_by_parameters() -> None:
    net, sites = nn.Linear(3, 1), torch.randn(2, 8, 3)
    losses = [net(each).square().mean() for each in sites]
    by_site = [
        torch.autograd.grad(loss, net.weight, retain_graph=True)[0]  # the derivative
        for loss in losses
    ]
    spread = torch.stack(by_site).var(0).sum()
    (torch.stack(losses).mean() + spread).backward()


@pytest.mark.parametrize(
    ("program", "at"),
    [
        (penalty_without_a_graph, penalty),
        (variance_of_derivatives_by_parameters, variance_of_derivatives_by_parameters),
        (residual_without_a_graph, residual_without_a_graph),
        (penalty_read_from_grad, penalty_read_from_grad),
    ],
)
def test_a_derivative_without_a_graph_in_a_loss(
    program: Callable[[], None], at: Callable[..., object]
) -> None:
    found(checked(program), line_of(at, "# the derivative"), "create_graph", "constant")


def test_without_a_graph_a_penalty_trains_nothing() -> None:
    gradients = []
    for weight, create_graph in ((0.0, False), (10.0, False), (10.0, True)):
        critic, score, terms = penalty(create_graph=create_graph)
        (score.mean() + weight * terms.mean()).backward()
        assert critic.weight.grad is not None
        gradients.append(critic.weight.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[1], gradients[2])


def derivatives_that_are_meant_as_numbers() -> None:
    critic, score, terms = penalty(create_graph=True)
    (score.mean() + terms.mean()).backward()
    _, score, terms = penalty(create_graph=False)
    (score.mean() + terms.mean().detach()).backward()
    _, score, terms = penalty(create_graph=False)
    with torch.no_grad():
        weight = 1 / (1 + terms)
    (score.squeeze(1) * weight).mean().backward()
    x = torch.randn(8, 3, requires_grad=True)
    loss = critic(x).mean()
    (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
    (loss + critic(x + 0.1 * slope).mean() + critic(x - slope.sign()).mean()).backward()
    fast = torch.autograd.grad(critic(torch.randn(8, 3)).mean(), critic.weight)[0]
    nn.functional.linear(torch.randn(8, 3), critic.weight - 0.1 * fast).mean().backward()
    shift = nn.Parameter(torch.zeros(()))  # one number: its steps are not those of a penalty
    fast = shift - 0.1 * torch.autograd.grad((x + shift).square().sum(), shift)[0]
    fast = fast - 0.1 * torch.autograd.grad((x + fast).square().sum(), fast)[0]
    (fast - 1).square().backward()
    first, second = critic(x).mean(), critic(x).square().mean()
    by = [
        torch.autograd.grad(each, critic.weight, retain_graph=True)[0].norm()
        for each in (first, second)
    ]
    (first + by[0] / by[1] * second).backward()
    energy = nn.Linear(3, 1)
    score = torch.autograd.grad(energy(x).square().sum(), x)[0]
    (nn.Linear(3, 3)(x.detach()) - score).square().mean().backward()


def test_derivatives_that_are_meant_as_numbers() -> None:
    fine(checked(derivatives_that_are_meant_as_numbers))


# -- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_dropout_in_a_checkpoint(*, reentrant: bool, preserve: bool) -> None:
    net = nn.Linear(6, 16)

    def block(x: Tensor) -> Tensor:
        return nn.functional.dropout(net(x).tanh(), 0.5) * 2  # dropped

    def program() -> None:
        x = torch.randn(4, 6, requires_grad=True)
        out = checkpointing.checkpoint(
            block, x, use_reentrant=reentrant, preserve_rng_state=preserve
        )
        out.square().mean().backward()

    report = checked(program)
    assert report.checkpoints == 1
    if preserve:
        assert "1 recomputation" in fine(report)
    else:
        found(report, line_of(block, "# dropped"), "random", "preserve_rng_state")


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_noise_that_the_last_operation_of_a_checkpoint_uses(
    *, reentrant: bool, preserve: bool
) -> None:
    """Without reentrance the recomputation ends in that operation, before it has a result."""
    deviation = nn.Linear(6, 16)

    def sampled(x: Tensor) -> Tensor:
        given: Tensor = x.mean() + deviation(x).exp() * torch.randn(16)  # drawn
        return given

    def program() -> None:
        x = torch.randn(4, 6, requires_grad=True)
        out = checkpointing.checkpoint(
            sampled, x, use_reentrant=reentrant, preserve_rng_state=preserve
        )
        out.square().mean().backward()

    report = checked(program)
    if preserve:
        assert "1 recomputation" in fine(report)
    else:
        found(report, line_of(sampled, "# drawn"), "random", "preserve_rng_state")


def test_a_global_that_decides_in_a_checkpoint() -> None:
    def block(x: Tensor) -> Tensor:
        return x.exp() * random.random()  # decided

    def program() -> None:
        x = torch.randn(4, requires_grad=True)
        checkpointing.checkpoint(block, x, use_reentrant=True).sum().backward()

    found(checked(program), line_of(block, "# decided"), "recomput", "Python's random", "likely")


def test_a_counter_that_decides_in_a_checkpoint_is_not_laid_to_random_numbers() -> None:
    calls = 0

    def block(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x.exp() * calls  # decided

    def program() -> None:
        random.random()
        x = torch.randn(4, requires_grad=True)
        checkpointing.checkpoint(block, x, use_reentrant=True).sum().backward()

    report = checked(program)
    found(report, line_of(block, "# decided"), "recomput", "has changed in between")
    assert "random" not in report.verdicts[0].paragraph


def test_batch_norm_in_a_checkpoint() -> None:
    def program() -> None:
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
        x = torch.randn(8, 4, requires_grad=True)
        checkpointing.checkpoint(net, x, use_reentrant=True).square().mean().backward()

    fine(checked(program))


def test_a_mode_that_changes_before_the_recomputation() -> None:
    def program() -> None:
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3))
        x = torch.randn(8, 4, requires_grad=True)
        out = checkpointing.checkpoint(net, x, use_reentrant=True)
        net.eval()  # switched
        out.sum().backward()

    found(checked(program), line_of(program, "# switched"), "mode", "recomput")


# -- hooks ------------------------------------------------------------------------------------


def hook_twice() -> None:
    weight = nn.Parameter(torch.ones(3))
    for scale in (0.5, 0.5):
        weight.register_hook(lambda grad: grad * 0.5)  # the hook
        weight.register_hook(lambda grad, scale=scale: grad * scale)
    weight.sum().backward()
    assert weight.grad is not None


def hooks_that_differ() -> None:
    weight = nn.Parameter(torch.ones(3))
    for scale in (0.5, 0.25):
        weight.register_hook(lambda grad, scale=scale: grad * scale)
    weight.sum().backward()


def test_a_hook_that_is_registered_twice() -> None:
    report = checked(hook_twice)
    assert report.outcome is Outcome.FOUND
    assert line_of(hook_twice, "# the hook") in f"{report.verdicts[0].line} "
    fine(checked(hooks_that_differ))


# -- nothing ----------------------------------------------------------------------------------


def test_without_a_backward_pass_nothing_can_be_told() -> None:
    assert checked(lambda: torch.randn(3).exp()).outcome is Outcome.CANT_TELL


def test_functions_are_not_called_again_before_the_end() -> None:
    calls = []

    class Counts(Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            calls.append(1)
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return grad

    check = GradientCheck()
    check.start()
    try:
        x = torch.randn(3, requires_grad=True)
        Counts.apply(x).sum().backward()  # type: ignore[no-untyped-call]
        assert calls == [1]
    finally:
        report = check.stop()
    assert "1 custom Function against" in fine(report)
