"""``agviz run --ranks N`` and ``agviz check --ranks N``: torchrun starts the ranks."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.errors import AgvizError, TraceError
from agviz.ranks.folder import Folder
from agviz.recording import name_of, say
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

OF_RANKS: Final = "--of-ranks"
"""Option of the verb in each rank: the folder to record into, or to leave notes in."""
_OF_KEYS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)
)
"""Signals that a terminal sends to all its processes."""
_ENDING: Final = ".ranks"


def launch(ranks: int, folder: Path | None, script: str, command: Sequence[str]) -> int:
    """Run a program in several ranks, until all have ended.

    Args:
        ranks: how many.
        folder: where the ranks record; None: a new one in this folder.
        script: a path, or ``-m`` and a module.
        command: arguments of ``agviz run``: options, then the script with its own.

    Returns:
        The exit code of torchrun; of a signal that ended it, as a shell has it.

    Raises:
        AgvizError: there is no torchrun, or the folder can't be made.
    """
    check_torchrun()
    made = _make(folder, script)
    code = torchrun(ranks, "run", made, command)
    say(_outcome(made, ranks))
    return code


def check_torchrun() -> None:
    """Refuse where ranks can't be started.

    Raises:
        AgvizError: there is no torchrun.
    """
    if importlib.util.find_spec("torch.distributed.run") is None:
        raise AgvizError("this torch has no torchrun; install one with torch.distributed")


def torchrun(
    ranks: int, verb: str, folder: Path, command: Sequence[str], stdout: int | None = None
) -> int:
    """Have torchrun run a verb in several ranks, until all have ended.

    Args:
        ranks: how many.
        verb: of ``agviz``, which knows :data:`OF_RANKS`.
        folder: where each rank leaves what it leaves.
        command: arguments of the verb: options, then the script with its own.
        stdout: the file descriptor that they print to; None: ours.

    Returns:
        The exit code of torchrun; of a signal that ended it, as a shell has it.
    """
    runner = "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"
    in_each = "-m", "agviz", verb, OF_RANKS, str(folder.absolute())
    # What torchrun would set, with a warning.
    environment = {"OMP_NUM_THREADS": "1"} if ranks > 1 else {}
    process = subprocess.Popen(
        [sys.executable, *runner, *in_each, *command],
        env={**environment, **os.environ},
        stdout=stdout,
    )
    code = _wait(process)
    return code if code >= 0 else 128 - code


def _make(folder: Path | None, script: str) -> Path:
    """The folder, which is there then."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        name = f"agviz-{name_of(script)}"
        for number in itertools.count(1):
            new = Path(f"{name}.{number}{_ENDING}" if number > 1 else f"{name}{_ENDING}")
            if not new.exists() or (new.is_dir() and not any(new.iterdir())):
                new.mkdir(exist_ok=True)
                return new
    except OSError as error:
        where = clean(str(folder or Path.cwd()))
        raise AgvizError(
            f"{where} can't be recorded into ({error.strerror}); name another folder with --output"
        ) from None
    raise AssertionError


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for torchrun, which gets the signals that this process gets."""

    def pass_on(number: int, _: FrameType | None) -> None:
        if number not in _OF_KEYS or not _is_in_foreground():
            process.send_signal(number)

    numbers = (signal.SIGTERM, *_OF_KEYS)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether keys of a terminal reach this process, and with it torchrun."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _outcome(path: Path, ranks: int) -> str:
    name = clean(str(path))
    try:
        folder = Folder.open(path)
    except TraceError:
        return f"no rank recorded anything in {name}"
    found = len(folder.ranks)
    recorded = plural(ranks, "rank") if found == ranks else f"{found} of {ranks} ranks"
    return f"recorded {recorded} in {name}; to read what they did: agviz explain {name}"
