"""What goes wrong is named, with its line and pattern; what is healthy stays silent."""

from __future__ import annotations

import json
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

import agviz
from agviz.analysis.explanation import explain
from agviz.analysis.why import why
from agviz.cli.main import main
from tests import python_process
from tests.gallery_frame import Program, programs
from tests.spoken import check_length

if TYPE_CHECKING:
    from pathlib import Path

NONFINITE = programs("nonfinite")
HEALTHY = programs("healthy")
BOTH_WAYS = [
    pytest.param(program, check_forward, marks=() if number % 3 == 0 else pytest.mark.slow)
    for number, program in enumerate(NONFINITE)
    for check_forward in (False, True)
    if check_forward or program.one("check_forward") is None
]


def named(case: object) -> str:
    return case.name if isinstance(case, Program) else f"check_forward={case}"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom:UserWarning")
@pytest.mark.parametrize(("program", "check_forward"), BOTH_WAYS, ids=named)
def test_what_went_wrong_is_named(
    program: Program, check_forward: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With check_forward and without, but where only the forward's own record can tell."""
    path = tmp_path / "t.agviz"
    program.record(path, check_forward=check_forward)
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
        assert found is not None
        assert not found.is_harmless
        assert str(found.pattern).lower() == str(program.one("pattern")).lower()
        assert found.node.short_name == program.one("node")
        if program.one("remedy") is not None:
            assert found.finding is not None
            assert str(program.one("remedy")) in found.finding.remedy
        assert str(found.evidence.kind) == (program.one("kind") or "node")
        if program.cause is not None:
            assert found.frame is not None
            assert found.frame.file.endswith(f"{program.kind}/{program.name}.py")
            assert found.frame.line == program.cause
            assert found.source.endswith("# cause")
        blame = found.evidence.blame
        if program.one("op") is not None:
            assert blame is not None
            assert blame.op.name == program.one("op")
        if program.one("parameter") is not None:
            assert program.one("parameter") in {
                found.node.parameter,
                *(row.parameter for row in found.evidence.saved.values()),
                blame and blame.parameter,
            }
        if program.one("others") is not None:
            assert len(found.spread.origins) - 1 == int(program.one("others") or 0)
        rows = {row.parameter: row for row in why(trace, graph_task=found.graph_task)}
        for name in set(found.reached) & set(rows):
            assert rows[name].gradient == "nonfinite", rows[name]
            assert rows[name].norm is None
            assert not rows[name].is_fine
        if set(found.reached) & set(rows):
            assert main(["why", str(path)]) == 1
        first = trace.first_nonfinite(found.origin.graph_task)
        if found.evidence.kind == "node":
            assert first is not None
            assert (first.node, first.graph_task) == (found.node.index, found.origin.graph_task)
    check_length(path, capsys, "explain", "why")


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("program", HEALTHY, ids=named)
@pytest.mark.parametrize("check_forward", [False, True])
def test_what_is_healthy_stays_silent(
    program: Program, check_forward: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    program.record(path, check_forward=check_forward)
    assert main(["explain", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("✓ ")
    with agviz.Trace.open(path) as trace:
        assert trace.graph_tasks
        found = explain(trace)
        expected = program.one("masked") or program.one("skipped")
        assert (None if found is None else found.node.short_name) == expected


def test_the_gallery_is_large_and_says_what_it_expects() -> None:
    assert len(NONFINITE) >= 40
    assert len(HEALTHY) >= 20
    for program in NONFINITE:
        assert program.one("pattern"), program.name
        assert program.one("node"), program.name
        is_of_a_leaf = program.one("node") == "AccumulateGrad"
        assert program.cause is not None or is_of_a_leaf, program.name
    known = {key for program in NONFINITE for key, _ in program.expected}
    assert known <= {
        "pattern",
        "node",
        "kind",
        "op",
        "parameter",
        "others",
        "check_forward",
        "remedy",
    }


def test_a_program_of_the_gallery_as_a_script(tmp_path: Path) -> None:
    """As users have it: recorded by ``agviz run``, asked on the command line."""
    program = next(one for one in NONFINITE if one.name == "nan_in_the_batch")
    out = tmp_path / "t.agviz"
    command = [sys.executable, "-m", "agviz"]
    ran = python_process.run(
        [*command, "run", "--check-forward", "-o", str(out), str(program.path)], check=True
    )
    (said,) = (line for line in ran.stderr.splitlines() if line.startswith("agviz: recorded"))
    assert "NaN in the data, in torch.nn.functional.linear" in said
    assert f"nan_in_the_batch.py:{program.cause} in forward" in said
    assert said.endswith(f"to read why: agviz explain {out}")
    asked = python_process.run([*command, "explain", str(out), "--json"])
    assert asked.returncode == 1
    answer = json.loads(asked.stdout)["explanation"]
    assert answer["pattern"] == program.one("pattern")
    assert answer["line_number"] == program.cause
    assert answer["forward"]["first"]["function"] == program.one("op")


def test_nothing_of_a_program_leaks_into_the_next() -> None:
    """The programs are run in one process: none of them leaves a mode or a hook behind."""
    program = HEALTHY[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert program.run() is None
