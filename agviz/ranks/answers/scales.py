"""A rank whose gradients are of another scale than all others', before they are reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import number
from agviz.analysis.median import median
from agviz.analysis.program_calls import ops_of_pass
from agviz.ranks.answers.found import RankVerdict, found_at, numbers
from agviz.ranks.answers.graphs import in_forward
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.ranks.facts import PassFacts
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_LEAST: Final = 2
_MOST: Final = 3
"""Passes that are compared: the first ones that all ranks made."""
_APART: Final = 1e3
"""How many times the median of the others a norm has to be, or that of it, in each of them.

Batches that are drawn alike give norms within a factor of ten."""
_ALIKE: Final = 30.0
"""How far apart those of the others are at most."""


class _Apart(NamedTuple):
    rank: int
    factor: float
    """The one nearest to 1 of all passes; below it where the norms of the rank are smaller."""

    def is_other(self, other: _Apart) -> bool:
        """Whether this is another rank, or not the same way."""
        return self.rank != other.rank or (self.factor > 1) != (other.factor > 1)


def out_of_scale(run: Run) -> RankVerdict | None:
    """The rank, and the line at which its forward parts from another's; None: there is none.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    passes = list(run.common_passes())[:_MOST]
    if len(run.ranks) < 2 or len(passes) < _LEAST or not all(map(_is_alike, passes)):
        return None
    found: _Apart | None = None
    for each in passes:
        apart = _apart(_norms(run, each))
        if apart is None or (found is not None and found.is_other(apart)):
            return None
        if found is None or abs(math.log(apart.factor)) < abs(math.log(found.factor)):
            found = apart
    return None if found is None else _verdict(run, passes, found)


def _norms(run: Run, each: dict[int, PassFacts]) -> dict[int, float]:
    """Of all gradients that go to leaves in a pass, by rank."""
    traces = run.folder.traces()
    return {file.number: _norm(trace, each[file.number].graph_task) for file, trace in traces}


def _is_alike(each: dict[int, PassFacts]) -> bool:
    """Whether all ranks made the same graph: the stages of a pipeline don't."""
    return len({one.fingerprint for one in each.values()}) == 1 and not any(
        one.stage is not None or one.fingerprint is None for one in each.values()
    )


def _norm(trace: Trace, graph_task: int) -> float:
    """The norm of all gradients that go to leaves; NaN where one is not finite, 0: not measured."""
    task = trace.graph_task(graph_task)
    leaves = trace.leaves(graph_task)
    ways = [
        each
        for each in trace.ways(graph_task, task.begin_seq, task.last_seq + 1)
        if each.consumer in leaves
    ]
    if any(each.bad for each in ways):
        return math.nan
    return math.hypot(*(each.norm or 0.0 for each in ways))


def _apart(norms: dict[int, float]) -> _Apart | None:
    """The rank that differs from all others, which are alike; None: there is none."""
    if not all(norm > 0 and math.isfinite(norm) for norm in norms.values()):
        return None
    for rank, norm in sorted(norms.items(), key=lambda one: -one[1]):
        others = [one for other, one in norms.items() if other != rank]
        factor = norm / median(others)
        if max(others) / min(others) <= _ALIKE and not 1 / _APART < factor < _APART:
            return _Apart(rank, factor)
    return None


def _verdict(run: Run, passes: list[dict[int, PassFacts]], apart: _Apart) -> RankVerdict:
    rank = apart.rank
    others = [other for other in run.ranks if other != rank]
    frame, said = _where(run, passes[0], rank, others[0])
    is_larger = apart.factor > 1
    times = number(apart.factor if is_larger else 1 / apart.factor)
    which = "large" if is_larger else "small"
    lost = (
        f"The mean over ranks is that of rank {rank} alone; what {numbers(others)} would learn is"
        " lost in it."
        if is_larger
        else f"In the mean over ranks, what rank {rank} would learn is lost."
    )
    return found_at(
        run,
        "scales",
        (rank,) if len(others) > 1 else sorted(run.ranks),
        frame,
        f"the gradients of rank {rank} are {times} times as {which} as those of {numbers(others)}",
        f"So it is in each of the first {plural(len(passes), 'backward pass', 'backward passes')},"
        f" of equal graphs, before anything is reduced. {lost} {said}",
    )


def _where(run: Run, each: dict[int, PassFacts], rank: int, other: int) -> tuple[Frame | None, str]:
    """The line to look at, and what is known of it."""
    with run.folder.trace(rank) as trace:
        mine = _called(trace, each[rank].graph_task)
        first = _first_line(trace, each[rank].graph_task)
    with run.folder.trace(other) as trace:
        theirs = _called(trace, each[other].graph_task)
    more = _more(mine, theirs)
    if more is not None:
        whose, op = (rank, more[1]) if more[0] else (other, more[1])
        frame = visible(op.stack)
        left = other if whose == rank else rank
        return frame, f"At this line rank {whose} calls {op.name}, which rank {left} does not call."
    if mine:
        return first, "All call the same functions, so look at their data, and at how it is scaled."
    return first, "Look at how each rank makes and scales its data; --check-forward compares that."


def _called(trace: Trace, graph_task: int) -> list[ForwardOpRow]:
    """What the program's own lines called for a pass, in order."""
    if not trace.meta.check_forward:
        return []
    return [op for op in ops_of_pass(trace, graph_task) if visible(op.stack) is not None]


def _more(
    mine: Sequence[ForwardOpRow], theirs: Sequence[ForwardOpRow]
) -> tuple[bool, ForwardOpRow] | None:
    """The first call that only one side makes, and whether that is the first; None: both agree.

    None, too, where they call something else from there on.
    """
    for at, (left, right) in enumerate(zip(mine, theirs, strict=False)):
        if _key(left) == _key(right):
            continue
        if at + 1 < len(mine) and _key(mine[at + 1]) == _key(right):
            return True, left
        if at + 1 < len(theirs) and _key(theirs[at + 1]) == _key(left):
            return False, right
        return None
    return None


def _key(op: ForwardOpRow) -> tuple[str, str | None, Frame | None]:
    return op.name, op.module, visible(op.stack)


def _first_line(trace: Trace, graph_task: int) -> Frame | None:
    """Where the forward begins: the line of the node that was made first."""
    made = in_forward(trace, graph_task)
    return made[0].frame if made else None
