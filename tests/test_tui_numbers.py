"""Numbers on the screen: right, and there as a whole or not at all."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

import agviz
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.model import Measure
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.tensor_lines import measured
from agviz.tui.text import beginning, left, plain, right, tail
from agviz.tui.title import Status
from agviz.tui.watching import FileWatch
from agviz_engine.events import NodeFailed, NonFiniteChecked
from agviz_engine.instruments import Registry
from tests.event_simulator import SimulatedNode, Simulator
from tests.slow_cases import slow_but
from tests.tui_support import begin, lines, mlp, press, record, settle, write

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.record.names import Names
    from agviz.traces.health import HealthRow
    from agviz.tui.screen import TraceScreen


async def filtered(pilot: Pilot[None], words: str) -> list[object]:
    """The events that a filter lists."""
    await press(pilot, "3", "f")
    await write(pilot, words)
    session = await press(pilot, "enter")
    panel = session.query_one(Events)
    return [panel.event_at(index) for index in range(panel.line_count)]


async def test_the_filter_nonfinite_lists_what_is_not_finite(tmp_path: Path) -> None:
    path = record(tmp_path / "nan.agviz", nan_at=7)
    with Trace.open(path) as trace:
        every = trace.events(0, 0, 10_000)
    checks = [event for event in every if isinstance(event, NonFiniteChecked)]
    found = [event for event in checks if event.nan or event.posinf or event.neginf]
    assert 0 < len(found) < len(checks)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        assert await filtered(pilot, "nonfinite") == found
        assert await filtered(pilot, "non-finite") == found
        assert await filtered(pilot, "check") == checks
        node = found[0].node
        view = cast("TraceScreen", pilot.app.screen).view
        assert view is not None
        order = view.recording.node(node).order
        of_node = [event for event in found if event.node == node]
        assert await filtered(pilot, f"nonfinite #{order}") == of_node


async def test_nonfinite_and_a_kind_list_both(tmp_path: Path) -> None:
    path = record(tmp_path / "both.agviz", nan_at=3, fail_at=12)
    with Trace.open(path) as trace:
        every = trace.events(0, 0, 10_000)
    expected = [
        event
        for event in every
        if isinstance(event, NodeFailed) or (isinstance(event, NonFiniteChecked) and event.nan)
    ]
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        assert await filtered(pilot, "nonfinite NodeFailed") == expected


async def test_the_position_is_never_larger_than_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written since the file was last looked at."""
    monkeypatch.setattr(FileWatch, "interval", 1e6)  # nobody looks unless the playhead moves
    nodes, names = mlp()
    registry = Registry()
    path = tmp_path / "growing.agviz"
    with Recorder(path, names=cast("Names", names), script="t.py", argv=[]) as recorder:
        registry.add(recorder)
        simulator = Pausing(registry, Random(7), devices=2)
        simulator.recorder = recorder
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(simulator.backward, nodes)
            try:
                assert simulator.paused.wait(60)
                async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
                    session = await settle(pilot)
                    before = shown(session)[1]
                    simulator.go_on.set()
                    run.result(60)
                    recorder.flush()
                    for key in ("c", "n", "S", "s", "c"):
                        position, count = shown(await press(pilot, key))
                        assert position <= count
                        assert count > before
                    view = session.view
                    assert view is not None
                    with Trace.open(path) as trace:
                        assert view.recording.event_count == trace.event_count(0)
                    assert len(view.recording.columns.started) == len(nodes)
            finally:
                simulator.go_on.set()


class Pausing(Simulator):
    """Stops in the midst of a backward pass until it may go on."""

    recorder: Recorder

    def __init__(self, *args: Any, **options: Any) -> None:
        self.paused, self.go_on = threading.Event(), threading.Event()
        self._told = 0
        super().__init__(*args, **options)

    def _tell(self, *args: Any, **options: Any) -> None:
        super()._tell(*args, **options)
        self._told += 1
        if self._told == 68:
            self.recorder.flush()
            self.paused.set()
            self.go_on.wait(60)


def shown(session: TraceScreen) -> tuple[int, int]:
    """Position and count as the status line tells them."""
    found = re.search(r"event ([\d,]+)/([\d,]+)", session.query_one(Status).render().plain)
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


