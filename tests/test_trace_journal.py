"""Nothing that waits is lost or doubled when it is cut into pieces."""

from __future__ import annotations

from random import Random

import pytest

from agviz.measure.values import NUMBERS
from agviz.record.journal import Journal
from agviz.traces import codec
from agviz_engine.emissions import CHECKED


def row(seq: int) -> tuple[int, ...]:
    return (seq, 0, 0, 0, CHECKED, *(0,) * 6)


def waiting(seqs: list[int], measured: list[int]) -> Journal:
    found = Journal()
    for seq in seqs:
        found.keep(row(seq))
    for seq in measured:
        found.keep((), (seq, 0, ("float32",), 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0))
    return found


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_hold_everything_once_and_numbers_not_before_their_events(size: int) -> None:
    rng = Random(size)
    seqs = list(range(50))
    for begin in range(0, 50, 5):  # threads come between each other
        part = seqs[begin : begin + 5]
        rng.shuffle(part)
        seqs[begin : begin + 5] = part
    measured = [seq for seq in seqs if seq % 3]
    batches = list(waiting(seqs, measured).batches(size * codec.WIDTH, 1))
    events = [one[0] for batch in batches for one in codec.each(batch.events)]
    numbers = [seq for batch in batches for seq in batch.numbers[::NUMBERS]]
    assert (events, numbers) == (seqs, measured)
    written: set[int] = set()
    for batch in batches:
        written.update(one[0] for one in codec.each(batch.events))
        assert written.issuperset(batch.numbers[::NUMBERS])


def test_a_batch_begins_with_each_graph_task() -> None:
    found = Journal()
    for seq, task in enumerate([0, 0, 1, 1, 0, 2, 1]):
        found.keep((seq, 0, 0, task, *row(seq)[4:]))
    batches = [
        [event[0] for event in codec.each(batch.events)]
        for batch in found.batches(100, 1, begun=[1, 2, 7])
    ]
    assert batches == [[0, 1], [2, 3, 4], [5, 6]]


def test_numbers_whose_events_are_gone() -> None:
    (batch,) = waiting([], [4, 5]).batches(10, 1)
    assert batch.numbers[::NUMBERS] == [4, 5]


def test_who_refuses_keeps_nothing() -> None:
    found = waiting([1], [1])
    found.refuse()
    found.keep(row(2), (2,) * NUMBERS)
    assert len(found) == 0
