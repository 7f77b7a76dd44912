"""A comparison of two traces in sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from agviz.analysis.diff_rows import DivergenceKind, Level
from agviz.analysis.outcome import Outcome
from agviz.words.health import nonfinite
from agviz.words.labels import with_origin
from agviz.words.safe import clean
from agviz.words.shapes import write_shape
from agviz.words.units import backward_passes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.comparing import Tolerance
    from agviz.analysis.diff_rows import Change, Divergence, PassDiff
    from agviz.traces.rows import GraphTaskRow, NodeRow

_MOST_NAMED: Final = 3
_FACTS: Final = (
    ("shape", "shape"),
    ("dtype", "dtype"),
    ("layout", "layout"),
    ("nan", "NaN"),
    ("posinf", "+Inf"),
    ("neginf", "-Inf"),
    ("norm", "norm"),
    ("max", "max"),
    ("min", "min"),
    ("mean", "mean"),
    ("zero", "zeros"),
)
"""Facts of a gradient, those first that say most, and how they are called."""
_ROLES: Final = {
    "output": "its output {}",
    "root": "the gradient that the caller gave it",
    "sum": "the sum of the gradients at its input {}",
    "accumulated": ".grad after it",
    "captured": "the gradient at its input {} that grad() returned",
    "hook": "what a hook gave it",
    "replaced": "the gradient that an instrument gave its input {}",
}


@dataclass(frozen=True, kw_only=True)
class TraceDiff:
    """Two traces beside each other; ``str`` says in a few sentences where they part."""

    a: str
    """The files."""
    b: str
    tolerance: Tolerance
    passes: list[PassDiff] = field(default_factory=list)
    """From the eleventh on that differs, their lists hold no more than ten items."""
    only_in_a: list[GraphTaskRow] = field(default_factory=list)
    """Graph tasks that have no counterpart."""
    only_in_b: list[GraphTaskRow] = field(default_factory=list)
    wrong: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """What went wrong in what was compared, in A and in B, whether they differ or not."""

    @property
    def outcome(self) -> Outcome:
        """✓ only where nothing differs, gradients were compared, and nothing went wrong in them."""
        if not self.same or any(self.wrong):
            return Outcome.FOUND
        is_compared = all(each.level is not Level.STRUCTURE for each in self.passes)
        return Outcome.NOTHING_UNUSUAL if is_compared else Outcome.CANT_TELL

    @property
    def same(self) -> bool:
        """Whether nothing differs within the tolerance."""
        return not (self.only_in_a or self.only_in_b) and all(each.same for each in self.passes)

    @property
    def differing(self) -> list[PassDiff]:
        """The graph tasks in which something differs, in order."""
        return [each for each in self.passes if not each.same]

    @property
    def first(self) -> tuple[PassDiff, Divergence] | None:
        """The first divergence in causal order, and where it is; None: there is none.

        Where nodes made reentrant backward passes, it is looked for in those as well: in the one of
        the node that diverges first, or in one of an earlier node, which may diverge inside alone.
        """
        found = next((each for each in self.passes if each.first), None)
        inside = found
        while inside is not None:
            found = inside
            inside = self._first_inside(found)
        return None if found is None else (found, found.first[0])

    def _first_inside(self, outer: PassDiff) -> PassDiff | None:
        """The pass inside that diverges before anything else in ``outer``, or because of it."""
        node = outer.first[0].node
        found = [
            (each.within.order or 0, each.a.id, each)
            for each in self.passes
            if each.within is not None and each.a.parent == outer.a.id and each.first
            if each.within == outer.first[0].a
            or ((each.within.order or 0) < (node.order or 0) and each.first[0].role != "root")
        ]
        return min(found)[2] if found else None

    def __str__(self) -> str:
        return "\n".join(sentences(self))


def sentences(found: TraceDiff) -> Iterator[str]:
    """What was found, the most important thing first."""
    if found.same:
        yield from _same(found)
        return
    differing = found.differing
    shown = found.first[0] if found.first else differing[0] if differing else None
    if shown is not None:
        yield " ".join(_of_pass(found, shown))
        more = " ".join([*_nonfinite(shown), *_structure(shown)])
        if more:
            yield more
        others = len(differing) - 1
        if others:
            passes = plural(others, "other backward pass", "other backward passes")
            yield f"{passes} of {len(found.passes):,} differ{'s' * (others == 1)}, too."
    for side, tasks in (("A", found.only_in_a), ("B", found.only_in_b)):
        if tasks:
            yield f"Only in {side}: {_tasks(tasks)}."


def _same(found: TraceDiff) -> Iterator[str]:
    nodes = sum(each.aligned for each in found.passes)
    passes = backward_passes(len(found.passes), sum(each.a.parent >= 0 for each in found.passes))
    yield f"No difference in {passes} with {plural(nodes, 'node')}{within(found.tolerance)}."
    yield compared(found.passes)
    other = next((each for each in found.passes if each.other_order), None)
    if other is not None:
        yield f"{order(other)} That is no difference."
    in_a, in_b = found.wrong
    if in_a and in_a == in_b:
        yield f"But something went wrong in both: {'; '.join(in_a)}."
    else:
        for side, wrong in (("A", in_a), ("B", in_b)):
            if wrong:
                yield f"But something went wrong in {side}: {'; '.join(wrong)}."


def compared(passes: Sequence[PassDiff]) -> str:
    """By what gradients were compared, in a sentence."""
    level = min((each.level for each in passes), key=list(Level).index, default=Level.STRUCTURE)
    if level is Level.STRUCTURE:
        return (
            "Only the graphs were compared: there are no gradients in a recording made with"
            " --values none."
        )
    gradients, elements, unknown = (
        sum(getattr(each, fact) for each in passes) for fact in ("gradients", "elements", "unknown")
    )
    measured = gradients - elements - unknown
    by = [f"the elements of {plural(elements, 'gradient')}"] if elements else []
    if measured or not by:
        facts = "NaN, infinities, zeros, min, max, mean and norm of"
        by.append(f"{facts} {plural(measured, 'other gradient' if by else 'gradient')}")
    but = f" Of {unknown:,} more nothing was measured." if unknown else ""
    return f"Compared: {', and '.join(by)}.{but}"


def within(tolerance: Tolerance) -> str:
    """The tolerance in words; empty where there is none."""
    return "" if tolerance.is_exact else f" within rtol {tolerance.rtol:g}, atol {tolerance.atol:g}"


def node(row: NodeRow, *, with_line: bool = True) -> str:
    """A node by its name, and where it comes from."""
    known = [row.parameter or row.module, row.line if with_line else None]
    return with_origin(row.short_name, *(known if any(known) else [f"node {row.index}"]))


def _of_pass(found: TraceDiff, shown: PassDiff) -> Iterator[str]:
    number = str(shown.a.id)
    if shown.b.id != shown.a.id:
        number += f" of A and {shown.b.id} of B"
    inside = "" if shown.within is None else f", inside {node(shown.within, with_line=False)},"
    head = f"Backward pass {number}{inside} differs"
    if not shown.divergences:
        if shown.failure:
            yield f"{head}."
        else:
            yield f"{head}, though no gradient that was compared does."
    else:
        first = found.first[1] if found.first and found.first[0] is shown else shown.first[0]
        place = first.node
        turn = ""
        if place.order is not None:
            task, side = (shown.a, "") if first.a is not None else (shown.b, " in B")
            turn = f", number {place.order:,} of {task.executed:,} to run{side}"
        yield f"{head} first at {node(place)}{turn}: {what(first)}."
        yield from _consequences(shown, first)
    if shown.failure:
        yield f"A {clean(shown.failure[0])}; B {clean(shown.failure[1])}."


def what(first: Divergence) -> str:
    """What diverges at a node, and that nothing before it does."""
    a, b = first.a, first.b
    if first.kind is DivergenceKind.ONLY or a is None or b is None:
        return f"it is only in {'A' if b is None else 'B'}"
    if first.kind is DivergenceKind.RAN:
        return f"{a.status} in A, {b.status} in B, though what it waits for is the same"
    if first.kind is DivergenceKind.FAILED:
        return f"{a.status} in A, {b.status} in B, though all it was given is the same"
    what = role(first)
    if first.kind is DivergenceKind.ABSENT:
        without = "A" if first.health_a is None else "B"
        return f"all it was given is the same, but {what} is undefined in {without}"
    given = {
        "root": "",
        "sum": "all gradients that arrive there are the same, but ",
        "accumulated": "what was added is the same, but ",
    }.get(first.role, "all it was given is the same, but ")
    return f"{given}{what} is not: {numbers(first)}"


def role(divergence: Divergence) -> str:
    """Which gradient diverges: ``its output 0``."""
    return _ROLES.get(divergence.role, "{}").format(divergence.slot)


def numbers(divergence: Divergence) -> str:
    """The numbers of both sides that say most."""
    a, b = divergence.health_a, divergence.health_b
    said = []
    if a is not None and b is not None:
        differing_facts = [(fact, word) for fact, word in _FACTS if fact in divergence.facts]
        for fact, word in differing_facts[:2]:
            of_a, of_b = (_number(getattr(row, fact)) for row in (a, b))
            said.append(f"{word} {of_a} in A, {of_b} in B")
    if divergence.largest is not None:
        said.append(f"elements up to {divergence.largest:.6g} apart")
    return "; ".join(said) or "elements differ"


def most_telling(divergence: Divergence) -> tuple[str, ...]:
    """Three texts: what differs most plainly, and what it is in A and in B."""
    a, b = divergence.health_a, divergence.health_b
    if divergence.role:
        differing_facts = next((each for each in _FACTS if each[0] in divergence.facts), None)
        if differing_facts is None or a is None or b is None:
            sides = ["defined" if row is not None else "undefined" for row in (a, b)]
            if divergence.kind is DivergenceKind.GRADIENT:
                sides = ["", f"{divergence.largest or 0:.4g} apart"]
            return ("elements" if divergence.kind is DivergenceKind.GRADIENT else "", *sides)
        fact, word = differing_facts
        values = [getattr(row, fact) for row in (a, b)]
        return word, *(f"{v:.4g}" if isinstance(v, float) else _number(v) for v in values)
    return "", *(
        row.status if row is not None else "absent" for row in (divergence.a, divergence.b)
    )


def _number(value: object) -> str:
    """A fact of a gradient, with as many digits as show that it differs from another."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return write_shape(value)
    return f"{value:.9g}" if isinstance(value, float) else f"{value}"


