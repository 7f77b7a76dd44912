"""Writing an export: piece by piece, compressed where the name ends in ``.gz``, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from agviz.errors import AgvizError
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_COMPRESSION: Final = 6


def write(path: Path, pieces: Iterable[str]) -> None:
    """Write ``pieces``, which are ASCII, to ``path``; the same pieces give the same bytes.

    Raises:
        agviz.errors.AgvizError: the file can't be written. What was begun of it is removed, then
            as after every other exception.
    """
    try:
        with path.open("wb") as file:
            try:
                if path.suffix == ".gz":
                    _compress(file, pieces)
                else:
                    write_to(file, pieces)
            except BaseException:
                with contextlib.suppress(OSError):
                    if path.is_file():
                        path.unlink()
                raise
    except OSError as error:
        raise AgvizError(f"{clean(str(path))} can't be written: {error.strerror}") from error


def write_to(file: BinaryIO, pieces: Iterable[str]) -> None:
    """Write ``pieces`` to a file that is open."""
    text = io.TextIOWrapper(
        cast("io.BufferedWriter", file), encoding="ascii", newline="\n", write_through=False
    )
    try:
        text.writelines(pieces)
        text.flush()
    finally:
        text.detach()


def _compress(file: BinaryIO, pieces: Iterable[str]) -> None:
    # Neither the name nor the time of writing is noted, so that the bytes repeat.
    with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed:
        write_to(cast("BinaryIO", compressed), pieces)
