"""A seed that is set in the midst of a training, so that the same random numbers come again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import own_name, tree_of
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.seedings import SeedFact

_LEAST: Final = 3
"""Times that it is set again: once or twice may be a resumption, or a test."""


def seeded_again(run: RunSteps) -> Iterator[StepFinding]:
    """The seed that is set most often between steps of an optimizer."""
    facts = [each for each in run.trace.seedings() if each.times >= _LEAST]
    for fact in sorted(facts, key=lambda each: -each.times)[:1]:
        place = _of_caller(run.trace, fact)
        frame = Frame(*place, False)
        line = run.trace.source(frame.file)[frame.line - 1 : frame.line]
        every = max(1, round(fact.steps / fact.times))
        often = "at each step" if every == 1 else f"about every {every:,} steps"
        yield StepFinding(
            kind="seeded again",
            heading=f"the seed {fact.seed} is set again and again while one optimizer trains",
            frame=frame._replace(source=line[0].strip() if line else ""),
            paragraph=(
                f"It was set {fact.times:,} times between steps of the same optimizer, {often}, and"
                " torch drew random numbers each time. So the same ones come again: the same noise,"
                " dropout masks and shuffles, of which nothing is averaged out. Set a seed once,"
                " before training. What has to be alike each time, as samples of a validation,"
                " takes a generator of its own, or goes into torch.random.fork_rng()."
            ),
        )


def _of_caller(trace: Trace, fact: SeedFact) -> tuple[str, int, str]:
    """The innermost line that sets the seed, or that of the call which gives it the number."""
    found = fact.lines[0]
    for place in fact.lines[1:]:
        if not _is_argument(trace, found) or not _gives(trace, place, fact.seed):
            break
        found = place
    return found


def _is_argument(trace: Trace, place: tuple[str, int, str]) -> bool:
    """Whether a line hands on an argument of its function as the seed."""
    file, _, function = place
    arguments = {
        one.arg
        for node in ast.walk(tree_of(trace, file))
        if isinstance(node, ast.FunctionDef) and node.name == function
        for one in [*node.args.args, *node.args.kwonlyargs]
    }
    return any(own_name(one) in arguments for one in _given(trace, place))


def _gives(trace: Trace, place: tuple[str, int, str], seed: int) -> bool:
    """Whether a line gives a call this number, or something that is called a seed."""
    return any(
        (isinstance(one, ast.Constant) and one.value == seed) or "seed" in own_name(one).lower()
        for one in _given(trace, place)
    )


def _given(trace: Trace, place: tuple[str, int, str]) -> Iterator[ast.expr]:
    """What the calls of a line are given."""
    file, line, _ = place
    for node in ast.walk(tree_of(trace, file)):
        if isinstance(node, ast.Call) and node.lineno == line:
            yield from [*node.args, *(word.value for word in node.keywords)]
