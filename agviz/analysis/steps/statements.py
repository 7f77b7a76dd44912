"""Statements that do nothing, or once what a loop is there to do many times.

Note [Plain from the text]
What a statement does is read from the text where nothing else can be: a call of a function that
only makes a new tensor, whose result nobody takes; an attribute of an optimizer of torch, which has
its options in ``param_groups``; a loop whose body ends with ``return``. That it ran is taken from
the functions of recorded frames, and what they call.
"""

from __future__ import annotations

import ast
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    OF_TORCH,
    called_name,
    line_at,
    nodes_of,
    targets_of,
    values_assigned,
)
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.traces.rows import Frame, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_FUNCTIONS: Final = frozenset(
    {"clamp", "clip", "dropout", "elu", "gelu", "layer_norm", "leaky_relu", "log_softmax"}
    | {"masked_fill", "nan_to_num", "normalize", "pad", "relu", "selu", "sigmoid", "silu"}
    | {"softmax", "softplus", "tanh", "where"}
)
"""Functions of torch that make a new tensor and do nothing else."""
_METHODS: Final = frozenset(
    {"clamp", "clip", "detach", "div", "index_add", "index_copy", "index_fill", "lerp"}
    | {"log_softmax", "masked_fill", "mul", "nan_to_num", "relu", "renorm", "scatter"}
    | {"scatter_add", "sigmoid", "softmax", "squeeze", "sub", "tanh", "transpose", "unsqueeze"}
)
"""Methods of tensors of which the same holds."""
_ASKING: Final = frozenset(
    {"abs", "amax", "amin", "argmax", "cat", "clone", "cpu", "double", "exp", "expand", "flatten"}
    | {"float", "full_like", "isnan", "len", "log", "log1p", "long", "max", "mean", "median", "min"}
    | {"minimum", "maximum", "ones_like", "permute", "pow", "quantile", "range", "reshape", "size"}
    | {"sqrt", "stack", "std", "std_mean", "sum", "t", "tensor", "to", "var", "view", "zeros_like"}
)
"""Functions and methods without an effect of which a function may make what it returns."""
_OUTPUTS: Final = frozenset({"inplace", "out"})
_OPTIONS: Final = frozenset({"betas", "eps", "learning_rate", "lr", "momentum", "weight_decay"})
_LOOKED_AT: Final = "requires_grad"
_LIKE: Final = 0.85
"""Of two names, how like each other they are where one is a slip of the pen."""
_MOST_NODES: Final = 20_000
_LEAST: Final = 3
"""Passes or steps from which a rule is drawn."""


def thrown_away_results(run: RunSteps) -> Iterator[StepFinding]:
    """Calls whose only effect is a result that nobody takes. Note [Plain from the text]."""
    calls = []
    for file, function, node in run.statements() if run.passes else ():
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and (_is_pure(call) or _is_of_pure(run, file, call)):
            calls.append((_line(run, file, function, call), call))
    if not calls:
        return
    (first, call), *others = calls
    changed = _changed(call)
    written, name = ast.unparse(call.func), ast.unparse(changed)
    remedy = f"Write {name} = {written}(...)"
    if isinstance(changed, ast.Call):  # nothing can be assigned to that
        remedy = f"Take what {written} returns, and go on with it"
    elif isinstance(changed, ast.Attribute):
        remedy = f"Change it in place, under torch.no_grad(): {name}.{called_name(call)}_(...)"
    lines = [f"{other.line}" for other, _ in others]
    same = f" The same holds of {plural(len(lines), 'line')}: {listed(lines)}." if lines else ""
    yield StepFinding(
        kind="unused result",
        heading=f"the result of {written} is thrown away: {name} stays as it was",
        frame=first,
        paragraph=(
            f"{called_name(call)} makes a new tensor and changes nothing in place. This statement"
            f" takes no hold of what it returns, so that all goes on as without it. {remedy}.{same}"
        ),
    )


def no_options(run: RunSteps) -> Iterator[StepFinding]:
    """Attributes that are set where torch looks for none. Note [Plain from the text]."""
    for file, function, node in run.statements() if run.passes else ():
        if not isinstance(node, ast.Assign | ast.AugAssign):
            continue
        for target in targets_of(node):
            said = _slip(target, node) or _beside_groups(run, file, target)
            if said:
                yield StepFinding(
                    kind="no option",
                    heading=f"{ast.unparse(target)} is set, and nothing looks at it",
                    frame=_line(run, file, function, node),
                    paragraph=said,
                )


def _slip(target: ast.expr, node: ast.Assign | ast.AugAssign) -> str:
    """What is wrong where a flag has nearly the name ``requires_grad``; empty: it has not."""
    if not isinstance(target, ast.Attribute) or target.attr.strip("_") == _LOOKED_AT:
        return ""
    is_flag = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
    if not is_flag or SequenceMatcher(None, target.attr, _LOOKED_AT).ratio() < _LIKE:
        return ""
    owner = ast.unparse(target.value)
    return (
        "The assignment makes a new attribute, which torch does not know: whether a gradient is"
        f" wanted stays what it was. The name is {_LOOKED_AT}: {owner}.{_LOOKED_AT} = ..., or"
        f" {owner}.{_LOOKED_AT}_(...) for all parameters of a module."
    )


