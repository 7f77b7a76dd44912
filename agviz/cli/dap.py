"""Serve a recording, or a program that runs, to an editor by the Debug Adapter Protocol.

The editor starts this itself and speaks with it through its standard input and output; --port has
it wait for one editor at a port of this machine instead. The editor's launch or attach request says
what is debugged, or FILE does. In the editor, a stack is a node of the backward pass, its module,
and the lines of the forward that made it; variables are gradients, and time goes backwards, too.

docs/editors.md says how to set up VS Code and Neovim.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.dap.channel import Channel
from agviz.dap.server import DebugAdapter
from agviz.errors import AgvizError
from agviz.words.safe import clean

if TYPE_CHECKING:
    import argparse

HOST: Final = "127.0.0.1"
"""Nobody reaches it from another machine."""
_TABLE: Final = Path("/proc/net/tcp")
_LAST_PORT: Final = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz dap``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="the recording, where the editor's request names none",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=int,
        help=f"wait for one editor at this port of {HOST} (0: any that is free)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Serve one editor."""
    if arguments.port is None:
        _serve_standard_streams(arguments.file)
    else:
        _serve_port(arguments.file, arguments.port)
    return 0


def _serve(channel: Channel, file: Path | None) -> None:
    signal.signal(signal.SIGTERM, _end)  # so does an editor end it; a program here ends with it
    DebugAdapter(channel, file).serve()


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _serve_standard_streams(file: Path | None) -> None:
    # What is printed by anybody goes to stderr: stdout is the protocol's.
    with os.fdopen(os.dup(0), "rb", 0) as incoming, os.fdopen(os.dup(1), "wb") as outgoing:
        sys.stdout.flush()
        os.dup2(2, 1)
        _serve(Channel(incoming, outgoing), file)


def _serve_port(file: Path | None, port: int) -> None:
    if not 0 <= port <= _LAST_PORT:
        raise AgvizError(f"there is no port {port}")
    try:
        listening = socket.create_server((HOST, port), backlog=1)
    except OSError as error:
        raise AgvizError(
            f"port {port} can't be used: {clean(error.strerror or str(error))}; name another one"
        ) from None
    with listening:
        _, number = listening.getsockname()
        print(f"agviz: an editor can connect to {HOST}:{number}", file=sys.stderr, flush=True)
        connection = _own(listening)
    incoming, outgoing = connection.makefile("rb", 0), connection.makefile("wb")
    with connection, incoming, contextlib.suppress(OSError), outgoing:
        _serve(Channel(incoming, outgoing), file)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _own(listening: socket.socket) -> socket.socket:
    """The first connection that is not another user's, as far as the operating system knows."""
    while True:
        connection, _ = listening.accept()
        if user_of(connection) in {None, os.getuid(), 0}:
            return connection
        connection.close()


def user_of(connection: socket.socket) -> int | None:
    """The user at the other end; None: not known."""
    address, port = connection.getpeername()
    end = f"{socket.inet_aton(address)[::-1].hex().upper()}:{port:04X}"
    try:
        rows = [line.split() for line in _TABLE.read_text().splitlines()[1:]]
    except OSError:
        return None
    return next((int(row[7]) for row in rows if row[1] == end), None)
