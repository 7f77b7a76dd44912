"""The terminal UI on a file from which passes go while it is read."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.model import Key
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.test_tui_keys import view_of
from tests.tui_support import press, settle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_the_pass_that_is_shown_goes(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path, max_bytes=1_000_000, script="train.py", argv=[]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=1)
        graph = random_graph(simulator.rng, 60, 1)

        def gone() -> list[int]:
            recorder.flush()
            with Trace.open(path) as trace:
                return [n for each in trace.left_out for n in range(each.first, each.last + 1)]

        while not gone():
            for _ in range(10):
                simulator.backward(graph)
        with Trace.open(path) as trace:
            shown = trace.graph_tasks[-1].id
        app = AgvizApp([path])
        told: list[str] = []
        async with app.run_test(size=(120, 40)) as pilot:
            session = await settle(pilot)
            session.notify = lambda sentence, **_: told.append(sentence)  # type: ignore[method-assign]
            session.reader.load(Key(0, shown))
            session = await settle(pilot)
            assert view_of(session).recording.key.graph_task == shown
            while shown not in gone():
                for _ in range(10):
                    simulator.backward(graph)
            for _ in range(3):
                session.reader.poll()
                session = await settle(pilot)
            assert len(told) == 1
            assert "this backward pass is no longer in the file" in told[0]
            assert shown not in {task.id for task in session.board.tasks[0]}
            for key in ("n", "N", "s", "S", "c", "C", "x", "g", "G", "w", "escape", "p", "escape"):
                session = await press(pilot, key)
            await press(pilot, "/", "a", "enter")
            session.reader.load(Key(0, session.board.tasks[0][-1].id))
            session = await settle(pilot)
            assert view_of(session).recording.key.graph_task == session.board.tasks[0][-1].id
            assert not any("damaged" in sentence or "holds no" in sentence for sentence in told)


async def test_who_follows_goes_on_with_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path, max_bytes=1_000_000, script="train.py", argv=[]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=1)
        graph = random_graph(simulator.rng, 60, 1)
        simulator.backward(graph)
        recorder.flush()
        app = AgvizApp([path])
        async with app.run_test(size=(120, 40)) as pilot:
            session = await settle(pilot)
            session = await press(pilot, "F")
            for _ in range(2):
                for _ in range(60):
                    simulator.backward(graph)
                recorder.flush()
                session.reader.poll()
                session = await settle(pilot)
                assert view_of(session).recording.key.graph_task == session.board.tasks[0][-1].id
