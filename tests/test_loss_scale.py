"""Steps that a GradScaler skips are harmless; whatever else is not finite is not."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.explanation import explain
from agviz.analysis.loss_scale import loss_scale
from agviz.analysis.measures import number
from agviz.analysis.verdict import verdicts
from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.testing.checks import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOO_LARGE = 2.0**24


class Half(nn.Module):
    """A matmul in float16, which overflows with a large loss scale."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            out: Tensor = self.last(torch.tanh(self.first(x)))
        return out.float()


def training(
    scaler: torch.amp.GradScaler,
    optimizer_of: Callable[[nn.Module], Any] = lambda model: torch.optim.SGD(
        model.parameters(), lr=1e-3
    ),
    *,
    steps: int = 14,
    accumulate: int = 1,
    loss_of: Callable[[Tensor, int], Tensor] = lambda out, _: out.square().mean(),
    step: Callable[[torch.amp.GradScaler, Any], object] = torch.amp.GradScaler.step,
) -> None:
    torch.manual_seed(0)
    model = Half()
    optimizer = optimizer_of(model)
    for turn in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            loss = loss_of(model(torch.randn(5, 4)), turn) / accumulate
            torch.as_tensor(scaler.scale(loss)).backward()
        step(scaler, optimizer)
        scaler.update()


def scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **{"init_scale": TOO_LARGE, **options})


def in_float32(more: float = 0.0) -> None:
    """Losses that are beyond float32 with the first scales; their gradients are not for so long."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    grad_scaler = scaler(init_scale=2.0**126, growth_interval=50)
    for _ in range(12):
        optimizer.zero_grad()
        loss = (model(torch.randn(8, 4)) - 20).square().mean() + more
        torch.as_tensor(grad_scaler.scale(loss)).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()


HARMLESS: dict[str, Callable[[], None]] = {
    "a scale that is too large at first": lambda: training(scaler()),
    "several backward passes a step": lambda: training(scaler(), accumulate=3),
    "an optimizer that skips by itself": lambda: training(
        scaler(), lambda model: torch.optim.Adam(model.parameters(), fused=True)
    ),
    "a loss that its scale makes infinite": in_float32,
    "a scale that grows too large later": lambda: training(
        scaler(init_scale=2.0**16, growth_factor=2.0**8, backoff_factor=2.0**-8, growth_interval=3),
        steps=5,
    ),
}


class Plain:
    """No torch.optim.Optimizer: nobody hears of its steps."""

    def __init__(self, model: nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.data -= 1e-3 * parameter.grad


def root_in(batch: int) -> Callable[[Tensor, int], Tensor]:
    """A loss whose gradient is infinite in one batch, whatever the scale."""
    return lambda out, number: (out * (number != batch)).square().sum().sqrt()


def unscaled(scaler: torch.amp.GradScaler, optimizer: Any) -> None:
    """Step whatever the gradients are."""
    scaler.unscale_(optimizer)
    optimizer.step()


BY_ITSELF: dict[str, Callable[[], None]] = {
    "all passes overflow": lambda: training(scaler(init_scale=2.0**60)),
    "the steps are not skipped": lambda: training(scaler(), step=unscaled),
    "steps that nobody hears of": lambda: training(scaler(), Plain),
    "a batch that no scale helps": lambda: training(
        scaler(init_scale=1.0), steps=5, loss_of=root_in(2)
    ),
    "cut off before the scale fits": lambda: training(scaler(), steps=2),
}


def record(program: Callable[[], None], path: Path, **options: Any) -> None:
    with agviz.trace(path=path, **options):
        program()


@pytest.mark.slow_but_one_in(9)
@pytest.mark.parametrize("program", HARMLESS.values(), ids=HARMLESS)
def test_skipped_steps_are_harmless(
    program: Callable[[], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    record(program, path)
    with agviz.Trace.open(path) as trace:
        assert trace.nonfinite_graph_tasks(), "the program has to overflow at all"
        assert not_finite(trace) == ""
        found = explain(trace)
        assert found is not None
        assert found.is_harmless
        assert not found.is_masked
        assert found.skipped is not None
        assert found.skipped.scale == loss_scale(trace, found.graph_task)
        assert found.skipped.lowered < found.skipped.scale
        assert found.skipped.finite not in trace.nonfinite_graph_tasks()
        assert found.as_json()["skipped"]["finite"] == found.skipped.finite
    assert main(["explain", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "✓ no non-finite gradient reached an optimizer step" in said
    assert f"the loss scale of {number(found.skipped.scale)} was too large" in said


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize("program", BY_ITSELF.values(), ids=BY_ITSELF)
def test_what_a_scaler_does_not_mend_is_told(program: Callable[[], None], tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    record(program, path)
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
        assert found is not None
        assert not found.is_harmless
        assert found.skipped is None
        assert not_finite(trace)
    assert main(["explain", str(path)]) == 1


def test_a_loss_that_is_infinite_without_its_scale_is_told(tmp_path: Path) -> None:
    record(lambda: in_float32(float("inf")), tmp_path / "t.agviz", check_forward=True)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.heading.endswith("is infinite")


def test_steps_are_recorded_between_the_passes(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model = nn.Linear(2, 2)
    with agviz.trace(path=path):
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        second = torch.optim.Adam(model.parameters())
        first.step()
        for optimizer in (first, second, first):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    first.step()  # nobody listens any longer
    with agviz.Trace.open(path) as trace:
        steps = trace.optimizer_steps()
        assert [step.number for step in steps] == [0, 1, 2, 3]
        passes = [task.id for task in trace.graph_tasks]
        assert [step.graph_task for step in steps] == [-1, *passes]
        assert [step.optimizer for step in steps] == ["SGD", "SGD", "Adam", "SGD"]
        assert not any(step.is_guarded for step in steps)
        ends = [task.end_ns for task in trace.graph_tasks]
        for step, end in zip(steps[1:], ends, strict=True):
            assert end is not None
            assert end <= step.time_ns


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_is_heard_too(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    with agviz.trace(path=path):
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            step()
    with agviz.Trace.open(path) as trace:
        passes = [task.id for task in trace.graph_tasks]
        assert len(passes) == 3
        assert [step.graph_task for step in trace.optimizer_steps()] == passes


def test_a_step_of_a_stranger_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    record(lambda: training(scaler(), steps=3), path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO optimizer_step VALUES (99, 0, 0, 'x', 0, 0, 0, 0)")
    with agviz.Trace.open(path) as trace, pytest.raises(TraceError):
        trace.optimizer_steps()


def test_a_pass_that_was_cut_off_before_its_graph_was_known_has_no_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        training(torch.amp.GradScaler("cpu", init_scale=4.0), steps=1)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM node")
    with agviz.Trace.open(path) as trace:
        cut = trace.graph_tasks[0]._replace(nodes=0)
        monkeypatch.setattr(agviz.Trace, "graph_task", lambda *_: cut)
        assert loss_scale(trace, cut.id) is None
