"""``agviz view``: which files it opens, and what it says where it can't."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agviz.cli.main import main
from agviz.tui import app, serving
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
    assert options["lists"] is True
    (note,) = options["notes"]
    assert "rank3.agviz is not a trace of agviz" in note


def test_a_file_is_opened_at_once(
    tmp_path: Path, opened: list[tuple[list[str], dict[str, Any]]]
) -> None:
    assert main(["view", str(record(tmp_path / "one.agviz"))]) == 0
    assert opened == [(["one.agviz"], {"lists": False, "notes": []})]


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
    monkeypatch.delitem(sys.modules, "agviz.tui.serving", raising=False)
    assert main(["view", "--web", str(record(tmp_path / "one.agviz"))]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "view --web needs textual-serve; install it with: pip install 'agviz[web]'" in told


def test_the_browser_is_served_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[list[str], int]] = []
    monkeypatch.setattr(serving, "serve", lambda *given: served.append(given))
    path = record(tmp_path / "with blanks.agviz")
    assert main(["view", "--web", "--port", "1234", str(path)]) == 0
    (((*_, view, file), port),) = served
    assert (view, file, port) == ("view", str(path), 1234)


def test_a_port_that_is_taken_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "one.agviz")
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", "--web", "--port", str(port), str(path)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"port {port} is in use already; name another one with --port" in told
