"""``agviz check`` on programs for which float32 is not enough, and on some that look like it.

Which is which is decided by torch alone: each program is run in float32 and in float64 and the
gradients are compared, before agviz is asked.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from agviz.analysis.outcome import Outcome
from agviz.check.session import GradientCheck

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.check.report import CheckReport


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def checked(program: Callable[[], object], *, compiles: bool = False) -> CheckReport:
    check = GradientCheck(compiles=compiles)
    check.start()
    try:
        program()
    finally:
        report = check.stop()
    return report


def gradient(program: Callable[..., Tensor], dtype: torch.dtype) -> Tensor:
    """Of the parameter that a program trains, computed in a precision."""
    torch.manual_seed(0)
    return program(dtype).double()


def _learnt(loss: Tensor, parameter: Tensor) -> Tensor:
    loss.backward()
    assert parameter.grad is not None
    return parameter.grad.detach().clone()


def _made(*shape: int, dtype: torch.dtype, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    """The same numbers in every precision."""
    return (torch.randn(*shape) * scale + shift).to(dtype)


# -- float32 is not enough --------------------------------------------------------------------


def variance_of_heights(dtype: torch.dtype) -> Tensor:
    shift = _made(64, dtype=dtype, scale=1e-3).requires_grad_()
    heights = _made(64, dtype=dtype, shift=3000.0)
    x = heights + shift
    variance = (x * x).mean() - x.mean() ** 2  # the cause
    return _learnt((variance - 1).square(), shift)


def distances_of_near_points(dtype: torch.dtype) -> Tensor:
    a = _made(24, 3, dtype=dtype, scale=1e-3, shift=100.0).requires_grad_()
    b = _made(24, 3, dtype=dtype, scale=1e-3, shift=100.0)
    square = (a * a).sum(1) + (b * b).sum(1)
    apart = square - 2 * (a * b).sum(1)  # the cause
    return _learnt((apart - 1e-5).square().sum() * 1e10, a)


def exponential_minus_one(dtype: torch.dtype) -> Tensor:
    rate = (_made(40, dtype=dtype, scale=1e-5).abs() + 1e-5).requires_grad_()
    growth = torch.exp(rate) - 1  # the cause
    return _learnt(growth.log().square().sum(), rate)


def root_of_a_quadratic(dtype: torch.dtype) -> Tensor:
    c = _made(30, dtype=dtype).abs().add(0.5).requires_grad_()
    b = torch.full((30,), 2000.0, dtype=dtype).requires_grad_()
    root = -b + torch.sqrt(b * b - 4 * c)  # the cause
    return _learnt(root.reciprocal().sum(), c)


def scores_cast_to_bfloat16(dtype: torch.dtype) -> Tensor:
    weight = _made(16, 16, dtype=dtype, scale=0.3).requires_grad_()
    x = _made(8, 16, dtype=dtype)
    low = torch.bfloat16 if dtype is torch.float32 else dtype
    scores = (x @ weight).to(low)  # the cause
    return _learnt((scores.to(dtype) @ x.T).softmax(-1).square().sum(), weight)


def hidden_in_half(dtype: torch.dtype) -> Tensor:
    weight = _made(12, 12, dtype=dtype, scale=0.5).requires_grad_()
    x = _made(20, 12, dtype=dtype)
    hidden = (x @ weight).tanh()
    if dtype is torch.float32:
        hidden = hidden.half()  # the cause
    centred = hidden.to(dtype) - x.mul(0.5).tanh()
    return _learnt((centred**2).mean().sqrt(), weight)


def clock_that_adds_up(dtype: torch.dtype) -> Tensor:
    rate = torch.full((4,), 0.37, dtype=dtype, requires_grad=True)
    clock = torch.full((4,), 2.0**24, dtype=dtype)
    for _ in range(400):
        clock.add_(rate)
    since = clock - 2.0**24  # the cause
    return _learnt((since - 100).square().sum(), rate)


PLANTED: list[Callable[[torch.dtype], Tensor]] = [
    variance_of_heights,
    distances_of_near_points,
    exponential_minus_one,
    root_of_a_quadratic,
    scores_cast_to_bfloat16,
    hidden_in_half,
    clock_that_adds_up,
]


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_the_line_that_loses_precision_is_named(program: Callable[..., Tensor]) -> None:
    exact = gradient(program, torch.float64)
    off = (gradient(program, torch.float32) - exact).norm() / exact.norm()
    assert off > 1e-4, "the fault is there"
    report = checked(lambda: gradient(program, torch.float32))
    assert report.outcome is Outcome.FOUND, report.verdicts
    (verdict,) = report.verdicts
    lines, first = inspect.getsourcelines(program)
    at = next(first + n for n, line in enumerate(lines) if "# the cause" in line)
    assert verdict.line == f"tests/test_check_precision.py:{at} in {program.__name__}"
    said = f"{verdict.heading} {verdict.paragraph}"
    assert len(said.split()) <= 120
    told = re.search(r"is off by ([\d.,e+-]+) (%|times)[a-z ]* in the end", said)
    assert told is not None, said
    share = float(told[1].replace(",", "")) / (100 if told[2] == "%" else 1)
    assert share == pytest.approx(off.item(), rel=0.3)


# -- float32 is enough ------------------------------------------------------------------------


def normalised_net() -> None:
    net = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)
    )
    for _ in range(3):
        loss = functional.cross_entropy(net(torch.randn(64, 8)), torch.randint(3, (64,)))
        loss.backward()


def transformer_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    layer(torch.randn(2, 5, 16)).square().mean().backward()


def convolutions() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8)
    )
    net(torch.randn(4, 1, 16, 16)).square().mean().backward()


def trained_to_the_end() -> None:
    torch.manual_seed(0)
    net = nn.Linear(6, 2)
    x = torch.randn(64, 6)
    y = x[:, :2] * 2 + 1
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(260):
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()


def recurrent() -> None:
    lstm, head = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 1)
    head(lstm(torch.randn(4, 30, 3))[0][:, -1]).square().mean().backward()


def masked_attention() -> None:
    query = torch.randn(2, 6, 8, requires_grad=True)
    scores = query @ torch.randn(2, 8, 6) / 8**0.5
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
    (weights @ torch.randn(2, 6, 8)).square().sum().backward()


class _Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def straight_through() -> None:
    weight = torch.randn(10, 10, requires_grad=True)
    rounded: Tensor = _Rounded.apply(torch.randn(4, 10) @ weight * 8)  # type: ignore[no-untyped-call]
    (rounded / 8).square().mean().backward()


def residuals_of_almost_nothing() -> None:
    weight = torch.randn(5, requires_grad=True)
    x = torch.randn(40, 5)
    with torch.no_grad():
        y = (x @ weight) * (1 + 1e-6 * torch.randn(40))
    ((x @ weight - y) * 1e6).square().mean().backward()


def variance_by_torch() -> None:
    shift = torch.zeros(64, requires_grad=True)
    x = torch.randn(64) + 3000 + shift
    (x.var() - 1.5).square().backward()


def rows_written_in_place() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    buffer = torch.zeros(6, 4)
    state = torch.randn(4)
    for step in range(6):
        state = torch.tanh(weight @ state)
        buffer[step] = state
    buffer.square().sum().backward()


def logits_of_embeddings() -> None:
    table = nn.Embedding(20, 8, padding_idx=0)
    net = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 20))
    ids = torch.randint(20, (4, 7))
    functional.cross_entropy(net(table(ids)).flatten(0, 1), ids.flatten()).backward()


def squares_of_an_eigenvalue() -> None:
    a = torch.randn(5, 5, requires_grad=True)
    torch.linalg.eigvalsh(a + a.T).square().sum().backward()


HEALTHY: list[Callable[[], None]] = [
    normalised_net,
    transformer_layer,
    convolutions,
    trained_to_the_end,
    recurrent,
    masked_attention,
    straight_through,
    residuals_of_almost_nothing,
    variance_by_torch,
    rows_written_in_place,
    logits_of_embeddings,
    squares_of_an_eigenvalue,
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_nothing_is_said_where_float32_is_enough(program: Callable[[], None]) -> None:
    report = checked(program)
    assert report.outcome is Outcome.NOTHING_UNUSUAL, report.verdicts
    assert report.in_double, report.not_in_double
    assert "in float32 against float64" in report.verdicts[0].paragraph


# -- not compared -----------------------------------------------------------------------------


def under_autocast() -> None:
    net = nn.Linear(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(torch.randn(4, 8)).float().square().mean()
    loss.backward()


def in_half_throughout() -> None:
    net = nn.Linear(8, 8).to(torch.bfloat16)
    net(torch.randn(4, 8, dtype=torch.bfloat16)).square().mean().backward()


def clipped_by_a_hook() -> None:
    net = nn.Linear(8, 1)
    net.weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    net(torch.randn(4, 8)).square().mean().backward()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (under_autocast, "autocast"),
        (in_half_throughout, "lower precision on purpose"),
        (clipped_by_a_hook, "others when it is computed again"),
    ],
    ids=["autocast", "half", "hook"],
)
def test_what_is_not_compared_is_said(program: Callable[[], None], reason: str) -> None:
    report = checked(program)
    assert report.outcome is Outcome.NOTHING_UNUSUAL, report.verdicts
    assert not report.in_double
    assert reason in report.not_in_double
    assert reason in report.verdicts[0].paragraph


def test_what_a_program_draws_stays() -> None:
    def program() -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        first = nn.Linear(6, 6)
        net = nn.Sequential(first, nn.Dropout(0.5), nn.Linear(6, 1))
        loss = net(torch.randn(5, 6)).square().mean()
        loss.backward()
        weight = first.weight.grad
        assert weight is not None
        return weight.clone(), torch.rand(3)

    plain = program()
    seen: list[tuple[Tensor, Tensor]] = []
    report = checked(lambda: seen.append(program()))
    assert report.in_double == 1
    assert all(torch.equal(one, two) for one, two in zip(plain, seen[0], strict=True))


# -- compiled ---------------------------------------------------------------------------------


class _Miscompiled(TorchFunctionMode):
    """Takes another function for sigmoid, as a compiler with a fault would."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if func is torch.sigmoid:
            return functional.hardsigmoid(*args)
        return func(*args, **(kwargs or {}))


