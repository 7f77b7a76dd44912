"""What the threads of a program do in other graph tasks than the one that is shown."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from textual.message import Message

from agviz.tui.timeline import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agviz.traces.nodes import Turn
    from agviz.traces.reader import Trace
    from agviz.tui.model import Key, Recording

_MOST: Final = 20_000
"""Executions that are kept of one thread; earlier ones are told, later ones are not."""
_AT_ONCE: Final = 5_000


class Elsewhere(NamedTuple):
    """A node that a thread took up in another graph task."""

    seq: int
    graph_task: int
    node: int
    name: str


class Executions:
    """Those of one thread, in order."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._ends = array("q")
        """-1: it has not ended."""
        self._told: list[Elsewhere] = []
        self._open: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._told)

    def __getitem__(self, place: int) -> Elsewhere:
        return self._told[place]

    def add(self, turn: Turn) -> None:
        """Take a start or an end."""
        key = turn.graph_task, turn.node
        if not turn.is_start:
            place = self._open.pop(key, None)
            if place is not None:
                self._ends[place] = turn.time_ns
        elif len(self._told) < _MOST:
            self._open[key] = len(self._told)
            self._told.append(Elsewhere(turn.seq, *key, turn.name))
            self._starts.append(turn.time_ns)
            self._ends.append(-1)

    def lane(self, end_ns: int) -> Lane:
        """For a line of the panel; what has not ended is drawn until ``end_ns``."""
        return Lane(self._starts, self._ends, (), end_ns)


@dataclass(frozen=True)
class Beside:
    """What was read of other graph tasks while one goes on. A copy knows more of the same."""

    key: Key
    """The graph task that is shown."""
    until: int = -1
    """``seq`` up to which it was read."""
    threads: dict[int, Executions] = field(default_factory=dict)

    def more(self, turns: Iterable[Turn], until: int) -> Beside:
        """The same, read on."""
        for turn in turns:
            self.threads.setdefault(turn.thread, Executions()).add(turn)
        return Beside(self.key, until, self.threads)


@dataclass
class TurnsRead(Message):
    """More was read of other graph tasks."""

    key: Key
    after: int
    turns: list[Turn]
    until: int


def turns_after(key: Key, after: int, now: int) -> Callable[[Trace, Recording], TurnsRead | None]:
    """A question for the reader thread; it is not answered where another graph task is loaded.

    Args:
        key: the graph task that is shown.
        after: ``seq`` up to which it was read.
        now: the last ``seq`` that is wanted, where the graph task goes on.
    """

    def question(trace: Trace, recording: Recording) -> TurnsRead | None:
        if recording.key != key:
            return None
        task = recording.task
        begin = max(after, task.begin_seq)
        until = now if task.end_seq is None else min(task.end_seq, now)
        if begin >= until:
            return None
        turns = trace.turns_beside(task.id, begin, until, _AT_ONCE)
        if len(turns) == _AT_ONCE:
            until = turns[-1].seq
        return TurnsRead(key, after, turns, until)

    return question
