"""What agviz answers about small programs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.analysis.verdict import verdicts
from agviz.analysis.why import why

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.gradients import GradientRow
    from agviz.analysis.verdict import Verdict


def answered(path: Path, program: Callable[[], object], error: str = "") -> Verdict:
    """The first thing that is said of a program, which may raise ``error``."""
    torch.manual_seed(0)
    raising = pytest.raises(RuntimeError, match=error) if error else contextlib.nullcontext()
    with raising, agviz.trace(path=path, check_forward=True):
        program()
    with agviz.Trace.open(path) as trace:
        return verdicts(trace)[0]


def asked(path: Path, program: Callable[[], object]) -> dict[str, GradientRow]:
    """What is said of each parameter of a program."""
    torch.manual_seed(0)
    with agviz.trace(path=path, check_forward=True):
        program()
    with agviz.Trace.open(path) as trace:
        return {row.parameter: row for row in why(trace)}
