"""Which Graphviz draws: the bundled one first, and none that can't do what pictures need."""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

import pytest

from agviz.cli.main import main
from agviz.errors import DrawingError
from agviz.export import renderers
from agviz.export.dot import draw_picture
from agviz.export.draw import render, render_graph
from agviz.graph.model import read_graph
from agviz.graph.picture import compose
from agviz.graph.view import By
from agviz.traces.reader import Trace
from tests import graphviz_support as machine
from tests import svg_reader
from tests.graph_rows import Rows, block
from tests.test_graph_view import record_two_layers

if TYPE_CHECKING:
    from pathlib import Path

IDS = "it gives the lines of a box neither ids nor tooltips"
INSTALL = r"pip install 'pygraphviz>=2\.0\.4'"


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What it says about Graphviz."""
    main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return next(found for found in findings if found["subject"] == "graphviz")


@pytest.mark.parametrize(
    "script", [machine.LIKE_2_43, "#!/bin/sh\nexit 3\n"], ids=["old", "broken"]
)
def test_the_bundled_graphviz_draws_whatever_dot_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    dot = machine.put_dot(tmp_path, monkeypatch, script)
    assert b"a_line" in render(renderers.PROBE, "svg")
    found = doctor(capsys)
    assert found["ok"] is True
    wheel = f"pygraphviz {importlib.metadata.version('pygraphviz')} (Graphviz "
    assert str(found["found"]).startswith(wheel)
    assert f"draws; {dot}" in str(found["found"])
    assert (IDS if script == machine.LIKE_2_43 else "it ended with 3") in str(found["found"])


@pytest.mark.parametrize(
    ("script", "version", "reason"),
    [
        (machine.LIKE_2_43, "2.43.0", IDS),
        (machine.UNORDERED, "2.30.1", "it does not keep columns in their order"),
    ],
)
def test_a_dot_that_can_not_is_refused_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    version: str,
    reason: str,
) -> None:
    record_two_layers(tmp_path / "t.agviz")
    dot = machine.put_dot(tmp_path, monkeypatch, script)
    machine.without_pygraphviz(monkeypatch)
    said = rf"{dot} \(Graphviz {version}\) is not used, as {reason}: {INSTALL}\. The graph as DOT"
    with Trace.open(tmp_path / "t.agviz") as trace:
        for format_ in ("html", "svg", "png"):
            with pytest.raises(DrawingError, match=said):
                render_graph(trace, tmp_path / f"g.{format_}", format_)
    assert (tmp_path / "g.dot").exists()
    assert not (tmp_path / "g.html").exists()
    found = doctor(capsys)
    assert found["ok"] is False
    assert found["found"] == (
        f"{dot} (Graphviz {version}) could not: {reason}; graphs are written as .dot only"
    )
    assert found["remedy"] == renderers.INSTALL


def test_a_dot_that_can_draws_where_pygraphviz_is_not_or_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dot = machine.put_able_dot(tmp_path, monkeypatch)
    monkeypatch.setattr(renderers, "BUNDLED", "raise ImportError('libcgraph.so.8: cannot open')")
    assert b"a_line" in render(renderers.PROBE, "svg")
    assert renderers.choose().name == str(dot)
    said = str(doctor(capsys)["found"])
    assert said.startswith(f"{dot} (Graphviz ")
    assert "draws; pygraphviz " in said
    assert "could not: Graphviz could not draw the graph as svg: ImportError: libcgraph" in said
    machine.without_pygraphviz(monkeypatch)
    assert renderers.choose().name == str(dot)


def test_without_any_the_doctor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.without_dot(monkeypatch)
    machine.without_pygraphviz(monkeypatch)
    found = doctor(capsys)
    assert (found["ok"], found["remedy"]) == (False, renderers.INSTALL)
    assert "graphs are written as .dot only" in str(found["found"])


def test_a_real_old_dot_is_told_by_what_it_can_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dot = machine.needs_old_dot()
    record_two_layers(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        page = render_graph(trace, tmp_path / "g.html", "html").path.read_text(encoding="utf-8")
        picture = compose(read_graph(trace))
        lines = [f"a_node-{item.index}" for item in picture.items]
        ids = page.replace("&#45;", "-")
        assert all(f'id="{line}"' in ids for line in lines)
        machine.without_pygraphviz(monkeypatch)
        with pytest.raises(DrawingError, match=rf"{dot} \(Graphviz 2\..*\) is not used, as {IDS}"):
            render_graph(trace, tmp_path / "g.html", "html")


@pytest.mark.parametrize("by", [By.MODULE, By.DEVICE])
def test_columns_without_a_frame_stay_in_their_places(by: By) -> None:
    rows = Rows()
    above = rows.node("MeanBackward0")
    waiting: dict[str, Any] = {"thread": None, "order": None} if by is By.DEVICE else {}
    for index in range(170):
        if 70 <= index < 100:
            above = block(rows, f"layer{index}", above, thread=index // 3 % 2 + 1)
        else:
            above = rows.node("AddBackward0" if index % 2 else "SinBackward0", above, **waiting)
    picture = compose(rows.graph(), 400, by=by)
    assert any(not column.clusters for column in picture.columns)
    assert any(column.clusters for column in picture.columns)
    drawn = svg_reader.places(render(draw_picture(picture).source, "svg"))
    left = [
        min(drawn[f"box-{picture.items[picture.boxes[box].lines[0].item].index}"] for box in boxes)
        for column in range(len(picture.columns))
        if (boxes := [i for i, at in enumerate(picture.column_of) if at == column])
    ]
    assert left == sorted(left)


def test_a_graphviz_that_failed_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.without_pygraphviz(monkeypatch)
    machine.put_dot(tmp_path, monkeypatch, "#!/bin/sh\nexit 3\n")
    with pytest.raises(renderers.NoGraphvizError, match="it ended with 3"):
        renderers.choose()
    machine.put_able_dot(tmp_path, monkeypatch)
    assert renderers.choose().name == str(tmp_path / "dot")
