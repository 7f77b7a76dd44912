"""Questions that the screen of two passes asks of the reader thread, and their answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.alignment import NOWHERE
from agviz.analysis.beside import Beside
from agviz.analysis.beside_words import found_in, sentences
from agviz.analysis.pass_columns import PassColumns
from agviz.tui.pairing import PassPair, pair_further
from agviz.words.labels import numbered, with_origin
from agviz.words.shapes import write_shape
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.analysis.beside import RowDetails
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.tui.model import Key

_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""
_MOST_SHOWN: Final = 6
"""Gradients of a row about which something is said."""


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
            following = pair_further(traces, compared, 1) if seeks and beside.same else None
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
