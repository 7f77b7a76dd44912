"""An editor, as far as the Debug Adapter Protocol goes: what it sends, and checks what it gets.

Every message of agviz is held against the protocol's own JSON schema, which debugpy brings along.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import itertools
import json
import queue
import socket
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Self, cast

from tests.debugger_support import ENVIRONMENT, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

Json = dict[str, Any]

_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
    "null": lambda value: value is None,
}
_KEYWORDS = {
    *("type", "properties", "required", "allOf", "oneOf", "items", "enum", "$ref"),
    *("additionalProperties",),
}
_WORDS = {"title", "description", "_enum", "enumDescriptions"}


@functools.cache
def schema() -> Json:
    """The protocol's JSON schema."""
    (found,) = (
        path
        for path in importlib.metadata.files("debugpy") or []
        if path.name == "debugProtocol.json"
    )
    return cast("Json", json.loads(found.read_text()))


def broken(value: Any, rule: Mapping[str, Any], where: str = "message") -> list[str]:
    """What of a JSON schema a value breaks; the protocol's needs these few keywords only."""
    assert rule.keys() <= _KEYWORDS | _WORDS, rule
    if "$ref" in rule:
        *_, name = rule["$ref"].split("/")
        return broken(value, schema()["definitions"][name], where)
    found = []
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return [f"{where} is no {' or '.join(kinds)}"]
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{where} is none of {rule['enum']}")
    for part in rule.get("allOf", []):
        found += broken(value, part, where)
    if "oneOf" in rule and sum(not broken(value, part) for part in rule["oneOf"]) != 1:
        found.append(f"{where} fits not exactly one")
    if isinstance(value, dict):
        known = rule.get("properties", {})
        found += [f"{where} lacks {name}" for name in rule.get("required", []) if name not in value]
        for name, each in value.items():
            others = rule.get("additionalProperties")
            part = known.get(name, others if isinstance(others, dict) else {})
            found += broken(each, part, f"{where}.{name}")
    if isinstance(value, list):
        for place, each in enumerate(value):
            found += broken(each, rule.get("items", {}), f"{where}[{place}]")
    return found


def strange(value: Json, name: str) -> list[str]:
    """Fields of a message that the protocol does not have, though a schema lets them pass."""
    rule = schema()["definitions"][name]
    parts = [*rule.get("allOf", []), rule]
    known: set[str] = set()
    for part in parts:
        if "$ref" in part:
            known |= {*_names(part["$ref"].split("/")[-1])}
        known |= {*part.get("properties", {})}
    return sorted(set(value) - known)


def _names(name: str) -> list[str]:
    rule = schema()["definitions"][name]
    found = [*rule.get("properties", {})]
    for part in rule.get("allOf", []):
        found += part.get("properties", {})
        if "$ref" in part:
            found += _names(part["$ref"].split("/")[-1])
    return found


def definition(message: Json) -> str:
    """The part of the schema that a message has to be of."""
    if message["type"] == "event":
        return f"{message['event'][0].upper()}{message['event'][1:]}Event"
    if not message["success"]:
        return "ErrorResponse"
    return f"{message['command'][0].upper()}{message['command'][1:]}Response"


