"""The thread that reads a folder of ranks, and what it posts: plain data of the receiver's own.

Of several requests that wait, only the last is served, so that a key that is held down never queues
up work. What the ranks' own files say comes behind, rank by rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from textual.message import Message

from agviz.errors import AgvizError
from agviz.ranks.answers.across import rank_verdicts
from agviz.ranks.folder import Folder
from agviz.ranks.phases import Phase, Phases
from agviz.ranks.run import Run
from agviz.ranks.slow import rank_work
from agviz.tui.reader_thread import ReaderCrashed, ReadFailed
from agviz.tui.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agviz.analysis.verdict import Verdict
    from agviz.ranks.clocks import Clock
    from agviz.ranks.phases import ChosenRanks, Stretch
    from agviz.ranks.slow import RankWork
    from agviz.traces.rows import GraphTaskStatus

_MOST_COLLECTIVES: Final = 200
"""Of a rank in one window."""
_MOST_SLOW: Final = 8
_COLUMNS: Final = 200
"""Turns of a thread are one where less than a cell is between them."""


class RankCollective(NamedTuple):
    """A collective that a rank joined, in words and numbers."""

    time_ns: int
    """On the clock of the first rank."""
    what: str
    """Operation, shapes and types."""
    group: str
    seq: int
    waiting_ns: int | None
    """None: it does not wait for all."""
    transfer_ns: int | None
    """None: not known."""
    last: int | None
    """The rank that joined last."""


class RankLine(NamedTuple):
    """What is known of a rank in a window without opening its file."""

    number: int
    word: str
    """``min``, ``median`` or ``max`` where it represents others; else empty."""
    path: Path
    host: str
    clock: Clock
    graph_task: int | None
    """Of the pass that is looked at; None: the rank made no such pass."""
    status: GraphTaskStatus | None
    stretches: tuple[Stretch, ...]
    totals: Mapping[Phase, int]
    collectives: tuple[RankCollective, ...]
    """The first of them."""
    joined: int
    """How many there are."""


class Wanted(NamedTuple):
    """What is to be shown."""

    ordinal: int
    """The pass that is looked at; -1: the one with the longest wait."""
    together: int
    """How many passes are shown beside each other."""
    most: int
    """Lines there is room for; 0: show all ranks."""


class RanksWindow(NamedTuple):
    """Some passes of all ranks."""

    wanted: Wanted
    ordinal: int
    first: int
    last: int
    begin_ns: int
    end_ns: int
    lines: tuple[RankLine, ...]
    chosen: ChosenRanks
    alignments: tuple[int, ...]
    begins: tuple[tuple[int, int], ...]
    """Numbers of the passes, and when the first rank began each."""
    passes: int
    """How many there are."""
    world_size: int
    missing: tuple[int, ...]
    longest: tuple[int, ...]
    """Numbers of all passes, that with the longest wait first."""
    script: str
    paths: Mapping[int, Path]
    """The file of each rank, by its number."""


@dataclass
class RanksShown(Message):
    """A window was read."""

    window: RanksWindow


@dataclass
class RankWorkRead(Message):
    """What a rank's own file says of a window."""

    wanted: Wanted
    number: int
    work: RankWork


@dataclass
class RanksJudged(Message):
    """What is to be said of the whole run."""

    verdicts: tuple[Verdict, ...]
    """The worst first; never none."""
    ranks: tuple[int, ...]
    """Those that the first is about."""


