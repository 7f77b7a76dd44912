"""A picture of the page that ``agviz export --format html`` writes, in a real browser."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from agviz.demo.session import DemoSession
from agviz.export.draw import render_graph
from agviz.traces.reader import Trace


def render(out_dir: Path) -> list[Path]:
    """The page of the demo with its NaN, in the midst of it; nothing where there is no browser."""
    chromium = os.environ.get("AGVIZ_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        print("there is no Chromium: the picture of the page stays as it is")
        return []
    picture = out_dir / "page-demo-nan.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        trace, page_path = Path(folder, "demo.agviz"), Path(folder, "demo.html")
        DemoSession("char-lm", steps=1, plant_nan=True).record(trace)
        with Trace.open(trace) as opened:
            render_graph(opened, page_path, "html")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(page_path.as_uri())
        page.wait_for_selector("body[data-ready]")
        page.click("#fold-all")
        page.fill("#search", "DivBackward0")
        last = int(page.get_attribute("#slider", "max") or 1)
        page.fill("#slider", str(last * 52 // 100))
        page.screenshot(path=picture)
        browser.close()
    return [picture]
