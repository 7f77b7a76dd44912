"""Folding a graph until few enough things are left to draw.

First what repeats (layers, time steps), then long rows, then modules from the inside out, at last
whatever follows each other in execution. A node that failed, or was the first to produce a
non-finite gradient, stays visible as long as there is room for it. Apart from rows, every fold
takes items that are next to each other in an order in which producers come first; so what is
left never points backwards.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agviz.graph.items import (
    DEEPEST,
    Item,
    ItemKind,
    common_module,
    in_order,
    links_between,
    single_items,
)
from agviz.graph.model import Differs
from agviz.graph.stacks import whole_rows
from agviz.graph.view import DEFAULT_BUDGET, By, FoldMode
from agviz.traces.rows import NodeStatus
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from agviz.graph.items import EdgeBundle
    from agviz.graph.model import Node, TaskGraph

FEWEST_REPEATS = 3
SHORTEST_CHAIN = 3
MOST_REPEAT_FOLDS = 12
REPEATS_NAMED = 4
PERIODS_TRIED = 6
RUN = 4
LEAST_SAVED = 10
"""Items that folding a repetition has to save where the budget does not demand it."""
LINKS_PER_ITEM = 3
"""A picture with more links than this many for each item it may hold is a black blot."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What is left to draw of a graph."""

    items: tuple[Item, ...]
    """Producers before consumers. Every node of the graph is in exactly one."""
    links: tuple[EdgeBundle, ...]
    notes: tuple[str, ...]
    """What was folded, in sentences for the legend; empty where every node is drawn."""


def fold(
    graph: TaskGraph,
    budget: int = DEFAULT_BUDGET,
    what: FoldMode = FoldMode.AUTO,
    by: By = By.MODULE,
) -> Folded:
    """Fold a graph to at most ``budget`` items (at least 1); see :class:`GraphFolding`."""
    return GraphFolding(graph, what, by).to(budget)


