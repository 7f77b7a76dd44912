"""The modules of a program as a tree, with what happened in a backward pass in each of them.

A node belongs to the module whose forward made it, a leaf to the module that owns its parameter.
What is summed up (nodes, times) counts for all modules around, too; of norms of what nodes put out
the largest counts; the gradients of a module's parameters have one norm together, as
``clip_grad_norm_`` has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agviz.analysis.pass_reading import ByModule, PassReading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.pass_reading import NodeFigures
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ParameterRow
    from agviz.traces.run_facts import ModuleCall

_FEWEST_EQUAL: Final = 3
"""Siblings that are a run."""


@dataclass(eq=False)
class ModuleFigures:
    """A module, or a parameter of it, and what happened in it and everything in it."""

    path: str
    """As the program has it; of a parameter its name; empty: what is outside of modules."""
    name: str
    """The last part of it."""
    is_parameter: bool = False
    children: list[ModuleFigures] = field(default_factory=list)
    """Parameters first, then modules in the order in which the forward called them."""
    nodes: int = 0
    own_nodes: int = 0
    """Without those of modules in it."""
    time_ns: int = 0
    own_time_ns: int = 0
    forward_ns: int | None = None
    """None: not known: it was not called itself, nor was anything in it."""
    own_forward_ns: int | None = None
    norm: float | None = None
    """The largest of what its nodes put out, of gradients that are finite."""
    gradient: float | None = None
    """Norm of the gradients of its parameters after the pass; NaN: one is not finite; None: there
    is none, or it was not measured."""
    parameters: int = 0
    """How many ask for a gradient."""
    missing: int | None = 0
    """How many of them got none; None: that can't be told."""
    node: int | None = None
    """The first that ran; where none did, the first."""
    order: int | None = None
    """Its number among all executions; None: it has not run."""
    first_bad: tuple[int, int] | None = None
    """``seq`` of the first finding of something that is not finite, and the node."""

    def walk(self) -> Iterator[ModuleFigures]:
        """It, and all that is in it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def shape(self) -> tuple[object, ...]:
        """The same for modules that consist of the same."""
        return tuple((child.name, child.shape) for child in self.children)


@dataclass(frozen=True, eq=False)
class ModuleTree:
    """What is known of a pass by now."""

    event_count: int
    """Events of the pass when it was read."""
    top: tuple[ModuleFigures, ...]
    """Outermost modules; at the end, if there is anything, what is outside of modules."""
    has_modules: bool
    """Whether the module of any node or parameter is known."""


def equal_runs(children: Sequence[ModuleFigures]) -> Iterator[Sequence[ModuleFigures]]:
    """Children, those together that follow each other, have numbers for names and are alike."""
    start = 0
    while start < len(children):
        end, first = start + 1, children[start]
        if first.name.isdecimal() and first.children:
            shape = first.shape
            while (
                end < len(children)
                and children[end].name.isdecimal()
                and children[end].shape == shape
            ):
                end += 1
        if end - start < _FEWEST_EQUAL:
            end = start + 1
        yield children[start:end]
        start = end


class ModuleReading:
    """Reads a pass piece by piece, to make its tree.

    Args:
        trace: which holds it.
        graph_task: the pass.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int) -> None:
        self._graph_task = graph_task
        self._figures: PassReading[str] = PassReading(trace, graph_task, ByModule())
        self._gradients: dict[str, float] = {}
        """Norms, by parameter."""
        self._read_until = self._figures.until

    def is_of(self, trace: Trace) -> bool:
        """Whether the pass has as many nodes now as when the reading began."""
        return self._figures.is_of(trace)

    def read_on(self, trace: Trace, seconds: float) -> bool:
        """Read for about so long; return whether there is no more for now.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        is_read = self._figures.read_on(trace, seconds)
        task = trace.graph_task(self._graph_task)
        until = self._figures.until
        if task.end_seq is not None:
            until = min(until, task.end_seq)
        family = set(trace.family(self._graph_task))
        for leaf in trace.leaf_norms(self._read_until + 1, until + 1):
            if leaf.parameter and leaf.graph_task in family:
                self._gradients[leaf.parameter] = leaf.norm
        self._read_until = max(self._read_until, until)
        return is_read

    def shown(self, trace: Trace, event_count: int) -> ModuleTree:
        """The tree of what is known by now.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        calls = trace.module_calls(self._graph_task)
        parameters: dict[str, ParameterRow] = {}
        places: dict[str, list[tuple[int, int]]] = {}
        for number in trace.family(self._graph_task):
            for row in trace.parameters(number):
                parameters.setdefault(row.name, row)
                if row.node is not None:
                    places.setdefault(row.name, []).append((number, row.node))
        builder = _Builder(calls)
        builder.add_calls(calls)
        for name, row in parameters.items():
            its = builder.add_parameter(row)
            its.gradient = self._gradients.get(name)
            reached = places.get(name, [])
            its.node = next((node for number, node in reached if number == self._graph_task), None)
            if row.requires_grad and its.gradient is None:
                its.missing = self._missing(trace, reached)
        builder.add_figures(self._figures.figures())
        return ModuleTree(event_count, builder.finish(), builder.has_modules)

    def _missing(self, trace: Trace, reached: Sequence[tuple[int, int]]) -> int | None:
        """Whether a parameter, to which no gradient was measured, got none; None: not known.

        Args:
            trace: the file.
            reached: graph tasks and nodes that accumulate into it.
        """
        if trace.graph_task(self._graph_task).end_seq is None:
            return None
        if not reached:
            return 1
        if trace.meta.values == "none":
            return None
        is_unmeasured = any(
            row.unknown
            for number, node in reached
            for edge in trace.edges_into(number, node)
            for row in trace.health(number, edge.producer, edge.output)
        )
        return None if is_unmeasured else 1


