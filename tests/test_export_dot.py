"""DOT: golden files as text, the same bytes every time, and names that try to break it.

Graphviz itself, drawing SVG, and an XML parser are the oracle for what a name turns into.
`AGVIZ_UPDATE_GOLDEN=1 pytest tests/test_export_dot.py` writes the golden files again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agviz.export.dot import draw_picture
from agviz.export.draw import drawn, render
from agviz.export.look import Links, Look
from agviz.export.palette import DARK, LIGHT
from agviz.export.text import plain, shorten
from agviz.graph.picture import compose
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import Frame, NodeStatus
from agviz_engine.instruments import Registry
from tests import svg_reader
from tests.event_simulator import Simulator, random_graph
from tests.graph_rows import Rows, block, blocks, linear

GOLDEN = Path(__file__).parent / "golden"


def two_layers() -> Rows:
    rows = Rows()
    relu = rows.node("ReluBackward0", linear(rows, "second", rows.node("MeanBackward0", shape=())))
    linear(rows, "first", relu)
    return rows


def failed() -> Rows:
    rows = Rows()
    root = rows.node("SumBackward0")
    broken = rows.node("MyFunctionBackward", root, module="custom", status=NodeStatus.FAILED)
    waiting = rows.node("MulBackward0", broken, root, status=NodeStatus.WAITING)
    rows.leaf("scale", waiting, status=NodeStatus.WAITING)
    rows.node("UnbindBackward0", root, slot=1, status=NodeStatus.SKIPPED)
    return rows


def two_devices_with_nan() -> Rows:
    rows = Rows()
    upper = block(rows, "upper", rows.node("MeanBackward0"), thread=2)
    block(rows, "lower", upper, thread=1, nan=4)
    return rows


def shared_parameter() -> Rows:
    rows = Rows()
    root = rows.node("AddBackward0")
    rows.leaf("tied.weight", *(rows.node("MulBackward0", root) for _ in range(3)))
    return rows


PICTURES = {
    "two_layers": (two_layers, 400),
    "failed": (failed, 400),
    "two_devices_with_nan": (two_devices_with_nan, 400),
    "shared_parameter": (shared_parameter, 400),
    "columns": (lambda: blocks(8), 400),
    "folded_layers": (lambda: blocks(12), 20),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_dot_is_the_golden_one(name: str) -> None:
    make, budget = PICTURES[name]
    source = draw_picture(compose(make().graph(), budget)).source
    golden = GOLDEN / f"{name}.dot"
    if os.environ.get("AGVIZ_UPDATE_GOLDEN"):
        golden.write_text(source, encoding="utf-8")
    assert source == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_graphviz_draws_the_golden_file_with_its_heading(name: str) -> None:
    svg = render((GOLDEN / f"{name}.dot").read_text(encoding="utf-8"), "svg")
    said = svg_reader.texts(svg)
    assert "train.py · backward(), pass 0" in said
    assert any("number: order of execution" in text for text in said)


def test_titles_say_what_is_drawn_to_who_cannot_see_it() -> None:
    svg = render((GOLDEN / "two_layers.dot").read_text(encoding="utf-8"), "svg")
    titles = [e.text for e in svg_reader.parse(svg).iter() if e.tag.endswith("}title")]
    assert titles[0] == "train.py · backward(), pass 0 · 10 nodes, 9 edges · 110 µs"
    assert "MeanBackward0 (node 0)" in titles
    assert "ReluBackward0 (node 5)->AddmmBackward0 (node 6) and 1 more" in titles


@pytest.mark.parametrize(
    ("links", "address"),
    [
        (Links.NONE, None),
        (Links.FILE, "file:///src/a%20folder/my%26model.py#L42"),
        (Links.VSCODE, "vscode://file/src/a%20folder/my%26model.py:42"),
    ],
)
def test_a_node_opens_the_line_that_created_it(links: Links, address: str | None) -> None:
    rows = Rows()
    frame = Frame("a folder/my&model.py", 42, "forward", False)
    rows.node("SumBackward0", stack=(frame,))
    look = Look(links=links, source_root=Path("/src"))
    svg = render(draw_picture(compose(rows.graph()), look).source, "svg")
    found = [e.get("{http://www.w3.org/1999/xlink}href") for e in svg_reader.parse(svg).iter()]
    assert [each for each in found if each] == ([address] if address else [])


def test_themes_differ_in_colours_only() -> None:
    picture = compose(two_devices_with_nan().graph())
    light, dark = (
        render(draw_picture(picture, Look(theme=theme)).source, "svg") for theme in (LIGHT, DARK)
    )
    assert svg_reader.texts(light) == svg_reader.texts(dark)
    assert DARK.paper.lower().encode() in dark.lower()
    for theme in (LIGHT, DARK):
        assert contrast(theme.ink, theme.paper) > 12
        assert min(contrast(each, theme.paper) for each in (theme.faint, theme.alarm)) > 4.5
        looks = [theme.lane(place) for place in (None, *range(6))]
        assert (
            min(contrast(theme.ink, each) for look in looks for each in (look.strong, look.pale))
            > 4.5
        )
        assert len({look.mark for look in looks}) == len(looks)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_same_trace_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(1), devices=2)
        simulator.backward(random_graph(simulator.rng, 80, 2))
    with Trace.open(path) as trace:
        expected = drawn(trace, "dot").decode()
    program = (
        "import sys; from agviz.export.draw import drawn; from agviz.traces.reader import Trace\n"
        "sys.stdout.buffer.write(drawn(Trace.open(sys.argv[1]), 'dot'))"
    )
    for seed in ("1", "2"):
        finished = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        )
        assert finished.stdout.decode() == expected
    assert "0x" not in expected


HOSTILE = [
    '"]; evil',
    '"]; evil [label="',
    "\\",
    'trailing\\"',
    "\\N \\G \\l \\n \\r \\T \\E \\H",
    "<b>bold</b>",
    "<",
    "<<TABLE>>",
    "-->",
    "]]>",
    "&lt; &amp; &#60; &nope;",
    "a\x00b\x1b[31m\r\n\tc",
    "\ud800\udfff\ufffe\uffff",
    "\u202egnp.exe",
    "}; digraph evil {",
    "strict graph node edge subgraph",
    "模块.θ.🔥",
    "%n % 100%",
    "//comment /* and */ # this",
    " leading and trailing ",
    "x" * 5_000,
]


def assert_stays_text(names: list[str]) -> None:
    """Used as names of nodes, modules and parameters, ``names`` are drawn as they are.

    Few of them become frames around boxes, many become titles and lines in boxes.
    """
    rows = Rows()
    root = rows.node("SumBackward0")
    for name in names:
        first = rows.node(name, root, module=name)
        rows.node("Next", first, module=name)
        rows.leaf(name, first)
    picture = compose(rows.graph(title=names[0]), 10_000)
    svg = render(draw_picture(picture).source, "svg", 60)
    boxes = [name for name in svg_reader.ids(svg, "node") if name.startswith("box")]
    assert len(boxes) == len(picture.boxes)
    said = " ".join(" ".join(svg_reader.texts(svg)).split())
    told = " ".join(" ".join(svg_reader.tooltips(svg)).split())
    for name in names:
        assert " ".join(shorten(plain(name)).split()) in said
        assert " ".join(plain(name).split()) in told


@pytest.mark.parametrize("names", [HOSTILE, HOSTILE[:11], HOSTILE[11:]], ids=len)
def test_hostile_names_stay_text(names: list[str]) -> None:
    assert_stays_text(names)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=30))
def test_any_name_stays_text(names: list[str]) -> None:
    assert_stays_text(names)
