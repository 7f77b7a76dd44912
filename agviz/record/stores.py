"""Stores: what becomes of the rows that a recorder observes.

A recorder gives all rows to its store, and the store passes them on to the thread that writes: at
once (here), on an occasion (:mod:`agviz.record.ring_store`), or once a file is needed
(:mod:`agviz.record.late_store`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.record.file_thread import FileThread
    from agviz.record.writer import SideRow
    from agviz_engine.events import GraphTaskBegun

NONFINITE: Final = "nonfinite"
EXCEPTION: Final = "exception"
SIGNAL: Final = "signal"
OCCASIONS: Final = (NONFINITE, EXCEPTION, SIGNAL)
"""Upon which a ring store can be asked to write."""
OVERDUE: Final = "overdue"
"""A pass takes longer than the timeout: a ring store writes whatever it was asked for."""


class Store:
    """Passes all rows to the thread that writes, at once; what else a store does, it overrides.

    The recorder calls five methods: :meth:`begin`, :attr:`rows`, :attr:`side` and :meth:`end` of
    each graph task, and :meth:`flush`. Each of the others has a reason: :attr:`numbers` takes rows
    of another width, and a stream's is the journal's own ``extend`` as well. :meth:`bind` and
    :meth:`start` are two because the recorder completes itself in between, before anything is
    written. :meth:`occasion` reports what no row that is kept says, such as what ended the program.
    :meth:`forget` gives memory back where recording has to stop long before the program does.
    """

    rows: Callable[[Sequence[Any]], None]
    """Keeps rows of events of one graph task."""
    numbers: Callable[[Sequence[Any]], None]
    """Keeps rows of what was measured in one graph task."""
    side: Callable[[SideRow], None]
    """Keeps what goes to the file next to the rows."""
    make_room: Callable[[], int] | None = None
    """Frees bytes of copies of gradients, and says how many; None: no copy is ever forgotten."""
    choice = ""
    """What it keeps, in words; empty: everything."""

    @property
    def has_calls_between(self) -> bool:
        """Whether the file gets the torch functions now that were called since the last pass."""
        return True

    def bind(self, file: FileThread) -> None:
        """Pass rows to ``file`` from now on."""
        self._file = file
        self.rows = file.journal.events.extend
        self.numbers = file.journal.numbers.extend
        self.side = file.side.append

    def start(self) -> None:
        """Make the file at once, so that it is known whether it can be made.

        Raises:
            agviz.errors.TraceError: it can't be.
        """
        self._file.open()

    def begin(self, event: GraphTaskBegun) -> None:
        """A graph task begins whose rows come from now on."""

    def end(self, graph_task: int, *, has_failed: bool) -> None:
        """No more of its rows come."""

    def skip(self, graph_task: int) -> None:
        """A call of backward is not recorded that would have this id."""

    def flush(self) -> None:
        """See that there is a file for what is kept."""

    def occasion(self, name: str, graph_task: int = NO_GRAPH_TASK) -> None:
        """Something happened upon which to write.

        Args:
            name: :data:`NONFINITE`, :data:`EXCEPTION` or :data:`OVERDUE`.
            graph_task: the one with a non-finite gradient, also of a node whose rows do not come.
        """

    def forget(self) -> None:
        """Nothing is kept from now on."""


class StreamStore(Store):
    """Writes everything as it happens."""
