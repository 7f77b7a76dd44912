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
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.breakpoints import Breakpoint
from agviz.debugger.protocol import (
    MOST_REPLY_BYTES,
    MOST_REQUEST_BYTES,
    Lines,
    ProtocolError,
    bound_sending,
    decode,
    encode,
    field,
)
from agviz.debugger.stops import HOLDS, HOWS, NONFINITE, NotStoppedError
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.debugger.debugger import Debugger

Request = dict[str, Any]
_LONGEST_ERROR: Final = 2_000


class Control:
    """One viewer, from when it comes until it goes.

    Args:
        connection: to the viewer; it is closed at the end.
        debugger: which does what the viewer wants.
        hello: what is sent first: ``pid``, ``trace`` and so on.
    """

    def __init__(
        self, connection: socket.socket, debugger: Debugger, hello: Mapping[str, Any]
    ) -> None:
        connection.set_inheritable(False)
        bound_sending(connection)
        self._connection = connection
        self._sending = threading.Lock()
        self._debugger = debugger
        self._is_over = False
        self._lock = threading.Lock()
        _controls.add(self)
        self.say("hello", hello)
        debugger.attach(self.say)

    def serve(self) -> None:
        """Do what is asked for, until the viewer goes."""
        try:
            for line in Lines(self._connection, MOST_REQUEST_BYTES):
                try:
                    request = decode(line)
                    field(request, "id", int)
                    field(request, "do", str)
                except ProtocolError as error:
                    self._send({"re": None, "error": str(error)})
                    continue
                if request["do"] == "detach":
                    self._send({"re": request["id"], "ok": {}})
                    break
                self._do(request)
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

    def say(self, what: str, more: Mapping[str, Any]) -> None:
        """Send the viewer a notice of what happens; does not raise."""
        self._send({"say": what, **more})

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

    def _do(self, request: Request) -> None:
        debugger = self._debugger
        do = request["do"]
        try:
            if do in _COMMANDS:
                self._answer(request, _COMMANDS[do](debugger, request))
            elif do in _AT_A_STOP:
                self._ask_thread(debugger, request)
            else:
                raise ProtocolError(f"{do[:50]!r} is no command")
        except AgvizError as error:
            self._refuse(request, error)

    def _ask_thread(self, debugger: Debugger, request: Request) -> None:
        stop = debugger.stop_of(_thread(request))
        from agviz.debugger import at_a_stop

        command = getattr(at_a_stop, request["do"])

        def work() -> None:
            if stop.resumed:
                self._refuse(request, NotStoppedError("the thread runs on"))
                return
            try:
                self._answer(request, command(debugger, stop, request))
            except AgvizError as error:
                self._refuse(request, error)
            except Exception as error:  # noqa: BLE001 - whatever an exotic tensor raises
                self._refuse(request, AgvizError(f"{type(error).__name__}: {error}"))

        if not debugger.have_done(stop, work):
            raise NotStoppedError("the thread runs on")

    def _answer(self, request: Request, answer: Mapping[str, Any]) -> None:
        self._send({"re": request["id"], "ok": dict(answer)})

    def _refuse(self, request: Request, error: AgvizError) -> None:
        self._send({"re": request["id"], "error": str(error)[:_LONGEST_ERROR]})

    def _forked(self) -> None:
        """In a child: the viewer is the parent's."""
        self._is_over = True
        self._connection.close()
        self._debugger.after_fork()


def _thread(request: Request) -> int | None:
    return None if request.get("thread") is None else field(request, "thread", int)


def _one_of(request: Request, name: str, known: tuple[Any, ...]) -> Any:
    """Something out of a list, or None where it is not said."""
    value = request.get(name)
    if value is not None and value not in known:
        raise ProtocolError(f"{name!r} is one of {', '.join(map(str, known))}")
    return value


def _step(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    how = _one_of(request, "how", HOWS)
    debugger.step("node" if how is None else how, _thread(request))
    return {}


def _go_on(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    debugger.go_on(_thread(request))
    return {}


def _until(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    node = field(request, "node", int)
    debugger.until(field(request, "graph_task", int), node, _thread(request))
    return {}


def _pause(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    debugger.pause(_thread(request))
    return {}


def _interrupt(debugger: Debugger, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    debugger.interrupt()
    return {}


def _set_stops(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    return debugger.set_stops(
        first=_one_of(request, "first", (True, False)),
        exceptions=_one_of(request, "exceptions", (True, False)),
        nonfinite=_one_of(request, "nonfinite", NONFINITE),
        hold=_one_of(request, "hold", HOLDS),
    )


def _where(debugger: Debugger, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    return {"stops": [stop.to_json() for stop in debugger.stops()]}


def _breakpoints(debugger: Debugger, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    return {"breakpoints": [each.to_json() for each in debugger.breakpoints]}


def _add(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    wanted = Breakpoint.from_json(request.get("breakpoint"))
    return {"breakpoint": debugger.add_breakpoint(wanted).to_json()}


def _edit(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    changes = field(request, "changes", dict)
    made = debugger.edit_breakpoint(field(request, "number", int), changes)
    return {"breakpoint": made.to_json()}


def _remove(debugger: Debugger, request: Request) -> Mapping[str, Any]:
    return {"breakpoint": debugger.remove_breakpoint(field(request, "number", int)).to_json()}


_COMMANDS: Final[dict[str, Callable[[Debugger, Request], Mapping[str, Any]]]] = {
    "step": _step,
    "continue": _go_on,
    "until": _until,
    "pause": _pause,
    "interrupt": _interrupt,
    "set_stops": _set_stops,
    "where": _where,
    "breakpoints": _breakpoints,
    "add_breakpoint": _add,
    "edit_breakpoint": _edit,
    "remove_breakpoint": _remove,
}
"""Done at once, on the thread that receives the viewer's commands."""

_AT_A_STOP: Final = (
    *("tensors", "tensor", "change", "skip_hooks", "ready_nodes", "run_next", "shell", "complete"),
    *("undo", "back"),
)
"""Done by a stopped thread."""

_controls: weakref.WeakSet[Control] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for control in list(_controls):
        control._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