def _beside_groups(run: RunSteps, file: str, target: ast.expr) -> str:
    """What is wrong where an option of an optimizer of torch is set outside of its groups."""
    match target:
        case ast.Attribute(value=owner, attr=str(name)) if name in _OPTIONS:
            why = "this makes an attribute of the same name"
        case ast.Subscript(
            value=ast.Attribute(value=owner, attr="defaults"), slice=ast.Constant(value=str(name))
        ) if name in _OPTIONS:
            why = "defaults is only what groups begin with that are added later"
        case _:
            return ""
    written, name = ast.unparse(owner), {"learning_rate": "lr"}.get(name, name)
    makes = values_assigned(run.trace, file, written)
    names = {called_name(value) if isinstance(value, ast.Call) else "" for value in makes}
    each = next((one for one in run.optimizers if one.is_torchs and names == {one.name}), None)
    if each is None:
        return ""
    rates = {taken.fact.most_rate for taken in each.steps if taken.fact.most_rate is not None}
    seen = ""
    if name == "lr" and len(rates) == 1:
        rate = number(rates.pop())
        seen = f" Its learning rate is {rate} at all {plural(len(each.steps), 'step')}."
    return (
        f"{each.name} has its options in param_groups, and {why}.{seen} Write: for group in"
        f" {written}.param_groups: group['{name}'] = ..., or take a scheduler."
    )


def hidden_writes(run: RunSteps) -> Iterator[StepFinding]:
    """Writes through ``.data`` to what the forward has just computed, with a graph."""
    last = run.passes[-1] if run.passes else None
    made: set[tuple[str, int]] | None = None
    for file, function, node in run.statements():
        name = _written_beside(node)
        if not name or last is None or last.nodes > _MOST_NODES:
            continue
        if made is None:
            frames = [each.frame for each in run.trace.nodes(last.id)]
            made = {(one.file, one.line) for one in frames if one is not None}
        computed = [
            each.lineno
            for where, each in nodes_of(run.trace, file)
            if where == function
            and isinstance(each, ast.Assign)
            and name in map(ast.unparse, each.targets)
            and each.lineno < node.lineno
        ]
        computed = computed[-1:] or _given(run, node, name)
        if not computed or any((file, line) not in made for line in computed):
            continue
        yield StepFinding(
            kind="hidden write",
            heading=f"{name} is written through .data, of which backward does not know",
            frame=_line(run, file, function, node),
            paragraph=(
                f"{name} was computed in line {computed[0]}, with a graph. What .data"
                " changes is in no graph, and no version counts it: the gradient flows as if"
                f" {name} had kept its values, and a derivative that needs them takes the new ones."
                f" Compute a new tensor, such as {name} = {name} * mask, or torch.where."
            ),
        )
        return


def _given(run: RunSteps, statement: ast.stmt, name: str) -> list[int]:
    """The lines of what calls of a function give for an argument; empty: one is not known."""
    written = next(
        each for each in ast.walk(statement) if isinstance(each, ast.Name) and each.id == name
    )
    function = run.given_names.function(written)
    if function is None or name not in {each.arg for each in function.args.args}:
        return []
    values = run.given_names.given(written)
    return [] if None in values else [value.lineno for value in values if value is not None]


def _written_beside(node: ast.AST) -> str:
    """The variable to whose ``.data`` a statement writes; empty: it does no such thing."""
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Attribute(value=ast.Name(id=str(name)), attr="data"))]
        ):
            return name
        case ast.AugAssign(target=ast.Attribute(value=ast.Name(id=str(name)), attr="data")):
            return name
        case ast.AugAssign(
            target=ast.Subscript(value=ast.Attribute(value=ast.Name(id=str(name)), attr="data"))
        ):
            return name
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=str(name)), attr="data"), attr=str(method)
                )
            )
        ) if method.endswith("_"):
            return name
    return ""


def first_turn(run: RunSteps) -> Iterator[StepFinding]:
    """Loops around a backward pass that return in their first turn."""
    called = [visible(run.trace.call_site(task)) for task in run.passes.ids[:_LEAST]]
    places = {(frame.file, frame.line) for frame in called if frame is not None}
    if len(called) < _LEAST or len(places) != 1:
        return
    ((file, line),) = places
    for where, function, loop in run.statements():
        if not isinstance(loop, ast.For) or not isinstance(loop.body[-1], ast.Return):
            continue
        if where != file:
            continue
        inside = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
        goes_on = any(isinstance(node, ast.Continue) for node in ast.walk(loop))
        if line not in inside or goes_on or _is_one_turn(loop.iter):
            continue
        yield StepFinding(
            kind="first turn",
            heading=f"the loop in line {loop.lineno} returns at the end of its first turn",
            frame=_line(run, file, function, loop.body[-1]),
            paragraph=(
                f"This return is in the body of the loop: {function} goes backward once each time"
                " it is called, and what comes after the first item is never used. Move it out of"
                " the loop, one level to the left."
            ),
        )


