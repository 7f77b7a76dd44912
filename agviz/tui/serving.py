"""The terminal UI in a browser, served to this machine only: a program per page that is opened."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from textual_serve.server import Server

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOST = "localhost"


class _Served(Server):
    """Pages of other sites that the browser has open may not type into the program."""

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run the program for a page, if it is one of ours."""
        if request.headers.get("Origin") != self.public_url:
            raise web.HTTPForbidden(text="This is no page of agviz.")
        return await super().handle_websocket(request)


def serve(command: Sequence[str], port: int) -> None:
    """Serve a command of agviz until it is interrupted.

    Args:
        command: the program and its arguments.
        port: where; 0 to 65,535.

    Raises:
        AgvizError: the port is taken, or is none.
    """
    templates = Path(__file__).with_name("served")
    server = _Served(
        shlex.join(command), host=_HOST, port=port, title="agviz", templates_path=templates
    )
    try:
        server.serve()
    except (OSError, OverflowError) as error:
        why = f"can't be opened: {error}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            why = "is in use already; name another one with --port"
        raise AgvizError(f"port {port} {why}") from error
