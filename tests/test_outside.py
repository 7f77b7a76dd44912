"""Threads that wait for each other outside of backward are told from such that may go on."""

from __future__ import annotations

import pytest

from agviz.analysis.outside import Outside
from agviz.traces.rows import BOUNDED, DumpedThread, DumpedWait, Frame

JOIN = DumpedWait("threading.Thread.join", 2, "prefetch", None)
PUT = DumpedWait("queue.Queue.put", 0, "", None)


def outside(first: DumpedWait | None, second: DumpedWait | None, *, is_exit: bool) -> Outside:
    threads = tuple(
        DumpedThread(name, number, (Frame("train.py", 10 * number, "f", False),), (), wait)
        for number, (name, wait) in enumerate([("MainThread", first), ("prefetch", second)], 1)
    )
    return Outside(
        graph_task=7, is_growing=True, is_exit=is_exit, threads=threads, still_ns=3_000_000_000
    )


def test_that_none_can_go_on_is_said_with_what_each_waits_for() -> None:
    found = outside(JOIN, PUT, is_exit=False)
    assert found.is_stuck
    assert found.heading == "no backward is running after backward pass 7, and no thread can go on"
    assert found.paragraph == (
        "Since 3.00 s MainThread stands still at train.py:10. It waits in threading.Thread.join"
        " for the thread prefetch. prefetch is at train.py:20 and waits in queue.Queue.put. No"
        " thread is left to take anything out of the full queue into which prefetch puts."
    )


@pytest.mark.parametrize(
    "second",
    [
        None,
        DumpedWait("queue.Queue.put" + BOUNDED, 0, "", None),
        DumpedWait("socket.socket.recv", 0, "", None),
        DumpedWait("torch.distributed.barrier", 0, "", None),
    ],
)
def test_who_works_or_waits_for_others_may_go_on(second: DumpedWait | None) -> None:
    assert not outside(JOIN, second, is_exit=False).is_stuck


def test_who_has_left_is_not_stuck() -> None:
    assert not outside(JOIN, PUT, is_exit=True).is_stuck
