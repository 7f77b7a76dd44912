"""``render`` and ``pipe`` of what ``agviz.draw`` gives; the graphviz package is their oracle."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

import graphviz
import pytest
import torch

import agviz
from agviz.errors import DrawingError
from agviz.export import renderers
from tests import graphviz_support as machine
from tests import svg_reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.export.digraph import Picture

SLOW = "#!/bin/sh\necho $$ > {folder}/pid\nexec sleep 600\n"


def picture() -> Picture:
    return agviz.draw(torch.nn.Linear(2, 3)(torch.ones(1, 2)).sum())


def outcome(folder: Path, call: Callable[[], object]) -> tuple[object, dict[str, bytes]]:
    """What a call gives or raises, and the files there are afterwards with how they begin."""
    try:
        gave: object = call()
    except Exception as error:  # noqa: BLE001
        gave = type(error)
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.*"))}
    return gave, {name: path.read_bytes()[:4] for name, path in files.items()}


@pytest.mark.parametrize("format_", ["svg", "png", "pdf", "ps", "json"])
def test_it_is_drawn_where_there_is_no_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    machine.without_dot(monkeypatch)
    monkeypatch.chdir(tmp_path)
    drawn = picture()
    assert drawn.render("loss", format=format_) == f"loss.{format_}"
    assert (tmp_path / "loss").read_text(encoding="utf-8") == drawn.source
    content = (tmp_path / f"loss.{format_}").read_bytes()
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "ps": b"%!PS", "json": b"{"}
    assert content.startswith(begins[format_])
    assert drawn.pipe(format=format_)[:4] == content[:4]


def test_text_is_asked_for_with_an_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.without_dot(monkeypatch)
    drawn = picture()
    said = drawn.pipe("svg", encoding="utf-8")
    assert said == drawn.svg() == drawn.pipe("svg").decode("utf-8")
    assert "θ" in " ".join(svg_reader.texts(str(said).encode())) or "leaf tensor" in str(said)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    "given",
    [
        {"filename": "a.gv"},
        {"filename": "a", "directory": "sub/deep", "format": "png"},
        {"filename": "a.gv", "format": "svg", "cleanup": True},
        {"outfile": "b.svg"},
        {"outfile": "b.png", "cleanup": True},
        {"outfile": "b.svg", "directory": "sub"},
        {"outfile": "b.svg", "filename": "other.gv"},
        {"outfile": "noend"},
        {"outfile": "there.svg", "raise_if_result_exists": True},
        {"outfile": "there.svg"},
        {"outfile": "x.gv", "filename": "x.gv"},
        {"filename": "a.gv", "quiet": True, "format": "svg"},
    ],
    ids=str,
)
def test_the_files_are_those_that_graphviz_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    (tmp_path / "bin").mkdir()
    machine.put_able_dot(tmp_path / "bin", monkeypatch)
    source = picture()
    found = []
    for name, made in (("ours", source), ("theirs", graphviz.Source(source.source))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "there.svg").write_text("kept?")
        monkeypatch.chdir(folder)
        found.append(outcome(folder, functools.partial(made.render, **given)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "neato"}, "agviz lays graphs out with dot, .*: engine='neato' is not for it"),
        ({"renderer": "cairo"}, "renderer='cairo' is not for it, but for graphviz.Source"),
        ({"format": "webp"}, 'could not draw the graph as webp: Error: Format: "webp" not rec'),
        ({"format": "xyz"}, 'could not draw the graph as xyz: Error: Format: "xyz"'),
    ],
)
def test_what_it_can_not_do_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str
) -> None:
    machine.without_dot(monkeypatch)
    with pytest.raises(DrawingError, match=said):
        picture().pipe(**given)
    with pytest.raises(DrawingError, match=said):
        picture().render(tmp_path / "loss", **given)


def test_without_any_graphviz_the_dot_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.without_dot(monkeypatch)
    machine.without_pygraphviz(monkeypatch)
    with pytest.raises(DrawingError, match="There is no Graphviz: install pygraphviz"):
        picture().render(tmp_path / "loss", format="svg")
    assert (tmp_path / "loss").read_text(encoding="utf-8").startswith("digraph")
    assert picture()._repr_svg_() is None


def test_it_is_killed_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put_able_dot(tmp_path, monkeypatch, SLOW)
    machine.without_pygraphviz(monkeypatch)
    drawn = picture()
    renderers.choose()
    monkeypatch.setattr(renderers, "TIMEOUT_S", 0.5)
    began = time.monotonic()
    with pytest.raises(DrawingError, match=r"did not finish within 0\.5 s"):
        drawn.pipe("svg")
    assert time.monotonic() - began < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_it_is_opened_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, bool]] = []
    monkeypatch.setattr(graphviz, "view", lambda path, quiet: opened.append((str(path), quiet)))
    path = picture().render(tmp_path / "loss", format="svg", view=True)
    picture().render(tmp_path / "loss", format="svg", quiet_view=True)
    assert opened == [(path, False), (path, True)]
