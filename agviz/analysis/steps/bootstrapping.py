"""Values that are learnt from later values: target networks, and the ends of episodes.

Note [Target networks]
A copy that is called a target is there to follow what is trained, now and then or by shares. By the
text: it is made once, by deepcopy, and nothing else writes to what has its name, whoever owns that,
or is handed it to do so.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    bindings,
    called_name,
    container_name,
    elements,
    line_at,
    nodes_of,
    own_name,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps


_TARGET: Final = re.compile(r"(?:.*_)?(?:target|tgt)(?:_.*)?$|.*(?:Target|_targ)$")
_TOUCHING: Final = frozenset(
    {"load_state_dict", "named_parameters", "parameters", "state_dict", "buffers", "modules"}
    | {"children", "named_modules", "named_children", "get_parameter", "apply", "update"}
)
"""Methods by which a module is written to, and not ``eval`` or a call."""
_DISCOUNT: Final = re.compile(r"(?:.*_)?(?:gamma|discount|GAMMA|DISCOUNT)(?:_factor)?$")
_ENDED: Final = re.compile(
    r"(?:has_|is_|not_|next_)?(?:done|dones|terminal|terminals|terminated|ended|terminations?)(?:_\w+)?$"
)
_LEAST_DISCOUNT: Final = 0.8
"""A number from here up to 1 is one."""


def never_follows(run: RunSteps) -> Iterator[StepFinding]:
    """Copies called targets that nothing updates. Note [Target networks]."""
    every = [
        (file, function, node)
        for file in (user_files(run.trace) if run.optimizers else ())
        for function, node in nodes_of(run.trace, file)
    ]
    for file, function, node in every:
        if not isinstance(node, ast.Assign):
            continue
        for target, value in bindings(node):
            name, made_of = own_name(target), _copied(value)
            if made_of is None or not _TARGET.match(name):
                continue
            if name == own_name(made_of) or _is_written([each for *_, each in every], name):
                continue
            if not any(_calls(each, name) and where in run.running for _, where, each in every):
                continue
            whole = ast.unparse(made_of)
            yield StepFinding(
                kind="never follows",
                heading=f"{name} is a copy of {whole} that nothing ever updates",
                frame=line_at(run.trace, file, node.lineno, function),
                paragraph=(
                    f"{whole} is trained, and {name} stays what it was before the first step: what"
                    " is learnt from it are values of an untrained network. Copy now and then,"
                    f" {ast.unparse(target)}.load_state_dict({whole}.state_dict()), or a small"
                    " share at each step (lerp_)."
                ),
            )
            return


def _copied(value: ast.expr) -> ast.expr | None:
    """What a call of deepcopy copies, ``requires_grad_`` and ``eval`` behind it or not."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in {"eval", "requires_grad_", "to"}
    ):
        value = value.func.value
    match value:
        case ast.Call(args=[ast.Name() | ast.Attribute() as of]):
            return of if called_name(value) == "deepcopy" else None
    return None


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and own_name(node.func) == name


def _is_written(nodes: Sequence[ast.AST], name: str) -> bool:
    """Whether something may write to a module, whoever owns it.

    By its methods, as somebody's argument, in a loop over its parameters, by another name of it; or
    it is made again, or in a loop.
    """
    freezing = {
        id(part)
        for node in nodes
        if isinstance(node, ast.For) and all(map(_is_freezing, node.body))
        for part in (node, *ast.walk(node.iter))
    }
    in_loops = {
        id(part)
        for node in nodes
        if isinstance(node, ast.For | ast.While)
        for part in ast.walk(node)
    }
    made = [
        id(node) in in_loops
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        for one in elements(target)
        if own_name(one) == name
    ]
    return made != [False] or any(
        _may_write(node, name) for node in nodes if id(node) not in freezing
    )


def _may_write(node: ast.AST, name: str) -> bool:
    parts: list[ast.expr] = []
    match node:
        case ast.Call(func=func, args=args, keywords=words):
            parts = [part for each in args for part in elements(each)]
            parts += [word.value for word in words]
            if isinstance(func, ast.Attribute) and func.attr in _TOUCHING:
                parts += [each for each in ast.walk(func.value) if isinstance(each, ast.expr)]
        case ast.For(iter=over) | ast.comprehension(iter=over):
            parts = [each for each in ast.walk(over) if isinstance(each, ast.expr)]
        case ast.Assign(value=value):
            parts = elements(value)
    return any(own_name(each) == name for each in parts)


