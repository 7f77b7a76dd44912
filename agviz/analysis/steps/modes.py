"""Modules that stay in evaluation mode after a validation, while the training goes on.

Note [Modes that nodes show]
Where the forward is not recorded, the graph has them. A batch norm that trains saves the mean of
its batch, and else an empty tensor; a dropout that drops nothing makes no node. So in passes of one
line that lead to the same parameters, all that was in training mode at first is no longer, up to
the last pass. That it is so by a validation is read from the text: ``eval()``, then what turns
gradients off, with neither ``backward()`` between them nor ``train()`` after it.
"""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_of,
    parsed,
    turns_gradients_off,
    user_files,
)
from agviz.analysis.steps.dropping import DROPS
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, in_loop
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import ForwardOpRow

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
    first = seen[0]
    never = first.validated.intersection(*(each.evaluating for each in seen.values()))
    if not any(each.training for each in seen.values()) and any(
        _is_untouched(run, ids[0], module) for module in never
    ):
        often = f"{count} of {count}"
        yield _found(
            run, ids[0], first, sorted(never), often, "; batch norm has yet to see a batch"
        )
        return
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
        modules -= _frozen_norms(run, ids[high])
        if modules and modules <= other.validated and one.called == other.called:
            yield _found(
                run,
                ids[high],
                other,
                sorted(modules),
                f"{left} of {count}",
                "; before, in training mode",
            )
            return


class _Nodes(NamedTuple):
    """What nodes of a pass show of the modes of modules. Note [Modes that nodes show]."""

    training: frozenset[str]
    evaluated: frozenset[str]
    """Batch norms whose weight is trained."""
    parameters: frozenset[str]
    called: Frame | None


