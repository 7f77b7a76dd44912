"""The page: driven in a real browser. It asks no network, and no name gets out of its place."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.export.choices import make_look
from agviz.export.dot import draw_picture
from agviz.export.draw import render, render_graph
from agviz.export.look import Look
from agviz.export.page import page
from agviz.export.palette import DARK
from agviz.export.pass_timeline import LEFT
from agviz.export.svg import RIGHT, WIDTH
from agviz.graph.picture import compose
from agviz.graph.view import GraphView
from agviz.traces.reader import Trace
from tests import browser
from tests.graph_rows import Rows, block, blocks
from tests.test_export_dot import HOSTILE
from tests.test_export_timeline import record_two_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


def write(rows: Rows, path: Path, budget: int = 1_500, look: Look | None = None) -> Path:
    picture = compose(rows.graph(), budget, one_column=True)
    svg = render(draw_picture(picture, look).source, "svg").decode()
    path.write_text(page(picture, svg, look), encoding="utf-8")
    return path


def two_devices() -> Rows:
    rows = Rows()
    upper = block(rows, "upper", rows.node("MeanBackward0"), thread=2)
    block(rows, "lower", upper, thread=1, nan=4)
    return rows


def go(page: Page, path: Path) -> None:
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=30_000)


def boxes_shown(page: Page) -> int:
    return len([box for box in page.locator("g.node").all() if box.is_visible()])


def test_everything_is_in_one_file_and_nothing_else_is_asked_for(tmp_path: Path) -> None:
    text = write(two_devices(), tmp_path / "graph.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#]+)""", text)
    assert links == []
    assert write(two_devices(), tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_the_data_tells_every_line_and_link_of_the_picture(tmp_path: Path) -> None:
    rows = blocks(3)
    picture = compose(rows.graph(), 1_500, one_column=True)
    text = page(picture, render(draw_picture(picture).source, "svg").decode())
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    nodes = [line for line in data["lines"] if "-use-" not in line["id"]]
    assert [line["nodes"] for line in nodes] == [1] * len(picture.items)
    assert sum(line["nodes"] for line in data["lines"]) == len(rows.nodes)
    assert len(data["links"]) == len(picture.links)
    assert data["nodes"]["ran"] == len(data["nodes"]["index"]) == len(rows.nodes)
    assert data["nodes"]["turn"] == list(range(1, len(rows.nodes) + 1))
    ids = set(re.findall(r'id="([^"]+)"', text.replace("&#45;", "-")))
    named = {f"frame-{number}" for number, _, _ in data["frames"]}
    named |= {link[0] for link in data["links"]} | {line["box"] for line in data["lines"]}
    assert named | {f"a_{line['id']}" for line in data["lines"]} <= ids


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.running() as started:
        yield started


@browser.needs_browser
def test_the_slider_walks_through_the_execution(chromium: Browser, tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        covers = shown.locator("[data-status]")
        total = covers.count()
        assert total == 23
        assert shown.locator('[data-status="done"]').count() == total
        slider = shown.locator("#slider")
        assert slider.get_attribute("max") == str(total + 1)
        slider.fill("0")
        assert shown.locator('[data-status="waiting"]').count() == total
        assert shown.text_content("#when") == "before the first node"
        for position in (1, 9, 23):
            slider.fill(str(position))
            assert shown.locator('[data-status="running"]').count() == 1
            assert shown.locator('[data-status="done"]').count() == position - 1
        slider.fill("2")
        said = shown.text_content("#when")
        assert said == "2 AddBackward0 starts after 11.0 µs · 1 done, 1 running, 0 ready"
        shown.click("#on")
        assert shown.locator('[data-status="done"]').count() == 2
        shown.locator("#picture").press("ArrowLeft")
        assert shown.locator('[data-status="done"]').count() == 1


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_two_devices(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def recorded(trace: Path) -> Path:
    """The page of a real pass on two devices."""
    with Trace.open(trace) as opened:
        return render_graph(opened, trace.with_suffix(".html"), "html").path


@browser.needs_browser
def test_the_threads_are_shown_in_time_and_a_click_goes_there(
    chromium: Browser, recorded: Path, trace: Path
) -> None:
    with Trace.open(trace) as opened:
        task = opened.graph_tasks[-1]
        rows = opened.executions(task.id)
    slow = next(row for row in rows if row.name == "SlowBackward")
    with browser.opened(browser=chromium) as shown:
        go(shown, recorded)
        bar = shown.locator(f'#timeline [data-node="{task.id}-{slow.node}"]')
        assert f"{slow.order} SlowBackward" in (bar.locator("title").text_content() or "")
        bar.click()
        assert shown.locator("#slider").input_value() == str(slow.order)
        assert f"{slow.order} " in (shown.text_content("#said") or "")
        assert shown.locator('.cover[data-status="running"]').count() >= 1
        at, head = bar.bounding_box(), shown.locator("#playhead").bounding_box()
        assert at is not None
        assert head is not None
        assert head["x"] == pytest.approx(at["x"], abs=2)
        # Beside the bars: the last node that began by then.
        lanes = shown.locator("#timeline svg").bounding_box()
        assert lanes is not None
        scale = lanes["width"] / WIDTH
        later = slow.start_ns + 30_000_000 - task.begin_ns
        share = later / ((task.end_ns or 0) - task.begin_ns)
        x = lanes["x"] + (LEFT + share * (WIDTH - LEFT - RIGHT)) * scale
        shown.mouse.click(x, lanes["y"] + 2)
        pixel = ((task.end_ns or 0) - task.begin_ns) / ((WIDTH - LEFT - RIGHT) * scale)
        fewest, most = (
            sum(row.start_ns - task.begin_ns <= later + aside for row in rows)
            for aside in (-2 * pixel, 2 * pixel)
        )
        assert fewest - 1 <= int(shown.locator("#slider").input_value()) <= most + 1


@browser.needs_browser
def test_it_plays_and_the_view_follows(chromium: Browser, recorded: Path) -> None:
    with browser.opened(height=420, browser=chromium) as shown:
        go(shown, recorded)
        shown.locator("#picture").press("Space")
        assert shown.get_attribute("#play", "aria-pressed") == "true"
        for _ in range(200):
            if int(shown.locator("#slider").input_value()) > 8:
                break
            shown.wait_for_timeout(50)
        assert int(shown.locator("#slider").input_value()) > 8
        shown.locator("#picture").press("Space")
        assert shown.get_attribute("#play", "aria-pressed") == "false"
        now = shown.locator("#slider").input_value()
        shown.wait_for_timeout(200)
        assert shown.locator("#slider").input_value() == now
        view = "document.querySelector('#picture svg').getAttribute('viewBox')"
        last = str(int(shown.get_attribute("#slider", "max") or 0) - 1)
        for at, is_followed in (("1", True), (last, True), ("2", False)):
            shown.set_checked("#follow", is_followed)
            before = shown.evaluate(view)
            shown.locator("#slider").fill(at)
            line = shown.locator('.cover[data-status="running"]').first.bounding_box()
            whole = shown.locator("#picture").bounding_box()
            assert line is not None
            assert whole is not None
            below = whole["y"] + whole["height"] - line["y"] - line["height"]
            assert not is_followed or (line["y"] >= whole["y"] and below >= 0)
            assert is_followed or shown.evaluate(view) == before


@browser.needs_browser
def test_keys_go_from_node_to_node_and_fold_to_a_depth(chromium: Browser, recorded: Path) -> None:
    with browser.opened(browser=chromium) as shown:
        go(shown, recorded)
        shown.locator("#picture").focus()
        focused = "document.activeElement.id"
        met = []
        for _ in range(4):
            shown.keyboard.press("n")
            met.append(shown.evaluate(focused))
            about = shown.text_content("#said") or ""
            assert about
        assert len(set(met)) == 4
        assert all(each.startswith("a_node") for each in met)
        shown.keyboard.press("p")
        assert shown.evaluate(focused) == met[2]
        shown.keyboard.press("Enter")
        turn = (shown.text_content("#said") or "").split()[0]
        assert (shown.text_content("#when") or "").startswith(f"{turn} ")
        boxes = {}
        for key in "f123u":
            shown.keyboard.press(key)
            boxes[key] = boxes_shown(shown)
        assert boxes["f"] <= boxes["1"] <= boxes["2"] <= boxes["3"] == boxes["u"]
        assert boxes["f"] < boxes["u"]
        assert shown.input_value("#depth") == shown.get_attribute("#depth", "max")
        shown.locator("#depth").fill("0")
        shown.locator("#depth").press("Enter")
        assert boxes_shown(shown) == boxes["f"]


@browser.needs_browser
def test_two_fingers_magnify_and_one_moves(chromium: Browser, recorded: Path) -> None:
    with browser.opened(browser=chromium) as shown:
        go(shown, recorded)
        hand = shown.context.new_cdp_session(shown)

        def touch(kind: str, *fingers: tuple[int, int]) -> list[float]:
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
            hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            box = shown.get_attribute("#picture svg", "viewBox") or ""
            return [float(number) for number in box.split()]

        before = touch("touchStart", (500, 300))
        moved = touch("touchMove", (560, 340))
        touch("touchEnd")
        assert moved[0] < before[0]
        assert moved[1] < before[1]
        assert moved[2] == pytest.approx(before[2])
        touch("touchStart", (500, 300), (600, 300))
        closer = touch("touchMove", (400, 300), (700, 300))
        touch("touchEnd")
        assert closer[2] < moved[2] * 0.5


@browser.needs_browser
def test_it_is_dark_where_the_reader_wants_that(
    chromium: Browser, recorded: Path, trace: Path
) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    fill = "getComputedStyle(document.querySelector('#picture g.node polygon')).fill"
    lane = "getComputedStyle(document.querySelector('#timeline .node')).fill"
    with Trace.open(trace) as opened:
        look = make_look(theme="light")
        fixed = render_graph(opened, trace.with_name("light.html"), "html", look=look).path
    with browser.opened(browser=chromium) as shown:
        go(shown, recorded)
        light = [shown.evaluate(each) for each in (paper, fill, lane)]
        shown.emulate_media(color_scheme="dark")
        dark = [shown.evaluate(each) for each in (paper, fill, lane)]
        assert dark[0] == "rgb(20, 24, 29)"
        assert all(a != b for a, b in zip(light, dark, strict=True))
        go(shown, fixed)
        assert [shown.evaluate(each) for each in (paper, fill, lane)] == light


@browser.needs_browser
def test_what_is_folded_into_a_line_is_found_and_listed(chromium: Browser, tmp_path: Path) -> None:
    path = write(blocks(100), tmp_path / "graph.html", budget=60)
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        shown.fill("#search", "blocks.57.")
        found = shown.text_content("#found") or ""
        assert found.startswith("1 of ")
        current = shown.locator("#inside [aria-current]")
        assert "blocks.57." in (current.text_content() or "")
        entries = shown.locator("#inside li").count()
        assert entries <= 200
        shown.locator("#search").press("Enter")
        assert (shown.text_content("#found") or "").startswith("2 of ")
        current.click()
        turn = (current.text_content() or "").split()[0]
        assert (shown.text_content("#when") or "").startswith(f"{turn} ")
        before = shown.locator("#inside li").first.text_content()
        shown.click("#earlier")
        assert shown.locator("#inside li").first.text_content() != before


@browser.needs_browser
@pytest.mark.slow
def test_a_page_of_100_000_nodes_is_searched_whole(chromium: Browser, tmp_path: Path) -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for number in range(100_000):
        last = rows.node("SinBackward0" if number == 77_777 else "MulBackward0", last)
    path = write(rows, tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        shown.fill("#search", "mulbackward0")
        assert (shown.text_content("#found") or "").endswith(" of 99,999")
        shown.fill("#search", "SinBackward0")
        assert shown.text_content("#found") == "1 of 1"
        shown.fill("#search", "54321")
        assert "54321 MulBackward0" in (
            shown.locator("#inside [aria-current]").text_content() or ""
        )


AXE = os.environ.get("AGVIZ_AXE", "node_modules/axe-core/axe.min.js")


@browser.needs_browser
@pytest.mark.slow
@pytest.mark.skipif(
    not Path(AXE).exists(),
    reason="there is no axe: npm install axe-core, or let AGVIZ_AXE name its axe.min.js",
)
def test_axe_finds_no_violation(chromium: Browser, recorded: Path, tmp_path: Path) -> None:
    folded = write(blocks(100), tmp_path / "graph.html", budget=60)
    for path in (recorded, folded):
        for scheme in ("light", "dark"):
            with browser.opened(browser=chromium) as shown:
                shown.emulate_media(color_scheme=scheme)
                go(shown, path)
                shown.evaluate(Path(AXE).read_text(encoding="utf-8"))
                for wanted in ("", "backward"):
                    shown.fill("#search", wanted)
                    found = shown.evaluate("axe.run()")
                    assert [each["id"] for each in found["violations"]] == []
                    assert len(found["passes"]) > 10


@browser.needs_browser
def test_modules_fold_and_unfold_and_the_room_is_closed(chromium: Browser, tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        whole = boxes_shown(shown)
        height = "document.querySelector('#picture svg g.graph').getBBox().height"
        tall = shown.evaluate(height)
        shown.locator(".title", has_text="upper").click()
        assert boxes_shown(shown) == whole - 5
        title = shown.locator(".title", has_text="upper")
        assert title.text_content() == "▸ upper · 11 nodes · 11 done"
        assert title.get_attribute("aria-expanded") == "false"
        assert shown.evaluate(height) < tall - 150
        title.press("Enter")
        assert boxes_shown(shown) == whole
        assert abs(shown.evaluate(height) - tall) < 1
        shown.click("#fold-all")
        assert boxes_shown(shown) == 1
        shown.click("#unfold-all")
        assert boxes_shown(shown) == whole


SHARPEST = """() => Math.max(...[...document.querySelectorAll(
  "g.edge path"
)].map((path) => {
  const whole = path.getTotalLength();
  const at = [...Array(61).keys()].map((i) => path.getPointAtLength((whole * i) / 60));
  const ways = at.slice(1).map((b, i) => Math.atan2(b.y - at[i].y, b.x - at[i].x));
  return Math.max(...ways.slice(1).map((way, i) => Math.abs(Math.sin((way - ways[i]) / 2))));
}))"""
"""Sine of half of the sharpest turn that an edge takes between two of 60 places along it."""


class Attending(torch.nn.Module):
    """Attention beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        attended: torch.Tensor = self.attn(y, y, y, need_weights=False)[0]
        return x + attended


@browser.needs_browser
def test_edges_past_a_folded_module_have_no_kinks(chromium: Browser, tmp_path: Path) -> None:
    model = torch.nn.Sequential(Attending(), Attending(), Attending())
    with agviz.trace(model, tmp_path / "t.agviz"):
        model(torch.randn(2, 3, 8, requires_grad=True)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as opened:
        path = render_graph(opened, tmp_path / "graph.html", "html").path
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        shown.keyboard.press("u")
        found = [shown.evaluate(SHARPEST)]
        for title in shown.locator(".title", has_text="attn").all():
            title.press("Enter")
            found.append(shown.evaluate(SHARPEST))
        assert len(found) == 4
        assert max(found) < 0.35, found


@browser.needs_browser
def test_the_view_follows_the_focus_on_a_module(chromium: Browser, recorded: Path) -> None:
    with browser.opened(height=420, browser=chromium) as shown:
        go(shown, recorded)
        shown.keyboard.press("u")
        picture = shown.locator("#picture").bounding_box()
        assert picture is not None
        titles = shown.locator(".title").all()
        places = [title.bounding_box() for title in titles]
        assert any(at and at["y"] > picture["y"] + picture["height"] for at in places)
        for title in titles:
            title.focus()
            at = title.bounding_box()
            assert at is not None
            assert picture["y"] <= at["y"] <= picture["y"] + picture["height"] - at["height"]
            assert picture["x"] <= at["x"] <= picture["x"] + picture["width"]


@browser.needs_browser
def test_a_folded_module_shows_that_a_node_in_it_runs(chromium: Browser, tmp_path: Path) -> None:
    with browser.opened(browser=chromium) as shown:
        go(shown, write(two_devices(), tmp_path / "graph.html"))
        shown.locator(".title", has_text="upper").click()
        frame = "document.querySelector('g.folded .frame')"
        thickness = f"getComputedStyle({frame}).strokeWidth"
        shown.locator("#slider").fill("3")
        assert "done, 1 running" in (shown.text_content("#when") or "")
        assert shown.evaluate(thickness) == "3px"
        shown.locator("#slider").fill("0")
        assert shown.evaluate(thickness) == "1px"


@browser.needs_browser
def test_searching_unfolds_and_shows_what_is_found(chromium: Browser, tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        shown.click("#fold-all")
        shown.keyboard.press("/")
        shown.keyboard.type("lower.first.weight")
        assert shown.text_content("#found") == "1 of 1"
        assert boxes_shown(shown) > 1
        hit = shown.locator(".cover.now").bounding_box()
        assert hit is not None
        assert abs(hit["x"] + hit["width"] / 2 - 700) < 50
        assert "lower.first.weight" in (shown.text_content("#about") or "")
        shown.fill("#search", "addmm")
        assert shown.text_content("#found") == "1 of 4"
        shown.locator("#search").press("Enter")
        assert shown.text_content("#found") == "2 of 4"
        assert shown.locator(".cover.hit").count() == 4
        shown.fill("#search", "no such node")
        assert shown.text_content("#found") == "nothing"


@browser.needs_browser
def test_the_picture_is_moved_and_magnified(chromium: Browser, tmp_path: Path) -> None:
    path = write(blocks(4), tmp_path / "graph.html", look=Look(theme=DARK))
    with browser.opened(browser=chromium) as shown:
        go(shown, path)

        def view() -> list[float]:
            box = shown.get_attribute("#picture svg", "viewBox") or ""
            return [float(number) for number in box.split()]

        x, y, width, _ = view()
        shown.mouse.move(300, 400)
        shown.mouse.wheel(0, -400)
        assert view()[2] < width * 0.8
        shown.click("#fit")
        assert view()[:3] == pytest.approx([x, y, width])
        shown.mouse.move(300, 300)
        shown.mouse.down()
        shown.mouse.move(350, 360, steps=4)
        shown.mouse.up()
        assert view()[0] < x
        assert view()[1] < y
        paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(20, 24, 29)"


@browser.needs_browser
def test_no_name_gets_out_of_its_place(chromium: Browser, tmp_path: Path) -> None:
    rows = Rows()
    root = rows.node("SumBackward0")
    for name in [*HOSTILE, "</script><script>document.body.dataset.evil=1</script>", "<img src=x>"]:
        first = rows.node(name, root, module=name)
        rows.node("Next", first, module=name)
        rows.leaf(name, first)
    path = write(rows, tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        assert shown.evaluate("document.body.dataset.evil") is None
        assert shown.locator("img").count() == 0
        assert shown.locator("script").count() == 2
        shown.click("#fold-all")
        shown.fill("#search", "evil=1")
        assert (shown.text_content("#found") or "").startswith("1 of")


@browser.needs_browser
def test_a_large_graph_is_folded_to_be_readable(chromium: Browser, tmp_path: Path) -> None:
    path = write(blocks(100), tmp_path / "graph.html")
    with browser.opened(browser=chromium) as shown:
        go(shown, path)
        assert 8 <= boxes_shown(shown) <= 120


def test_a_trace_becomes_a_page_and_nothing_beside_it(tmp_path: Path) -> None:
    from tests.test_graph_view import record_two_layers

    record_two_layers(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        drawing = render_graph(trace, tmp_path / "graph.html", "html", view=GraphView())
    assert drawing.path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob("*.dot"))
