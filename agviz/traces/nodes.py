"""The nodes of one graph task: columns of integers, and a row for whom is asked for."""

from __future__ import annotations

import gc
import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from agviz.traces.rows import LEAF, ExecutionRow, NodeRow, NodeStatus, NonFinite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.traces.stacks import StoredStacks

Shape: TypeAlias = tuple[int, ...]

_SHAPES: Final = 8
"""Column of the shapes among those of a node."""


@dataclass(frozen=True, kw_only=True)
class NodeColumns:
    """What rows are made of. Everything was checked: making a row neither reads nor raises."""

    graph_task: int
    node: Sequence[tuple[Any, ...]] | Mapping[int, tuple[Any, ...]]
    """Sequence_nr, topological_nr, queue, num_inputs, dependencies, name, parameter, module, shapes
    and recorded, by node: integers, and None where there is no number. Name to shapes are ids of
    texts."""
    edges: Sequence[tuple[int, ...]]
    """Producer, output, consumer and slot, by producer and output."""
    names: Mapping[int, tuple[str, str]]
    """Torch's names and the short ones, by id."""
    places: Mapping[int, str | None]
    """Parameters and modules, by id; None for 0."""
    shapes: Mapping[int, tuple[Shape, ...]]
    """Shapes of the inputs, by id."""
    origins: Mapping[int, int]
    """Ids of stacks, by node."""
    stacks: StoredStacks
    executions: Mapping[int, ExecutionRow]
    """By node."""
    ready: frozenset[int]
    """Nodes that entered a queue and perhaps never left it."""
    nonfinite: Mapping[int, NonFinite]
    """By node."""


class Nodes(Sequence[NodeRow]):
    """The nodes by index. Each row is made when it is first asked for."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._rows: list[NodeRow | None] = [None] * len(columns.node)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> NodeRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[NodeRow]: ...
    def __getitem__(self, index: int | slice) -> NodeRow | list[NodeRow]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        row = self._rows[index]
        if row is None:
            row = self._rows[index] = make_row(self._columns, range(len(self))[index])
        return row

    def __iter__(self) -> Iterator[NodeRow]:
        with undisturbed():
            rows = [self[index] for index in range(len(self))]
        return iter(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Nodes({list(self)})"


def make_row(columns: NodeColumns, index: int) -> NodeRow:
    """The row of one node, which the columns hold together with its consumers."""
    (
        sequence_nr,
        topological_nr,
        queue,
        num_inputs,
        dependencies,
        name,
        parameter,
        module,
        shapes,
        recorded,
    ) = columns.node[index]
    full_name, short = columns.names[name]
    received = columns.shapes[shapes] if shapes else None
    order = thread = start_ns = end_ns = None
    status = NodeStatus.READY if index in columns.ready else NodeStatus.WAITING
    if not recorded:
        status = NodeStatus.UNKNOWN
    execution = columns.executions.get(index)
    if execution is not None and recorded:
        _, order, _, _, thread, start_ns, end_ns, status, _ = execution
        if not order:
            order = start_ns = None
    return NodeRow(
        graph_task=columns.graph_task,
        index=index,
        name=full_name,
        short_name=short,
        sequence_nr=sequence_nr,
        topological_nr=topological_nr,
        queue=queue,
        num_inputs=num_inputs,
        dependencies=dependencies,
        parameter=columns.places[parameter],
        shape=received[0] if received and short == LEAF else None,
        module=columns.places[module],
        stack=columns.stacks[columns.origins[index]] if index in columns.origins else (),
        status=status,
        order=order,
        thread=thread,
        start_ns=start_ns,
        end_ns=end_ns,
        input_shapes=received,
        output_shapes=_output_shapes(columns, index),
        nonfinite=columns.nonfinite.get(index),
    )


def _output_shapes(columns: NodeColumns, index: int) -> tuple[Shape | None, ...]:
    edges, node, shapes = columns.edges, columns.node, columns.shapes
    produced: list[Shape | None] = []
    for place in range(bisect_left(edges, (index,)), len(edges)):
        producer, output, consumer, slot = edges[place]
        if producer != index:
            break
        produced += [None] * (output + 1 - len(produced))
        number = node[consumer][_SHAPES]
        received = shapes[number] if number else ()
        if 0 <= slot < len(received):
            produced[output] = received[slot]
    return tuple(produced)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Pause the garbage collector while many rows are made.

    They stay, so it would find nothing; looking for it takes as long as making them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def short_name(name: str) -> str:
    """A node's name without the namespaces in front of it."""
    return re.sub(r"^(\w+::)+", "", name)
