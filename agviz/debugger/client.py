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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from agviz.debugger.breakpoints import Breakpoint
from agviz.debugger.protocol import (
    MOST_REPLY_BYTES,
    Lines,
    ProtocolError,
    bound_sending,
    decode,
    encode,
    field,
)
from agviz.errors import AgvizError
from agviz.measure.values import Health
from agviz.words.safe import clean, clean_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agviz.debugger.stops import Hold, How, Nonfinite

WHATS: Final = ("gradient", "output", "input", "grad", "parameter", "saved")
"""What a tensor can be at a stop: the gradient that the event is about, what the node puts out, was
given, what is in ``.grad`` of its parameter, the parameter, what it had saved."""
_SECONDS: Final = 60.0
_SECONDS_TO_GREET: Final = 30.0
_GONE: Final = "the program has gone"


class GoneError(AgvizError):
    """The program has ended, or let go of this viewer."""


class RefusedError(AgvizError):
    """The program did not do what was asked; the message is its own."""


@dataclass(frozen=True, kw_only=True)
class Hello:
    """What a program says of itself first."""

    pid: int
    trace: Path
    """The file that it records into."""
    script: str
    program: str
    """Absolute path of the script, or ``-m MODULE``: whose breakpoints are whose."""
    lines: bool
    """Whether it knows which lines of the forward made its nodes."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A thread is stopped behind an event."""

    thread: int
    graph_task: int
    seq: int
    """Of the event; all up to it can be read from the trace."""
    event: str
    """Kind of the event. ``NodeStarted``: before the node runs."""
    reasons: tuple[str, ...]
    """``breakpoint``, ``step``, ``until``, ``pause``, ``first backward``, ``exception``,
    ``non-finite``, ``set_trace()``."""
    breakpoints: tuple[int, ...]
    """Numbers of those that were hit."""
    details: Mapping[str, int | str | bool]
    """The other fields of the event."""
    node: int | None
    """None: the event is about no node; so are the next, then empty or None."""
    name: str
    sequence_nr: int | None
    device: int | None
    module: str
    parameter: str
    line: str
    """Where the forward made the node, as ``file.py:12``; empty: not known."""
    function: str

    @property
    def is_before_a_node(self) -> bool:
        """Whether gradients can be changed and hooks left out."""
        return self.event == "NodeStarted"


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something else that the program said."""

    what: str
    """``resumed``: a stopped thread runs on by itself; ``ended``: the program ends and its trace is
    complete; ``gone``: the connection has ended."""
    why: str = ""
    thread: int | None = None


Notice = Stopped | Said


@dataclass(frozen=True)
class Sampled:
    """Some of a tensor's elements, see :mod:`agviz.debugger.sampling`."""

    first: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class StopTensor:
    """A tensor that can be looked at."""

    what: str
    """One of :data:`WHATS`."""
    name: str
    """Number of the slot, or torch's name of what was saved."""
    health: Health
    sample: Sampled | None = None
    """None: none was asked for, or its elements can't be looked at."""


@dataclass(frozen=True)
class Shown:
    """A part of a tensor."""

    text: str
    health: Health


@dataclass(frozen=True)
class WentBack:
    """To where a pass goes back, and what is not undone by that."""

    node: int
    """Index of the node that runs again first."""
    name: str
    nodes: int
    """How many run again."""
    python: tuple[str, ...]
    """Nodes that ran Python of the program: what that did outside is as it was."""
    against: tuple[str, ...]
    """Why the second run may differ; empty where it was not forced."""


