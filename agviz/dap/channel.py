"""The wire: messages of the Debug Adapter Protocol, each a header with its length, and JSON."""

from __future__ import annotations

import itertools
import json
import re
import threading
from typing import IO, TYPE_CHECKING, Any, Final

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import RawIOBase

Json = dict[str, Any]
MOST_BYTES: Final = 1 << 23
"""Of a message from the editor."""
_LONGEST_LINE: Final = 200
_HEADER: Final = re.compile(rb"(?i)(Content-Length|Content-Type):[ \t]*([^\r\n]*)\r\n")


class FramingError(AgvizError):
    """What comes from the editor is no message: nothing that follows can be read."""


class Channel:
    """Messages to an editor and from it.

    Args:
        incoming: bytes from the editor, unbuffered, so that it can be closed while somebody reads.
        outgoing: bytes to it; any thread may send.
    """

    def __init__(self, incoming: IO[bytes] | RawIOBase, outgoing: IO[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._number = itertools.count(1)
        self._lock = threading.Lock()

    def receive(self) -> Json | None:
        """The next message; None: the editor has gone.

        Raises:
            FramingError: there is something else. A header other than those of the protocol is
                refused, so that no page in a browser can have requests made in its name.
        """
        length = self._read_header()
        if length is None:
            return None
        content = bytearray()
        while len(content) < length:
            found = self._incoming.read(length - len(content))
            if not found:
                return None
            content += found
        try:
            message = json.loads(content)
        except (ValueError, RecursionError):
            raise FramingError("a message is no JSON") from None
        if not isinstance(message, dict):
            raise FramingError("a message is an object")
        return message

    def _read_header(self) -> int | None:
        """The length of what follows; None: the editor has gone."""
        length = None
        while (line := self._incoming.readline(_LONGEST_LINE)) != b"\r\n":
            if not line:
                return None
            match = _HEADER.fullmatch(line)
            if match is None:
                raise FramingError("a header is not of the Debug Adapter Protocol")
            if match[1].lower() == b"content-length":
                if not re.fullmatch(rb"\d{1,9}", match[2]) or int(match[2]) > MOST_BYTES:
                    raise FramingError(f"a message has at most {MOST_BYTES:,} bytes")
                length = int(match[2])
        if length is None:
            raise FramingError("a message does not say how long it is")
        return length

    def respond(self, request: Mapping[str, Any], body: Json | None = None) -> None:
        """Answer a request."""
        said = {} if body is None else {"body": body}
        self._send("response", **_answered(request), success=True, **said)

    def refuse(self, request: Mapping[str, Any], sentence: str) -> None:
        """Answer that a request can't be met."""
        self._send(
            "response",
            **_answered(request),
            success=False,
            message=sentence,
            # What is in braces in a format is a variable.
            body={"error": {"id": 1, "format": "{why}", "variables": {"why": sentence}}},
        )

    def event(self, name: str, /, **body: Any) -> None:
        """Say what has happened."""
        self._send("event", event=name, **({"body": body} if body else {}))

    def _send(self, kind: str, **message: Any) -> None:
        with self._lock:
            said = {"seq": next(self._number), "type": kind, **message}
            content = json.dumps(said, allow_nan=False).encode()
            self._outgoing.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
            self._outgoing.flush()


def _answered(request: Mapping[str, Any]) -> Json:
    return {"request_seq": request["seq"], "command": request["command"]}
