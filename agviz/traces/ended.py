"""EndedTasks: what is known of graph tasks that ended, in columns that all states share.

A node may call backward again thousands of times; what ended inside it changes no more, is kept as
long as the graph task around it, and is hardly ever looked at. In columns it is cheap to copy and
to pack, and nothing is made of a graph task until somebody asks for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate, chain
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping


class Ended(NamedTuple):
    """What is known of one of them."""

    parent: int
    depth: int
    thread: int
    cpu_queue: int
    executed: int
    status: bytes
    """A byte for each node."""
    remaining: dict[int, int]
    """Dependencies that nodes still wait for."""
    nonfinite: list[int]
    """Nodes."""


_PLAIN: Final = 5
"""Columns of the first fields, as they are."""
_COLUMNS: Final = _PLAIN + 3
"""Behind those: how many nodes there are, how many of them have remaining dependencies, and how
many are non-finite."""
_LISTS: Final = 3
"""Columns of these nodes: those with remaining dependencies, how many they are, and those that are
non-finite."""


class EndedTasks:
    """By number. It never changes."""

    __slots__ = ("_columns", "_lists", "_numbers", "_starts", "status")

    def __init__(self) -> None:
        self._numbers = array("q")
        """Ascending."""
        self._columns = [array("q") for _ in range(_COLUMNS)]
        """By place of the number."""
        self._lists = [array("q") for _ in range(_LISTS)]
        self.status = b""
        """Of all their nodes."""
        self._starts: list[list[int]] = []
        """Where, by place, its part of the status and of both kinds of lists begins; made late."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._numbers, number)
        return place < len(self) and self._numbers[place] == number

    def __getitem__(self, number: int) -> Ended:
        if number not in self:
            raise KeyError(number)
        place = bisect_left(self._numbers, number)
        self._starts = self._starts or [
            list(accumulate(column, initial=0)) for column in self._columns[_PLAIN:]
        ]
        nodes, waiting, nonfinite = (slice(s[place], s[place + 1]) for s in self._starts)
        status = self.status[nodes]
        remaining = zip(self._lists[0][waiting], self._lists[1][waiting], strict=True)
        parent, depth, thread, queue, executed, *_ = self._columns
        # Nodes come from a file as they are; nobody looks through all of them before.
        return Ended(
            parent[place],
            depth[place],
            thread[place],
            queue[place],
            executed[place],
            status,
            {node: count for node, count in remaining if 0 <= node < len(status)},
            [node for node in self._lists[2][nonfinite] if 0 <= node < len(status)],
        )

    def ancestry(self) -> Iterator[tuple[int, int, int]]:
        """Number, parent and thread of each."""
        parent, _, thread, *_ = self._columns
        return zip(self._numbers, parent, thread, strict=True)

    def with_(self, others: Mapping[int, Ended]) -> EndedTasks:
        """These and others."""
        found = EndedTasks()
        found._numbers = self._numbers[:]
        found._columns = [column[:] for column in self._columns]
        found._lists = [column[:] for column in self._lists]
        status = bytearray(self.status)
        for number, ended in sorted(others.items()):
            place = bisect_left(found._numbers, number)
            parts = status, found._lists[0], found._lists[2]
            nodes, waiting, nonfinite = (  # from the end, where most of them come
                len(part) - sum(sizes[place:])
                for part, sizes in zip(parts, found._columns[_PLAIN:], strict=True)
            )
            status[nodes:nodes] = ended.status
            lists: tuple[Iterable[int], ...] = (
                ended.remaining.keys(),
                ended.remaining.values(),
                ended.nonfinite,
            )
            for at, column, new in zip(
                (waiting, waiting, nonfinite), found._lists, lists, strict=True
            ):
                column[at:at] = array("q", new)
            found._numbers.insert(place, number)
            sizes = map(len, (ended.status, ended.remaining, ended.nonfinite))
            for column, value in zip(found._columns, chain(ended[:_PLAIN], sizes), strict=True):
                column.insert(place, value)
        found.status = bytes(status)
        return found

    def without(self, unwanted: Container[int]) -> EndedTasks:
        """These but for some."""
        if not any(number in unwanted for number in self):
            return self
        return EndedTasks().with_(
            {number: self[number] for number in self if number not in unwanted}
        )

    def pack(self) -> tuple[Iterator[Iterable[int]], bytes]:
        """Columns of integers, and bytes."""
        steps = map(sub, self._numbers, chain((0,), self._numbers))
        return chain((steps,), self._columns, self._lists), self.status

    @classmethod
    def unpack(
        cls, column: Callable[[], array[int]], status: bytes | memoryview
    ) -> tuple[EndedTasks, int]:
        """What :meth:`pack` was given, and how many of the bytes it was.

        Args:
            column: gives the next of the columns.
            status: the bytes, and what follows them.

        Raises:
            ValueError: they don't fit together.
            OverflowError: likewise.
        """
        found = cls()
        steps = column()
        found._numbers = array("q", accumulate(steps))
        found._columns = [column() for _ in range(_COLUMNS)]
        found._lists = [column() for _ in range(_LISTS)]
        sizes = found._columns[_PLAIN:]
        ends = [sum(each) for each in sizes]
        listed = [len(each) for each in found._lists]
        if (
            {*map(len, found._columns)} != {len(steps)}
            or (steps and min(steps[1:], default=1) < 1)
            or (steps and min(map(min, sizes)) < 0)
            or listed != [ends[1], ends[1], ends[2]]
            or ends[0] > len(status)
        ):
            raise ValueError("columns don't fit together")
        found.status = bytes(status[: ends[0]])
        return found, ends[0]
