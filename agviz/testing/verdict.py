"""What a test's trace says of its failure, in a few lines."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.explanation import explain
from agviz.analysis.failure import failure
from agviz.analysis.leaves import leaves
from agviz.analysis.place import place
from agviz.analysis.source import source_line
from agviz.analysis.vanishing import is_custom
from agviz.analysis.why import why
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz.words import backward_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.gradients import Gradients
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow

_LAST_NODES: Final = 3
_MOST_THREADS: Final = 4
_WIDTH: Final = 92


class Verdict(NamedTuple):
    """What there is to say first."""

    heading: str
    line: str = ""
    """The line to look at, like ``model.py:12 in forward``."""
    source: str = ""
    """Its text."""
    paragraph: str = ""
    verb: str = "view"
    """What of ``agviz`` tells more."""

    def lines(self) -> Iterator[str]:
        """It as text, wrapped."""
        yield from textwrap.wrap(self.heading, _WIDTH, break_on_hyphens=False)
        if self.line:
            yield f"  {self.line}"
        if self.source:
            yield f"      {self.source}"
        yield from textwrap.wrap(
            self.paragraph,
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def verdict(trace: Trace) -> Verdict:
    """What went wrong in the backward passes of a test, or that nothing did.

    A pass that failed or hangs goes before gradients that are not finite, and these before
    parameters without a gradient.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    wrong = failure(trace)
    if wrong is not None:
        return _at(wrong.frame, trace, wrong.heading, wrong.paragraph, "explain")
    failed = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FAILED]
    if failed:
        return _failed(trace, failed[-1])
    if trace.meta.values != "none" or trace.has_checks():
        found = explain(trace)
        if found is not None and not found.is_harmless:
            return Verdict(
                found.heading, found.line or "", found.source, found.paragraph, "explain"
            )
    answers: tuple[tuple[str, Callable[[Trace], Gradients]], ...]
    answers = ("why", why), ("summary", leaves)
    for verb, ask in answers:
        missing = next((group for group in ask(trace).groups() if not group.rows[0].is_fine), None)
        if missing is not None:
            row = missing.rows[0]
            return _at(row.frame, trace, missing.heading, row.remedy or _hint(trace), verb)
    return _nothing(trace)


def last_nodes(trace: Trace) -> Iterator[str]:
    """The last nodes that each thread ran in the last backward pass, a line for each thread."""
    outermost = [task for task in trace.graph_tasks if task.parent < 0]
    if not outermost:
        return
    names = {thread.id: thread.name for thread in trace.threads}
    ran: defaultdict[int, list[str]] = defaultdict(list)
    for number in trace.family(outermost[-1].id):
        for execution in trace.executions(number):
            failed = " (failed)" if execution.status is NodeStatus.FAILED else ""
            ran[execution.thread].append(place(trace.node(number, execution.node)) + failed)
    for thread, nodes in list(ran.items())[:_MOST_THREADS]:
        shown = ", ".join(nodes[-_LAST_NODES:])
        yield f"last nodes on {names.get(thread) or f'thread {thread}'}: {shown}"


def _failed(trace: Trace, task: GraphTaskRow) -> Verdict:
    node = next((n for n in trace.nodes(task.id) if n.status is NodeStatus.FAILED), None)
    said = f"{task.error}: {task.message}".strip(": ")
    if node is None:
        return Verdict(f"backward pass {task.id} failed", paragraph=said, verb="summary")
    return _at(node.frame, trace, f"{place(node)} failed in backward", said, "summary")


def _hint(trace: Trace) -> str:
    if trace.meta.check_forward:
        return ""
    return "To learn which line cut it off, run the test with AGVIZ_CHECK_FORWARD=1."


def _nothing(trace: Trace) -> Verdict:
    """Nothing is missing or non-finite: what is left are numbers that are wrong."""
    tasks = trace.graph_tasks
    outermost = [task.id for task in tasks if task.parent < 0]
    passes = backward_passes(len(tasks), len(tasks) - len(outermost))
    finite = "" if trace.meta.values == "none" else ", all that reached a parameter is finite"
    heading = (
        f"nothing is wrong in {passes}{finite}: compare the trace with a good one by agviz diff"
    )
    custom = [node for node in trace.nodes(outermost[-1]) if is_custom(node)] if outermost else []
    if not custom:
        return Verdict(heading)
    names = ", ".join(dict.fromkeys(map(place, custom)))
    paragraph = (
        f"Where numbers are wrong, look first at derivatives that are written by hand: {names}."
    )
    return _at(custom[0].frame, trace, heading, paragraph, "view")


def _at(frame: Frame | None, trace: Trace, heading: str, paragraph: str, verb: str) -> Verdict:
    if frame is None:
        return Verdict(heading, "", "", paragraph, verb)
    return Verdict(heading, str(frame), source_line(frame, trace.path), paragraph, verb)
