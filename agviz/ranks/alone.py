"""A single trace, read as a run of one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agviz.ranks.clocks import Clock
from agviz.ranks.facts import facts
from agviz.ranks.folder import Folder, RankFile
from agviz.ranks.run import Run
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from os import PathLike


def alone(path: str | PathLike[str]) -> Run:
    """The process of one trace as a run; its number is its rank, 0 where it has none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    place = Path(path)
    with Trace.open(place) as trace:
        rank = trace.meta.rank
        number = 0 if rank is None else rank.number
        file = RankFile(number, place, trace.meta)
        found = facts(file, trace)
    folder = Folder(place, [file], older=[], others=[], unreadable={})
    return Run(folder, {number: found}, {number: Clock(0, 0, "monotonic")})