class _Builder:
    """Puts modules, parameters and figures together."""

    def __init__(self, calls: Sequence[ModuleCall]) -> None:
        self.found: dict[str, ModuleFigures] = {}
        """By path."""
        self.has_modules = False
        self._top: list[ModuleFigures] = []
        self._rest = ModuleFigures("", "(outside of modules)")
        self._root_of = _roots(calls)
        roots = {root for first, root in self._root_of.items() if first != root}
        self._root = roots.pop() if len(roots) == 1 else ""
        """Whose modules do not have its name; empty: there are several, or it is not known."""

    def add_calls(self, calls: Sequence[ModuleCall]) -> None:
        """Take over how long the forward was in each module."""
        around: list[ModuleCall] = []
        for call in calls:
            del around[call.depth :]
            its = self._module(call.module)
            if call.end_ns is not None:
                took = call.end_ns - call.begin_ns
                if all(other.module != call.module for other in around):
                    its.forward_ns = (its.forward_ns or 0) + took
                its.own_forward_ns = (its.own_forward_ns or 0) + took
                if around and around[-1].end_ns is not None:
                    outer = self._module(around[-1].module)
                    outer.own_forward_ns = (outer.own_forward_ns or 0) - took
            around.append(call)

    def add_parameter(self, row: ParameterRow) -> ModuleFigures:
        """The line of a parameter."""
        module, _, name = row.name.rpartition(".")
        owner = self._module(module) if module else self._owner_of_rootless()
        its = ModuleFigures(row.name, name, is_parameter=True)
        its.parameters = int(row.requires_grad)
        place = sum(child.is_parameter for child in owner.children)
        owner.children.insert(place, its)
        self.has_modules = True
        return its

    def add_figures(self, figures: Mapping[str, NodeFigures]) -> None:
        """Take over what happened in backward."""
        for path, its in figures.items():
            module = self._module(path) if path else self._rest
            module.own_nodes, module.own_time_ns = len(its.nodes), its.time_ns
            module.norm, module.first_bad, module.order = its.norm, its.first_bad, its.order
            module.node = its.nodes[0] if its.nodes else None
            self.has_modules |= bool(path)

    def finish(self) -> tuple[ModuleFigures, ...]:
        """The outermost modules, with what is in them counted."""
        top = [*self._top, *([self._rest] if self._rest.own_nodes else [])]
        for module in top:
            _sum_up(module)
        return tuple(top)

    def _owner_of_rootless(self) -> ModuleFigures:
        """Where a parameter of the outermost module itself belongs."""
        return self._module(self._root) if self._root else self._rest

    def _module(self, path: str) -> ModuleFigures:
        known = self.found.get(path)
        if known is not None:
            return known
        above, _, name = path.rpartition(".")
        its = self.found[path] = ModuleFigures(path, name)
        root = self._root_of.get(path, self._root)
        if above:
            self._module(above).children.append(its)
        elif root and root != path:
            self._module(root).children.append(its)
        else:
            self._top.append(its)
        return its


def _roots(calls: Sequence[ModuleCall]) -> dict[str, str]:
    """By the first part of a path: the outermost module that was called.

    Where there is only one, the modules in it do not have its name.
    """
    found: dict[str, str] = {}
    root = ""
    for call in calls:
        first = call.module.partition(".")[0]
        if call.depth == 0:
            root = call.module
            found.setdefault(first, root)
        elif root and first != root.partition(".")[0]:
            found.setdefault(first, root)
    return found


def _sum_up(module: ModuleFigures) -> None:
    """Count what is in a module."""
    module.nodes, module.time_ns = module.own_nodes, module.own_time_ns
    squares, is_known = 0.0, False
    forward: int | None = None
    if module.is_parameter:
        return
    for child in module.children:
        _sum_up(child)
        module.nodes += child.nodes
        module.time_ns += child.time_ns
        module.parameters += child.parameters
        missing = child.missing
        module.missing = (
            None if missing is None or module.missing is None else module.missing + missing
        )
        if child.forward_ns is not None:
            forward = (forward or 0) + child.forward_ns
        if child.norm is not None:
            module.norm = child.norm if module.norm is None else max(module.norm, child.norm)
        if child.gradient is not None:
            squares += child.gradient * child.gradient
            is_known = True
        if child.first_bad is not None:
            module.first_bad = min(module.first_bad or child.first_bad, child.first_bad)
        if child.order is not None and (module.order is None or child.order < module.order):
            module.order, module.node = child.order, child.node
        elif module.node is None:
            module.node = child.node
    if module.forward_ns is None:
        module.forward_ns = forward
    module.gradient = math.sqrt(squares) if is_known else None
