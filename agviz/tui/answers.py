"""Questions that the reader thread asks of the analyses, and their answers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.gradients import Gradients
    from agviz.traces.reader import Trace
    from agviz.tui.model import Recording


@dataclass
class Answered(Message):
    """What is known."""

    is_bad: bool | None
    """Whether something is wrong; None: that can't be told."""
    heading: str
    line: str
    """``model.py:42 in forward``; empty where it is not known."""
    source: str
    """The text of that line; empty where the file is not there."""
    paragraph: str
    details: tuple[str, ...]


def why_not_finite(trace: Trace, recording: Recording) -> Answered:
    """Why gradients are not finite, or why the backward pass failed or does not end."""
    from agviz.analysis.verdict import Outcome, verdicts

    found = verdicts(trace, recording.key.graph_task)[0]
    is_bad = None if found.outcome is Outcome.CANT_TELL else found.is_found
    return Answered(is_bad, found.heading, found.line, found.source, found.paragraph, found.details)


def why_parameter(name: str) -> Callable[[Trace, Recording], Answered]:
    """A question: why a parameter's gradient is None or zero, or that it is not."""

    def question(trace: Trace, recording: Recording) -> Answered:
        from agviz.analysis.why import why

        return _of_parameter(why(trace, name, recording.key.graph_task))

    return question


def _of_parameter(answer: Gradients) -> Answered:
    from agviz.analysis.source import source_line

    row = answer[0]
    source = "" if row.frame is None else source_line(row.frame)
    paragraph = " ".join(text for text in (row.remedy, answer.hint) if text)
    heading = row.heading(row.parameter)
    is_bad = not row.is_there
    return Answered(is_bad, heading, row.line or "", source, paragraph, tuple(row.details))
