"""Run programs of Python in processes of their own, as tests do hundreds of times.

Most of what ``python -m agviz ...`` costs is the import of torch. So ``agviz`` and ``pytest`` are
forked from a process that has it imported (``tests/warm``). Any other call, and one that asks for
something special of the interpreter, is a process as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ANSWERED: Final = frozenset(
    {"PYTHONPATH", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
)
"""What the server does as the interpreter would, of the variables that an interpreter reads."""


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str = "",  # noqa: A002 - as `subprocess.run` calls it
    encoding: str = "utf-8",
    check: bool = False,
    timeout: float = 120,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run(command, capture_output=True, text=True, ...)``.

    Args:
        command: an interpreter with its arguments.
        cwd: where; here, if left out.
        env: its whole environment; ours, if left out.
        input: what it reads.
        encoding: of all three streams.
        check: whether an exit code other than 0 is an error.
        timeout: in seconds.
        fresh: whether it matters that torch is not imported yet.

    Raises:
        subprocess.CalledProcessError: if ``check``, and it failed.
        subprocess.TimeoutExpired: it was killed after ``timeout``.
    """
    words = [os.fspath(each) for each in command]
    environment = dict(os.environ if env is None else env)
    if fresh or not _can_be_forked(words, environment):
        return subprocess.run(
            words,
            cwd=cwd,
            env=environment,
            input=input,
            encoding=encoding,
            check=check,
            timeout=timeout,
            capture_output=True,
        )
    with contextlib.ExitStack() as files:
        streams = [files.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(input.encode(encoding))
        streams[0].seek(0)
        call = {
            "module": words[2],
            "arguments": words[3:],
            "cwd": str(Path(cwd or ".").absolute()),
            "env": environment,
        }
        server = _server(words[2])
        socket.send_fds(server, [json.dumps(call).encode()], [each.fileno() for each in streams])
        child = int(server.recv(64))
        server.settimeout(timeout)
        try:
            code = int(server.recv(64))
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            server.settimeout(None)
            server.recv(64)
            raise subprocess.TimeoutExpired(words, timeout) from None
        printed = []
        for stream in streams[1:]:
            stream.seek(0)
            printed.append(stream.read().decode(encoding))
    done = subprocess.CompletedProcess(words, code, *printed)
    if check:
        done.check_returncode()
    return done


def _can_be_forked(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether it is one of the modules that tests run so often, in an interpreter as it is here."""
    asked = {name for name in environment if name.startswith("PYTHON")}
    modules = [sys.executable, "-m", "agviz"], [sys.executable, "-m", "pytest"]
    return words[:3] in modules and asked <= _ANSWERED


@functools.cache
def _server(module: str) -> socket.socket:
    """The connection to a server of this process's own, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AGVIZ", "PYTHON"))}
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(its.fileno())],
        env=clean | {"PYTHONPATH": str(Path(__file__).with_name("warm"))},
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
    its.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours
