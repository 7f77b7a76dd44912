"""Stores: what becomes of the rows that a recorder observes.

A recorder gives all rows to its store, and the store passes them on to the thread that writes: at
once (here), on an occasion (:mod:`agviz.record.ring_store`), or once a file is needed
(:mod:`agviz.record.late_store`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
    """Passes all rows to the thread that writes. What else a store does is in its hooks.

    The hooks do nothing here: :meth:`begin`, :meth:`end`, :meth:`checked`, :meth:`occasion`,
    :meth:`forget` and :meth:`open`. Any thread may call them.
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

    def open(self) -> None:
        """See that there is a file."""

    def begin(self, event: GraphTaskBegun) -> None:
        """A graph task begins whose rows come from now on."""

    def end(self, graph_task: int, *, has_failed: bool) -> None:
        """No more of its rows come."""

    def checked(self, row: Sequence[Any]) -> None:
        """A non-finite check, also of a node whose rows do not come."""

    def occasion(self, name: str) -> None:
        """Something happened that is not in the rows."""

    def forget(self) -> None:
        """The recording has ended."""


class StreamStore(Store):
    """Writes everything as it happens."""
