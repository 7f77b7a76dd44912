"""The live debugger on programs in child processes, driven through its client."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.analysis.explanation import explain
from agviz.debugger.breakpoints import Breakpoint, parse
from agviz.debugger.client import GoneError, RefusedError
from agviz.debugger.launch import Debuggee
from agviz.debugger.messages import Said, Stopped
from agviz.errors import AgvizError
from agviz.traces.rows import NodeStatus
from agviz_engine import events
from tests.debugger_support import (
    CHAIN,
    CHECKPOINTED,
    ENVIRONMENT,
    FOUR_DEVICES,
    PLANTED,
    PRODUCT,
    TRAIN,
    debug,
    finish,
    natively,
    result,
    trace_of,
)

if TYPE_CHECKING:
    from pathlib import Path


def same(folder: Path, text: str) -> bool:
    """Whether a debugged program has left bit for bit what Python alone leaves."""
    ours, native = result(folder), natively(text)
    return len(ours) == len(native) and all(map(torch.equal, ours, native))


def events_of(debuggee: Debuggee) -> int:
    """Number of events in its trace by now."""
    with trace_of(debuggee) as trace:
        return trace.event_count()


@pytest.mark.slow
def test_steps_go_from_node_to_node_and_what_was_is_in_the_trace(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        stop = client.next_stop()
        assert stop.reasons == ("first backward",)
        assert (stop.event, stop.node, stop.name) == ("NodeStarted", 0, "SumBackward0")
        assert (stop.line, stop.graph_task) == ("program.py:10", 0)
        seen = [stop.name]
        for _ in range(3):
            client.step()
            stop = client.next_stop()
            assert stop.reasons == ("step",)
            seen.append(stop.name.rpartition(":")[2])
        assert seen == ["SumBackward0", "PowBackward0", "AddmmBackward0", "AccumulateGrad"]
        assert (stop.module, stop.parameter, stop.sequence_nr) == ("2", "2.bias", None)
        with trace_of(debuggee) as trace:
            state = trace.state_at(0, trace.event_count(0))
            assert state.seq == stop.seq
            assert state.status(0, stop.node or 0) is NodeStatus.RUNNING
            assert state.executed(0) == 3
        client.step("event")
        stop = client.next_stop()
        assert stop.event != "NodeStarted"
        client.go_on()
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, TRAIN)


def test_a_breakpoint_stops_before_the_node_runs(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN) as debuggee:
        client = debuggee.client
        made = client.add_breakpoint(parse("accumulategrad parameter=0.weight"))
        assert made.number == 1
        for step in range(3):
            stop = client.next_stop()
            assert (stop.reasons, stop.breakpoints) == (("breakpoint",), (1,))
            assert (stop.parameter, stop.graph_task) == ("0.weight", step)
            shown = client.shell("print(module.weight.grad, module is model)")[0]
            assert "NameError" in shown
            assert client.shell("print(module.weight.grad)") == ("None\n", False)
            client.until(step, -1)
            client.next_stop()
            assert client.breakpoints()[0].hits == step + 1
            client.go_on()
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, TRAIN)


SORTS = {
    "module=0": ["AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad"],
    "program.py:10": ["SumBackward0", "PowBackward0"],
    "event=LeafAccumulated parameter=2.weight": ["AccumulateGrad"],
    "node=0": ["SumBackward0"],
    "Addmm if shape[1] == 8": ["AddmmBackward0"],
    "if norm > 1e6": [],
    ". hit=4": ["AccumulateGrad"],
    ". ignore=9 device=-1": ["TBackward0", "AccumulateGrad"],
    "device=0": [],
}
"""Breakpoints, and the nodes of one backward pass at which each stops."""


@pytest.mark.slow
def test_breakpoints_of_every_sort(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN.replace("range(3)", f"range({len(SORTS) + 1})")) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        client.next_stop()
        client.until(0, -1)
        client.next_stop()
        for task, (text, expected) in enumerate(SORTS.items(), start=1):
            made = client.add_breakpoint(parse(text))
            seen = []
            while True:
                client.until(task, -1)
                stop = client.next_stop()
                if stop.reasons == ("until",):
                    break
                assert (stop.graph_task, stop.breakpoints) == (task, (made.number,))
                seen.append(stop.name.rpartition(":")[2])
            assert seen == expected, text
            client.remove_breakpoint(made.number)
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_a_temporary_breakpoint_goes_and_a_disabled_one_does_not_count(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        client.next_stop()
        once = client.add_breakpoint(parse("Tanh", temporary=True))
        off = client.add_breakpoint(Breakpoint(name="Addmm", enabled=False))
        client.go_on()
        assert client.next_stop().breakpoints == (once.number,)
        assert client.breakpoints() == [off]
        on = client.edit_breakpoint(off.number, enabled=True, ignore_count=1)
        assert (on.enabled, on.ignore_count) == (True, 1)
        client.go_on()
        assert client.next_stop().graph_task == 1
        assert client.breakpoints()[0].hits == 2
        assert client.remove_breakpoint(off.number).hits == 2
        with pytest.raises(RefusedError, match="there is no breakpoint 2"):
            client.remove_breakpoint(off.number)
        with pytest.raises(RefusedError, match="there is no breakpoint 99"):
            client.edit_breakpoint(99, enabled=False)
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_run_until_a_node_or_the_end_of_its_graph_task(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        client.next_stop()
        client.until(0, 7)
        stop = client.next_stop()
        assert (stop.reasons, stop.event, stop.node) == (("until",), "NodeStarted", 7)
        client.until(0, 0)
        stop = client.next_stop()
        assert (stop.reasons, stop.event, stop.graph_task) == (("until",), "GraphTaskFinished", 0)
        with pytest.raises(RefusedError, match="gradients can be changed only before a node runs"):
            client.change(0, "fill", 1.0)
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_a_changed_gradient_changes_the_parameters_gradient_as_by_hand(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        stop = client.next_stop()
        assert client.tensor("input", "0").text == "[1, 1, 1]"
        assert client.change(0, "multiply", 10).norm == pytest.approx(300**0.5)
        health = client.change(0, "set", -2.5, "1:")
        assert (health.min, health.max) == (-2.5, 10.0)
        assert client.tensor("input", "0", "0:2").text == "[10, -2.5]"
        client.go_on()
        finish(debuggee)
        (gradient,) = result(tmp_path)
        assert gradient.tolist() == [10 * 4, -2.5 * 5, -2.5 * 6]
        with trace_of(debuggee) as trace:
            marks = [e for e in trace.events(limit=100_000) if isinstance(e, events.Intervened)]
            assert [(m.node, m.kind, m.slot) for m in marks] == [(stop.node, "gradient", 0)]
            (row,) = [row for row in trace.health(0) if row.role == "replaced"]
            assert (row.slot, row.min, row.max) == (0, -2.5, 10.0)


CHANGES: list[tuple[str, float | str, str, list[float]]] = [
    ("fill", 0, "", [0.0, 0.0, 0.0]),
    ("fill", "inf", "", [float("inf")] * 3),
    ("multiply", -1, "", [-4.0, -5.0, -6.0]),
    ("set", 7, "-1", [4.0, 5.0, 42.0]),
]


@pytest.mark.slow
def test_ways_to_change_a_gradient(tmp_path: Path) -> None:
    text = """
