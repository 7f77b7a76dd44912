"""What is not what a program takes it for: tied through .data, flagged, straight-through."""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, user_files
from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame

_SETS_DATA: Final = "Tensor.data.__set__"
_MOST_OPS: Final = 20_000
_ADDS: Final = frozenset({"__add__", "__radd__", "add"})
_SUBTRACTS: Final = frozenset({"__sub__", "sub", "subtract"})


def flagged(run: RunSteps) -> Iterator[StepFinding]:
    """Modules whose ``requires_grad`` was set, which freezes and unfreezes nothing."""
    beside = run.optimizers[0].made if run.optimizers else None
    for flag in (True, False):
        names = [name for name, value in run.trace.module_flags() if value is flag]
        lines = _sets_flag(run.trace, beside, flag) if beside is not None and names else []
        if not lines:
            continue
        stay = "frozen, and get no gradient" if flag else "trained all the same"
        yield StepFinding(
            kind="flagged",
            heading=f"requires_grad = {flag} was set on {listed(names)}, where it has no effect",
            frame=lines[0] if len(lines) == 1 else None,
            paragraph=(
                "On a module the assignment makes a new attribute that torch does not look at: the"
                f" parameters inside are {stay}. Call requires_grad_({flag}) on the module, or set"
                " requires_grad of each of its parameters."
            ),
        )


def sharing(run: RunSteps) -> Iterator[StepFinding]:
    """Different parameters in one memory: each gets its own gradient, and each is stepped."""
    held = {row.name for each in run.optimizers for row in each.held if row.had_grad}
    shared: dict[tuple[int, str], dict[int, ForwardTensorRow]] = {}
    last = run.passes[-1].id if held and run.passes else -1
    for op in run.trace.forward_ops(last, limit=_MOST_OPS) if last >= 0 else ():
        for row in op.inputs:
            if row.parameter in held and row.memory >= 0 and row.is_leaf and row.requires_grad:
                shared.setdefault((row.memory, str(row.shape)), {})[row.tensor] = row
    for rows in shared.values():
        if len(rows) < 2 or not _is_one(rows.values()):
            continue
        tied = [
            op
            for op in run.trace.forward_ops(limit=_MOST_OPS)
            if op.name == _SETS_DATA and op.inputs and op.inputs[0].tensor in rows
        ]
        names = [row.parameter for row in rows.values()]
        if tied and rows[tied[-1].inputs[0].tensor].parameter == names[-1]:
            names.reverse()
        through = "They are tied through .data: torch" if tied else "Torch"
        yield StepFinding(
            kind="sharing",
            heading=f"{listed(names)} are {len(names)} parameters that share one memory",
            frame=tied[-1].frame if tied else None,
            paragraph=(
                f"{through} knows them as separate parameters. Each gets only its own part of the"
                " gradient, and the optimizer moves the same numbers once for each, with moments"
                f" of its own. Assign the parameter itself: {names[0]} = {names[1]}."
            ),
        )


def swapped(run: RunSteps) -> Iterator[StepFinding]:
    """Straight-through estimators that give the value of what should have got the gradient."""
    made: dict[int, ForwardOpRow] = {}
    for op in itertools.chain(
        *(ops_of_pass(run.trace, one.id) for one in last_passes(run.trace, 2))
    ):
        made |= dict.fromkeys((row.tensor for row in op.outputs), op)
        fixed, *live = sorted(op.inputs, key=lambda row: row.requires_grad) or (None,)
        if fixed is None or fixed.requires_grad or len(live) != 1 or last_name(op) not in _ADDS:
            continue
        less = made.get(fixed.tensor)
        if less is not None and last_name(less) == "detach":
            less = made.get(less.inputs[0].tensor)
        if less is None or last_name(less) not in _SUBTRACTS or not less.inputs[0].requires_grad:
            continue
        value, chosen = less.inputs[0].tensor, live[0].tensor
        is_chosen = value in _behind(made, chosen) - _behind(made, chosen, by_gradient=True)
        if less.inputs[-1].tensor == chosen and is_chosen:
            yield StepFinding(
                kind="swapped",
                heading="a straight-through estimator is the wrong way round",
                frame=op.frame,
                paragraph=(
                    "q + (z - q).detach() has the value of z and gives q the gradient. Here q was"
                    " chosen by z, by an index or under no_grad, so that no gradient goes on to z:"
                    " what made z gets none, though what follows is given its value. Write"
                    " z + (q - z).detach(): the value of q, and the gradient to z."
                ),
            )
            return


