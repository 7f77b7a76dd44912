"""Where the first backward happened, of two that went through the same nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.memoised import memoised
from agviz.analysis.place import described, place
from agviz.analysis.put_away import kept_on_object, put_away, put_away_elsewhere
from agviz.analysis.two_graphs import (
    called_at,
    carried_line,
    earlier_passes,
    entry_before,
    is_made_again,
    meeting,
    shared_nodes,
)
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.memoised import Memoised
    from agviz.analysis.put_away import PutAway
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow


_LBFGS: Final = "torch/optim/lbfgs.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardTwice:
    """A node's saved tensors were needed, and an earlier graph task had released them."""

    graph_task: int
    """That failed."""
    node: NodeRow
    """Whose saved tensors were missing."""
    call: Frame | None
    """The line that called the backward that failed; None where it was not recorded."""
    first: int | None
    """The graph task that released them; None: none that is in the trace."""
    first_call: Frame | None
    """The line that called it."""
    shared: int
    """Number of nodes that are in the graphs of both."""
    nodes: int
    """Number of nodes of the graph task that failed."""
    entry: tuple[NodeRow, NodeRow] | None
    """The node through which it came into the shared graph, and the first that it met there; None
    where the whole graph is shared, or where it is not known."""

    is_carried: bool = True
    """Whether an optimizer stepped between the two, or the line that made what they share ran once
    more; if not, both may be of one step."""
    kept: PutAway | None = None
    """Where the program keeps what an earlier step left; None: its text does not show one line."""
    memoised: Memoised | None = None
    """What keeps the result of a function; None: nothing that is known to."""
    closure: str = ""
    """The function that LBFGS calls, where both passes were called there; empty: they were not."""

    @property
    def frame(self) -> Frame | None:
        """The line to look at.

        The line that keeps what an earlier step or call left, where that is seen; else what of an
        earlier step the graph leads into, where one line calls backward in each; else the first
        call of backward; else where the node was made.
        """
        if self.memoised is not None:
            return self.memoised.frame
        if self.kept is not None:
            return self.kept.frame
        return self._carried or self.first_call or self.node.frame

    @property
    def _carried(self) -> Frame | None:
        """The line that made what an earlier step left, in the function that calls backward."""
        if self.entry is None or self.call is None or self.call != self.first_call:
            return None
        return carried_line(self.entry, self.call)

    @property
    def heading(self) -> str:
        """What happened, and where."""
        return f"backward through the graph a second time, in {place(self.node)}"

    @property
    def paragraph(self) -> str:
        """Who released what, and what to do."""
        return " ".join([*self._what(), *([] if self.closure else [self._remedy()])])

    def _what(self) -> Iterator[str]:
        yield (
            f"Backward pass {self.graph_task}{_at(self.call)} needed what"
            f" {described(self.node)} had saved."
        )
        if self.first is None:
            yield "The backward pass that released it is not in this trace."
            return
        is_same = self.call is not None and self.call == self.first_call
        called = ", called by the same line," if is_same else _at(self.first_call)
        yield f"Backward pass {self.first}{called} had released it."
        if self.closure:
            yield (
                f"LBFGS calls {self.closure}() several times in a step, to look at other weights:"
                " what is computed outside of it is of the old ones, and its graph is gone after"
                f" the first call. Compute it anew inside of {self.closure}()."
            )
            return
        if self.entry is not None and self.memoised is None:
            yield (
                f"{plural(self.shared, 'node')} of {self.nodes:,} are in both graphs: they come in"
                f" where {meeting(self.entry, self._carried)}."
            )

    def _remedy(self) -> str:
        if self.memoised is not None:
            return self.memoised.remedy
        is_same = self.call is not None and self.call == self.first_call
        if self.entry is None and is_same:
            return (
                "The same graph is gone through again: compute the forward anew before each call"
                " (in the loop, in the closure), or pass retain_graph=True where one graph is meant"
                " to serve several calls."
            )
        if self.entry is None:
            return "Call backward once, or pass retain_graph=True to all calls but the last."
        if self.kept is not None:
            return self.kept.remedy
        if is_same and self.is_carried:
            return (
                "Carry it over from step to step without its graph, by detach(), or compute it anew"
                " in each step; retain_graph=True is for one graph that is meant to serve several"
                " backward passes."
            )
        anew = "compute it anew for each, or " if is_same else ""
        return (
            "Add the losses and call backward once, or pass retain_graph=True to all calls but the"
            f" last; if the first is not meant to be part of the second, {anew}detach() what they"
            " share."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        node = f"node {self.node.index} ({self.node.name})"
        yield f"failed: {node} of backward pass {self.graph_task}"
        for frame in self.node.stack:
            if not frame.hidden:
                yield f"created at {frame}"
        if self.first is not None:
            yield f"released by backward pass {self.first}{_at(self.first_call)}"
            yield f"{self.shared:,} of {plural(self.nodes, 'node')} are in both graphs"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        entry = self.entry
        return {
            "kind": "second_time",
            "graph_task": self.graph_task,
            "node": self.node.index,
            "name": self.node.short_name,
            "line": self.node.line,
            "called_at": _text(self.call),
            "released_by": self.first,
            "first_called_at": _text(self.first_call),
            "nodes": self.nodes,
            "shared_nodes": self.shared,
            "entry": None if entry is None else [node.index for node in entry],
        }


def backward_twice(trace: Trace, graph_task: int, node: NodeRow) -> BackwardTwice:
    """Where the saved tensors of a node were released.

    Args:
        trace: the trace.
        graph_task: that failed for want of them.
        node: its node that failed.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    first = next(iter(earlier_passes(trace, graph_task, node, keep_graph=False)), None)
    shared: set[int] = set() if first is None else shared_nodes(trace, graph_task, first)
    entry = entry_before(trace, graph_task, node.index, shared)
    if entry is not None and entry[0].short_name == "GraphRoot":
        entry = None  # it begins where the first pass began
    found = BackwardTwice(
        graph_task=graph_task,
        node=node,
        call=called_at(trace, graph_task),
        first=first,
        first_call=None if first is None else called_at(trace, first),
        shared=len(shared),
        nodes=trace.graph_task(graph_task).nodes,
        entry=entry,
        closure="" if first is None else _closure(trace, graph_task, first),
    )
    if entry is None or first is None or found.closure:
        return found
    memo = memoised(trace, entry[1], found.call)
    if memo is not None:
        return replace(found, memoised=memo)
    made, used, inside = found._carried, visible(entry[0].stack), visible(entry[1].stack)
    if made is None or used is None:
        return found
    kept = put_away(trace.source(made.file), made, used)
    if kept is None:
        kept = put_away_elsewhere(trace, entry[1].stack, used)
    if kept is None and inside is not None:
        kept = kept_on_object(trace.source(inside.file), inside)
    if kept is not None:
        return replace(found, kept=kept)
    steps = {trace.optimizer_steps_before(trace.graph_tasks.root(n)) for n in (first, graph_task)}
    is_carried = len(steps) > 1 or is_made_again(trace, graph_task, entry, shared)
    return replace(found, is_carried=is_carried)


def _closure(trace: Trace, graph_task: int, first: int) -> str:
    """The function that called two passes, and that LBFGS called; empty: it was another."""
    names = set()
    for each in (first, graph_task):
        files = [frame.file for frame in trace.call_site(each)]
        called = called_at(trace, each)
        is_closure = called is not None and any(file.endswith(_LBFGS) for file in files)
        names.add(called.function if called is not None and is_closure else "")
    return names.pop() if len(names) == 1 else ""


def _at(call: Frame | None) -> str:
    return "" if call is None else f", called at {call},"


def _text(frame: Frame | None) -> str | None:
    return None if frame is None else str(frame)
