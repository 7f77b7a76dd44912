"""Ranks whose gradients DDP averages, and that all work on the same data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import only_call
from agviz.analysis.program_calls import ops_of_pass
from agviz.ranks.answers.found import RankVerdict, found_at, numbers

if TYPE_CHECKING:
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace

_LEAST: Final = 3
"""Passes that are compared, the last ones that all ranks made."""
_SAMPLER: Final = "DistributedSampler"
_LOADER: Final = "DataLoader"


def same_data(run: Run) -> RankVerdict | None:
    """That all ranks were given the same; None: they were not, or it is not known.

    Each number that functions of the forward gave has to be the same on all ranks, in as far as
    least, largest, mean and norm show, and losses have to differ from pass to pass. Judged are only
    programs that take their data from a DataLoader, recorded with the values of the forward.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    passes = list(run.common_passes())[-_LEAST:]
    if len(run.ranks) < 2 or len(passes) < _LEAST:
        return None
    first: list[Any] | None = None
    for file, trace in run.folder.traces():
        if not trace.meta.check_forward or not trace.synchronised():
            return None
        seen = [_numbers(trace, each[file.number].graph_task) for each in passes]
        if not all(seen) or len({loss for loss, _ in seen}) < _LEAST:
            return None
        if first is not None and seen != first:
            return None
        first = seen
    with run.folder.trace(min(run.ranks)) as trace:
        return _verdict(run, trace)


def _numbers(trace: Trace, graph_task: int) -> tuple[float | None, list[Any]]:
    """The loss of a pass, and what its functions gave."""
    ops = ops_of_pass(trace, graph_task)
    given = [(op.name, op.module, [row.health for row in op.outputs]) for op in ops]
    return trace.losses().get(graph_task), given


def _verdict(run: Run, trace: Trace) -> RankVerdict | None:
    sampler, loader = only_call(trace, _SAMPLER), only_call(trace, _LOADER)
    frame = sampler or loader
    if frame is None:
        return None
    ranks = tuple(run.ranks)
    remedy = (
        "Look at the rank and num_replicas that DistributedSampler is given here (by default those"
        " of the process group), and that all ranks give it the same seed."
        if sampler is not None
        else "Give the DataLoader a torch.utils.data.distributed.DistributedSampler, and call its"
        " set_epoch in each epoch."
    )
    return found_at(
        run,
        "data",
        ranks,
        frame,
        f"{numbers(ranks)} work on the same data",
        f"In the last {_LEAST} backward passes each function of the forward gave the same"
        " on all of them, and so did the loss, which changes from pass to pass: all are"
        " given the same batches. DDP averages gradients that are equal already, so that"
        " more ranks learn no more than one, and the rest of the data is never seen."
        f" {remedy}",
    )
