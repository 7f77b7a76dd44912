"""Views that take a dimension to another place, and leave the numbers where they are.

Note [Dimensions that only sizes moved]
``view`` and ``reshape`` read the numbers of a tensor in their order and cut them anew. That merges
neighbouring dimensions and splits them again; a dimension that shall come to another place needs
``transpose`` or ``permute`` first. Who takes ``view`` for that gets the right sizes, and rows that
are mixed of others': ``[64, 12, 6, 6]`` as ``[64, 36, 12]``, the last state of two directions,
``[2, 32, 50]``, as ``[32, 100]``.

It shows in the sizes of both shapes alone. What is equal at the front and at the back stays in its
place. Of what is left, a size that either shape has once, with another number of elements behind it
in the one than in the other, is a dimension whose place changed: had it been merged or split, its
size would have changed, and had it stayed, there would be as much behind it as before. Small sizes
agree by chance, and are not looked at.

Attention with relative positions shifts rows on purpose so: it appends a column, views it with two
sizes exchanged, and drops a row. So what was padded or concatenated just before is left alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.program_calls import last_passes
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

    Shape = tuple[int, ...]

_MOST_NODES: Final = 20_000
"""A larger graph is not read."""
_PASSES: Final = 2
"""Those of a generator and of a discriminator, say."""
_VIEWS: Final = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward")
_LENGTHENED: Final = ("CatBackward", "ConstantPadNdBackward")
_LEAST_SIZE: Final = 4


def mixed_axes(trace: Trace) -> StepFinding | None:
    """A view of the last passes that exchanges sizes; None: none does.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in last_passes(trace, _PASSES):
        if task.nodes > _MOST_NODES:
            continue
        labels = trace.node_labels(task.id, 0, task.nodes)
        views = [index for index, label in enumerate(labels) if label.name.startswith(_VIEWS)]
        nodes = trace.nodes(task.id) if views else ()
        for index in reversed(views):  # in the order of the forward
            found = _mixed(nodes[index])
            if found is not None and not _is_lengthened(trace, task.id, index):
                return _finding(nodes[index], *found)
    return None


def moved(before: Shape, after: Shape) -> int | None:
    """The size of a dimension that is at another place after a view; None: none is."""
    here, there = [list(zip(shape, _behind(shape), strict=True)) for shape in (before, after)]
    while here and there and here[0] == there[0]:
        here, there = here[1:], there[1:]
    while here and there and here[-1] == there[-1]:
        here, there = here[:-1], there[:-1]
    once = [
        {size: behind for size, behind in left if Counter(size for size, _ in left)[size] == 1}
        for left in (here, there)
    ]
    sizes = [
        size
        for size, behind in once[0].items()
        if size >= _LEAST_SIZE and once[1].get(size, behind) != behind
    ]
    return max(sizes, default=None)


def _behind(shape: Shape) -> Iterator[int]:
    """How many elements are behind each dimension."""
    count = 1
    found = []
    for size in reversed(shape):
        found.append(count)
        count *= size
    return reversed(found)


def _mixed(node: NodeRow) -> tuple[Shape, Shape, int] | None:
    """Both shapes of a view, and the size of what they exchange."""
    before = next(iter(node.output_shapes), None)
    after = next(iter(node.input_shapes or ()), None)
    size = None if before is None or after is None else moved(before, after)
    return None if before is None or after is None or size is None else (before, after, size)


def _is_lengthened(trace: Trace, graph_task: int, view: int) -> bool:
    """Whether what is viewed was padded or concatenated just before."""
    below = [edge.consumer for edge in trace.edges_from(graph_task, view)]
    return any(trace.node(graph_task, each).name.startswith(_LENGTHENED) for each in below)


def _finding(node: NodeRow, before: Shape, after: Shape, size: int) -> StepFinding:
    return StepFinding(
        kind="mixed axes",
        heading=f"a view of {list(before)} as {list(after)} moves sizes, and no numbers",
        frame=node.frame,
        paragraph=(
            f"The dimension of size {size:,} comes to another place, but view and reshape keep the"
            " order of the numbers: each row of the result is cut out of several of the rows that"
            " were. Where the dimension itself is to move, use transpose or permute before; if the"
            " numbers are to be cut anew just so, all is well."
        ),
        evidence=(f"node {node.index} ({node.name})",),
    )