def stayed_by_nodes(run: RunSteps) -> Iterator[StepFinding]:
    """The same where the forward is not recorded. Note [Modes that nodes show]."""
    ids = run.passes.ids
    if run.trace.meta.check_forward or len(ids) < 2 * _LEAST or not run.optimizers:
        return
    lines = [visible(run.trace.call_site(ids[place])) for place in (0, -1)]
    found = _lines_of_validation(run) if lines[0] == lines[1] else []
    if not found:
        return
    count = min(_SAMPLED, len(ids))
    places = [number * (len(ids) - 1) // (count - 1) for number in range(count)]
    first = _nodes(run, ids[0])
    if not first.training and len(found) == 1:
        if all(_nodes(run, ids[place]).evaluated for place in places):
            yield _never_back(found[0], sorted(first.evaluated), count)
        return
    states = [_is_off(first, _nodes(run, ids[place])) for place in places]
    left = sum(state is True for state in states)
    if left < _LEAST or left * 4 < count or states != [False] * (count - left) + [True] * left:
        return
    low, high = places[count - left - 1], places[count - left]
    while high - low > 1:
        middle = (low + high) // 2
        is_off = _is_off(first, _nodes(run, ids[middle]))
        if is_off is None:
            return
        low, high = (low, middle) if is_off else (middle, high)
    if _puts_parts_into_it(run, first.called):
        return
    frame = found[0] if len(found) == 1 else None
    at = "eval()" if frame is None else f"eval() in line {frame.line}"
    names = sorted(first.training)
    are = "is" if len(names) == 1 else "are"
    yield StepFinding(
        kind="mode",
        heading="training goes on in evaluation mode after a validation",
        frame=frame or first.called,
        paragraph=(
            f"From backward pass {ids[high]} on, {listed(names)} {are} in evaluation mode, in"
            f" {left} of {count} passes that were looked at; before, in training mode: dropouts"
            " made nodes, and batch norms saved the mean of the batch. No train() follows the"
            f" validation that begins with {at}. Dropout drops nothing then, and batch norm uses"
            " and keeps its running statistics. Call train() of the model after the validation."
        ),
    )


def _never_back(frame: Frame, names: list[str], count: int) -> StepFinding:
    are = "is" if len(names) == 1 else "are"
    return StepFinding(
        kind="mode",
        heading="training goes on in evaluation mode after a validation",
        frame=frame,
        paragraph=(
            f"In all of {count} passes that were looked at, {listed(names)} {are} in evaluation"
            " mode. No train() follows the validation that begins with eval() in line"
            f" {frame.line}, which came before the first of them. Dropout drops nothing then, and"
            " batch norm uses and keeps its running statistics. Call train() of the model after the"
            " validation."
        ),
    )


def _nodes(run: RunSteps, graph_task: int) -> _Nodes:
    trace, task = run.trace, run.trace.graph_task(graph_task)
    nodes = trace.nodes(graph_task) if task.nodes <= _MOST_OPS else []
    averages = {
        row.node: row.shape != (0,)
        for row in trace.all_saved(graph_task)
        if row.name in {"result1", "save_mean"} and row.shape is not None
    }
    training = {
        node.module or node.short_name
        for node in nodes
        if ("BatchNorm" in node.name and averages.get(node.index))
        or any(frame.hidden and frame.function in DROPS for frame in node.stack)
    }
    reached = frozenset(row.name for row in trace.parameters(graph_task) if row.node is not None)
    evaluated = (
        node.module or node.short_name
        for node in nodes
        if "BatchNorm" in node.name
        and averages.get(node.index) is False
        and f"{node.module}.weight" in reached
    )
    return _Nodes(
        frozenset(training),
        frozenset(evaluated),
        reached,
        visible(trace.call_site(graph_task)),
    )


def _is_off(first: _Nodes, later: _Nodes) -> bool | None:
    """Whether all that is in training mode in the first pass no longer is; None: some of it is."""
    if not first.training or (first.called, first.parameters) != (later.called, later.parameters):
        return None
    if first.training <= later.training:
        return False
    return True if first.training.isdisjoint(later.training) else None


def _lines_of_validation(run: RunSteps) -> list[Frame]:
    """The lines that put a model into evaluation mode before gradients are off, for good."""
    nodes = [(file, *each) for file in user_files(run.trace) for each in nodes_of(run.trace, file)]
    if not any(isinstance(node, ast.Call) and called_name(node) == "eval" for *_, node in nodes):
        return []
    stack = run.trace.call_site(run.passes.ids[0])
    training = {"backward", *(frame.function for frame in stack if not frame.hidden)}
    without = {
        node.name
        for _, _, node in nodes
        if isinstance(node, ast.FunctionDef) and any(map(turns_gradients_off, ast.walk(node)))
    }
    found: list[Frame] = []
    for file, function, node in nodes:
        if not isinstance(node, ast.Call) or called_name(node) != "eval" or node.args:
            continue
        if not isinstance(node.func, ast.Attribute) or function not in run.running:
            continue
        own = [each for where, name, each in nodes if (where, name) == (file, function)]
        own += [each for where, _, each in nodes if where == file and _is_named(each, function)]
        if _is_for_good(node, own) and _is_validation(node, own, without - training, training):
            found.append(line_at(run.trace, file, node.lineno, function))
    return found


def _is_for_good(call: ast.Call, own: Sequence[ast.AST]) -> bool:
    """Whether nothing of its function, or of the loop around it, calls ``train()`` after it."""
    loops = [each for each in own if isinstance(each, ast.For | ast.While) and _holds(each, call)]
    return not any(
        isinstance(each, ast.Call)
        and called_name(each) == "train"
        and (each.lineno > call.lineno or (loops and _holds(loops[-1], each)))
        for each in own
    )


def _is_validation(
    call: ast.Call, own: Sequence[ast.AST], without: set[str], training: set[str]
) -> bool:
    """Whether gradients are off around a call, or after it before anything is trained."""
    if any(
        turns_gradients_off(each) and _holds(each, call)
        for each in own
        if isinstance(each, ast.With | ast.FunctionDef)
    ):
        return True
    after = [
        each for each in own if isinstance(each, ast.With | ast.Call) and each.lineno > call.lineno
    ]
    off = [each.lineno for each in after if turns_gradients_off(each) or _is_of(each, without)]
    trained = [each.lineno for each in after if _is_of(each, training)]
    return bool(off) and not any(line < min(off) for line in trained)


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _holds(outer: ast.stmt, node: ast.expr) -> bool:
    return outer.lineno <= node.lineno <= (outer.end_lineno or outer.lineno)


def _is_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in names


def _frozen_norms(run: RunSteps, graph_task: int) -> set[str | None]:
    """Batch norms before a pass whose weights require no gradient: they are left as they are."""
    return {
        op.module
        for op in run.trace.forward_ops(graph_task, limit=_MOST_OPS)
        if _is_batch_norm(op)
        if any(row.place == "weight" and not row.requires_grad for row in op.inputs)
    }


def frozen_in_training(run: RunSteps) -> Iterator[StepFinding]:
    """Batch norms that are frozen with all before them, and whose statistics are not."""
    ids = run.passes.ids
    if not run.trace.meta.check_forward or len(ids) < 2 * _LEAST or not run.optimizers:
        return
    count = min(_SAMPLED, len(ids))
    # The last ones follow each other: networks that are frozen in turns are not, for all of them.
    places = sorted(
        {number * (len(ids) - 1) // (count - 1) for number in range(count)}
        | set(range(len(ids) - 2 * _LEAST, len(ids)))
    )
    seen = [(ids[place], _frozen(run, ids[place])) for place in places]
    names: dict[str, int] = {}
    for memory, module in seen[-1][1].items():
        known = [(task, norms[memory]) for task, norms in seen if memory in norms]
        since = [task for task, name in known if name]
        before = [name for _, name in known[: -len(since)]]
        if module and len(since) >= 2 * _LEAST and before and not any(n != "" for n in before):
            names[module] = since[0]
    called = visible(run.trace.call_site(ids[-1]))
    if not names:
        return
    found = in_loop(run.trace, called, _is_train) or calls(run.trace, called, _is_train)
    at = "train()" if len(found) != 1 else f"train() in line {found[0].line}"
    are, their = ("is", "its") if len(names) == 1 else ("are", "their")
    yield StepFinding(
        kind="frozen, moved",
        heading="a frozen part stays in training mode: its running statistics go on changing",
        frame=found[0] if len(found) == 1 else called,
        paragraph=(
            f"By backward pass {min(names.values())} {listed(sorted(names))} {are} frozen with all"
            f" that comes before: {their} weight and bias require no gradient any more, as they did"
            " in earlier passes. But batch norm is called with training=True, and so takes its mean"
            " and variance from each new batch, and moves running_mean and running_var towards"
            f" them. Where that part is to stay as it is, call eval() of it after {at}."
        ),
    )


def _is_train(_call: ast.Call, name: str) -> bool:
    return name.endswith(".train")


def _frozen(run: RunSteps, graph_task: int) -> dict[int, str | None]:
    """By the memory of their weights, batch norms before a pass that are frozen, and move.

    Empty: its weight requires a gradient. None: neither.
    """
    found: dict[int, str | None] = {}
    for op in run.trace.forward_ops(graph_task, limit=_MOST_OPS):
        rows = {row.place: row for row in op.inputs}
        if not _is_batch_norm(op) or not op.grad_enabled or "weight" not in rows:
            continue
        is_moving = {"1", "2"} <= rows.keys() and "training=True" in op.arguments
        is_moving = is_moving and "momentum=0.0" not in op.arguments
        is_frozen = is_moving and not any(row.requires_grad for row in op.outputs)
        name = "" if rows["weight"].requires_grad else op.module if is_frozen else None
        found[rows["weight"].memory] = name
    return found


def _puts_parts_into_it(run: RunSteps, called: Frame | None) -> bool:
    """Whether a loop over modules calls ``eval()``, as what freezes all batch norms does."""
    turns = {
        node.target.id
        for node in ast.walk(parsed(() if called is None else run.trace.source(called.file)))
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
        if "modules()" in ast.unparse(node.iter)
    }
    return bool(calls(run.trace, called, lambda _, name: name.removesuffix(".eval") in turns))


def _is_untouched(run: RunSteps, graph_task: int, module: str) -> bool:
    """Whether a batch norm whose weight is trained has the running statistics it was made with."""
    ops = run.trace.forward_ops(graph_task, limit=_MOST_OPS)
    own = [op for op in ops if op.module == module and _is_batch_norm(op)]
    rows = {row.place: row for op in own for row in op.inputs}
    if not {"1", "2", "weight"} <= rows.keys() or not rows["weight"].requires_grad:
        return False
    for place, value in ("1", 0.0), ("2", 1.0):
        memory = rows[place].memory
        seen = [row for op in own for row in op.inputs]
        seen += [row for op in run.trace.forward_changes(memory, -1) for row in op.outputs]
        found = [row.health for row in seen if row.memory == memory and row.health is not None]
        if not found or not all(one.min == one.max == value for one in found):
            return False
    return True


def _is_batch_norm(op: ForwardOpRow) -> bool:
    return op.name.endswith("functional.batch_norm") and op.recomputed_in == -1


def _found(
    run: RunSteps, first: int, modes: _Modes, names: list[str], often: str, before: str
) -> StepFinding:
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
            f" (training=False), in {often} passes that were looked at{before}."
            f" Before that, they were called without gradients, as by a validation: {at} is not"
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
