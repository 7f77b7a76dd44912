"""Layers of a container that are one and the same module, since a list was multiplied.

Note [A list of one]
``[Block()] * 6`` calls ``Block`` once: six names for one module, whose weights all six layers
share. It is said where a container was seen to hold one module several times, and nothing in the
text says that it is to be shared. A loop that calls one module again and again is meant so.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    container_name,
    line_at,
    targets_of,
    tree_of,
    user_files,
    with_functions,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_TRAINED: Final = re.compile(
    r"(Bilinear|Conv|Embedding|GRU|LSTM|Linear|MultiheadAttention|RNN|Transformer)|Norm(\dd)?$"
)
"""Names of classes of torch.nn whose weights are trained."""
_MEANT: Final = re.compile(
    r"albert|deepcopy|\bre_?used?\b|recurren|\b(un)?shar(e|ed|es|ing)\b|shared_|_shared|\bt(ied|ying)\b"
    r"|universal|\bsame\b",
    re.IGNORECASE,
)
"""Words of a line, or of the comment before it, that say that weights are to be shared."""


class _Multiplied(NamedTuple):
    frame: Frame
    text: str
    """Of the list."""
    called: str
    """What makes its elements, as it is written."""
    owner: str
    """The attribute of a module that it becomes; empty: another place."""


def repeated_modules(run: RunSteps) -> Iterator[StepFinding]:
    """Containers whose entries are one module, by a multiplied list. Note [A list of one]."""
    containers = run.trace.repeated_modules()
    for each in _multiplied(run.trace) if containers else ():
        of = next(
            (one for one in containers if each.owner in {"", one[0].rpartition(".")[2]}), None
        )
        if of is None:
            continue
        path, times, name = of
        first = ".".join(filter(None, [path, name]))
        yield StepFinding(
            kind="one module",
            heading=f"{each.text} is one module under several names: all layers share its weights",
            frame=each.frame,
            paragraph=(
                f"That calls {each.called} once, and repeats what it gave: {times:,} entries of"
                f" {path or 'the model'} are all {first}, and there are no weights of other layers."
                f" Make each anew: [{each.called}(...) for _ in range(n)]. If they are to share"
                " weights, call one module in a loop, which says so."
            ),
        )
        return


def _multiplied(trace: Trace) -> Iterator[_Multiplied]:
    """The lists of calls of modules that the program multiplies, but for those that are meant."""
    trees = {file: tree_of(trace, file) for file in user_files(trace)}
    modules = _modules(list(trees.values()))
    for file, tree in trees.items():
        lines = trace.source(file)
        statements = [
            node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)
        ]
        for function, node in with_functions(tree):
            made = _repeated(node)
            calls = [one for one in made if _is_trained(one, modules)]
            if not calls or not isinstance(node, ast.expr):
                continue
            around = [one for one in statements if node in ast.walk(one)]
            first = around[0].lineno if around else node.lineno
            said = " ".join(lines[max(0, first - 2) : node.end_lineno])
            if _MEANT.search(said):
                continue
            targets = targets_of(around[0]) if around else []
            owners = [container_name(one) for one in targets if isinstance(one, ast.Attribute)]
            text = ast.unparse(node) if len(ast.unparse(node)) <= _LONGEST else "this list"
            frame = line_at(trace, file, node.lineno, function)
            called = ast.unparse(calls[0].func)
            yield _Multiplied(frame, text, called, owners[0] if owners else "")


_LONGEST: Final = 40
"""Letters of a list that are shown."""


def _repeated(node: ast.AST) -> Sequence[ast.Call]:
    """The calls whose results a multiplication of a list, or ``itertools.repeat``, repeats."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for side in (node.left, node.right):
            if isinstance(side, ast.List | ast.Tuple):
                return [one for one in side.elts if isinstance(one, ast.Call)]
    if isinstance(node, ast.Call) and called_name(node) == "repeat" and len(node.args) == 2:
        is_of_itertools = ast.unparse(node.func) in {"repeat", "itertools.repeat"}
        return [one for one in node.args[:1] if isinstance(one, ast.Call) and is_of_itertools]
    return ()


def _modules(trees: Sequence[ast.Module]) -> set[str]:
    """Classes of the program that are modules, by their bases' names; functions that return one."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"Module"}
    for _ in bases:
        found |= {name for name, of in bases.items() if of & found or any(map(_is_layer, of))}
    return found | {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(each, ast.Return)
            and isinstance(each.value, ast.Call)
            and _is_trained(each.value, found)
            for each in ast.walk(node)
        )
    }


def _is_layer(name: str) -> bool:
    return name in {"Sequential", "ModuleList"} or bool(_TRAINED.search(name))


def _is_trained(call: ast.Call, modules: set[str]) -> bool:
    return called_name(call) in modules or _is_layer(called_name(call))
