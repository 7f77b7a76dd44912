"""How each rank ended, and which end was the first: the others follow it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.dumps import EXIT
from agviz.traces.rows import GraphTaskStatus, visible
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace
    from agviz.traces.rows import DumpRow

_FROM_OTHERS: Final = re.compile(
    r"[Cc]onnection (?:was )?(?:closed|reset|refused)|[Tt]imed out|[Tt]imeout|[Bb]roken pipe"
    r"|Connection closed by peer|Socket|remote process|peer|NCCL (?:communicator|operation|error)"
    r"|monitoredBarrier|[Ww]atchdog"
)
"""What a rank raises because another one went away or does not come."""
_OF_TORCH: Final = re.compile(r"\bgloo/\S+\.cc:\d|NCCL (?:communicator|operation|error)")
"""The same in the words of torch's own transport, however the program has wrapped it."""
_OWN: Final = re.compile(
    r"(?!Runtime|Connection|BrokenPipe|EOF|Dist|torch\.|OSError|Interrupted|Exception)"
    r"\w*(?:Error|Exception)\b"
)
"""The beginning of what torch.distributed never raises: it has the types of this list only."""
_SENT: Final = re.compile(r"Signal|SIG[A-Z]+|KeyboardInterrupt|SystemExit")
_REDUCTION: Final = "Expected to have finished reduction in the prior iteration"


class End(StrEnum):
    """How a rank ended."""

    REGULAR = "finished"
    RAISED = "raised"
    UNUSED = "raised for parameters without a gradient"
    """DDP's error about a reduction that has not finished."""
    OTHERS = "failed after another rank"
    CUT = "ended from outside"
    """Killed, or ended by its launcher because another rank had failed."""
    GROWING = "running"


_SENTENCES: Final = {
    End.CUT: ("was ended from outside", "were ended from outside"),
    End.GROWING: ("is running", "are running"),
}


def in_words(end: End, ranks: int) -> str:
    """How so many ranks ended, as a predicate."""
    return _SENTENCES.get(end, (str(end), str(end)))[ranks > 1]


class RankEnd(NamedTuple):
    """How one rank ended, and when."""

    rank: int
    end: End
    time_ns: int
    """On the clock of the first rank: of its last event, or of what it raised."""
    ordinal: int
    """Of the last pass that it began; -1: none."""
    is_inside: bool
    """Whether that had not come to its end."""
    error: str
    """Type and message of what it raised; empty: nothing."""


def ends(run: Run) -> dict[int, RankEnd]:
    """By rank.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    found = {}
    for file, trace in run.folder.traces():
        rank = run.ranks[file.number]
        last = rank.passes[-1] if rank.passes else None
        end, error = _end(trace)
        moment = trace.last_moment() if end is End.CUT else None
        found[file.number] = RankEnd(
            file.number,
            end,
            run.on_one_clock(
                file.number,
                rank.last_ns if moment is None else max(rank.last_ns, moment.last_ns),
            ),
            -1 if last is None else last.ordinal,
            last is not None and last.status is not GraphTaskStatus.FINISHED,
            error,
        )
    if len({one.ordinal for one in found.values()}) == 1 and all(
        not found[file.number].is_inside and any(map(_is_done, trace.dumps()))
        for file, trace in run.folder.traces()
    ):  # each ended itself by os._exit when all was done
        return {rank: one._replace(end=End.REGULAR) for rank, one in found.items()}
    return found


def _is_done(dump: DumpRow) -> bool:
    """Whether it shows a process that ended itself by ``os._exit(0)``."""
    frames = [visible(thread.stack) for thread in dump.threads]
    return dump.reason == EXIT and any(at is not None and "_exit(0)" in at.source for at in frames)


def _end(trace: Trace) -> tuple[End, str]:
    meta = trace.meta
    failed = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FAILED]
    error = meta.ended
    if failed and not error and trace.graph_tasks[-1].status is GraphTaskStatus.FAILED:
        error = f"{failed[-1].error}: {failed[-1].message}"
    if error:
        if _REDUCTION in error:
            return End.UNUSED, error
        if _SENT.match(error):
            return End.CUT, error
        is_last = bool(failed) and trace.graph_tasks[-1].status is GraphTaskStatus.FAILED
        of_torch = _OF_TORCH.search(f"{error} {failed[-1].message if is_last else ''}")
        is_own = _OWN.match(error) or _is_raised_by_program(trace)
        of_others = of_torch or (not is_own and _FROM_OTHERS.search(error))
        return (End.OTHERS if of_others else End.RAISED), error
    if trace.is_growing:
        return End.GROWING, ""
    cut = any(task.status is GraphTaskStatus.CUT for task in trace.graph_tasks)
    if meta.end_ns is None or (cut and not meta.stopped):
        return End.CUT, ""
    return End.REGULAR, ""


def _is_raised_by_program(trace: Trace) -> bool:
    """Whether a ``raise`` of the program itself is where the end came from."""
    at = trace.raised(NO_GRAPH_TASK)
    stack = at.threads[0].stack if at is not None and at.threads else ()
    return any(not frame.hidden and frame.source.startswith("raise ") for frame in stack[-1:])


def of(found: Iterable[RankEnd], *wanted: End) -> list[RankEnd]:
    """Those that ended so, the first to end first."""
    return sorted((one for one in found if one.end in wanted), key=lambda one: one.time_ns)