import torch
x = torch.tensor([4.0, 5.0, 6.0])
found = []
for step in range(4):
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w * x).sum().backward()
    found.append(w.grad)
torch.save(found, "result.pt")
"""
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        for how, value, index, _ in CHANGES:
            client.next_stop()
            for wrong in (
                (0, "divide", 1.0, ""),
                (0, "fill", "one", ""),
                (3, "fill", 1.0, ""),
                (0, "set", 1.0, "9"),
                (0, "set", 1.0, "__import__('os')"),
            ):
                with pytest.raises(RefusedError):
                    client.change(*wrong)
            client.change(0, how, value, index)
            client.go_on()
        finish(debuggee)
    assert [each.tolist() for each in result(tmp_path)] == [each[3] for each in CHANGES]


@pytest.mark.slow
def test_what_was_made_infinite_by_hand_is_said_to_be(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        client.change(0, "fill", "inf")
        client.go_on()
        finish(debuggee)
        with trace_of(debuggee) as trace:
            found = explain(trace)
        assert found is not None
        assert found.finding is not None
        assert found.finding.pattern == "gradient changed by hand"
        assert found.node.short_name == "MulBackward0"
    assert result(tmp_path)[0].tolist() == [float("inf")] * 3


@pytest.mark.slow
def test_the_shell_sees_and_changes_what_the_node_is_given(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        assert client.shell("node.name(), len(grads)") == ("('MulBackward0', 1)\n", False)
        assert client.shell("def twice(g):") == ("", True)
        assert client.shell("    return g * 2") == ("", True)
        assert client.shell("") == ("", False)
        assert client.shell("grads[0] = twice(grads[0])") == ("", False)
        assert "ZeroDivisionError" in client.shell("1 / 0")[0]
        assert "go on or quit" in client.shell("exit()")[0]
        assert client.shell("import sys; sys.stderr.write('red\\x1b[31m')")[0].startswith(
            "red\ufffd"
        )
        assert "stays as it was" in client.shell("grads[0] = torch.zeros(2)")[0]
        assert "can't be None" in client.shell("grads[0] = None")[0]
        assert client.shell("grads[0].add_(1)")[0].startswith("tensor([3., 3., 3.]")
        client.go_on()
        finish(debuggee)
        with trace_of(debuggee) as trace:
            assert sum(isinstance(e, events.Intervened) for e in trace.events(limit=100_000)) == 1
    assert result(tmp_path)[0].tolist() == [12.0, 15.0, 18.0]


@pytest.mark.slow
def test_the_shell_takes_several_lines_at_once_and_completes_names(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        assert client.shell("for i in range(3): print(i)\n") == ("0\n1\n2\n", False)
        assert client.shell("a = 20\na + 1\na + 2") == ("21\n22\n", False)
        pasted = "def twice(x):\n    y = x\n\n    return 2 * y\n\ntwice(a)"
        assert client.shell(pasted) == ("40\n", False)
        said, more = client.shell("a = 1\n1 / 0\na = 2")
        assert ("ZeroDivisionError" in said, more) == (True, False)
        assert client.shell("a") == ("1\n", False), "what stands behind an error is not run"
        assert client.shell("a = 3\nprint(a")[1], "this waits for another line"
        assert client.shell(")") == ("3\n", False)
        assert "SyntaxError" in client.shell("a = = 1")[0]
        assert client.shell("x = ''.join(['a', 'b'])\nx") == ("'ab'\n", False)

        assert client.complete("gra") == ("grads",)
        assert client.complete("print(tw") == ("twice",)
        assert "grads[0].shape" in client.complete("grads[0].sh")
        assert "torch.nn.Linear" in client.complete("torch.nn.Lin")
        assert "node.next_functions" in client.complete("x = node.")
        assert not any("__" in name for name in client.complete("node."))
        assert "node.__class__" in client.complete("node.__cl")
        assert "for" in client.complete("fo")
        assert client.complete("nothing.at.all") == client.complete("1 + ") == ()
        assert client.complete("f().x") == client.complete("grads[7].") == ()
        client.shell("class Loud:\n    @property\n    def loud(self): print('read')\n\n")
        client.shell("loud = Loud()")
        assert client.complete("loud.l") == ("loud.loud",), "and it is not read"
        client.go_on()
        assert finish(debuggee) == "done\n"


@pytest.mark.slow
def test_python_that_does_not_end_is_interrupted(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        client.shell("while True: pass")
        asked = threading.Timer(1.0, client.interrupt)
        asked.start()
        assert "KeyboardInterrupt" in client.shell("")[0]
        asked.join()
        client.interrupt()  # nothing runs: nothing happens
        assert client.shell("6 * 7") == ("42\n", False)

        def never_ends() -> None:
            with pytest.raises(GoneError):
                client.shell("")

        endless = threading.Thread(target=never_ends)
        client.shell("while True: pass")
        endless.start()
        time.sleep(0.5)
        client.close()  # the viewer goes: the program goes on
        endless.join()
        assert finish(debuggee) == "done\n"
    assert result(tmp_path)[0].tolist() == [4.0, 5.0, 6.0]


@pytest.mark.slow
def test_a_backward_in_the_shell_runs_and_stops_nowhere(tmp_path: Path) -> None:
    with debug(tmp_path, FOUR_DEVICES) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("."))
        client.next_stop()
        client.shell("a = torch.ones(2, requires_grad=True)")
        client.shell("with torch.enable_grad(): loss = (a.exp() * 3).sum()")
        assert client.shell("") == ("", False)
        assert client.shell("loss.backward()") == ("", False)
        assert client.shell("a.grad.tolist()")[0] == "[8.154845237731934, 8.154845237731934]\n"
        client.remove_breakpoint(1)
        client.go_on()
        finish(debuggee)
    assert same(tmp_path, FOUR_DEVICES)


HOOKED = """
import torch
x = torch.ones(2, requires_grad=True)
y = x * 3
def doubles(g):
    print("doubles")
    return g * 2
