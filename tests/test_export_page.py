"""The page: driven in a real browser. It asks no network, and no name gets out of its place."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from agviz.export.dot import draw_picture
from agviz.export.draw import render, render_graph
from agviz.export.look import Look
from agviz.export.page import page
from agviz.export.palette import DARK
from agviz.graph.picture import compose
from agviz.graph.view import GraphView
from agviz.traces.reader import Trace
from tests import browser
from tests.graph_rows import Rows, block, blocks
from tests.test_export_dot import HOSTILE

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


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
    assert len(data["runs"]) == len(rows.nodes)
    assert [run[0] for run in data["runs"]] == list(range(1, len(rows.nodes) + 1))
    ids = set(re.findall(r'id="([^"]+)"', text.replace("&#45;", "-")))
    named = {f"frame-{number}" for number, _, _ in data["frames"]}
    named |= {link[0] for link in data["links"]} | {line["box"] for line in data["lines"]}
    assert named | {f"a_{line['id']}" for line in data["lines"]} <= ids


@browser.needs_browser
def test_the_slider_walks_through_the_execution(tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened() as shown:
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
        # In row two of three, two thirds along: device 0 runs what "lower" made.
        lanes = shown.locator("#lanes").bounding_box()
        assert lanes is not None
        shown.mouse.click(lanes["x"] + 120 + (lanes["width"] - 132) * 0.75, lanes["y"] + 27)
        assert "AddmmBackward0 starts" in (shown.text_content("#when") or "") or "17" in (
            shown.text_content("#when") or ""
        )
        assert slider.input_value() == "18"


@browser.needs_browser
def test_modules_fold_and_unfold_and_the_room_is_closed(tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened() as shown:
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


@browser.needs_browser
def test_searching_unfolds_and_shows_what_is_found(tmp_path: Path) -> None:
    path = write(two_devices(), tmp_path / "graph.html")
    with browser.opened() as shown:
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
def test_the_picture_is_moved_and_magnified(tmp_path: Path) -> None:
    path = write(blocks(4), tmp_path / "graph.html", look=Look(theme=DARK))
    with browser.opened() as shown:
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
def test_no_name_gets_out_of_its_place(tmp_path: Path) -> None:
    rows = Rows()
    root = rows.node("SumBackward0")
    for name in [*HOSTILE, "</script><script>document.body.dataset.evil=1</script>", "<img src=x>"]:
        first = rows.node(name, root, module=name)
        rows.node("Next", first, module=name)
        rows.leaf(name, first)
    path = write(rows, tmp_path / "graph.html")
    with browser.opened() as shown:
        go(shown, path)
        assert shown.evaluate("document.body.dataset.evil") is None
        assert shown.locator("img").count() == 0
        assert shown.locator("script").count() == 2
        shown.click("#fold-all")
        shown.fill("#search", "evil=1")
        assert (shown.text_content("#found") or "").startswith("1 of")


@browser.needs_browser
def test_a_large_graph_is_folded_to_be_readable(tmp_path: Path) -> None:
    path = write(blocks(100), tmp_path / "graph.html")
    with browser.opened() as shown:
        go(shown, path)
        assert 8 <= boxes_shown(shown) <= 120


def test_a_trace_becomes_a_page_and_nothing_beside_it(tmp_path: Path) -> None:
    from tests.test_graph_view import record_two_layers

    record_two_layers(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        drawing = render_graph(trace, tmp_path / "graph.html", "html", view=GraphView())
    assert drawing.path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob("*.dot"))
