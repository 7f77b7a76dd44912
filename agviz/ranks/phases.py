"""What each rank did when, in a few words: forward, backward, waiting, transfer, between passes.

Only what :class:`~agviz.ranks.run.Run` keeps is asked. All times are those of the first rank's
clock, in ns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.median import median
from agviz.ranks.run import waits_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.ranks.facts import Joined, Key, PassFacts, RankFacts
    from agviz.ranks.run import Meeting, Run

_ODD: Final = 3.0
"""A rank is an outlier where its work is so many median deviations away from the median."""
_LEAST: Final = 0.02
"""And at least by so much of the time that is shown."""


class Phase(StrEnum):
    """What a rank does."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WAITING = "waiting"
    """For the last rank to join a collective: Note [Waiting] in ``facts.py``. Where no other rank
    was read, all the time in which one held it."""
    TRANSFER = "transfer"
    """Blocked in a collective that all have joined: Note [Released together] in
    :mod:`agviz.ranks.run`. Known inside of passes only, since nothing says what a rank does next
    outside of them."""
    BETWEEN = "between passes"
    """The optimizer, and whatever else comes after a pass and before the next forward."""


class Stretch(NamedTuple):
    """A rank does one thing."""

    phase: Phase
    begin_ns: int
    end_ns: int
    ordinal: int
    """Of the pass that it belongs to; what is between passes belongs to the one before."""
    key: Key | None
    """Of the collective that holds the rank; None: none does."""


class AllJoined(NamedTuple):
    """A collective that all ranks of the run have joined."""

    time_ns: int
    """When the last one did."""
    meeting: Meeting
    operation: str


class ChosenRanks(NamedTuple):
    """Which ranks are shown one by one, and which represent the others."""

    shown: tuple[int, ...]
    folded: tuple[int, ...]
    """Empty: all are shown."""
    samples: tuple[tuple[str, int], ...]
    """Of those folded: ``min``, ``median`` and ``max`` of their work, and which rank has that."""


