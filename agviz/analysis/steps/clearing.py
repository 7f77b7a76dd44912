"""Gradients that nobody clears, or that are cleared before the optimizer has seen them."""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, tree_of, with_functions
from agviz.analysis.program_writes import written
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, is_clear, is_set_to_zero
from agviz.traces.rows import Frame, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.measure.values import Health
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow

_LEAST_KEPT: Final = 3
"""Steps, besides half of them: one step on old gradients is an accident, or a test."""
_LEAST_CLEARED: Final = 3
_LEAST_BY_HAND: Final = 8
"""Passes: fewer may be one step's."""
_CLEARING: Final = (".zero_", ".fill_", "_foreach_zero_")
_MOST_OPS: Final = 2_000
_MOST_STEPS: Final = 8
_MOST_LEAVES: Final = 500
_FEW: Final = 8
"""Passes between two steps that are looked at."""


def kept(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose gradients pile up from step to step."""
    for each in run.optimizers:
        count = sum(taken.fact.is_kept for taken in each.steps)
        if count < _LEAST_KEPT or count * 2 < len(each.steps):
            continue
        cleared = calls(run.trace, each.stepped, is_clear)
        remedy = "Call zero_grad() of the optimizer before backward."
        if cleared:
            lines = listed([str(frame.line) for frame in cleared])
            clean = len(each.steps) - count
            but = (
                f"but not between those steps, only before {clean:,} others: call it once per step."
                if clean > 1  # the first step has nothing to clear
                else "but does not clear what this optimizer holds between two steps: call it on"
                " this optimizer, once per step."
            )
            remedy = f"zero_grad is called in line {lines}, {but}"
        if not each.is_torchs:
            remedy += f" That is, unless {each.name} works with the sum on purpose."
        yield StepFinding(
            kind="kept",
            heading=f"gradients pile up from step to step of {each.name}",
            frame=each.stepped,
            paragraph=(
                f"Before {count:,} of {plural(len(each.steps), 'step')} of {each.name}, backward"
                " added to the gradients that were left from the step before: each step follows"
                f" the sum of old and new ones. {remedy}"
            ),
            evidence=tuple(
                f"step {taken.number}: the gradients of the step before were there, untouched"
                for taken in each.steps[:_LEAST_KEPT]
                if taken.fact.is_kept
            ),
        )


def kept_within(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers inside whose steps a closure calls backward, on top of what it left before."""
    times = run.taken_at
    for each in run.optimizers:
        later: list[int] = []
        for last, taken in zip([None, *each.steps], each.steps[:_MOST_STEPS], strict=False):
            began = times[taken.number].begin_ns or math.inf
            # From the end on: before the first of its steps an optimizer has all passes of the run.
            backwards = reversed(run.passes_between(last, taken))
            inside: list[int] = []
            for one in backwards:
                if one.begin_ns < began:
                    break
                inside.append(one.id)
            later += inside[::-1][1:_FEW]
        is_added = len(later) >= _LEAST_KEPT and all(run.adds(each, task) for task in later)
        if not is_added or is_set_to_zero(run.trace, each.stepped):
            continue
        yield StepFinding(
            kind="kept",
            heading=f"gradients pile up within the steps of {each.name}",
            frame=visible(run.trace.call_site(later[0])),
            first_pass=later[0],
            paragraph=(
                f"Each step of {each.name} calls backward several times, by its closure. In"
                f" {len(later):,} such passes that were looked at, all but the first of a step,"
                " .grad was there already, and backward added to it: the step works with the sum of"
                " all gradients since it began. Call zero_grad() in the closure, before backward."
            ),
        )


def mixed(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that step on what another's loss left in ``.grad``, besides their own."""
    for each in run.optimizers:
        found = [
            left
            for last, taken in itertools.pairwise(each.steps)
            if (left := _left_by_another(run, each, last, taken)) is not None
        ]
        if len(found) < _LEAST_KEPT or len(found) * 2 < len(each.steps) - 1:
            continue
        first, own = (visible(run.trace.call_site(number)) for number in found[-1])
        if first is None or own is None or (first.file, first.line) == (own.file, own.line):
            continue
        if is_set_to_zero(run.trace, each.stepped):
            continue
        made = "" if each.made is None else f" (made in line {each.made.line})"
        yield StepFinding(
            kind="mixed",
            heading=f"{each.name} steps on gradients of two losses",
            frame=each.stepped,
            paragraph=(
                f"Before {len(found):,} of {plural(len(each.steps), 'step')} of"
                f" {each.name}{made}, backward in line {first.line}, after which another optimizer"
                f" stepped, left gradients in what it holds; backward in line {own.line} added its"
                " own to them, so that each step follows their sum. Call zero_grad() of this"
                f" optimizer between the two, right before line {own.line}, or give the first loss"
                " what its model puts out by detach()."
            ),
        )


def _left_by_another(
    run: RunSteps, each: Stepping, last: TakenStep, taken: TakenStep
) -> tuple[int, int] | None:
    """A pass for another optimizer, and the one before a step that added to what it had left.

    Both reach what the optimizer holds, which was not cleared in between. None: there are no such.
    """
    between = run.passes_between(last, taken).ids
    if not 2 <= len(between) <= _FEW:
        return None
    held = {row.name for row in each.held if row.name}
    own = between[-1]
    stepped = [
        other.graph_task
        for optimizer in run.optimizers
        if held.isdisjoint(row.name for row in optimizer.held)
        for other in optimizer.steps
        if between[0] <= other.graph_task < own
    ]
    if not stepped:
        return None
    now = [row for row in run.trace.parameters(own) if row.name in held and row.node is not None]
    left = stepped[-1]
    reached = {row.name for row in run.trace.parameters(left) if row.node is not None}
    is_added = bool(now) and all(row.had_grad and row.name in reached for row in now)
    return (left, own) if is_added else None


def cleared(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that find no gradient, or only zeros, though passes lead to what they hold."""
    for each in run.optimizers:
        if len(each.steps) < _LEAST_CLEARED:
            continue
        is_none = all(
            taken.fact.held and taken.fact.without_grad == taken.fact.held for taken in each.steps
        )
        is_reached = any(taken.fact.reached for taken in each.steps)
        if not (is_reached and (is_none or _are_zero(run, each))):
            continue
        # What takes a gradient away to use it elsewhere moves the parameters there.
        if each.is_moved_beside or (is_none and each.moves):
            continue
        if not is_none and (op := _multiplied(run, each)) is not None:
            yield StepFinding(
                kind="zeroed",
                heading=f"the gradients are multiplied to zero before {each.name} steps",
                frame=op.frame,
                paragraph=(
                    f"Backward gave gradients to what {each.name} holds, but at all"
                    f" {len(each.steps):,} steps each that was looked at was zero: after backward,"
                    f" {op.name} at {op.line} made zeros of them. Look at what it multiplies by or"
                    " writes. So no step follows a gradient."
                ),
            )
            continue
        what = "no gradient" if is_none else "a gradient of zero"
        how = "they are cleared" if is_none else "they are cleared, or multiplied by 0,"
        lines = calls(run.trace, each.stepped, is_clear)
        culprit = _between(run, each, lines)
        places = [f"{one.file}:{one.line}" for one in lines]
        where = "" if culprit or not lines else f" (zero_grad: {listed(places)})"
        by = "" if culprit is None else f", by zero_grad at {culprit.file}:{culprit.line}"
        yield StepFinding(
            kind="cleared",
            heading=f"the gradients are gone when {each.name} steps",
            frame=each.stepped,
            paragraph=(
                f"Backward leads to the parameters that {each.name} holds, but at all"
                f" {len(each.steps):,} steps each that was looked at had {what}: {how}"
                f" after backward and before step{by}{where}. So no step follows a gradient. The"
                " order is zero_grad, backward, step."
            ),
        )


def _between(run: RunSteps, each: Stepping, cleared: Sequence[Frame]) -> Frame | None:
    """The line of those that stands between backward and the step; None: none, or several."""
    began, stepped = visible(run.trace.call_site(each.steps[-1].graph_task)), each.stepped
    if began is None or stepped is None or began.file != stepped.file:
        return None
    found = [frame for frame in cleared if began.line < frame.line < stepped.line]
    return found[0] if len(found) == 1 else None


def _multiplied(run: RunSteps, each: Stepping) -> ForwardOpRow | None:
    """The function, besides one that clears, by which the program made a gradient zero.

    It is the last one called between the last backward pass before a step and that step.
    """
    taken = each.steps[-1]
    step = run.taken_at.get(taken.number)
    began = None if step is None else step.begin_ns
    after = run.passes.after(taken.graph_task)
    ops = run.trace.forward_ops(after[0].id if after else -1, limit=_MOST_OPS)
    for op in reversed(ops):
        is_before = began is None or op.time_ns < began
        if is_before and any(_is_zeroed(row) for row in written(op)):
            return None if op.name.endswith(_CLEARING) else op
    return None


def _is_zeroed(row: ForwardTensorRow) -> bool:
    health = row.health
    return not row.parameter and not row.requires_grad and health is not None and _is_zero(health)


def _is_zero(health: Health) -> bool:
    return 0 < health.numbers == health.zero


def _are_zero(run: RunSteps, each: Stepping) -> bool:
    """Whether all gradients that were measured at steps are zero, and were not in the passes."""
    last = None
    arrived = 0
    for taken in each.steps:
        norms = [row.gradient for row in taken.sample]
        if any(norm != 0 for norm in norms):
            return False
        task = run.pass_before(taken, last) if norms else None
        last = taken
        if task is not None and arrived < _LEAST_CLEARED:
            known = run.arrived(task)
            arrived += any(known.get(row.parameter, 0.0) > 0 for row in taken.sample)
    return arrived >= _LEAST_CLEARED


def given_back(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that find no ``.grad``, since ``grad()`` gave back what they hold gradients of."""
    calls_of_grad = [task for task in run.trace.graph_tasks.outermost if not task.accumulate_grad]
    for each in run.optimizers:
        if len(each.steps) < 2 or any(
            taken.fact.reached or taken.fact.without_grad < taken.fact.held for taken in each.steps
        ):
            continue
        if each.moves or each.is_moved_beside:  # it is handed the gradients
            continue
        before = [task for task in calls_of_grad if task.id <= each.steps[-1].graph_task][-_FEW:]
        held = {row.name for row in each.held if row.name}
        found = [
            task.id
            for task in before
            if any(
                row.name in held and row.node is not None for row in run.trace.parameters(task.id)
            )
        ]
        if not found:
            continue
        yield StepFinding(
            kind="given back",
            heading=f"{each.name} steps without any gradient: grad() fills no .grad",
            frame=visible(run.trace.call_site(found[-1])) or each.stepped,
            paragraph=(
                f"At all {len(each.steps):,} steps none of the {len(each.held):,} parameters that"
                f" {each.name} holds had a .grad, where step looks for it. torch.autograd.grad"
                " gives gradients back and leaves .grad as it is. Call loss.backward() instead, or"
                " put them there: p.grad = g."
            ),
        )


def kept_in_part(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers of which some gradients pile up, while others are cleared before each step."""
    for each in run.optimizers:
        held = {row.name for row in each.held if row.name}
        steps = each.steps[1:]
        if len(steps) < _LEAST_KEPT or is_set_to_zero(run.trace, each.stepped):
            continue
        found: list[frozenset[str]] = []
        for last, taken in list(itertools.pairwise(steps))[-_LEAST_KEPT:]:
            between = run.passes_between(last, taken).ids
            found.append(_old(run, between[0], held) if len(between) == 1 else frozenset())
        if len(found) < _LEAST_KEPT or not found[0] or len(set(found)) > 1:
            continue
        names = sorted(found[0])
        lines = [str(frame.line) for frame in calls(run.trace, each.stepped, is_clear)]
        where = f" (line {listed(lines)})" if lines else ""
        yield StepFinding(
            kind="kept",
            heading=f"the gradients of {listed(names)} pile up, others are cleared",
            frame=each.stepped,
            paragraph=(
                f"Before each pass that was looked at, one for each step of {each.name}, they had"
                " a gradient of the steps before, and backward added to it; the others of that"
                f" optimizer had none. What clears{where} reaches a part of the model only: call"
                " zero_grad() of the optimizer, which clears all that it holds."
            ),
        )


def _old(run: RunSteps, graph_task: int, held: set[str]) -> frozenset[str]:
    """What had a gradient before a pass that reaches it; empty: all that it reaches, or nothing."""
    rows = [row for row in run.trace.parameters(graph_task) if row.name in held]
    reached = {row.name: row.node for row in rows if row.node is not None}
    old = frozenset(
        row.name
        for row in rows
        if row.had_grad and _is_added_to(run, graph_task, reached.get(row.name, -1))
    )
    return old if len(old) < len(reached) else frozenset()


def _is_added_to(run: RunSteps, graph_task: int, leaf: int) -> bool:
    """Whether what a leaf has after a pass was measured besides what arrived there.

    So it is where they differ: where something was there before, or several gradients arrive.
    """
    found = () if leaf < 0 else run.trace.health(graph_task, leaf)
    return any(row.role == "accumulated" for row in found)


def kept_by_hand(run: RunSteps) -> Iterator[StepFinding]:
    """Gradients that pile up where the program steps by itself, without an optimizer."""
    ids = run.passes.ids
    if run.optimizers or run.idle or len(ids) < _LEAST_BY_HAND:
        return
    frame = visible(run.trace.call_site(ids[-1]))
    if frame is None:
        return
    tree = tree_of(run.trace, frame.file)
    written = [place for place in with_functions(tree) if _moves_by_gradient(place[1])]
    if not written or _clears_by_hand(tree):
        return
    if _adds_to_all(run, ids[0]) or not all(_adds_to_all(run, task) for task in ids[-_LEAST_KEPT:]):
        return
    function, node = written[0]
    number = getattr(node, "lineno", frame.line)
    yield StepFinding(
        kind="kept",
        heading="gradients pile up from step to step: nothing clears them",
        frame=line_at(run.trace, frame.file, number, function),
        paragraph=(
            f"The program moves parameters by their .grad in this line, and before each of the"
            f" last {_LEAST_KEPT} of {len(ids):,} backward passes all of them had one already:"
            " backward adds to it, so that each step follows the sum of all gradients so far. Set"
            " p.grad = None after the step, or call zero_grad() of the model before backward."
        ),
    )


def _adds_to_all(run: RunSteps, graph_task: int) -> bool:
    leaves = [node.index for node in run.trace.nodes(graph_task) if node.shape is not None]
    if not 0 < len(leaves) <= _MOST_LEAVES:
        return False
    return all(_is_added_to(run, graph_task, leaf) for leaf in leaves)


def _moves_by_gradient(node: ast.AST) -> bool:
    """Whether a statement writes something worked out of ``.grad`` to something."""
    match node:
        case ast.AugAssign(value=value):
            return ".grad" in ast.unparse(value)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call):
            is_write = name.endswith("_") and not name.endswith("__")
            return is_write and any(".grad" in ast.unparse(each) for each in call.args)
    return False


def _clears_by_hand(tree: ast.Module) -> bool:
    """Whether the text of a program clears or replaces gradients somewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="zero_grad") | ast.Delete():
                return True
            case ast.Attribute(attr=name, value=ast.Attribute(attr="grad")) if name.endswith("_"):
                return True
            case ast.Attribute(attr="grad", ctx=ast.Store()):
                return True
            case ast.Call() if called_name(node) in {"grad", "setattr"}:
                return True
    return False
