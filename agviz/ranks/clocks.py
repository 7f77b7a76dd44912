"""One clock for all ranks.

Processes of one host share the monotonic clock. Hosts do not: their wall clocks say roughly how far
they are apart, and where backward passes end together, because the last collective in them lets go
of all ranks at once, that says it better. What is left is given as an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.ranks.median import median

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.ranks.facts import Key
    from agviz.ranks.folder import RankFile


class Clock(NamedTuple):
    """How a rank's times become those of the first rank."""

    offset_ns: int
    """Added to its ``time.monotonic_ns()``."""
    error_ns: int | None
    """How far off that may be; 0: it is the same clock; None: only wall clocks say."""
    source: str
    """``monotonic``, ``collectives`` or ``wall``."""


def clocks(
    ranks: Sequence[RankFile], releases: Mapping[int, Mapping[Key, int]]
) -> dict[int, Clock]:
    """The clock of each rank.

    Args:
        ranks: of one run.
        releases: by rank and collective, when a collective that waits for all had let go of the
            rank, on its own clock.
    """
    first = ranks[0]
    hosts: dict[object, Clock] = {}
    found = {}
    for rank in ranks:
        host = _host(rank)
        clock = hosts.get(host)
        if clock is None:
            same = host == _host(first)
            alike = [other.number for other in ranks if _host(other) == host]
            clock = Clock(0, 0, "monotonic") if same else _apart(first, rank, alike, releases)
            hosts[host] = clock
        found[rank.number] = clock
    return found


def _host(rank: RankFile) -> object:
    place = rank.rank
    return place.boot or place.host or rank.number


def _apart(
    first: RankFile,
    rank: RankFile,
    alike: Sequence[int],
    releases: Mapping[int, Mapping[Key, int]],
) -> Clock:
    reference = releases.get(first.number, {})
    apart = sorted(
        reference[key] - time_ns
        for number in alike
        for key, time_ns in releases.get(number, {}).items()
        if key in reference
    )
    if apart:
        middle = int(median(apart))
        # Not the quartiles: on a busy machine the releases that a rank observes late come in rows.
        error = max(apart[-1] - middle, middle - apart[0])
        return Clock(middle, error, "collectives")
    wall = (rank.meta.started_unix_ns - rank.meta.start_ns) - (
        first.meta.started_unix_ns - first.meta.start_ns
    )
    return Clock(wall, None, "wall")
