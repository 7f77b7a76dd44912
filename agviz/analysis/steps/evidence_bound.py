"""A divergence that is summed, beside a reconstruction that is averaged over all it consists of.

Note [Sum and mean]
The evidence bound of a VAE adds the divergence of a sample, a sum over its latents, to the log
likelihood of the sample, a sum over its pixels. A reconstruction that ``mse_loss`` averages over
the pixels counts less by their number: any information in the latents costs more than it gains,
and the posterior becomes the prior. Read from the text, where the divergence is written out; the
number of pixels, and that the loss is a mean, are those of the recorded nodes.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, own_name, values_named
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.given_names import GivenNames
    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 32.0
"""Times as much as in the bound counts a divergence of which something is said."""
_MEANS: Final = {
    "binary_cross_entropy": "BinaryCrossEntropyBackward0",
    "binary_cross_entropy_with_logits": "BinaryCrossEntropyWithLogitsBackward0",
    "mse_loss": "MseLossBackward0",
}
"""By function: the node that has the numbers which it averages."""
_MOST_DEEP: Final = 6
_MOST_NODES: Final = 20_000


def outweighing(run: RunSteps) -> Iterator[StepFinding]:
    """The first sum of both. Note [Sum and mean]."""
    names = run.given_names
    for file, tree in names.trees.items() if run.passes and run.optimizers else ():
        for node in ast.walk(tree):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
                continue
            function = names.function(node)
            where = "<module>" if function is None else function.name
            if where not in run.running:
                continue
            for left, right in ((node.left, node.right), (node.right, node.left)):
                made = _reconstruction(names, left)
                weight, term = _weighed(tree, right)
                divergence = _divergence(names, term) if made is not None else None
                if made is None or divergence is None or weight is None:
                    continue
                size = _averaged(run, called_name(made))
                if size is None or weight * size < _LEAST:
                    continue
                yield StepFinding(
                    kind="sum beside mean",
                    heading="the divergence is a sum, and the reconstruction beside it is a mean",
                    frame=line_at(run.trace, file, node.lineno, where),
                    paragraph=(
                        f"{called_name(made)} (line {made.lineno}) is the mean over {size:,}"
                        f" numbers of a sample; the KL divergence (line {divergence.lineno}) is a"
                        " sum over the latents. In the evidence bound both are sums: here the"
                        f" divergence counts {weight * size:,.3g} times as much, so that the"
                        " posterior becomes the prior (collapse), and the decoder learns the mean."
                        " Sum the reconstruction, too (reduction='sum', divided by the batch), or"
                        f" multiply the divergence by 1 / {size:,}."
                    ),
                )
                return


def _weighed(tree: ast.AST, node: ast.expr) -> tuple[float | None, ast.expr]:
    """The weight of a term, None where it is not known or changes, and the term without it."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return 1.0, node
    for weight, term in ((node.left, node.right), (node.right, node.left)):
        if isinstance(weight, ast.Constant) and isinstance(weight.value, int | float):
            return float(weight.value), term
    weight, term = node.left, node.right
    values = set(values_named(tree, own_name(weight))) if own_name(weight) else set()
    if len(values) != 1 or math.isnan(next(iter(values))):
        return None, term
    return values.pop(), term


def _reconstruction(names: GivenNames, node: ast.expr) -> ast.Call | None:
    """The call of a loss that gives a mean; None: it is something else."""
    for each in _meanings(names, node):
        if isinstance(each, ast.Call) and called_name(each) in _MEANS:
            words = {word.arg: word.value for word in each.keywords}
            reduction = words.get("reduction", ast.Constant("mean"))
            if isinstance(reduction, ast.Constant) and reduction.value == "mean":
                return each
    return None


def _divergence(names: GivenNames, node: ast.expr) -> ast.expr | None:
    """A KL divergence of a normal distribution that is summed over its latents; or None."""
    meant = list(_meanings(names, node))
    for each in meant:
        # What is averaged over all its numbers has no sum in it.
        calls = [part for part in ast.walk(each) if isinstance(part, ast.Call)]
        called = {called_name(part) for part in calls}
        is_written = "exp" in called and any(
            isinstance(part, ast.Constant) and part.value == 0.5 for part in ast.walk(each)
        )
        if is_written and any("sum" in _called(one) for one in meant):
            return each
    return None


def _called(node: ast.AST) -> set[str]:
    return {called_name(part) for part in ast.walk(node) if isinstance(part, ast.Call)}


def _meanings(names: GivenNames, node: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """An expression, and what its variable, or that of which a sum or mean is taken, may be."""
    if depth > _MOST_DEEP:
        return
    yield node
    match node:
        case ast.Name() | ast.Attribute(value=ast.Name(id="self")):
            given = [each for each in names.given(node) if each is not None]
        case ast.Call(func=ast.Attribute(value=of, attr="mean" | "sum")):
            given = [of]
        case ast.BinOp(left=of, op=ast.Div()):
            given = [of]
        case ast.Call():
            given = [each for each in names.given(node) if each is not None]
        case _:
            given = []
    for each in given:
        yield from _meanings(names, each, depth + 1)


def _averaged(run: RunSteps, loss: str) -> int | None:
    """How many numbers of a sample a mean is over; None: its node is not recorded."""
    for task in reversed(run.passes[-2:]):
        if task.nodes > _MOST_NODES:
            continue
        for node in run.trace.nodes(task.id):
            shape = next(iter(node.output_shapes or ()), None)
            if node.name == _MEANS[loss] and node.input_shapes == ((),) and shape:
                return math.prod(shape[1:])
    return None
