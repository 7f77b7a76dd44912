"""Modules that stay in evaluation mode after a validation, while the training goes on."""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import parsed
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_SAMPLED: Final = 16
"""Passes that are looked at."""
_LEAST: Final = 3
"""Passes, of those, that are in evaluation mode, and a quarter of all."""
_MOST_OPS: Final = 5_000
_FLAG: Final = re.compile(r"\btraining=(True|False)\b")


class _Modes(NamedTuple):
    """In what mode modules were that were called before a pass, as dropout and batch norm."""

    training: set[str]
    evaluating: set[str]
    validated: set[str]
    """Without gradients, in evaluation mode."""
    functions: set[str]
    """Of the program, that led to those."""
    called: Frame | None
    """The line that called backward."""


def stayed(run: RunSteps) -> Iterator[StepFinding]:
    """A validation after which modules are not put back into training mode."""
    ids = run.passes.ids
    if not run.trace.meta.check_forward or len(ids) < 2 * _LEAST or not run.optimizers:
        return
    count = min(_SAMPLED, len(ids))
    places = [number * (len(ids) - 1) // (count - 1) for number in range(count)]
    seen = {place: _modes(run, ids[place]) for place in places}
    modules = set[str]().union(*(each.training for each in seen.values()))
    modules &= set[str]().union(*(each.evaluating for each in seen.values()))
    left = sum(bool(modules) and modules <= each.evaluating for each in seen.values())
    if left < _LEAST or left * 4 < count:
        return
    for before, after in itertools.pairwise(places):
        low, high, one, other = before, after, seen[before], seen[after]
        if not (modules <= one.training and modules <= other.evaluating):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            modes = _modes(run, ids[middle])
            is_on = modules <= modes.evaluating
            low, high, other = (low, middle, modes) if is_on else (middle, high, other)
        if _puts_parts_into_it(run, other.called):
            return
        if modules <= other.validated and one.called == other.called:
            yield _found(run, ids[high], other, sorted(modules), f"{left} of {count}")
            return


def _puts_parts_into_it(run: RunSteps, called: Frame | None) -> bool:
    """Whether a loop over modules calls ``eval()``, as what freezes all batch norms does."""
    turns = {
        node.target.id
        for node in ast.walk(parsed(() if called is None else run.trace.source(called.file)))
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
        if "modules()" in ast.unparse(node.iter)
    }
    return bool(calls(run.trace, called, lambda _, name: name.removesuffix(".eval") in turns))


def _found(run: RunSteps, first: int, modes: _Modes, names: list[str], often: str) -> StepFinding:
    found = calls(run.trace, modes.called, lambda _, name: name.endswith(".eval"))
    found = [frame for frame in found if frame.function in modes.functions] or found
    frame = found[0] if len(found) == 1 else None
    at = "eval()" if frame is None else f"eval() in line {frame.line}"
    are = "is" if len(names) == 1 else "are"
    return StepFinding(
        kind="mode",
        heading="training goes on in evaluation mode after a validation",
        frame=frame or modes.called,
        paragraph=(
            f"From backward pass {first} on, {listed(names)} {are} in evaluation mode"
            f" (training=False), in {often} passes that were looked at; before, in training mode."
            f" In between, they were called without gradients, as by a validation: {at} is not"
            " followed by train(). Dropout drops nothing then, and batch norm uses and keeps its"
            " running statistics. Call train() of the model after the validation."
        ),
    )


def _modes(run: RunSteps, graph_task: int) -> _Modes:
    modes = _Modes(set(), set(), set(), set(), visible(run.trace.call_site(graph_task)))
    for op in run.trace.forward_ops(graph_task, limit=_MOST_OPS):
        found = _FLAG.search(op.arguments)
        if found is None or op.module is None or op.recomputed_in != -1:
            continue
        is_training = found[1] == "True"
        if op.grad_enabled:
            (modes.training if is_training else modes.evaluating).add(op.module)
        elif not is_training:
            modes.validated.add(op.module)
            modes.functions.update(frame.function for frame in op.stack if not frame.hidden)
    both = modes.training & modes.evaluating
    return modes._replace(training=modes.training - both, evaluating=modes.evaluating - both)