class Editor:
    """An editor at the other end of some streams.

    Args:
        incoming: what agviz sends.
        outgoing: what it gets.
    """

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._numbers = itertools.count(1)
        self._messages: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self.seen: list[Json] = []
        """All events, in order."""
        self._waiting: list[Json] = []
        self._has_gone = False
        self.broken: list[str] = []
        """What was wrong with the messages that came."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last = 0
        while header := self._incoming.readline():
            name, _, length = header.decode().partition(": ")
            assert name == "Content-Length", header
            assert self._incoming.readline() == b"\r\n"
            message = json.loads(self._incoming.read(int(length)))
            rule = {"$ref": f"#/definitions/{definition(message)}"}
            self.broken += [f"{each}: {message}" for each in broken(message, rule)]
            if strangers := strange(message, definition(message)):
                self.broken.append(f"{strangers} are not in the protocol: {message}")
            if message["seq"] != last + 1:
                self.broken.append(f"number {message['seq']} comes after {last}")
            last = message["seq"]
            self._messages.put(message)
        self._messages.put(None)

    def send(self, command: str, arguments: Json | None = None) -> int:
        """Send a request; its number."""
        number = next(self._numbers)
        said: Json = {"seq": number, "type": "request", "command": command}
        if arguments is not None:
            said["arguments"] = arguments
        self.send_bytes(json.dumps(said).encode())
        return number

    def send_bytes(self, content: bytes) -> None:
        """Send a message, whatever it is."""
        self._outgoing.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        self._outgoing.flush()

    def next_message(self) -> Json:
        """The next message of any kind."""
        message = self._messages.get(timeout=SECONDS)
        assert message is not None, "agviz has gone"
        return message

    def answer(self, number: int) -> Json:
        """The response to a request; events that come before it are kept."""
        while True:
            message = self.next_message()
            if message["type"] == "event":
                self.seen.append(message)
                self._waiting.append(message)
            else:
                assert message["request_seq"] == number
                return message

    def ask(self, command: str, **arguments: Any) -> Json:
        """What a request is answered."""
        message = self.answer(self.send(command, arguments))
        assert message["success"], message
        return cast("Json", message.get("body", {}))

    def refused(self, command: str, **arguments: Any) -> str:
        """Why a request is refused."""
        message = self.answer(self.send(command, arguments))
        assert not message["success"], message
        assert message["body"]["error"]["variables"]["why"] == message["message"]
        return cast("str", message["message"])

    def attempt(self, command: str, **arguments: Any) -> Json:
        """The response to a request, whatever it is."""
        return self.answer(self.send(command, arguments))

    def event(self, name: str) -> Json:
        """The next event of a name; others before it are passed over."""
        while True:
            message = self._waiting.pop(0) if self._waiting else self.next_message()
            if message not in self.seen:
                self.seen.append(message)
            assert message["type"] == "event", message
            if message["event"] == name:
                return cast("Json", message.get("body", {}))

    def event_seen(self, name: str) -> Json:
        """An event that has come already."""
        return next(each.get("body", {}) for each in self.seen if each["event"] == name)

    def until_gone(self) -> None:
        """Take what there is until agviz has gone."""
        while not self._has_gone:
            message = self._messages.get(timeout=SECONDS)
            if message is None:
                self._has_gone = True
            else:
                self.seen.append(message)

    # What a user does.

    def begin(self, request: str = "launch", **arguments: Any) -> None:
        """Up to where breakpoints are set."""
        self.ask("initialize", adapterID="agviz", supportsVariableType=True)
        self.ask(request, **arguments)
        self.event("initialized")

    def done(self) -> Json:
        """Have it begin; the first stop."""
        self.ask("configurationDone")
        return self.event("stopped")

    def go(self, command: str, **arguments: Any) -> Json:
        """Go on or back; the stop."""
        self.ask(command, threadId=1, **arguments)
        return self.event("stopped")

    def on_lines(self, path: Path, *lines: int, **more: str) -> list[Json]:
        """Set breakpoints on lines of a file."""
        wanted = [{"line": line, **more} for line in lines]
        found = self.ask("setBreakpoints", source={"path": str(path)}, breakpoints=wanted)
        return cast("list[Json]", found["breakpoints"])

    def stack(self, thread: int = 1) -> list[Json]:
        """The stack of a thread."""
        return cast("list[Json]", self.ask("stackTrace", threadId=thread)["stackFrames"])

    def scopes(self, frame: Json | None = None) -> dict[str, int]:
        """Numbers of the variables of a frame, by the names of their scopes."""
        frame = self.stack()[0] if frame is None else frame
        found = self.ask("scopes", frameId=frame["id"])["scopes"]
        return {each["name"]: each["variablesReference"] for each in found}

    def variables(self, number: int) -> dict[str, Json]:
        """Variables by name."""
        found = self.ask("variables", variablesReference=number)["variables"]
        return {each["name"]: each for each in found}

    def scope(self, name: str) -> dict[str, Json]:
        """The variables of a scope of the top frame."""
        return self.variables(self.scopes()[name])

    def inside(self, variable: Json) -> dict[str, str]:
        """Values of what is in a variable, by name."""
        found = self.variables(variable["variablesReference"])
        return {name: each["value"] for name, each in found.items()}


class Adapter:
    """``agviz dap`` in a process of its own, and an editor that has started it.

    Args:
        folder: where it runs.
        arguments: of ``agviz dap``.
        python: what Python runs in its place.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = (),
        *,
        python: Sequence[str] = ("-m", "agviz", "dap"),
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *python, *arguments],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.leaving: Json = {}
        """Said with disconnect."""
        self._connection: socket.socket | None = None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if "--port" in arguments:
            assert self.process.stderr is not None
            said = self.process.stderr.readline().decode()
            host, _, port = said.rpartition(" ")[2].rpartition(":")
            self._connection = socket.create_connection((host, int(port)), SECONDS)
            self._connection.settimeout(None)
            incoming = self._connection.makefile("rb")
            self.editor = Editor(incoming, self._connection.makefile("wb"))
        else:
            self.editor = Editor(self.process.stdout, self.process.stdin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave as an editor does; nothing it was sent may be wrong."""
        if kind is None:
            if self.process.poll() is None:
                self.editor.ask("disconnect", **self.leaving)
            self.editor.until_gone()
            said = self.end()
            assert not said, said
            assert not self.editor.broken, self.editor.broken
        else:
            self.process.kill()
            self.end()

    def end(self) -> str:
        """Wait until it has ended; what it printed on stderr."""
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self._connection is not None:
            self._connection.close()
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        said = self.process.stderr.read().decode()
        for stream in (self.process.stdin, self.process.stderr, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return said if code == 0 else f"exit code {code}: {said}"
