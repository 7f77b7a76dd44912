"""Run programs of Python in processes of their own, as tests do hundreds of times.

Most of what ``python -m agviz run ...`` costs is the import of torch. So ``agviz`` with a verb
that needs it, ``pytest`` and ``-c CODE`` are forked from a process that has it imported
(``tests/warm``). There is one for each CODE, which pays if that runs more than once. Any other
call, and one that asks for something special of the interpreter, is a process as usual. Calls of
several threads run at the same time.
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
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ANSWERED: Final = frozenset(
    {"PYTHONPATH", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
)
"""What the server does as the interpreter would, of the variables that an interpreter reads."""
_NEED_TORCH: Final = frozenset({"check", "demo", "doctor", "repro", "run", "verify"})
"""The verbs that import it: what only reads is sooner done by an interpreter that starts anew."""
_ROOT: Final = Path(__file__).parents[1]
_starting: Final = threading.Lock()


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
        where = str(Path(cwd or ".").absolute())
        call = {"arguments": words[3:], "cwd": where, "env": environment}
        answer, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files.enter_context(answer)
        with _starting, its:
            descriptors = [*(each.fileno() for each in streams), its.fileno()]
            is_agviz = words[1:3] == ["-m", "agviz"]
            with_agviz = is_agviz and _finds_this_agviz(where, environment)
            server = _server(*words[1:3], with_agviz=with_agviz)
            socket.send_fds(server, [json.dumps(call).encode()], descriptors)
        child = int(answer.recv(64))
        answer.settimeout(timeout)
        try:
            code = int(answer.recv(64))
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            answer.settimeout(None)
            answer.recv(64)
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
    """Whether it is what tests run so often and needs torch, in an interpreter as it is here."""
    asked = {name for name in environment if name.startswith("PYTHON")}
    if words[:1] != [sys.executable] or not asked <= _ANSWERED:
        return False
    match words[1:]:
        case ["-c", *_] | ["-m", "pytest", *_]:
            return True
        case ["-m", "agviz", verb, *_]:
            return verb in _NEED_TORCH
    return False


def _finds_this_agviz(cwd: str, environment: Mapping[str, str]) -> bool:
    """Whether ``import agviz`` in a process with this environment gets the one that is tested."""
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    places = [Path(cwd, each) for each in ("", *given)]
    return all(each == _ROOT for each in places if (each / "agviz").is_dir())


@functools.cache
def _server(*start: str, with_agviz: bool) -> socket.socket:
    """The connection to a server of this process's own, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AGVIZ", "PYTHON"))}
    clean["PYTHONPATH"] = str(Path(__file__).with_name("warm"))
    if with_agviz:
        clean["WITH_AGVIZ"] = "1"
    process = subprocess.Popen(
        [sys.executable, *start, str(its.fileno())],
        env=clean,
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
