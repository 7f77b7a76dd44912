"""Drawing: the SVG shows what it claims, Graphviz may be absent, slow or broken."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

import agviz_engine
from agviz.errors import DrawingError
from agviz.export.dot import draw_picture
from agviz.export.draw import render, render_graph
from agviz.graph.model import read_graph
from agviz.graph.picture import UNREADABLE, compose
from agviz.record.names import Names
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz_engine.instruments import Registry
from tests import svg_reader
from tests.event_simulator import Simulator, random_graph
from tests.graph_rows import Rows, blocks
from tests.graphviz_support import put_able_dot, without_pygraphviz

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agviz.graph.picture import GraphLayout

SLOW_DOT = "#!/bin/sh\necho $$ > {folder}/pid\nexec sleep 600\n"
CURVES_CRASH = "#!/bin/sh\nif grep -q splines=line; then echo '<svg/>'; else exit 134; fi\n"
LARGE_CRASH = "#!/bin/sh\nif [ $(wc -c) -lt 95000 ]; then echo '<svg/>'; else exit 134; fi\n"
BROKEN_DOT = "#!/bin/sh\necho 'Error: it is broken' >&2\nexit 3\n"


def assert_shows_what_it_claims(svg: bytes, picture: GraphLayout) -> None:
    """Each box, line, parameter and edge of the picture once, and nothing else."""
    lines = [f"a_node-{item.index}" for item in picture.items]
    lines += [
        f"a_node-{leaf.row.index}-use-{leaf.use}"
        for item in picture.items
        if len(item.nodes) == 1
        for leaf in item.nodes[0].leaves
    ]
    found = Counter(name for name in svg_reader.ids(svg) if name.startswith("a_node-"))
    assert found == Counter(lines)
    boxes = [f"box-{picture.items[box.lines[0].item].index}" for box in picture.boxes]
    drawn = svg_reader.ids(svg, "node")
    assert Counter(name for name in drawn if name.startswith("box-")) == Counter(boxes)
    edges = [
        f"edge-{link.edges[0].row.producer}-{link.edges[0].row.output}" for link in picture.links
    ]
    arrows = svg_reader.ids(svg, "edge")
    assert Counter(name for name in arrows if name.startswith("edge-")) == Counter(edges)


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """A recorded backward pass of 300 nodes on two devices."""
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(1), devices=2)
        simulator.backward(random_graph(simulator.rng, 300, 2))
    with Trace.open(tmp_path / "t.agviz") as opened:
        yield opened


def put_dot(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let ``script`` be the only Graphviz; it passes for one that can draw."""
    put_able_dot(folder, monkeypatch, script)
    without_pygraphviz(monkeypatch)


@pytest.mark.parametrize(("layers", "budget"), [(2, 400), (12, 400), (12, 30)])
def test_the_svg_shows_every_node_and_edge_it_claims(layers: int, budget: int) -> None:
    picture = compose(blocks(layers).graph(), budget)
    assert_shows_what_it_claims(render(draw_picture(picture).source, "svg"), picture)


def test_a_recorded_pass_on_two_devices_is_drawn_whole(trace: Trace, tmp_path: Path) -> None:
    drawing = render_graph(trace, tmp_path / "graph.svg")
    picture = compose(read_graph(trace), None)
    assert drawing.notes == (UNREADABLE,)  # a random graph does not repeat itself
    assert drawing.dot == draw_picture(picture).source
    assert [path.name for path in tmp_path.glob("graph.*")] == ["graph.svg"]
    svg = drawing.path.read_bytes()
    assert_shows_what_it_claims(svg, picture)
    said = " ".join(svg_reader.texts(svg))
    assert all(lane in said for lane in ("● caller", "■ device 0", "▲ device 1"))
    assert svg_reader.parse(svg).tag.endswith("svg")


def test_a_real_step_is_drawn_with_its_modules_and_parameters(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    with Names() as names, Recorder(tmp_path / "t.agviz", names=names) as recorder:
        loss = model(torch.ones(3, 4)).sum()
        with agviz_engine.installed(recorder):
            loss.backward()
    with Trace.open(tmp_path / "t.agviz") as recorded:
        drawing = render_graph(recorded, tmp_path / "graph.svg")
        picture = compose(read_graph(recorded))
        assert sum(len(item.nodes) for item in picture.items) == 6
        assert picture.graph.folded_leaves == 4
    svg = drawing.path.read_bytes()
    assert_shows_what_it_claims(svg, picture)
    said = [" ".join(text.split()) for text in svg_reader.texts(svg)]
    for expected in ("TanhBackward0", "θ weight [8, 4]", "θ bias [2]", "[3, 8]", "● 10"):
        assert expected in said


@pytest.mark.parametrize(
    ("format_", "magic"),
    [pytest.param("png", b"\x89PNG", marks=pytest.mark.slow), ("pdf", b"%PDF")],
)
def test_other_formats_are_what_they_say(
    trace: Trace, tmp_path: Path, format_: str, magic: bytes
) -> None:
    path = tmp_path / "graph"
    assert render_graph(trace, path, format_).path.read_bytes().startswith(magic)


def test_only_dot_is_written_for_dot(trace: Trace, tmp_path: Path) -> None:
    drawing = render_graph(trace, tmp_path / "graph.gv", "dot")
    assert drawing.path == tmp_path / "graph.gv"
    assert drawing.path.read_text(encoding="utf-8") == drawing.dot
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.gv", "t.agviz"]


def test_the_bundled_graphviz_draws_where_there_is_no_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    picture = compose(blocks(2).graph())
    assert_shows_what_it_claims(render(draw_picture(picture).source, "svg"), picture)


def test_a_file_of_the_user_is_not_taken_for_the_bundled_graphviz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pygraphviz.py").write_text("raise SystemExit('the wrong one')")
    assert render("digraph { a -> b }", "svg").lstrip().startswith(b"<?xml")


def test_without_any_graphviz_the_dot_is_written_all_the_same(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    without_pygraphviz(monkeypatch)
    with pytest.raises(DrawingError, match=r"There is no Graphviz: install .* is in .*graph\.dot"):
        render_graph(trace, tmp_path / "graph.svg")
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8").startswith("digraph")
    assert not (tmp_path / "graph.svg").exists()


def test_graphviz_is_killed_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_dot(tmp_path, monkeypatch, SLOW_DOT)
    with pytest.raises(DrawingError, match=r"did not finish within 0\.5 s"):
        render("digraph {}", "svg", 0.5)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_graphviz_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_dot(tmp_path, monkeypatch, BROKEN_DOT)
    with pytest.raises(DrawingError, match="could not draw the graph as svg: Error: it is broken"):
        render("digraph {}", "svg")


@pytest.mark.parametrize(
    ("script", "notes"),
    [
        (CURVES_CRASH, ("edges are straight lines: with curves, Graphviz gave up",)),
        (LARGE_CRASH, ("little is drawn: with more, Graphviz gave up",)),
    ],
    ids=["straight", "folded"],
)
def test_it_steps_down_where_graphviz_gives_up_and_says_so(
    trace: Trace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    notes: tuple[str, ...],
) -> None:
    put_dot(tmp_path, monkeypatch, script)
    drawing = render_graph(trace, tmp_path / "graph.svg")
    assert drawing.notes[: len(notes)] == notes
    assert drawing.path.read_text() == "<svg/>\n"
    assert "splines=line" in drawing.dot


def test_when_nothing_helps_the_dot_is_left(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_dot(tmp_path, monkeypatch, BROKEN_DOT)
    with pytest.raises(DrawingError, match=r"it is broken.* The graph as DOT is in .*graph\.dot"):
        render_graph(trace, tmp_path / "graph.svg")
    assert (tmp_path / "graph.dot").exists()


def test_an_unknown_format_and_a_missing_folder_are_one_sentence(
    trace: Trace, tmp_path: Path
) -> None:
    with pytest.raises(
        DrawingError, match="can't be drawn as 'xcf': choose svg, png, pdf, html or dot"
    ):
        render_graph(trace, tmp_path / "graph.xcf", "xcf")
    with pytest.raises(DrawingError, match=r"graph\.svg can't be written: No such file"):
        render_graph(trace, tmp_path / "missing" / "graph.svg")


def test_graphviz_is_told_to_hurry_with_a_thousand_boxes() -> None:
    rows = Rows()
    root = rows.node("StackBackward0")
    for index in range(1_100):
        rows.node("MulBackward0", rows.node("SinBackward0", root), root, module=f"m{index}")
    source = draw_picture(compose(rows.graph(), 10_000)).source
    small = draw_picture(compose(blocks(3).graph())).source
    for hint in ("splines=line", "nslimit=0.1", "mclimit=0.1"):
        assert hint in source
        assert hint not in small
    assert "nslimit1" not in source