def gated() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.2))
    hidden = net(torch.randn(16, 8))
    gate = torch.sigmoid(hidden)  # the gate
    (hidden * gate).square().mean().backward()


def test_another_gradient_when_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with _Miscompiled():
                return function(*args)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    report = checked(gated, compiles=True)
    assert report.outcome is Outcome.FOUND
    (verdict,) = report.verdicts
    assert verdict.heading == "torch.compile computes another gradient"
    lines, first = inspect.getsourcelines(gated)
    at = next(first + n for n, line in enumerate(lines) if "# the gate" in line)
    assert verdict.line == f"tests/test_check_precision.py:{at} in gated"
    assert "sigmoid is the first function" in verdict.paragraph


@pytest.mark.slow
def test_the_same_gradient_when_compiled() -> None:
    report = checked(gated, compiles=True)
    assert report.outcome is Outcome.NOTHING_UNUSUAL, report.verdicts
    assert report.compiled == 1, report.not_compiled


def test_a_compiler_that_fails_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(_: Callable[..., Any], **__: Any) -> Callable[..., Any]:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", compiled)
    report = checked(gated, compiles=True)
    assert report.outcome is Outcome.NOTHING_UNUSUAL
    assert "it can't be compiled (RuntimeError)" in report.verdicts[0].paragraph
