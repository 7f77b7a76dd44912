"""When the forward of each backward pass of a run began, and what its loss was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agviz.traces.packed import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


class TimedCalls(Protocol):
    """Calls of modules and returns, in order."""

    @property
    def times_ns(self) -> Sequence[int]:
        """``time.monotonic_ns()`` of each."""

    def paths(self) -> Sequence[str | None]:
        """Path of the module that was called; None: the innermost call returned."""


class ForwardCalls(NamedTuple):
    """The forward whose gradients a backward pass computes, on its way to the file."""

    graph_task: int
    calls: TimedCalls
    """At least one."""
    start_ns: int
    """Of the recording."""

    def rows(
        self, text: Callable[[str], int], _stack: object
    ) -> Iterator[tuple[str, tuple[int | bytes, ...]]]:
        """The tables, and the rows for them."""
        begun_ns = self.calls.times_ns[0]
        yield "forward_begun", (self.graph_task, begun_ns - self.start_ns)
        names: list[int] = []
        depths: list[int] = []
        begins: list[int] = []
        ends: list[int] = []
        open_calls: list[int] = []
        for time_ns, path in zip(self.calls.times_ns, self.calls.paths(), strict=True):
            if path is not None:
                open_calls.append(len(names))
                names.append(text(path))
                depths.append(len(open_calls) - 1)
                begins.append(time_ns - begun_ns)
                ends.append(-1)
            elif open_calls:  # else it was called before this began
                ends[open_calls.pop()] = time_ns - begun_ns
        if names:
            yield "forward_calls", (self.graph_task, pack([names, depths, begins, ends]))


class ModuleCall(NamedTuple):
    """One call of a module in a forward."""

    module: str
    """Its path; empty: the outermost."""
    depth: int
    """Calls that it is inside of."""
    begin_ns: int
    """``time.monotonic_ns()``, as ``end_ns``."""
    end_ns: int | None
    """None: it had not returned when the pass began."""


def forwards(database: Database) -> dict[int, int]:
    """By graph task: when its forward began, in ns since the recording began.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT graph_task, t FROM forward_begun")
    return {row[0]: row[1] for row in rows}


def calls(database: Database, contents: Contents, graph_task: int) -> list[ModuleCall]:
    """The calls of modules in the forward before a pass, in order of their begin.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    begun = database.integers("SELECT t FROM forward_begun WHERE graph_task = ?", graph_task)
    blobs = database.blobs(
        "SELECT graph_task, bytes FROM forward_calls WHERE graph_task = ?", graph_task
    )
    if not begun or not blobs:
        return []
    begun_ns = contents.meta.start_ns + begun[0][0]
    try:
        columns = unpack(blobs[0][1], 4)
        found = [
            ModuleCall(
                contents.name(name), depth, begun_ns + begin, None if end < 0 else begun_ns + end
            )
            for name, depth, begin, end in zip(*columns, strict=True)
        ]
    except ValueError as error:
        raise database.damaged(error) from error
    if any(call.depth < 0 for call in found):
        raise database.damaged("a call of a module is inside of less than none")
    return found


def losses(database: Database) -> dict[int, float]:
    """The value of the one number that backward was called on, by graph task.

    A call on several tensors, or on one of several elements, has none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.reals(
        "SELECT graph_task, mean, nan, posinf, neginf FROM root"
        " JOIN measured ON measured.id = root.health"
        " JOIN tensor_type ON tensor_type.id = measured.tensor_type"
        " WHERE tensor_type.numbers = 1 GROUP BY graph_task HAVING count(*) = 1"
    )
    return {
        int(graph_task or 0): _value(mean, nan, posinf, neginf)
        for graph_task, mean, nan, posinf, neginf in rows
    }


def _value(
    mean: float | None, nan: float | None, posinf: float | None, neginf: float | None
) -> float:
    if nan or (mean is None and not (posinf or neginf)):
        return math.nan
    if posinf or neginf:
        return math.inf if posinf else -math.inf
    return float(mean or 0.0)
