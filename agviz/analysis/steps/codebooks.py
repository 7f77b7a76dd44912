"""Terms that are to move the codes of a codebook, and are given what hides them.

Note [Codes behind detach]
``q = z + (codes - z).detach()`` has the value of the codes and gives its gradient to ``z``. A term
that pulls the codes to what was encoded has to be given them: of ``q``, it moves ``z``. It is found
by its text, where something that requires a gradient and that an optimizer holds never had one:
a loss of ``q`` and of something that is detached; or, where the estimator has another name, or
none, of what a call makes of the other, and the same function pulls the other way, too.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, container_name, elements, line_at, targets_of
from agviz.analysis.steps.finding import StepFinding, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LOSSES: Final = frozenset({"huber_loss", "l1_loss", "mse", "mse_loss", "smooth_l1_loss"})
_SQUARES: Final = frozenset({"abs", "norm", "pow", "square"})
"""Methods of a difference that give how far apart both are."""
_SIMPLE: Final = (ast.AnnAssign, ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_LEAST: Final = 3
"""Steps."""


class _Estimator(NamedTuple):
    """A straight-through estimator, as it is written."""

    name: str
    codes: str
    line: int


class _Pulled(NamedTuple):
    """What a loss moves."""

    name: str
    to: str
    """What is detached."""


def codes_untrained(run: RunSteps) -> Iterator[StepFinding]:
    """Losses of straight-through estimators. Note [Codes behind detach]."""
    untrained = {
        row.name
        for each in run.optimizers
        if len(each.steps) >= _LEAST
        for row in each.held
        if row.requires_grad and not row.had_grad and row.name
    }
    if not untrained:
        return
    statements = [each for each in run.statements() if isinstance(each[2], _SIMPLE)]
    made = [found for _, _, node in statements if (found := _estimator(node)) is not None]
    if not made:
        return
    losses = [
        (file, function, statement, pulled)
        for file, function, statement in statements
        for node in ast.walk(statement)
        if (pulled := _pulled(node)) is not None
    ]
    both = {(function, one.name, one.to) for _, function, _, one in losses}
    calls = {
        (function, container_name(part), ast.unparse(given))
        for _, function, statement in statements
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
        for target in targets_of(statement)
        for part in elements(target)
        for given in statement.value.args
    }
    for file, function, statement, pulled in losses:
        of = [each for each in made if each.name == pulled.name]
        is_both = (function, pulled.to, pulled.name) in both
        if is_both and (function, pulled.name, pulled.to) in calls and len(made) == 1:
            of = made
        if not of or pulled.to == of[0].codes:
            continue
        codes, line = of[0].codes, of[0].line
        yield StepFinding(
            kind="codes untrained",
            heading=f"a term that pulls {pulled.name} does not move {codes}",
            frame=line_at(run.trace, file, statement.lineno, function),
            paragraph=(
                f"Line {line} makes {pulled.name}, with the value of {codes}, which is inside of"
                " detach() there: the gradient goes on to what was quantised, and none to"
                f" {codes}. So this term moves the former, and {parameters(sorted(untrained))}"
                f" never had a gradient. Give the term {codes} itself in place of {pulled.name}."
            ),
        )
        return


def _estimator(statement: ast.stmt) -> _Estimator | None:
    """What ``z + (codes - z).detach()`` gives; None: the statement is another one."""
    if not isinstance(statement, ast.Assign | ast.Return):
        return None
    if not isinstance(statement.value, ast.BinOp) or not isinstance(statement.value.op, ast.Add):
        return None
    sides = statement.value.left, statement.value.right
    for kept, hidden in (sides, sides[::-1]):
        match hidden:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.BinOp(op=ast.Sub(), left=codes, right=less), attr="detach"
                )
            ) if ast.unparse(less) == ast.unparse(kept):
                targets = targets_of(statement) if isinstance(statement, ast.Assign) else []
                name = container_name(targets[0]) if targets else ""
                return _Estimator(name, ast.unparse(codes), statement.lineno)
    return None


def _pulled(node: ast.AST) -> _Pulled | None:
    """What a loss pulls to something that is detached; None: it is no such loss."""
    match node:
        case ast.Call(args=[one, other, *_]) if called_name(node) in _LOSSES:
            sides = one, other
        case (
            ast.BinOp(op=ast.Pow(), left=ast.BinOp(op=ast.Sub(), left=one, right=other))
            | ast.Call(func=ast.Attribute(value=ast.BinOp(op=ast.Sub(), left=one, right=other)))
        ) if not isinstance(node, ast.Call) or called_name(node) in _SQUARES:
            sides = one, other
        case _:
            return None
    for pulled, fixed in (sides, sides[::-1]):
        match fixed:
            case ast.Call(func=ast.Attribute(value=to, attr="detach")):
                if isinstance(pulled, ast.Name):
                    return _Pulled(pulled.id, ast.unparse(to))
    return None
