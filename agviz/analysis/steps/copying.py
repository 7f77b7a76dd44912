"""Log-probabilities that are copied into a new tensor: their graph is lost.

Note [Copied by value]
``torch.tensor(log_probs)`` of a list of tensors reads their values. Where all log-probabilities of
a program go that way, those of its policy have no gradient, and only what else is in the loss (an
entropy, a critic) moves it. Ones that are kept beside others that are computed anew, as for the
ratio of PPO, are meant to be values, and so are ones that are detached, or put into the list under
``no_grad``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.given_names import GivenNames
    from agviz.analysis.steps.run import RunSteps

_CHANCE: Final = "log_prob"
_COPYING: Final = frozenset({"DoubleTensor", "FloatTensor", "Tensor", "as_tensor", "tensor"})
_MOST_DEEP: Final = 4


def chances_copied(run: RunSteps) -> Iterator[StepFinding]:
    """A line that copies all log-probabilities of a program. Note [Copied by value]."""
    if not run.optimizers or not run.passes:
        return
    names = run.given_names
    kept = [
        (call, names.above(call, ast.Call))
        for _, call in names.calls
        if called_name(call) == _CHANCE and isinstance(call.func, ast.Attribute)
    ]
    lists = {
        ast.unparse(put.func.value)
        for call, put in kept
        if isinstance(put, ast.Call)
        and isinstance(put.func, ast.Attribute)
        and put.func.attr == "append"
        and put.args == [call]
        and not names.is_without_gradients(call)
    }
    if len(lists) != 1 or len(kept) != 1:
        return
    (name,) = lists
    taken = [
        (file, call)
        for file, call in names.calls
        if any(_is(names, each, name) for each in call.args)
    ]
    copies = [(file, call) for file, call in taken if called_name(call) in _COPYING]
    if len(copies) != 1 or any(called_name(call) not in {*_COPYING, "len"} for _, call in taken):
        return
    file, call = copies[0]
    function = names.function(call)
    if names.is_without_gradients(call) or (
        function is not None and function.name not in run.running
    ):
        return
    written = ast.unparse(call.func)
    yield StepFinding(
        kind="values copied",
        heading=f"{written} copies the values of {name}: these log-probabilities have no gradient",
        frame=line_at(
            run.trace, file, call.lineno, "<module>" if function is None else function.name
        ),
        paragraph=(
            f"{written} makes a new tensor of numbers, and the graphs of what is in {name} end"
            " there: what they weigh moves no parameter, only what else is in the loss does."
            f" Put the tensors themselves together: torch.stack({name})."
        ),
    )


def _is(names: GivenNames, node: ast.expr, name: str, depth: int = 0) -> bool:
    """Whether it is the list of this name, as far as the text tells."""
    match node:
        case ast.ListComp(elt=ast.Name(), generators=[ast.comprehension(iter=over, ifs=[])]):
            return _is(names, over, name, depth)
        case ast.Name() | ast.Attribute():
            if ast.unparse(node) == name:
                return True
            return depth < _MOST_DEEP and any(
                each is not None and _is(names, each, name, depth + 1) for each in names.given(node)
            )
    return False
