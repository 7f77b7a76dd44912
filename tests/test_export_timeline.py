"""The picture of a pass in time, against what sqlite, networkx and a direct count say."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.cli.main import main
from agviz.export.palette import DARK
from agviz.export.pass_timeline import LEFT, PassTimeline
from agviz.export.svg import RIGHT, WIDTH
from agviz.export.swim import CELL
from agviz.traces.reader import Trace
from agviz.words.units import duration
from tests import svg_reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from xml.etree import ElementTree as ET

_ROOM = WIDTH - LEFT - RIGHT


class Slow(torch.autograd.Function):
    """A gradient that takes a while, and may be NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bad: bool) -> Tensor:
        ctx.bad = bad
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(0.02)
        return gradients[0] * (float("nan") if ctx.bad else 1.0), None


class Block(nn.Module):
    """A linear layer in front of something slow."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.bad = bad

    def forward(self, x: Tensor) -> Tensor:
        slow: Tensor = Slow.apply(self.inner(x), self.bad)  # type: ignore[no-untyped-call]
        return slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pass without a stretch in which nothing ran: a picture leaves these out of its axis."""
    for _ in range(20):
        path = record_two_devices(tmp_path_factory.mktemp("timeline"))
        if not of_class(drawn(path)[0], "cut"):
            return path
    pytest.fail("a busy machine stopped all threads at once in each of 20 passes")


def record_two_devices(folder: Path) -> Path:
    """Four blocks; those of each number modulo two run on a device of their own."""
    path = folder / "t.agviz"
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(bad=number == 2) for number in range(4)))
    begins: list[int] = []

    def policy(node: Any) -> int:
        block = bisect_right(begins, node._sequence_nr()) - 1
        return -1 if hasattr(node, "variable") or block < 0 else block % 2

    with agviz.trace(model, path=path, device_policy=policy):
        for block in model:
            block.register_forward_pre_hook(
                lambda *_: begins.append(torch._C._autograd._get_sequence_nr())
            )
        model(torch.ones(2, 4)).sum().backward()
    return path


def drawn(path: Path, **options: Any) -> tuple[bytes, PassTimeline]:
    with Trace.open(path) as trace:
        picture = PassTimeline(trace, **options)
        return "".join(picture.pieces()).encode("ascii"), picture


def of_class(svg: bytes, kind: str) -> list[ET.Element]:
    return [each for each in svg_reader.parse(svg).iter() if each.get("class") == kind]


def spans(path: Path) -> dict[int, tuple[int, int, int]]:
    """By node: begin, end and thread, from the rows of the file."""
    with Trace.open(path) as trace:
        rows = trace.executions(trace.graph_tasks[-1].id)
        return {row.node: (row.start_ns, row.end_ns or 0, row.thread) for row in rows}


def modules(path: Path) -> set[str]:
    """Those of the nodes, and those around them."""
    with Trace.open(path) as trace:
        own = {node.module for node in trace.nodes(trace.graph_tasks[-1].id)}
    return {
        ".".join(parts[:depth])
        for parts in (name.split(".") for name in own if name)
        for depth in range(1, len(parts) + 1)
    }


