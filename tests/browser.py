"""A real browser, where this machine has one: Chromium without a window."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "chrome")


def find() -> str | None:
    """The program that ``AGVIZ_CHROMIUM`` names, or the first that is there; None: none is."""
    named = os.environ.get("AGVIZ_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(
    find() is None,
    reason="there is no Chromium: install chromium, or let AGVIZ_CHROMIUM name one",
)


@contextmanager
def opened(width: int = 1400, height: int = 900, site: str = "file:") -> Iterator[Page]:
    """A page of it; errors of its scripts fail the test, and so does a request to other sites."""
    wrong: list[str] = []
    with sync_playwright() as playwright:
        # Root, as in containers, has no sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=find(), args=arguments)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "console",
                lambda said: (
                    wrong.append(said.text) if said.type == "error" or site == "file:" else None
                ),
            )
            page.on(
                "request",
                lambda request: None if request.url.startswith(site) else wrong.append(request.url),
            )
            yield page
        finally:
            browser.close()
    assert wrong == []
