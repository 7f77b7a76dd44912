"""Loops that give the name of a parameter another value, and so change no parameter.

Note [Read from the text]
That such a statement has no effect is plain where nothing reads the name afterwards, and nothing in
it writes in place. That it ran is taken from the functions of recorded frames, and what they call.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_PARAMETERS: Final = frozenset({"named_parameters", "parameters"})
_WORDS: Final = ("parameters(", ".grad")
"""One of them is in each file with such a loop."""
_PURE: Final = frozenset(
    {"abs", "add", "bfloat16", "clamp", "clip", "clone", "detach", "div", "double", "exp", "half"}
    | {"lerp", "max", "min", "mul", "nan_to_num", "normalize", "ones_like", "randn_like", "relu"}
    | {"renorm", "round", "sign", "sqrt", "sub", "where", "zeros_like"}
)
"""Functions that make a new tensor and do nothing else."""
_FORMS: Final = {
    "bfloat16()": "bfloat16",
    "double()": "float64",
    "half()": "float16",
} | dict.fromkeys(("clone()", "detach()", "detach().clone()"), "")
"""What gives the same numbers in another form, with the dtype."""
_LONGEST: Final = 60
"""Letters of an expression that are shown."""


def rebound(run: RunSteps) -> Iterator[StepFinding]:
    """Statements that were to change parameters, and only name other tensors."""
    if not run.passes:
        return
    for file in user_files(run.trace):
        lines = run.trace.source(file)
        if not any(word in line for line in lines for word in _WORDS):
            continue
        nodes = nodes_of(run.trace, file)
        for function, loop in nodes:
            assigns = _assigns(loop) if isinstance(loop, ast.For) else []
            if not isinstance(loop, ast.For) or not assigns:
                continue
            scope = [node for name, node in nodes if function in {name, "<module>"}]
            for assign, name in _without_effect(loop, assigns, scope):
                value = ast.unparse(assign.value)
                if _is_needless(run, value.removeprefix(f"{name}.")):
                    continue
                if function not in run.running:
                    continue
                line = line_at(run.trace, file, assign.lineno, function)
                yield _finding(line, loop.lineno, name, value)


def _finding(line: Frame, loop: int, name: str, value: str) -> StepFinding:
    form = value.removeprefix(f"{name}.")
    written = value if len(value) <= _LONGEST else "..."
    remedy = f"Write to the parameter in place, under torch.no_grad(): {name}.copy_({written})."
    if form in _FORMS:
        remedy = f"Convert the module itself: module.{form}."
        if form.startswith("detach"):
            remedy = f"To freeze it, call {name}.requires_grad_(False)."
    return StepFinding(
        kind="rebound",
        heading=f"this changes no parameter: {name} only becomes the name of another tensor",
        frame=line,
        paragraph=(
            f"The loop in line {loop} lends each parameter the name {name}. {name} = ..."
            " makes a new tensor and gives the name to that; the parameter stays as it was, and"
            f" nothing reads the name afterwards. {remedy}"
        ),
    )


def _assigns(loop: ast.For) -> list[tuple[ast.Assign, str]]:
    """Assignments of a loop through parameters to its own variables; with the variable."""
    turns = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    found = []
    for assign in ast.walk(loop):
        target = assign.targets[0] if isinstance(assign, ast.Assign) else None
        if not isinstance(assign, ast.Assign) or len(assign.targets) > 1:
            continue
        if isinstance(target, ast.Name) and target.id in turns and _changes(assign.value, turns):
            found.append((assign, target.id))
    return [each for each in found if _is_of_parameters(loop, each[0].value)]


def _without_effect(
    loop: ast.For, assigns: Sequence[tuple[ast.Assign, str]], scope: Sequence[ast.AST]
) -> Iterator[tuple[ast.Assign, str]]:
    """Those of them that nothing reads."""
    inner = {
        id(part)
        for node in ast.walk(loop)
        if node is not loop and isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.Lambda)
        for part in ast.walk(node)
    }
    for assign, name in assigns:
        is_read = any(
            isinstance(node, ast.Name)
            and (node.id, type(node.ctx)) == (name, ast.Load)
            and (_place(node) > _place(assign.value) or id(node) in inner)
            for node in scope
        )
        if id(assign) not in inner and not is_read:
            yield assign, name


def _place(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _changes(value: ast.expr, turns: set[str]) -> bool:
    """Whether an expression computes something of the loop's variables, without any effect."""
    nodes = list(ast.walk(value))
    if any(isinstance(node, ast.Call) and called_name(node) not in _PURE for node in nodes):
        return False
    return any(isinstance(node, ast.Name) and node.id in turns for node in nodes)


def _is_of_parameters(loop: ast.For, value: ast.expr) -> bool:
    """Whether a loop goes through parameters: it asks for them, or for their gradients."""
    asked = any(
        isinstance(node, ast.Call) and called_name(node) in _PARAMETERS
        for node in ast.walk(loop.iter)
    )
    return asked or any(
        isinstance(node, ast.Attribute) and node.attr == "grad" for node in ast.walk(value)
    )


def _is_needless(run: RunSteps, form: str) -> bool:
    """Whether a statement only detaches or converts, as far as can be seen for nothing."""
    if form not in _FORMS:
        return False
    rows = run.trace.parameters(run.passes[-1].id)
    if form.startswith("detach"):
        return not rows or any(row.node is None for row in rows)
    return _FORMS[form] in {"", *(row.dtype for row in rows)}
