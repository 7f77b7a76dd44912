"""Waiting for a viewer: a unix socket that only this user can reach.

It lies in a folder of mode 0700 that has to be this user's own, and has mode 0600 itself. Where the
operating system knows who is at the other end, it has to be the same user.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.debugger.messages import Said, as_said
from agviz.debugger.protocol import encode
from agviz.errors import AgvizError
from agviz.record.descriptors import identity_of
from agviz.traces.contents import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIX: Final = ".sock"
_NAME: Final = re.compile(r"[1-9]\d{0,9}\.sock")
_ATTACHED: Final = "another viewer is attached"
_SECONDS_TO_LEAVE: Final = 2.0
"""A viewer that has just gone may take as long to be let go of."""


def folder() -> Path:
    """Where the sockets of this user's programs lie; made where it is absent.

    Raises:
        agviz.errors.AgvizError: somebody else could reach into it.
    """
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
        raise AgvizError("a program can't be attached to on this platform: it has no Unix sockets")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        path = Path(runtime) / "agviz"
    else:
        path = Path(tempfile.gettempdir()) / f"agviz-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise AgvizError(f"no socket can be made in {path}: {error.strerror}") from None
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise AgvizError(f"{path} could be reached by others; remove it, or set its mode to 700")
    return path


def address(target: str) -> Path:
    """The socket that ``agviz attach`` is to connect to.

    Args:
        target: number of a process, or the path of a socket.

    Raises:
        agviz.errors.AgvizError: there is none.
    """
    if target.isdecimal():
        path = folder() / f"{int(target)}{_SUFFIX}"
        if not path.exists():
            raise AgvizError(
                f"process {target} does not listen: start it with agviz run, without --no-listen"
                " and --on, or let it call agviz.set_trace()"
            )
        return path
    path = Path(target)
    if not path.exists():
        raise AgvizError(f"there is no socket {target}; name one, or the number of a process")
    return path


def sweep() -> None:
    """Remove the sockets of this user's programs that were killed.

    A socket is let be where a process of its number is alive, or where anybody answers: processes
    of a container have numbers of their own.
    """
    with contextlib.suppress(OSError, AgvizError):
        for each in folder().iterdir():
            if _NAME.fullmatch(each.name):
                with contextlib.suppress(OSError):
                    _remove_if_dead(each)


def _remove_if_dead(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid() or is_alive(int(path.stem)):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()


def connect(target: str) -> socket.socket:
    """A connection to a program that listens.

    Raises:
        agviz.errors.AgvizError: nobody listens there, or it is another user's.
    """
    try:
        return _connected(address(target))
    finally:
        sweep()


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
    except OSError as error:
        connection.close()
        raise AgvizError(
            f"nobody listens at {path} any more ({error.strerror}); the program has ended"
        ) from None
    if not is_own(connection):
        connection.close()
        raise AgvizError(f"{path} belongs to another user's program")
    return connection


def is_own(connection: socket.socket) -> bool:
    """Whether the other end is the same user's, as far as the operating system knows."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


class Listening:
    """Listens until :meth:`stop`, and serves one viewer at a time.

    Args:
        serve: called with each viewer's connection, on a thread of its own; it closes it.
        waits: whether a thread waits for viewers; else somebody calls :meth:`look` now and then,
            and there is no thread until one comes.

    Raises:
        agviz.errors.AgvizError: no socket can be made.
    """

    def __init__(self, serve: Callable[[socket.socket], None], *, waits: bool = True) -> None:
        self._serve = serve
        self._busy = threading.Lock()
        self.path = folder() / f"{os.getpid()}{_SUFFIX}"
        sweep()
        with contextlib.suppress(FileNotFoundError):  # of an earlier process with this number
            self.path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        half = self.path.with_suffix(".new")  # nobody finds it before it is as it has to be
        try:
            half.unlink(missing_ok=True)
            self._socket.bind(os.fspath(half))
            half.chmod(0o600)
            self._socket.listen(4)
            half.rename(self.path)
        except OSError as error:
            self._socket.close()
            raise AgvizError(f"no socket can be made at {self.path}: {error.strerror}") from None
        self._is_over = False
        self._pid = os.getpid()
        self._identity = identity_of(self._socket.fileno())
        _listening.add(self)
        self._socket.setblocking(waits)
        if waits:
            threading.Thread(target=self._accept, name="agviz-listening", daemon=True).start()

    def stop(self) -> None:
        """Listen no longer; who is attached stays so."""
        self._is_over = True
        is_ours = self._is_ours()
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                if is_ours:
                    self._socket.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                self.path.unlink()
        if is_ours:
            self._socket.close()
        else:
            self._socket.detach()

    def _is_ours(self) -> bool:
        """Whether the descriptor is what it was: a program may close it, and reuse its number."""
        return identity_of(self._socket.fileno()) == self._identity

    def look(self) -> None:
        """Serve a viewer that has come, on a thread of its own; does not raise."""
        with contextlib.suppress(OSError):  # nobody has come
            if self._is_ours():
                self._begin_with(self._socket.accept()[0])

    def _accept(self) -> None:
        while not self._is_over and self._is_ours():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._begin_with(connection)

    def _begin_with(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        with contextlib.suppress(RuntimeError):  # the interpreter ends: no thread can begin
            threading.Thread(
                target=self._welcome, args=(connection,), name="agviz-control", daemon=True
            ).start()

    def _welcome(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.closing(connection):
            if not is_own(connection):
                return
            if not self._busy.acquire(timeout=_SECONDS_TO_LEAVE):
                connection.sendall(encode(as_said(Said(what="refused", why=_ATTACHED))))
                return
            try:
                self._serve(connection)
            finally:
                self._busy.release()


_listening: weakref.WeakSet[Listening] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for listening in list(_listening):
        listening.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
