"""Learning rates that are not the same on all ranks after the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.measures import number
from agviz.analysis.steps.run import RunSteps
from agviz.analysis.steps.source_calls import calls, is_schedule
from agviz.ranks.answers.found import RankVerdict, found_at

if TYPE_CHECKING:
    from agviz.analysis.steps.run import Stepping
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace


def _synchronised(trace: Trace) -> Stepping | None:
    """The first optimizer that holds what is synchronised, by its name; None: there is none."""
    names = {one.parameter for one in trace.synchronised()}
    every = RunSteps(trace).optimizers
    return next((each for each in every if any(row.name in names for row in each.held)), None)


def apart(run: Run) -> RankVerdict | None:
    """The first step of the first optimizer after which its rate differs; None: there is none.

    Where gradients are reduced, all ranks are to take the same steps.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    by_rank: dict[int, list[float | None]] = {}
    for file, trace in run.folder.traces():
        each = _synchronised(trace)
        if each is None:
            return None  # without DDP, each may train on its own
        by_rank[file.number] = [taken.fact.most_rate for taken in each.steps]
    steps = list(zip(*by_rank.values(), strict=False))
    step = next((number for number, rates in enumerate(steps) if len(set(rates)) > 1), None)
    if step is None:
        return None
    with run.folder.trace(min(by_rank)) as trace:
        each = _synchronised(trace)
        if each is None:
            return None
        lines = calls(trace, each.stepped, is_schedule)
        frame = lines[0] if len(lines) == 1 else each.stepped
    rates = zip(by_rank, steps[step], strict=True)
    shown = ", ".join(f"{number(rate or 0)} on rank {rank}" for rank, rate in rates)
    sets = "" if len(lines) != 1 else f" It is set by the scheduler in line {lines[0].line}."
    return found_at(
        run,
        "rates",
        sorted(by_rank),
        frame,
        f"the learning rate of {each.name} differs between ranks",
        f"After step {step:,} of {each.name} it is {shown}; before, it was equal. Gradients"
        f" are averaged, but each rank takes steps of another length with them, so that the"
        f" weights drift apart.{sets} Give it the same on all ranks, as the mean of a loss"
        " by all_reduce.",
    )
