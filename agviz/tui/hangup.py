"""The end of a terminal that is closed while an application is on it.

Textual writes on a thread of its own, which ends with the terminal; who has something to be written
then waits for ever. So does the loop that would be notified of SIGHUP.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CODE: Final = 129
"""As a shell has it for SIGHUP."""
_SECONDS_TO_LEAVE: Final = 3.0


def leave_with_the_terminal(clean_up: Callable[[], None]) -> None:
    """End this process soon after its terminal is closed, unless it ends by itself.

    Args:
        clean_up: called before, on a thread of its own.
    """
    terminal = sys.__stdout__  # the application has another sys.stdout
    if terminal is None or not hasattr(select, "poll") or not terminal.isatty():
        return
    threading.Thread(
        target=_wait, args=(terminal.fileno(), clean_up), name="agviz-hangup", daemon=True
    ).start()


def _wait(descriptor: int, clean_up: Callable[[], None]) -> None:
    closing = select.poll()
    closing.register(descriptor, 0)  # only what is reported unasked: that it is closed
    with contextlib.suppress(OSError):
        while not closing.poll():
            pass
    time.sleep(_SECONDS_TO_LEAVE)
    with contextlib.suppress(Exception):
        clean_up()
    os._exit(EXIT_CODE)
