"""Parameters that no backward pass leads to, in a sentence for answers about something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow

LAST_PASSES: Final = 20
"""Calls of backward looked at, the last ones: a parameter may be trained by some of them only."""
_MOST_NAMED: Final = 3


def untrained(trace: Trace, graph_task: int | None = None) -> str:
    """Which parameters that require a gradient are in no graph; empty: none, or not known.

    Args:
        trace: the trace.
        graph_task: only this call of backward; None: the last ones.

    Returns:
        A sentence without its full stop.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    every: Sequence[GraphTaskRow] = trace.graph_tasks.outermost.accumulating
    if graph_task is not None:
        task = trace.graph_task(graph_task)
        every = [task] if task.parent < 0 and task.accumulate_grad else []
    passes = every[-LAST_PASSES:]
    # FSDP2 lends a module its whole parameters for the forward; the shards it is asked for get
    # their gradients from it, not from a node.
    sharded = {row.parameter for row in trace.synchronised() if row.kind == "fsdp"}
    known: dict[str, None] = {}
    reached = set(sharded)
    for task in reversed(passes):
        if task.inputs:  # only some parameters were asked for
            return ""
        rows = [row for number in trace.family(task.id) for row in trace.parameters(number)]
        reached.update(row.name for row in rows if row.node is not None)
        known = known or {row.name: None for row in rows if row.requires_grad}
    missing = [
        name for name in known if name not in reached and _before(name, known) not in reached
    ]
    if not missing:
        return ""
    named = ", ".join(missing[:_MOST_NAMED])
    if len(missing) > _MOST_NAMED:
        named += f" and {len(missing) - _MOST_NAMED:,} more"
    within = f" in the last {LAST_PASSES} backward passes" if len(every) > len(passes) else ""
    of = plural(len(known), "parameter")
    before = led_to(trace, every[: -len(passes)])
    had = sum(name in before or _before(name, known) in before for name in missing)
    earlier = (
        ""
        if not had
        else ", but earlier ones led to "
        + (f"{had:,} of these" if had < len(missing) else "all of these" if had > 1 else "it")
    )
    return f"{len(missing):,} of {of} got no gradient{within}{earlier} ({named})"


def led_to(trace: Trace, passes: Sequence[GraphTaskRow]) -> dict[str, int]:
    """Names of parameters that calls of backward led to, each with the last of these.

    Of many calls, :data:`LAST_PASSES` are looked at, evenly spread.
    """
    found: dict[str, int] = {}
    step = -(-len(passes) // LAST_PASSES) or 1
    for task in passes[::-step]:
        for number in trace.family(task.id):
            rows = trace.parameters(number)
            found |= {row.name: task.id for row in rows if row.node is not None} | found
    return found


def _before(name: str, known: Collection[str]) -> str:
    """What a parameter was called until its name began with the class of its outermost module."""
    before = name.partition(".")[2]
    return "" if before in known else before
