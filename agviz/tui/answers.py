"""Questions that the reader thread asks of the analyses, and their answers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.failure import Failure
    from agviz.analysis.gradients import Gradients
    from agviz.traces.reader import Trace
    from agviz.tui.model import Recording


@dataclass
class Answered(Message):
    """What is known."""

    is_bad: bool
    """Whether something is wrong."""
    heading: str
    line: str
    """``model.py:42 in forward``; empty where it is not known."""
    source: str
    """The text of that line; empty where the file is not there."""
    paragraph: str
    details: tuple[str, ...]


def why_not_finite(trace: Trace, recording: Recording) -> Answered:
    """Why gradients are not finite, or why the backward pass failed or does not end."""
    from agviz.analysis.explanation import explain
    from agviz.analysis.failure import failure

    number = recording.key.graph_task
    wrong = failure(trace, number)
    if wrong is not None:
        return _of_failure(wrong)
    if trace.meta.values == "none":
        said = "The health of gradients was not recorded (--values none)."
        return Answered(False, "Nothing is known", "", "", said, ())
    found = explain(trace, number)
    if found is None:
        return Answered(False, "Every gradient that was checked is finite", "", "", "", ())
    paragraph = found.aside if found.is_harmless else found.paragraph
    details = tuple(found.details())
    is_bad = not found.is_harmless
    return Answered(is_bad, found.heading, found.line or "", found.source, paragraph, details)


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


def _of_failure(wrong: Failure) -> Answered:
    from agviz.analysis.failure import is_wrong
    from agviz.analysis.source import source_line

    line = "" if wrong.frame is None else str(wrong.frame)
    source = "" if wrong.frame is None else source_line(wrong.frame)
    details = tuple(wrong.details())
    return Answered(is_wrong(wrong), wrong.heading, line, source, wrong.paragraph, details)