class RanksReader(Worker):
    """Owns the run.

    Args:
        folder: of the ranks.
        post: where messages go; called on this thread.
    """

    def __init__(self, folder: Path, post: Callable[[Message], object]) -> None:
        super().__init__("agviz-ranks-reader", post)
        self._path = folder
        self._wanted: Wanted | None = None
        self._phases: Phases | None = None
        self._longest: tuple[int, ...] = ()
        self._is_judged = False

    def show(self, wanted: Wanted) -> None:
        """Read a window: posts :class:`RanksShown`, then :class:`RankWorkRead` for each line."""
        self._wanted = wanted
        self._requests.put(lambda: self._show(wanted))

    def reopen(self) -> None:
        """Read the folder anew, and the window that was wanted last."""
        self._requests.put(self._reopen)

    def stop(self) -> None:
        """End when the request under way is served."""
        self._wanted = None
        super().stop()

    def run(self) -> None:
        """Serve requests until :meth:`stop`."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - the application raises it
            self._post(ReaderCrashed(error))

    def serve(self, request: Callable[[], None]) -> None:
        """Do what is asked for; where a file does not allow it, say so."""
        try:
            request()
        except AgvizError as error:
            self._post(ReadFailed(str(error)))

    def _reopen(self) -> None:
        self._phases = None
        if self._wanted is not None:
            self._show(self._wanted)

    def _show(self, wanted: Wanted) -> None:
        if wanted is not self._wanted:
            return
        if self._phases is None:
            phases = self._phases = Phases(Run.read(Folder.open(self._path)))
            self._longest = _longest(phases)
            self._is_judged = False
        window = self._window(self._phases, wanted)
        self._post(RanksShown(window))
        if not self._is_judged:
            self._is_judged = True
            self._requests.put(self._judge)
        for line in window.lines:
            self._requests.put(lambda number=line.number: self._work(window, number))  # type: ignore[misc]

    def _judge(self) -> None:
        if self._phases is not None and self._wanted is not None:
            found = rank_verdicts(self._phases.run)
            self._post(RanksJudged(tuple(each.verdict for each in found), found[0].ranks))

    def _work(self, window: RanksWindow, number: int) -> None:
        phases = self._phases
        if window.wanted is not self._wanted or phases is None:
            return
        gap_ns = (window.end_ns - window.begin_ns) // _COLUMNS
        passes = window.first, window.last
        with phases.run.folder.trace(number) as trace:
            work = rank_work(phases, number, trace, passes, most=_MOST_SLOW, gap_ns=gap_ns)
        self._post(RankWorkRead(window.wanted, number, work))

    def _window(self, phases: Phases, wanted: Wanted) -> RanksWindow:
        run, count = phases.run, max(1, phases.passes)
        ordinal = wanted.ordinal if wanted.ordinal >= 0 else (*self._longest, 0)[0]
        ordinal = min(ordinal, count - 1)
        several = min(wanted.together, count)
        first = min(max(0, ordinal - (several - 1) // 2), count - several)
        last = first + several - 1
        chosen = phases.choose(wanted.most or len(run.ranks), first, last)
        shown = [("", number) for number in chosen.shown] + [*chosen.samples]
        begin_ns, end_ns = phases.span(first, last)
        begins = []
        for place in range(first, last + 1):
            own = phases.span(place, place)
            begins.append((place, own[0]))
        return RanksWindow(
            wanted=wanted,
            ordinal=ordinal,
            first=first,
            last=last,
            begin_ns=begin_ns,
            end_ns=end_ns,
            lines=tuple(_line(phases, word, n, ordinal, (first, last)) for word, n in shown),
            chosen=chosen,
            alignments=tuple(one.time_ns for one in phases.alignments(first, last)),
            begins=tuple(begins),
            passes=phases.passes,
            world_size=run.folder.world_size,
            missing=tuple(run.folder.missing),
            longest=self._longest,
            script=run.folder.ranks[0].meta.script,
            paths={number: rank.file.path for number, rank in run.ranks.items()},
        )


def _longest(phases: Phases) -> tuple[int, ...]:
    """Numbers of passes by how late the last rank was, the latest first."""
    lateness: dict[int, int] = {}
    for meeting in phases.run.meetings():
        if meeting.is_inside and meeting.ordinal >= 0:
            late = max(meeting.lateness_ns, lateness.get(meeting.ordinal, 0))
            lateness[meeting.ordinal] = late
    return tuple(sorted(lateness, key=lambda ordinal: (-lateness[ordinal], ordinal)))


def _line(
    phases: Phases, word: str, number: int, ordinal: int, passes: tuple[int, int]
) -> RankLine:
    rank = phases.run.ranks[number]
    stretches = tuple(phases.stretches(number, *passes))
    totals = dict.fromkeys(Phase, 0)
    begin_ns, _ = phases.span(*passes)
    for stretch in stretches:
        if stretch.begin_ns >= begin_ns:
            totals[stretch.phase] += stretch.end_ns - stretch.begin_ns
    one = rank.passes[ordinal] if ordinal < len(rank.passes) else None
    joined = [each for each in rank.joined if passes[0] <= each.ordinal <= passes[1]]
    found = []
    for each in joined[:_MOST_COLLECTIVES]:
        meeting, (group, _, seq) = phases.meeting(each.key), each.key
        found.append(
            RankCollective(
                time_ns=phases.run.on_one_clock(number, each.time_ns),
                what=each.kind,
                group=group,
                seq=seq,
                waiting_ns=None if meeting is None else meeting.waiting_ns(number),
                transfer_ns=(
                    meeting.transfer_ns(number) if meeting is not None and each.is_inside else None
                ),
                last=None if meeting is None else meeting.last,
            )
        )
    return RankLine(
        number=number,
        word=word,
        path=rank.file.path,
        host=rank.file.rank.host,
        clock=phases.run.clocks[number],
        graph_task=None if one is None else one.graph_task,
        status=None if one is None else one.status,
        stretches=stretches,
        totals=totals,
        collectives=tuple(found),
        joined=len(joined),
    )
