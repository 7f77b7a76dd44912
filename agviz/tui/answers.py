"""Questions that the reader thread asks of the analyses, and their answers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.verdict import Verdict
    from agviz.traces.reader import Trace
    from agviz.tui.model import Recording


@dataclass
class Answered(Message):
    """What is known."""

    verdicts: tuple[Verdict, ...]
    """The worst first; never none."""
    others: str
    """What is to be said of other passes, in sentences; empty: nothing."""


def why_unusual(trace: Trace, recording: Recording) -> Answered:
    """What is unusual about the pass that is shown, or else where something is."""
    from agviz.analysis.verdict import verdicts
    from agviz.tui.passes import Findings, Order, others

    number = recording.key.graph_task
    found = verdicts(trace, number)
    if any(verdict.is_found for verdict in found):
        return Answered(found, "")
    return Answered(found, others(Findings(trace), Order(trace.graph_tasks), number))


def why_parameter(name: str) -> Callable[[Trace, Recording], Answered]:
    """A question: why a parameter's gradient is None or zero, or that it is not."""

    def question(trace: Trace, recording: Recording) -> Answered:
        return Answered((_of_parameter(trace, name, recording.key.graph_task),), "")

    return question


def _of_parameter(trace: Trace, name: str, graph_task: int) -> Verdict:
    from agviz.analysis.outcome import Outcome
    from agviz.analysis.source import source_line
    from agviz.analysis.verdict import Verdict
    from agviz.analysis.why import why

    answer = why(trace, name, graph_task)
    groups = answer.groups()
    group = next((each for each in groups if not each.rows[0].is_fine), groups[0])
    row = group.rows[0]
    said = group.heading if len(groups) == 1 else f"{answer.verdict}: {group.heading}"
    is_there = len(answer) > 1 or row.is_there
    return Verdict(
        outcome=answer.outcome if is_there else Outcome.FOUND,
        heading=f"in backward pass {graph_task}, {said}",
        graph_task=graph_task,
        frame=row.frame,
        source="" if row.frame is None else source_line(row.frame, trace.path),
        paragraph=" ".join(text for text in (row.remedy, answer.doubt, answer.hint) if text),
        details=tuple(row.details),
        verb="why",
    )
