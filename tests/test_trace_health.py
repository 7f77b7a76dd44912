"""What was measured of gradients: written, read back the same, and no lie of a file believed."""

from __future__ import annotations

import math
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
import torch

import agviz
from agviz.errors import TraceError
from agviz.measure.measuring import Measuring
from agviz.measure.values import Health
from agviz.record.recorder import Recorder
from agviz.record.ring_store import RingStore
from agviz.traces.health import HealthRow
from agviz.traces.reader import Trace
from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live
from tests import python_process

if TYPE_CHECKING:
    from pathlib import Path


class KeepsHealth(Instrument):
    """What was measured, by ``seq``."""

    measurer = Measuring

    def __init__(self) -> None:
        self.found: dict[int, Health] = {}

    def gradient_measured(self, event: Any, live: Live) -> None:
        assert live.health is not None
        self.found[event.seq] = live.health


def program() -> None:
    """All roles, all kinds of numbers, and a gradient of which nothing is known."""
    x = torch.randn(3, 4, requires_grad=True)
    shared = torch.randn(4, requires_grad=True)
    for _ in range(2):
        (x * shared + shared).relu().sum().backward()
    torch.autograd.grad((x * 0).sum() + x.sum(), x)
    torch.autograd.grad((x * 0 / torch.zeros(3, 4)).sum(), x)
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    z.abs().sum().backward()
    rows = torch.nn.functional.embedding(torch.tensor([1, 1]), x, sparse=True)
    torch.autograd.grad(rows.sum(), x)
    torch.ones(2, device="meta", requires_grad=True).sum().backward()


@pytest.fixture
def good(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "good.agviz", values="health") as recorder, installed(recorder):
        program()
    return tmp_path / "good.agviz"


def test_what_the_engine_measured_is_read_back(tmp_path: Path) -> None:
    kept = KeepsHealth()
    recorder = Recorder(tmp_path / "t.agviz", values="health")
    with recorder, installed(kept, recorder):
        program()
    with Trace.open(tmp_path / "t.agviz") as trace:
        rows = trace.health()
        assert HealthRow._fields[5:] == Health._fields
        assert {row.seq: Health(*row[5:]) for row in rows} == kept.found
        roles = {"output", "root", "sum", "accumulated", "captured"}
        assert {row.role for row in rows} == roles
        assert {row.layout for row in rows} == {"strided", "sparse_coo"}
        assert any(row.nan for row in rows)
        assert any(row.posinf for row in rows)
        assert [row.shape for row in rows if "meta" in row.unknown] == [(), (2,)]
        checks = [e for e in trace.events(limit=10_000) if isinstance(e, events.NonFiniteChecked)]
        outputs = [row for row in rows if row.role == "output"]
        assert [e[4:] for e in checks] == [
            (row.node, row.slot, row.nan, row.posinf, row.neginf) for row in outputs
        ]
        for row in rows:
            assert trace.health_at(row.seq) == row
            assert row in trace.health(row.graph_task, row.node, row.slot)
        for number in {row.graph_task for row in rows}:
            assert trace.health(number) == [row for row in rows if row.graph_task == number]
        assert trace.health(0, 0, 1) == [row for row in rows if row[:2] == (0, 0) and row.slot == 1]
        assert trace.health(limit=3) == rows[:3]
        assert trace.health_at(10**9) is None


def test_what_gradients_that_meet_come_to(tmp_path: Path) -> None:
    """Once for each slot, when the last has come; the first in which two infinities make NaN."""
    with agviz.trace(path=tmp_path / "t.agviz"):
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        parts = [y.sin().sum(), y.cos().sum(), (y * math.inf).sum(), (y * -math.inf).sum()]
        torch.stack(parts).sum().backward()
        a, b = torch.ones(4, requires_grad=True).split(2)
        (a.exp() + a * b + b.exp()).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        sums = [row for row in trace.health() if row.role == "sum"]
        sums.sort(key=lambda row: (row.graph_task, row.slot))
        names = [(trace.node(row.graph_task, row.node).short_name, row.slot) for row in sums]
        assert names == [("MulBackward0", 0), ("SplitBackward0", 0), ("SplitBackward0", 1)]
        assert [row.nan for row in sums] == [3, 0, 0]
        outputs = [row for row in trace.health() if row.role == "output" and row.seq < sums[0].seq]
        assert not any(row.nan for row in outputs)
        a, b = a.detach(), b.detach()
        for row, expected in zip(sums[1:], (a.exp() + b, b.exp() + a), strict=True):
            assert row.mean == pytest.approx(float(expected.mean()))


