"""Programs of the gallery in which what a rule looks at is there, but the cause is another one."""

from __future__ import annotations

import math
import runpy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from gallery.index import load
from gallery.judge import Answer, judge
from tests.answers_support import answered, asked
from tests.gallery_frame import Program, programs
from tests.spoken import check_length
from tests.test_check_program import checked

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

PROGRAMS = {program.name: program for program in load()}


def name_of(program: Program) -> str:
    return program.name


@pytest.mark.slow_but_one_in(9)
@pytest.mark.parametrize(
    "name",
    [
        "accumulated_and_divided_by_no_tokens",
        "factor_of_warmup",
        "kernel_attention_too_narrow",
        "plateau_mode_max",
        "static_scale_and_bad_log",
        "statistics_averaged_by_hand",
        "weights_renormalised",
    ],
)
def test_the_cause_is_named_and_not_what_looks_like_it(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    alive: list[object] = []  # what is gone at the end is not looked at
    found = answered(tmp_path / "t.agviz", lambda: alive.append(runpy.run_path(str(program.path))))
    text = f"{found.heading} {found.paragraph} train.py:{found.frame.line if found.frame else 0}"
    told = f"{text} {found.paragraph.replace(program.path.name, 'train.py')}"
    assert judge(program, Answer(told)) == "named", told


@pytest.mark.slow_but_one_in(9)
@pytest.mark.parametrize(
    "name", ["clipping_from_a_step_on", "fisher_information", "test_time_adaptation"]
)
def test_nothing_is_said_of_what_is_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS[name]
    found = answered(tmp_path / "t.agviz", lambda: runpy.run_path(str(program.path)))
    assert found.outcome is Outcome.NOTHING_UNUSUAL, found.paragraph


@pytest.mark.slow_but_one_in(18)
@pytest.mark.parametrize("program", programs("left_alone"), ids=name_of)
def test_what_is_seen_with_the_forward_is_left_alone(program: Program, tmp_path: Path) -> None:
    kept = program.record(tmp_path / "t.agviz", check_forward=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    del kept
    assert found.outcome is Outcome.NOTHING_UNUSUAL, found.heading


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("codebook_without_its_loss", "codebook.weight"), ("low_rank_both_zero", "down")],
)
def test_a_remedy_is_not_promised_where_it_would_not_help(
    name: str, parameter: str, tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    row = asked(tmp_path / "t.agviz", lambda: runpy.run_path(str(program.path)))[parameter]
    told = row.sentence.replace(program.path.name, "train.py")
    assert judge(program, Answer(told)) == "named", told


def _told(verdict: Verdict) -> str:
    return f"{verdict.heading} {verdict.paragraph}"


def test_a_gradient_made_of_a_bad_forward_is_not_the_beginning(tmp_path: Path) -> None:
    def program() -> None:
        out = nn.Linear(4, 8)(torch.randn(6, 4)).relu().log()
        out.backward(gradient=(out - out.mean()).detach())

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "log of zero" in told
    assert "gradient given" not in told


def test_a_hook_that_overflows_is_not_said_to_divide_for_sure(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.ones(4, dtype=torch.float16, requires_grad=True)
        weight.register_hook(lambda grad: grad * 60_000 * 30)
        weight.sum().backward()

    assert "or go beyond what float16 holds" in _told(answered(tmp_path / "t.agviz", program))


def test_a_gate_that_starts_at_zero_is_no_mask(tmp_path: Path) -> None:
    def program() -> None:
        alpha = torch.zeros(1, requires_grad=True)
        x = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
        (alpha * x.pow(2).sum(-1, keepdim=True).sqrt()).sum().backward()

    found = answered(tmp_path / "t.agviz", program)
    assert found.heading.startswith("norm at zero")
    assert "a mask" not in _told(found)


def test_data_without_a_finite_number_has_no_samples_to_leave_out(tmp_path: Path) -> None:
    def program() -> None:
        advantages = torch.tensor([math.nan] * 4)
        (nn.Linear(2, 1)(torch.ones(4, 2)).squeeze(1) * advantages).mean().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "No number of it is finite" in told
    assert "cleaned" not in told


def test_an_eps_that_float16_rounds_to_zero_is_told_from_none(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.zeros(3, dtype=torch.float16, requires_grad=True)
        (x / (x.pow(2).mean() + 1e-8)).sum().backward()

    assert "an eps is 0 in float16" in _told(answered(tmp_path / "t.agviz", program))


def test_nan_behind_a_bias_is_no_row_of_a_mask(tmp_path: Path) -> None:
    counts = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    head, prior = nn.Linear(2, 3), torch.zeros(3, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        logits = head(counts / counts.sum(1, keepdim=True)) + prior
        nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        assert "was -inf" not in _told(verdicts(trace)[0])


def test_a_masked_symbol_is_no_row_of_a_mask(tmp_path: Path) -> None:
    def program() -> None:
        logits = nn.Linear(6, 5)(torch.randn(12, 1, 6))
        logits = logits.masked_fill(torch.arange(5) == 4, -math.inf)
        given = torch.tensor([[1, 4, 2]]), torch.tensor([12]), torch.tensor([3])
        nn.functional.ctc_loss(logits.log_softmax(-1), *given).backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "Tensor.masked_fill wrote" in told
    assert "0 / 0" not in told


def test_a_parameter_that_was_large_from_the_start_has_not_grown(tmp_path: Path) -> None:
    def program() -> None:
        layer = nn.Linear(1, 2, bias=False).half()
        nn.init.constant_(layer.weight, 5e4)
        layer(torch.full((3, 1), 9.0).half()).sin().sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "no optimizer had stepped" in told
    assert "has grown" not in told


def test_a_remainder_by_zero_is_no_overflow(tmp_path: Path) -> None:
    def program() -> None:
        phase = torch.remainder(
            torch.full((4,), 400.0).half(), torch.tensor([24.0] * 3 + [0]).half()
        )
        nn.Linear(4, 1).half()(phase).sum().backward()

    found = answered(tmp_path / "t.agviz", program)
    assert "overflow" not in _told(found)
    assert "torch.remainder" in _told(found)


def test_numbers_that_are_only_logged_are_no_cut(tmp_path: Path) -> None:
    def program() -> None:
        model = nn.ModuleDict({"main": nn.Linear(2, 1), "aux": nn.Linear(2, 1)})
        for _ in range(3):
            terms = [model[name](torch.ones(4, 2)).pow(2).mean() for name in ("main", "aux")]
            assert [term.item() for term in terms]
            terms[0].backward()

    reason = next(
        row.reason
        for row in asked(tmp_path / "t.agviz", program).values()
        if row.gradient == "none" and row.parameter.endswith("weight")
    )
    assert reason == "it is not in the loss; mean() was the last to use it"


def test_terms_that_cancel_are_no_zeros_and_no_mask(tmp_path: Path) -> None:
    def program() -> None:
        ends = nn.Embedding(5, 4)(torch.arange(5).repeat(2, 1))
        nn.functional.softplus(ends[0] - ends[1]).sum().backward()

    (row,) = asked(tmp_path / "t.agviz", program).values()
    assert row.reason == "what EmbeddingBackward0 adds up cancels"


def test_equal_weights_are_named_and_not_a_bias_of_zeros(tmp_path: Path) -> None:
    last = nn.Linear(8, 2)
    nn.init.constant_(last.weight, 0.125)
    nn.init.zeros_(last.bias)
    net = nn.Sequential(nn.Linear(4, 8), last)

    def program() -> None:
        logits = net(torch.randn(6, 4))
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 0, 1, 0, 1])).backward()

    row = asked(tmp_path / "t.agviz", program)
    cancels = "what AddmmBackward0 adds up cancels"
    assert row["0.weight"].reason == f"{cancels}: 1.weight is 0.125 throughout"
    assert row["1.bias"].reason == cancels


def test_the_hook_that_changed_a_gradient_is_named(tmp_path: Path) -> None:
    def look(grad: torch.Tensor) -> None:
        assert grad.norm() > 0

    def freeze(grad: torch.Tensor) -> torch.Tensor:
        return grad * 0

    def program() -> None:
        net = nn.Linear(2, 1)
        net.weight.register_hook(look)
        net.weight.register_hook(freeze)
        net(torch.ones(3, 2)).sum().backward()

    (row,) = [
        each
        for name, each in asked(tmp_path / "t.agviz", program).items()
        if name.endswith("weight")
    ]
    assert "freeze" in row.reason
    assert "look" not in row.reason


def test_a_write_before_any_step_is_no_step(tmp_path: Path) -> None:
    def program() -> None:
        last = nn.Linear(2, 1)
        loss = last(nn.Linear(2, 2)(torch.ones(3, 2))).sum()
        with torch.no_grad():
            last.weight.clamp_(-0.1, 0.1)
        loss.backward()

    with agviz.trace(path=tmp_path / "t.agviz"), pytest.raises(RuntimeError, match="inplace"):
        program()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        told = _told(verdicts(trace)[0])
    assert "No optimizer had stepped" in told
    assert "has to come after" not in told


def test_the_cut_is_looked_for_behind_the_loss(tmp_path: Path) -> None:
    def program() -> None:
        logits = nn.Linear(4, 3)(torch.ones(2, 4))
        loss = logits.detach().pow(2).mean()
        assert logits.argmax(1).float().mean() >= 0
        (loss + 1).backward()

    found = answered(tmp_path / "t.agviz", program, "does not require grad")
    assert "detach took" in _told(found)


@pytest.mark.slow
def test_a_temperature_that_is_lowered_is_no_fault(tmp_path: Path) -> None:
    def program() -> None:
        route = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(route.parameters(), 0.05)
        for step in range(120):
            gate = torch.softmax(route(torch.randn(16, 4)) / 0.93**step, -1)
            optimizer.zero_grad()
            ((gate * torch.randn(3)).sum() + 50).backward()
            optimizer.step()

    assert answered(tmp_path / "t.agviz", program).outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow_but_one_in(9)
@pytest.mark.parametrize("program", programs("two_faults"), ids=name_of)
def test_what_breaks_the_run_is_told_first(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = program.record(tmp_path / "t.agviz", check_forward=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        first, *_ = found = verdicts(trace)
    del kept
    assert len(found) == int(program.one("answers") or 0)
    assert first.frame is not None
    assert first.frame.line == program.cause
    assert all(said in _told(first) for said in program.all("says"))
    assert not any(said in _told(first) for said in program.all("never"))
    check_length(tmp_path / "t.agviz", capsys, "explain")


def test_a_clamp_to_the_edge_is_not_advised_again(tmp_path: Path) -> None:
    def program() -> None:
        cos = torch.ones(3, requires_grad=True) * 1.0
        cos.clamp(-1 + 1e-9, 1 - 1e-9).acos().sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "It is clamped before" in told
    assert "Clamp the argument" not in told


def test_an_eps_that_float32_rounds_to_zero_is_told_from_none(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.zeros(3, requires_grad=True)
        (x.pow(2) + 1e-46).sqrt().sum().backward()

    assert "below 7e-46 an eps is 0 in float32" in _told(answered(tmp_path / "t.agviz", program))


def test_clipping_is_no_advice_where_backward_itself_overflows(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.randn(2, 8)
        weight = nn.Parameter(torch.randn(8, 8) * 3)
        for _ in range(200):
            x = torch.sin(x @ weight)
        x.sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "exploding gradients" in told
    assert "Clip the gradient" not in told


@pytest.mark.slow
def test_a_write_in_backward_is_no_step_of_before(tmp_path: Path) -> None:
    def program() -> None:
        middle = nn.Linear(3, 3)
        net = nn.Sequential(nn.Linear(2, 3), middle, nn.Linear(3, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(3):
            hidden = net[:2](torch.ones(4, 2))
            if step == 2:
                hidden.register_hook(lambda _: _scaled(middle.weight))
            net[2](hidden).sum().backward()
            optimizer.step()

    told = _told(answered(tmp_path / "t.agviz", program, "inplace"))
    assert "No optimizer had stepped since that forward" in told


@torch.no_grad()
def _scaled(weight: torch.Tensor) -> None:
    weight.mul_(0.5)


def test_all_calls_but_the_last_retain_the_graph(tmp_path: Path) -> None:
    def program() -> None:
        trunk = nn.Linear(2, 3)(torch.ones(4, 2)).tanh()
        heads = [nn.Linear(3, 1) for _ in range(3)]
        losses = [head(trunk).sum() for head in heads]
        losses[0].backward(retain_graph=True)
        losses[1].backward()
        losses[2].backward()

    told = _told(answered(tmp_path / "t.agviz", program, "second time"))
    assert "retain_graph=True to all calls but the last" in told


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_what_is_only_printed_comes_after_what_broke(tmp_path: Path) -> None:
    def program() -> None:
        rate = nn.Linear(2, 3)(torch.zeros(4, 2)).abs() * 0
        rate.log().sum().backward()
        assert rate.grad is None

    assert "log of zero" in _told(answered(tmp_path / "t.agviz", program))


@pytest.mark.slow
def test_a_cast_to_integers_makes_a_straight_through_estimator() -> None:
    class Quantised(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x / step)
            return (x / step).to(torch.int8).to(x.dtype) * step

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            (ratio,) = ctx.saved_tensors
            return grad, (grad * (ratio.to(torch.int8) - ratio)).sum()

    x, step = torch.randn(5, requires_grad=True), torch.tensor(0.1, requires_grad=True)
    report = checked(
        lambda: Quantised.apply(x, step).sum().backward()  # type: ignore[no-untyped-call]
    )
    assert report.outcome is Outcome.NOTHING_UNUSUAL


def test_a_loss_of_probabilities_may_be_meant(tmp_path: Path) -> None:
    def program() -> None:
        chances = nn.Linear(2, 3)(torch.randn(4, 2)).softmax(1)
        (1 + nn.functional.nll_loss(chances, torch.tensor([0, 1, 2, 0]))).backward()

    assert answered(tmp_path / "t.agviz", program).outcome is Outcome.NOTHING_UNUSUAL


def test_a_cut_beside_what_the_loss_leaves_out_is_not_the_cause_for_sure(tmp_path: Path) -> None:
    def program() -> None:
        net, teacher, x = nn.Linear(4, 2), nn.Linear(4, 2), torch.ones(3, 4)
        target = teacher(x).detach()
        assert net(x).shape == target.shape
        loss = nn.functional.mse_loss(target, x[:, :2])
        loss.backward()

    found = answered(tmp_path / "t.agviz", program, "does not require grad")
    assert "it was cut" not in found.heading
    assert "is not in the loss" in found.paragraph


def test_a_gradient_is_not_next_to_nothing_beside_its_own_rate(tmp_path: Path) -> None:
    def program() -> None:
        metres = nn.Linear(1, 1, bias=False)
        nn.init.constant_(metres.weight, 1e7)
        optimizer = torch.optim.SGD(metres.parameters(), 1e13)
        for _ in range(3):
            optimizer.zero_grad()
            (metres(torch.ones(1, 1)) * 1e-7 - 0.9).pow(2).sum().backward()
            optimizer.step()

    assert [row.gradient for row in asked(tmp_path / "t.agviz", program).values()] == ["some"]


def test_losses_that_go_backward_in_a_loop_carry_nothing_on(tmp_path: Path) -> None:
    def program() -> None:
        trunk = nn.Linear(2, 3)(torch.ones(4, 2)).tanh()
        for head in (nn.Linear(3, 1), nn.Linear(3, 1)):
            head(trunk).sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program, "second time"))
    assert "all calls but the last" in told
    assert "step to step" not in told


@pytest.mark.slow
def test_what_the_program_wrote_itself_is_not_said_of_a_step(tmp_path: Path) -> None:
    def program() -> None:
        first = nn.Linear(6, 32)
        net = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.02)
        for step in range(60):
            if step == 20:
                nn.init.constant_(first.bias, -20.0)
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            (net(x) - x[:, :1]).pow(2).mean().backward()
            optimizer.step()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "is dead" in told
    assert "wrote to a parameter before it" in told
    assert "A step has moved" not in told


def test_a_block_that_turns_gradients_off_by_the_mode_ends_by_itself(tmp_path: Path) -> None:
    net = nn.Linear(2, 1).eval()

    def program() -> None:
        with torch.set_grad_enabled(net.training):
            net(torch.ones(3, 2)).sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program, "does not require grad"))
    assert "where net.training is false" in told
    assert "stays until" not in told


@pytest.mark.parametrize(
    ("shape", "order", "row"),
    [((4, 5, 3), None, "row 16 of what Tensor.reshape gave"), ((4, 3), [2, 3, 1, 0], "row 1 of")],
)
def test_rows_that_were_put_together_anew_are_no_samples(
    shape: tuple[int, ...], order: list[int] | None, row: str, tmp_path: Path
) -> None:
    def program() -> None:
        x = torch.randn(shape)
        x[(3, 1) if order is None else 3] = 0
        rows = x.reshape(-1, 3) if order is None else x[torch.tensor(order)]
        nn.Linear(3, 2, bias=False)(rows).pow(2).sum(-1).sqrt().sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert row in told
    assert "sample" not in told


def test_no_targets_are_not_ignored_ones(tmp_path: Path) -> None:
    def program() -> None:
        logits = nn.Linear(2, 3)(torch.randn(4, 2))
        none = torch.zeros(4, dtype=torch.bool)
        labels = torch.tensor([0, 1, 2, 0])
        nn.functional.cross_entropy(logits[none], labels[none]).backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "there is no target" in told
    assert "ignore_index" not in told


@pytest.mark.filterwarnings("ignore:std")
def test_the_deviation_of_one_number_is_not_made_zero(tmp_path: Path) -> None:
    def program() -> None:
        rewards = nn.Linear(2, 1)(torch.randn(4, 2))
        (rewards / rewards.std(1, keepdim=True)).sum().backward()

    told = _told(answered(tmp_path / "t.agviz", program))
    assert "look at its dim" in told
    assert "correction=0" not in told


def test_what_iterates_until_it_is_near_is_not_judged() -> None:
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = torch.ones_like(x)
            while (y * y - x).norm() > 0.02:
                y = y - 0.1 * (y * y - x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = ctx.saved_tensors[0]
            return grad / (2 * y)

    x = (torch.rand(6) + 0.3).requires_grad_()
    report = checked(
        lambda: Root.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    )
    assert report.outcome is Outcome.NOTHING_UNUSUAL