def undetached(run: RunSteps) -> Iterator[StepFinding]:
    """Sums ``z + (q - z)`` whose difference has a graph, and so takes away what z gets."""
    last = run.passes[-1] if run.passes else None
    if last is None or last.nodes > _MOST_OPS:
        return
    names = [base_name(label.name) for label in run.trace.node_labels(last.id, 0, last.nodes)]
    if not {"Add", "Sub"} <= set(names):
        return
    ways: dict[int, dict[int, tuple[int, int]]] = {}
    for edge in run.trace.edges(last.id):
        ways.setdefault(edge.producer, {})[edge.output] = edge.consumer, edge.slot
    flow = GradientFlow(run.trace, last.id)
    for index, name in enumerate(names):
        parts = ways.get(index, {}) if name == "Add" else {}
        for output, (difference, _) in parts.items():
            taken = ways.get(difference, {}).get(1) if names[difference] == "Sub" else None
            if taken is None or len(parts) != 2 or parts[1 - output] != taken:
                continue
            if not _is_as_large(flow, index, 1 - output, difference):
                continue
            heading = "z + (q.detach() - z) gives z no gradient: detach the whole difference"
            why = (
                "q has no graph there, but z has: the two gradients that z gets cancel, and nothing"
                " before z is trained by it."
            )
            if len(ways[difference]) > 1:
                heading = "z + (q - z) without detach is q: z gets no gradient through it"
                why = (
                    "both have a graph: the two gradients that z gets cancel, and all of it goes to"
                    f" q, of {run.trace.node(last.id, ways[difference][0][0]).short_name}."
                )
            yield StepFinding(
                kind="undetached",
                heading=heading,
                frame=run.trace.node(last.id, index).frame,
                paragraph=(
                    f"What this line adds to z is a difference from which z is taken, and {why} For"
                    " a straight-through estimator write z + (q - z).detach(): the value of q, and"
                    " the gradient to z."
                ),
            )
            return


def _is_as_large(flow: GradientFlow, index: int, output: int, difference: int) -> bool:
    """Whether z gets as much through the difference: not where ``add`` has an ``alpha``."""
    both = flow.output(index, output)[1], flow.output(difference, 1)[1]
    norms = [health.norm for health in both if health is not None and health.norm]
    return len(norms) == 2 and math.isclose(*norms, rel_tol=1e-4)


def without_statistics(run: RunSteps) -> Iterator[StepFinding]:
    """A model that averages the parameters of another one, and not its running statistics."""
    names = run.trace.averages_without_statistics()
    if not names or not run.optimizers:
        return
    lines = calls(run.trace, run.optimizers[0].stepped, _pairs_parameters)
    yield StepFinding(
        kind="no statistics",
        heading=f"an average of weights has no running statistics ({listed(names)})",
        frame=lines[0] if len({line.line for line in lines}) == 1 else None,
        paragraph=(
            "Their weights were written many times, by no optimizer; running_mean is 0, as it was"
            " made, and no batch was counted. In eval() they normalise by a mean of 0 and a"
            " variance of 1, to which averaged weights don't fit. Parameters are averaged and"
            " buffers are not: copy these, too, or use torch.optim.swa_utils (AveragedModel with"
            " use_buffers, update_bn)."
        ),
    )


def counting_nothing(run: RunSteps) -> Iterator[StepFinding]:
    """Batch norms whose text gives them a momentum of 0, by which no batch counts."""
    for file in user_files(run.trace) if run.optimizers else ():
        for function, each in nodes_of(run.trace, file):
            if not isinstance(each, ast.Call) or not called_name(each).startswith("BatchNorm"):
                continue
            words = {word.arg: word.value for word in each.keywords}
            given = words.get("momentum")
            if function not in run.running:
                continue
            if not isinstance(given, ast.Constant) or given.value != 0 or given.value is None:
                continue
            yield StepFinding(
                kind="no statistics",
                heading="a batch norm with momentum=0 keeps no running statistics",
                frame=line_at(run.trace, file, each.lineno, function),
                paragraph=(
                    "Its momentum is the share of the new batch: with 0, running_mean stays 0 and"
                    " running_var 1, and eval() normalises by these, which the trained weights do"
                    " not fit. Leave it out (0.1), or give None for the average of all batches;"
                    " what other libraries call momentum=0.99 is 0.01 here."
                ),
            )
            return


def _pairs_parameters(call: ast.Call, name: str) -> bool:
    """Whether a call goes through the parameters of two modules side by side."""
    texts = [ast.unparse(each) for each in call.args]
    return name == "zip" and len(texts) > 1 and all(text.endswith("arameters()") for text in texts)


def _behind(made: dict[int, ForwardOpRow], tensor: int, *, by_gradient: bool = False) -> set[int]:
    """What a tensor was computed of, or only that to which its gradient flows on."""
    found, waiting = set[int](), [tensor]
    while waiting:
        op = made.get(waiting.pop())
        given = {
            row.tensor for row in (op.inputs if op else ()) if row.requires_grad or not by_gradient
        }
        waiting += given - found
        found |= given
    return found


def _is_one(rows: Iterable[ForwardTensorRow]) -> bool:
    """Whether tensors of one memory hold the same numbers: they are no parts of a larger one."""
    measured = {row.health[-4:] for row in rows if row.health is not None}
    return len(measured) == 1 and all(least != most for least, most, *_ in measured)


def _sets_flag(trace: Trace, beside: Frame, value: bool) -> list[Frame]:
    """The lines of the file of a frame that set ``requires_grad`` of something to a value."""
    return [
        line_at(trace, beside.file, node.lineno, function)
        for function, node in nodes_of(trace, beside.file)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is value
        for each in node.targets
        if isinstance(each, ast.Attribute) and each.attr == "requires_grad"
        if ast.unparse(each.value) != "self"
    ]
