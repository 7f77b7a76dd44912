"""Folder: the traces of all ranks of one run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agviz.errors import TraceError
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from agviz.traces.rows import Meta, Rank

SUFFIX = ".agviz"
_MOST_NAMED = 4


class RankFile(NamedTuple):
    """The trace of one rank."""

    number: int
    """The rank."""
    path: Path
    meta: Meta

    @property
    def rank(self) -> Rank:
        """Which of how many processes it is of."""
        rank = self.meta.rank
        if rank is None:
            raise TypeError(f"{self.path} is of no rank")
        return rank


class Folder:
    """The ranks of one run, by number.

    A folder may hold several runs: of each rank the trace that was begun last counts.

    Args:
        path: the folder.
        ranks: its ranks.
        older: traces of earlier runs in it.
        others: traces that are of no rank.
        unreadable: files that can't be read, and why.
    """

    def __init__(
        self,
        path: Path,
        ranks: list[RankFile],
        *,
        older: list[Path],
        others: list[Path],
        unreadable: dict[Path, str],
    ) -> None:
        self.path, self.ranks = path, ranks
        self.older, self.others, self.unreadable = older, others, unreadable

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Folder:
        """Read who is in a folder: of each file only what it says of itself.

        Raises:
            agviz.errors.TraceError: there is no trace of a rank in it.
        """
        folder = Path(path)
        newest: dict[int, RankFile] = {}
        older: list[Path] = []
        others: list[Path] = []
        unreadable: dict[Path, str] = {}
        files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX)
        for file in files:
            try:
                with Trace.open(file) as trace:
                    meta, is_empty = trace.meta, not trace.graph_tasks
            except TraceError as error:
                unreadable[file] = str(error)
                continue
            if meta.rank is None:
                if not is_empty:  # as that of a process that only starts the others
                    others.append(file)
                continue
            found = RankFile(meta.rank.number, file, meta)
            known = newest.get(found.number)
            if known is None:
                newest[found.number] = found
                continue
            last, first = sorted((found, known), key=_started, reverse=True)
            newest[found.number] = last
            older.append(first.path)
        ranks = [newest[number] for number in sorted(newest)]
        if ranks:
            size = max(ranks, key=_started).rank.world_size
            older += [rank.path for rank in ranks if rank.rank.world_size != size]
            ranks = [rank for rank in ranks if rank.rank.world_size == size]
        if not ranks:
            why = next(iter(unreadable.values()), "")
            raise TraceError(
                f"{folder} holds no trace of a rank"
                + (f" ({why})" if why else f" among its {len(files)} *.agviz files")
                + "; record all ranks into it, as agviz run --ranks 2 train.py does"
            )
        return cls(folder, ranks, older=older, others=others, unreadable=unreadable)

    def remarks(self) -> list[str]:
        """What of the folder was not looked at, in sentences."""
        found = []
        if self.older:
            names = ", ".join(path.name for path in self.older[:_MOST_NAMED])
            found.append(f"traces of earlier runs are left out: {names}")
        if self.others:
            names = ", ".join(path.name for path in self.others[:_MOST_NAMED])
            found.append(f"traces that are of no rank are left out: {names}")
        found += [f"left out: {why}" for why in list(self.unreadable.values())[:_MOST_NAMED]]
        return found

    @property
    def world_size(self) -> int:
        """How many processes there were."""
        return self.ranks[0].rank.world_size

    @property
    def missing(self) -> list[int]:
        """Ranks that left no trace here."""
        found = {rank.number for rank in self.ranks}
        return [number for number in range(self.world_size) if number not in found]

    def rank(self, number: int) -> RankFile:
        """One of them.

        Raises:
            agviz.errors.TraceError: it left no trace here.
        """
        for rank in self.ranks:
            if rank.number == number:
                return rank
        raise TraceError(f"{self.path} holds no trace of rank {number}")

    def traces(self) -> Iterator[tuple[RankFile, Trace]]:
        """Each rank with its trace, which is closed before the next one is opened."""
        for rank in self.ranks:
            with self.trace(rank.number) as trace:
                yield rank, trace

    @contextlib.contextmanager
    def trace(self, number: int) -> Iterator[Trace]:
        """The trace of one rank.

        Raises:
            agviz.errors.TraceError: it left none here, or it can't be read.
        """
        with Trace.open(self.rank(number).path) as trace:
            yield trace


def _started(rank: RankFile) -> int:
    return rank.meta.started_unix_ns
