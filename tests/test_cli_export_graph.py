"""``agviz export``: the views of a graph and their words on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main
from agviz.traces.reader import Trace
from tests import svg_reader
from tests.test_graph_view import record_networks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two layers, and three."""
    return record_networks(tmp_path, 2, 3)


def texts(path: Path) -> str:
    return " ".join(svg_reader.texts(path.read_bytes()))


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--around", "TanhBackward0", "--depth", "1"], "1 edge around"),
        (["--around", "2", "--depth", "0"], "0 edges around 2"),
        (["--to", "0.weight"], "what leads to 0.weight"),
        (["--saved"], "▣ saved"),
        (["--by", "device"], "caller"),
        (["--by", "execution"], "caller"),
        (["--fold", "chains", "--budget", "3"], "folded:"),
        (["--theme", "dark"], "caller"),
    ],
)
def test_a_view_is_drawn(traces: list[Path], options: list[str], said: str) -> None:
    picture = traces[0].with_suffix(".svg")
    assert main(["export", str(traces[0]), "--format", "svg", *options]) == 0
    assert said in texts(picture)


def test_a_moment_is_drawn(traces: list[Path]) -> None:
    with Trace.open(traces[0]) as trace:
        seq = trace.graph_tasks[0].begin_seq + 20
    assert main(["export", str(traces[0]), "--format", "svg", "--at", str(seq)]) == 0
    assert f"right after event {seq}" in texts(traces[0].with_suffix(".svg"))


def test_another_trace_is_laid_over_it(
    traces: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = map(str, traces)
    assert main(["export", small, "--format", "svg", "--diff", large, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "svg"
    assert "compared with 1.agviz (B)" in texts(traces[0].with_suffix(".svg"))
    assert main(["export", small, "--format", "dot", "--diff", large, "-o", large]) == 2
    assert "is the trace itself" in capsys.readouterr().err


def test_links_open_files_where_the_program_ran(traces: list[Path]) -> None:
    command = ["export", str(traces[0]), "--format", "svg", "--links", "vscode"]
    assert main([*command, "--source-root", "/somewhere"]) == 0
    assert b'xlink:href="vscode://file/somewhere/' in traces[0].with_suffix(".svg").read_bytes()


def test_a_page_goes_to_stdout_too(
    traces: list[Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", str(traces[0]), "--format", "html", "-o", "-"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "json", "--by", "device"], "--by is for graphs: svg, dot, png, pdf, html"),
        (["--format", "svg", "--around", "nobody"], "This graph holds no node 'nobody'"),
        (["--format", "svg", "--to", "nothing"], "No gradient comes to 'nothing'"),
        (["--format", "svg", "--budget", "0"], "0 nodes can't be drawn"),
        (["--format", "svg", "--diff", "missing.agviz"], "missing.agviz"),
    ],
)
def test_what_makes_no_sense_ends_with_2(
    traces: list[Path], options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(traces[0]), *options]) == 2
    assert said in capsys.readouterr().err
