"""Two passes beside each other in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis import diff_words
from agviz.analysis.beside import DIFFERS, RowMark
from agviz.analysis.diff_rows import DivergenceKind, Level
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.beside import Beside, RowDetails

NOT_RECORDED = "Values were not recorded in {}: only the graphs and the order are compared."


def sentences(beside: Beside) -> Iterator[str]:
    """What the comparison found, the most important thing first; all of it was read.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    first = beside.first
    if first is None:
        yield _same(beside)
    else:
        yield from _first(beside, first)
    if beside.failure:
        yield f"A {beside.failure[0]}; B {beside.failure[1]}."
    if beside.level is Level.STRUCTURE:
        without = [
            side
            for side, each in (("A", beside.a), ("B", beside.b))
            if each.trace.meta.values == "none"
        ]
        yield NOT_RECORDED.format(" and ".join(without))
    if beside.moved:
        verb = "ran" if beside.moved > 1 else "node ran"
        nodes = plural(beside.moved, "node") if beside.moved > 1 else "1"
        yield f"{nodes} {verb} in another order, which is no difference."
    yield from _times(beside)


def _times(beside: Beside) -> Iterator[str]:
    took = beside.took_ns
    if not all(took):
        return
    both = f"The nodes that ran in both took {duration(took[0])} in A and {duration(took[1])} in B"
    if not beside.slower:
        yield f"{both}."
        return
    a, b, _ = beside[beside.slower[0]]
    name = diff_words.node(beside.a.trace.node(beside.a.task.id, a))
    times = duration(beside.a.times[a]), duration(beside.b.times[b])
    yield f"{both}, {name} most of all longer: {times[0]} in A, {times[1]} in B."


def _same(beside: Beside) -> str:
    compared = "" if beside.level is Level.STRUCTURE else " in what was measured"
    return f"No difference{compared}: {plural(beside.paired, 'node')} on both sides."


def _first(beside: Beside, first: int) -> Iterator[str]:
    details = beside.details(first)
    said = found_in(details)
    node = details.nodes[0] or details.nodes[1]
    if node is None:
        return
    what = said[0] if said else "the shapes of its inputs are not the same"
    order = beside.a.orders if details.nodes[0] is not None else beside.b.orders
    turn = f", number {order[node.index]:,} to run" if order[node.index] else ""
    yield f"First difference: {diff_words.node(node)}{turn}: {what}."
    is_of_values = any(
        each.kind is DivergenceKind.GRADIENT and each.role == "output"
        for each in details.divergences
    )
    earliest = beside.earliest
    if earliest is not None and earliest != first:
        yield _earliest(beside, earliest)
    elif earliest is None and is_of_values and beside[first].marks & RowMark.FIRST:
        where = f" at {node.line}" if node.line else ""
        yield (
            f"It was given the same, so what the forward had{where} was not: inputs, parameters or"
            " random numbers differ there or before."
        )
    after = len(beside.differing) - sum(
        bool(beside[row].marks & RowMark.FIRST) for row in beside.differing
    )
    if after:
        yield f"{plural(after, 'node')} after that differ{'s' * (after == 1)}, too."


def _earliest(beside: Beside, row: int) -> str:
    details = beside.details(row)
    node = details.nodes[0] or details.nodes[1]
    said = found_in(details)
    name = "" if node is None else diff_words.node(node)
    how = said[0] if said else "the shapes of its inputs are not the same"
    return f"In the forward, what differs first is {name}: {how}."


def found_in(details: RowDetails) -> list[str]:
    """What is not the same at a row's nodes, each as the end of a sentence."""
    found = []
    for each in details.divergences:
        if each.is_first or each.kind is DivergenceKind.ONLY:
            found.append(diff_words.what(each))
        elif each.role and each.kind is DivergenceKind.GRADIENT:
            found.append(f"{diff_words.role(each)} is not the same: {diff_words.numbers(each)}")
        elif each.role:
            without = "A" if each.health_a is None else "B"
            found.append(f"{diff_words.role(each)} is undefined in {without}")
        elif each.a is not None and each.b is not None:
            found.append(f"{each.a.status} in A, {each.b.status} in B")
    return found


def is_consequence(marks: RowMark) -> bool:
    """Whether something differs that a node was given."""
    return bool(marks & DIFFERS) and not marks & RowMark.FIRST
