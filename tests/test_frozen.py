"""Answers are written down so that nothing in them differs from one run to the next."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import frozen, frozen_programs

ROOT = Path(__file__).parents[1]
SOME = "^(programs/(hook_that_raises|maml)[.]health|gallery/nonfinite/where_sqrt[.]plain)$"


def written(folder: Path) -> None:
    """Have the answers about some programs written."""
    call = [sys.executable, "-m", "tests.frozen", str(folder), "--only", SOME]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_two_runs_are_equal_and_a_difference_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    written(one)
    written(other)
    assert frozen.compare(one, other) == 0
    assert capsys.readouterr().out == "3 programs in both, 0 differ\n"

    changed = other / "programs" / "hook_that_raises.health.json"
    found = json.loads(changed.read_text(encoding="utf-8"))
    assert found["ended"] == "ValueError: a hook raised"
    assert any(line.startswith("NodeFailed") for line in found["facts"]["events"])
    assert found["calls"]["explain FILE"]["exit code"] == 1
    found["facts"]["events"][3] += " more"
    changed.write_text(json.dumps(found), encoding="utf-8")
    (other / "gallery" / "nonfinite" / "where_sqrt.plain.json").unlink()
    assert frozen.compare(one, other) == 1
    said = capsys.readouterr().out
    assert f"only in {one}: 1: gallery/nonfinite/where_sqrt.plain\n" in said
    assert "=== programs/hook_that_raises.health\n  facts / events: 1 places differ\n" in said
    assert said.endswith("2 programs in both, 1 differ\n")


def test_there_are_enough_programs() -> None:
    names = [case.name for case in frozen_programs.cases()]
    assert len(set(names)) == len(names) >= 400
    assert {name.partition("/")[0] for name in names} == {
        "choices",
        "devices",
        "gallery",
        "programs",
    }
    assert len(frozen_programs.hanging()) >= 5
