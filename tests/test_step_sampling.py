"""A grid in pixels is named by its numbers, where the forward is recorded, and by the text else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from tests.gallery_frame import programs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gallery_frame import Program

NAMES = {"clouds_are_moved_by_pixels", "clouds_on_a_dark_sky"}
CHOSEN = [each for kind in ("step", "step_healthy") for each in programs(kind)]


@pytest.mark.parametrize(
    "program", [each for each in CHOSEN if each.name in NAMES], ids=lambda each: each.name
)
def test_the_numbers_of_a_recorded_grid_say_it(program: Program, tmp_path: Path) -> None:
    kept = program.record(tmp_path / "t.agviz", check_forward=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        (found,) = verdicts(trace)
    del kept
    assert found.is_found == (program.one("finding") is not None)
    if found.is_found:
        assert isinstance(found.basis, StepFinding)
        assert found.basis.kind == "grid in pixels"
        assert "those of pixels of [12, 20]" in found.paragraph
        assert found.frame is not None
        assert found.frame.line == program.cause
