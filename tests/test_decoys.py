"""Programs of the gallery in which what a rule looks at is there, but the cause is another one."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from gallery.index import load
from gallery.judge import Answer, judge
from tests.answers_support import answered, asked
from tests.gallery_frame import Program, programs

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = {program.name: program for program in load()}


@pytest.mark.parametrize(
    "name",
    [
        "accumulated_and_divided_by_no_tokens",
        "factor_of_warmup",
        "kernel_attention_too_narrow",
        "plateau_mode_max",
        "static_scale_and_bad_log",
        "statistics_averaged_by_hand",
        "weights_renormalised",
    ],
)
def test_the_cause_is_named_and_not_what_looks_like_it(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    alive: list[object] = []  # what is gone at the end is not looked at
    found = answered(tmp_path / "t.agviz", lambda: alive.append(runpy.run_path(str(program.path))))
    text = f"{found.heading} {found.paragraph} train.py:{found.frame.line if found.frame else 0}"
    told = f"{text} {found.paragraph.replace(program.path.name, 'train.py')}"
    assert judge(program, Answer(told)) == "named", told


@pytest.mark.parametrize(
    "name", ["clipping_from_a_step_on", "fisher_information", "test_time_adaptation"]
)
def test_nothing_is_said_of_what_is_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS[name]
    found = answered(tmp_path / "t.agviz", lambda: runpy.run_path(str(program.path)))
    assert found.outcome is Outcome.NOTHING_UNUSUAL, found.paragraph


@pytest.mark.parametrize("program", programs("left_alone"), ids=lambda program: program.name)
def test_what_is_seen_with_the_forward_is_left_alone(program: Program, tmp_path: Path) -> None:
    kept = program.record(tmp_path / "t.agviz", check_forward=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    del kept
    assert found.outcome is Outcome.NOTHING_UNUSUAL, found.heading


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("codebook_without_its_loss", "codebook.weight"), ("low_rank_both_zero", "down")],
)
def test_a_remedy_is_not_promised_where_it_would_not_help(
    name: str, parameter: str, tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    row = asked(tmp_path / "t.agviz", lambda: runpy.run_path(str(program.path)))[parameter]
    told = row.sentence.replace(program.path.name, "train.py")
    assert judge(program, Answer(told)) == "named", told
