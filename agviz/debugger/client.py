"""The viewer's side of the channel: sends requests, and receives notices. Needs no torch.

What comes from the debugged program is believed in nothing but its form: it is checked, and texts
lose their control characters.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from agviz.debugger import messages as m
from agviz.debugger.messages import Hello, Logged, Notice, Said, Stopped
from agviz.debugger.protocol import (
    MOST_REPLY_BYTES,
    Lines,
    ProtocolError,
    bound_sending,
    decode,
    encode,
    read,
    write,
)
from agviz.errors import AgvizError
from agviz.words.safe import clean, clean_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.debugger.breakpoints import Breakpoint
    from agviz.debugger.messages import (
        Hold,
        How,
        Nonfinite,
        Request,
        Shown,
        Stops,
        StopTensor,
    )
    from agviz.measure.values import Health

R = TypeVar("R")
T = TypeVar("T")

_SECONDS: Final = 60.0
_WITH_FIELDS: Final[Mapping[str, type[Stopped | Logged]]] = {"stopped": Stopped, "logged": Logged}
"""Notices that say more than :class:`Said`, by the word that they come under."""
_SECONDS_TO_GREET: Final = 30.0
_GONE: Final = "the program has gone"


class GoneError(AgvizError):
    """The program has ended, or let go of this viewer."""


class RefusedError(AgvizError):
    """The program did not do what was asked; the message is its own."""


class Client:
    """A connection to a debugged program.

    Args:
        connection: to it; it is closed with this.
        on_notice: called with each notice on a thread of the client's; None: they wait for
            :meth:`next_notice`.

    Raises:
        AgvizError: at the other end is no program that speaks this protocol.
    """

    def __init__(
        self, connection: socket.socket, on_notice: Callable[[Notice], None] | None = None
    ) -> None:
        bound_sending(connection)
        self._connection = connection
        self._notices: queue.Queue[Notice] = queue.Queue()
        self._on_notice = on_notice
        self._next_id = itertools.count(1).__next__
        self._replies: dict[int, queue.SimpleQueue[Mapping[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._is_gone = False
        lines = iter(Lines(connection, MOST_REPLY_BYTES))
        connection.settimeout(_SECONDS_TO_GREET)
        try:
            self.hello = _hello(next(lines, None))
        except BaseException:
            connection.close()
            raise
        connection.settimeout(None)
        self._thread = threading.Thread(
            target=self._read, args=(lines,), name="agviz-client", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Go; the program runs on."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=_SECONDS)
        self._connection.close()

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._is_gone

    def next_notice(self, timeout: float | None = _SECONDS) -> Notice:
        """The next notice.

        Args:
            timeout: seconds to wait for it; None: for ever.

        Raises:
            TimeoutError: none came.
        """
        try:
            return self._notices.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"nothing was said for {timeout} s") from None

    def next_stop(self, timeout: float = _SECONDS) -> Stopped:
        """The next stop; what else is said is passed over.

        Raises:
            TimeoutError: the program says nothing for so long.
            GoneError: the program goes before it stops.
        """
        while True:
            notice = self.next_notice(timeout)
            if isinstance(notice, Stopped):
                return notice
            if isinstance(notice, Said) and notice.what == "gone":
                raise GoneError(_GONE)

    # -- running --------------------------------------------------------------------------------

    def step(self, how: How = "node", thread: int | None = None) -> None:
        """Run on to the next node, event or hook, of one thread or of any."""
        self._ask(m.TakeStep(how=how, thread=thread))

    def go_on(self, thread: int | None = None) -> None:
        """Run on, in one thread or in all."""
        self._ask(m.GoOn(thread=thread))

    def until(self, graph_task: int, node: int, thread: int | None = None) -> None:
        """Have a stopped thread run on to a node, or the end of its graph task."""
        self._ask(m.GoUntil(graph_task=graph_task, node=node, thread=thread))

    def pause(self, thread: int | None = None) -> None:
        """Stop at the next event of a thread, or of any."""
        self._ask(m.PauseProgram(thread=thread))

    def detach(self) -> None:
        """Let the program run on without a viewer."""
        with contextlib.suppress(GoneError):
            self._ask(m.Detach())

    def where(self) -> list[Stopped]:
        """The threads that are stopped."""
        return list(self._ask(m.AskWhere()))

    def set_stops(
        self,
        *,
        first: bool | None = None,
        exceptions: bool | None = None,
        nonfinite: Nonfinite | None = None,
        hold: Hold | None = None,
    ) -> Stops:
        """Choose where to stop without a breakpoint, and whom a stop holds; None: as it is."""
        return self._ask(
            m.SetStops(first=first, exceptions=exceptions, nonfinite=nonfinite, hold=hold)
        )

    # -- breakpoints ------------------------------------------------------------------------------

    def breakpoints(self) -> list[Breakpoint]:
        """All, with their numbers and hits."""
        return list(self._ask(m.AskBreakpoints()))

    def add_breakpoint(self, wanted: Breakpoint) -> Breakpoint:
        """Stop there from now on; the answer has its number."""
        return self._ask(m.AddBreakpoint(breakpoint=wanted))

    def edit_breakpoint(self, number: int, **changes: Any) -> Breakpoint:
        """Change some of what it says."""
        return self._ask(m.EditBreakpoint(number=number, changes=changes))

    def remove_breakpoint(self, number: int) -> Breakpoint:
        """Stop there no longer."""
        return self._ask(m.RemoveBreakpoint(number=number))

    # -- at a stop; ``thread`` is one that is stopped, None: the one that stopped last ------------

    def tensors(self, thread: int | None = None, *, samples: bool = False) -> list[StopTensor]:
        """The tensors that can be looked at; where wanted, with some of their elements."""
        return list(self._ask(m.AskTensors(thread=thread, samples=samples)))

    def tensor(
        self, what: str, name: str = "", index: str = "", thread: int | None = None
    ) -> Shown:
        """A part of one of them.

        Args:
            what: as in :class:`~agviz.debugger.messages.StopTensor`.
            name: the same.
            index: as between brackets: ``0, 2:5``; empty for all.
            thread: which is stopped.
        """
        return self._ask(m.AskTensor(what=what, name=name, index=index, thread=thread))

    def values(self, *expressions: str, thread: int | None = None) -> tuple[m.ExpressionValue, ...]:
        """What expressions are worth; see :mod:`agviz.debugger.expressions`."""
        return self._ask(m.AskValues(expressions=expressions, thread=thread))

    def change(
        self, slot: int, how: str, value: float | str, index: str = "", thread: int | None = None
    ) -> Health:
        """Give the node another gradient than the one that came to a slot.

        Args:
            slot: input number.
            how: ``multiply``, ``fill`` or ``set``.
            value: the number; ``nan``, ``inf`` and ``-inf`` as texts.
            index: for ``set``: which elements.
            thread: which is stopped.

        Returns:
            The new gradient's health.
        """
        value = value if isinstance(value, str) else repr(float(value))
        request = m.ChangeGradient(slot=slot, how=how, value=value, index=index, thread=thread)
        return self._ask(request)

    def undo(self, thread: int | None = None) -> tuple[int, Health | None]:
        """Take back the last change of a gradient at a stop.

        Returns:
            The input number, and the health of what the node is given now; None: nothing.
        """
        undone = self._ask(m.UndoChange(thread=thread))
        return undone.slot, undone.health

    def back(
        self, node: int | None = None, thread: int | None = None, *, force: bool = False
    ) -> m.WentBack:
        """Have the pass of a stop go back and stop before a node that ran already.

        Args:
            node: its index; None: the one that ran last.
            thread: which is stopped; None: the one that stopped last.
            force: also where what ran since then can't be undone.
        """
        return self._ask(m.GoBackTo(node=node, thread=thread, force=force))

    def skip_hooks(self, thread: int | None = None) -> None:
        """Have none of the node's Python hooks called."""
        self._ask(m.SkipHooks(thread=thread))

    def ready_nodes(self, thread: int | None = None) -> list[int]:
        """The nodes that wait in the queue of the stopped node."""
        return list(self._ask(m.AskReadyNodes(thread=thread)))

    def run_next(self, node: int, thread: int | None = None) -> None:
        """Have a ready node run right after the stopped one."""
        self._ask(m.RunNext(node=node, thread=thread))

    def shell(self, line: str, thread: int | None = None) -> tuple[str, bool]:
        """Run a line of Python, or several at once.

        Returns:
            What it printed, and whether it needs another line to be whole.
        """
        answer = self._ask(m.RunPython(line=line, thread=thread), timeout=None)
        return answer.output, answer.more

    def complete(self, text: str, thread: int | None = None) -> tuple[str, ...]:
        """What the name or attribute at the end of some Python could become, whole names each."""
        return self._ask(m.CompletePython(text=text, thread=thread))

    def interrupt(self) -> None:
        """End the Python that a stopped thread runs, with KeyboardInterrupt."""
        self._ask(m.Interrupt())

    # -- the channel ------------------------------------------------------------------------------

    def _ask(self, request: Request[R], *, timeout: float | None = _SECONDS) -> R:
        number = self._next_id()
        reply: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if self._is_gone:
                raise GoneError(_GONE)
            self._replies[number] = reply
            try:
                self._connection.sendall(encode({"id": number, "do": request.DO, **write(request)}))
            except OSError:
                raise GoneError(_GONE) from None
        try:
            answer = reply.get(timeout=timeout)
        except queue.Empty:
            raise RefusedError(f"the program has not answered for {timeout} s") from None
        finally:
            with self._lock:
                self._replies.pop(number, None)
        if answer is None:
            raise GoneError(_GONE)
        if "error" in answer:
            raise RefusedError(clean(str(answer["error"])))
        return request.read_reply(answer.get("ok"), line=clean, lines=clean_message)

    def _read(self, lines: Any) -> None:
        why = ""
        try:
            for line in lines:
                self._take(decode(line))
        except AgvizError as error:
            why = str(error)
            with contextlib.suppress(OSError):  # or the other side would wait for it to be read
                self._connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._is_gone = True
            waiting = list(self._replies.values())
        for reply in waiting:
            reply.put(None)
        self._notify(Said(what="gone", why=why))

    def _take(self, message: Mapping[str, Any]) -> None:
        if "say" in message:
            self._notify(_notice(message))
            return
        with self._lock:
            reply = self._replies.get(message.get("re", 0))
        if reply is not None:
            reply.put(message)

    def _notify(self, notice: Notice) -> None:
        if self._on_notice is None:
            self._notices.put(notice)
        else:
            self._on_notice(notice)


def _read(kind: type[T], message: object) -> T:
    """What the program says; its texts can't speak to the terminal."""
    return read(kind, message, line=clean, lines=clean_message)


def _hello(line: bytes | None) -> Hello:
    if line is None:
        raise GoneError(f"{_GONE} before it said anything")
    message = decode(line)
    if message.get("say") == "refused":
        raise RefusedError(_said(message).why)
    if message.get("say") != "hello":
        raise ProtocolError("at the other end is no program under agviz")
    return _read(Hello, message)


def _notice(message: Mapping[str, Any]) -> Notice:
    kind = _WITH_FIELDS.get(message["say"]) if isinstance(message["say"], str) else None
    return _said(message) if kind is None else _read(kind, message)


def _said(message: Mapping[str, Any]) -> Said:
    return _read(Said, {**message, "what": message["say"]})
