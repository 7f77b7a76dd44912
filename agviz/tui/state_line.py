"""The line that says where a program is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from agviz.traces.nodes import short_name
from agviz.tui.describe import WORDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from agviz.debugger.messages import Stopped

_BETWEEN: Final = " · "


def stopped(
    stop: Stopped, *, stopped_threads: int, is_now: bool, holds_one: bool, width: int
) -> str:
    """Where a thread is stopped, and why; what has no room is left out as a whole.

    Args:
        stop: of the thread.
        stopped_threads: number of threads that are stopped, with it.
        is_now: whether the playhead is there.
        holds_one: whether a stop holds its own thread only.
        width: cells that there are; 0: that is not known.
    """
    event = WORDS[stop.event]
    before = "before" if stop.is_before_a_node else f"{event}:"
    what = f"{before} {short_name(stop.name)}" if stop.name else event
    numbers = ", ".join(str(number) for number in stop.breakpoints)
    why = " and ".join(stop.reasons).replace("breakpoint", f"breakpoint {numbers}")
    others = f"{stopped_threads} threads stopped" if stopped_threads > 1 else ""
    alone = "others run" if holds_one and not others else ""
    facts = [
        (0, f"■ T{stop.thread} {what}"),
        (5, stop.parameter or stop.module),
        (2, why),
        (2, ", ".join(stop.passed)),
        (4, stop.line),
        (6, "now") if is_now else (1, "you look at the past, c goes on"),
        (3, others or alone),
    ]
    facts = [fact for fact in facts if fact[1]]
    while len(facts) > 1 and cell_len(_BETWEEN.join(text for _, text in facts)) > width > 0:
        facts.remove(max(facts))
    return _BETWEEN.join(text for _, text in facts)


def running(looked_at: int | None, others: Collection[int]) -> str:
    """That the thread that is looked at runs; others may be stopped."""
    if not others:
        return "● The program runs"
    named = ", ".join(f"T{thread}" for thread in others)
    return f"● T{looked_at} runs · {named} stopped, > chooses it"


def ended(code: int | None) -> str:
    """How it has ended, as far as that is known."""
    if code is None:
        return "✗ The program has ended"
    if code >= 0:
        return f"{'✗' if code else '■'} The program has ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"✗ The program was ended by {name}"
