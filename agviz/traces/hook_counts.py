"""How many hooks the modules and parameters of a program had when passes began."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame


class HookCount(NamedTuple):
    """One count of them."""

    number: int
    """In order of time, from 0."""
    graph_task: int
    """The pass that was about to run."""
    passes: int
    """Those before it."""
    hooks: int
    """Of all modules and parameters together."""
    most: int
    """Of the one that has most."""
    owner: str
    """Name of that; empty: the outermost module, or none has any."""
    hook: str
    """Name of its last one; empty: none has any."""
    definition: tuple[Frame, ...]
    """The frame where that is defined; empty: not known."""

    def rows(
        self, text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The table, and the row for it."""
        counts = self.number, self.graph_task, self.passes, self.hooks, self.most
        yield (
            "hook_count",
            (*counts, text(self.owner), text(self.hook), stack(self.definition)),
        )


def read(database: Database, contents: Contents) -> list[HookCount]:
    """In order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return [
        HookCount(
            number,
            graph_task,
            passes,
            hooks,
            most,
            contents.name(owner),
            contents.name(hook),
            dumps.stack(database, contents, definition),
        )
        for number, graph_task, passes, hooks, most, owner, hook, definition in database.integers(
            "SELECT id, graph_task, passes, hooks, most, owner, hook, definition"
            " FROM hook_count ORDER BY id"
        )
    ]
