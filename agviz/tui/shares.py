"""How a user shared out the room among the panels, kept for the next time."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Axis = Literal["columns", "rows"]

LEAST: Final = {"columns": 16, "rows": 3}
"""Cells that a track keeps, borders included."""
_MOST_TRACKS: Final = 8
_MOST_CELLS: Final = 2_000


class Tracks(NamedTuple):
    """Sizes in cells, as they were on the screen on which they were chosen; empty: not chosen."""

    columns: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


class Shares:
    """Tracks by the name of an arrangement, in a JSON file.

    Args:
        path: the file; None: nothing is kept.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._chosen = {} if path is None else _read(path)

    def of(self, arrangement: str) -> Tracks:
        """What was chosen for an arrangement of panels."""
        return self._chosen.get(arrangement, Tracks())

    def choose(self, arrangement: str, axis: Axis, sizes: Sequence[int]) -> None:
        """Take over sizes of all columns, or of all rows."""
        found = self.of(arrangement)
        self._chosen[arrangement] = (
            found._replace(columns=tuple(sizes))
            if axis == "columns"
            else found._replace(rows=tuple(sizes))
        )

    def forget(self, arrangement: str) -> None:
        """Share the room out as if nothing had been chosen."""
        self._chosen.pop(arrangement, None)

    def write(self) -> None:
        """Keep them; where that is not possible, they last as long as the program does."""
        if self._path is None:
            return
        found = {name: tracks._asdict() for name, tracks in sorted(self._chosen.items())}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        except OSError:
            pass


def moved(edges: Sequence[int], place: int, to: int, least: int) -> list[int]:
    """The sizes of tracks after one of the edges between them was moved.

    Args:
        edges: of the tracks in cells, the outer ones included.
        place: of the edge among them.
        to: where it is wanted; it stays ``least`` cells off its neighbours.
        least: cells.
    """
    low, high = edges[place - 1] + least, edges[place + 1] - least
    changed = [*edges]
    changed[place] = max(low, min(to, high)) if low <= high else edges[place]
    return [end - begin for begin, end in pairwise(changed)]


def _read(path: Path) -> dict[str, Tracks]:
    """What is in the file; a file that is not ours is as good as none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: Tracks(_sizes(tracks.get("columns")), _sizes(tracks.get("rows")))
        for name, tracks in found.items()
        if isinstance(tracks, dict)
    }


def _sizes(found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > _MOST_TRACKS:
        return ()
    sizes = [size for size in found if type(size) is int and 0 < size <= _MOST_CELLS]
    return tuple(sizes) if len(sizes) == len(found) else ()
