"""Garbage is collected in the pauses of whoever types: Python's own callbacks say when."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from agviz.tui import collector
from agviz.tui.app import AgvizApp
from agviz.tui.collector import PauseCollector
from tests.tui_support import press, record, settle, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """The generations that were collected, one after the other."""
    threshold = gc.get_threshold()
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.unfreeze()
    gc.set_threshold(*threshold)


async def test_nothing_is_collected_between_keys_and_what_is_young_in_the_pause_behind_them(
    tmp_path: Path, collected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_PAUSE_S", 600)
    monkeypatch.setattr(collector, "_WORTH", 1)  # a slow machine may have made little until then
    app = AgvizApp([record(tmp_path / "t.agviz")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.collector = PauseCollector()
        gc.set_threshold(0)  # only whoever asks for it collects
        collected.clear()
        await press(pilot, "n")
        assert not collected
        monkeypatch.setattr(collector, "_PAUSE_S", 0.01)
        await press(pilot, "n")
        await until(pilot, lambda: bool(collected))
        assert set(collected) == {1}


async def test_everything_is_gone_through_in_a_longer_pause(
    tmp_path: Path, collected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_PAUSE_S", 0.01)
    monkeypatch.setattr(collector, "_LONG_PAUSE_S", 0.01)
    monkeypatch.setattr(collector, "_YOUNG", 1)
    monkeypatch.setattr(collector, "_WORTH", 1)
    app = AgvizApp([record(tmp_path / "t.agviz")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.collector = PauseCollector()
        gc.set_threshold(0)
        collected.clear()
        await press(pilot, "n", "s")
        await until(pilot, lambda: 2 in collected)
        assert collected.index(1) < collected.index(2)
