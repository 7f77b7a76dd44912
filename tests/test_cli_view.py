"""``agviz view``: which files it opens, and what it says where it can't."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from agviz.cli.main import main
from agviz.tui import app
from tests.tui_support import record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """What the terminal UI was called with."""
    calls: list[tuple[list[str], dict[str, Any]]] = []

    def run(paths: Sequence[Path], **options: Any) -> int:
        calls.append(([path.name for path in paths], options))
        return 0

    monkeypatch.setattr(app, "run", run)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    return calls


def test_a_folder_is_opened_rank_by_rank_without_what_is_no_trace(
    tmp_path: Path, opened: list[tuple[list[str], dict[str, Any]]]
) -> None:
    for rank in (10, 9, 0):
        record(tmp_path / f"rank{rank}.agviz")
    (tmp_path / "rank3.agviz").write_text("no trace")
    (tmp_path / "notes.txt").write_text("no trace either")
    assert main(["view", str(tmp_path)]) == 0
    ((names, options),) = opened
    assert names == ["rank0.agviz", "rank9.agviz", "rank10.agviz"]
    assert options["picks"] is True
    (note,) = options["notes"]
    assert "rank3.agviz is not a trace of agviz" in note


def test_a_file_is_opened_at_once(
    tmp_path: Path, opened: list[tuple[list[str], dict[str, Any]]]
) -> None:
    assert main(["view", str(record(tmp_path / "one.agviz"))]) == 0
    assert opened == [(["one.agviz"], {"picks": False, "notes": []})]


def test_a_folder_without_traces_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "holds no trace that can be opened; its name would end in .agviz" in told


def test_the_browser_needs_an_extra_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert main(["view", "--web", str(record(tmp_path / "one.agviz"))]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "view --web needs textual-serve; install it with: pip install 'agviz[web]'" in told


def test_the_browser_is_served_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[str, dict[str, Any]]] = []

    class Server:
        def __init__(self, command: str, **options: Any) -> None:
            served.append((command, options))

        def serve(self) -> None:
            served.append(("served", {}))

    module = type(sys)("textual_serve.server")
    monkeypatch.setattr(module, "Server", Server, raising=False)
    monkeypatch.setitem(sys.modules, "textual_serve", type(sys)("textual_serve"))
    monkeypatch.setitem(sys.modules, "textual_serve.server", module)
    path = record(tmp_path / "with blanks.agviz")
    assert main(["view", "--web", "--port", "1234", str(path)]) == 0
    (command, options), (done, _) = served
    assert command.endswith(f"-m agviz view '{path}'")
    assert (options["host"], options["port"], done) == ("localhost", 1234, "served")