@dataclass(frozen=True)
class Stops:
    """Where to stop without a breakpoint, and whom a stop holds."""

    first: bool
    exceptions: bool
    nonfinite: Nonfinite
    hold: Hold


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
            if notice.what == "gone":
                raise GoneError(_GONE)

    # -- running --------------------------------------------------------------------------------

    def step(self, how: How = "node", thread: int | None = None) -> None:
        """Run on to the next node, event or hook, of one thread or of any."""
        self._ask("step", how=how, thread=thread)

    def go_on(self, thread: int | None = None) -> None:
        """Run on, in one thread or in all."""
        self._ask("continue", thread=thread)

    def until(self, graph_task: int, node: int, thread: int | None = None) -> None:
        """Have a stopped thread run on to a node, or the end of its graph task."""
        self._ask("until", graph_task=graph_task, node=node, thread=thread)

    def pause(self, thread: int | None = None) -> None:
        """Stop at the next event of a thread, or of any."""
        self._ask("pause", thread=thread)

    def detach(self) -> None:
        """Let the program run on without a viewer."""
        with contextlib.suppress(GoneError):
            self._ask("detach")

    def where(self) -> list[Stopped]:
        """The threads that are stopped."""
        return [_stopped(each) for each in _list(self._ask("where"), "stops")]

    def set_stops(
        self,
        *,
        first: bool | None = None,
        exceptions: bool | None = None,
        nonfinite: Nonfinite | None = None,
        hold: Hold | None = None,
    ) -> Stops:
        """Choose where to stop without a breakpoint, and whom a stop holds; None: as it is."""
        reply = self._ask(
            "set_stops", first=first, exceptions=exceptions, nonfinite=nonfinite, hold=hold
        )
        return Stops(
            field(reply, "first", bool),
            field(reply, "exceptions", bool),
            field(reply, "nonfinite", str),  # type: ignore[arg-type]
            field(reply, "hold", str),  # type: ignore[arg-type]
        )

    # -- breakpoints ------------------------------------------------------------------------------

    def breakpoints(self) -> list[Breakpoint]:
        """All, with their numbers and hits."""
        return [
            Breakpoint.from_json(each) for each in _list(self._ask("breakpoints"), "breakpoints")
        ]

    def add_breakpoint(self, wanted: Breakpoint) -> Breakpoint:
        """Stop there from now on; the answer has its number."""
        return _breakpoint(self._ask("add_breakpoint", breakpoint=wanted.to_json()))

    def edit_breakpoint(self, number: int, **changes: Any) -> Breakpoint:
        """Change some of what it says."""
        return _breakpoint(self._ask("edit_breakpoint", number=number, changes=changes))

    def remove_breakpoint(self, number: int) -> Breakpoint:
        """Stop there no longer."""
        return _breakpoint(self._ask("remove_breakpoint", number=number))

    # -- at a stop --------------------------------------------------------------------------------

    def tensors(self, thread: int | None = None, *, samples: bool = False) -> list[StopTensor]:
        """The tensors that can be looked at.

        Args:
            thread: which is stopped; None: the one that stopped last.
            samples: whether some of their elements are sent, too.
        """
        reply = self._ask("tensors", thread=thread, samples=samples)
        return [
            StopTensor(
                _what(each),
                _text(each, "name"),
                _health(field(each, "health", dict)),
                _sampled(each.get("sample")),
            )
            for each in _list(reply, "tensors")
        ]

    def tensor(
        self, what: str, name: str = "", index: str = "", thread: int | None = None
    ) -> Shown:
        """A part of one of them.

        Args:
            what: as in :class:`StopTensor`.
            name: the same.
            index: as between brackets: ``0, 2:5``; empty for all.
            thread: which is stopped; None: the one that stopped last.
        """
        reply = self._ask("tensor", what=what, name=name, index=index, thread=thread)
        text = clean_message(field(reply, "text", str))
        return Shown(text, _health(field(reply, "health", dict)))

    def change(
        self, slot: int, how: str, value: float | str, index: str = "", thread: int | None = None
    ) -> Health:
        """Give the node another gradient than the one that came to a slot.

        Args:
            slot: input number.
            how: ``multiply``, ``fill`` or ``set``.
            value: the number; ``nan``, ``inf`` and ``-inf`` as texts.
            index: for ``set``: which elements.
            thread: which is stopped; None: the one that stopped last.

        Returns:
            The new gradient's health.
        """
        value = value if isinstance(value, str) else repr(float(value))
        reply = self._ask("change", slot=slot, how=how, value=value, index=index, thread=thread)
        return _health(field(reply, "health", dict))

    def undo(self, thread: int | None = None) -> tuple[int, Health]:
        """Take back the last change of a gradient at a stop.

        Returns:
            The input number, and the health of what the node is given now.
        """
        reply = self._ask("undo", thread=thread)
        return field(reply, "slot", int), _health(field(reply, "health", dict))

    def back(
        self, node: int | None = None, thread: int | None = None, *, force: bool = False
    ) -> WentBack:
        """Have the pass of a stop go back and stop before a node that ran already.

        Args:
            node: its index; None: the one that ran last.
            thread: which is stopped; None: the one that stopped last.
            force: also where what ran since then can't be undone.
        """
        reply = self._ask("back", node=node, thread=thread, force=force)
        return WentBack(
            node=field(reply, "node", int),
            name=_text(reply, "name"),
            nodes=field(reply, "nodes", int),
            python=_texts(reply, "python"),
            against=_texts(reply, "against"),
        )

    def skip_hooks(self, thread: int | None = None) -> None:
        """Have none of the node's Python hooks called."""
        self._ask("skip_hooks", thread=thread)

    def ready_nodes(self, thread: int | None = None) -> list[int]:
        """The nodes that wait in the queue of the stopped node."""
        nodes = field(self._ask("ready_nodes", thread=thread), "nodes", list)
        if not all(type(node) is int for node in nodes):
            raise ProtocolError("'nodes' are no numbers")
        return nodes

    def run_next(self, node: int, thread: int | None = None) -> None:
        """Have a ready node run right after the stopped one."""
        self._ask("run_next", node=node, thread=thread)

    def shell(self, line: str, thread: int | None = None) -> tuple[str, bool]:
        """Run a line of Python, or several at once.

        Returns:
            What it printed, and whether it needs another line to be whole.
        """
        reply = self._ask("shell", line=line, thread=thread, timeout=None)
        return clean_message(field(reply, "output", str)), field(reply, "more", bool)

    def complete(self, text: str, thread: int | None = None) -> tuple[str, ...]:
        """What the name or attribute at the end of some Python could become, whole names each."""
        names = field(self._ask("complete", text=text, thread=thread), "names", list)
        if not all(isinstance(name, str) for name in names):
            raise ProtocolError("'names' are no texts")
        return tuple(clean(name) for name in names)

    def interrupt(self) -> None:
        """End the Python that a stopped thread runs, with KeyboardInterrupt."""
        self._ask("interrupt")

    # -- the channel ------------------------------------------------------------------------------

    def _ask(self, do: str, *, timeout: float | None = _SECONDS, **more: Any) -> Mapping[str, Any]:
        number = self._next_id()
        reply: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if self._is_gone:
                raise GoneError(_GONE)
            self._replies[number] = reply
            said = {name: value for name, value in more.items() if value is not None}
            try:
                self._connection.sendall(encode({"id": number, "do": do, **said}))
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
            raise RefusedError(_text(answer, "error"))
        return field(answer, "ok", dict)

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


