"""The terminal UI on a program that runs: what ``agviz run --live`` and ``agviz attach`` do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.debugger.client import Client
from agviz.debugger.launch import Debuggee
from agviz.debugger.listening import connect
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS: Final = 0.1
FINE: Final = 0


def start(arguments: Sequence[str]) -> int:
    """Start a program and open the debugger on it.

    Args:
        arguments: of ``agviz run``, without ``--live``.

    Returns:
        The program's exit code.

    Raises:
        AgvizError: there is no terminal, or the program can't be started.
    """
    _check_terminal("--live")
    from agviz.tui.live_app import LiveApp

    with Debuggee(arguments) as debuggee:
        app = LiveApp(debuggee.client, debuggee, Path.cwd())
        app.run()
        if app.return_code:  # this process was asked to end
            return app.return_code
        debuggee.client.close()
        return _relay(debuggee)


def attach(target: str) -> int:
    """Open the debugger on a program that listens.

    Args:
        target: number of its process, or path of its socket.

    Raises:
        AgvizError: there is no terminal, or nobody listens.
    """
    _check_terminal("attach")
    from agviz.tui.live_app import LiveApp

    with Client(connect(target)) as client:
        app = LiveApp(client, None, Path.cwd())
        app.run()
        return app.return_code or FINE


def _check_terminal(what: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AgvizError(f"{what} needs a terminal, and this is none")


def _relay(debuggee: Debuggee) -> int:
    """Let a program run on without the debugger, and show what it prints, until it ends."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program gets it, too
    try:
        has_ended = False
        while not has_ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                debuggee.process.wait(_SECONDS)
                has_ended = True
            for output, descriptor in ((debuggee.stdout, 1), (debuggee.stderr, 2)):
                while found := output.read():
                    with contextlib.suppress(OSError):
                        os.write(descriptor, found)
    finally:
        signal.signal(signal.SIGINT, before)
    return debuggee.exit_code()