def edges(path: Path) -> list[tuple[int, int]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT producer, consumer FROM edge").fetchall()


def title(element: ET.Element) -> str:
    return next((child.text or "" for child in element if child.tag.endswith("}title")), "")


def test_a_bar_is_where_its_node_ran_and_threads_have_lanes(recorded: Path) -> None:
    svg, picture = drawn(recorded)
    found = {each.get("data-node", ""): each for each in of_class(svg, "node")}
    ran = spans(recorded)
    begin = picture.task.begin_ns
    scale = _ROOM / ((picture.task.end_ns or 0) - begin)
    lanes: dict[int, set[str]] = {}
    for node, (start, end, thread) in ran.items():
        if (end - start) * scale < 2 * CELL:
            continue
        bar = found.pop(f"{picture.task.id}-{node}")
        assert float(bar.get("x", "")) == pytest.approx(LEFT + (start - begin) * scale, abs=0.2)
        assert float(bar.get("width", "")) == pytest.approx((end - start) * scale, abs=0.2)
        lanes.setdefault(thread, set()).add(bar.get("y", ""))
    assert all(len(heights) == 1 for heights in lanes.values())
    assert len({next(iter(heights)) for heights in lanes.values()}) == len(lanes) >= 2
    texts = svg_reader.texts(svg)
    assert {"● caller", "■ device 0", "▲ device 1"} <= set(texts)
    numbers = {
        int(text.split()[0]) for text in texts if re.fullmatch(r"\d+ SlowBackward|\d+ Slow", text)
    }
    assert len(numbers) == 4


def test_modules_are_over_their_nodes(recorded: Path) -> None:
    svg, _ = drawn(recorded)
    modules = {title(each).partition(":")[0]: each for each in of_class(svg, "module")}
    assert len([name for name in modules if re.fullmatch(r"\d", name)]) == 4
    for node in of_class(svg, "node"):
        about = title(node)
        if "SlowBackward" not in about:
            continue
        module = modules[about.partition(", ")[2].partition(":")[0]]
        left, right = (
            (float(e.get("x", "")), float(e.get("x", "")) + float(e.get("width", "")))
            for e in (node, module)
        )
        assert right[0] - 0.2 <= left[0]
        assert left[1] <= right[1] + 0.2
        assert float(module.get("y", "")) < float(node.get("y", ""))


def test_modules_that_are_left_out_are_noted(tmp_path: Path) -> None:
    """How narrow they are is the machine's choice: with recordings until some are left out."""
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = record_two_devices(folder)
        svg, picture = drawn(path)
        shown = {title(each).partition(":")[0] for each in of_class(svg, "module")}
        is_noted = "--around NODE shows a part" in "".join(picture.notes[-1:])
        if modules(path) - shown:
            assert is_noted
            return
    raise AssertionError("in 40 recordings every module was wide enough")


def test_arrows_are_the_edges_between_threads(recorded: Path) -> None:
    svg, _ = drawn(recorded)
    ran = spans(recorded)
    order = {node: turn for turn, node in enumerate(sorted(ran, key=lambda n: ran[n][0]), 1)}
    crossing = {(order[a], order[b]) for a, b in edges(recorded) if ran[a][2] != ran[b][2]}
    found = set()
    for arrow in of_class(svg, "crossing"):
        said = re.match(r"(\d+) \S+ → (\d+) \S+", title(arrow))
        assert said is not None
        found.add((int(said[1]), int(said[2])))
    assert found <= crossing
    assert len(found) >= 4  # those that begin and end at the same places are one


def test_the_strips_are_the_critical_path_and_that_of_nan(recorded: Path) -> None:
    svg, picture = drawn(recorded)
    ran = spans(recorded)
    graph = nx.DiGraph()
    graph.add_nodes_from(ran)
    graph.add_weighted_edges_from((a, b, ran[a][1] - ran[a][0]) for a, b in edges(recorded))
    graph.add_weighted_edges_from((node, "end", span[1] - span[0]) for node, span in ran.items())
    longest = nx.dag_longest_path_length(graph)
    said = next(text for text in svg_reader.texts(svg) if "critical path" in text)
    assert f"critical path {duration(longest)}" in said
    scale = _ROOM / ((picture.task.end_ns or 0) - picture.task.begin_ns)
    wide = sum(float(each.get("width", "")) for each in of_class(svg, "critical"))
    assert wide == pytest.approx(longest * scale, abs=40)
    with Trace.open(recorded) as trace:
        bad = {row.node for row in trace.nonfinite(picture.task.id)}
    taken = sum(ran[node][1] - ran[node][0] for node in bad) * scale
    wide = sum(float(each.get("width", "")) for each in of_class(svg, "nonfinite"))
    assert wide == pytest.approx(taken, abs=40)
    assert any("⚠ first: " in text and "SlowBackward" in text for text in svg_reader.texts(svg))


def test_waiting_is_where_another_thread_runs_a_node(recorded: Path) -> None:
    svg, picture = drawn(recorded)
    ran = spans(recorded)
    begin, end = picture.task.begin_ns, picture.task.end_ns or 0
    scale = _ROOM / (end - begin)
    shaded = {
        kind: sum(float(each.get("width", "")) for each in of_class(svg, kind))
        for kind in ("waits", "idle")
    }
    threads = {thread for *_, thread in ran.values()}
    counted = {"waits": 0.0, "idle": 0.0}
    for pixel in range(_ROOM):
        at = begin + (pixel + 0.5) / scale
        running = {thread for start, until, thread in ran.values() if start <= at < until}
        kind = "waits" if running else "idle"
        counted[kind] += len(threads - running)
    assert shaded == pytest.approx(counted, abs=0.05 * _ROOM)


def test_what_nobody_can_read_is_shaded(tmp_path: Path) -> None:
    def long() -> None:
        x = torch.ones(2, requires_grad=True)
        y = x
        for _ in range(3_000):
            y = y * 1.0
        y.sum().backward()

    svg, _ = record(long, tmp_path)
    assert len(svg) < 150_000
    assert of_class(svg, "many")
    for text in svg_reader.parse(svg).iter():
        if text.tag.endswith("}text"):
            assert float(text.get("font-size", "11")) * 1440 / WIDTH >= 8


def test_a_pause_is_cut_out_and_said(tmp_path: Path) -> None:
    def paused() -> None:
        x = torch.ones(2, requires_grad=True)
        y = x * 2.0
        engine: Any = torch.autograd.Variable._execution_engine
        y.register_hook(lambda _: engine.queue_callback(lambda: time.sleep(0.3)))
        y.sum().backward()

    svg, picture = record(paused, tmp_path)
    (note,) = picture.notes
    cut = re.match(r"(\d+) ms in which nothing ran", note)
    assert cut is not None
    assert int(cut[1]) >= 290
    assert of_class(svg, "cut")
    assert max(float(each.get("width", "")) for each in of_class(svg, "node")) > 100


def test_passes_inside_of_a_node_are_below_it(tmp_path: Path) -> None:
    def reentrant() -> None:
        block = nn.Linear(4, 4)
        x = torch.ones(2, 4, requires_grad=True)
        checkpoint(block, x, use_reentrant=True).sum().backward()

    svg, _ = record(reentrant, tmp_path)
    bars = {title(each): each for each in of_class(svg, "node")}
    ((_, outer),) = ((t, e) for t, e in bars.items() if "CheckpointFunctionBackward" in t)
    inner = [each for text, each in bars.items() if re.match(r"\d+\.\d+ ", text)]
    assert inner
    for each in inner:
        assert float(each.get("y", "")) > float(outer.get("y", ""))
        assert float(each.get("x", "")) >= float(outer.get("x", "")) - 0.2


def record(program: Callable[[], None], folder: Path) -> tuple[bytes, PassTimeline]:
    path = folder / "t.agviz"
    with agviz.trace(path=path):
        program()
    return drawn(path)


# -- the command ------------------------------------------------------------------------------


def test_the_time_around_a_node(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--format", "timeline", "-o", str(recorded.with_suffix(".svg"))]
    assert main(["export", str(recorded), *options, "--around", "3", "--depth", "1"]) == 0
    assert re.search(r"3 nodes around 3 \w+, of \d+", capsys.readouterr().out)
    svg = recorded.with_suffix(".svg").read_bytes()
    shown = {int(title(each).split()[0]) for each in of_class(svg, "node")}
    ran = spans(recorded)
    in_order = sorted(ran.values())
    begin, end = in_order[1][0], max(span[1] for span in in_order[1:4])
    assert shown <= {
        turn for turn, span in enumerate(in_order, 1) if span[0] < end and span[1] > begin
    }
    assert {2, 3, 4} & shown
    assert main(["export", str(recorded), *options, "--around", "none such"]) == 2
    assert "holds no node 'none such'" in capsys.readouterr().err
    assert main(["export", str(recorded), *options, "--graph-task", "7"]) == 2
    assert "7" in capsys.readouterr().err


def test_the_same_trace_gives_the_same_picture(recorded: Path) -> None:
    assert drawn(recorded)[0] == drawn(recorded)[0]
    assert b"#14181D" in drawn(recorded, theme=DARK)[0]


def test_names_can_not_break_the_picture(tmp_path: Path) -> None:
    def hostile() -> None:
        named = nn.Sequential()
        named.add_module("<b>&\"'\x1b", nn.Linear(2, 2))
        named(torch.ones(1, 2)).sum().backward()

    svg, _ = record(hostile, tmp_path)
    assert svg_reader.parse(svg).tag.endswith("svg")
