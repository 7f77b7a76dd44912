"""What killed programs leave in the folder of sockets goes; nothing else does."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agviz.debugger import listening
from agviz.errors import AgvizError
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTENS = """
import time
from agviz.debugger.listening import Listening
listening = Listening(lambda connection: None)
print("listens", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return listening.folder()


@contextlib.contextmanager
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One that listens."""
    child = subprocess.Popen(
        [sys.executable, "-c", LISTENS],
        stdout=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert child.stdout is not None
    with child:
        child.stdout.readline()
        yield child
        child.kill()


def killed(tmp_path: Path) -> Path:
    """The socket of a program that was killed."""
    with program(tmp_path) as child:
        child.kill()
        child.wait()
    path = tmp_path / "agviz" / f"{child.pid}.sock"
    assert path.exists()
    return path


def dead_number() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_next_program_sweeps(folder: Path, tmp_path: Path) -> None:
    left = [killed(tmp_path) for _ in range(2)]
    with program(tmp_path) as child:
        assert [path.name for path in folder.iterdir()] == [f"{child.pid}.sock"]
    assert not any(path.exists() for path in left)


def test_a_recording_sweeps(folder: Path, tmp_path: Path) -> None:
    killed(tmp_path)
    (tmp_path / "program.py").touch()
    command = [sys.executable, "-m", "agviz", "run", "program.py"]
    environment = {**ENVIRONMENT, "XDG_RUNTIME_DIR": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("target", ["the dead one", "another", "nothing"])
def test_who_attaches_sweeps(folder: Path, tmp_path: Path, target: str) -> None:
    left = killed(tmp_path)
    with program(tmp_path) as child:
        number = {"the dead one": left.stem, "another": str(child.pid), "nothing": "1"}[target]
        if target == "another":
            listening.connect(number).close()
        else:
            with pytest.raises(AgvizError, match=r"any more|does not listen"):
                listening.connect(number)
        assert [path.name for path in folder.iterdir()] == [f"{child.pid}.sock"]


def test_what_is_alive_or_not_ours_stays(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    def bound(name: str, *, listens: bool) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(os.fspath(folder / name))
        if listens:
            made.listen(1)
        kept.append(name)
        return made

    with contextlib.ExitStack() as stack:
        # Answered by a process whose number means nothing here, as that of a container.
        stack.enter_context(bound(f"{dead_number()}.sock", listens=True))
        busy = stack.enter_context(bound(f"{dead_number()}.sock", listens=True))
        for _ in range(5):  # more than it has room for
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(busy.getsockname())
        # Of a living process that has closed all its files.
        bound(f"{os.getppid()}.sock", listens=False).close()
        # Of others, by their names and by what they are.
        bound("mine.sock", listens=False).close()
        bound(f"0{dead_number()}.sock", listens=False).close()
        bound(f"{dead_number()}.sock.bak", listens=False).close()
        for name in (f"{dead_number()}.sock", f"{dead_number()}.sock "):
            (folder / name).write_text("a file")
            kept.append(name)
        (folder / f"{dead_number()}.sock").mkdir()
        os.mkfifo(folder / (name := f"{dead_number()}.sock"))
        outside = tmp_path / "outside.sock"
        away = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        away.bind(os.fspath(outside))
        away.close()
        (folder / f"{dead_number()}.sock").symlink_to(outside)
        before = sorted(path.name for path in folder.iterdir())
        listening.sweep()
        assert sorted(path.name for path in folder.iterdir()) == before
        assert set(kept) | {name} <= set(before)
        assert outside.exists()
        # Another user's, in a folder that is shared by mistake.
        left = killed(tmp_path)
        monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
        with contextlib.suppress(AgvizError):
            listening._remove_if_dead(left)
        assert left.exists()


def test_a_folder_of_others_is_not_swept(folder: Path, tmp_path: Path) -> None:
    """Also not that of a socket that somebody names."""
    left = killed(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    moved = left.rename(other / left.name)
    with pytest.raises(AgvizError, match="nobody listens"):
        listening.connect(str(moved))
    assert moved.exists()
    folder.chmod(0o777)
    second = killed_in_place(folder, tmp_path)
    listening.sweep()
    assert second.exists()


def killed_in_place(folder: Path, tmp_path: Path) -> Path:
    """The same in a folder that a program would refuse."""
    folder.chmod(0o700)
    path = killed(tmp_path)
    folder.chmod(0o777)
    return path
