"""What a test's trace says of its failure, in a few lines.

How the backward passes look is judged where everybody asks, in :mod:`agviz.analysis.verdict`. Here
only has what that can't know: what the test failed for, and how pytest is asked to record more.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.coverage import ALL_PASSES
from agviz.analysis.leaves import leaves
from agviz.analysis.outcome import Outcome
from agviz.analysis.place import place
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict, verdicts
from agviz.analysis.why import why
from agviz.testing import cause
from agviz.testing.functions import Functions
from agviz.traces.rows import NodeStatus
from agviz.words.units import backward_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.gradients import Gradients
    from agviz.testing.cause import FailureCause
    from agviz.testing.failing import Failing
    from agviz.traces.reader import Trace

_LAST_NODES: Final = 3
_MOST_THREADS: Final = 4
_MOST_PASSES: Final = 100
_WIDTH: Final = 92
_GRADCHECK: Final = ("torch", "autograd", "gradcheck.py")
_OPTION: Final = re.compile(r"(?<![\w-])--(check-forward|values)\b(?: \(check_forward=True\))?")
"""Of ``agviz run``."""


class Judged(NamedTuple):
    """What is to be said of a test's recording."""

    verdict: Verdict
    is_brief: bool
    """Whether a line will do: nothing was found, and gradients have no part in the failure."""
    cause: FailureCause
    """What other tests may have failed for, too."""


def judge(trace: Trace, failing: Failing) -> Judged:
    """What went wrong in the backward passes of a test, or that nothing unusual was found in them.

    What the passes themselves show goes first, then what made the test fail, then parameters and
    other leaves without a gradient.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    first, *others = verdicts(trace)
    functions = Functions(trace)
    known = _found(trace, first, functions, failing)
    is_brief = False
    if known is not None:
        found, why_so = known
    else:
        checks = _gradchecks(trace)
        is_brief = not (checks or failing.may_be_numbers)
        found = _nothing(trace, first, functions, checks)
        is_plain = found.outcome is Outcome.NOTHING_UNUSUAL
        named = "" if is_brief else functions.names
        why_so = cause.of_functions(named) if is_plain else cause.of_words(found)
    also = [f"Also: {other.heading}." for other in others]
    said = replace(
        found,
        heading=_in_words_of_pytest(found.heading),
        paragraph=_in_words_of_pytest(" ".join([found.paragraph, *also])).strip(),
    )
    is_brief = is_brief and said.outcome is Outcome.NOTHING_UNUSUAL
    return Judged(said, is_brief, why_so._replace(title=_in_words_of_pytest(why_so.title)))


def judge_passes(trace: Trace, first: int) -> Verdict:
    """What went wrong in the backward passes from ``first`` on, one by one, or that nothing did.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    passes = [task.id for task in trace.graph_tasks if task.parent < 0 and task.id >= first]
    for number in passes[:_MOST_PASSES]:
        found = verdicts(trace, number)[0]
        if found.is_found:
            return replace(found, paragraph=_in_words_of_pytest(found.paragraph))
    heading = f"no anomaly found in {backward_passes(len(passes), 0)}"
    if len(passes) > _MOST_PASSES:
        heading = f"no anomaly found in the first {_MOST_PASSES} of {len(passes):,} backward passes"
    gone = sum(
        min(each.passes, each.last + 1 - max(each.first, first))
        for each in trace.left_out
        if each.last >= first
    )
    if gone:
        heading += f"; {backward_passes(gone, 0)} ran unseen ({ALL_PASSES} records them)"
    return Verdict(outcome=Outcome.NOTHING_UNUSUAL, heading=heading, verb="view")


def _found(
    trace: Trace, judged: Verdict, functions: Functions, failing: Failing
) -> tuple[Verdict, FailureCause] | None:
    if judged.is_found:
        return judged, cause.of_verdict(judged)
    if failing.wrong:
        said = Verdict(outcome=Outcome.FOUND, heading=failing.wrong, verb="view")
        return said, cause.of_words(said)
    checked = failing.gradcheck
    if checked is not None:
        words = " ".join(filter(None, (checked.paragraph, functions.sentence)))
        said = functions.at_only(
            Verdict(outcome=Outcome.FOUND, heading=checked.heading, paragraph=words, verb="view")
        )
        return said, cause.of_words(said)
    return _missing(trace)


def _missing(trace: Trace) -> tuple[Verdict, FailureCause] | None:
    """The first parameter without a gradient, or else another leaf."""
    answers: tuple[tuple[str, Callable[[Trace], Gradients]], ...]
    answers = ("why", why), ("summary", leaves)
    for verb, ask in answers:
        missing = next((group for group in ask(trace).groups() if not group.rows[0].is_fine), None)
        if missing is not None:
            row = missing.rows[0]
            found = Verdict(
                outcome=Outcome.FOUND,
                heading=missing.heading,
                frame=row.frame,
                source="" if row.frame is None else source_line(row.frame, trace.path),
                paragraph=row.remedy or _hint(trace),
                verb=verb,
            )
            return found, cause.of_missing(found, row)
    return None


def _hint(trace: Trace) -> str:
    if trace.meta.check_forward:
        return ""
    return "To learn which line cut it off, run the test with --agviz-check-forward."


def _gradchecks(trace: Trace) -> int:
    """How many of the last backward passes went through a graph that gradcheck had made."""
    outermost = [task.id for task in trace.graph_tasks if task.parent < 0][-_MOST_PASSES:]
    first = (trace.nodes(number)[:2] for number in outermost)  # one may be a GraphRoot
    return sum(
        any(PurePath(frame.file).parts[-3:] == _GRADCHECK for node in nodes for frame in node.stack)
        for nodes in first
    )


def _nothing(trace: Trace, judged: Verdict, functions: Functions, checks: int) -> Verdict:
    """Nothing is missing or non-finite: what is left are numbers that are wrong, or none at all."""
    heading, advice = judged.heading, []
    if judged.outcome is Outcome.NOTHING_UNUSUAL:
        tasks = trace.graph_tasks
        reentrant = sum(task.parent >= 0 for task in tasks)
        heading = f"no anomaly found in {backward_passes(len(tasks), reentrant)}"
        if functions.names:
            heading += f"; custom Functions that took part: {functions.names}"
        advice = ["Compare the trace with a good one by agviz diff."]
    if checks:
        called = f"gradcheck called {checks} of them: where it returned False,"
        advice = [f"{called} raise_exception=True has it name the input that is wrong."]
    said = filter(None, (judged.paragraph, functions.sentence, *advice))
    found = replace(judged, heading=heading, paragraph=" ".join(said), verb="view")
    return functions.at_only(found)


def lines(found: Verdict) -> Iterator[str]:
    """A verdict as text, wrapped."""
    yield from textwrap.wrap(found.heading, _WIDTH, break_on_hyphens=False)
    if found.line:
        yield f"  {found.line}"
    if found.source:
        yield f"      {found.source}"
    yield from textwrap.wrap(
        found.paragraph,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


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


def _in_words_of_pytest(text: str) -> str:
    return _OPTION.sub(r"--agviz-\1", text)
