"""The debugged side of the channel: receives what a viewer wants, and has it done.

Each request is checked before anything is done. What concerns a stopped thread is done by that
thread. A viewer that sends what is no message, or takes nothing for some seconds, or is gone, is
let go of: the program runs on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger import messages as m
from agviz.debugger.protocol import (
    MOST_REPLY_BYTES,
    MOST_REQUEST_BYTES,
    Lines,
    ProtocolError,
    bound_sending,
    decode,
    encode,
    read,
)
from agviz.debugger.stops import NotStoppedError
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.debugger.debugger import Debugger

_LONGEST_ERROR: Final = 2_000


@dataclass(frozen=True)
class _Asked:
    """What every request has."""

    id: int
    do: str


class Control:
    """One viewer, from when it comes until it goes.

    Args:
        connection: to the viewer; it is closed at the end.
        debugger: which does what the viewer wants.
        hello: what is sent first.
    """

    def __init__(self, connection: socket.socket, debugger: Debugger, hello: m.Hello) -> None:
        connection.set_inheritable(False)
        bound_sending(connection)
        self._connection = connection
        self._sending = threading.Lock()
        self._debugger = debugger
        self._is_over = False
        self._lock = threading.Lock()
        _controls.add(self)
        self.say(hello)
        debugger.attach(self.say)

    def serve(self) -> None:
        """Do what is asked for, until the viewer goes."""
        try:
            for line in Lines(self._connection, MOST_REQUEST_BYTES):
                try:
                    message = decode(line)
                    asked = read(_Asked, message)
                except ProtocolError as error:
                    self._send({"re": None, "error": str(error)})
                    continue
                if asked.do == m.Detach.DO:
                    self._send({"re": asked.id, "ok": {}})
                    break
                self._do(asked, message)
        except AgvizError as error:
            self._send({"re": None, "error": str(error)})
        finally:
            self.end()

    def end(self) -> None:
        """Let go of the viewer, and let the program run on; a second call has no effect."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._debugger.detach()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def say(self, notice: m.Hello | m.Notice) -> None:
        """Send the viewer a notice of what happens; does not raise."""
        self._send(m.as_said(notice))

    def _send(self, message: Mapping[str, Any]) -> None:
        line = encode(message)
        if len(line) > MOST_REPLY_BYTES:
            line = encode({"re": message.get("re"), "error": "the answer is too long"})
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError:
            # The thread that serves finds out, too, and ends it.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _do(self, asked: _Asked, message: Mapping[str, Any]) -> None:
        try:
            kind = m.REQUESTS.get(asked.do)
            if kind is None:
                raise ProtocolError(f"{asked.do[:50]!r} is no command")
            request = read(kind, message)
            if isinstance(request, m.AtAStop):
                self._ask_thread(asked.id, request)
            else:
                self._answer(asked.id, request, _NOW[kind](self._debugger, request))
        except AgvizError as error:
            self._refuse(asked.id, error)

    def _ask_thread(self, number: int, request: m.AtAStop[Any]) -> None:
        stop = self._debugger.stop_of(request.thread)
        from agviz.debugger import at_a_stop

        def work() -> None:
            if stop.resumed:
                self._refuse(number, NotStoppedError("the thread runs on"))
                return
            try:
                self._answer(number, request, at_a_stop.carry_out(self._debugger, stop, request))
            except AgvizError as error:
                self._refuse(number, error)
            except Exception as error:  # noqa: BLE001 - whatever an exotic tensor raises
                self._refuse(number, AgvizError(f"{type(error).__name__}: {error}"))

        if not self._debugger.have_done(stop, work):
            raise NotStoppedError("the thread runs on")

    def _answer(self, number: int, request: m.Request[Any], reply: object) -> None:
        self._send({"re": number, "ok": request.write_reply(reply)})

    def _refuse(self, number: int, error: AgvizError) -> None:
        self._send({"re": number, "error": str(error)[:_LONGEST_ERROR]})

    def _forked(self) -> None:
        """In a child: the viewer is the parent's."""
        self._is_over = True
        self._connection.close()
        self._debugger.after_fork()


_NOW: Final[Mapping[type[m.Request[Any]], Callable[[Debugger, Any], object]]] = {
    m.TakeStep: lambda debugger, asked: debugger.step(asked.how, asked.thread),
    m.GoOn: lambda debugger, asked: debugger.go_on(asked.thread),
    m.GoUntil: lambda debugger, asked: debugger.until(asked.graph_task, asked.node, asked.thread),
    m.PauseProgram: lambda debugger, asked: debugger.pause(asked.thread),
    m.Interrupt: lambda debugger, _: debugger.interrupt(),
    m.SetStops: lambda debugger, asked: debugger.set_stops(**vars(asked)),
    m.AskWhere: lambda debugger, _: tuple(stop.report() for stop in debugger.stops()),
    m.AskBreakpoints: lambda debugger, _: tuple(debugger.breakpoints),
    m.AddBreakpoint: lambda debugger, asked: debugger.add_breakpoint(asked.breakpoint),
    m.EditBreakpoint: lambda debugger, asked: debugger.edit_breakpoint(asked.number, asked.changes),
    m.RemoveBreakpoint: lambda debugger, asked: debugger.remove_breakpoint(asked.number),
}
"""Done at once, on the thread that receives the viewer's requests."""

_controls: weakref.WeakSet[Control] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for control in list(_controls):
        control._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
