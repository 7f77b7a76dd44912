"""The files of a node that is to run alone: a script, and the tensors beside it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.repro.isolated_node import encode
from agviz.repro.script import write_script
from agviz.words.safe import clean, clean_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agviz.repro.isolated_node import IsolatedNode
    from agviz.repro.safetensors import StoredTensor

_SECONDS: Final = 300


class ReproFiles(NamedTuple):
    """Where they are."""

    script: Path
    tensors: Path
    replaced: tuple[Path, ...]
    """Those of them that were there before."""


def write_files(
    node: IsolatedNode,
    tensors: dict[str, StoredTensor],
    folder: Path,
    stem: str,
    about: Sequence[str],
) -> ReproFiles:
    """Write both; the same node gives the same bytes.

    Args:
        node: which can be run alone.
        tensors: its elements.
        folder: where to; it is made where there is none.
        stem: name of both without an ending.
        about: sentences for the head of the script.

    Raises:
        agviz.errors.AgvizError: they can't be written.
    """
    script, data = folder / f"{stem}.py", folder / f"{stem}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replaced = tuple(path for path in (script, data) if path.exists())
        data.write_bytes(encode(node, tensors))
        script.write_text(write_script(node, data.name, about), encoding="ascii", newline="\n")
    except OSError as error:
        name = clean(str(error.filename or folder))
        raise AgvizError(f"{name} can't be written: {error.strerror}") from error
    return ReproFiles(script, data, replaced)


def run_script(script: Path) -> tuple[bool, str]:
    """Run it in a fresh process: whether it gave the same bits, and what it said.

    Raises:
        agviz.errors.AgvizError: it took too long.
    """
    try:
        ended = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AgvizError(f"{clean(str(script))} did not end within {_SECONDS} s") from None
    said = ended.stdout if ended.returncode in {0, 1} and not ended.stderr else ended.stderr
    return ended.returncode == 0, clean_message(said.strip())
