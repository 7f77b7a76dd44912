"""Programs of the gallery as processes, each in a folder of its own, under a time limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gallery.index import Program

SCRIPT: Final = "train.py"
"""What every program is called where it runs, so that no name gives away its cause."""
LIMIT: Final = 90.0
"""Seconds after which a program that should end is killed."""
PATIENCE: Final = 20.0
"""Seconds after which a program that should hang counts as hanging."""


_TEARDOWN: Final = "terminate called without an active exception"
"""What gloo aborts with now and then when its processes end, after all work is done."""


class Ended(NamedTuple):
    """What a process left."""

    code: int | None
    """Its exit code, None where it was killed at the limit."""
    out: str
    err: str

    @property
    def is_well(self) -> bool:
        """Whether it came to its end without an exception."""
        return self.code == 0 or (self.code is not None and _TEARDOWN in self.err)


def alone(program: Program) -> Ended:
    """Run ``program`` as it is, without any tool."""
    with folder(program) as at:
        return run([sys.executable, SCRIPT], at, limit(program))


def shows(program: Program, ended: Ended) -> bool:
    """Whether ``ended``, of ``program`` without any tool, holds the symptom of the index."""
    if program.manner == "hangs":
        return ended.code is None and program.sign.search(ended.out) is not None
    if program.manner == "raises":
        return ended.code not in {None, 0} and program.sign.search(ended.err) is not None
    return ended.is_well and program.sign.search(ended.out) is not None


def limit(program: Program) -> float:
    """Seconds after which ``program`` is killed."""
    return PATIENCE if program.manner == "hangs" else LIMIT


@contextlib.contextmanager
def folder(program: Program, first: str = "") -> Iterator[Path]:
    """A folder with ``program`` as :data:`SCRIPT`, removed afterwards.

    Args:
        program: what is run.
        first: statements to put before its first line, on the same line; they end with ``;``.
    """
    at = Path(tempfile.mkdtemp(prefix="gallery-"))
    try:
        (at / SCRIPT).write_text(first + program.text(), encoding="utf-8")
        yield at
    finally:
        shutil.rmtree(at, ignore_errors=True)


def run(
    command: list[str], at: Path, limit: float, meanwhile: Callable[[], None] | None = None
) -> Ended:
    """Run ``command`` in the folder ``at``; kill it and what it started after ``limit`` seconds.

    Args:
        command: the program and its arguments.
        at: the working directory.
        limit: seconds.
        meanwhile: called at the limit, before the processes are killed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    environment.pop("PYTHONPATH", None)
    with (at / "out").open("w+b") as out, (at / "err").open("w+b") as err:
        process = subprocess.Popen(
            command, cwd=at, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        code: int | None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            if meanwhile is not None:
                meanwhile()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ended(code, *texts)
