"""Run: all ranks of a folder on one clock, and who waited for whom."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.ranks.clocks import clocks
from agviz.ranks.facts import facts
from agviz.traces.nodes import undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.ranks.clocks import Clock
    from agviz.ranks.facts import Joined, Key, PassFacts, RankFacts
    from agviz.ranks.folder import Folder

_NOT_ALL: Final = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
"""Operations that need not wait for all ranks: only those that receive wait."""


class Meeting(NamedTuple):
    """A collective that several ranks joined. Times are those of the first rank's clock, in ns."""

    key: Key
    ordinal: int
    """Of the pass of the first rank in which, or after which, it was joined; -1: before all."""
    is_inside: bool
    """Whether it was joined in that."""
    by_rank: dict[int, Joined]
    joined: dict[int, int]
    """By rank: when it joined."""

    @property
    def last(self) -> int:
        """The rank that joined last."""
        return max(self.joined, key=lambda rank: self.joined[rank])

    def waiting_ns(self, rank: int) -> int:
        """How long a rank waited for others."""
        most = max(self.joined.values()) - self.joined[rank]
        return min(self.by_rank[rank].blocked_ns, most)

    def transfer_ns(self, rank: int) -> int:
        """How long it was blocked once all were there."""
        return self.by_rank[rank].blocked_ns - self.waiting_ns(rank)

    @property
    def lateness_ns(self) -> int:
        """How much later the last rank joined than the median of the others."""
        last = self.last
        others = [time for rank, time in self.joined.items() if rank != last]
        return self.joined[last] - int(median(others)) if others else 0


@dataclass(frozen=True, slots=True)
class Run:
    """All ranks, read once."""

    folder: Folder
    ranks: dict[int, RankFacts]
    clocks: dict[int, Clock]

    @classmethod
    def read(cls, folder: Folder) -> Run:
        """Read all ranks, one after the other.

        Raises:
            agviz.errors.TraceError: a file is damaged.
        """
        found = {}
        for file, trace in folder.traces():
            with undisturbed():
                found[file.number] = facts(file, trace)
        return cls(folder, found, clocks(folder.ranks, {n: _releases(r) for n, r in found.items()}))

    def on_one_clock(self, rank: int, time_ns: int) -> int:
        """A time of a rank's own clock, on that of the first rank."""
        return time_ns + self.clocks[rank].offset_ns

    def common_passes(self) -> Iterator[dict[int, PassFacts]]:
        """Passes of the same number, by rank, as far as all ranks came."""
        most = min(len(rank.passes) for rank in self.ranks.values())
        for ordinal in range(most):
            yield {number: rank.passes[ordinal] for number, rank in self.ranks.items()}

    def meetings(self) -> list[Meeting]:
        """The collectives that several ranks joined and that wait for all, in order of time."""
        joined: defaultdict[Key, dict[int, Joined]] = defaultdict(dict)
        for number, rank in self.ranks.items():
            for one in rank.joined:
                if waits_for_all(one):
                    joined[one.key][number] = one
        found = []
        for key, by_rank in joined.items():
            first = next(iter(by_rank.values()))
            if len(by_rank) > 1 and len({one.kind for one in by_rank.values()}) == 1:
                found.append(
                    Meeting(
                        key,
                        first.ordinal,
                        first.is_inside,
                        by_rank,
                        {n: self.on_one_clock(n, one.time_ns) for n, one in by_rank.items()},
                    )
                )
        return sorted(found, key=lambda meeting: min(meeting.joined.values()))


def _releases(rank: RankFacts) -> dict[Key, int]:
    """When the last collective of each pass had let go of a rank: that one it has to await."""
    last = {one.ordinal: one for one in rank.joined if one.is_inside and waits_for_all(one)}
    return {one.key: one.release_ns for one in last.values()}


def waits_for_all(one: Joined) -> bool:
    """Whether a collective lets go of a rank only when all ranks have joined."""
    operation = one.kind.split(" ", 1)[0].lstrip("_")
    return not one.key[1] and operation not in _NOT_ALL