def _consequences(shown: PassDiff, first: Divergence) -> Iterator[str]:
    after = shown.diverged - len({each.place for each in shown.first})
    if after:
        verb = "differs" if after == 1 else "differ"
        yield f"Of what depends on it, {plural(after, 'node')} {verb}."
    if shown.reached:
        names = [row.parameter or f"node {row.index}" for row in shown.reached]
        yield (
            f"The gradients of {len(names):,} of {plural(shown.leaves, 'leaf', 'leaves')} differ:"
            f" {_some(names)}."
        )
    others = {each.place: each.node for each in shown.first if each.place != first.place}
    if others:
        names = [node(row, with_line=False) for row in others.values()]
        yield (
            f"On their own account {plural(len(names), 'other node')} differ"
            f"{'s' * (len(names) == 1)}: {_some(names)}."
        )


def _nonfinite(shown: PassDiff) -> Iterator[str]:
    for side, row in zip("AB", shown.nonfinite, strict=True):
        if row is not None and row.nonfinite is not None:
            found = nonfinite(*row.nonfinite)
            yield f"In {side} only, gradients are not finite from {node(row)} on: {found}."


def _structure(shown: PassDiff) -> Iterator[str]:
    for side, rows in (("A", shown.only_in_a), ("B", shown.only_in_b)):
        if rows:
            names = [node(row, with_line=False) for row in rows]
            yield f"{plural(len(rows), 'node')} only in {side}: {_some(names)}."
    if shown.changes and not (shown.only_in_a or shown.only_in_b):
        count = len({change.a.index for change in shown.changes})
        yield (
            f"{plural(count, 'node')} that both have {'is' if count == 1 else 'are'} put together"
            f" differently: {change(shown.changes[0])}"
            f"{', …' if len(shown.changes) > 1 else ''}."
        )


def change(row: Change) -> str:
    """What is different about how a node is put together."""
    return f"{node(row.a)}: {row.what} {row.of_a} in A, {row.of_b} in B"


def order(shown: PassDiff) -> str:
    """Where the orders of execution part; empty where they don't."""
    if shown.other_order is None:
        return ""
    of_a, of_b = shown.other_order
    return f"Nodes ran in another order: where A ran {node(of_a)}, B ran {node(of_b)}."


def _tasks(tasks: Sequence[GraphTaskRow]) -> str:
    return f"backward pass{'es' * (len(tasks) > 1)} {_some([str(task.id) for task in tasks])}"


def _some(names: Sequence[str]) -> str:
    shown = list(islice(names, _MOST_NAMED))
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
