"""``agviz view --web`` in a real browser: keys typed into the page, and what the page then shows.

The page draws on a canvas. What is drawn is read from what the browser receives, and that it is
drawn is seen by the pixels.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from tests.browser import needs_browser, opened
from tests.tui_support import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page, WebSocket

SECONDS = 120.0
ESCAPES = re.compile(r"\x1b(\[[0-9;?<>=$]*[a-zA-Z]|\][^\x07]*\x07)")
PIXELS = """() => {
    const canvas = document.querySelector(".xterm-text-layer");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0;
    for (let place = 0; place < data.length; place += 4)
        sum = (31 * sum + data[place] + 3 * data[place + 1] + 7 * data[place + 2]) % 4294967291;
    return sum;
}"""

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    path = record(tmp_path / "training.agviz", nan_at=7)
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "agviz", "view", "--web", "--port", str(port), str(path)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://localhost:{port}"
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(url).close()
            break
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "nothing is served"
            time.sleep(0.1)
    yield url
    server.terminate()
    assert server.wait(SECONDS) == 0


class Watched:
    """What a page receives and draws."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._received = ""
        self._pixels = 0
        page.on("websocket", self._listen)

    def _listen(self, web_socket: WebSocket) -> None:
        web_socket.on("framereceived", self._receive)

    def _receive(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self._received += ESCAPES.sub("", frame.decode("utf-8", "replace"))

    def wait_for(self, text: str) -> None:
        """Until ``text`` was received since the last call, and the picture is another one."""
        deadline = time.monotonic() + SECONDS
        while text not in self._received or self._page.evaluate(PIXELS) == self._pixels:
            assert time.monotonic() < deadline, f"{text} never came:\n{self._received}"
            self._page.wait_for_timeout(50)
        self._page.wait_for_timeout(500)  # for whatever comes with it
        self._received, self._pixels = "", self._page.evaluate(PIXELS)


@contextlib.contextmanager
def viewed(site: str) -> Iterator[tuple[Page, Watched]]:
    """The trace of the site in a browser, once its nodes are seen."""
    with opened(1280, 800, f"{site}/") as page:
        watched = Watched(page)
        page.goto(site)
        page.wait_for_selector("body.-first-byte .xterm-text-layer")
        watched.wait_for("MseLossBackward0")
        yield page, watched


@needs_browser
def test_a_trace_is_viewed_in_a_browser(site: str) -> None:
    with viewed(site) as (page, watched):
        page.keyboard.press("n")
        page.keyboard.press("n")
        watched.wait_for("started #2 ReluBackward0")
        page.keyboard.press("x")
        watched.wait_for("NonFiniteChecked #8")
        page.keyboard.type("/layers.0")
        page.keyboard.press("Enter")
        watched.wait_for("1 of 5 matches")
        page.keyboard.press("F1")
        watched.wait_for("The lanes at the left are the edges")
        page.keyboard.press("Escape")
        page.set_viewport_size({"width": 700, "height": 500})
        watched.wait_for("1 Threads")
        page.mouse.click(30, 30)  # the tab that was there
        watched.wait_for("T2 device 1")
        page.keyboard.press("q")
        page.get_by_text("agviz has ended.").wait_for()


@needs_browser
def test_what_is_copied_is_in_the_browsers_clipboard(site: str) -> None:
    with viewed(site) as (page, watched):
        page.keyboard.press("n")
        watched.wait_for("started #1 MseLossBackward0")
        page.keyboard.press("y")
        watched.wait_for("Copied: ▶● 1 MseLossBackward0")
        page.context.grant_permissions(["clipboard-read"])  # only the test reads
        assert page.evaluate("navigator.clipboard.readText()") == "▶● 1 MseLossBackward0"
        page.keyboard.press("q")
        page.get_by_text("agviz has ended.").wait_for()


async def test_pages_of_other_sites_can_not_type(site: str) -> None:
    async with ClientSession() as session:
        for origin in ("http://elsewhere.example", "null"):
            with pytest.raises(WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{site}/ws", headers={"Origin": origin})
        ours = await session.ws_connect(f"{site}/ws", headers={"Origin": site})
        assert not ours.closed
        await ours.close()
