"""Questions that the screen of two passes asks of the reader thread, and their answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.alignment import NOWHERE
from agviz.analysis.beside import Beside, counterparts
from agviz.analysis.beside_words import found_in, sentences
from agviz.analysis.pass_columns import PassColumns
from agviz.analysis.verdict import marks
from agviz.tui.model import Key
from agviz.words.labels import numbered, with_origin
from agviz.words.shapes import write_shape
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.analysis.beside import RowDetails
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace

_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""
_MOST_SHOWN: Final = 6
"""Gradients of a row about which something is said."""


class PassPair(NamedTuple):
    """What is compared."""

    a: Key
    b: Key


class CompareRead(NamedTuple):
    """A comparison, as far as it has come."""

    pair: PassPair
    beside: Beside
    said: tuple[str, ...]
    """What was found; empty: it is not read to its end."""
    heads: tuple[str, str]
    """What is to be said of each pass."""
    same: int
    """Pairs of passes before it that were looked through and are the same."""


class RowSaid(NamedTuple):
    """What is known of a row."""

    row: int
    differs: tuple[str, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]


class RowFound(NamedTuple):
    """A row that fits what was sought; None: there is none."""

    row: int | None


class PairFound(NamedTuple):
    """Other passes to compare; None: there are none, for the reason that is said."""

    pair: PassPair | None
    said: str = ""


def read_pair(
    pair: PassPair, before: CompareRead | None, *, seeks: bool = False
) -> Callable[[Sequence[Trace]], CompareRead]:
    """Read on; ``before`` has what was read of these passes.

    Args:
        pair: the passes.
        before: what was read last.
        seeks: where they are the same, go on with the next ones.
    """

    def question(traces: Sequence[Trace]) -> CompareRead:
        compared, same = pair, 0
        if before is not None and before.pair == pair:
            beside, same = before.beside, before.same
        else:
            beside = _begun(traces, pair, before)
        until = time.perf_counter() + _PIECE_S
        while beside.read_on(until - time.perf_counter()) is False:
            following = _following(traces, compared, 1) if seeks and beside.same else None
            if following is None:
                break
            compared, same = following, same + 1
            beside = _begun(traces, compared, None)
            if time.perf_counter() >= until:
                break
        said = tuple(sentences(beside)) if beside.is_read else ()
        heads = _head(traces, compared.a), _head(traces, compared.b)
        return CompareRead(compared, beside, said, heads, same)

    return question


def _begun(traces: Sequence[Trace], pair: PassPair, before: CompareRead | None) -> Beside:
    known = {}
    if before is not None:
        known = {before.pair.a: before.beside.a, before.pair.b: before.beside.b}
    a, b = (
        known.get(key) or PassColumns(traces[key.file], key.graph_task) for key in (pair.a, pair.b)
    )
    return Beside(a, b)


def _head(traces: Sequence[Trace], key: Key) -> str:
    trace = traces[key.file]
    loss = trace.losses().get(key.graph_task)
    task = trace.graph_task(key.graph_task)
    facts = [f"#{key.graph_task}", "" if loss is None else f"loss {loss:.6g}"]
    facts += [f"{task.nodes:,} nodes", str(task.status)]
    return " · ".join(filter(None, facts))


def step_pair(pair: PassPair, by: int, *, both: bool) -> Callable[[Sequence[Trace]], PairFound]:
    """The passes ``by`` further on: of B, or of both."""

    def question(traces: Sequence[Trace]) -> PairFound:
        if both:
            found = _following(traces, pair, by)
        else:
            place = _place(traces[pair.b.file], pair.b.graph_task, by)
            found = None if place is None else pair._replace(b=Key(pair.b.file, place))
        where = "behind" if by > 0 else "before"
        return PairFound(found, "" if found else f"There is no pass {where} these to compare.")

    return question


def _following(traces: Sequence[Trace], pair: PassPair, by: int) -> PassPair | None:
    """The next passes by the order of both traces; of one trace, those as far apart."""
    a, b = (traces[key.file] for key in pair)
    if pair.a.file != pair.b.file:
        pairs = counterparts(a, b)
        here = (pair.a.graph_task, pair.b.graph_task)
        if here in pairs:
            place = pairs.index(here) + by
            if not 0 <= place < len(pairs):
                return None
            one, other = pairs[place]
            return PassPair(Key(pair.a.file, one), Key(pair.b.file, other))
    one_place = _place(a, pair.a.graph_task, by)
    other_place = _place(b, pair.b.graph_task, by)
    if one_place is None or other_place is None:
        return None
    return PassPair(Key(pair.a.file, one_place), Key(pair.b.file, other_place))


def _place(trace: Trace, graph_task: int, by: int) -> int | None:
    numbers = [task.id for task in trace.graph_tasks if task.nodes]
    place = numbers.index(graph_task) + by if graph_task in numbers else -1
    return numbers[place] if 0 <= place < len(numbers) else None


def first_pair(files: tuple[int, int]) -> Callable[[Sequence[Trace]], PairFound]:
    """The first passes of two files."""

    def question(traces: Sequence[Trace]) -> PairFound:
        a, b = files
        pairs = counterparts(traces[a], traces[b])
        if not pairs:
            return PairFound(None, "One of the two files holds no backward pass to compare.")
        return PairFound(PassPair(Key(a, pairs[0][0]), Key(b, pairs[0][1])))

    return question


def pair_with(
    key: Key, other: int | None = None, file: int | None = None
) -> Callable[[Sequence[Trace]], PairFound]:
    """A pass and what it is best held against.

    Args:
        key: the pass, which will be B.
        other: a pass by its number; None: the same number in another file; in its own the last one
            of its kind before it that is good, else the one before.
        file: the other file; None: its own.
    """

    def question(traces: Sequence[Trace]) -> PairFound:
        trace = traces[key.file if file is None else file]
        tasks = {task.id: task for task in trace.graph_tasks if task.nodes}
        wanted = other
        if wanted is None and file is not None:
            here = [task.id for task in traces[key.file].graph_tasks if task.nodes]
            place = here.index(key.graph_task) if key.graph_task in here else 0
            wanted = list(tasks)[min(place, len(tasks) - 1)] if tasks else None
        elif wanted is None:
            own, found = tasks[key.graph_task], marks(trace)
            kind = own.accumulate_grad, own.roots, own.nodes
            others = [n for n in tasks if n != key.graph_task]
            alike = [
                n
                for n in others
                if (tasks[n].accumulate_grad, tasks[n].roots, tasks[n].nodes) == kind
            ]
            good = [n for n in alike if n not in found]
            before = [[n for n in each if n < key.graph_task] for each in (good, alike, others)]
            wanted = next(
                (each[-1] for each in before if each),
                next((each[0] for each in (good, alike, others) if each), None),
            )
        if wanted is None:
            return PairFound(None, "There is no other pass to compare this one with.")
        if wanted not in tasks:
            return PairFound(None, f"There is no pass {wanted} with nodes to compare with.")
        a = Key(key.file if file is None else file, wanted)
        return PairFound(PassPair(a, key))

    return question


def say_row(beside: Beside, row: int) -> Callable[[Sequence[Trace]], RowSaid]:
    """What is known of a row on both sides."""

    def question(_traces: Sequence[Trace]) -> RowSaid:
        details = beside.details(row)
        found = beside[row]
        sides = (beside.a, found.a), (beside.b, found.b)
        a, b = (
            tuple(_of_side(details, side, columns, node))
            for side, (columns, node) in enumerate(sides)
        )
        return RowSaid(row, tuple(found_in(details)), a, b)

    return question


def _of_side(details: RowDetails, side: int, columns: PassColumns, node: int) -> Iterator[str]:
    row = details.nodes[side]
    if row is None:
        yield "there is no such node"
        return
    yield with_origin(numbered(row.order, row.short_name), row.parameter or row.module)
    if row.line:
        yield row.line
    took = columns.times[node]
    time_said = f", {duration(took)}" if took >= 0 else ""
    yield f"{row.status}{time_said}"
    health = list(details.health[side].values())
    for each in health[:_MOST_SHOWN]:
        yield _measured(each)
    if len(health) > _MOST_SHOWN:
        yield f"… {len(health) - _MOST_SHOWN} more"
    if not health and not row.is_leaf:
        yield "no gradient of it was measured"


def _measured(row: HealthRow) -> str:
    kind = f"{row.role} {row.slot}: {row.dtype} {write_shape(row.shape, 'of unknown shape')}"
    if row.unknown:
        return f"{kind}, not measured: {row.unknown}"
    bad = [
        f"{n:,} {w}" for n, w in ((row.nan, "NaN"), (row.posinf, "+Inf"), (row.neginf, "-Inf")) if n
    ]
    norm = "" if row.norm is None else f", norm {row.norm:.6g}"
    mean = "" if row.mean is None else f", mean {row.mean:.4g}"
    return f"{kind}{', ' + ', '.join(bad) if bad else ''}{norm}{mean}"


def seek_row(
    beside: Beside, words: str, begin: int, by: int
) -> Callable[[Sequence[Trace]], RowFound]:
    """The next row of whose names all ``words`` are part, round the end."""

    def question(_traces: Sequence[Trace]) -> RowFound:
        wanted = words.lower().split()
        count = len(beside)
        fits = [
            {
                number
                for number, facts in enumerate(side.graph.facts)
                if all(
                    word in f"{facts.name} {facts.module} {facts.parameter}".lower()
                    for word in wanted
                )
            }
            for side in (beside.a, beside.b)
        ]
        for step in range(1, count + 1):
            row = (begin + by * step) % count
            a, b, _ = beside[row]
            if (a != NOWHERE and beside.a.graph.of[a] in fits[0]) or (
                b != NOWHERE and beside.b.graph.of[b] in fits[1]
            ):
                return RowFound(row)
        return RowFound(None)

    return question
