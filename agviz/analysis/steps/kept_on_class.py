"""Custom Functions that keep what backward needs on their class, where the next call replaces it.

Note [Kept on the class]
``ctx`` is of one call; a class attribute or a global variable is of all. Where a pass has several
nodes of a Function whose forward writes to such a place and whose backward reads it, all of them
compute with what the last call left.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import elements, line_at, nodes_of, targets_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_SUFFIX: Final = "Backward"
_MOST_NODES: Final = 20_000


def kept_on_class(run: RunSteps) -> Iterator[StepFinding]:
    """The first Function of several nodes of a pass that does. Note [Kept on the class]."""
    if not run.passes or run.passes[-1].nodes > _MOST_NODES:
        return
    trace = run.trace
    ran = Counter(
        node.name.removesuffix(_SUFFIX)
        for node in trace.nodes(run.passes[-1].id)
        if node.name.endswith(_SUFFIX)
    )
    for file in user_files(trace) if max(ran.values(), default=0) > 1 else ():
        for _, node in nodes_of(trace, file):
            if not isinstance(node, ast.ClassDef) or ran[node.name] < 2:
                continue
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            if not {"forward", "backward"} <= methods.keys():
                continue
            read = {
                ast.unparse(each)
                for each in ast.walk(methods["backward"])
                if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load)
            }
            for name, line in _written(methods["forward"], node.name):
                if name not in read:
                    continue
                yield StepFinding(
                    kind="kept on class",
                    heading=f"{name} is of all calls of {node.name}: each replaces the last one's",
                    frame=line_at(trace, file, line, "forward"),
                    paragraph=(
                        f"The last pass has {ran[node.name]:,} nodes of {node.name}, and the"
                        f" backward of each reads {name}, which the last call of forward has"
                        " written: the gradients of the others are worked out of another call's"
                        " values. torch does not see it. Keep tensors by ctx.save_for_backward, and"
                        " other values as attributes of ctx."
                    ),
                )
                return


def _written(forward: ast.FunctionDef, owner: str) -> Iterator[tuple[str, int]]:
    """Attributes of its class, and global variables, to which a forward assigns; and the lines."""
    shared = {
        name for each in ast.walk(forward) if isinstance(each, ast.Global) for name in each.names
    }
    for node in ast.walk(forward):
        if not isinstance(node, ast.Assign):
            continue
        for target in targets_of(node):
            for one in elements(target):
                name = ast.unparse(one)
                is_of_class = isinstance(one, ast.Attribute) and ast.unparse(one.value) == owner
                if is_of_class or name in shared:
                    yield name, node.lineno
