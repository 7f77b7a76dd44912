"""What was recorded and is not in the file yet.

Note [A flat list of what waits]
Events wait as rows whose values follow each other in one long list, and so do the numbers of finite
gradients. Kept one by one they would be objects that the garbage collector visits again and again,
and with a large graph that costs several times what noting them does. In this form SQLite takes
them as they are, so that the writer need not look at each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agviz.measure.values import NUMBERS, Health
from agviz.traces import codec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


class Journal:
    """Events and numbers in the order in which they came. Any thread may add to them."""

    __slots__ = ("events", "is_refusing", "numbers")

    def __init__(self) -> None:
        self.events: list[Any] = []
        """Rows of :data:`~agviz.traces.codec.WIDTH` values."""
        self.numbers: list[Any] = []
        """Rows of :data:`~agviz.measure.values.NUMBERS` values."""
        self.is_refusing = False
        """Whether whatever comes is to be forgotten."""

    def keep(self, rows: Sequence[Any], numbers: Sequence[Any] = ()) -> None:
        """Add events, and what was measured for some."""
        if not self.is_refusing:
            self.events.extend(rows)
            self.numbers.extend(numbers)

    def __len__(self) -> int:
        return len(self.events) + len(self.numbers)

    @property
    def counts(self) -> tuple[int, int]:
        """How many values there are of either; the event of each number is among them."""
        numbers = len(self.numbers)
        return len(self.events), numbers

    def taken(self, counts: tuple[int, int] | None = None) -> Journal:
        """All that is here, or so many values of either (:attr:`counts`), which is taken out."""
        events, numbers = self.counts if counts is None else counts
        out = Journal()
        out.keep(self.events[:events], self.numbers[:numbers])
        del self.events[:events]
        del self.numbers[:numbers]
        return out

    def clear(self) -> None:
        """Forget it."""
        self.events.clear()
        self.numbers.clear()

    def refuse(self) -> None:
        """Forget it, and whatever is to be kept."""
        self.is_refusing = True
        self.clear()

    def batches(
        self,
        values: int,
        nbytes: int,
        begun: Collection[int] = (),
        counts: tuple[int, int] | None = None,
    ) -> Iterator[Journal]:
        """Cut it into pieces of about ``values`` values and ``nbytes`` of copies.

        Numbers are in the piece of their event or a later one. A piece begins with the first event
        of each of the graph tasks ``begun``. Of what is here only the first ``counts`` are taken,
        if given.
        """
        rest = self.taken(counts)
        begin = copied = place = 0
        taken = set()
        tasks = rest.events[codec.GRAPH_TASK_COLUMN :: codec.WIDTH]
        places = range(0, len(rest.events), codec.WIDTH)
        first_of = dict(zip(reversed(tasks), reversed(places), strict=True))
        cuts = {first_of[task] for task in begun if task in first_of}
        for end in range(codec.WIDTH, len(rest.events) + 1, codec.WIDTH):
            row = rest.events[end - codec.WIDTH : end]
            taken.add(row[0])
            if row[codec.KIND_COLUMN] == codec.COPIED:
                copied += row[codec.OBJECT_COLUMN].nbytes
            is_full = end - begin >= values or copied >= nbytes
            if not is_full and end not in cuts and end < len(rest.events):
                continue
            first = place
            while place < len(rest.numbers) and rest.numbers[place] in taken:
                place += NUMBERS
            batch = Journal()
            batch.keep(rest.events[begin:end], rest.numbers[first:place])
            yield batch
            begin, copied = end, 0
        if place < len(rest.numbers):
            batch = Journal()
            batch.keep((), rest.numbers[place:])
            yield batch

    def graph_tasks(self) -> Iterable[int]:
        """Those that the events belong to, each once, in the order of their first events."""
        return dict.fromkeys(self.events[codec.GRAPH_TASK_COLUMN :: codec.WIDTH])

    def health(self) -> Iterator[Health]:
        """Health of everything that was measured."""
        for begin in range(0, len(self.numbers), NUMBERS):
            _, _, tensor_type, *figures = self.numbers[begin : begin + NUMBERS]
            *facts, unknown = tensor_type
            yield Health._make((*facts, *figures, unknown))
