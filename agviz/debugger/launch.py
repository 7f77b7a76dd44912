"""Starting a program to debug it: ``agviz run`` in a child process, with a socket between them.

What the program prints goes into files without names, not into pipes: where the viewer dies there
is nobody to read a pipe, and the program would end or block with its next print.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any, Final, Self

from agviz.debugger.client import Client, GoneError
from agviz.errors import AgvizError
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agviz.debugger.messages import Notice

CONTROL_FD: Final = "--control-fd"
"""Option of ``agviz run`` that names the socket it has inherited."""
_SECONDS_TO_END: Final = 5.0
_MOST_BYTES: Final = 1 << 20


class ProgramOutput:
    """What a program has printed, and goes on printing."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with this
        self._read = 0

    def read(self) -> bytes:
        """What has come since the last call, at most 1 MiB; empty: nothing."""
        found = os.pread(self.file.fileno(), _MOST_BYTES, self._read)
        self._read += len(found)
        return found

    def close(self) -> None:
        """Read no more; the program can go on printing."""
        self.file.close()


class Debuggee:
    """A program that was started to be debugged.

    Args:
        arguments: of ``agviz run``: options, script and its own arguments.
        cwd: where it runs.
        env: its environment; None: this process's.
        on_notice: as for :class:`Client`.

    Raises:
        agviz.errors.AgvizError: it ended before it could be debugged; its own words say why.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> None:
        if os.name != "posix":
            raise AgvizError("a program can't be started to be debugged on this platform")
        ours, theirs = socket.socketpair()
        self.stdout, self.stderr = ProgramOutput(), ProgramOutput()
        with theirs:
            command = [sys.executable, "-m", "agviz", "run", CONTROL_FD, str(theirs.fileno())]
            self.process: subprocess.Popen[Any] = subprocess.Popen(
                [*command, *arguments],
                cwd=cwd,
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.stdout.file,
                stderr=self.stderr.file,
            )
        try:
            self.client = Client(ours, on_notice)
        except BaseException as error:
            self.end()
            said = clean(self.stderr.read().decode(errors="replace").strip())
            self._close_output()
            if not isinstance(error, GoneError):
                raise
            raise AgvizError(said.removeprefix("agviz: ") or "the program has not begun") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program, and let go of it."""
        self.end()
        self.client.close()
        self._close_output()

    def _close_output(self) -> None:
        self.stdout.close()
        self.stderr.close()

    def end(self) -> None:
        """End the program, if it runs still; one that will not is killed."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_SECONDS_TO_END)
                return
            self.process.kill()
        self.process.wait()

    def exit_code(self) -> int:
        """Wait until it has ended; its exit code as a shell has it."""
        code = self.process.wait()
        return 128 - code if code < 0 else code