def _hello(line: bytes | None) -> Hello:
    if line is None:
        raise GoneError(f"{_GONE} before it said anything")
    message = decode(line)
    if message.get("say") == "refused":
        raise RefusedError(_text(message, "why"))
    if message.get("say") != "hello":
        raise ProtocolError("at the other end is no program under agviz")
    return Hello(
        pid=field(message, "pid", int),
        trace=Path(field(message, "trace", str)),
        script=_text(message, "script"),
        program=_text(message, "program"),
        lines=field(message, "lines", bool),
    )


def _notice(message: Mapping[str, Any]) -> Notice:
    what = _text(message, "say")
    if what == "stopped":
        return _stopped(message)
    thread = None if "thread" not in message else field(message, "thread", int)
    return Said(what=what, why=clean(field(message, "why", str, "")), thread=thread)


def _stopped(reply: Mapping[str, Any]) -> Stopped:
    def number(name: str) -> int | None:
        return None if reply.get(name) is None else field(reply, name, int)

    def text(name: str) -> str:
        return clean(field(reply, name, str, ""))

    details = field(reply, "details", dict)
    if not all(type(value) in {int, str, bool} for value in details.values()):
        raise ProtocolError("'details' are no numbers and texts")
    breakpoints = field(reply, "breakpoints", list)
    if not all(type(each) is int for each in breakpoints):
        raise ProtocolError("'breakpoints' are no numbers")
    reasons = field(reply, "reasons", list)
    if not all(type(each) is str for each in reasons):
        raise ProtocolError("'reasons' are no texts")
    return Stopped(
        thread=field(reply, "thread", int),
        graph_task=field(reply, "graph_task", int),
        seq=field(reply, "seq", int),
        event=text("event"),
        reasons=tuple(map(clean, reasons)),
        breakpoints=tuple(breakpoints),
        details={
            clean(name): clean_message(value) if isinstance(value, str) else value
            for name, value in details.items()
        },
        node=number("node"),
        name=text("name"),
        sequence_nr=number("sequence_nr"),
        device=number("device"),
        module=text("module"),
        parameter=text("parameter"),
        line=text("line"),
        function=text("function"),
    )


