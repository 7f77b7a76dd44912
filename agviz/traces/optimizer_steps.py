"""Steps of optimizers, between which backward passes parameters changed: written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces.rows import OptimizerStepRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


class OptimizerStep(NamedTuple):
    """One of them, on its way to the file."""

    graph_task: int
    """The last outermost one that had begun; -1: none."""
    number: int
    since_ns: int
    """Time since the start of the recording at which it returned."""
    begin_ns: int | None
    """The same at which it was called; None: not known."""
    thread: int
    """On which."""
    optimizer: str
    """Name of its class."""
    is_guarded: bool
    """Whether it was lent ``found_inf``, so that it changes nothing where a gradient is not
    finite."""
    sequence_nr: int
    """Of the next node that its thread makes after it."""

    def rows(
        self, text: Callable[[str], int], _stack: object
    ) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """The table, and the row for it."""
        times = self.begin_ns, self.since_ns
        name = text(self.optimizer)
        yield (
            "optimizer_step",
            (
                self.number,
                *times,
                self.thread,
                self.graph_task,
                name,
                self.is_guarded,
                self.sequence_nr,
            ),
        )


def count_before(database: Database, graph_task: int) -> int:
    """How many returned before a graph task began.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    (row,) = database.integers(
        "SELECT coalesce(max(id) + 1, 0) FROM optimizer_step WHERE graph_task < ?", graph_task
    )
    return row[0]


def passes_before(database: Database) -> dict[int, int]:
    """By number of a step: the last outermost graph task that had begun; -1: none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.stream("SELECT id, graph_task FROM optimizer_step ORDER BY id", types="ii")
    return dict(rows)


def read(database: Database, contents: Contents, since: int = -1) -> list[OptimizerStepRow]:
    """In order of time; those after the beginning of graph task ``since``.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start_ns = contents.meta.start_ns
    rows = database.stream(
        "SELECT id, begin_t, t, thread, graph_task, optimizer, is_guarded, sequence_nr"
        " FROM optimizer_step WHERE graph_task >= ? ORDER BY id",
        since,
        types="iniiiiin",
    )
    return [
        OptimizerStepRow(
            number,
            None if begin is None else start_ns + begin,
            start_ns + t,
            thread,
            graph_task,
            contents.name(name),
            bool(is_guarded),
            sequence_nr,
        )
        for number, begin, t, thread, graph_task, name, is_guarded, sequence_nr in rows
    ]
