"""Which elements of a tensor were not finite, and what is known of its axes.

Note [Axes as text]
An axis is ``role:size:at:origin``, axes are separated by semicolons. ``role`` is what it is, or
empty. ``at`` are coordinates (``3,5-7``), ``*`` for all, ``?`` for none known. ``origin`` is the
axis of the first tensor that it is, or empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agviz.traces.database import given, of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database

NO_NODE: Final = -1
NO_OP: Final = -1
_MOST_RUNS: Final = 64
"""Of coordinates that follow each other; with more of them, none are kept."""
_AXIS: Final = re.compile(r"(\w*):(\d{1,18}):(\?|\*|\d[\d,-]*):(\d{0,3})")


class AxisRow(NamedTuple):
    """An axis of a tensor, and at which coordinates the elements are."""

    role: str
    """``sample``, ``channel``, ``pixel``, ``step``, ``token``, ``class``, ``head``, or empty."""
    size: int
    at: Sequence[int] | None
    """None: nothing is known."""
    origin: int | None
    """The axis of the tensor that was not finite that this one is."""

    @property
    def is_narrow(self) -> bool:
        """Whether the elements are at some coordinates, and not at all of several."""
        return self.at is not None and (self.size == 1 or len(self.at) < self.size)


class AxesNote(NamedTuple):
    """A tensor that the elements were made of, or were, and what is known of it."""

    what: str
    """``first`` place of elements, ``all`` of them; then ``function``, ``module``, ``given``,
    ``data``, ``parameter``, ``unknown``, ``undecided``: see
    :class:`agviz.record.elements.walk.AxisNote`."""
    name: str
    axes: tuple[AxisRow, ...]


class LocatedElements(NamedTuple):
    """Where in what a node put out, or a function gave, something is not finite, or largest."""

    graph_task: int
    """-1: of a torch function."""
    node: int
    op: int
    """Number of the torch function; -1: of a node."""
    slot: int
    """Of the node's output; of the function's tensor, counted as in ``forward_tensor``."""
    total: int
    """Elements."""
    value: float | None
    """The element, where it is the largest that is asked about; None: what is not finite is."""
    notes: tuple[AxesNote, ...]
    """The first is ``first``, the second ``all``."""

    def rows(
        self, text: Callable[[str], int], _stack: Callable[[Any], int]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Tables and the rows for them."""
        for number, note in enumerate(self.notes):
            facts = *self[:4], number, self.total, self.value
            yield "located", (*facts, text(note.what), text(note.name), text(_text(note.axes)))


def _text(axes: Sequence[AxisRow]) -> str:
    return ";".join(
        f"{axis.role}:{axis.size}:{_runs(axis)}:{'' if axis.origin is None else axis.origin}"
        for axis in axes
    )


def _runs(axis: AxisRow) -> str:
    if axis.at is None:
        return "?"
    if len(axis.at) == axis.size != 1:
        return "*"
    runs: list[list[int]] = []
    for each in axis.at:
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    if not 0 < len(runs) <= _MOST_RUNS:
        return "?"
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def read(database: Database, contents: Contents, op: int) -> LocatedElements | None:
    """Where what a torch function gave, or was given, is not finite; None: it is not known.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    found = _read(database, contents, "op = ?", op)
    return found[0] if found else None


def read_nodes(
    database: Database, contents: Contents, graph_task: int, node: int | None = None
) -> list[LocatedElements]:
    """The same of what nodes put out.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    where = f"op = {NO_OP} AND graph_task = ? {of(node, 'node')}"
    return _read(database, contents, where, graph_task, *given(node))


def _read(
    database: Database, contents: Contents, condition: str, *parameters: int
) -> list[LocatedElements]:
    rows = cast(
        "list[tuple[Any, ...]]",
        database.reals(
            "SELECT value, graph_task, node, op, slot, total, what, name, axes FROM located"  # noqa: S608 - our words
            f" WHERE {condition} ORDER BY op, graph_task, node, slot, number",
            *parameters,
        ),
    )
    found: list[LocatedElements] = []
    for value, *facts in rows:
        if any(type(fact) is not int for fact in facts):
            raise database.damaged("elements of a tensor lack a fact")
        graph_task, node, op, slot, total, what, name, axes = facts
        try:
            note = AxesNote(contents.name(what), contents.name(name), _axes(contents.name(axes)))
        except ValueError as error:
            raise database.damaged("axes of a tensor make no sense") from error
        here = LocatedElements(graph_task, node, op, slot, total, value, (note,))
        if found and found[-1][:4] == here[:4]:
            found[-1] = found[-1]._replace(notes=(*found[-1].notes, note))
        else:
            found.append(here)
    for located in found:
        sizes = [[axis.size for axis in note.axes] for note in located.notes[:2]]
        if [note.what for note in located.notes[:2]] != ["first", "all"] or sizes[0] != sizes[1]:
            raise database.damaged("elements of a tensor lack a fact")
    return found


def _axes(text: str) -> tuple[AxisRow, ...]:
    return tuple(map(_axis, text.split(";"))) if text else ()


def _axis(text: str) -> AxisRow:
    match = _AXIS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    size, origin = int(match[2]), int(match[4]) if match[4] else None
    at: Sequence[int] | None = None
    if match[3] == "*":
        at = range(size)
    elif match[3] != "?":
        runs = [[int(end) for end in run.split("-")] for run in match[3].split(",")]
        spans = [range(run[0], run[-1] + 1) for run in runs if len(run) < 3]
        if len(spans) < len(runs) or any(not 0 <= s.start < s.stop <= size for s in spans):
            raise ValueError(text)
        at = spans[0] if len(spans) == 1 else _joined(spans, text)
    return AxisRow(match[1], size, at, origin)


def _joined(spans: Sequence[range], text: str) -> tuple[int, ...]:
    if sum(map(len, spans)) > _MOST_COORDINATES:
        raise ValueError(text)
    return tuple(each for span in spans for each in span)


_MOST_COORDINATES: Final = 65_536
