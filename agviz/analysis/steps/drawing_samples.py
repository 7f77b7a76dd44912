"""Samples of a variational posterior that are drawn without a gradient.

Note [Drawn]
``sample()`` draws under ``no_grad``, ``rsample()`` as a function of the parameters. A policy needs
the former and ``log_prob``; a file that has a KL divergence, no ``log_prob`` and no ``rsample``,
and gives what it samples to another function, wants the latter: else its encoder is trained by the
KL divergence alone, which takes from it all that the sample was to carry.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_by_function, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_BY_PARAMETERS: Final = frozenset(
    {"Beta", "Cauchy", "Dirichlet", "Gamma", "Gumbel", "Kumaraswamy", "Laplace", "LogNormal"}
    | {"LowRankMultivariateNormal", "MultivariateNormal", "Normal", "StudentT", "Uniform"}
)
"""Distributions of torch that have ``rsample``."""
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
