"""Padding that has a part in what a sequence is summed up to, as the text of a program shows.

Note [Padded sequences]
A program that pads sequences says so: by ``padding_idx``, ``pad_sequence``, a mask of padding that
attention is given. The last place of what a recurrent layer gives is that of padding then,
unless the sequences were packed, turned round or padded in front, and a plain mean counts all
places. Both may be good enough, so they are said and not judged.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.steps_first import last_steps

if TYPE_CHECKING:
    from agviz.analysis.steps.run import RunSteps

_PADDED: Final = re.compile(
    r"padding_idx\s*=|pad_sequence\(|key_padding_mask\s*=|\bpad_(?:id|idx|token)|\bPAD\b"
)
_MINDED: Final = re.compile(
    r"pack_padded|padding_side|\.flip\(|fliplr|\.gather\(|lengths|\blens\b|masked_fill|nested"
)
_PADS: Final = re.compile(r"(?i)pad|mask|unk|lengths?\b|randint\(\s*1\b|\]\s*=\s*0\b")
"""Words of programs that pad, or whose ids begin with 1."""


def padding_counted(run: RunSteps) -> StepFinding | None:
    """The last place of padded sequences, or a mean over all of them; None: there is none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    texts = {file: "\n".join(run.trace.source(file)) for file in user_files(run.trace)}
    whole = "\n".join(texts.values())
    if not run.optimizers or not _PADDED.search(whole):
        return None
    if not _MINDED.search(whole):
        for frame, layer in last_steps(run):
            return StepFinding(
                kind="padding counted",
                heading=f"of padded sequences the last place of what {layer} gives is taken",
                frame=frame,
                paragraph=(
                    "Of a sequence that is shorter than the longest, that is a place of padding,"
                    " behind all that the layer has read of it. Take the place of each sequence's"
                    " last element, out[range(n), lengths - 1], or h_n of what"
                    " pack_padded_sequence gives. If all are as long, or padded in front, all is"
                    " well."
                ),
            )
    for file in texts:
        for _, owner in nodes_of(run.trace, file):
            for method in owner.body if isinstance(owner, ast.ClassDef) else ():
                if not isinstance(method, ast.FunctionDef) or method.name not in run.running:
                    continue
                mean = _mean(method)
                if mean is not None and _PADDED.search(ast.unparse(owner)):
                    return StepFinding(
                        kind="padding counted",
                        heading="a mean is taken over sequences with their padding",
                        frame=line_at(run.trace, file, mean.lineno, method.name),
                        paragraph=(
                            "The class knows of padding, and this mean counts its places like any"
                            " other: what a sequence is summed up to depends on how long the"
                            " longest of its batch is. Multiply by the mask, sum, and divide by"
                            " the number of places that are left. If all are as long, all is well."
                        ),
                    )
    return None


def real_row(run: RunSteps) -> StepFinding | None:
    """An embedding with a row for padding in a program that never pads; None: there is none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for file in user_files(run.trace) if run.optimizers else ():
        text = "\n".join(run.trace.source(file))
        for function, node in nodes_of(run.trace, file):
            if not isinstance(node, ast.Call) or called_name(node) not in {
                "Embedding",
                "EmbeddingBag",
            }:
                continue
            words = {word.arg: word.value for word in node.keywords}
            row = words.get("padding_idx")
            if not isinstance(row, ast.Constant) or not isinstance(row.value, int):
                continue
            if _PADS.search(text.replace("padding_idx", "")):
                return None
            return StepFinding(
                kind="row of zeros",
                heading=f"row {row.value} of an embedding is never trained: it is for padding",
                frame=line_at(run.trace, file, node.lineno, function),
                paragraph=(
                    f"padding_idx={row.value} keeps this row at zero and gives it no gradient, and"
                    f" nothing else here speaks of padding. If {row.value} is a real id, as of the"
                    " first category, it is never learnt: leave padding_idx out, or number what is"
                    " real from 1 on. If the data is padded with it, all is well."
                ),
            )
    return None


def _mean(method: ast.FunctionDef) -> ast.Call | None:
    """A mean over dimension 1 in a method that multiplies by no mask and asks for no length."""
    nodes = list(ast.walk(method))
    if any(isinstance(each, ast.Attribute | ast.Name) and _is_mask(each) for each in nodes):
        return None
    for node in nodes:
        match node:
            case (
                ast.Call(args=[ast.Constant(value=1)])
                | ast.Call(keywords=[ast.keyword(arg="dim", value=ast.Constant(value=1))])
            ) if called_name(node) == "mean":
                return node
    return None


def _is_mask(node: ast.Attribute | ast.Name) -> bool:
    """Whether something is called a mask or lengths."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    return "mask" in name.lower() or "len" in name.lower()