def adds(g):
    print("adds")
    return g + 1
y.register_hook(doubles)
y.register_hook(adds)
y.sum().backward()
torch.save([x.grad], "result.pt")
"""


@pytest.mark.slow
def test_a_step_over_a_hook_and_hooks_left_out(tmp_path: Path) -> None:
    with debug(tmp_path, HOOKED) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        printed = ""
        for name in ("doubles", "adds"):
            client.step("hook")
            stop = client.next_stop()
            assert (stop.event, stop.details["name"]) == ("HookCalled", name)
            printed += debuggee.stdout.read().decode()
            assert printed.split()[-1] == name
        client.step("hook")
        assert client.next_stop().event == "NodeFinished"
        client.go_on()
        finish(debuggee)
    assert result(tmp_path)[0].tolist() == [9.0, 9.0]

    with debug(tmp_path, HOOKED) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        client.skip_hooks()
        client.go_on()
        assert finish(debuggee) == ""
        with trace_of(debuggee) as trace:
            kinds = [
                e.kind for e in trace.events(limit=100_000) if isinstance(e, events.Intervened)
            ]
            assert kinds == ["hooks"]
    assert result(tmp_path)[0].tolist() == [3.0, 3.0]


@pytest.mark.slow
def test_a_picked_node_runs_next_and_the_trace_replays(tmp_path: Path) -> None:
    text = """