class Phases:
    """What the ranks of a run did when."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._meetings = {meeting.key: meeting for meeting in run.meetings()}
        self._end_ns = max(run.on_one_clock(n, rank.last_ns) for n, rank in run.ranks.items())
        self._ordinals = {n: [one.ordinal for one in rank.joined] for n, rank in run.ranks.items()}
        self.passes = max(len(rank.passes) for rank in run.ranks.values())
        """How many the rank made that made most."""

    def meeting(self, key: Key) -> Meeting | None:
        """The ranks in a collective; None: it does not wait for all, or one rank alone joined."""
        return self._meetings.get(key)

    def stretches(self, number: int, first: int = 0, last: int | None = None) -> list[Stretch]:
        """What a rank did from pass ``first`` to pass ``last``, in order of time.

        What was before pass 0 belongs to it.
        """
        rank = self.run.ranks[number]
        last = len(rank.passes) - 1 if last is None else last
        held = list(self._held(rank, -1 if first == 0 else first, last))
        return sorted(self._cut(list(self._base(rank, first, last)), held), key=_begin)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """From when to when these passes, with their forwards, were under way in any rank."""
        moments: list[int] = []
        for number, rank in self.run.ranks.items():
            for one in rank.passes[first : last + 1]:
                moments += self._on(number, _started(one)), self._on(number, self._ended(rank, one))
        return (min(moments), max(moments)) if moments else (0, 1)

    def alignments(self, first: int, last: int) -> list[AllJoined]:
        """The collectives in or behind these passes that all ranks joined, in order of time."""
        found = []
        for number, rank in self.run.ranks.items():
            for one in self._joined(rank, first, last):
                meeting = self._meetings.get(one.key)
                if (
                    meeting is not None
                    and number == min(meeting.joined)
                    and len(meeting.joined) == self.run.folder.world_size
                ):
                    found.append(AllJoined(meeting.last_ns, meeting, one.kind.split(" ", 1)[0]))
        return sorted(found, key=lambda one: one.time_ns)

    def work_ns(self, number: int, first: int, last: int) -> int:
        """How long a rank was at work itself in these passes and their forwards."""
        return sum(
            stretch.end_ns - stretch.begin_ns
            for stretch in self.stretches(number, first, last)
            if stretch.phase in {Phase.FORWARD, Phase.BACKWARD}
        )

    def choose(self, most: int, first: int, last: int) -> ChosenRanks:
        """Which ranks to show where there is room for ``most`` lines, at least five.

        Those whose work differs most from that of the others are shown, in order of their numbers;
        of the others the one with the least, the median and the most.
        """
        numbers = sorted(self.run.ranks)
        if len(numbers) <= most:
            return ChosenRanks(tuple(numbers), (), ())
        work = {number: self.work_ns(number, first, last) for number in numbers}
        middle = median(work.values())
        away = {number: abs(work[number] - middle) for number in numbers}
        begin, end = self.span(first, last)
        limit = max(_ODD * median(away.values()), _LEAST * (end - begin))
        odd = sorted((n for n in numbers if away[n] > limit), key=lambda n: (-away[n], n))
        shown = sorted(odd[: most - 3])
        others = sorted((n for n in numbers if n not in shown), key=lambda n: (work[n], n))
        samples = (
            ("min", others[0]),
            ("median", others[len(others) // 2]),
            ("max", others[-1]),
        )
        return ChosenRanks(tuple(shown), tuple(sorted(others)), samples)

    def _on(self, number: int, time_ns: int) -> int:
        return self.run.on_one_clock(number, time_ns)

    def _ended(self, rank: RankFacts, one: PassFacts) -> int:
        """When a pass ended; of one that did not, when the last thing is known of the rank."""
        return rank.last_ns if one.end_ns is None else one.end_ns

    def _joined(self, rank: RankFacts, first: int, last: int) -> Sequence[Joined]:
        ordinals = self._ordinals[rank.number]
        return rank.joined[bisect_left(ordinals, first) : bisect_right(ordinals, last)]

    def _base(self, rank: RankFacts, first: int, last: int) -> Iterator[Stretch]:
        """Passes, their forwards, and what is between them; nothing overlaps."""
        floor = 0
        for place in range(first, min(last + 1, len(rank.passes))):
            one = rank.passes[place]
            begin, end = max(one.begin_ns, floor), self._ended(rank, one)
            if self._is_stuck(rank, one):
                end = max(end, self._end_ns - self.run.clocks[rank.number].offset_ns)
            if one.forward_ns is not None and max(one.forward_ns, floor) < begin:
                forward = max(one.forward_ns, floor)
                yield self._stretch(rank, Phase.FORWARD, forward, begin, place)
            if end > begin:
                yield self._stretch(rank, Phase.BACKWARD, begin, end, place)
            floor = max(floor, end)
            until = floor
            if place + 1 < len(rank.passes):
                until = _started(rank.passes[place + 1])
            elif rank.joined:
                until = rank.joined[-1].time_ns
            if until > floor:
                yield self._stretch(rank, Phase.BETWEEN, floor, until, place)
                floor = until

    def _held(self, rank: RankFacts, first: int, last: int) -> Iterator[Stretch]:
        """Where collectives hold it; nothing overlaps."""
        for one in self._joined(rank, first, last):
            place, meeting = max(0, one.ordinal), self._meetings.get(one.key)
            if one is rank.joined[-1] and self._is_stuck(rank, rank.passes[place]):
                end = self._end_ns - self.run.clocks[rank.number].offset_ns
                yield self._stretch(rank, Phase.WAITING, one.time_ns, end, place, one.key)
                continue
            until = one.time_ns
            if meeting is not None and meeting.waiting_ns(rank.number) > 0:
                until += meeting.waiting_ns(rank.number)
                yield self._stretch(rank, Phase.WAITING, one.time_ns, until, place, one.key)
            released = one.release_ns
            if meeting is not None:
                released = until + meeting.transfer_ns(rank.number)
            if one.is_inside and released > until:
                is_unknown = meeting is None and waits_for_all(one)
                phase = Phase.WAITING if is_unknown else Phase.TRANSFER
                yield self._stretch(rank, phase, until, released, place, one.key)

    def _is_stuck(self, rank: RankFacts, one: PassFacts) -> bool:
        """Whether a pass did not end because the last collective never let go of the rank."""
        last = rank.joined[-1] if rank.joined else None
        return (
            one.end_ns is None
            and last is not None
            and last.ordinal == one.ordinal
            and not last.is_retired
            and waits_for_all(last)
        )

    def _stretch(
        self,
        rank: RankFacts,
        phase: Phase,
        begin_ns: int,
        end_ns: int,
        ordinal: int,
        key: Key | None = None,
    ) -> Stretch:
        number = rank.number
        begin, end = self._on(number, begin_ns), self._on(number, end_ns)
        return Stretch(phase, begin, end, ordinal, key)

    @staticmethod
    def _cut(base: list[Stretch], held: list[Stretch]) -> Iterator[Stretch]:
        """``held`` wherever it is, and of ``base`` what is left."""
        yield from held
        place = 0
        for one in base:
            begin = one.begin_ns
            while place and held[place - 1].end_ns > begin:
                place -= 1
            while place < len(held) and held[place].begin_ns < one.end_ns:
                if held[place].begin_ns > begin:
                    yield one._replace(begin_ns=begin, end_ns=held[place].begin_ns)
                begin = max(begin, held[place].end_ns)
                place += 1
            if begin < one.end_ns:
                yield one._replace(begin_ns=begin)


def _started(one: PassFacts) -> int:
    return one.begin_ns if one.forward_ns is None else min(one.forward_ns, one.begin_ns)


def _begin(stretch: Stretch) -> int:
    return stretch.begin_ns
