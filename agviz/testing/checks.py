"""What a test can demand of the backward passes that were recorded of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from agviz.analysis.explanation import explain
from agviz.analysis.measures import number
from agviz.analysis.place import described
from agviz.analysis.why import why
from agviz.words.labels import with_origin
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from types import EllipsisType

    from torch.nn import Module

    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

Wanted: TypeAlias = "Sequence[str | Collection[str] | EllipsisType]"
"""Names of nodes in order; a set means nodes in any order, ``...`` for any nodes."""
_KINDS = ("nan", "inf")
_MOST = 5


def not_finite(trace: Trace, kinds: Collection[str] = _KINDS) -> str:
    """What is wrong where non-finite gradients reached a parameter or a result of grad.

    Args:
        trace: the recording.
        kinds: ``nan`` and ``inf``: which of them must be in such a backward pass.

    Returns:
        The heading of what ``agviz explain`` says, and the line; empty where nothing is wrong.

    Raises:
        agviz.errors.AgvizError: the values of gradients were not recorded.
    """
    for task in trace.graph_tasks:
        found = explain(trace, task.id) if task.parent < 0 else None
        if found is None or found.is_harmless:
            continue
        rows = [row for each in trace.family(task.id) for row in trace.health(each)]
        seen = {"nan": any(row.nan for row in rows)}
        seen["inf"] = any(row.posinf or row.neginf for row in rows)
        if any(seen[kind] for kind in kinds):
            line = f", at {found.line}" if found.line else ""
            return f"a gradient is not finite: {found.heading}{line}"
    return ""


def too_large(trace: Trace, max_norm: float) -> str:
    """The first gradient whose norm is larger than ``max_norm``, in words; empty: there is none."""
    for row in trace.health():
        if row.norm is not None and row.norm > max_norm:
            node = described(trace.node(row.graph_task, row.node))
            return (
                f"a gradient at {node} of backward pass {row.graph_task} has norm"
                f" {number(row.norm)}, more than max_norm={max_norm:g}"
            )
    return ""


def out_of_order(trace: Trace, wanted: Wanted, graph_task: int | None = None) -> str:
    """How the nodes ran, where that is not as ``wanted``; empty where it is.

    Args:
        trace: the recording.
        wanted: all nodes in order: short names (``MulBackward0``), parameters or modules.
        graph_task: the backward pass; None: the last that is not inside another.
    """
    outermost = [task.id for task in trace.graph_tasks if task.parent < 0]
    task = outermost[-1] if graph_task is None else graph_task
    nodes = [trace.node(task, each.node) for each in trace.executions(task)]
    if _matches(nodes, list(wanted)):
        return ""
    ran = ", ".join(with_origin(node.short_name, node.parameter) for node in nodes)
    return f"the nodes of backward pass {task} ran in another order: {ran}"


def _matches(nodes: list[NodeRow], wanted: list[str | Collection[str] | EllipsisType]) -> bool:
    if not wanted:
        return not nodes
    first, *rest = wanted
    if first is ...:
        return any(_matches(nodes[skipped:], rest) for skipped in range(len(nodes) + 1))
    if isinstance(first, str):
        return bool(nodes) and first in _names(nodes[0]) and _matches(nodes[1:], rest)
    names = list(first)
    return _is_assigned(nodes[: len(names)], names) and _matches(nodes[len(names) :], rest)


def _is_assigned(nodes: list[NodeRow], names: list[str]) -> bool:
    """Whether every name can be given to another node."""
    if not names:
        return not nodes
    return any(
        name in _names(nodes[0]) and _is_assigned(nodes[1:], names[:place] + names[place + 1 :])
        for place, name in enumerate(names)
        if nodes
    )


def _names(node: NodeRow) -> Iterator[str]:
    yield node.short_name
    yield node.name
    yield from filter(None, (node.parameter, node.module))


def unreached(trace: Trace, model: Module) -> str:
    """The parameters of ``model`` that require a gradient and got none, or zeros; empty: none.

    Those that the trace does not know by name are judged by their ``.grad``.
    """
    rows = {row.parameter: row for row in why(trace)}
    said = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        row = rows.get(name)
        if row is not None:
            if row.gradient in {"none", "zero"}:
                said.append(row.sentence)
        elif parameter.grad is None:
            said.append(f"{name} has no gradient (None).")
        elif not parameter.grad.any():
            said.append(f"{name} has a gradient of zeros.")
    if not said:
        return ""
    more = [f"and {len(said) - _MOST} more"] if len(said) > _MOST else []
    return "\n".join(
        [f"backward did not reach {plural(len(said), 'parameter')}:", *said[:_MOST], *more]
    )