import torch
x = torch.ones(3, requires_grad=True)
parts = [x.exp(), x.sin(), x.cos(), x.tanh()]
torch.stack(parts).sum().backward()
torch.save([x.grad], "result.pt")
"""
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("Tanh"))
        stop = client.next_stop()
        waiting = client.ready_nodes()
        assert len(waiting) == 3
        last = waiting[-1]
        client.run_next(last)
        with pytest.raises(RefusedError, match="does not wait"):
            client.run_next(stop.node or 0)
        client.step()
        assert client.next_stop().node == last
        client.remove_breakpoint(1)
        client.go_on()
        finish(debuggee)
        with trace_of(debuggee) as trace:
            (mark,) = [e for e in trace.events(limit=100_000) if isinstance(e, events.Intervened)]
            assert (mark.kind, mark.node) == ("next", last)
            for position in range(trace.event_count(0) + 1):
                trace.state_at(0, position)
    torch.testing.assert_close(result(tmp_path), natively(text))


@pytest.mark.slow
def test_it_stops_where_a_gradient_becomes_non_finite(tmp_path: Path) -> None:
    with debug(tmp_path, PLANTED) as debuggee:
        client = debuggee.client
        assert client.set_stops(nonfinite="first").nonfinite == "first"
        stop = client.next_stop()
        assert (stop.reasons, stop.name, stop.graph_task) == (
            ("non-finite",),
            "SqrtBackward0",
            1,
        )
        assert stop.line == "program.py:9"
        (output,) = [t for t in client.tensors() if t.what == "gradient"]
        assert output.health.posinf == stop.details["posinf"] != 0
        assert output.health.posinf + output.health.neginf == 8
        saved = client.tensor("saved", "result")
        assert (saved.health.zero, saved.health.shape) == (8, (2, 4))
        client.go_on()
        assert finish(debuggee) == "done\n"

    with debug(tmp_path, PLANTED) as debuggee:
        client = debuggee.client
        client.set_stops(nonfinite="every")
        names = []
        while not isinstance(notice := client.next_notice(), Said):
            names.append(notice.name)
            client.go_on()
        assert names[:2] == ["SqrtBackward0", "MulBackward0"]
        finish(debuggee)


def test_it_stops_at_an_exception_before_the_program_sees_it(tmp_path: Path) -> None:
    text = """
