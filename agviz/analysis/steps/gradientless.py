"""Optimizers that hold what no backward pass leads to, or parts that none ever did."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, differentiated, line_at, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding, listed, names_of, parameters
from agviz.analysis.steps.source_calls import freezing
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Steps from which a rule is drawn."""
_COPIES: Final = frozenset({"Variable", "tensor"})
"""Functions of torch that make a tensor of values, without their graphs."""


def without_gradient(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers to whose parameters no pass leads: to others, or all of modules are frozen."""
    for each in run.optimizers:
        named = [row for row in each.held if row.name] or each.held
        frozen = not any(row.requires_grad or row.had_grad for row in named)
        others = [row.name or row.attribute for row in run.unheld if row.name or row.attribute]
        is_without = not any(
            taken.fact.reached or taken.fact.without_grad < taken.fact.held for taken in each.steps
        )
        is_still = frozen and each.is_told_once and 2 * len(named) >= len(each.held)
        through = _written_through(run) if is_without and not frozen else None
        leaf = _new_leaf(run) if is_without and not frozen and through is None else None
        is_unclear = is_without and not (frozen or others or through or leaf)
        copied = _copied(run) if is_unclear and len(run.optimizers) > 1 else None
        is_without = is_without and bool(others or through or leaf or copied)
        least = 2 if is_without else _LEAST
        if not named or len(each.steps) < least or not (is_still or is_without):
            continue
        if not each.is_torchs:  # it may need no gradient
            continue
        line = freezing(run.trace, each.stepped) if frozen and each.stepped is not None else None
        why = f"backward leads to {parameters(others or [''])} instead, which no optimizer holds"
        remedy = "Give the optimizer the parameters of the model that is trained."
        if through is not None:
            line = through
            why = "what this line writes through .data is a value without a graph"
            remedy = (
                "What is computed of these parameters is lost there. To use it as a weight, call"
                " torch.func.functional_call, or the function itself, as F.linear(x, weight)."
            )
        if leaf is not None:
            line = leaf
            why = (
                "this line makes a new tensor of values, which have no graph, and backward ends"
                " there"
            )
            remedy = (
                "Combine the tensors themselves (torch.stack, a sum). Where a loss requires no"
                " gradient, setting requires_grad does not bring its graph back: look for what cut"
                " it off (detach(), item(), numpy(), argmax, no_grad)."
            )
        if copied is not None:
            line = copied
            why = (
                "backward leads to the copy that this line makes, whose parameters have gradients"
                " of their own"
            )
            remedy = (
                "Add the gradients of the copy to those of the original before the step, or compute"
                " with parameters that are a function of it (torch.func.functional_call)."
            )
        if frozen:
            by = "" if line is None else f" (requires_grad is False since line {line.line})"
            why = f"none of them requires one{by}, so that no step moves them"
        if frozen and not others:
            remedy = "Set requires_grad_(True) on them before the forward of their own loss."
        yield StepFinding(
            kind="no gradient",
            heading=f"{each.name} steps, but nothing that it holds gets a gradient",
            frame=line or each.made,
            paragraph=(
                f"At all {len(each.steps):,} steps none of the {len(named):,} parameters that"
                f" {each.name}{each.at} holds ({listed(names_of(named))}) had a gradient: {why}."
                f" {remedy}"
            ),
        )


def _written_through(run: RunSteps) -> Frame | None:
    """The one line of what ran that assigns to ``.data`` what a call gives; None: not one."""
    found = [
        line_at(run.trace, file, node.lineno, function)
        for file, function, node in run.statements()
        if isinstance(node, ast.Assign)
        and any(isinstance(each, ast.Attribute) and each.attr == "data" for each in node.targets)
        and any(isinstance(each, ast.Call) for each in ast.walk(node.value))
    ]
    return found[0] if len(found) == 1 else None


def _copied(run: RunSteps) -> Frame | None:
    """The one line of what ran that makes a copy of a module; None: not one."""
    found = {
        line_at(run.trace, file, node.lineno, function)
        for file, function, node in run.statements()
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_name(node.value) == "deepcopy"
    }
    return found.pop() if len(found) == 1 else None


def _new_leaf(run: RunSteps) -> Frame | None:
    """The one line of what ran that makes of values a tensor that requires a gradient; or None."""
    files = user_files(run.trace)
    losses = differentiated(node for file in files for _, node in nodes_of(run.trace, file))
    found = {
        line_at(run.trace, file, statement.lineno, function)
        for file, function, statement in run.statements()
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr)
        and any(_makes_leaf(node, losses) for node in ast.walk(statement))
    }
    return found.pop() if len(found) == 1 else None


def _makes_leaf(node: ast.AST, losses: set[str]) -> bool:
    """Whether a node makes a tensor that requires a gradient, of values that are computed."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr="requires_grad_"), args=[]):
            return isinstance(of, ast.Call) or ast.unparse(of) in losses
        case ast.Assign(
            targets=[ast.Attribute(value=of, attr="requires_grad")],
            value=ast.Constant(value=True),
        ):
            return ast.unparse(of) in losses
        case ast.Call(args=[values, *_], keywords=words) if called_name(node) in _COPIES:
            return any(
                word.arg == "requires_grad" and ast.unparse(word.value) == "True" for word in words
            ) and any(isinstance(each, ast.Name | ast.Call) for each in ast.walk(values))
    return False


def never_reached(run: RunSteps) -> StepFinding | None:
    """What an optimizer holds that is in no module, and had no gradient at any step; None: nothing.

    It may be meant, or have its turn later.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for each in run.optimizers:
        left = [row for row in each.held if row.requires_grad and not (row.name or row.had_grad)]
        is_known = each.is_torchs and each.is_told_once and len(each.steps) >= _LEAST
        if not is_known or not left or 2 * len(left) >= len(each.held):
            continue
        shapes = listed(list(dict.fromkeys(str(list(row.shape)) for row in left)))
        count = plural(len(left), "tensor")
        return StepFinding(
            kind="never reached",
            heading=f"{count} of {len(each.held):,} that {each.name} holds never got a gradient",
            frame=each.made,
            paragraph=(
                f"Of shape {shapes}, in no module that was called, and without .grad at all"
                f" {len(each.steps):,} steps: no backward pass leads there. What the loss computes"
                " of them is cut off (detach(), integers, comparisons, a copy by torch.tensor), or"
                " it is not used. If it is left over, all is well."
            ),
        )
    return None
