"""A row for every backward pass: its loss, norm, time and what changed, against plain torch."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.pass_marks import PassMark
from agviz.analysis.run_table import RunTable
from agviz.errors import TraceError
from agviz.traces.packed import pack
from agviz.traces.reader import Trace
from agviz.tui.run_reading import order_run

if TYPE_CHECKING:
    from pathlib import Path

_STEPS = 12
_BREAKS = 8


def _train(path: Path, *, zeroes: bool = True) -> tuple[list[float], list[float]]:
    """Train, with inputs of NaN at step 8; the losses and norms that torch has."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, norms = [], []
    with agviz.trace(path=path):
        for step in range(_STEPS):
            x = torch.randn(4, 6)
            if step == _BREAKS:
                x[:] = math.nan
            loss = model(x).square().mean()
            loss.backward()
            losses.append(float(loss.detach()))
            norms.append(
                float(
                    nn.utils.get_total_norm(
                        [p.grad for p in model.parameters() if p.grad is not None]
                    )
                )
            )
            if step != _BREAKS:
                optimizer.step()
            if zeroes or step == _BREAKS:
                optimizer.zero_grad()
    return losses, norms


def _forget_columns(path: Path) -> None:
    """Have readers work out what closing the recording stored."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        assert database.execute("DELETE FROM run").rowcount == 1


@pytest.mark.parametrize("zeroes", [True, False])
@pytest.mark.parametrize("is_stored", [True, False])
def test_rows_have_the_loss_and_the_norm_that_torch_has(
    tmp_path: Path, *, is_stored: bool, zeroes: bool
) -> None:
    path = tmp_path / "t.agviz"
    losses, norms = _train(path, zeroes=zeroes)
    if not is_stored:
        _forget_columns(path)
    with Trace.open(path) as trace:
        table = RunTable(trace)
        if not is_stored:
            assert [row.norm for row in (table[0], table[-1])] == [None, None]
            assert table.read_on(10)
        assert table.is_read
        assert not table.read_on(10)
        rows = [*table]
    assert len(rows) == _STEPS
    assert [row.loss for row in rows] == pytest.approx(losses, rel=1e-6, nan_ok=True)
    assert [row.norm for row in rows] == pytest.approx(norms, rel=1e-5, nan_ok=True)
    assert rows[_BREAKS].mark is PassMark.NON_FINITE
    assert all(row.mark is None for step, row in enumerate(rows) if step != _BREAKS)
    assert all(row.took_ns and row.forward_ns and row.forward_ns > 0 for row in rows)


def test_the_largest_change_names_the_parameter_that_jumps(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    torch.manual_seed(0)
    last = nn.Linear(5, 1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), last)
    x = torch.randn(4, 6)
    with agviz.trace(path=path):
        for step in range(5):
            model.zero_grad()
            hook = last.weight.register_hook(lambda g: g * 1000) if step == 3 else None
            model(x).square().mean().backward()
            if hook is not None:
                hook.remove()
    with Trace.open(path) as trace:
        table = RunTable(trace)
        table.read_on(10)
        changes = [row.change for row in table]
    assert changes[0] is changes[1] is changes[2] is None
    assert changes[3] is not None
    assert changes[3].parameter == "2.weight"
    assert changes[3].factor == pytest.approx(1000, rel=1e-4)
    assert changes[4] is not None
    assert changes[4].factor == pytest.approx(1e-3, rel=1e-4)


def test_passes_that_alternate_are_compared_with_their_own_kind(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    weight = nn.Parameter(torch.ones(3))
    holder = nn.Module()
    holder.weight = weight
    with agviz.trace(holder, path=path):
        for _ in range(3):
            for factor in (1, 100):
                holder.zero_grad()
                loss = weight.square().sum()
                (loss if factor == 1 else (loss * factor).sin().asin()).backward()
    with Trace.open(path) as trace:
        table = RunTable(trace)
        table.read_on(10)
        changes = [row.change for row in table]
    assert changes[0] is None
    assert changes[1] is not None
    assert changes[2:] == [None] * 4


def test_a_gradient_that_was_zero_and_is_not_finite_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    layer = nn.Linear(2, 1)
    with agviz.trace(layer, path=path):
        for factor in (0.0, 1.0, 0.0, math.nan):
            layer.zero_grad()
            (layer(torch.ones(1, 2)) * factor).sum().backward()
    with Trace.open(path) as trace:
        table = RunTable(trace)
        table.read_on(10)
        factors = [row.change and row.change.factor for row in table]
    assert factors[:3] == [None, math.inf, 0.0]
    assert math.isnan(factors[3] or 0.0)


@pytest.mark.slow
def test_what_is_stored_is_what_is_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.agviz"
    _train(path, zeroes=False)
    whole = _everything(path)
    _forget_columns(path)
    assert _everything(path) == whole
    monkeypatch.setattr("agviz.traces.leaf_reading._PIECE", 7)
    assert _everything(path) == whole


def test_the_same_holds_for_passes_inside_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    with agviz.trace(layers, path=path):
        for step in range(6):
            x = torch.full((1, 3), math.inf if step == 4 else 1.0, requires_grad=True)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=True)
            x.sum().backward()
    whole = _everything(path)
    with Trace.open(path) as trace:
        assert len(trace.graph_tasks) > len(trace.graph_tasks.outermost)
        assert trace.nonfinite_results()
    _forget_columns(path)
    assert _everything(path) == whole


def _everything(path: Path) -> str:
    with Trace.open(path) as trace:
        table = RunTable(trace)
        while table.read_on(10):
            pass
        marked = trace.nonfinite_roots(), trace.nonfinite_graph_tasks(), trace.nonfinite_results()
        known = dict(trace.losses()), dict(trace.forwards())
        return repr([*table, *trace.graph_tasks, *marked, *known, table.wrong])


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    weight = torch.ones(3, requires_grad=True)
    with agviz.trace(path=path) as recording:
        weight.square().sum().backward()
        table = RunTable(recording.trace)
        table.read_on(10)
        assert len(table) == 1
        weight.square().sum().backward()
        assert recording.trace.graph_tasks
        table = table.renewed(recording.trace)
        table.read_on(10)
        rows = [*table]
    assert [row.norm for row in rows] == pytest.approx([math.sqrt(12), math.sqrt(48)])


class _Slow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return self.layer(x)  # type: ignore[no-any-return]


def test_calls_of_modules_in_the_forward_are_timed(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model = nn.Sequential(_Slow(), nn.ReLU())
    with agviz.trace(path=path):
        for _ in range(2):
            before = time.monotonic_ns()
            loss = checkpoint(model, torch.randn(2, 4), use_reentrant=False).sum()
            loss.backward()  # which calls the modules again
    with Trace.open(path) as trace:
        assert [len(trace.module_calls(task.id)) for task in trace.graph_tasks] == [4, 4]
        task = trace.graph_tasks[1]
        calls, begins = trace.module_calls(task.id), task.begin_ns
    assert [(call.module, call.depth) for call in calls] == [
        ("Sequential", 0),
        ("0", 1),
        ("0.layer", 2),
        ("1", 1),
    ]
    assert all(call.end_ns is not None for call in calls)
    spans = [(call.begin_ns, call.end_ns or 0) for call in calls]
    assert before < spans[0][0] < spans[1][0] < spans[2][0] < spans[2][1] < spans[1][1]
    assert spans[1][1] < spans[3][0] < spans[3][1] < spans[0][1] < begins
    assert spans[1][1] - spans[1][0] >= 20_000_000
    assert spans[2][1] - spans[2][0] < 20_000_000


def test_a_forward_on_another_thread_keeps_its_own_time(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    model = nn.Linear(4, 4)

    def train() -> None:
        model(torch.randn(2, 4)).sum().backward()

    with agviz.trace(path=path):
        loss = model(torch.randn(2, 4)).sum()
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        loss.backward()
    with Trace.open(path) as trace:
        other, own = (trace.module_calls(task.id) for task in trace.graph_tasks)
        assert len(other) == len(own) == 1
        assert own[0].begin_ns < other[0].begin_ns < trace.graph_tasks[0].begin_ns


def test_module_calls_of_a_stranger_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        nn.Linear(4, 4)(torch.randn(2, 4)).sum().backward()
    for blob in (b"", b"\xff" * 40, pack([[1], [-1], [0], [1]])):
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE forward_calls SET bytes = ?", (blob,))
        with Trace.open(path) as trace, pytest.raises(TraceError):
            trace.module_calls(trace.graph_tasks[0].id)


def test_rows_are_chosen_by_what_is_said_of_them(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    _train(path)
    with Trace.open(path) as trace:
        table = RunTable(trace)
        numbers = [f"#{row.task.id}" for row in table]
        changed = [row.change.parameter if row.change else "" for row in table]
        bad = [row.norm is not None and not math.isfinite(row.norm) for row in table]

        def places(words: str, order: str = "number") -> list[int]:
            return [*order_run(table, order, words)(trace).places]

        assert places("NaN") == [place for place, is_bad in enumerate(bad) if is_bad]
        assert places("finished") == [place for place, is_bad in enumerate(bad) if not is_bad]
        last = numbers[-1].strip("#")
        assert places(last) == [at for at, text in enumerate(numbers) if last in text]
        assert places(f"backward {numbers[3]}") == [
            at for at, text in enumerate(numbers) if numbers[3] in text
        ]
        assert places("2.weight") == [at for at, name in enumerate(changed) if "2.weight" in name]
        assert not places("grad_of_nothing")
        assert places("", "loss")[0] == _BREAKS
        losses = [table[place].loss or 0.0 for place in places("", "loss")[1:]]
        assert losses == sorted(losses, reverse=True)
        assert places("nan", "time") == [_BREAKS]
