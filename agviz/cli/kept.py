"""The nodes that ``agviz run --repro`` kept, as the verbs find and write them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.repro.files import write_files
from agviz.repro.isolated_node import decode
from agviz.words.safe import clean

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.repro.files import ReproFiles
    from agviz.repro.isolated_node import IsolatedNode
    from agviz.repro.safetensors import StoredTensor
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_MOST_OFFERED: Final = 6


class KeptNode(NamedTuple):
    """A node of a recording, and what was kept of it."""

    row: NodeRow
    node: IsolatedNode
    tensors: dict[str, StoredTensor]

    @property
    def title(self) -> str:
        """``SqrtBackward0, number 3 to run in backward pass 30``."""
        return _title(self.row)


def kept_rows(trace: Trace, graph_task: int | None = None) -> list[NodeRow]:
    """The nodes that were kept, in the order in which they ran; of one graph task or of all."""
    found = [
        trace.node(task, node)
        for task, node in trace.isolated()
        if graph_task is None or task == graph_task
    ]
    return sorted(found, key=lambda row: (row.graph_task, row.order or 0, row.index))


def find_kept(trace: Trace, wanted: str | None, graph_task: int | None) -> KeptNode:
    """The node that a user names.

    Args:
        trace: the recording.
        wanted: its number in the order in which the nodes of the pass ran, or its name, module or
            parameter, of which the first is taken; None: the first that can be run alone.
        graph_task: its backward pass; None: the first in which it was kept.

    Raises:
        agviz.errors.AgvizError: there is none, or it was not kept.
    """
    if graph_task is not None:
        trace.graph_task(graph_task)
    rows = kept_rows(trace, graph_task)
    if wanted is None:
        if not rows:
            raise AgvizError(_nothing_kept(trace, graph_task))
        kept = (_read(trace, row) for row in rows)
        return next((each for each in kept if not each.node.why_not), _read(trace, rows[0]))
    for row in rows:
        if row.is_named(wanted):
            return _read(trace, row)
    raise AgvizError(_not_kept(trace, wanted, graph_task, rows))


def write_kept(trace: Trace, kept: KeptNode, folder: Path) -> ReproFiles:
    """Write its script and its tensors.

    Raises:
        agviz.errors.AgvizError: it can't be run alone, or they can't be written.
    """
    if kept.node.why_not:
        raise AgvizError(f"{kept.title}, can't be run alone: {kept.node.why_not}")
    name = re.sub(r"\W", "", kept.row.short_name, flags=re.ASCII)[:80]
    stem = f"repro-{name}-pass{kept.row.graph_task}-number{kept.row.order}"
    return write_files(kept.node, kept.tensors, folder, stem, about(trace, kept))


def about(trace: Trace, kept: KeptNode) -> list[str]:
    """Where the node comes from, in sentences."""
    facts, node = kept.node.facts, kept.node
    made = f", made at {kept.row.line}" if kept.row.line else ""
    run_by = ", ".join(
        [
            f"torch {facts.get('torch', '')}",
            f"Python {facts.get('python', '')}",
            f"{facts.get('machine', '')} ({facts.get('cpu', '')})",
            *([f"threads: {node.threads}"] if node.threads else []),
            *node.devices,
        ]
    )
    return [
        f"It is {kept.title}{made}, of {trace.meta.script or 'a program'}.",
        f"Recorded with {run_by}.",
        "The tensors beside it hold the gradients that came in (grad_*), what the node saved",
        "(saved_*) or had otherwise (given_*), and what it put out (output_*).",
    ]


def command_to_keep(trace: Trace, name: str, graph_task: int | None = None) -> str:
    """The command that records a program again and keeps nodes of a name, in a graph task."""
    meta = trace.meta
    which = "" if graph_task is None else _steps(trace, graph_task)
    steps = ["--steps", which] if which else []
    program = shlex.split(meta.script) if meta.script.startswith("-m ") else [meta.script]
    return clean(shlex.join(["agviz", "run", "--repro", name, *steps, *program, *meta.argv]))


def _read(trace: Trace, row: NodeRow) -> KeptNode:
    data = trace.isolated_node(row.graph_task, row.index)
    try:
        node, tensors = decode(data)
    except AgvizError as error:
        raise trace.damaged(str(error)) from error
    return KeptNode(row, node, tensors)


def _title(row: NodeRow) -> str:
    return f"{clean(row.short_name)}, number {row.order} to run in backward pass {row.graph_task}"


def _steps(trace: Trace, graph_task: int) -> str:
    """Which call of backward it is, for ``--steps``; empty where not all were recorded."""
    if trace.meta.choice:
        return ""
    tasks = {task.id: task for task in trace.graph_tasks}
    while tasks[graph_task].parent in tasks:  # always an earlier one
        graph_task = tasks[graph_task].parent
    number = trace.passes_before(graph_task)
    return f"{number}:{number + 1}"


def _nothing_kept(trace: Trace, graph_task: int | None) -> str:
    where = clean(trace.path) if graph_task is None else f"graph task {graph_task}"
    return (
        f"{where} holds no node that could be run alone; record the program again:"
        f" {command_to_keep(trace, 'nonfinite')}"
    )


def _not_kept(trace: Trace, wanted: str, graph_task: int | None, rows: list[NodeRow]) -> str:
    tasks = [task.id for task in trace.graph_tasks] if graph_task is None else [graph_task]
    for task in tasks:
        for row in sorted(trace.nodes(task), key=lambda row: row.order or 0):
            if row.is_named(wanted):
                again = command_to_keep(trace, f"^{re.escape(row.name)}$", task)
                return f"{_title(row)}, was not kept; record the program again: {again}"
    offered = list(dict.fromkeys(f"{row.order} {clean(row.short_name)}" for row in rows))
    more = f" (kept: {', '.join(offered[:_MOST_OFFERED])})" if offered else ""
    return f"{clean(trace.path)} has no node {clean(wanted)!r}{more}"
