"""Questions that the reader thread asks of the analyses, and their answers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict, beside_passes, verdicts
from agviz.analysis.why import why
from agviz.tui.passes import Findings, Order, others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.reader import Trace
    from agviz.tui.model import LoadedPass


@dataclass(frozen=True)
class VerdictsFound:
    """What is known."""

    verdicts: tuple[Verdict, ...]
    """The worst first; never none."""
    others: str
    """What is to be said of other passes, in sentences; empty: nothing."""


def why_unusual(trace: Trace, recording: LoadedPass, *, number: int | None = None) -> VerdictsFound:
    """What is unusual about a pass, or else where something is; None: the one that is shown."""
    number = recording.key.graph_task if number is None else number
    wrong = verdicts(trace, number)
    if any(verdict.is_found for verdict in wrong):
        return VerdictsFound(wrong, "")
    found = with_beside(trace, wrong)
    return VerdictsFound(found, others(Findings(trace), Order(trace.graph_tasks), number))


def with_beside(trace: Trace, found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Verdicts on a pass, and where one is ✓ those on what no pass holds before it.

    So no ✓ of a pass appears alone where the program fails or waits behind it.
    """
    if not any(verdict.outcome is Outcome.NOTHING_UNUSUAL for verdict in found):
        return found
    return (*sorted(beside_passes(trace), key=lambda verdict: not verdict.is_found), *found)


def why_parameter(
    name: str, graph_task: int | None
) -> Callable[[Trace, LoadedPass], VerdictsFound]:
    """A question: why a parameter's gradient is None or zero, or that it is not.

    Args:
        name: of the parameter.
        graph_task: the pass; None: the one that is shown.
    """

    def question(trace: Trace, recording: LoadedPass) -> VerdictsFound:
        number = recording.key.graph_task if graph_task is None else graph_task
        return VerdictsFound(tuple(_of_parameter(trace, name, number)), "")

    return question


def _of_parameter(trace: Trace, name: str, graph_task: int) -> Iterator[Verdict]:
    """The answer, and around it what is wrong with the pass: most often that is the cause."""
    answer = why(trace, name, graph_task)
    around = verdicts(trace, graph_task) if answer.doubt else ()
    yield from (verdict for verdict in around if verdict.is_found)
    groups = answer.groups()
    group = next((each for each in groups if not each.rows[0].is_fine), groups[0])
    row = group.rows[0]
    said = group.heading if len(groups) == 1 else f"{answer.verdict}: {group.heading}"
    is_there = len(answer) > 1 or row.is_there
    yield Verdict(
        outcome=answer.outcome if is_there else Outcome.FOUND,
        heading=f"in backward pass {graph_task}, {said}",
        graph_task=graph_task,
        frame=row.frame,
        source="" if row.frame is None else source_line(row.frame, trace.path),
        paragraph=" ".join(text for text in (row.remedy, answer.hint) if text),
        details=tuple(row.details),
        verb="why",
    )
    yield from (verdict for verdict in around if verdict.outcome is Outcome.CANT_TELL)
