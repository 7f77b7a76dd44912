"""What goes wrong in whole steps is named, with its line, and what only looks so is not."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.outcome import Outcome
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from tests import python_process
from tests.gallery_frame import Program, programs
from tests.spoken import check_length

if TYPE_CHECKING:
    from pathlib import Path

FAILING = programs("step")
HEALTHY = programs("step_healthy")
CALLED = '\n\nif __name__ == "__main__":\n    torch.manual_seed(0)\n    kept = program()\n'
KINDS = {
    "after the mean", "alike", "all with all", "always drops", "always skipped", "average", "axis",
    "bounds swapped", "buffer", "cleared", "clip undone", "clipped", "codes untrained",
    "collapses", "cosine logits",
    "data written", "decays", "determinant", "diverges", "drawn", "drawn apart", "drawn once",
    "falls", "far for near", "first batch", "first turn", "flagged", "follows another",
    "for the other", "frozen", "frozen by name", "frozen, moved", "given back", "gradient unused",
    "grid in pixels", "grows each step", "held instead", "held twice", "hidden write",
    "hook writes", "horizon", "inverted", "items written", "kept", "kept on class", "labels",
    "late binding", "leaps", "left behind", "left in groups", "loads itself",
    "log for scale", "lost sums",
    "made anew", "made in forward", "mask added", "mask inverted", "milestones", "mixed", "mode",
    "multiplied", "never follows", "never steps", "no causal mask", "no gradient", "no option",
    "no statistics", "no way back", "norm of parts", "not called", "not clipped", "not held",
    "not scaled", "not taken back", "nothing loaded", "one model", "one module", "only named",
    "option", "over heads", "overwritten", "penalty", "piecewise linear", "rate 0", "rate falls",
    "rate infinite", "rate squared", "rebound", "reordered", "replaced", "restores nothing",
    "returns forwards", "reversed twice", "row of zeros", "rows replaced", "same derivative",
    "saved on the way", "schedule anew", "schedule unused", "scored with gradient", "seeded again",
    "set back", "sign lost", "single values", "spoilt", "stepped again", "still", "still scaled",
    "stuck", "sum beside mean", "summed derivative", "swallowed", "swings", "teacher in training",
    "thrown away", "too slow", "two orders", "undetached", "unfrozen", "unread", "unregistered",
    "unused result", "values copied", "wasted term", "weighed", "weight 0",
    "whole batch", "with itself",
    "wrapped again", "wrong way", "zero scores",
}  # fmt: skip


def by_name(program: Program) -> str:
    return program.name


def test_there_are_enough() -> None:
    assert len(FAILING) >= 18
    assert len(HEALTHY) >= 12
    assert {program.one("finding") for program in FAILING} == KINDS
    assert all(program.cause is not None for program in FAILING)


@pytest.mark.slow_but_one_in(72)
@pytest.mark.parametrize("program", FAILING, ids=by_name)
def test_the_cause_is_named_with_its_line(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = program.record(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)
    del kept
    shown = program.one("outcome") == "can't tell"
    assert [verdict.outcome for verdict in found] == [Outcome.CANT_TELL if shown else Outcome.FOUND]
    (verdict,) = found
    assert isinstance(verdict.basis, StepFinding)
    assert verdict.basis.kind == program.one("finding")
    assert verdict.frame is not None
    assert (verdict.frame.file.endswith(program.path.name), verdict.frame.line) == (
        True,
        program.cause,
    )
    assert len(f"{verdict.heading} {verdict.paragraph}".split()) <= 120
    check_length(tmp_path / "t.agviz", capsys, "explain")
    assert verdict.paragraph.endswith(".")


@pytest.mark.slow_but_one_in(72)
@pytest.mark.parametrize("program", HEALTHY, ids=by_name)
def test_what_is_meant_is_left_alone(program: Program, tmp_path: Path) -> None:
    kept = program.record(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)
    del kept
    assert [verdict.outcome for verdict in found] == [Outcome.NOTHING_UNUSUAL]


def told(program: Program, folder: Path) -> tuple[int, str, str]:
    """Exit code and answer of ``agviz explain`` on a run of its own, and what the run said."""
    text = program.path.read_text(encoding="utf-8")
    (folder / "train.py").write_text(text + CALLED, encoding="utf-8")
    agviz = [sys.executable, "-m", "agviz"]
    ran = python_process.run([*agviz, "run", "-o", "t.agviz", "train.py"], cwd=folder, check=True)
    asked = python_process.run([*agviz, "explain", "--json", "t.agviz"], cwd=folder)
    return asked.returncode, asked.stdout, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", [*FAILING, *HEALTHY], ids=by_name)
def test_the_command_line_says_the_same(program: Program, tmp_path: Path) -> None:
    code, said, at_the_end = told(program, tmp_path)
    facts = json.loads(said)
    expected = program.one("finding")
    if expected is None:
        assert code == 0
        assert facts["failure"] is None
        return
    is_shown = program.one("outcome") == "can't tell"
    assert code == (2 if is_shown else 1)
    assert facts["failure"]["kind"] == f"step: {expected}"
    assert facts["failure"]["line"].startswith(f"train.py:{program.cause} in ")
    assert is_shown or re.search(r"✗|agviz explain", at_the_end)
