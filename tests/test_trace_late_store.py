"""A recorder that makes its file late, or never."""

import os
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import agviz_engine
from agviz.record.late_store import LateStore, _Clock
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace

NEVER = 1e6
"""Seconds."""


def loss() -> Tensor:
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    return (x * x).exp().sum()


def record(recorder: Recorder, passes: int = 1) -> None:
    with agviz_engine.installed(recorder, nonfinite_check=True):
        for _ in range(passes):
            loss().backward()


def deferred(path: Path, patience: float = NEVER) -> Recorder:
    return Recorder(path, store=LateStore(patience), values="health")


def store_of(recorder: Recorder) -> LateStore:
    assert isinstance(recorder.store, LateStore)
    return recorder.store


def test_what_was_given_up_leaves_nothing(tmp_path: Path) -> None:
    recorder = deferred(tmp_path / "new" / "t.agviz")
    record(recorder)
    store_of(recorder).give_up()
    recorder.close()
    assert not recorder.flush()
    assert list(tmp_path.iterdir()) == []
    assert not recorder.is_recording


def test_a_file_that_was_made_goes_with_its_folder_and_nothing_else_does(tmp_path: Path) -> None:
    for folder in "new", "old", "other":
        recorder = deferred(tmp_path / folder / "t.agviz")
        if folder == "old":
            (tmp_path / folder).mkdir()
        record(recorder)
        assert recorder.flush()
        assert (tmp_path / folder / "t.agviz").exists()
        if folder == "other":
            (tmp_path / folder / "mine").touch()
        store_of(recorder).give_up()
    assert sorted(tmp_path.rglob("*")) == [
        tmp_path / "old",
        tmp_path / "other",
        tmp_path / "other" / "mine",
    ]


def test_the_file_holds_what_was_in_memory_and_what_comes_after(tmp_path: Path) -> None:
    recorder = deferred(tmp_path / "t.agviz")
    record(recorder, passes=2)
    in_memory = list(store_of(recorder).measured() or ())
    assert not (tmp_path / "t.agviz").exists()
    recorder.flush()
    assert store_of(recorder).measured() is None
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.executed for task in trace.graph_tasks] == [4, 4]
        rows = trace.health()
    assert len(rows) == len(in_memory)
    assert sorted(row.norm or 0 for row in rows) == sorted(each.norm or 0 for each in in_memory)
    assert max(row.norm or 0 for row in rows) > 1e7
    record(recorder)
    recorder.close()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.executed for task in trace.graph_tasks] == [4, 4, 4]
        assert trace.meta.end_ns is not None
        assert trace.event_count() > 0


def test_the_file_is_made_in_time_while_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr("agviz.record.late_store._clock", clock)
    paths = [tmp_path / f"{number}.agviz" for number in range(4)]
    late, given_up, *others = [
        deferred(path, patience)
        for path, patience in zip(paths, (NEVER, 0.2, 0.2, 0.1), strict=True)
    ]
    for recorder in (late, given_up, *others):
        record(recorder)
    store_of(given_up).give_up()
    deadline = time.monotonic() + 30
    while not all(path.exists() for path in paths[2:]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for recorder in others:
        recorder.flush()
    assert [path.exists() for path in paths] == [False, False, True, True]
    for recorder in others:
        recorder.close()
    store_of(late).give_up()
    thread = clock._thread
    assert thread is not None
    last = deferred(tmp_path / "last.agviz", 0.01)
    store_of(last).give_up()
    thread.join(30)
    assert not thread.is_alive()
    assert clock._thread is None


def test_a_place_that_cannot_be_written_is_told_and_ends_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    recorder = deferred(tmp_path / "file" / "t.agviz")
    record(recorder)
    assert not recorder.flush()
    assert "file can't be made: " in store_of(recorder).problem
    assert "the program goes on" in caplog.text
    record(recorder)
    recorder.close()
    store_of(recorder).give_up()


def test_a_forked_child_writes_nothing_and_can_record_for_itself(tmp_path: Path) -> None:
    recorder = deferred(tmp_path / "parent.agviz")
    record(recorder)
    child = os.fork()
    if not child:
        code = 1
        try:
            recorder.flush()
            own = deferred(tmp_path / "child.agviz", 0.05)
            record(own)
            own.close()
            code = int((tmp_path / "parent.agviz").exists())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    recorder.close()
    assert os.waitstatus_to_exitcode(status) == 0
    for name in "parent", "child":
        with Trace.open(tmp_path / f"{name}.agviz") as trace:
            assert len(trace.graph_tasks) == 1
