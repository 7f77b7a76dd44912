"""A real browser, where this machine has one: Chromium without a window."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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
def running() -> Iterator[Browser]:
    """The browser; an event loop of playwright's runs as long as it does."""
    with sync_playwright() as playwright:
        # Root, as in containers, has no sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=find(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    width: int = 1400, height: int = 900, site: str = "file:", browser: Browser | None = None
) -> Iterator[Page]:
    """A page of it; errors of its scripts fail the test, and so does a request to other sites.

    Args:
        width: of the window, in pixels.
        height: of the window, in pixels.
        site: how every address begins that may be asked for.
        browser: that runs already, which the page shares with no other; a new one, if left out.
    """
    wrong: list[str] = []
    with running() if browser is None else nullcontext(browser) as one:
        context = one.new_context(viewport={"width": width, "height": height})
        try:
            page = context.new_page()
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
            context.close()
    assert wrong == []
