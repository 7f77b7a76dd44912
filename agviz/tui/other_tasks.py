"""What the threads of a program do in other graph tasks than the one that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.nodes import Turn
    from agviz.traces.reader import Trace
    from agviz.tui.model import Key, LoadedPass

_AT_ONCE: Final = 5_000


@dataclass(frozen=True)
class TurnsRead:
    """More was read of other graph tasks."""

    key: Key
    after: int
    turns: list[Turn]
    until: int


def turns_after(key: Key, after: int, now: int) -> Callable[[Trace, LoadedPass], TurnsRead | None]:
    """A question for the reader thread; it is not answered where another graph task is loaded.

    Args:
        key: the graph task that is shown.
        after: ``seq`` up to which it was read.
        now: the last ``seq`` that is wanted, where the graph task goes on.
    """

    def question(trace: Trace, recording: LoadedPass) -> TurnsRead | None:
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
