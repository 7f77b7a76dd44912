"""Samples and their targets that are brought into different orders.

Note [Two orders]
An index by a permutation that is drawn on the spot is of use for one tensor only. Two tensors of
one function that are indexed by two such draws no longer belong together, row by row; nor do two
that are cut by the same slices into batches, where one of them alone is reordered so, again and
again. Where a permutation is drawn once and kept under a name, nothing is said.
"""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, line_at, nodes_by_function, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps

_DRAWS: Final = frozenset({"permutation", "randperm"})


class _Reordered(NamedTuple):
    """A statement that gives a name to a tensor in an order of its own."""

    node: ast.Assign
    of: str
    """What is reordered, as it is written."""
    target: str


def permuted(run: RunSteps) -> Iterator[StepFinding]:
    """Tensors that are reordered apart from those that belong to them. Note [Two orders]."""
    for file in user_files(run.trace) if run.optimizers else ():
        for function, nodes in nodes_by_function(run.trace, file).items():
            if function not in run.running:
                continue
            drawn = [found for node in nodes if (found := _reordered(node)) is not None]
            cuts = _cuts(nodes)
            said = _apart(drawn, cuts) or _alone(drawn, cuts, nodes)
            if said is None:
                continue
            one, other = said
            yield StepFinding(
                kind="two orders",
                heading=f"{one.of} and {other} are brought into different orders",
                frame=line_at(run.trace, file, one.node.lineno, function),
                paragraph=(
                    f"This line draws a permutation for {one.of} alone, and {other} is in another"
                    " order: a row of one no longer belongs to the same row of the other. If they"
                    " are samples and their targets, nothing can be learnt but their mean. Draw it"
                    " once, order = torch.randperm(n), and index both by it."
                ),
            )
            return


def _reordered(node: ast.AST) -> _Reordered | None:
    match node:
        case ast.Assign(targets=[target], value=ast.Subscript(value=of, slice=ast.Call() as draw)):
            if called_name(draw) in _DRAWS and isinstance(of, ast.Name | ast.Attribute):
                return _Reordered(node, ast.unparse(of), ast.unparse(target))
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for target, value in zip(targets, values, strict=False):
                one = ast.Assign([target], value, lineno=node.lineno)
                if (found := _reordered(one)) is not None:
                    return found
    return None


def _apart(
    drawn: Sequence[_Reordered], cuts: Mapping[str, set[str]]
) -> tuple[_Reordered, str] | None:
    """Two tensors in two orders, one behind the other in the text, that are cut alike after it."""
    for one, other in itertools.pairwise(drawn):
        is_near = abs(other.node.lineno - one.node.lineno) <= 1
        if one.of != other.of and is_near and _is_cut_alike(one.target, other.target, cuts):
            return one, other.of
    return None


def _alone(
    drawn: Sequence[_Reordered], cuts: Mapping[str, set[str]], nodes: Sequence[ast.AST]
) -> tuple[_Reordered, str] | None:
    """One that is reordered in place again and again, and another that is cut alike."""
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    for one in drawn if len(drawn) == 1 else ():
        if one.target == one.of and any(_is_within(one.node, loop) for loop in loops):
            for other in cuts:
                if other != one.of and _is_cut_alike(one.of, other, cuts):
                    return one, other
    return None


def _cuts(nodes: Sequence[ast.AST]) -> dict[str, set[str]]:
    """The slices, or indices, by which tensors are cut, by what is cut."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice | ast.Name):
            found.setdefault(ast.unparse(node.value), set()).add(ast.unparse(node.slice))
    return found


def _is_cut_alike(one: str, other: str, cuts: Mapping[str, set[str]]) -> bool:
    return not cuts.get(one, set()).isdisjoint(cuts.get(other, ()))


def _is_within(node: ast.stmt, loop: ast.For | ast.While) -> bool:
    return loop.lineno < node.lineno <= (loop.end_lineno or 0)