@pytest.mark.parametrize("values", ["health", pytest.param("full", marks=pytest.mark.slow)])
def test_what_was_measured_where_thousands_of_gradients_meet(
    tmp_path: Path, values: Literal["health", "full"]
) -> None:
    """Of a node and of a leaf: the same rows as of all that are theirs in the whole recording."""
    with agviz.trace(path=tmp_path / "t.agviz", values=values):
        leaf = torch.ones(2, requires_grad=True)
        node = leaf * 2
        many = [node * number for number in range(4_500)] + [leaf * 3 for _ in range(300)]
        torch.stack(many).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        rows = trace.health(limit=10**6)
        (node_sum,) = (row for row in rows if row.role == "sum" and row.node != rows[-1].node)
        for number in {node_sum.node, *(row.node for row in rows[-3:])}:
            own = trace.health(node_sum.graph_task, number)
            assert own == [row for row in rows if row.node == number]
            kept = [row for row in trace.values(limit=10**6) if row.node == number]
            assert trace.values(node_sum.graph_task, number) == kept
        assert node_sum.norm == pytest.approx(math.sqrt(2) * sum(range(4_500)))


@pytest.mark.parametrize("where", ["tensor", "leaf", "pre", "post", "custom"])
def test_a_hook_that_makes_a_gradient_non_finite_is_told_from_its_node(
    tmp_path: Path, where: str
) -> None:
    """Whoever calls it; a later hook, and one that is given such a gradient, are not blamed."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * 2

    def divide(gradient: Any, *_: Any) -> Any:
        return (gradient[0] / 0,) if isinstance(gradient, tuple) else gradient / 0

    def negate(gradient: Any, *_: Any) -> Any:
        return (-gradient[0],) if isinstance(gradient, tuple) else -gradient

    with agviz.trace(path=tmp_path / "t.agviz"):
        x = torch.ones(3, requires_grad=True)
        y = cast("Any", Double).apply(x) if where == "custom" else x.exp()
        z = y.exp()
        node: Any = z.grad_fn
        for hook in (negate, divide, negate, divide):
            if where == "leaf":
                x.register_hook(hook)
            elif where == "pre":
                node.register_prehook(hook)
            elif where == "post":
                node.register_hook(hook)
            else:
                (y if where == "custom" else z).register_hook(hook)
        x.register_hook(divide)
        z.sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (row,) = [row for row in trace.health() if row.role == "hook"]
        (event,) = trace.events(offset=trace.position(row.seq), limit=1)
        assert isinstance(event, events.HookCalled)
        assert (event.name, event.changed) == ("divide", True)
        assert row.posinf + row.neginf == row.numel == 3
        name = {"leaf": "AccumulateGrad", "custom": "DoubleBackward"}.get(where, "ExpBackward0")
        assert trace.node(row.graph_task, row.node).short_name == name
        assert trace.saved_health(row.graph_task) == []


def test_nothing_is_measured_unless_asked_for(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.agviz") as recorder, installed(recorder, nonfinite_check=True):
        program()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.health() == []
        assert trace.first_nonfinite() is not None


@pytest.mark.parametrize(("values", "rows"), [("health", True), ("none", False)])
def test_record_takes_the_level(tmp_path: Path, values: Any, rows: bool) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", values=values):
        torch.ones(2, requires_grad=True).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert bool(trace.health()) == rows


@pytest.mark.slow
@pytest.mark.parametrize(("level", "rows"), [("health", 3), ("none", 0)])
def test_agviz_run_takes_the_level(tmp_path: Path, level: str, rows: int) -> None:
    script = tmp_path / "s.py"
    script.write_text("import torch\n(torch.ones(2, requires_grad=True) * 2).sum().backward()\n")
    command = ("agviz", "run", "-o", "t.agviz", "--values", level, "s.py")
    python_process.run([sys.executable, "-m", *command], cwd=tmp_path, check=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.health()) == rows
        found = [type(event) for event in trace.events()]
        assert (events.NonFiniteChecked in found) == bool(rows)


def test_what_is_left_out_is_not_measured_either(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t.agviz", values="health", steps=range(1, 2))
    with recorder, installed(recorder):
        for _ in range(3):
            torch.ones(2, requires_grad=True).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert {row.graph_task for row in trace.health()} == {trace.graph_tasks[0].id}


def test_a_flight_recorder_keeps_health_as_long_as_events(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path / "t.agviz", store=RingStore(on=["nonfinite"], keep=2), values="health"
    )
    with recorder, installed(recorder):
        for divisor in (1.0, 2.0, 3.0, 0.0):
            (torch.ones(2, requires_grad=True) / torch.tensor(divisor)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        written = {task.id for task in trace.graph_tasks}
        assert len(written) == 2
        assert {row.graph_task for row in trace.health()} == written
        assert any(row.posinf for row in trace.health())


def test_an_infinite_norm_survives(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.agviz", values="health") as recorder, installed(recorder):
        x = torch.ones(4, dtype=torch.float64, requires_grad=True)
        (x * 1.7e308).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (row,) = trace.health(node=1)
        assert (row.norm, row.max, row.mean) == (math.inf, 1.7e308, 1.7e308)


@pytest.mark.parametrize(
    "lie",
    [
        "tensor_type = 99999",
        "nan = 1000",
        "nan = 1.5",
        "zero = 'nan'",
        "min = 'nan'",
        "max = 'inf'",
        "min = x'7ff8000000000000'",
        "max = 9e999",
        "min = -9e999",
        "mean = 9e999",
        "mean = NULL",
        "min = 5, max = 4",
        "norm = -1",
    ],
)
def test_lies_are_refused(good: Path, lie: str) -> None:
    refuses(good, f"UPDATE health SET {lie} WHERE seq = (SELECT min(seq) FROM health)")  # noqa: S608


@pytest.mark.parametrize(
    "lie",
    [
        "dtype = 99999",
        "dtype = 'float32'",
        "shape = (SELECT max(id) FROM string WHERE text = 'cpu')",
        "numel = -1",
        "bytes = x'00'",
        "numbers = 0",
        "unknown = -1",
        "numel = 9223372036854775807, numbers = 1e300",
    ],
)
def test_lies_about_what_the_tensors_are_like_are_refused(good: Path, lie: str) -> None:
    first = "SELECT tensor_type FROM health WHERE zero ORDER BY seq LIMIT 1"
    refuses(good, f"UPDATE tensor_type SET {lie} WHERE id = ({first})")  # noqa: S608


def refuses(good: Path, lie: str) -> None:
    database = sqlite3.connect(good, isolation_level=None)
    assert database.execute(lie).rowcount == 1
    database.close()
    with Trace.open(good) as trace:
        assert trace.graph_tasks
        with pytest.raises(TraceError, match="damaged"):
            trace.health()


def test_a_row_without_its_event_is_not_shown(good: Path) -> None:
    database = sqlite3.connect(good, isolation_level=None)
    database.execute("UPDATE health SET seq = 10000000 WHERE seq = (SELECT min(seq) FROM health)")
    database.close()
    with Trace.open(good) as trace:
        assert trace.health_at(10_000_000) is None


def test_health_of_an_event_that_has_none_is_refused(good: Path) -> None:
    database = sqlite3.connect(good, isolation_level=None)
    database.execute(
        "UPDATE health SET seq = (SELECT min(seq) FROM event WHERE kind = 26)"
        " WHERE seq = (SELECT min(seq) FROM health)"
    )
    database.close()
    with Trace.open(good) as trace, pytest.raises(TraceError, match="damaged"):
        trace.health()
