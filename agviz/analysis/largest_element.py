"""Where the largest element comes from of what a node put out: ``agviz explain --element``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agviz.analysis.measures import number
from agviz.analysis.place import backward_pass, place
from agviz.analysis.places import place_of
from agviz.analysis.source import source_line
from agviz.errors import AgvizError
from agviz.words.safe import clean
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from agviz.analysis.places import ElementPlace
    from agviz.traces.elements import LocatedElements
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestElement:
    """The answer; ``str()`` is how it is said."""

    backward_pass: str
    """``backward pass 30 (the 31st of 40)``."""
    node: NodeRow
    output: int
    value: float
    elements: ElementPlace
    is_of_parameter: bool
    """Whether it is of the gradient of a parameter, to which all samples add."""
    health: HealthRow | None
    """Of the whole gradient."""
    source: str
    """The text of the line that made the node; empty where it is not known."""

    @property
    def heading(self) -> str:
        """The element, the node and the pass."""
        return f"{number(self.value)}, put out by {place(self.node)}, in {self.backward_pass}"

    @property
    def line(self) -> str | None:
        """``model.py:42 in forward``; None where it was not recorded."""
        return self.node.line

    @property
    def paragraph(self) -> str:
        """Which element it is, and what stands beside it."""
        index = self.elements.index or "the only place"
        said = f"It is the largest element by magnitude, at {index} of"
        said += f" {write_shape(self.elements.shape)}."
        if self.health is not None and self.health.norm:
            said += f" The norm of the whole gradient is {number(self.health.norm)}."
        if self.is_of_parameter:
            said += " It is of a parameter's gradient, to which all samples add."
        return f"{said} {self.elements.sentence}" if self.elements.sample else said

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "answer": str(self),
            "backward_pass": self.backward_pass,
            "graph_task": self.node.graph_task,
            "node": self.node.index,
            "name": self.node.short_name,
            "module": self.node.module,
            "output": self.output,
            "line": self.line,
            "source": self.source or None,
            "value": self.value,
            "norm": None if self.health is None else self.health.norm,
            "elements": self.elements.as_json(),
        }

    def __str__(self) -> str:
        where = [self.line] if self.line else []
        where += [f"    {self.source}"] if self.source else []
        return "\n".join([self.heading, *where, self.paragraph])


def largest_element(trace: Trace, wanted: str, graph_task: int | None = None) -> LargestElement:
    """The largest element of what the nodes of a name put out; parameters' come last.

    Args:
        trace: the recording.
        wanted: number of a node in the order in which those of its pass ran; or a name, module or
            parameter.
        graph_task: of this backward pass; None: of all.

    Raises:
        agviz.errors.AgvizError: none was recorded of such a node.
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    tasks = [task.id for task in trace.graph_tasks]
    if graph_task is not None:
        tasks = trace.family(trace.graph_task(graph_task).id)
    kept = [each for task in tasks for each in trace.located(task) if each.value is not None]
    kept.sort(key=lambda each: (_is_of_parameter(each), -abs(each.value or 0.0)))
    rows_of = ((trace.node(each.graph_task, each.node), each) for each in kept)
    found = next((each for each in rows_of if each[0].is_named(wanted)), None)
    if found is None:
        raise AgvizError(_not_kept(trace, wanted))
    row, located = found
    rows = trace.health(row.graph_task, row.index)
    return LargestElement(
        backward_pass=backward_pass(trace, row.graph_task),
        node=row,
        output=located.slot,
        value=located.value or 0.0,
        elements=place_of(located),
        is_of_parameter=_is_of_parameter(located),
        health=next((r for r in rows if (r.role, r.slot) == ("output", located.slot)), None),
        source="" if row.frame is None else source_line(row.frame, trace.path),
    )


def _is_of_parameter(located: LocatedElements) -> bool:
    found = {note.what for note in located.notes[2:]} - {"undecided", "elsewhere"}
    return found == {"parameter"}


def _not_kept(trace: Trace, wanted: str) -> str:
    meta = trace.meta
    program = shlex.split(meta.script) if meta.script.startswith("-m ") else [meta.script]
    name = "." if wanted.isdecimal() else re.escape(wanted)
    again = shlex.join(["agviz", "run", "--elements", name, *program, *meta.argv])
    return (
        f"{clean(trace.path)} does not say where the elements of a node {clean(wanted)!r} come"
        f" from; record the program again: {clean(again)}"
    )
