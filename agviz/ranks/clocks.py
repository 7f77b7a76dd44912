"""One clock for all ranks.

Processes of one host share the monotonic clock. Hosts do not: their wall clocks say roughly how far
they are apart, and where backward passes end together, because the last collective in them lets go
of all ranks at once, that says it better. What is left is given as an error.

Note [Bounds of a clock]
Ranks end a pass soon after its last collective lets go of them, which says how far their clocks are
apart. How soon, nobody knows. What is certain is the order: no rank ends the pass before all have
joined. So each collective bounds the offset from both sides, and the error reaches to the bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.median import median

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


class Awaited(NamedTuple):
    """A collective that a rank awaited, on its own clock: Note [Bounds of a clock]."""

    joined_ns: int
    end_ns: int
    """When its backward pass had ended, which awaits the collective."""


def clocks(
    ranks: Sequence[RankFile], awaited: Mapping[int, Mapping[Key, Awaited]]
) -> dict[int, Clock]:
    """The clock of each rank.

    Args:
        ranks: of one run.
        awaited: by rank and collective, those that waited for all ranks.
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
            clock = Clock(0, 0, "monotonic") if same else _apart(first, rank, alike, awaited)
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
    awaited: Mapping[int, Mapping[Key, Awaited]],
) -> Clock:
    reference = awaited.get(first.number, {})
    both = [
        (reference[key], other)
        for number in alike
        for key, other in awaited.get(number, {}).items()
        if key in reference
    ]
    if not both:
        wall = (rank.meta.started_unix_ns - rank.meta.start_ns) - (
            first.meta.started_unix_ns - first.meta.start_ns
        )
        return Clock(wall, None, "wall")
    apart = sorted(here.end_ns - there.end_ns for here, there in both)
    least = max(here.joined_ns - there.end_ns for here, there in both)
    most = min(here.end_ns - there.joined_ns for here, there in both)
    offset = int(median(apart))
    if least <= most:
        offset = min(max(offset, least), most)
    error = max(offset - least, most - offset, apart[-1] - offset, offset - apart[0])
    return Clock(offset, error, "collectives")
