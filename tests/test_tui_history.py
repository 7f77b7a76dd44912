"""What was typed at the prompt is there in the next session, and nothing that is there can hurt."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from agviz.tui.app import AgvizApp
from agviz.tui.history import History
from agviz.tui.prompt import Prompt
from tests.tui_support import press, record, settle, write

if TYPE_CHECKING:
    from pathlib import Path

KINDS = "/:!"


def test_entries_are_kept_by_kind_and_only_for_the_user(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agviz" / "history"
    first = History(KINDS, path)
    for kind, text in (("/", "relu"), (":", "next 3"), (":", "next 3"), ("!", "grads[0]")):
        first.add(kind, text)
    assert path.read_text() == "/relu\n:next 3\n!grads[0]\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = History(KINDS, path)
    assert [again.of(kind) for kind in KINDS] == [["relu"], ["next 3"], ["grads[0]"]]
    assert first.of(":") == ["next 3"]


def test_an_entry_of_several_lines_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "history"
    loop = "for i in range(3):\n    print(i)\n\n    .5"
    first = History(KINDS, path)
    for text in ("a = 1", loop, "b = 2", loop):
        first.add("!", text)
    assert History(KINDS, path).of("!") == ["a = 1", loop, "b = 2", loop]
    path.write_text(".orphan\n?unknown\n.of nobody\n!kept\n.\n.    \x1b[2J\n")
    assert History(KINDS, path).of("!") == ["kept\n\n    \ufffd[2J"]


def test_what_somebody_else_wrote_there_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"\xff\xfe\n?unknown\n:\x1b[2Jred\n:\n\n:ok\n")
    found = History(KINDS, path).of(":")
    assert found == ["\ufffd[2Jred", "ok"]
    path.write_text(":entry number one\n" * 100_000)
    assert len(History(KINDS, path).of(":")) == 1_000
    assert len(path.read_text().splitlines()) == 1_000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("sort", ["folder", "pipe", "unwritable"])
def test_where_there_is_no_file_it_is_forgotten(tmp_path: Path, sort: str) -> None:
    path = tmp_path / "agviz" / "history"
    if sort == "unwritable":
        (tmp_path / "agviz").write_text("a file")
    else:
        path.parent.mkdir()
        path.mkdir() if sort == "folder" else os.mkfifo(path)
    history = History(KINDS, path)
    history.add(":", "next")
    assert history.of(":") == ["next"]
    assert History(KINDS, path).of(":") == []


async def test_the_next_session_begins_with_what_was_typed(tmp_path: Path) -> None:
    path = record(tmp_path / "training.agviz")
    async with AgvizApp([path]).run_test(size=(80, 24)) as pilot:
        await press(pilot, "slash")
        await write(pilot, "relu")
        await press(pilot, "enter")
    async with AgvizApp([path]).run_test(size=(80, 24)) as pilot:
        session = await press(pilot, "slash", "up")
        assert session.query_one(Prompt).field.value == "relu"
        await press(pilot, "down")
        assert session.query_one(Prompt).field.value == ""
        await press(pilot, "escape")
        await settle(pilot)


@pytest.mark.parametrize("again", [True, False])
async def test_a_prompt_that_is_opened_again_at_once_stays(tmp_path: Path, again: bool) -> None:
    async with AgvizApp([record(tmp_path / "training.agviz")]).run_test(size=(80, 24)) as pilot:
        session = await press(pilot, "slash")
        prompt = session.query_one(Prompt)
        session.set_focus(None)
        if again:
            prompt.ask(prompt.kind)
        await settle(pilot)
        assert prompt.has_class("-open") == again