def _is_one_turn(over: ast.expr) -> bool:
    match over:
        case ast.Call(args=[*_, ast.Constant(value=1)]) if called_name(over) == "islice":
            return True
        case ast.Call(args=[ast.Constant(value=1)]) if called_name(over) == "range":
            return True
    return isinstance(over, ast.List | ast.Tuple) and len(over.elts) == 1


def first_batch(run: RunSteps) -> Iterator[StepFinding]:
    """Loops that begin a loader anew in each turn, and so are given its first batch."""
    taken = {
        (frame.file, frame.line)
        for task in run.passes.ids[:_LEAST]
        if (frame := visible(run.trace.call_site(task))) is not None
    }
    for file, function, loop in run.statements() if run.passes else ():
        if not isinstance(loop, ast.For | ast.While) or len(run.passes) < _LEAST:
            continue
        inside = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
        if not any(one == file and line in inside for one, line in taken):
            continue
        for node in (part for each in loop.body for part in ast.walk(each)):
            loader = _begun_anew(node)
            if loader and isinstance(node, ast.Call) and _is_in_order(run, file, loader):
                yield StepFinding(
                    kind="first batch",
                    heading=f"each turn of the loop takes the first batch of {loader}",
                    frame=_line(run, file, function, node),
                    paragraph=(
                        f"iter({loader}) begins anew, and the loader does not shuffle: next() gives"
                        " the same samples in each turn, and all others are never trained on. Loop"
                        f" over the loader (for batch in {loader}), or make one iterator before the"
                        " loop."
                    ),
                )
                return


def _begun_anew(node: ast.AST) -> str:
    """The loader in ``next(iter(loader))``; empty: it is no such call."""
    match node:
        case ast.Call(
            func=ast.Name(id="next"),
            args=[
                ast.Call(func=ast.Name(id="iter"), args=[ast.Name() | ast.Attribute() as loader])
            ],
        ):
            return ast.unparse(loader)
    return ""


def _is_in_order(run: RunSteps, file: str, loader: str) -> bool:
    """Whether a loader is made in one place, without anything that shuffles."""
    makes = values_assigned(run.trace, file, loader)
    if len(makes) != 1 or not isinstance(makes[0], ast.Call):
        return False
    words = {word.arg: word.value for word in makes[0].keywords}
    shuffle = words.get("shuffle", ast.Constant(False))
    return (
        called_name(makes[0]) == "DataLoader"
        and len(makes[0].args) < 3
        and words.keys().isdisjoint({None, "sampler", "batch_sampler"})
        and isinstance(shuffle, ast.Constant)
        and not shuffle.value
    )


def _is_pure(call: ast.Call) -> bool:
    if any(word.arg in _OUTPUTS or word.arg is None for word in call.keywords):
        return False
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner in OF_TORCH:
        return called_name(call) in _FUNCTIONS and bool(call.args)
    return owner != "self" and bool(owner) and called_name(call) in _METHODS


def _is_of_pure(run: RunSteps, file: str, call: ast.Call) -> bool:
    """Whether it calls a function of its file that makes one value and does nothing else."""
    found = [
        node
        for _, node in nodes_of(run.trace, file)
        if isinstance(node, ast.FunctionDef) and node.name == getattr(call.func, "id", "")
    ]
    if len(found) != 1 or found[0].decorator_list or not call.args:
        return False
    statements = [node for node in ast.walk(found[0]) if isinstance(node, ast.stmt)][1:]
    gives = [node.value for node in statements if isinstance(node, ast.Return)]
    return (
        bool(gives)
        and not any(each is None or isinstance(each, ast.Constant | ast.Tuple) for each in gives)
        and all(_has_no_effect(node) for node in statements)
        and all(
            called_name(node) in _ASKING | _FUNCTIONS | _METHODS
            and not any(word.arg in _OUTPUTS for word in node.keywords)
            for node in ast.walk(found[0])
            if isinstance(node, ast.Call)
        )
    )


def _has_no_effect(node: ast.stmt) -> bool:
    match node:
        case ast.Assign():
            return all(isinstance(each, ast.Name) for each in targets_of(node))
        case ast.Expr(value=ast.Constant()) | ast.If() | ast.Return():
            return True
    return False


def _changed(call: ast.Call) -> ast.expr:
    """What a call was to change."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    is_owner = isinstance(call.func, ast.Attribute) and ast.unparse(owner) not in OF_TORCH
    return owner if is_owner else call.args[0]


def _line(run: RunSteps, file: str, function: str, node: ast.stmt | ast.expr) -> Frame:
    return line_at(run.trace, file, node.lineno, function)
