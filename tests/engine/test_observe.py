"""Observing the native engine changes nothing, and gives the exact engine's events."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agviz_engine.instruments import Instrument, Live
from agviz_engine.observe.observing_engine import observed
from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import assert_outcomes_equal, native_outcome, our_outcome, outcome_with
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from agviz_engine import events

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")

TOTAL = 2_000 if settings.get_current_profile_name() == "fuzz" else 100
UNSEEN = {"HookCalled"}
"""Events that only the exact engine emits."""
ALL = [*FORWARD, *FORWARD, *HOOKS, *CALLS]


class Kept(Instrument):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []

    def any_event(self, event: events.Event, _live: Live) -> None:
        self.seen.append(event)

    def plain(self) -> list[Any]:
        """The events, with ids as of a process that does nothing else."""
        return list(_plain(self.seen))


def _plain(seen: list[events.Event]) -> Any:
    tasks: dict[int, int] = collections.defaultdict(lambda: len(tasks))
    threads: dict[int, int] = collections.defaultdict(lambda: len(threads))
    for event in seen:
        fields = event._asdict()
        if type(event).__name__ in UNSEEN:
            continue
        for name in ("seq", "time_ns", "native_id", "duration_ns"):
            fields.pop(name, None)
        fields["thread"] = threads[event.thread]
        for name in ("graph_task", "parent"):
            if fields.get(name, -1) >= 0:
                fields[name] = tasks[fields[name]]
        yield type(event).__name__, fields


def without_unknown(theirs: list[Any], ours: list[Any]) -> list[Any]:
    """The events of the exact engine, without the bytes of sums that can't be known."""
    unknown = [
        place
        for place, (_, fields) in enumerate(ours)
        if fields.get("added") and not fields["nbytes"]
    ]
    for place in unknown:
        if place < len(theirs) and "nbytes" in theirs[place][1]:
            theirs[place][1]["nbytes"] = 0
    return theirs


def assert_same_until_failure(theirs: list[Any], ours: list[Any]) -> None:
    """Each graph task is the same, but for the node that a hook of the program failed in.

    Our hook before that node was not called, so that nothing is seen of it.
    """
    tasks = {fields["graph_task"] for _, fields in theirs}
    assert tasks == {fields["graph_task"] for _, fields in ours}
    for task in tasks:
        exact = [event for event in theirs if event[1]["graph_task"] == task]
        seen = [event for event in ours if event[1]["graph_task"] == task]
        if without_unknown(exact, seen) == seen:
            continue
        assert seen[-1] == exact[-1]
        assert seen[-1][0] == "GraphTaskFailed"
        assert without_unknown(exact, seen)[: len(seen) - 1] == seen[:-1]
        assert {name for name, _ in exact[len(seen) - 1 : -1]} <= {
            *("QueuePop", "NodeStarted", "NodeFailed"),
        }


@pytest.mark.parametrize("name", PROGRAMS)
def test_observing_changes_nothing_and_gives_the_same_events(name: str) -> None:
    native, seen, exact = native_outcome(PROGRAMS[name]), Kept(), Kept()
    outcome = outcome_with(observed(seen), PROGRAMS[name])
    assert_outcomes_equal(native, outcome)
    assert our_outcome(PROGRAMS[name], 0, exact).error is None
    ours = seen.plain()
    assert ours == without_unknown(exact.plain(), ours)


@pytest.mark.hypothesis
@settings(
    max_examples=TOTAL,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(ALL), *[st.integers(0, 15)] * 3),
        max_size=16,
    ),
    seed=st.integers(0, 3),
)
def test_drawn_programs(steps: list[Step], seed: int) -> None:
    def program() -> Any:
        return Machine(seed).run(steps)

    seen, exact = Kept(), Kept()
    # Called from one line: warnings of anomaly mode have the stack.
    runs = native_outcome, functools.partial(outcome_with, observed(seen))
    native, outcome = (run(program) for run in runs)
    assert_outcomes_equal(native, outcome)
    our_outcome(program, 0, exact)
    ours, theirs = seen.plain(), exact.plain()
    if any(name == "GraphTaskFailed" for name, _ in theirs):
        assert_same_until_failure(theirs, ours)
    else:
        assert ours == without_unknown(theirs, ours)
