"""Running a program for the sake of a report that is printed after it has ended."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from agviz.cli.program import Program


def stdout_for_report(*, as_json: bool) -> Any:
    """Where the report goes; of JSON, stdout, and what the program prints goes to stderr."""
    if not as_json:
        return sys.stdout
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return report


def run_to_the_end(program: Program, process: int, between: ModuleType) -> bool:
    """Run a program, its threads included; return whether it failed.

    Args:
        program: it.
        process: the number of this process: in a child of the program, what ends it passes through.
        between: a package of ours that is between torch and its engine; its frames are left
            out of tracebacks.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    failed = False
    try:
        program.run()
    except SystemExit as leave:
        if os.getpid() != process:
            raise
        failed = leave.code not in {None, 0}
        if failed and not isinstance(leave.code, int):
            print(leave.code, file=sys.stderr)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if os.getpid() != process:
            raise
        failed = True
        _leave_out(str(Path(cast("str", between.__file__)).parent) + os.sep, error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
    # What Python does next anyway, executors' threads included; multiprocessing calls it, too.
    cast("Any", threading)._shutdown()
    return failed


def _leave_out(folder: str, traceback: TracebackType | None) -> None:
    """Take the frames of files in ``folder`` out of a traceback."""
    kept: TracebackType | None = None
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(folder):
            if kept is not None:
                kept.tb_next = traceback
            kept = traceback
        traceback = traceback.tb_next
    if kept is not None:
        kept.tb_next = None