class GraphFolding:
    """Folds a graph further and further.

    Args:
        graph: what is folded.
        what: what is folded where no budget demands it, too.
        by: what items are grouped by.
    """

    def __init__(
        self, graph: TaskGraph, what: FoldMode = FoldMode.AUTO, by: By = By.MODULE
    ) -> None:
        self.graph = graph
        self.budget = len(graph.nodes)
        self.by = by
        self.items = single_items(graph, by)
        self.kept = {
            node.row.index
            for node in graph.nodes
            if node.row.status in {NodeStatus.FAILED, NodeStatus.RUNNING}
            or node.row.index == graph.first_nonfinite
        }
        if graph.difference is not None:
            self.kept |= {
                index
                for index, differs in graph.difference.nodes.items()
                if differs is not Differs.AFTERWARDS
            }
        if what is not FoldMode.AUTO:
            self._repeats(always=True)
        if what is FoldMode.CHAINS:
            self._chains(always=True)

    def to(self, budget: int, *, ranges: bool = True) -> Folded:
        """What is left when there are at most ``budget`` items (at least 1).

        Args:
            budget: the number.
            ranges: have it fit where nothing but stretches of the execution order is left to fold.
        """
        self.budget = max(budget, 1)
        last = (self._ranges,) if ranges else ()
        for step in (self._repeats, self._chains, self._modules, *last):
            if self._fits:
                break
            step()
        links = links_between(self.items, self.graph.edges)
        return Folded(tuple(self.items), tuple(links), tuple(self._notes()))

    @property
    def has_ranges(self) -> bool:
        """Whether stretches of the execution order are folded."""
        return any(item.kind is ItemKind.RANGE for item in self.items)

    @property
    def _fits(self) -> bool:
        return len(self.items) <= self.budget

    def _is_kept(self, item: Item) -> bool:
        return item.kind is ItemKind.NODE and item.index in self.kept

    def _repeats(self, *, always: bool = False) -> None:
        """Of blocks that follow each other and look the same, draw the first, fold the others."""
        for _ in range(MOST_REPEAT_FOLDS):
            if self._fits and not always:
                return
            run = longest_repetition(
                [self._look(item) for item in self.items],
                [item.module for item in self.items],
            )
            if run is None or run.saved * 100 < len(self.items):
                return
            if always and run.saved < LEAST_SAVED:
                return
            start = run.start + run.period
            end = run.start + run.period * run.count
            first = self.items[start : start + run.period]
            last = self.items[end - run.period : end]
            self.items[start:end] = [
                _merged(
                    ItemKind.REPEAT,
                    self.items[start:end],
                    _repeat_title(first, last) if self.by is By.MODULE else _names(first),
                    repeats=run.count - 1,
                )
            ]

    def _chains(self, *, always: bool = False) -> None:
        """Fold rows, the longest first: as many as the budget demands, or all."""
        links = links_between(self.items, self.graph.edges)
        rows = [
            [self.items[line.item] for line in box.lines] for box in whole_rows(self.items, links)
        ]
        lengths = sorted(
            (sum(not self._is_kept(item) for item in row) for row in rows), reverse=True
        )
        excess, shortest = len(self.items) - self.budget, SHORTEST_CHAIN
        for length in lengths:
            if excess <= 0 or length < SHORTEST_CHAIN or always:
                break
            excess -= length - 1
            shortest = length
        items: list[Item] = []
        for row in rows:
            for part in self._between_kept(row):
                if len(part) >= shortest:
                    items.append(_merged(ItemKind.CHAIN, part, _names(part)))
                else:
                    items.extend(part)
        self.items = in_order(items, self.graph.edges, self.graph)

    def _modules(self) -> None:
        """Fold modules, the innermost first, the ones furthest from the root first."""
        depth = min(max(len(_parts(item)) for item in self.items), DEEPEST)
        while depth and not self._fits:
            excess = len(self.items) - self.budget
            items: list[Item] = []
            for run in reversed(list(self._module_runs(depth))):
                module = ".".join(_parts(run[0])[:depth])
                if excess > 0 and len(run) > 1 and len(_parts(run[0])) >= depth:
                    excess -= len(run) - 1
                    items.append(_merged(ItemKind.MODULE, run, module))
                else:
                    items.extend(reversed(run))
            self.items = items[::-1]
            depth -= 1

    def _ranges(self) -> None:
        """Fold what follows each other in execution, until items and links are few enough."""
        wanted = self.budget
        singles = self.items
        while True:
            parts = list(self._between_kept(singles))
            kept = sum(len(part) == 1 and self._is_kept(part[0]) for part in parts)
            if kept + 1 >= wanted:
                self.kept = set()
                parts, kept = [singles], 0
            size = -(-(len(singles) - kept) // max(wanted - len(parts), 1))
            self.items = [
                chunk[0] if len(chunk) == 1 else _merged(ItemKind.RANGE, chunk, _names(chunk))
                for part in parts
                for chunk in (part[i : i + size] for i in range(0, len(part), size))
            ]
            links = links_between(self.items, self.graph.edges)
            if (self._fits and len(links) <= LINKS_PER_ITEM * self.budget) or wanted == 1:
                return
            wanted = max(wanted // 2, 1)

    def _notes(self) -> Iterator[str]:
        """What was folded, one sentence for each kind of fold."""
        by_kind: dict[ItemKind, list[Item]] = {}
        for item in self.items:
            by_kind.setdefault(item.kind, []).append(item)
        repeats = by_kind.get(ItemKind.REPEAT, [])
        for item in repeats[:REPEATS_NAMED]:
            each = plural(len(item.nodes) // item.repeats, "node")
            yield f"{item.title}: {item.repeats:,} equal blocks of {each} drawn as one"
        if len(repeats) > REPEATS_NAMED:
            yield f"and {plural(len(repeats) - REPEATS_NAMED, 'more row')} of equal blocks"
        for kind, what in (
            (ItemKind.CHAIN, "nodes in a row"),
            (ItemKind.MODULE, "modules"),
            (ItemKind.RANGE, "stretches of the execution order"),
        ):
            folded = by_kind.get(kind, [])
            if folded:
                nodes = sum(len(item.nodes) for item in folded)
                yield f"{what}: {nodes:,} nodes drawn as {len(folded):,}"

    def _look(self, item: Item) -> Hashable:
        """What makes two items look the same, whichever layer they are in."""
        if self._is_kept(item):
            return item.index
        name = _unnumbered(item.title) or item.nodes[0].row.short_name
        group = item.module or ""
        if self.by is By.MODULE:
            group = _unnumbered(group)
        return item.kind, group, name, len(item.nodes)

    def _between_kept(self, row: Sequence[Item]) -> Iterator[list[Item]]:
        part: list[Item] = []
        for item in row:
            if self._is_kept(item):
                if part:
                    yield part
                yield [item]
                part = []
            else:
                part.append(item)
        if part:
            yield part

    def _module_runs(self, depth: int) -> Iterator[list[Item]]:
        run: list[Item] = []
        for item in self.items:
            if run and (
                self._is_kept(item)
                or self._is_kept(run[-1])
                or _parts(item)[:depth] != _parts(run[-1])[:depth]
                or len(_parts(item)) < depth
            ):
                yield run
                run = []
            run.append(item)
        if run:
            yield run


@dataclass(frozen=True, slots=True)
class Repetition:
    """``count`` blocks of ``period`` items each, from position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def saved(self) -> int:
        """How many items fewer there are when all but the first block are drawn as one."""
        return (self.count - 1) * self.period - 1


def longest_repetition(
    looks: Sequence[Hashable], modules: Sequence[str | None]
) -> Repetition | None:
    """The repetition that saves most; None where fewer than three blocks repeat anywhere.

    Where a block may begin at several places, it begins where a numbered module does.
    """
    best: Repetition | None = None
    for period in _periods(looks):
        for start, end in _runs(looks, period):
            if (end - start) // period < FEWEST_REPEATS:
                continue
            found = _aligned(start, end, period, modules)
            if found.count >= FEWEST_REPEATS and (best is None or found.saved > best.saved):
                best = found
    return best


def _periods(looks: Sequence[Hashable]) -> list[int]:
    """Distances at which items of the same look, or short runs of them, follow each other often.

    A run distinguishes blocks in which no single item is unique.
    """
    gaps: Counter[int] = Counter()
    for window in (looks, list(zip(*(looks[offset:] for offset in range(RUN)), strict=False))):
        last: dict[Hashable, int] = {}
        for place, look in enumerate(window):
            if look in last:
                gaps[place - last[look]] += 1
            last[look] = place
    ranked = sorted(gaps, key=lambda gap: (-gap * gaps[gap], gap))
    return ranked[:PERIODS_TRIED]


def _runs(looks: Sequence[Hashable], period: int) -> Iterator[tuple[int, int]]:
    """Stretches, from start to end, in which every item looks like the one a period later."""
    start = 0
    for place in range(len(looks) - period + 1):
        if place == len(looks) - period or looks[place] != looks[place + period]:
            if place > start:
                yield start, place + period
            start = place + 1


def _aligned(start: int, end: int, period: int, modules: Sequence[str | None]) -> Repetition:
    def crossings(offset: int) -> int:
        """Block borders at which the numbered module does not change."""
        return sum(
            _numbered(modules[border - 1]) == _numbered(modules[border])
            for border in range(start + offset, end, period)
            if border
        )

    offset = min(range(min(period, end - start - FEWEST_REPEATS * period + 1)), key=crossings)
    return Repetition(start + offset, period, (end - start - offset) // period)


@functools.lru_cache(maxsize=65_536)
def _numbered(module: str | None) -> str:
    """The outermost numbered module that ``module`` is part of."""
    match = re.match(r"(.*?(^|\.)\d+)(\.|$)", module or "")
    return match[1] if match else ""


@functools.lru_cache(maxsize=65_536)
def _unnumbered(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _merged(kind: ItemKind, items: Sequence[Item], title: str, *, repeats: int = 1) -> Item:
    nodes: list[Node] = [node for item in items for node in item.nodes]
    return Item(kind, tuple(nodes), common_module(item.module for item in items), title, repeats)


def _repeat_title(first: Sequence[Item], last: Sequence[Item]) -> str:
    modules = [common_module(item.module for item in block) for block in (first, last)]
    if modules[0] and modules[1] and modules[0] != modules[1]:
        return f"{modules[0]} … {modules[1]}"
    return modules[0] or _names(first)


def _names(items: Sequence[Item]) -> str:
    """The most frequent names of nodes, for what has no better title."""
    names = Counter(node.row.short_name for item in items for node in item.nodes)
    shown = sorted(names, key=lambda name: (-names[name], name))
    return ", ".join(shown[:2]) + (", …" if len(shown) > 2 else "")


def _parts(item: Item) -> list[str]:
    return item.module.split(".") if item.module else []
