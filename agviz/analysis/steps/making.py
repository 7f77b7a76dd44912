"""Layers and parameters that each forward makes anew, so that nothing can train them.

Note [Made on purpose]
What a forward makes and optimises itself, as latents, is held by an optimizer or has its gradient
read. What takes data alone may be a random augmentation, or a perturbation. A layer that is made in
the first forward and kept gets gradients in more than one pass.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    container_name,
    parsed,
    targets_of,
    tree_of,
    user_files,
)
from agviz.analysis.evidence import base_name
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import gradients_read
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow

_LEAST: Final = 3
"""Passes."""
_MOST_NODES: Final = 20_000
_MOST_LEAVES: Final = 50
_LAYERS: Final = frozenset(
    {"Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "Embedding"}
    | {"ConvTranspose3d", "EmbeddingBag", "GRU", "GRUCell", "LSTM", "LSTMCell", "Linear", "RNN"}
    | {"MultiheadAttention", "Parameter", "RNNCell", "TransformerDecoder", "TransformerEncoder"}
    | {"TransformerDecoderLayer", "TransformerEncoderLayer"}
)
"""What has parameters; not normalisations, of which those made anew do what is asked of them."""
_VIEWS: Final = frozenset({"Expand", "Permute", "T", "ToCopy", "Transpose", "Unsqueeze", "View"})
_FORWARD: Final = "_call_impl"
"""The function by which torch calls the forward of a module."""
_OWN: Final = frozenset({"backward", "grad", "optim", "requires_grad", "requires_grad_"})
"""What a function names that works with gradients itself."""


class _Made(NamedTuple):
    name: str
    """What is called: ``nn.Linear``."""
    target: str
    """The last part of what it is assigned to; empty: nothing."""
    frame: Frame


def made_in_forward(run: RunSteps) -> Iterator[StepFinding]:
    """What is in no module and no optimizer, and is there for one pass only."""
    if not run.optimizers:
        return
    passes = run.passes.after(min(each.steps[0].graph_task for each in run.optimizers))[-_LEAST:]
    if len(passes) < _LEAST or any(task.nodes > _MOST_NODES for task in passes):
        return
    held = [row for each in run.optimizers for row in each.held]
    stays = {row.shape for row in run.trace.unheld_leaves() if not row.name}
    stays |= {row.shape for row in held if not row.name and row.had_grad}
    of_passes = [
        [row for row in _unnamed(run.trace, task.id) if row.shape not in stays] for task in passes
    ]
    common = set.intersection(*({(row.stack, row.shape) for row in rows} for rows in of_passes))
    found: dict[_Made, list[NodeRow]] = {}
    for row in of_passes[-1]:
        made = _made(run.trace, row.stack) if (row.stack, row.shape) in common else None
        is_lookup = made is not None and made.name.endswith("Embedding")
        if made is not None and (is_lookup or not _is_of_data(run.trace, row)):
            found.setdefault(made, []).append(row)
    for made, rows in found.items():
        shapes = listed(list(dict.fromkeys(str(list(row.shape or ())) for row in rows)))
        before = [
            row.name
            for row in held
            if not row.had_grad and made.target and row.name.rpartition(".")[2] == made.target
        ]
        remedy = "Make it once, in __init__, where parameters() finds it, and use it in forward."
        if before:
            remedy = (
                f"The optimizer still holds {listed(before)} of before, which gets no gradient."
                " Use what is computed of it as it is, a plain tensor."
            )
        yield StepFinding(
            kind="made in forward",
            heading=f"{made.name} is made anew in each forward, so that nothing trains it",
            frame=made.frame,
            paragraph=(
                f"Each of the last {plural(len(passes), 'backward pass', 'backward passes')} led to"
                f" {plural(len(rows), 'parameter')} of shape {shapes} that no other pass led to:"
                f" {'they are' if len(rows) > 1 else 'it is'} in no optimizer, and the next forward"
                f" makes others. {remedy}"
            ),
        )


def _unnamed(trace: Trace, graph_task: int) -> list[NodeRow]:
    """The leaves of a pass that no module has."""
    leaves = [number for number, name in trace.leaves(graph_task).items() if not name]
    return [trace.node(graph_task, number) for number in leaves[:_MOST_LEAVES]]


def _made(trace: Trace, stack: tuple[Frame, ...]) -> _Made | None:
    """What a function inside of a module's forward makes, and uses in its line of a stack."""
    called = [frame.function for frame in stack]
    inside = called.index(_FORWARD) if _FORWARD in called else len(stack)
    layers = _LAYERS | _modules(trace) if inside < len(stack) else _LAYERS
    for frame in reversed(stack[inside:]):
        lines = [] if frame.hidden else trace.source(frame.file)
        around = [
            node
            for node in ast.walk(parsed(lines))
            if isinstance(node, ast.stmt)
            and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        ]
        function = next((one for one in reversed(around) if isinstance(one, ast.FunctionDef)), None)
        found = None if function is None else _used_in(function, around[-1], layers)
        if found is None or function is None:
            continue
        call, target = found
        own = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        files = (frame._replace(file=file) for file in user_files(trace))
        if own & _OWN or any(target in gradients_read(trace, file) for file in files):
            return None
        line = frame._replace(line=call.lineno, source=lines[call.lineno - 1].strip())
        return _Made(ast.unparse(call.func), target, line)
    return None


def _used_in(
    function: ast.FunctionDef, statement: ast.stmt, layers: frozenset[str]
) -> tuple[ast.Call, str] | None:
    """The call in a function that makes a layer which a statement uses, and the layer's name."""
    used = _names(statement) - {"self"}
    for node in ast.walk(function):
        given = targets_of(node) if isinstance(node, ast.Assign | ast.AnnAssign) else []
        if node is statement or any(_names(target) & used for target in given):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and called_name(call) in layers:
                    return call, container_name(given[0]) if given else ""
    return None


def _names(node: ast.AST) -> set[str]:
    parts = ast.walk(node)
    return {container_name(one) for one in parts if isinstance(one, ast.Name | ast.Attribute)}


def _modules(trace: Trace) -> frozenset[str]:
    """The classes of the program that are modules with parameters, as it is written."""
    return frozenset(
        node.name
        for file in user_files(trace)
        for node in ast.walk(tree_of(trace, file))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Module") for base in node.bases)
        and any(
            isinstance(call, ast.Call) and called_name(call) in _LAYERS for call in ast.walk(node)
        )
    )


def _is_of_data(trace: Trace, leaf: NodeRow) -> bool:
    """Whether what uses a leaf leads to nothing that a module has."""
    below: dict[int, set[int]] = {}
    above: dict[int, set[int]] = {}
    for edge in trace.edges(leaf.graph_task):
        below.setdefault(edge.producer, set()).add(edge.consumer)
        above.setdefault(edge.consumer, set()).add(edge.producer)
    user = leaf.index
    while len(above.get(user, ())) == 1:
        (user,) = above[user]
        if base_name(trace.name(leaf.graph_task, user)) not in _VIEWS:
            break
    seen, waiting = {user}, [user]
    while waiting:
        new = below.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return not any(
        name and number in seen for number, name in trace.leaves(leaf.graph_task).items()
    )
