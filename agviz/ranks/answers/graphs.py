"""Ranks whose graphs differ in the same pass, and the line of the forward at which they part."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.place import place
from agviz.ranks.answers.found import numbers

if TYPE_CHECKING:
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow


class Parting(NamedTuple):
    """The first pass in which graphs differ, and the first node that does."""

    ordinal: int
    few: tuple[int, ...]
    """The ranks that do something else than most; the higher ones where there is no majority."""
    most: tuple[int, ...]
    node: NodeRow | None
    """Of the first of ``few``: the first node made that the others have not; None: it has fewer."""
    other: NodeRow | None
    """Of the first of ``most``: what is there instead; None: nothing more."""

    @property
    def frame(self) -> Frame | None:
        """The line at which they part."""
        found = self.node or self.other
        return None if found is None else found.frame

    @property
    def sentence(self) -> str:
        """What each does there."""
        mine, theirs = _made(self.node), _made(self.other)
        return (
            f"In pass {self.ordinal} the graphs differ: where {numbers(self.most)} made {theirs},"
            f" {numbers(self.few)} made {mine}."
        )


def _made(node: NodeRow | None) -> str:
    if node is None:
        return "nothing more"
    return place(node) + ("" if node.frame is None else f" at {node.frame}")


def parting(run: Run, until: int | None = None) -> Parting | None:
    """Where the graphs of ranks part; None: those of the same pass are alike.

    Passes of a pipeline are not compared: each stage has its own graph.

    Args:
        run: all ranks.
        until: the last pass that is looked at; None: all that several ranks made.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    most = max((len(rank.passes) for rank in run.ranks.values()), default=0)
    for ordinal in range(most if until is None else min(most, until + 1)):
        alike: defaultdict[int, list[int]] = defaultdict(list)
        for number, rank in run.ranks.items():
            if ordinal < len(rank.passes):
                one = rank.passes[ordinal]
                if one.stage is not None or one.fingerprint is None:
                    break
                alike[one.fingerprint].append(number)
        else:
            if len(alike) > 1:
                groups = sorted(alike.values(), key=lambda ranks: (len(ranks), -ranks[0]))
                few, many = groups[0], [rank for ranks in groups[1:] for rank in ranks]
                nodes = _first_apart(run, ordinal, few[0], groups[-1][0])
                return Parting(ordinal, tuple(few), tuple(sorted(many)), *nodes)
    return None


def _first_apart(
    run: Run, ordinal: int, rank: int, other: int
) -> tuple[NodeRow | None, NodeRow | None]:
    with run.folder.trace(rank) as trace:
        mine = in_forward(trace, run.ranks[rank].passes[ordinal].graph_task)
    with run.folder.trace(other) as trace:
        theirs = in_forward(trace, run.ranks[other].passes[ordinal].graph_task)
    for a, b in zip(mine, theirs, strict=False):
        if (a.short_name, a.module, a.frame) != (b.short_name, b.module, b.frame):
            return a, b
    shared = min(len(mine), len(theirs))
    return (
        mine[shared] if shared < len(mine) else None,
        theirs[shared] if shared < len(theirs) else None,
    )


def in_forward(trace: Trace, graph_task: int) -> list[NodeRow]:
    """The nodes in the order in which the forward made them."""
    made = [node for node in trace.nodes(graph_task) if node.sequence_nr is not None and node.stack]
    return sorted(made, key=lambda node: node.sequence_nr or 0)
