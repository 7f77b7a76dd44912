"""Stack dumps, call sites and version errors in a file that may come from anyone."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.analysis.failure import failure
from agviz.errors import TraceError
from agviz.record.frame_locals import OWN_THREADS
from agviz.traces.dumps import SIGNAL
from agviz.traces.reader import Trace
from tests.test_trace_hostile import changed, read_everything, refuse, told

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with some of everything, one backward pass of which has not ended."""
    path = tmp_path_factory.mktemp("good") / "t.agviz"
    opened, entered = threading.Event(), threading.Event()

    def hook(_: torch.Tensor) -> None:
        entered.set()
        assert opened.wait(60)

    def stuck() -> None:
        y = torch.ones(3, requires_grad=True).exp()
        y.register_hook(hook)
        y.sum().backward()

    thread = threading.Thread(target=stuck, name="stuck")
    with agviz.trace(path=path) as t:
        y = torch.ones(3, requires_grad=True).exp()
        loss = y.sum()
        y += 1
        with contextlib.suppress(RuntimeError):
            loss.backward()
        thread.start()
        assert entered.wait(60)
        recorder = t._recording.recorder
        assert recorder is not None
        recorder.dump(SIGNAL)
        assert recorder.flush()
    opened.set()
    thread.join()
    return path.read_bytes()


def test_the_good_file_is_good(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(good)
    assert {"signal", "stuck", "hook", "result"} <= set(read_everything(path))
    with Trace.open(path) as trace:
        (dump,) = trace.dumps()
        found = failure(trace)
    (stuck,) = (thread for thread in dump.threads if thread.name == "stuck")
    assert [call.kind for call in stuck.calls] == ["node", "tensor_pre"]
    assert stuck.frame is not None
    assert stuck.frame.function == "hook"
    assert not any(t.name.startswith(OWN_THREADS) for t in dump.threads)
    assert found is not None
    assert "the recording ended" in found.heading


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE call_site SET stack = 424242",
        "UPDATE call_site SET stack = -1",
        "UPDATE dump SET t = 'soon'",
        "UPDATE dump SET reason = 424242",
        "UPDATE dump_thread SET stack = 424242",
        "UPDATE dump_thread SET name = NULL",
        "UPDATE dump_thread SET native_id = x'00'",
        "UPDATE dump_call SET definition = 424242",
        "UPDATE dump_call SET kind = 424242",
        "UPDATE dump_call SET node = 'x'",
        "UPDATE version_error SET expected = NULL",
        "UPDATE version_error SET name = 424242",
        "UPDATE version_error SET shape = name",
    ],
)
def test_lies_are_noticed(good: bytes, tmp_path: Path, lie: str) -> None:
    assert "damaged" in refuse(told(tmp_path / "t.agviz", good, lie))


@pytest.mark.parametrize(
    "lie",
    [
        "DELETE FROM dump_thread",
        "DELETE FROM dump",
        "DELETE FROM event",
        "DELETE FROM thread",
        "DELETE FROM edge",
        "DELETE FROM node",
        "DELETE FROM call_site",
        "DELETE FROM version_error",
        "UPDATE dump_call SET graph_task = 9999, node = 9999",
        "UPDATE dump_thread SET native_id = 1",
        "UPDATE version_error SET node = 9999",
        "UPDATE version_error SET memory = 9999, version = -5",
        "UPDATE event SET thread = 4242",
        "UPDATE graph_task SET thread = 4242",
        "UPDATE graph_task SET parent = id, end_t = NULL, end_seq = NULL, error = 0",
        "UPDATE node SET sequence_nr = 1, topological_nr = 1",
    ],
)
def test_nonsense_is_told_or_refused(good: bytes, tmp_path: Path, lie: str) -> None:
    path = changed(tmp_path / "t.agviz", good, lie)
    try:
        with Trace.open(path) as trace:
            numbers = [None, *(task.id for task in trace.graph_tasks)]
            for found in [failure(trace, number) for number in numbers]:
                if found is not None:
                    assert found.paragraph.isprintable()
                    assert all(line.isprintable() for line in found.details())
                    assert found.as_json()
    except TraceError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is right
