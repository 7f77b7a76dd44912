"""Hot events reach a recorder that is alone as numbers; the file must not tell the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz_engine import Instrument, events, installed
from agviz_engine.instruments import HOT
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path


class Other(Instrument):
    """Makes the engine build every event."""

    def any_event(self, event: events.Event, live: Any) -> None:
        pass


def recorded(path: Path, name: str, *others: Instrument) -> list[tuple[Any, ...]]:
    """All events without what differs from run to run: seq, time, thread; ids made relative."""
    torch.manual_seed(0)
    recorder = Recorder(path)
    with recorder, installed(recorder, *others) as engine:
        assert (engine.registry.flat is None) == bool(others)
        PROGRAMS[name]()
    with Trace.open(path) as trace:
        first = trace.graph_tasks[0].id
        return [
            (type(event).__name__, event.graph_task - first, *event[4:])
            if type(event) in HOT
            else (type(event).__name__,)
            for event in trace.events(limit=10**6)
        ]


@pytest.mark.parametrize("name", sorted(PROGRAMS)[::4])
def test_alone_or_not_the_file_is_the_same(tmp_path: Path, name: str) -> None:
    alone = recorded(tmp_path / "alone.agviz", name)
    assert {event[0] for event in alone} >= {hot.__name__ for hot in HOT[:6]}
    assert alone == recorded(tmp_path / "beside.agviz", name, Other())
