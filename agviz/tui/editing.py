"""Opens the user's editor at a line of the program."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from textual.app import SuspendNotSupported

from agviz.analysis.source import find_file

if TYPE_CHECKING:
    from pathlib import Path

    from textual.app import App

_WITH_GOTO: Final = {"code", "code-insiders", "codium", "cursor", "windsurf"}
_WITH_COLON: Final = {"hx", "helix", "subl", "zed"}


def edit(app: App[None], file: str, line: int, beside: str) -> str:
    """Open the editor that the user has chosen, and wait until he leaves it.

    Args:
        app: gives the terminal to the editor meanwhile.
        file: as a frame has it.
        line: from 1.
        beside: the trace, in whose folder the file is looked for, too.

    Returns:
        Why it was not opened, or what went wrong; empty where all went well.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    path = find_file(file, beside)
    if not chosen.strip():
        return "No editor is chosen: set $VISUAL or $EDITOR."
    if path is None:
        return f"{file} is not on this machine; the panel shows its text as it was recorded."
    try:
        words = command(chosen, path, line)
        with app.suspend():
            ended = subprocess.run(words, check=False)
    except SuspendNotSupported:
        return "An editor can only be opened where agviz runs in a terminal."
    except (OSError, ValueError) as error:
        return f"The editor {chosen} can't be started: {error}"
    return (
        f"The editor {chosen} ended with exit code {ended.returncode}." if ended.returncode else ""
    )


def command(chosen: str, path: Path, line: int) -> list[str]:
    """What is run. Raises ValueError where ``chosen`` is no command line."""
    words = shlex.split(chosen, posix=os.name == "posix")
    name = PurePath(words[0]).stem.lower()
    if name in _WITH_GOTO:
        # It returns at once, unless it is to wait.
        return [*words, "-g", f"{path}:{line}"]
    if name in _WITH_COLON:
        return [*words, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]
