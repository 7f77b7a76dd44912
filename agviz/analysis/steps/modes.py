"""Modules that stay in evaluation mode after a validation, while the training goes on."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import ForwardOpRow, Frame

_SAMPLED: Final = 16
"""Passes that are looked at."""
_LEAST: Final = 3
"""Passes, of those, that are in evaluation mode, and a quarter of all."""
_MOST_OPS: Final = 5_000
_FLAG: Final = re.compile(r"\btraining=(True|False)\b")


class _Modes(NamedTuple):
    """In what mode modules were when the forward of a pass called them."""

    training: frozenset[str]
    evaluating: frozenset[str]
    validated: tuple[ForwardOpRow, ...]
    """What such modules called without gradients in evaluation mode, before the pass."""
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
    modules = frozenset[str]().union(*(each.training for each in seen.values()))
    modules &= frozenset[str]().union(*(each.evaluating for each in seen.values()))
    left = [place for place in places if modules and modules <= seen[place].evaluating]
    if len(left) < _LEAST or len(left) * 4 < len(places):
        return
    turned = _turned(run, modules, seen, places)
    if turned is None:
        return
    first, modes = turned
    names = sorted(modules)
    frame = _switch(run, modes)
    at = "eval()" if frame is None else f"eval() in line {frame.line}"
    yield StepFinding(
        kind="mode",
        heading="training goes on in evaluation mode after a validation",
        frame=frame or modes.called,
        paragraph=(
            f"From backward pass {ids[first]} on, {listed(names)} {_are(names)} in evaluation mode"
            f" (training=False) in {len(left):,} of {plural(len(places), 'pass', 'passes')} that"
            f" were looked at; before, in training mode. In between, they were called without"
            f" gradients, as by a validation: {at} is not followed by train(). Dropout drops"
            " nothing then, and batch norm uses and keeps its running statistics. Call train() of"
            " the model after the validation."
        ),
        evidence=tuple(f"{name}: training=True before, training=False after" for name in names),
    )


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _modes(run: RunSteps, graph_task: int) -> _Modes:
    by_flag: dict[bool, set[str]] = {True: set(), False: set()}
    validated = []
    for op in run.trace.forward_ops(graph_task, limit=_MOST_OPS):
        found = _FLAG.search(op.arguments) if op.module is not None else None
        if found is None or op.recomputed_in != -1:
            continue
        is_training = found[1] == "True"
        if op.grad_enabled:
            by_flag[is_training].add(op.module or "")
        elif not is_training:
            validated.append(op)
    both = by_flag[True] & by_flag[False]
    called = visible(run.trace.call_site(graph_task))
    return _Modes(
        frozenset(by_flag[True] - both), frozenset(by_flag[False] - both), tuple(validated), called
    )


def _turned(
    run: RunSteps, modules: frozenset[str], seen: dict[int, _Modes], places: list[int]
) -> tuple[int, _Modes] | None:
    """The first pass in evaluation mode after one in training mode, of the same line of backward.

    None: none is seen, or nothing was validated in between.
    """
    for before, after in itertools.pairwise(places):
        one, other = seen[before], seen[after]
        if not (modules <= one.training and modules <= other.evaluating):
            continue
        low, high = before, after
        while high - low > 1:
            middle = (low + high) // 2
            seen[middle] = _modes(run, run.passes.ids[middle])
            low, high = (low, middle) if modules <= seen[middle].evaluating else (middle, high)
        found = seen[high]
        validated = {op.module for op in found.validated}
        if validated >= modules and found.called == one.called:
            return high, found
    return None


def _switch(run: RunSteps, modes: _Modes) -> Frame | None:
    """The line that calls ``eval()`` in a function that led to the validation, or the only one."""

    def fits(call: ast.Call, name: str) -> bool:
        return name.endswith(".eval") and not call.args

    within = {frame.function for op in modes.validated for frame in op.stack if not frame.hidden}
    found = calls(run.trace, modes.called, fits)
    inside = [frame for frame in found if frame.function in within]
    several = inside or found
    return several[0] if len(several) == 1 else None
