"""Let programs of the gallery hang, each in a process of its own, and kill them.

``python -m tests.hanging FOLDER NAME...`` leaves for each ``FOLDER/NAME.agviz`` and what the
recording has said in ``FOLDER/NAME.err``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.gallery_frame import Program, programs

TIMEOUT = 0.5
"""Seconds without an event after which a recording says where everything stands."""
_LONGEST = 120.0


def hang(program: Program, folder: Path) -> None:
    """Have a child run the program until its recording has said that it stands still."""
    said = folder / f"{program.name}.err"
    said.touch()
    child = os.fork()
    if not child:
        with said.open("w") as errors:
            os.dup2(errors.fileno(), 2)
        program.record(folder / f"{program.name}.agviz", timeout=TIMEOUT)
        os._exit(3)
    try:
        deadline = time.monotonic() + _LONGEST
        while " nodes done" not in said.read_text():
            if time.monotonic() > deadline or os.waitpid(child, os.WNOHANG)[0]:
                raise SystemExit(f"{program.name} does not hang: {said.read_text()}")
            time.sleep(0.02)
        time.sleep(0.1)  # until it has said all
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    for each in programs("hang"):
        if each.name in sys.argv[2:]:
            hang(each, Path(sys.argv[1]))
