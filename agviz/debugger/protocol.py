"""What goes through the channel: one JSON object on each line, checked by whoever receives it.

A request is ``{"v": 1, "id": 7, "do": "step", ...}``; its reply ``{"v": 1, "re": 7, "ok": {...}}``
or ``{"v": 1, "re": 7, "error": "one sentence"}``. The debugged process also says of itself what
happens: ``{"v": 1, "say": "stopped", ...}``.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION: Final = 1
MOST_REQUEST_BYTES: Final = 1 << 16
"""Of a line from the viewer."""
MOST_REPLY_BYTES: Final = 1 << 22
"""Of a line to it."""
SECONDS_TO_SEND: Final = 10
"""After so long without taking anything, whoever is at the other end counts as gone."""

T = TypeVar("T")


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


_NOTHING: Final = object()


def field(message: Mapping[str, Any], name: str, kind: type[T], default: Any = _NOTHING) -> T:
    """What a message says under a name.

    Args:
        message: the message.
        name: of the field.
        kind: what it has to be; ``float`` takes whole numbers, too.
        default: what is given where it is absent.

    Raises:
        ProtocolError: it is absent, or something else.
    """
    value = message.get(name, default)
    if value is _NOTHING:
        raise ProtocolError(f"{name!r} is missing")
    if value is default:
        return value  # type: ignore[no-any-return]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ProtocolError(f"{name!r} can't be {str(value)[:50]!r}")
    return value


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
