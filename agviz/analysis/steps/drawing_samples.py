"""Samples that are drawn without a gradient where one is needed, or with one where none is.

Note [Drawn]
``sample()`` draws under ``no_grad``, ``rsample()`` as a function of the parameters. A policy needs
the former and ``log_prob``; a file that has a KL divergence, no ``log_prob`` and no ``rsample``,
and gives what it samples to another function, wants the latter: else its encoder is trained by the
KL divergence alone, which takes from it all that the sample was to carry. ``torch.normal`` draws
without a gradient, too.

Note [Scores of what is drawn]
The gradient of ``log_prob(action) * advantage`` is an estimate where the action is a constant. An
action of ``rsample()`` carries the parameters: of a normal distribution (action - mean) / scale is
the noise that was drawn, whatever the mean is, so that the mean gets no gradient at all.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_by_function,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_BY_PARAMETERS: Final = frozenset(
    {"Beta", "Cauchy", "Dirichlet", "Gamma", "Gumbel", "Kumaraswamy", "Laplace", "LogNormal"}
    | {"LowRankMultivariateNormal", "MultivariateNormal", "Normal", "StudentT", "Uniform"}
)
"""Distributions of torch that have ``rsample``."""
_VARIATIONAL: Final = re.compile(r"\b(?:kl|kld|kl_\w+|\w+_kl)\b")
_SCORE: Final = re.compile(r"log_?p")
_ADVANTAGE: Final = re.compile(r"(?i)advantage|\badv|return|reward")
_OTHERS: Final = frozenset({"log_prob", "rsample"})


def drawn(run: RunSteps) -> Iterator[StepFinding]:
    """The first sample of that kind. Note [Drawn]."""
    for file in user_files(run.trace) if run.optimizers else ():
        functions = nodes_by_function(run.trace, file)
        calls = [
            node for nodes in functions.values() for node in nodes if isinstance(node, ast.Call)
        ]
        names = {called_name(call) for call in calls}
        if "kl_divergence" not in names or names & _OTHERS or not names & _BY_PARAMETERS:
            continue
        for function, nodes in functions.items():
            found = _given_on(nodes) if function in run.running else None
            if found is None:
                continue
            node, name, text = found
            yield StepFinding(
                kind="drawn",
                heading=f"{text} draws without a gradient: what it is drawn by gets none of it",
                frame=line_at(run.trace, file, node.lineno, function),
                paragraph=(
                    f"{name} is a constant for backward. The parameters of its distribution are"
                    " trained by the KL divergence only, which makes each sample's like the prior;"
                    f" what the rest of the loss asks of {name} does not reach them. Take"
                    " rsample(), which has a gradient."
                ),
            )
            return


def drawn_by_normal(run: RunSteps) -> Iterator[StepFinding]:
    """``torch.normal`` of what a network gives, beside a divergence. Note [Drawn]."""
    for file in user_files(run.trace) if run.optimizers else ():
        functions = nodes_by_function(run.trace, file)
        text = "\n".join(run.trace.source(file))
        if not _VARIATIONAL.search(text) or "log_prob(" in text:
            continue
        for function, nodes in functions.items():
            for node in nodes if function in run.running else ():
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="torch"), attr="normal"),
                        args=[ast.Name() as mean, ast.Name() as scale],
                    ) if not run.given_names.is_without_gradients(node):
                        yield StepFinding(
                            kind="drawn",
                            heading=(
                                "torch.normal draws without a gradient: what it is drawn by gets"
                                " none of it"
                            ),
                            frame=line_at(run.trace, file, node.lineno, function),
                            paragraph=(
                                "What it gives is a constant for backward: the rest of the loss"
                                f" does not reach {mean.id} and {scale.id}, which are trained by"
                                f" their divergence only. Write {mean.id} + {scale.id} *"
                                f" torch.randn_like({scale.id}), or take Normal({mean.id},"
                                f" {scale.id}).rsample()."
                            ),
                        )
                        return


def scored_with_gradient(run: RunSteps) -> Iterator[StepFinding]:
    """An action of ``rsample`` whose ``log_prob`` is weighed. Note [Scores of what is drawn]."""
    for file in user_files(run.trace) if run.optimizers else ():
        functions = nodes_by_function(run.trace, file)
        every = [node for nodes in functions.values() for node in nodes]
        if not any(map(_weighs, every)):
            continue
        for function, nodes in functions.items():
            drawn = {
                ast.unparse(node.targets[0]): node
                for node in nodes
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and called_name(node.value) == "rsample"
            }
            for node in nodes if function in run.running else ():
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="log_prob"), args=[ast.Name(id=name)]
                    ) if name in drawn:
                        yield StepFinding(
                            kind="scored with gradient",
                            heading=f"log_prob is given {name} of rsample, with its gradient",
                            frame=line_at(run.trace, file, drawn[name].lineno, function),
                            paragraph=(
                                f"log_prob times an advantage is made for an {name} that is a"
                                " constant. rsample() gives one that is a function of the"
                                " distribution's parameters, and moves with them: of a normal"
                                " distribution the gradient by the mean cancels to 0, and the"
                                " policy learns nothing. Take sample(), or give log_prob"
                                f" {name}.detach()."
                            ),
                        )
                        return


def _weighs(node: ast.AST) -> bool:
    """Whether log-probabilities are multiplied by an advantage or its like, as names tell."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            sides = ast.unparse(left), ast.unparse(right)
            return any(
                _SCORE.search(one) and _ADVANTAGE.search(other) and not _SCORE.search(other)
                for one, other in (sides, sides[::-1])
            )
    return False


def _given_on(nodes: Sequence[ast.AST]) -> tuple[ast.Assign, str, str] | None:
    """A statement that takes a sample which the same function hands on, its name and its text."""
    for node in nodes:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="sample"), keywords=[]) as call,
            ):
                for other in nodes:
                    if isinstance(other, ast.Call) and any(
                        isinstance(each, ast.Name) and each.id == name for each in other.args
                    ):
                        return node, name, ast.unparse(call)
    return None
