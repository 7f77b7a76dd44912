"""Recordings that begin and end while threads train change nothing, and each can be read."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

PROGRAM = Path(__file__).with_name("threads_program.py")
STEPS = 25
SLOW = pytest.mark.slow


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(STEPS), *args],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )


@functools.cache
def _alone() -> str:
    return _run().stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"check_forward": True, "values": "full"}, id="full"),
        pytest.param({}, id="exact", marks=SLOW),
        pytest.param({"engine": "native"}, id="native", marks=SLOW),
    ],
)
def test_threads_train_as_without_recordings(tmp_path: Path, options: dict[str, Any]) -> None:
    done = _run(str(tmp_path), json.dumps(options))
    assert done.stdout == _alone()
    assert done.stdout.count("True ") == 8
    assert not done.stderr
    recordings = sorted(tmp_path.glob("*.agviz"))
    assert recordings
    for path in recordings:
        with Trace.open(path) as trace:
            assert all(found.outcome is not Outcome.FOUND for found in verdicts(trace)), path
