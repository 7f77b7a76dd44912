"""The rank on which gradients or losses first were not finite; after an all-reduce all have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agviz.analysis.explanation import Explanation
from agviz.analysis.pass_marks import PassMark, marks
from agviz.analysis.place import place
from agviz.analysis.source import source_line
from agviz.analysis.steps.source_calls import calls
from agviz.analysis.verdict import verdicts
from agviz.ranks.answers.found import RankVerdict, numbers
from agviz.ranks.answers.renamed import of_rank
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from agviz.analysis.verdict import Verdict
    from agviz.ranks.folder import Folder
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace

_RANK: Final = "rank 0:"
"""Words that headings of ranks begin with."""
_HALF: Final = "Half"
"""What the flight recorder calls float16."""
_MARKS = {PassMark.NON_FINITE, PassMark.LOSS}


def nonfinite(run: Run) -> RankVerdict | None:
    """Where it began; None: all that was measured is finite on all ranks.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    first: dict[int, int] = {}
    for file, trace in run.folder.traces():
        passes = run.ranks[file.number].passes
        is_stage = any(one.stage is not None for one in passes)
        # A stage of a pipeline infers shapes by a pass over memory that nobody has written to.
        ordinals = {
            one.graph_task: one.ordinal for one in passes if not is_stage or one.stage is not None
        }
        found = [
            ordinals[task]
            for task, mark in _nonfinite(trace).items()
            if mark in _MARKS and task in ordinals
        ]
        if found:
            first[file.number] = min(found)
    if not first:
        return None
    earliest = min(first.values())
    begun = [rank for rank, ordinal in first.items() if ordinal == earliest]
    answers = [(rank, _explained(run.folder, rank, _task(run, rank, earliest))) for rank in begun]
    rank, verdict = min(
        answers, key=lambda answer: (not _has_origin(answer[1]), not answer[1].is_found, answer[0])
    )
    alike = [other for other, one in answers if _has_origin(one) == _has_origin(verdict)]
    others = sorted(set(run.ranks) - {rank})
    said = _elsewhere(first, earliest, rank, others, alike)
    if isinstance(verdict.basis, Explanation):
        verdict = replace(verdict, paragraph=verdict.basis.beside(f"{_RANK} {said}"))
    if not _has_origin(verdict):
        verdict = _reduced(run, rank, earliest, verdict)
    return RankVerdict(
        kind="nonfinite",
        ranks=tuple(alike) if _has_origin(verdict) else (rank,),
        node=_node(verdict),
        verdict=of_rank(rank, verdict, beside=said),
    )


def _nonfinite(trace: Trace) -> dict[int, PassMark]:
    found = marks(trace)
    tasks = {task.id: task for task in trace.graph_tasks}
    for number in trace.nonfinite_results():  # a pass that failed or was cut has another mark
        outermost = number
        while tasks[outermost].parent in tasks:
            outermost = tasks[outermost].parent
        found[outermost] = PassMark.NON_FINITE
    return found


def _task(run: Run, rank: int, ordinal: int) -> int:
    return run.ranks[rank].passes[ordinal].graph_task


def _explained(folder: Folder, rank: int, graph_task: int) -> Verdict:
    with folder.trace(rank) as trace:
        found = verdicts(trace, graph_task)
    return next((one for one in found if isinstance(one.basis, Explanation)), found[0])


def _has_origin(verdict: Verdict) -> bool:
    """Whether a node of this rank made it: not what an all-reduce left in ``.grad``."""
    basis = verdict.basis
    if not isinstance(basis, Explanation):
        return verdict.is_found
    return verdict.is_found and not basis.node.short_name.startswith("AccumulateGrad")


def _node(verdict: Verdict) -> str:
    return place(verdict.basis.node) if isinstance(verdict.basis, Explanation) else ""


def _reduced(run: Run, rank: int, ordinal: int, verdict: Verdict) -> Verdict:
    """The verdict on what no node made, where an all-reduce of a smaller dtype may have.

    DDP's own reduction has the dtype of the parameters; a communication hook may cast to another.
    """
    halves = [
        one
        for one in run.ranks[rank].joined
        if (one.is_inside, one.ordinal) == (True, ordinal)
        and one.kind.startswith("all_reduce")
        and _HALF in one.kind.split()
    ]
    if not halves:
        return verdict
    task = _task(run, rank, ordinal)
    with run.folder.trace(rank) as trace:
        if any(row.dtype == "float16" for row in trace.parameters(task)):
            return verdict
        beside = visible(trace.call_site(task))
        found = calls(trace, beside, lambda _call, name: name.endswith("register_comm_hook"))
        frame = found[0] if len(found) == 1 else verdict.frame
        source = "" if frame is None else source_line(frame, trace.path)
    said = (
        "No node of backward made it: gradients were reduced between ranks"
        " in float16, while parameters are not float16: a communication hook of DDP casts them."
        " float16 ends at 65,504: what is larger there, or as a sum over ranks, becomes infinite,"
        " and infinities of both signs NaN."
        " Use a bfloat16 hook, none, or smaller gradients (scale the loss down)."
    )
    heading = f"gradients that were reduced in float16 are not finite, in backward pass {task}"
    return replace(verdict, heading=heading, frame=frame, source=source, paragraph=said, basis=None)


def _elsewhere(
    first: dict[int, int], earliest: int, rank: int, others: list[int], alike: list[int]
) -> str:
    same = sorted(set(alike) - {rank})
    if len(same) == len(others) and same:
        return f"It begins in the same pass on {numbers(same)} as well."
    parts = []
    reached = [other for other in others if first.get(other) == earliest and other not in same]
    later = [other for other in others if first.get(other, earliest) > earliest]
    never = [other for other in others if other not in first]
    if same:
        parts.append(f"It begins in the same pass on {numbers(same)} as well.")
    if reached:
        parts.append(f"An all-reduce brought it to {numbers(reached)} in that pass.")
    if later:
        parts.append(
            f"On {numbers(later)} everything is finite until the pass after, or later: the"
            " all-reduce, and the step of the optimizer, brought it there."
        )
    if never:
        parts.append(f"On {numbers(never)} all that was measured is finite.")
    return " ".join(parts)
