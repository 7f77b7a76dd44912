"""Run: all ranks of a folder on one clock, and who waited for whom.

Note [Released together]
A rank that joins a collective without awaiting it, as FSDP gathers parameters ahead, goes on with
the node that is under way, and nothing is seen of that before the node ends. But collectives let go
of all ranks together: once all have joined, the first rank that goes on says when. What others do
from then on is their own work.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.median import median
from agviz.ranks.clocks import Awaited, clocks
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
    last: int
    """The rank that joined last."""
    last_ns: int
    """When it did."""
    released_ns: int
    """When the first rank went on once all had joined: Note [Released together]."""

    @classmethod
    def of(cls, key: Key, by_rank: dict[int, Joined], joined: dict[int, int]) -> Meeting:
        """That of some ranks.

        Args:
            key: what it has in common.
            by_rank: how each joined it.
            joined: when each did, on the clock of the first.
        """
        first = next(iter(by_rank.values()))
        last = max(joined, key=joined.__getitem__)
        at = joined[last]
        went_on = (time_ns + by_rank[rank].blocked_ns for rank, time_ns in joined.items())
        released = min((time_ns for time_ns in went_on if time_ns > at), default=at)
        return cls(key, first.ordinal, first.is_inside, by_rank, joined, last, at, released)

    def waiting_ns(self, rank: int) -> int:
        """How long a rank waited for others."""
        return min(self.by_rank[rank].blocked_ns, self.last_ns - self.joined[rank])

    def transfer_ns(self, rank: int) -> int:
        """How long it was held once all were there: Note [Released together]."""
        went_on = self.joined[rank] + self.by_rank[rank].blocked_ns
        return max(0, min(went_on, self.released_ns) - self.last_ns)

    @property
    def lateness_ns(self) -> int:
        """How much later the last rank joined than the median of the others."""
        others = [time for rank, time in self.joined.items() if rank != self.last]
        return self.last_ns - int(median(others)) if others else 0


@dataclass(frozen=True)
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
        return cls(folder, found, clocks(folder.ranks, {n: _awaited(r) for n, r in found.items()}))

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
        return self._meetings

    @cached_property
    def _meetings(self) -> list[Meeting]:
        joined: defaultdict[Key, dict[int, Joined]] = defaultdict(dict)
        for number, rank in self.ranks.items():
            for one in rank.joined:
                if waits_for_all(one):
                    joined[one.key][number] = one
        found = []
        for key, by_rank in joined.items():
            if len(by_rank) > 1 and len({one.kind for one in by_rank.values()}) == 1:
                times = {n: self.on_one_clock(n, one.time_ns) for n, one in by_rank.items()}
                found.append(Meeting.of(key, by_rank, times))
        return sorted(found, key=lambda meeting: min(meeting.joined.values()))


def _awaited(rank: RankFacts) -> dict[Key, Awaited]:
    """The last collective of each pass, which a rank has to await before the pass can end."""
    last = {one.ordinal: one for one in rank.joined if one.is_inside and waits_for_all(one)}
    ends = {one.ordinal: one.end_ns for one in rank.passes}
    return {
        one.key: Awaited(one.time_ns, end_ns)
        for one in last.values()
        if (end_ns := ends.get(one.ordinal)) is not None
    }


def waits_for_all(one: Joined) -> bool:
    """Whether a collective lets go of a rank only when all ranks have joined."""
    operation = one.kind.split(" ", 1)[0].lstrip("_")
    return not one.key[1] and operation not in _NOT_ALL
