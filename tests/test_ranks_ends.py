"""Whose end it is: what a rank raises by itself, what another one's end gives, what is no fault."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.ranks.alone import alone
from agviz.ranks.answers.ends import End, ends
from tests import python_process

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = "[/x/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7"


class TrainingError(Exception):
    """What a program makes of what it caught."""


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (TimeoutError("storage-3: read timed out"), End.RAISED),
        (RuntimeError("no annotation by a peer"), End.RAISED),
        (ValueError("Socket 3 of the board has no image"), End.RAISED),
        (RuntimeError(CLOSED), End.OTHERS),
        (TrainingError(f"step 7 failed: {CLOSED}"), End.OTHERS),
        (KeyboardInterrupt(), End.CUT),
    ],
    ids=repr,
)
def test_whose_end_an_exception_tells_of(error: BaseException, end: End, tmp_path: Path) -> None:
    def program() -> None:
        torch.ones(1, requires_grad=True).sum().backward()
        raise error

    with pytest.raises(type(error)), agviz.trace(path=tmp_path / "t.agviz"):
        program()
    assert ends(alone(tmp_path / "t.agviz"))[0].end is end


@pytest.mark.parametrize(("inside", "end"), [(False, End.REGULAR), (True, End.CUT)])
def test_all_may_leave_by_exit_when_all_is_done(inside: bool, end: End, tmp_path: Path) -> None:
    hook = "x.register_hook(lambda grad: os._exit(0))\n" if inside else ""
    (tmp_path / "train.py").write_text(
        "import os\nimport torch\nx = torch.ones(1, requires_grad=True)\n"
        f"{hook}x.sum().backward()\nos._exit(0)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    python_process.run(command, cwd=tmp_path)
    assert ends(alone(tmp_path / "t.agviz"))[0].end is end