def _list(reply: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    several = field(reply, name, list)
    if not all(isinstance(each, dict) for each in several):
        raise ProtocolError(f"{name!r} are no objects")
    return several


def _breakpoint(reply: Mapping[str, Any]) -> Breakpoint:
    return Breakpoint.from_json(reply.get("breakpoint"))


def _what(reply: Mapping[str, Any]) -> str:
    what = field(reply, "what", str)
    if what not in WHATS:
        raise ProtocolError(f"{what[:50]!r} is no kind of tensor")
    return what


def _text(reply: Mapping[str, Any], name: str) -> str:
    return clean(field(reply, name, str))


def _texts(reply: Mapping[str, Any], name: str) -> tuple[str, ...]:
    several = field(reply, name, list)
    if not all(isinstance(each, str) for each in several):
        raise ProtocolError(f"{name!r} are no texts")
    return tuple(map(clean, several))


def _health(reply: Mapping[str, Any]) -> Health:
    shape = reply.get("shape")
    if shape is not None and not (
        isinstance(shape, list) and all(type(size) is int for size in shape)
    ):
        raise ProtocolError("'shape' is no list of numbers")
    counts = ("numel", "nbytes", "numbers", "nan", "posinf", "neginf", "zero")
    facts = [
        _text(reply, "dtype"),
        None if shape is None else tuple(shape),
        *(_text(reply, name) for name in ("device", "layout")),
        *(field(reply, name, int) for name in counts),
        *(_real(reply.get(name)) for name in ("min", "max", "mean", "norm")),
        _text(reply, "unknown"),
    ]
    return Health._make(facts)


def _sampled(reply: object) -> Sampled | None:
    if reply is None:
        return None
    if not isinstance(reply, dict):
        raise ProtocolError("'sample' is no object")
    first, counts = field(reply, "first", list), field(reply, "counts", list)
    if not all(type(each) is str for each in first):
        raise ProtocolError("'first' are no texts")
    if not all(type(each) is int and each >= 0 for each in counts):
        raise ProtocolError("'counts' are no counts")
    return Sampled(tuple(map(clean, first)), tuple(counts))


def _real(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) or value in {"inf", "-inf", "nan"}:
        return float(value)
    raise ProtocolError(f"{str(value)[:50]!r} is no number")
