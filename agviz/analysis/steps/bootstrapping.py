"""Values that are learnt from later values: target networks, and the ends of episodes.

Note [Target networks]
A copy that is called a target is there to follow what is trained, now and then or by shares. By the
text: it is made by deepcopy, or is given a state once where it is made, and nothing else writes to
it or is handed it to do so.
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
from agviz.analysis.steps.run import RunSteps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace

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
    for file in user_files(run.trace) if run.optimizers else ():
        nodes = nodes_of(run.trace, file)
        for function, node in nodes:
            if not isinstance(node, ast.Assign):
                continue
            for target, value in bindings(node):
                name = ast.unparse(target).removeprefix("self.")
                made_of = _copied(value)
                if made_of is None or not _TARGET.match(name) or not _is_called(nodes, name, run):
                    continue
                if _writes(nodes, name) > 0 or name == made_of:
                    continue
                yield StepFinding(
                    kind="never follows",
                    heading=f"{name} is a copy of {made_of} that nothing ever updates",
                    frame=line_at(run.trace, file, node.lineno, function),
                    paragraph=(
                        f"{made_of} is trained, and {name} stays what it was before the first"
                        " step: what is learnt from it are values of an untrained network. Copy"
                        f" now and then, {ast.unparse(target)}.load_state_dict("
                        f"{made_of}.state_dict()), or a small share at each step (lerp_)."
                    ),
                )
                return


def _copied(value: ast.expr) -> str | None:
    """What a call of deepcopy copies, ``requires_grad_`` and ``eval`` behind it or not."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in {"eval", "requires_grad_", "to"}
    ):
        value = value.func.value
    match value:
        case ast.Call(args=[of]) if called_name(value) == "deepcopy":
            return ast.unparse(of) if isinstance(of, ast.Name | ast.Attribute) else None
    return None


def _is_called(nodes: Sequence[tuple[str, ast.AST]], name: str, run: RunSteps) -> bool:
    """Whether what runs calls a module of this name."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).removeprefix("self.") == name
        and function in run.running
        for function, node in nodes
    )


def _writes(nodes: Sequence[tuple[str, ast.AST]], name: str) -> int:
    """How many expressions may write to a module: by its methods, or as somebody's argument."""
    found = 0
    freezing = {
        id(part)
        for _, node in nodes
        if isinstance(node, ast.For) and all(map(_is_freezing, node.body))
        for part in (node, *ast.walk(node.iter))
    }
    for _, node in nodes:
        if id(node) in freezing:
            continue
        match node:
            case ast.Call(func=func, args=args, keywords=words):
                given = [part for each in args for part in elements(each)]
                given += [word.value for word in words]
                found += any(ast.unparse(each).removeprefix("self.") == name for each in given)
                if isinstance(func, ast.Attribute) and func.attr in _TOUCHING:
                    owner = ast.unparse(func.value).removeprefix("self.")
                    found += owner == name or owner.startswith(f"{name}.")
            case ast.For(iter=over) | ast.comprehension(iter=over):
                parts = {ast.unparse(part).removeprefix("self.") for part in ast.walk(over)}
                found += name in parts
            case ast.Assign(targets=targets, value=value):
                given = [part for one in targets for part in elements(one)]
                found += name in {ast.unparse(each).removeprefix("self.") for each in given[1:]}
                found += ast.unparse(value).removeprefix("self.") == name  # a second name
    return found


def _is_freezing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="requires_grad_"))):
            return True
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")]):
            return True
    return False


def past_the_end(trace: Trace) -> StepFinding | None:
    """Values of what comes after an episode's end, that are added where it is known to have ended.

    None: there are none, or nothing tells where episodes end.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    run = RunSteps(trace.beginning)
    if trace.meta.partial or not run.optimizers:
        return None
    for file, function, statement in run.statements():
        if not isinstance(statement, ast.Assign):
            continue
        inside = [node for where, node in nodes_of(trace, file) if where == function]
        values = _values(inside)
        named = {own_name(node) for node in inside if isinstance(node, ast.expr)}
        ended = sorted(filter(_ENDED.match, named))
        if (
            not ended
            or not _is_discounted(statement, values)
            or _reads(statement, inside, values, ended)
        ):
            continue
        return StepFinding(
            kind="past the end",
            heading=f"values of what follows are added where {ended[0]} says that nothing does",
            frame=line_at(trace, file, statement.lineno, function),
            paragraph=(
                f"{function if function != '<module>' else 'The program'} knows {ended[0]}, and"
                " this line does not read it: at the end of an episode there is no next state, and"
                " what the network says of one is noise that is learnt as a reward. Multiply the"
                f" discounted value by (1 - {ended[0]}). If episodes end by a limit of time only,"
                " all is well."
            ),
        )
    return None


def _is_discounted(statement: ast.Assign, values: Mapping[str, Sequence[ast.expr]]) -> bool:
    """Whether what a network gives is multiplied by a discount, and added to something else.

    A sum of what the same statement gave before is a return.
    """
    match statement.value:
        case ast.BinOp(op=ast.Add(), right=ast.BinOp(op=ast.Mult()) as product):
            others = [each for each in _factors(product) if not _is_discount(each)]
            names = {
                container_name(part) for part in ast.walk(product) if isinstance(part, ast.expr)
            }
            if names & {container_name(each) for each in statement.targets}:
                return False
            given = [*others, *(v for each in others for v in values.get(ast.unparse(each), ()))]
            is_computed = any(isinstance(part, ast.Call) for v in given for part in ast.walk(v))
            return is_computed and len(others) < len(_factors(product))
    return False


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