def _is_freezing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="requires_grad_"))):
            return True
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")]):
            return True
    return False


def past_the_end(run: RunSteps) -> StepFinding | None:
    """Values of what comes after an episode's end, that are added where it is known to have ended.

    None: there are none, or nothing tells where episodes end.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not run.optimizers:
        return None
    for file, function, statement in run.statements():
        if not isinstance(statement, ast.Assign):
            continue
        product = _discounted(statement)
        if product is None:
            continue
        inside = [node for where, node in nodes_of(run.trace, file) if where == function]
        values = _values(inside)
        named = {own_name(node) for node in inside if isinstance(node, ast.expr)}
        ended = sorted(filter(_ENDED.match, named))
        if (
            not ended
            or not _is_computed(product, values)
            or _reads(statement, inside, values, ended)
        ):
            continue
        return StepFinding(
            kind="past the end",
            heading=f"values of what follows are added where {ended[0]} says that nothing does",
            frame=line_at(run.trace, file, statement.lineno, function),
            paragraph=(
                f"{function if function != '<module>' else 'The program'} knows {ended[0]}, and"
                " this line does not read it: at the end of an episode there is no next state, and"
                " what the network says of one is noise that is learnt as a reward. Multiply the"
                f" discounted value by (1 - {ended[0]}). If episodes end by a limit of time only,"
                " all is well."
            ),
        )
    return None


def _discounted(statement: ast.Assign) -> ast.BinOp | None:
    """A product with a discount that a statement adds to something else; None: it adds none.

    A sum of what the same statement gave before is a return.
    """
    match statement.value:
        case ast.BinOp(op=ast.Add(), right=ast.BinOp(op=ast.Mult()) as product):
            parts = (part for part in ast.walk(product) if isinstance(part, ast.expr))
            names = {container_name(part) for part in parts}
            is_return = names & {container_name(each) for each in statement.targets}
            return product if any(map(_is_discount, _factors(product))) and not is_return else None
    return None


def _is_computed(product: ast.BinOp, values: Mapping[str, Sequence[ast.expr]]) -> bool:
    """Whether something that is discounted is what a call gives."""
    others = [each for each in _factors(product) if not _is_discount(each)]
    given = [*others, *(v for each in others for v in values.get(ast.unparse(each), ()))]
    return any(isinstance(part, ast.Call) for v in given for part in ast.walk(v))


def _is_discount(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, float) and _LEAST_DISCOUNT <= value.value < 1
    return bool(_DISCOUNT.match(own_name(value)))


def _factors(value: ast.expr) -> list[ast.expr]:
    match value:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*_factors(left), *_factors(right)]
    return [value]


def _values(inside: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    """What a function gives to each name, or writes to it by, as ``q[done] = 0``."""
    values: dict[str, list[ast.expr]] = {}
    for node in inside:
        match node:
            case ast.Assign():
                for target, value in bindings(node):
                    for one in elements(target):
                        of = one.value if isinstance(one, ast.Subscript) else one
                        values.setdefault(ast.unparse(of), []).extend([value, one])
            case ast.For(target=target, iter=over):
                for one in elements(target):
                    values.setdefault(ast.unparse(one), []).append(over)
            case ast.AugAssign(target=target, value=value):
                values.setdefault(ast.unparse(target), []).append(value)
            case ast.Call(func=ast.Attribute(value=of), args=[*args]):
                values.setdefault(ast.unparse(of), []).extend(args)
    return values


def _reads(
    statement: ast.Assign,
    inside: Sequence[ast.AST],
    values: Mapping[str, Sequence[ast.expr]],
    ended: Sequence[str],
) -> bool:
    """Whether one of these names decides on a statement, or on what it reads."""
    tests = [
        node.test
        for node in inside
        if isinstance(node, ast.If | ast.While)
        and node.lineno <= statement.lineno <= (node.end_lineno or node.lineno)
    ]
    waiting, seen = [statement.value, *statement.targets, *tests], set[str]()
    while waiting:
        for part in ast.walk(waiting.pop()):
            if not isinstance(part, ast.expr):
                continue
            name, text = own_name(part), ast.unparse(part)
            if name in ended:
                return True
            if name and text not in seen:
                seen.add(text)
                waiting += values.get(text, [])
    return False
