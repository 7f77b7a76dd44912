"""One picture of the terminal UI: an application, keys, and what is then on the screen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.tui.app import BaseApp

DARK, LIGHT = "textual-dark", "textual-light"


class Shot(NamedTuple):
    """How large, in which colours, after which keys."""

    name: str
    columns: int
    rows: int
    theme: str
    keys: tuple[str, ...] = ()

    async def shoot(
        self, app: BaseApp, wait: Callable[[], bool], title: str, out_dir: Path
    ) -> Path:
        """Type the keys and write the picture, whose path is returned.

        Args:
            app: the application.
            wait: blocks until what was asked is read; True: there was nothing to wait for.
            title: of the picture.
            out_dir: where it is written.
        """
        async with app.run_test(size=(self.columns, self.rows)) as pilot:
            app.theme = self.theme
            for key in ("", *self.keys):
                if key:
                    await pilot.press(key)
                while True:
                    await pilot.pause()
                    if await asyncio.to_thread(wait):
                        break
            picture = out_dir / f"{self.name}.svg"
            picture.write_text(app.export_screenshot(title=title), encoding="utf-8")
        return picture
