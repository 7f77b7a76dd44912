"""Questions that the screen of a whole run asks of the reader thread, and their answers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.pass_marks import is_measured
from agviz.analysis.run_shape import said_of_pass, said_of_run
from agviz.analysis.run_table import RunTable, bucketed
from agviz.tui.model import Key
from agviz.tui.passes import marked_place, why_opened
from agviz.tui.reader_thread import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.analysis.run_table import Bucket, RunRow
    from agviz.analysis.verdict import Verdict
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Meta

_PIECE_S: Final = 0.02
"""Norms are read for so long at once: a key may wait behind it."""
_COLUMNS: Final = 200
"""Of a chart: as many as a wide terminal has."""
_SECONDS_BETWEEN_CHARTS: Final = 0.5


class RunRead(NamedTuple):
    """What is known of a run by now."""

    table: RunTable
    charts: dict[str, list[Bucket]]
    """By name: loss, grad norm, time."""
    meta: Meta
    """Of the file."""
    is_read: bool
    """Whether there is nothing more to be read."""
    can_be_judged: bool
    """Whether gradients were looked at."""
    took_s: float
    """How long the last step of it took."""


class RunOrdered(NamedTuple):
    """The rows that are wanted, in the order that is."""

    order: str
    words: str
    places: Sequence[int]


class PassJudged(NamedTuple):
    """What is to be said of a pass, or of the whole run, and what no pass holds."""

    graph_task: int | None
    """None: the whole run."""
    verdicts: tuple[Verdict, ...]
    """The worst first; never none."""
    shape: tuple[str, ...]
    """What it is made of, in sentences."""


def read_run(table: RunTable | None) -> Callable[[Trace], RunRead]:
    """Read on; None: from the beginning."""

    def question(trace: Trace) -> RunRead:
        began = time.perf_counter()
        found = RunTable(trace) if table is None else table.renewed(trace)
        until = began + (0 if table is None else _SECONDS_BETWEEN_CHARTS)
        while found.read_on(_PIECE_S) and time.perf_counter() < until:
            time.sleep(0)  # so that the screen is painted meanwhile
        charts = {
            "loss": bucketed(found.losses, _COLUMNS),
            "grad norm": bucketed(found.norms, _COLUMNS),
            "time": bucketed(found.times(), _COLUMNS),
        }
        is_read, can_be_judged = found.is_read, is_measured(trace)
        took_s = time.perf_counter() - began
        return RunRead(found, charts, trace.meta, is_read, can_be_judged, took_s)

    return question


ORDERS: Final = ("number", "verdict", "time", "loss", "grad norm", "change", "nodes")


def order_run(table: RunTable, order: str, words: str) -> Callable[[Trace], RunOrdered]:
    """Choose rows of which all ``words`` are said, and sort them: the largest first."""

    def question(_trace: Trace) -> RunOrdered:
        places = range(len(table)) if order == "number" else _sorted(table, order)
        wanted = words.lower().split()
        if wanted:
            fitting = set(_fitting(table, wanted))
            places = [place for place in places if place in fitting]
        return RunOrdered(order, words, places)

    return question


def place_in(row: RunRow, file: int) -> Callable[[Trace], Start]:
    """Where in a pass one sees what is unusual about it; its beginning, where nothing is."""

    def question(trace: Trace) -> Start:
        if row.mark is None or not row.mark.is_wrong:
            return Start(Key(file, row.task.id), -1, "")
        number, seq = marked_place(trace, row.task.id, row.mark)
        return Start(Key(file, number), seq, why_opened(row.mark))

    return question


def judge(graph_task: int | None) -> Callable[[Trace], PassJudged]:
    """What is to be said of one pass; None: of the whole run."""

    def question(trace: Trace) -> PassJudged:
        from agviz.analysis.verdict import verdicts
        from agviz.tui.answers import with_beside

        found = verdicts(trace, graph_task)
        is_of_run = graph_task is None or any(verdict.is_found for verdict in found)
        said = found if is_of_run else with_beside(trace, found)
        shape = said_of_run(trace) if graph_task is None else said_of_pass(trace, graph_task)
        return PassJudged(graph_task, said, tuple(shape))

    return question


def _fitting(table: RunTable, words: Sequence[str]) -> list[int]:
    """The rows of which all of the words, in small letters, are said."""
    likeness, ids = table.likeness(), table.tasks.ids
    examples = dict(zip(likeness, range(len(likeness)), strict=True))
    texts = {alike: _text(table[place]).lower() for alike, place in examples.items()}
    # What is not said of any that are alike may still be said of the number of one.
    missing = {alike: [word for word in words if word not in text] for alike, text in texts.items()}
    wanted = {
        alike: all(word.strip("#").isdecimal() for word in some) for alike, some in missing.items()
    }
    return [
        place
        for place, alike in enumerate(likeness)
        if wanted[alike] and all(word in f"#{ids[place]}" for word in missing[alike])
    ]


def _text(row: RunRow) -> str:
    """What is said of a pass besides numbers."""
    call = "backward" if row.task.accumulate_grad else "grad"
    text = f"# {call} {row.mark or 'finished'} {row.task.error}"
    if row.norm is not None and not math.isfinite(row.norm):
        text += " nan inf non-finite"
    if row.change is not None:
        text += f" {row.change.parameter}"
    return text


def _sorted(table: RunTable, order: str) -> Sequence[int]:
    """All rows, in an order other than that of their numbers."""
    match order:
        case "verdict":
            wrong = set(table.wrong)
            return sorted(range(len(table)), key=lambda place: place not in wrong)
        case "nodes":
            return sorted(range(len(table)), key=table.tasks.nodes.__getitem__, reverse=True)
        case "time":
            return table.times().largest_first()
        case "loss":
            return table.losses.largest_first()
        case "grad norm":
            return table.norms.largest_first()
        case _:
            return table.change_sizes().largest_first()
