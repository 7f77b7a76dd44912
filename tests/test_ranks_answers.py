"""What agviz says of programs of several ranks, against the cause that each of them states.

What it says of one of them, ``tests/test_ranks_reading.py`` asks in every run of the tests.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from agviz.cli.main import main
from tests.gallery_frame import Program, programs
from tests.json_documents import hold
from tests.rank_support import record

if TYPE_CHECKING:
    from pathlib import Path

KINDS: Final = {
    "slow node": {"straggler"},
    "slow data": {"straggler"},
    "nonfinite": {"nonfinite"},
    "unused parameter": {"unused"},
    "divergent forward": {"graphs"},
    "unequal collectives": {"collectives"},
    "collective order": {"collectives"},
    "data": {"data"},
    "left out": {"collectives"},
    "rates": {"rates"},
    "scales": {"scales"},
    "lost hooks": {"gradients"},
    "not reduced": {"gradients"},
    "summed": {"summed"},
    "raised": {"raised"},
    "killed": {"died"},
    "exited": {"exited"},
    "uneven inputs": {"left", "hang"},
    "stuck": {"hang"},
}
PROGRAMS: Final = [*programs("ranks"), *programs("ranks/unseen")]


def explained(
    program: Program, folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[dict[str, Any]]]:
    options = (program.one("options") or "").split()
    record(program.path, folder, int(program.one("ranks") or 0), *arguments, options=options)
    capsys.readouterr()
    code = main(["explain", "--json", str(folder)])
    verdicts: list[dict[str, Any]] = hold(capsys.readouterr().out, "explain-ranks")["verdicts"]
    return code, verdicts


def check_cause(program: Program, said: dict[str, Any]) -> None:
    """It names what the program states: rank, node, pass, operation, parameters, message, line."""
    text = json.dumps(said)
    if rank := program.one("rank"):
        assert int(rank) in said["ranks"], said
    for key in ("node", "hook", "operation", "parameter", "says"):
        assert all(stated in text for stated in program.all(key)), said
    if step := program.one("step"):
        assert re.search(rf"(pass|step) {step}\b", text), said
    if program.cause is not None:
        assert re.search(rf"{program.name}\.py:{program.cause}\b", text), said


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [one for one in PROGRAMS if one.one("kind") != "healthy"],
    ids=lambda program: program.name,
)
def test_the_cause_is_named(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = explained(program, tmp_path, capsys)
    fitting = [each for each in found if each["kind"] in KINDS[program.one("kind") or ""]]
    assert code == 1
    assert fitting, found
    check_cause(program, fitting[0])


UNSEEN: Final = {"killed", "lost_hooks", "reduced_in_half"}
"""What they rest on, hooks or what is in .grad after a reduction, is not seen while the native
engine is observed."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [one for one in PROGRAMS if one.one("kind") != "healthy" and one.name not in UNSEEN],
    ids=lambda program: program.name,
)
def test_the_cause_is_named_where_the_native_engine_is_observed(
    program: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGVIZ_ENGINE", "native")
    test_the_cause_is_named(program, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_of_a_healthy_run_nothing_is_said(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [] if program.one("kind") == "healthy" else ["healthy"]
    code, found = explained(program, tmp_path, capsys, *arguments)
    assert code == 0, found
    assert [each["outcome"] for each in found] == ["nothing unusual"]
