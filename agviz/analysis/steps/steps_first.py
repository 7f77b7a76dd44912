"""Layers that go along the samples of a batch, as they are made without batch_first.

Note [Steps first]
A recurrent layer or an encoder of torch takes [steps, samples, features] unless it is made with
batch_first=True. Where the program then takes ``[:, -1]`` of what a recurrent layer gives, it means
the last step, and gets the last sample; where it pools over dimension 1 of what an encoder gives,
it takes samples for steps.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import bindings, called_name, line_at, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_BATCH_FIRST: Final = 4
"""Place of batch_first among the arguments of a recurrent layer."""
_ENCODER_BATCH_FIRST: Final = 6
"""The same of a layer of an encoder."""
_TURNING: Final = frozenset({"T", "movedim", "mT", "permute", "swapaxes", "transpose"})


def last_of_samples(run: RunSteps) -> Iterator[StepFinding]:
    """Outputs of recurrent layers of which the last sample is taken. Note [Steps first]."""
    for frame, layer, made in _lasts(run, _is_steps_first):
        yield StepFinding(
            kind="axis",
            heading=f"the last sample is taken of what {layer} gives, not the last step",
            frame=frame,
            paragraph=(
                f"self.{layer} is made without batch_first (line {made}), so it takes its input"
                " for [steps, samples, features]: it runs along the samples of a batch, and [:, -1]"
                " is the last of them at each step. Make it with batch_first=True if dimension 0 is"
                " the batch, else take [-1]."
            ),
        )
        return


def pooled_over_samples(run: RunSteps) -> Iterator[StepFinding]:
    """Encoders that attend along dimension 0 and are pooled along the other. Note [Steps first]."""
    for file in user_files(run.trace) if run.optimizers else ():
        for _, owner in nodes_of(run.trace, file):
            layers = _steps_first_encoders(owner) if isinstance(owner, ast.ClassDef) else {}
            for method in owner.body if isinstance(owner, ast.ClassDef) and layers else ():
                if not isinstance(method, ast.FunctionDef) or method.name not in run.running:
                    continue
                found = _taken(method, layers, _pooled)
                if found is None or _turns(method):
                    continue
                node, layer = found
                yield StepFinding(
                    kind="axis",
                    heading=f"{layer} attends over the samples of a batch, not over the steps",
                    frame=line_at(run.trace, file, node.lineno, method.name),
                    paragraph=(
                        f"Its layers are made without batch_first (line {layers[layer]}), so they"
                        " take [steps, samples, features]: each sample attends to the others of its"
                        " batch. What is taken of dimension 1 here takes that for the steps. Make"
                        " them with batch_first=True if dimension 0 is the batch."
                    ),
                )
                return


def last_steps(run: RunSteps) -> Iterator[tuple[Frame, str]]:
    """Where the last steps of what recurrent layers give are taken, with the layers."""
    for frame, layer, _ in _lasts(run, lambda made: not _is_steps_first(made)):
        yield frame, layer


def one_step_of_two_ways(run: RunSteps) -> StepFinding | None:
    """The last outputs of a layer of two directions, where they are all that is taken of it.

    None: there are none. They may suffice.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for frame, layer, made in _lasts(run, _is_of_two_ways):
        return StepFinding(
            kind="one step of two ways",
            heading=f"of what {layer} reads backwards, one step only is taken",
            frame=frame,
            paragraph=(
                f"self.{layer} is bidirectional (line {made}): at the last step its second half has"
                " read that step alone, and nothing before it. Where both directions are to have"
                " read all, take h_n, torch.cat([h_n[-2], h_n[-1]], dim=1), or the second half at"
                " [:, 0]. If that step alone is meant, all is well."
            ),
        )
    return None


def _lasts(run: RunSteps, fits: Callable[[ast.Call], bool]) -> Iterator[tuple[Frame, str, int]]:
    """Where ``[:, -1]`` is taken of recurrent layers, with these and the lines that make them."""
    for file in user_files(run.trace) if run.optimizers else ():
        for _, owner in nodes_of(run.trace, file):
            layers = _recurrent(owner, fits) if isinstance(owner, ast.ClassDef) else {}
            for method in owner.body if isinstance(owner, ast.ClassDef) and layers else ():
                if not isinstance(method, ast.FunctionDef) or method.name not in run.running:
                    continue
                found = _taken(method, layers, _last_column)
                if found is not None:
                    node, layer = found
                    line = line_at(run.trace, file, node.lineno, method.name)
                    yield line, layer, layers[layer]