@pytest.fixture(scope="module")
def health(tmp_path_factory: pytest.TempPathFactory) -> HealthRow:
    x = torch.ones(64, requires_grad=True)
    path = tmp_path_factory.mktemp("health") / "t.agviz"
    with agviz.trace(path=path):
        (x * torch.linspace(0.5, 2, 64)).sum().backward()
    with Trace.open(path) as trace:
        return trace.health()[-1]


def told(row: HealthRow) -> str:
    return "\n".join(plain(entry.line) for entry in measured(Measure(row, None, ""), 60))


@pytest.mark.parametrize(
    ("dtype", "numbers", "norm", "mean", "expected"),
    [
        ("float32", 4096, 1.0, -1.234e-10, "mean ≈0"),
        ("float32", 4096, 1.0, -1.234e-5, "mean -1.234e-05"),
        ("float32", 100, 1e-12, 3e-22, "mean ≈0"),  # all of it is small: what counts is the share
        ("float32", 100, 1e-12, 3e-14, "mean 3e-14"),
        ("float64", 4096, 1.0, -1.234e-10, "mean -1.234e-10"),
        ("float64", 4096, 1.0, 1e-19, "mean ≈0"),
        ("bfloat16", 4096, 1.0, 1e-5, "mean ≈0"),
        ("bfloat16", 4096, 1.0, 1e-2, "mean 0.01"),
        ("float32", 10, 0.0, 0.0, "mean 0"),
        ("float32", 10, float("inf"), 1e30, "mean 1e+30"),
        ("float8_e4m3fn", 10, 1.0, 1e-10, "mean 1e-10"),  # of unknown precision
    ],
)
def test_a_mean_that_is_rounding_noise_has_no_digits(
    health: HealthRow, dtype: str, numbers: int, norm: float, mean: float, expected: str
) -> None:
    row = health._replace(dtype=dtype, numbers=numbers, norm=norm, mean=mean)
    assert re.search(rf"{re.escape(expected)}$", told(row), re.MULTILINE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_what_cancels_is_noise(tmp_path: Path, dtype: torch.dtype) -> None:
    """The gradient of cross entropy sums to zero in every row, but for rounding."""
    torch.manual_seed(1)
    logits = torch.randn(32, 50, dtype=dtype, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        torch.nn.functional.cross_entropy(logits, torch.randint(50, (32,))).backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        *_, row = (row for row in trace.health() if row.shape == (32, 50))
    assert row.mean != 0
    assert "mean ≈0" in told(row)


@pytest.mark.parametrize("width", range(1, 12))
def test_a_number_is_there_as_a_whole_or_not_at_all(width: int) -> None:
    for text in ("2,900", "needs 2,900 more", "2,900 nodes", "-1.234e-10", "3.25 of 17"):
        whole = set(re.findall(r"[\d.,]+", text))
        for cut in (left(text, width), right(text, width), beginning(text, width)):
            assert set(re.findall(r"[\d.,]+", cut)) <= whole, cut
    assert left("2,900", 4) == "…   "
    assert left("needs 2,900 more", 10) == "needs …   "
    assert tail("layers.12.linear", 9) == "….linear "
    assert tail("layers.12.linear", 10) == "…12.linear"[-10:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "size",
    slow_but({"(60, 24)"}, [(60, 24), (80, 24), (100, 30), (120, 40), (200, 60)]),
)
async def test_a_node_that_waits_for_thousands_says_how_many(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    most = 2_900
    root = SimulatedNode(0, "RootBackward0", most + 2, -1, 1)
    middle = [SimulatedNode(n, "MulBackward0", most + 2 - n, -1, 1) for n in range(1, most + 1)]
    last = SimulatedNode(most + 1, "AddBackward0", 0, -1, 1)
    root.next_edges = tuple((node, 0) for node in middle)
    for node in middle:
        node.next_edges = ((last, 0),)
    names = cast("Names", mlp()[1])
    registry = Registry()
    path = tmp_path / "wide.agviz"
    with Recorder(path, names=names, script="t.py", argv=[]) as recorder:
        registry.add(recorder)
        Simulator(registry, Random(1), devices=0).backward([root, *middle, last])
    async with AgvizApp([path]).run_test(size=size) as pilot:
        await begin(pilot)
        session = await press(pilot, "2", "G")
        (row,) = (line for line in lines(session.query_one(GraphPanel)) if "AddBackward0" in line)
        assert re.search(r"\b2,900\b", row), row
        session = await press(pilot, "n", "n", "n")
        for panel in session.query(Panel):
            for line in lines(panel):
                assert not re.search(r"\d[,.]?…", line), line
