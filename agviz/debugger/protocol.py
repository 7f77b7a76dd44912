"""What goes through the channel: one JSON object on each line, checked by whoever receives it.

A request is ``{"v": 1, "id": 7, "do": "step", ...}``; its reply ``{"v": 1, "re": 7, "ok": {...}}``
or ``{"v": 1, "re": 7, "error": "one sentence"}``. The debugged process also says of itself what
happens: ``{"v": 1, "say": "stopped", ...}``.
"""

from __future__ import annotations

import functools
import json
import math
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
MOST_REQUEST_BYTES: Final = 1 << 16
"""Of a line from the viewer."""
MOST_REPLY_BYTES: Final = 1 << 22
"""Of a line to it."""
SECONDS_TO_SEND: Final = 10
"""After so long without taking anything, whoever is at the other end counts as gone."""

_NOT_FINITE: Final = ("inf", "-inf", "nan")

T = TypeVar("T")
Clean: TypeAlias = Callable[[str], str]


class ProtocolError(AgvizError):
    """A line is no message; the text says why in one sentence."""


class LineTooLongError(ProtocolError):
    """A line is longer than any message: nothing that follows can be read."""


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"v": VERSION, **message}, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message on a line.

    Raises:
        ProtocolError: it is none.
    """
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("a line is no JSON") from None
    if not isinstance(message, dict):
        raise ProtocolError("a message is an object")
    if message.get("v") != VERSION:
        raise ProtocolError(
            f"the other side speaks version {str(message.get('v'))[:20]} and this one {VERSION};"
            " use the same agviz on both"
        )
    return message


Paragraph: TypeAlias = Annotated[str, "lines"]
"""A text that may have several lines."""


def write(value: Any) -> Any:
    """A message, or a part of one, as JSON has it, which knows no infinity.

    What is as its declaration has it by default is left out.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "_asdict"):
        return {name: write(part) for name, part in value._asdict().items()}
    if is_dataclass(value):
        parts = ((each, getattr(value, each.name)) for each in fields(value))
        return {each.name: write(part) for each, part in parts if part != each.default}
    if isinstance(value, tuple):
        return [write(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def read(kind: type[T], message: object, *, line: Clean = str, lines: Clean = str) -> T:
    """A message of a kind, checked by its declaration; what else it says is passed over.

    Args:
        kind: a dataclass or a named tuple.
        message: what came.
        line: applied to each text.
        lines: applied to each :data:`Paragraph`.

    Raises:
        ProtocolError: something is missing, or is something else.
    """
    if not isinstance(message, dict):
        raise ProtocolError(f"{str(message)[:50]!r} is no object")
    found = {}
    declared: Mapping[str, tuple[Any, Any]] = _declared(cast("Any", kind))
    for name, (part, default) in declared.items():
        if name in message:
            found[name] = _Part(name, line, lines).read(part, message[name])
        elif default is MISSING:
            raise ProtocolError(f"{name!r} is missing")
    return kind(**found)


def read_part(kind: Any, message: object, name: str, *, line: Clean, lines: Clean) -> Any:
    """What a message says under a name, or all of it where the name is empty; as :func:`read`.

    Raises:
        ProtocolError: it is missing, or is something else.
    """
    if not isinstance(message, dict):
        raise ProtocolError(f"{str(message)[:50]!r} is no object")
    if kind is NoneType:
        return None
    if name and name not in message:
        raise ProtocolError(f"{name!r} is missing")
    return _Part(name, line, lines).read(kind, message[name] if name else message)


@functools.cache
def _declared(kind: Any) -> dict[str, tuple[Any, Any]]:
    """Types and defaults of the fields of a dataclass or a named tuple."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        return {each.name: (hints[each.name], each.default) for each in fields(kind)}
    return {name: (hints[name], MISSING) for name in kind._fields}


class _Part(NamedTuple):
    """A field whose value is being read."""

    name: str
    line: Clean
    lines: Clean

    def read(self, kind: Any, value: Any) -> Any:
        """The value as its type has it."""
        if kind in _PLAIN:
            return _PLAIN[kind](self, value)
        compound = _COMPOUND.get(get_origin(kind))
        if compound is not None:
            return compound(self, get_args(kind), value)
        if hasattr(kind, "from_json"):
            return kind.from_json(value)
        return read(kind, value, line=self.line, lines=self.lines)

    def of(self, kind: type[T], value: Any) -> T:
        """The value, where it is of exactly this kind."""
        if type(value) is not kind:
            raise ProtocolError(f"{self.name!r} can't be {str(value)[:50]!r}")
        return value

    def real(self, value: Any) -> float:
        """A number that may be none."""
        is_number = type(value) in {int, float}
        return float(value if is_number or value in _NOT_FINITE else self.of(float, value))

    def literal(self, known: tuple[Any, ...], value: Any) -> Any:
        """One of some texts."""
        if value not in known:
            raise ProtocolError(f"{self.name!r} is one of {', '.join(known)}")
        return value

    def one_of(self, kinds: tuple[Any, ...], value: Any) -> Any:
        """Of one of several kinds; of those that are not None, all but one are plain."""
        if value is None and NoneType in kinds:
            return None
        wanted = [kind for kind in kinds if kind is not NoneType]
        if len(wanted) > 1:
            bare = {getattr(kind, "__origin__", kind): kind for kind in wanted}
            wanted = [bare[type(value)]] if type(value) in bare else []
        return self.read(wanted[0], value) if wanted else self.of(NoneType, value)

    def several(self, kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        """Any number of one kind."""
        return tuple(self.read(kinds[0], each) for each in self.of(list, value))

    def named(self, kinds: tuple[Any, ...], value: Any) -> dict[str, Any]:
        """Any number of one kind, by names."""
        entries = self.of(dict, value).items()
        return {self.line(key): self.read(kinds[1], each) for key, each in entries}


_PLAIN: Final[Mapping[Any, Callable[[_Part, Any], Any]]] = {
    int: lambda part, value: part.of(int, value),
    bool: lambda part, value: part.of(bool, value),
    float: _Part.real,
    str: lambda part, value: part.line(part.of(str, value)),
    Paragraph: lambda part, value: part.lines(part.of(str, value)),
    Path: lambda part, value: Path(part.of(str, value)),
    object: lambda _, value: value,
}
_COMPOUND: Final[Mapping[Any, Callable[[_Part, tuple[Any, ...], Any], Any]]] = {
    Union: _Part.one_of,
    UnionType: _Part.one_of,
    Literal: _Part.literal,
    tuple: _Part.several,
    Mapping: _Part.named,
}


class Lines:
    """Reads a socket line by line.

    Args:
        connection: what to read from.
        longest: bytes of a line.
    """

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection = connection
        self._longest = longest
        self._rest = bytearray()

    def __iter__(self) -> Iterator[bytes]:
        """Lines until the other side has gone.

        Raises:
            LineTooLongError: a line is too long.
        """
        while True:
            while (end := self._rest.find(b"\n")) >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                yield line
            if len(self._rest) > self._longest:
                raise LineTooLongError(f"a line is longer than {self._longest:,} bytes")
            try:
                received = self._connection.recv(1 << 16)
            except OSError:
                return
            if not received:
                return
            self._rest += received


def bound_sending(connection: socket.socket) -> None:
    """Let no thread wait for ever for a side that takes nothing."""
    timeout = struct.pack("ll", SECONDS_TO_SEND, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
