"""Debugging this process: its recording, and the debugger that viewers attach to."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.debugger.control import Control
from agviz.debugger.debugger import Debugger
from agviz.debugger.listening import Listening
from agviz.debugger.messages import Hello, Said
from agviz.errors import AgvizError
from agviz.recording import active, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.recording import Recording


MOST_BACK_BYTES: Final = 2**30
"""Held by default for what :attr:`Debugging.back_bytes` is about."""


class Debugging:
    """What viewers attach to, while a recording goes on.

    Args:
        recording: of this process; its file has to be open.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.back_bytes: int | None = None
        """Bound of what is held so that passes can go back to an earlier node; None: they can't."""
        script = recording.script
        is_module = script.startswith("-m ")
        self._program = script if is_module else os.path.abspath(script)  # noqa: PTH100
        """Where the script lies, from wherever one looks."""
        self.debugger = Debugger(recording)
        self._controls: weakref.WeakSet[Control] = weakref.WeakSet()
        self._listening: Listening | None = None
        atexit.register(self._exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        _debugging.append(self)

    def install(self) -> None:
        """The recording has started: torch is there."""
        if self.back_bytes is not None:
            from agviz.debugger.going_back import keep

            keep(self.recording, self.recording.observers, self.back_bytes)
        self.debugger.install(self.recording.observers)

    def serve(self, descriptor: int) -> None:
        """Serve the viewer at the other end of an inherited socket, on a thread of its own.

        Raises:
            AgvizError: it is no socket.
        """
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError as error:
            raise AgvizError(f"file descriptor {descriptor} is no socket: {error}") from None
        control = self._control(connection)
        threading.Thread(target=control.serve, name="agviz-control", daemon=True).start()

    def listen(self) -> Listening:
        """Wait for viewers from now on.

        Raises:
            AgvizError: no socket can be made.
        """
        if self._listening is None:
            self._listening = Listening(lambda connection: self._control(connection).serve())
        return self._listening

    def listen_now_and_then(self) -> None:
        """The same, but without a thread: the recorder's own looks whether somebody has come.

        Where no socket can be made, nobody can come.
        """
        recorder = self.recording.recorder
        if self._listening is not None or recorder is None:
            return
        with contextlib.suppress(AgvizError):
            self._listening = Listening(
                lambda connection: self._control(connection).serve(), waits=False
            )
            recorder.file.now_and_then = self._listening.look

    def _control(self, connection: socket.socket) -> Control:
        control = Control(connection, self.debugger, self._hello())
        self._controls.add(control)
        return control

    def _hello(self) -> Hello:
        recording = self.recording
        return Hello(
            pid=os.getpid(),
            trace=Path(os.path.abspath(recording.path)),  # noqa: PTH100
            script=recording.script,
            program=self._program,
            lines=recording.provenance is not None,
        )

    def stop(self) -> None:
        """Let nobody attach any more."""
        self._forked()
        self._exit()

    def _exit(self) -> None:
        for control in list(self._controls):
            control.say(Said(what="ended"))
            control.end()
        if self._listening is not None:
            self._listening.stop()

    def _forked(self) -> None:
        """A child is not debugged; one that wants to be says so itself."""
        atexit.unregister(self._exit)
        if self.back_bytes is not None and "agviz.debugger.going_back" in sys.modules:
            from agviz.debugger.going_back import keep_no_more

            keep_no_more()
        if self in _debugging:
            _debugging.remove(self)


_debugging: list[Debugging] = []


def debugging(record: Callable[[], object]) -> Debugging:
    """What viewers of this process attach to; where there is nothing yet, it begins to listen.

    Args:
        record: begins a recording, where none goes on.

    Raises:
        AgvizError: the recording is not one that can be debugged, or no socket can be made.
    """
    if not _debugging:
        if active() is None:
            record()
        recording = active()
        if recording is None:
            raise AgvizError("nothing is recorded that could be debugged")
        recording.check_debuggable("on=")
        recording.open_now()
        made = Debugging(recording)
        made.install()
        made.listen()
        say(f"to debug this program, type in another terminal: agviz attach {os.getpid()}")
    return _debugging[-1]


def line_buffered() -> None:
    """Have what the program prints seen line by line, though it goes into a file."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
