"""Gradients that the program sums over ranks itself, where each rank's loss is a mean.

Note [Sum or mean]
The mean of vectors is no longer than the mean of their lengths; their sum is no longer than the sum
of these. What steps find, equal on all ranks and longer than the first, is no mean. That is right
where each rank's loss is its share of a sum, or has been divided by the number of ranks: what leads
to the root of the graph says so. Optimizers that divide by the size of gradients care for neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.evidence import base_name
from agviz.analysis.measures import number
from agviz.analysis.steps.run import RunSteps
from agviz.ranks.answers.found import RankVerdict, found_at
from agviz.traces.distributed import GRADIENT
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from agviz.analysis.steps.run import Stepping
    from agviz.ranks.run import Run
    from agviz.traces.distributed import Collective
    from agviz.traces.reader import Trace

_LEAST: Final = 2
_MOST: Final = 8
"""Steps that are compared, the first ones."""
_BEYOND: Final = 1.05
"""Times the mean of the ranks' norms: what is longer is no mean of their gradients."""
_ROUNDED: Final = 1e-3
_MOST_NODES: Final = 20_000
_MOST_ADDED: Final = 100
_LOSS: Final = "Loss"
_REDUCE: Final = "all_reduce"


def summed(run: Run) -> RankVerdict | None:
    """Note [Sum or mean]; None: nothing of that is seen.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    found: list[list[dict[str, tuple[float, float]]]] = []
    for file, trace in run.folder.traces():
        joined = run.ranks[file.number].joined
        if not any(one.kind.startswith(_REDUCE) and not one.is_inside for one in joined):
            return None
        steps = RunSteps(trace)
        each = steps.optimizers[0] if len(steps.optimizers) == 1 else None
        if each is None or not each.is_torchs or each.is_normalising or trace.synchronised():
            return None
        if not _ends_in_mean(trace, steps) or _is_rate_divided(trace, each):
            return None
        found.append(list(_norms(steps, each)))
    times = [ratio for by_rank in zip(*found, strict=False) for ratio in _times(by_rank)]
    least = min(map(len, found), default=0)
    if len(found) < 2 or least < _LEAST or not times or min(times) <= _BEYOND:
        return None
    with run.folder.trace(min(run.ranks)) as trace:
        call = _reducing(trace)
    if call is None:
        return None
    return found_at(
        run,
        "summed",
        sorted(run.ranks),
        visible(call.stack),
        "gradients are summed over ranks, and not divided by their number",
        f"In the first {plural(least, 'step')} gradients are equal on all ranks, and up to"
        f" {number(max(times))} times as long as those of one rank are on average: a mean over"
        f" {len(found)} ranks is never longer. Each loss is a mean over its rank's batch, so that"
        " steps are as many times too long as there are ranks. Divide by dist.get_world_size()"
        " after all_reduce, unless the learning rate is meant for the sum.",
    )


def _norms(steps: RunSteps, each: Stepping) -> list[dict[str, tuple[float, float]]]:
    """By step and parameter: the norm of its gradient after the last pass, and at the step."""
    found, last = [], None
    for taken in each.steps[:_MOST]:
        between = steps.passes_between(last, taken)
        last = taken
        arrived = steps.arrived(between[-1]) if between else {}
        found.append(
            {
                row.parameter: (arrived[row.parameter], row.gradient)
                for row in taken.sample
                if row.gradient and arrived.get(row.parameter)
            }
        )
    return found


def _times(by_rank: tuple[dict[str, tuple[float, float]], ...]) -> list[float]:
    """How many times the mean of the ranks' norms one step found; 0: another thing, as a clip."""
    found = []
    for name in set[str]().union(*by_rank):
        rows = [rank[name] for rank in by_rank if name in rank]
        own, there = [row[0] for row in rows], [row[1] for row in rows]
        is_equal = math.isclose(min(there), max(there), rel_tol=_ROUNDED)
        is_sum = max(there) <= sum(own) * (1 + _ROUNDED)
        is_whole = len(rows) == len(by_rank)
        found.append(max(there) * len(own) / sum(own) if is_equal and is_sum and is_whole else 0.0)
    return found


def _reducing(trace: Trace) -> Collective | None:
    """The first call of the program that reduces what it calls a gradient."""
    return next(
        (
            one
            for one in trace.collectives()
            if one.operation == _REDUCE and any(name.endswith(GRADIENT) for name in one.names)
        ),
        None,
    )


def _ends_in_mean(trace: Trace, steps: RunSteps) -> bool:
    """Whether the loss of the first pass is a mean over a batch, or a sum with such a one.

    Of a loss function of torch, it is where the files of the program ask for no other reduction.
    """
    task = next(iter(steps.passes), None)
    if task is None or task.nodes > _MOST_NODES:
        return False
    nodes, edges = trace.nodes(task.id), trace.edges(task.id)
    below = {edge.consumer for edge in edges}
    waiting = [node.index for node in nodes if node.index not in below]
    for index in waiting[:_MOST_ADDED]:
        name, frame = base_name(nodes[index].name), nodes[index].frame
        if name == "Add":
            waiting += [edge.consumer for edge in edges if edge.producer == index]
        elif name == "Mean":
            return True
        elif name.endswith(_LOSS) and frame is not None:
            return not any("reduction" in line for line in trace.source(frame.file))
    return False


def _is_rate_divided(trace: Trace, each: Stepping) -> bool:
    """Whether the line that makes the optimizer divides something, as the rate by ranks."""
    made = each.made
    lines = [] if made is None else trace.source(made.file)
    return made is None or "/" in lines[made.line - 1]
