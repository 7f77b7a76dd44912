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
agree by chance, and are not looked at, but for classes that a convolution gave and the log_softmax
of a cross entropy takes to be last; nor is a first size that is a multiple of what becomes of
it, as where each four rows of 64 are joined.

Attention with relative positions shifts rows on purpose so: it appends a column, views it with two
sizes exchanged, and drops a row. So what was padded or concatenated just before is left alone. What
was transposed just before, and can be merged and split into the new shape, is as well: heads of an
attention over as many positions as there are heads, ``[4, 12, 5]`` as ``[12, 20]``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.program_calls import last_passes
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

    Shape = tuple[int, ...]

_MOST_NODES: Final = 20_000
"""A larger graph is not read."""
_PASSES: Final = 2
"""Those of a generator and of a discriminator, say."""
_VIEWS: Final = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward")
_LENGTHENED: Final = ("CatBackward", "ConstantPadNdBackward")
_TRANSPOSED: Final = ("Permute", "Transpose")
_CHANNELS: Final = 1
"""The dimension at which convolutions give them."""
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
            if found is not None and is_meant(_names_below(trace, task.id, index), *found[:2]):
                found = None
            found = found or _classes(trace, task.id, nodes[index])
            if found is not None:
                return _finding(nodes[index], *found)
    return None


def is_meant(made_by: Sequence[str], before: Shape, after: Shape) -> bool:
    """Whether a program moves sizes so on purpose, or only seems to.

    Args:
        made_by: names of the node that made what is viewed, and of that below it.
        before: shape of what is viewed.
        after: of the view.
    """
    if any(name.startswith(_LENGTHENED) for name in made_by[:1]):
        return True
    made_by = [name for name in made_by if not name.startswith("Clone")][:1]
    if not any(name.startswith(_TRANSPOSED) for name in made_by):
        return False
    counts = sorted({*_behind(before), *_behind(after)})
    return all(more % less == 0 for less, more in itertools.pairwise(counts))


def heading(before: Shape, after: Shape) -> str:
    """What such a view does."""
    return f"viewing {list(before)} as {list(after)} moves a dimension, but no data"


def paragraph(size: int) -> str:
    """What comes of it, and what to do.

    Args:
        size: of the dimension.
    """
    return (
        f"The dimension of size {size:,} changes its place, but view and reshape keep the order of"
        " the elements: each row of the result mixes elements of several rows. To move the"
        " dimension itself, use transpose or permute first. If this regrouping is meant, leave it."
    )


def moved(before: Shape, after: Shape) -> int | None:
    """The size of a dimension that is at another place after a view; None: none is."""
    here, there = [
        [(size, behind) for size, behind in zip(shape, _behind(shape), strict=True) if size != 1]
        for shape in (before, after)
    ]
    while here and there and here[0] == there[0]:
        here, there = here[1:], there[1:]
    while here and there and here[-1] == there[-1]:
        here, there = here[:-1], there[:-1]
    if 0 in before or not (here and there):
        return None
    if len(there) == 2 and here[0][0] % there[0][0] == 0:
        return None  # rows that follow each other may be joined
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
    """Both shapes of a view of the program's, and the size of what they exchange."""
    before, after = _shapes(node)
    size = moved(before, after)
    return None if size is None else (before, after, size)


def _shapes(node: NodeRow) -> tuple[Shape, Shape]:
    """Of what a view of the program's takes, and gives; empty: not known."""
    if node.stack and node.stack[-1].hidden:  # a library's, as that by heads of an attention
        return (), ()
    before = next(iter(node.output_shapes), None)
    after = next(iter(node.input_shapes or ()), None)
    return ((), ()) if before is None or after is None else (before, after)


def _classes(trace: Trace, graph_task: int, node: NodeRow) -> tuple[Shape, Shape, int] | None:
    """The same where a log_softmax takes what is last for the channels of a convolution.

    Their number may be small.
    """
    before, after = _shapes(node)
    is_like = len(before) > _CHANNELS + 1 and before[_CHANNELS] == after[-1] != before[-1]
    if not is_like or not any(
        name.startswith("Convolution") for name in _names_below(trace, graph_task, node.index)[:1]
    ):
        return None
    above = (edge.producer for edge in trace.edges(graph_task) if edge.consumer == node.index)
    names = [trace.node(graph_task, index).name for index in above]
    return (before, after, after[-1]) if names and names[0].startswith("LogSoftmax") else None


def _names_below(trace: Trace, graph_task: int, node: int) -> list[str]:
    """The names of the two nodes that a node's first output leads to."""
    names: list[str] = []
    while len(names) < 2:
        edges = trace.edges_from(graph_task, node)
        if not edges:
            break
        node = edges[0].consumer
        names.append(trace.node(graph_task, node).name)
    return names


def _finding(node: NodeRow, before: Shape, after: Shape, size: int) -> StepFinding:
    return StepFinding(
        kind="mixed axes",
        heading=heading(before, after),
        frame=node.frame,
        paragraph=paragraph(size),
        evidence=(f"node {node.index} ({node.name})",),
    )
