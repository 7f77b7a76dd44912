"""What a recording holds of whole steps, held against what the program knows of itself."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import agviz
from agviz.errors import TraceError
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENGINES: tuple[Literal["exact", "native"], ...] = ("exact", "native")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def passed(model: nn.Module, seed: int = 0) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
    model(x).square().mean().backward()


@pytest.mark.parametrize("engine", ENGINES)
def test_norms_are_those_that_the_program_measures(
    tmp_path: Path, engine: Literal["exact", "native"]
) -> None:
    expected = []
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)
        for step in range(5):
            optimizer.zero_grad()
            passed(model, step)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            gradients = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
            grads = {name: gradient.norm().item() for name, gradient in gradients}
            optimizer.step()
            for name, p in model.named_parameters():
                change = (p.detach() - before[name]).norm().item()
                expected.append((step, name, grads[name], before[name].norm().item(), change))
            if step == 2:
                with torch.no_grad():
                    model.get_parameter("0.weight").copy_(before["0.weight"])
    with Trace.open(tmp_path / "t.agviz") as trace:
        rows = trace.step_samples()
        facts = trace.step_facts()
        (made,) = trace.optimizers()
    assert [row[:2] for row in rows] == [row[:2] for row in expected]
    for row, (*_, gradient, norm, change) in zip(rows, expected, strict=True):
        assert row[2:5] == pytest.approx((gradient, norm, change), rel=1e-5)
    written = {(row.step, row.parameter): row.net for row in rows if row.net is not None}
    assert written == {(3, "0.weight"): 0.0}
    assert [(fact.least_rate, fact.most_rate, fact.decay, fact.eps) for fact in facts] == [
        (0.1, 0.1, 0.01, 1e-8)
    ] * 5
    assert [(fact.held, fact.without_grad, fact.is_kept) for fact in facts] == [(4, 0, False)] * 5
    assert [fact.reached for fact in facts] == [0, 4, 4, 4, 4]
    assert made.name == "AdamW"
    assert made.frame is not None
    assert "AdamW(model.parameters()" in made.frame.source


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clear", ["none", "to none", "to zero", "by hand"])
def test_whether_gradients_were_kept(
    tmp_path: Path, clear: str, engine: Literal["exact", "native"]
) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            if clear.startswith("to"):
                optimizer.zero_grad(set_to_none=clear == "to none")
            elif clear == "by hand":
                for parameter in model.parameters():
                    parameter.grad = None
            passed(model, step)
            passed(model, step + 9)  # two passes for each step are no reason
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        kept = [fact.is_kept for fact in trace.step_facts()]
    assert kept == [False, *[clear == "none"] * 3]


def test_what_is_held_is_told_when_it_changes(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz"):
        model = net()
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        for step in range(6):
            if step == 3:
                optimizer.add_param_group({"params": [model[2].weight]})
            passed(model, step)
            optimizer.step()
            optimizer.zero_grad()
    with Trace.open(tmp_path / "t.agviz") as trace:
        held = trace.held_parameters()
        unheld = trace.unheld_leaves()
    assert [(row.since, row.name) for row in held] == [
        (0, "0.weight"), (0, "0.bias"), (3, "0.weight"), (3, "0.bias"), (3, "2.weight"),
    ]  # fmt: skip
    assert held[0].shape == (6, 4)
    assert all(row.requires_grad and row.had_grad for row in held)
    assert [(row.name, row.is_parameter, row.is_moved) for row in unheld] == [
        ("2.bias", True, False)
    ]


def test_leaves_of_no_optimizer(tmp_path: Path) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 4)]
            self.scale = torch.ones(4, requires_grad=True)
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.out(self.layers[0](x) * self.scale)
            return found

    with agviz.trace(path=tmp_path / "t.agviz"):
        model = Holder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        moved = torch.zeros(4, requires_grad=True)
        for _ in range(4):
            fresh = torch.zeros(5, 4, requires_grad=True)
            optimizer.zero_grad()
            model(torch.randn(5, 4) + moved + fresh).sum().backward()
            optimizer.step()
            assert moved.grad is not None
            moved.data -= 0.1 * moved.grad
    with Trace.open(tmp_path / "t.agviz") as trace:
        rows = {row.attribute: row for row in trace.unheld_leaves()}
    assert set(rows) == {"layers[0].weight", "layers[0].bias", "scale", ""}
    assert {name for name, row in rows.items() if row.is_moved} == {""}
    assert {name for name, row in rows.items() if row.is_parameter} == {
        "layers[0].weight",
        "layers[0].bias",
    }
    assert all(row.passes == 3 for row in rows.values())  # the first came before any step


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_not_finite_and_who_wrote_it(
    tmp_path: Path, engine: Literal["exact", "native"]
) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        inner = net()
        model = nn.Sequential(inner, nn.BatchNorm1d(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=float("inf"))
        passed(model)
        optimizer.step()
        with torch.no_grad():
            inner.get_parameter("2.bias").fill_(torch.nan)
        passed(model, 1)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = trace.not_finite()
        last = trace.graph_tasks[-1].id
    first = {row.name: row.step for row in found if row.graph_task == last}
    assert first["0.2.bias"] == -1
    assert first["0.0.weight"] == 0
    buffers = {row.name for row in found if row.is_buffer}
    assert buffers == {"1.running_mean", "1.running_var"}


def trained(optimizer_of: Callable[[nn.Module], Optimizer], steps: int = 4) -> list[torch.Tensor]:
    model = net()
    optimizer = optimizer_of(model)

    def closure() -> float:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(5, 4)).square().mean()
        loss.backward()
        return loss.item()

    for _ in range(steps):
        optimizer.step(closure)
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1),
        lambda model: torch.optim.Adam(model.parameters(), lr=0.01, foreach=True),
        lambda model: torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), fused=True),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    ],
    ids=["LBFGS", "foreach", "fused", "momentum"],
)
def test_nothing_is_changed(
    tmp_path: Path, engine: Literal["exact", "native"], optimizer_of: Callable[..., Any]
) -> None:
    alone = trained(optimizer_of)
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        recorded = trained(optimizer_of)
    assert all(torch.equal(a, b) for a, b in zip(alone, recorded, strict=True))
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.step_facts()) == 4
        assert not any(fact.is_kept for fact in trace.step_facts())
        assert all(fact.without_grad == 0 for fact in trace.step_facts())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dynamo's own
def test_a_compiled_step(tmp_path: Path) -> None:
    def compiled() -> list[torch.Tensor]:
        torch.compiler.reset()
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        step = torch.compile(lambda: optimizer.step(), backend="eager")  # noqa: PLW0108
        for number in range(4):
            optimizer.zero_grad()
            passed(model, number)
            step()
        return [p.detach().clone() for p in model.parameters()]

    alone = compiled()
    with agviz.trace(path=tmp_path / "t.agviz"):
        recorded = compiled()
    assert all(torch.equal(a, b) for a, b in zip(alone, recorded, strict=True))
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [fact.without_grad for fact in trace.step_facts()] == [0] * 4


def test_nothing_is_kept_alive_or_left_behind(tmp_path: Path) -> None:
    own = Optimizer._patch_step_function
    with agviz.trace(path=tmp_path / "t.agviz"):
        assert Optimizer._patch_step_function is not own
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        other = torch.ones(4, requires_grad=True)
        for _ in range(3):
            (model(other * torch.ones(2, 4))).sum().backward()
            optimizer.step()
        alive = [weakref.ref(thing) for thing in (model, optimizer, other, model[0].weight)]
        del model, optimizer, other
        gc.collect()
        assert [each() for each in alive] == [None] * 4
        passed(net())
    assert Optimizer._patch_step_function is own


def test_an_optimizer_that_can_not_be_made(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz"):
        with pytest.raises(ValueError, match="empty parameter list") as caught:
            torch.optim.SGD([], lr=0.1)
        frames = [entry.path for entry in caught.traceback]
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            passed(model)
            optimizer.step()
    assert not [frame for frame in frames if "agviz/record" in str(frame)]
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.step_facts()) == 3


def test_steps_that_raise_and_steps_of_threads(tmp_path: Path) -> None:
    class Fails(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise ValueError(closure)

    with agviz.trace(path=tmp_path / "t.agviz"):
        models = [net() for _ in range(3)]
        failing = Fails(models[0].parameters(), lr=0.1)
        passed(models[0])
        for _ in range(3):
            with pytest.raises(ValueError, match="None"):
                failing.step()

        def work(model: nn.Module) -> None:
            optimizer = torch.optim.Adam(model.parameters())
            for step in range(5):
                optimizer.zero_grad()
                passed(model, step)
                optimizer.step()

        threads = [threading.Thread(target=work, args=(model,)) for model in models[1:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [row.name for row in trace.optimizers()] == ["Adam"] * 2
        assert len(trace.step_facts()) == 10
        assert not any(fact.is_kept for fact in trace.step_facts())


def test_what_fails_here_does_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from agviz.record.steps.sample import StepSample

    def fails(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(StepSample, "called", fails)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            passed(model)
            optimizer.step()
    assert caplog.text.count("no longer recorded") == 1
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.optimizer_steps()) == 3
        assert trace.step_facts() == []


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("step_fact", "held", "'x'"),
        ("step_fact", "most_rate", "'x'"),
        ("step_sample", "norm", "-1.0"),
        ("step_sample", "parameter", "'x'"),
        ("held_parameter", "shape", "(SELECT id FROM string WHERE text = 'SGD')"),
        ("optimizer", "made", "999999"),
        ("unheld", "passes", "'x'"),
    ],
)
def test_a_damaged_row_is_refused(tmp_path: Path, table: str, column: str, value: str) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        model = net()
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        for _ in range(4):
            passed(model)
            optimizer.step()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        changed = database.execute(f"UPDATE {table} SET {column} = {value}")  # noqa: S608
        assert changed.rowcount > 0
    with Trace.open(path) as trace, pytest.raises(TraceError):
        _ = (
            trace.optimizers(), trace.step_facts(), trace.step_samples(), trace.held_parameters(),
            trace.unheld_leaves(), trace.not_finite(),
        )  # fmt: skip


@pytest.mark.parametrize("is_grown", [True, False])
def test_a_step_during_which_the_recording_begins_or_a_group_is_added_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_grown: bool
) -> None:
    model, more = net(), nn.Parameter(torch.ones(2))

    class Odd(torch.optim.SGD):
        recording: Any = None

        def step(self, closure: Any = None) -> Any:
            found = super().step(closure)
            if self.recording is not None:
                self.recording.__enter__()
                self.recording = None
            if is_grown and len(self.param_groups) == 1:
                self.add_param_group({"params": [more]})
            return found

    optimizer = Odd(model.parameters(), lr=0.1)
    recording = agviz.trace(path=tmp_path / "t.agviz")
    passed(model)
    if is_grown:
        recording.__enter__()
    else:
        optimizer.recording = recording
    optimizer.step()
    for seed in range(2):
        optimizer.zero_grad()
        passed(model, seed)
        optimizer.step()
    recording.__exit__(None, None, None)
    assert not caplog.messages
    with Trace.open(tmp_path / "t.agviz") as trace:
        held = [fact.held for fact in trace.step_facts()]
    assert held == ([5, 5, 5] if is_grown else [4, 4])