def _is_steps_first(made: ast.Call) -> bool:
    return len(made.args) <= _BATCH_FIRST and not any(
        word.arg in {"batch_first", None} for word in made.keywords
    )


def _is_of_two_ways(made: ast.Call) -> bool:
    on = {word.arg for word in made.keywords if ast.unparse(word.value) == "True"}
    return {"batch_first", "bidirectional"} <= on


def _recurrent(owner: ast.ClassDef, fits: Callable[[ast.Call], bool]) -> dict[str, int]:
    """The recurrent layers that a class makes by a call that fits, with their lines."""
    found, others = dict[str, int](), set[str]()
    for node in ast.walk(owner):
        for target, made in bindings(node) if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Attribute):
                continue
            is_plain = isinstance(made, ast.Call) and called_name(made) in _RECURRENT and fits(made)
            if is_plain and target.attr not in found:
                found[target.attr] = made.lineno
            else:
                others.add(target.attr)
    return {name: line for name, line in found.items() if name not in others}


def _steps_first_encoders(owner: ast.ClassDef) -> dict[str, int]:
    """Encoders of torch that a class keeps, with the line that makes their layers so."""
    made = [node for node in ast.walk(owner) if isinstance(node, ast.Call)]
    layers = [node for node in made if called_name(node) == "TransformerEncoderLayer"]
    if not layers or any(
        len(node.args) > _ENCODER_BATCH_FIRST
        or {"batch_first", None} & {w.arg for w in node.keywords}
        for node in layers
    ):
        return {}
    return {
        target.attr: layers[0].lineno
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign)
        for target, value in bindings(node)
        if isinstance(target, ast.Attribute)
        and isinstance(value, ast.Call)
        and called_name(value) in {"TransformerEncoder", "TransformerEncoderLayer"}
    }


def _turns(method: ast.FunctionDef) -> bool:
    """Whether a method changes the order of dimensions."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _TURNING for node in ast.walk(method)
    )


def _pooled(node: ast.AST) -> ast.expr | None:
    """What is averaged over dimension 1, or of which one place of it is taken; None: nothing is."""
    match node:
        case (
            ast.Call(
                func=ast.Attribute(value=value, attr="amax" | "mean" | "sum"),
                args=[ast.Constant(value=1)],
            )
            | ast.Call(
                func=ast.Attribute(value=value, attr="amax" | "mean" | "sum"),
                keywords=[ast.keyword(arg="dim", value=ast.Constant(value=1))],
            )
            | ast.Subscript(
                value=value,
                slice=ast.Tuple(
                    elts=[ast.Slice(lower=None, upper=None, step=None), ast.Constant(value=0), *_]
                ),
            )
        ):
            return value
    return _last_column(node)


def _taken(
    method: ast.FunctionDef,
    layers: dict[str, int],
    of: Callable[[ast.AST], ast.expr | None],
) -> tuple[ast.expr, str] | None:
    """Where a method takes some of the output of a layer, itself or by a name of one value.

    Args:
        method: the method.
        layers: by their attributes.
        of: of what an expression takes so; None: it does not.
    """
    made: dict[str, list[str]] = {}
    for node in ast.walk(method):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            first = target.elts[0] if isinstance(target, ast.Tuple) else None
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    layer = _layer(node.value) if part in (target, first) else ""  # type: ignore[attr-defined]
                    made.setdefault(part.id, []).append(layer)
    for node in ast.walk(method):
        match of(node):
            case ast.Name(id=name) if len(made.get(name, ())) == 1:
                layer = made[name][0]
            case ast.Subscript(value=called, slice=ast.Constant(value=0)):
                layer = _layer(called)
            case ast.Call() as called:
                layer = _layer(called)
            case _:
                continue
        if layer in layers:
            return node, layer  # type: ignore[return-value]
    return None


def _last_column(node: ast.AST) -> ast.expr | None:
    """What ``[:, -1]`` or ``[:, -1, :]`` is taken of; None: it is something else."""
    match node:
        case ast.Subscript(
            value=value,
            slice=ast.Tuple(
                elts=[
                    ast.Slice(lower=None, upper=None, step=None),
                    ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)),
                    *rest,
                ]
            ),
        ) if len(rest) < 2:
            return value
    return None


def _layer(value: ast.expr) -> str:
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name
    return ""
