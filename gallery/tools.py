"""The tools that are held against the gallery, each as a function from a program to its answer."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gallery.index import HERE
from gallery.judge import Answer, lines_in
from gallery.running import LIMIT, SCRIPT, folder, limit, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gallery.index import Program

_ASKED: Final = {
    "non-finite": ("explain",),
    "none": ("explain", "why"),
    "zero-or-tiny": ("explain", "why"),
    "version": ("explain",),
    "second-time": ("explain",),
    "hang": ("explain",),
    "wrong-gradient": ("explain", "why"),
    "whole-step": ("explain", "why", "summary"),
    "growing": ("explain", "summary"),
    "ranks": ("explain", "why"),
    "healthy": ("explain", "why"),
}
"""The verbs of agviz that a user with the symptom of a kind asks."""
_CHECKED: Final = {"wrong-gradient", "healthy"}
"""The kinds whose programs are run under ``agviz check`` as well."""

_PLACE: Final = re.compile(rf"  {re.escape(SCRIPT)}:(\d+) in ")
_FINDING: Final = re.compile(r"^✗.*", re.DOTALL | re.MULTILINE)
"""Tables of ``agviz summary`` mark rows with ✗ as well."""
_FORWARD: Final = re.compile(
    r"Error detected in .*?Traceback of forward call that caused the error:(.*?)\(Triggered",
    re.DOTALL,
)


def agviz(program: Program) -> Answer:
    """What agviz's verbs find in a recording with ``--check-forward``, or ``agviz check``."""
    with folder(program) as at:
        command = [sys.executable, "-m", "agviz", "run", "--check-forward", "-o", "t.agviz", SCRIPT]
        said: list[str] = []

        def ask() -> None:
            files = [file for file in at.glob("*.agviz") if ".rank" in file.name]
            where = "." if files else "t.agviz"
            said.extend(_found(at, verb, where) for verb in _ASKED[program.kind])

        ended = run(command, at, limit(program), ask)
        if ended.code is not None:
            ask()
        if program.kind in _CHECKED:
            said.append(_found(at, "check", SCRIPT))
    parts = tuple(filter(None, said))
    text = "\n".join(parts)
    claims = (found for row in text.splitlines() if (found := _PLACE.match(row)) is not None)
    return Answer(text, tuple(int(claim[1]) for claim in claims), parts=parts)


def _found(at: Path, verb: str, where: str) -> str:
    """What a verb of agviz says from the first line with ✗ on; empty where it found nothing."""
    asked = subprocess.run(
        [sys.executable, "-m", "agviz", verb, where],
        cwd=at,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    found = _FINDING.search(asked.stdout)
    return "" if found is None else found[0]


def anomaly(program: Program) -> Answer:
    """What torch says of the program in anomaly mode, by an exception or a warning."""
    return _under(program, "import torch; torch.autograd.set_detect_anomaly(True); ")


def debugmode(program: Program) -> Answer:
    """What torch says of the program under ``DebugMode``, by an exception or a warning."""
    if find_spec("torch.utils._debug_mode") is None:
        return Answer("", cant="this torch has no torch.utils._debug_mode")
    return _under(
        program, "import torch.utils._debug_mode as _mode; _mode.DebugMode().__enter__(); "
    )


def _under(program: Program, first: str) -> Answer:
    with folder(program, first) as at:
        ended = run([sys.executable, SCRIPT], at, limit(program))
    text = ended.err
    forward = _FORWARD.search(text)
    if program.is_healthy and ended.is_well and forward is None:
        return Answer("")
    if forward is None or "returned nan" not in text:
        return Answer(text)  # of other errors torch says that the cause may lie anywhere later
    return Answer(text, lines_in(forward[1])[-1:])


def torchlens(program: Program) -> Answer:
    """What TorchLens' NaN report finds in the modules that the program calls."""
    if find_spec("torchlens") is None:
        return Answer("", cant="not installed; pip install torchlens leaves torch as it is")
    if program.kind not in {"non-finite", "healthy"}:
        return Answer(
            "", cant="it is handed a module and its input, and of these can only be asked for NaN"
        )
    with folder(program, "import lens; ") as at:
        shutil.copy(HERE / "lens.py", at)
        ended = run([sys.executable, SCRIPT], at, limit(program))
    text = "\n".join(row for row in ended.err.splitlines() if row.startswith("TorchLens: "))
    return Answer(text, lines_in(text))


TOOLS: Final[dict[str, Callable[[Program], Answer]]] = {
    "agviz": agviz,
    "anomaly": anomaly,
    "debugmode": debugmode,
    "torchlens": torchlens,
}
