"""A program that a debugger has stopped does not hang, and its trace says who holds it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.hang import hang
from agviz.analysis.outcome import Outcome
from agviz.cli.main import main
from agviz.debugger.breakpoints import parse
from agviz.traces.held import held_ns
from agviz.traces.reader import Trace
from agviz.traces.rows import HeldRow
from agviz.tui.live_app import LiveApp
from agviz.tui.screens.answer import Answer
from tests.debugger_support import PLANTED, PRODUCT, debug, finish, trace_of, wait_until
from tests.live_support import press, stands, until
from tests.test_trace_hostile import changed, read_everything, refuse, told

if TYPE_CHECKING:
    from pathlib import Path

HOUR_NS = 3_600 * 10**9

THREADS = """
import threading
import torch
def work(scale):
    x = torch.ones(3, requires_grad=True)
    (x * scale).exp().sum().backward()
threads = [threading.Thread(target=work, args=(i,), name=f"worker {i}") for i in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("done")
"""


def explained(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What ``agviz explain`` says, on one line."""
    code = main(["explain", str(path)])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_stop_is_not_a_hang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with debug(tmp_path, PRODUCT, "--timeout", "0.3", "--stop-on-timeout") as debuggee:
        path = debuggee.client.hello.trace
        debuggee.client.add_breakpoint(parse("MulBackward0"))
        stop = debuggee.client.next_stop()
        code, said = explained(path, capsys)
        where = f"backward pass 0 is stopped by the debugger at MulBackward0 (node {stop.node})"
        assert said.startswith(f"? {where}")
        assert "(breakpoint)" in said
        assert code == 2, "can't be told yet"
        assert "✓" not in said
        assert "✗" not in said
        with trace_of(debuggee) as trace:
            later = hang(trace, time.monotonic_ns() + HOUR_NS)
        assert later is not None
        assert later.is_stopped
        assert not later.is_over_due
        assert "held by the debugger for 3,600 s" in later.paragraph
        assert later.as_json()["stopped"]["reason"] == "breakpoint"
        time.sleep(1.0)  # longer than the timeout: a program that the debugger holds is not stopped
        debuggee.client.go_on()
        assert finish(debuggee) == "done\n"
        with Trace.open(path) as trace:
            (held,) = trace.held()
            assert trace.dumps() == []
        assert held.end_ns is not None
        assert held.end_ns - held.time_ns > 0.9e9


@pytest.mark.slow
def test_all_threads_are_held_where_one_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with debug(tmp_path, THREADS) as debuggee:
        debuggee.client.add_breakpoint(parse("ExpBackward0"))
        stop = debuggee.client.next_stop()
        path = debuggee.client.hello.trace
        heading = (
            f"? backward pass {stop.graph_task} is stopped by the debugger at ExpBackward0"
            f" (node {stop.node})"
        )
        code, said = explained(path, capsys)
        assert (code, said[: len(heading)]) == (2, heading)
        with trace_of(debuggee) as trace:
            later = hang(trace, time.monotonic_ns() + HOUR_NS)
        assert later is not None
        assert later.is_stopped


@pytest.mark.slow
def test_where_it_was_killed_at_a_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with debug(tmp_path, PLANTED) as debuggee:
        debuggee.client.set_stops(nonfinite="first")
        debuggee.client.next_stop()
        path = debuggee.client.hello.trace
        code, said = explained(path, capsys)
        assert code == 1, "a gradient is not finite"
        assert "backward pass 1 is stopped by the debugger at SqrtBackward0" in said
        assert said.startswith("✗ sqrt at zero"), "what was found comes first"
        assert "So far it has reached 0 of 2 parameters." in said
        debuggee.process.send_signal(signal.SIGKILL)
        debuggee.process.wait()
    code, said = explained(path, capsys)
    assert code == 1
    assert "was stopped by the debugger at SqrtBackward0" in said
    assert "when the recording was cut off" in said
    assert "✗ sqrt at zero" in said
    assert "had been held by the debugger (non-finite)." in said, "for how long is not known"
    assert "stood still" not in said


RAISING = {
    "a node": (
        """
class Looked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return {}[8]
made = Looked.apply(x)
""",
        "failed in LookedBackward",
        "KeyError: 8.",
    ),
    "a hook": (
        """
made = x * 2
def clip(gradient):
    raise ValueError("far too large")
made.register_hook(clip)
""",
        "failed in the tensor hook clip of MulBackward0",
        "far too large.",
    ),
    "what was modified": (
        """
made = x.exp()
made.add_(1)
""",
        "modified by an inplace operation, what ExpBackward0",
        "at version 0, and found it at version 1",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(RAISING))
def test_why_at_an_exception_tells_it_before_the_program_sees_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, heading, reason = RAISING[kind]
    program = f"import torch\nx = torch.ones(3, requires_grad=True)\n{text}"
    caught = "try:\n    made.sum().backward()\nexcept Exception:\n    print('caught')\n"
    with debug(tmp_path, program + caught, "--check-forward") as debuggee:
        debuggee.client.set_stops(exceptions=True)
        debuggee.client.next_stop()
        path = debuggee.client.hello.trace
        code, said = explained(path, capsys)
        assert code == 1
        assert said.startswith("✗ "), "what was found comes first"
        assert heading in said[: said.index("program.py:")]
        assert reason in said
        assert "? backward pass 0 is stopped by the debugger" in said
        assert "waits for the end of backward pass" not in said, "the debugger holds that thread"
        debuggee.client.go_on()
        assert finish(debuggee) == "caught\n"
    code, said = explained(path, capsys)
    assert code == 1
    assert heading in said
    assert "stopped by the debugger" not in said


@pytest.mark.slow
def test_the_time_at_stops_is_no_time_without_an_event(tmp_path: Path) -> None:
    """Where a pass really hangs after a stop, only the time since counts."""
    text = PRODUCT.replace(
        "product = w * x",
        "import time\nproduct = w * x\nproduct.register_hook(lambda g: time.sleep(600))",
    )
    with debug(tmp_path, text) as debuggee:
        debuggee.client.add_breakpoint(parse("SumBackward0 event=NodeFinished"))
        debuggee.client.next_stop()
        time.sleep(1.5)
        debuggee.client.go_on()
        with trace_of(debuggee) as trace:
            wait_until(lambda: all(row.end_ns is not None for row in trace.held()))
            (held,) = trace.held()
            assert held.end_ns is not None
            found = hang(trace, held.end_ns + 4 * 10**9)
            assert found is not None
            assert not found.is_stopped
            assert not found.is_over_due
            assert found.still_ns < 4.5e9
            assert hang(trace, held.end_ns + 6 * 10**9).is_over_due  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_why_at_a_stop_explains_the_nan(tmp_path: Path, size: tuple[int, int]) -> None:
    with debug(tmp_path, PLANTED) as debuggee:
        app = LiveApp(debuggee.client, debuggee, tmp_path)
        async with app.run_test(size=size) as pilot:
            await until(pilot, stands, 60.0)
            await press(pilot, "w")
            answer = pilot.app.screen
            assert isinstance(answer, Answer)
            told = answer.answer.verdicts[0]
            assert "is stopped by the debugger at" in told.heading
            assert told.outcome is Outcome.CANT_TELL, "it has not ended"
            await press(pilot, "escape", "c")
            await until(pilot, lambda session: stands(session, 1))
            await press(pilot, "w")
            answer = pilot.app.screen
            assert isinstance(answer, Answer)
            told = answer.answer.verdicts[0]
            assert told.is_found
            assert told.heading.startswith("sqrt at zero")
            assert told.line.startswith("program.py:9")
            await press(pilot, "escape")


def test_overlapping_stops_are_counted_once() -> None:
    def row(begin: int, end: int | None) -> HeldRow:
        return HeldRow(begin, 0, 0, 0, "step", end)

    rows = [row(10, 20), row(15, 30), row(17, 18), row(50, 60), row(90, None)]
    assert held_ns(rows, 0, 100) == 20 + 10 + 10
    assert held_ns(rows, 12, 55) == 18 + 5
    assert held_ns(rows, 31, 49) == 0
    assert held_ns([], 0, 100) == 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of a program that was killed where a debugger held it."""
    folder = tmp_path_factory.mktemp("stopped")
    with debug(folder, PRODUCT) as debuggee:
        debuggee.client.add_breakpoint(parse("MulBackward0"))
        debuggee.client.next_stop()
        debuggee.process.send_signal(signal.SIGKILL)
        debuggee.process.wait()
        path = debuggee.client.hello.trace
    with Trace.open(path):
        pass
    import sqlite3

    whole = sqlite3.connect(path)
    whole.execute("PRAGMA journal_mode = DELETE")
    whole.close()
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE held SET t = 'soon'",
        "UPDATE held SET reason = 424242",
        "UPDATE held SET thread = NULL",
        "UPDATE held SET node = x'00'",
        "UPDATE held SET end_t = 'late'",
    ],
)
def test_lies_are_noticed(stopped: bytes, tmp_path: Path, lie: str) -> None:
    assert "damaged" in refuse(told(tmp_path / "t.agviz", stopped, lie))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE held SET node = 9999",
        "UPDATE held SET graph_task = 9999",
        "UPDATE held SET graph_task = -1, node = -1",
        "UPDATE held SET thread = 4242",
        "UPDATE held SET end_t = 0",
        "UPDATE held SET t = -9000000000000000000",
    ],
)
def test_nonsense_is_told(stopped: bytes, tmp_path: Path, lie: str) -> None:
    path = changed(tmp_path / "t.agviz", stopped, lie)
    assert "breakpoint" in read_everything(path)
    with Trace.open(path) as trace:
        found = hang(trace)
    assert found is not None
    assert found.heading.isprintable()
    assert found.paragraph.isprintable()
