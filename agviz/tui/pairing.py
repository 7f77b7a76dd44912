"""Which two passes are held against each other, as questions of the reader thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.pass_marks import marks
from agviz.tui.model import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.traces.reader import Trace


class PassPair(NamedTuple):
    """What is compared."""

    a: Key
    b: Key


class PairFound(NamedTuple):
    """Other passes to compare; None: there are none, for the reason that is said."""

    pair: PassPair | None
    said: str = ""


def step_pair(pair: PassPair, by: int, *, both: bool) -> Callable[[Sequence[Trace]], PairFound]:
    """The passes ``by`` further on: of B, or of both."""

    def question(traces: Sequence[Trace]) -> PairFound:
        if both:
            found = pair_further(traces, pair, by)
        else:
            place = _place(traces[pair.b.file], pair.b.graph_task, by)
            found = None if place is None else pair._replace(b=Key(pair.b.file, place))
        where = "behind" if by > 0 else "before"
        return PairFound(found, "" if found else f"There is no pass {where} these to compare.")

    return question


def pair_further(traces: Sequence[Trace], pair: PassPair, by: int) -> PassPair | None:
    """The next passes by the order of both traces; of one trace, those as far apart."""
    a, b = (traces[key.file] for key in pair)
    if pair.a.file != pair.b.file:
        from agviz.analysis.beside import counterparts

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
        from agviz.analysis.beside import counterparts

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
