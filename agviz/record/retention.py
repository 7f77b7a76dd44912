"""Which backward passes stay in a file of limited size.

The first ones fill half of the room. Of the later ones each stays for as long as there is room: the
oldest goes first, unless it failed or met NaN or infinities. Those that did go only where they
alone would fill the file, and then neither the first nor the last of them. A pass is a call of
backward or grad with the reentrant ones inside, and one that is under way stays.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Final

from agviz.traces import codec
from agviz.traces.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE_OF_EVENTS: Final = 0.55
"""Of a file of limited size, what may be full before indexes and times are added."""
_FIRST: Final = 0.5
"""Of that, what the first passes take."""
_FIRST_FAILED: Final = 0.25
"""The same, what the first of those that failed may take."""
_TARGET: Final = 0.95
"""The same, what is full after some have gone: each time some more go than have to."""


class Pass:
    """A call of backward or grad with the reentrant ones inside."""

    __slots__ = (
        "begin_seq",
        "chunks",
        "has_failed",
        "last_seq",
        "nbytes",
        "ops",
        "tasks",
        "under_way",
    )

    def __init__(self, begin_seq: int) -> None:
        self.tasks: list[int] = []
        """Graph tasks, the outermost first."""
        self.under_way = 0
        """How many of them are."""
        self.begin_seq = begin_seq
        self.last_seq = begin_seq
        """None of its events comes behind this one."""
        self.chunks: list[range] = []
        """Chunks with the elements of its gradients."""
        self.ops: list[range] = []
        """Ids of torch functions, once it goes; those that were called for it are its own.
        """
        self.has_failed = False
        """Or met NaN or infinities."""
        self.nbytes = 0
        """In the file, about."""


class Retention:
    """Chooses what goes, for the one thread that writes.

    Args:
        room: bytes that may be full.
        empty: bytes of the file before anything is in it, which grow with the number of tables.
    """

    def __init__(self, room: int, empty: int = 0) -> None:
        self._room = room
        self._empty = empty
        self._pass_of: dict[int, Pass] = {}
        """Those under way, and those that have ended since it was last looked, by graph task."""
        self._ops: dict[int, range] = {}
        """Ids of torch functions by graph task: before its begin and after its end, too."""
        self._early: set[int] = set()
        """Graph tasks of which it is known that they failed, but not yet that they began."""
        self._ended: list[Pass] = []
        self._is_first = True
        """Whether those that end now may be among the first."""
        self._is_first_failed = True
        """Whether those that fail now may be among the first."""
        self._first_failed = 0
        """Bytes of those that failed and stay."""
        self._last: deque[Pass] = deque()
        """Oldest first; so are the others."""
        self._failed: deque[Pass] = deque()
        self._size = 0
        """Bytes of the file when it was last looked."""
        self._present: list[int] = []
        """Outermost graph task of each pass in the file, ascending."""
        self.left_out: list[LeftOut] = []
        """Ascending."""

    def begun(self, graph_task: int, parent: int, seq: int) -> None:
        """A graph task has begun."""
        found = self._pass_of.get(parent)
        if found is None or not found.under_way:
            found = Pass(seq)
            insort(self._present, graph_task)
        found.tasks.append(graph_task)
        found.under_way += 1
        if graph_task in self._early:
            self._early.remove(graph_task)
            found.has_failed = True
        self._pass_of[graph_task] = found

    def ended(self, graph_task: int, *, has_failed: bool) -> None:
        """A graph task has ended."""
        found = self._pass_of.get(graph_task)
        if found is None:
            return
        found.has_failed |= has_failed
        found.under_way -= 1
        if not found.under_way:
            self._ended.append(found)

    def failed(self, graph_task: int) -> None:
        """A graph task that is under way, or about to begin, has met NaN or infinities."""
        found = self._pass_of.get(graph_task)
        if found is None:
            self._early.add(graph_task)
        else:
            found.has_failed = True

    def count(self, rows: Sequence[int]) -> None:
        """Events, as rows of :data:`~agviz.traces.codec.WIDTH` values, go to the file."""
        last = dict(
            zip(rows[codec.GRAPH_TASK_COLUMN :: codec.WIDTH], rows[:: codec.WIDTH], strict=True)
        )
        for graph_task, seq in last.items():
            found = self._pass_of.get(graph_task)
            if found is not None:
                found.last_seq = max(found.last_seq, seq + 1)  # an emission is two events at most

    def copied(self, graph_task: int, chunks: range) -> None:
        """Chunks with the elements of its gradients go to the file; they belong to no other's."""
        found = self._pass_of.get(graph_task)
        if found is None or not chunks:
            return
        if found.chunks and found.chunks[-1].stop == chunks.start:
            chunks = range(found.chunks.pop().start, chunks.stop)
        found.chunks.append(chunks)

    def called(self, graph_task: int, ops: range) -> None:
        """Torch functions go to the file, some of them for this graph task."""
        if ops:
            known = self._ops.get(graph_task, ops)
            self._ops[graph_task] = range(min(known.start, ops.start), max(known.stop, ops.stop))

    def look(self, size: int) -> None:
        """Decide about what has ended; the file has ``size`` bytes in use."""
        growth = max(0, size - self._size)
        self._size = size
        ended, self._ended = self._ended, []
        reached = size - growth
        most_failed = (self._room - self._empty) * _FIRST_FAILED
        for each in ended:
            each.nbytes = growth // len(ended)
            reached += each.nbytes
            for task in each.tasks:
                self._pass_of.pop(task, None)
            is_only = each.tasks[0] == self._present[0]
            self._is_first = self._is_first and (is_only or reached <= self._most_first)
            if self._is_first:
                continue
            if not each.has_failed:
                self._last.append(each)
                continue
            # A pass may seem to take nothing, because the file grows by pages: once the first of
            # those that failed have filled their part, none is added to them.
            self._is_first_failed &= self._first_failed + each.nbytes <= most_failed
            if self._is_first_failed:
                self._first_failed += each.nbytes
            else:
                self._failed.append(each)

    @property
    def _most_first(self) -> float:
        """Bytes that the file may have while passes are still the first."""
        return self._empty + (self._room - self._empty) * _FIRST

    def missing(self, size: int, more: int) -> int:
        """How many bytes have to go before ``more`` are written; 0: none."""
        if size + more < self._room:
            return 0
        return size + more - int(self._room * _TARGET)

    def leave_out(self, nbytes: int) -> list[Pass]:
        """Choose passes of about so many bytes that are to go; none: there are no more."""
        chosen: list[Pass] = []
        while nbytes > 0 and (self._last or self._failed):
            gone = (self._last or self._failed).popleft()
            nbytes -= max(1, gone.nbytes)
            chosen.append(gone)
        for each in chosen:
            each.ops = [self._ops.pop(task) for task in each.tasks if task in self._ops]
            self._note(each)
        return chosen

    def never_had(self, passes: LeftOut) -> list[LeftOut]:
        """Passes in a row were not recorded; all that are left out."""
        self._add(passes)
        return self.left_out

    def _note(self, gone: Pass) -> None:
        number = gone.tasks[0]
        del self._present[bisect_left(self._present, number)]
        self._add(LeftOut(number, number, 1, len(gone.tasks) - 1))

    def _add(self, new: LeftOut) -> None:
        place = bisect_left(self.left_out, new)
        if place < len(self.left_out) and self._is_whole(new, self.left_out[place]):
            new = _joined(new, self.left_out.pop(place))
        if place and self._is_whole(self.left_out[place - 1], new):
            place -= 1
            new = _joined(self.left_out.pop(place), new)
        self.left_out.insert(place, new)

    def _is_whole(self, one: LeftOut, next_: LeftOut) -> bool:
        """Whether no pass between the two is in the file."""
        place = bisect_left(self._present, one.last)
        return place == len(self._present) or self._present[place] > next_.first


def _joined(one: LeftOut, next_: LeftOut) -> LeftOut:
    return LeftOut(
        one.first, next_.last, one.passes + next_.passes, one.reentrant + next_.reentrant
    )