import torch
def fails(g):
    raise ValueError("no good")
x = torch.ones(2, requires_grad=True)
y = x.exp()
y.register_hook(fails)
try:
    y.sum().backward()
except ValueError as error:
    print("caught", error)
"""
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.set_stops(exceptions=True)
        stop = client.next_stop()
        assert (stop.reasons, stop.event) == (("exception",), "NodeFailed")
        assert (stop.details["error"], stop.details["message"]) == ("ValueError", "no good")
        assert debuggee.stdout.read() == b""
        client.go_on()
        assert finish(debuggee) == "caught no good\n"


@pytest.mark.slow
def test_a_stop_holds_all_threads_or_its_own(tmp_path: Path) -> None:
    with debug(tmp_path, FOUR_DEVICES) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("NegBackward0"))
        stop = client.next_stop()
        with pytest.raises(TimeoutError):  # what the others are in the midst of they may end
            client.next_notice(1.0)
        held = events_of(debuggee)
        with pytest.raises(TimeoutError):
            client.next_notice(1.0)
        assert events_of(debuggee) == held
        assert [each.thread for each in client.where()] == [stop.thread]
        client.set_stops(hold="one")
        threads = {stop.thread}
        while len(threads) < 2:
            threads.add(client.next_stop().thread)
        assert {each.thread for each in client.where()} >= threads
        client.step("event", thread=stop.thread)
        assert client.next_stop().thread == stop.thread
        for each in client.breakpoints():
            client.remove_breakpoint(each.number)
        client.set_stops(hold="all")
        client.go_on()
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, FOUR_DEVICES)


@pytest.mark.slow
def test_steps_of_one_thread_pass_over_the_others(tmp_path: Path) -> None:
    with debug(tmp_path, FOUR_DEVICES) as debuggee:
        client = debuggee.client
        client.add_breakpoint(Breakpoint(device=2, temporary=True))
        stop = client.next_stop()
        for _ in range(10):
            client.step("node", thread=stop.thread)
            assert client.next_stop().device == 2
        client.go_on()
        finish(debuggee)
    assert same(tmp_path, FOUR_DEVICES)


@pytest.mark.slow
def test_a_step_of_another_thread_lets_all_run_that_a_stop_holds(tmp_path: Path) -> None:
    with debug(tmp_path, FOUR_DEVICES) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("AbsBackward0"))
        client.set_stops(hold="one")
        stops = {client.next_stop().thread for _ in range(2)}
        assert len(stops) == 2
        for each in client.breakpoints():
            client.remove_breakpoint(each.number)
        while stops != {each.thread for each in client.where()}:
            stops.add(client.next_stop().thread)  # it came to the breakpoint meanwhile
        client.set_stops(hold="all")
        for thread in [*sorted(stops), *sorted(stops)]:
            client.step("node", thread=thread)  # all ran on with the first of them
            stop = client.next_stop()
            assert (stop.thread, stop.event) == (thread, "NodeStarted")
            assert [each.thread for each in client.where()] == [thread]
        client.go_on()
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, FOUR_DEVICES)


@pytest.mark.slow
def test_samples_are_of_the_tensors_at_a_stop(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("AccumulateGrad"))
        client.next_stop()
        (given,) = [each for each in client.tensors(samples=True) if each.what == "input"]
        assert given.sample is not None
        assert given.sample.first == ("4", "5", "6")
        assert len(given.sample.counts) == 32
        assert [place for place, count in enumerate(given.sample.counts) if count] == [0, 16, 31]
        assert all(each.sample is None for each in client.tensors())
        client.step("event")
        stop = client.next_stop()
        assert stop.event == "LeafAccumulated"
        found = {each.what: each for each in client.tensors(samples=True)}
        assert found["grad"].sample is not None
        assert found["grad"].sample.first == ("4", "5", "6")
        assert found["parameter"].health.shape == (3,)
        client.go_on()
        assert finish(debuggee) == "done\n"


@pytest.mark.slow
def test_reentrant_checkpointing_is_stepped_through(tmp_path: Path) -> None:
    with debug(tmp_path, CHECKPOINTED) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        seen = [client.next_stop()]
        while True:
            client.step()
            notice = client.next_notice()
            if not isinstance(notice, Stopped):
                break
            seen.append(notice)
        tasks = [stop.graph_task for stop in seen]
        assert set(tasks) == {0, 1}
        first = tasks.index(1)
        assert seen[first - 1].name == "CheckpointFunctionBackward"
        assert tasks[-1] == 0
        finish(debuggee)
    assert same(tmp_path, CHECKPOINTED)


@pytest.mark.slow
def test_a_chain_of_20_000_nodes(tmp_path: Path) -> None:
    with debug(tmp_path, CHAIN) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("node=19000"))
        stop = client.next_stop()
        assert (stop.node, stop.name) == (19_000, "MulBackward0")
        client.until(0, 19_990)
        assert client.next_stop().node == 19_990
        client.go_on()
        finish(debuggee)
    assert same(tmp_path, CHAIN)


@pytest.mark.slow
def test_a_pause_stops_at_the_next_event(tmp_path: Path) -> None:
    endless = TRAIN.replace("range(3)", "range(10**9)")
    with debug(tmp_path, endless) as debuggee:
        client = debuggee.client
        client.pause()
        assert client.next_stop().reasons == ("pause",)
        with pytest.raises(TimeoutError):
            client.next_notice(0.3)
        client.go_on()
        client.pause()
        client.next_stop()
        client.go_on()


@pytest.mark.slow
def test_what_needs_a_stop_is_refused_while_the_program_runs(tmp_path: Path) -> None:
    with debug(tmp_path, "input_ = 1\nimport time\ntime.sleep(30)") as debuggee:
        client = debuggee.client
        for ask in (client.step, client.go_on, client.tensors, lambda: client.until(0, 0)):
            with pytest.raises(RefusedError, match="nothing is stopped; the program runs"):
                ask()
        assert client.where() == []


@pytest.mark.slow
def test_a_program_that_can_not_begin_says_why(tmp_path: Path) -> None:
    with pytest.raises(AgvizError, match=r"there is no script program\.py"):
        Debuggee(["program.py"], cwd=tmp_path, env=ENVIRONMENT)
