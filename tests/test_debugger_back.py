"""Going back in a program that is debugged, and taking back what was changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz.analysis.failure import failed_graph_tasks
from agviz.analysis.verdict import verdicts
from agviz.cli.summary import gather
from agviz.debugger.breakpoints import parse
from agviz.debugger.client import RefusedError
from agviz.errors import AgvizError
from agviz_engine import events
from tests.debugger_support import PRODUCT, TRAIN, debug, finish, natively, result, trace_of
from tests.engine.oracle import same_value

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee
    from agviz.debugger.messages import Stopped

HOOKED = """
import torch
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
x = torch.tensor([4.0, 5.0, 6.0])
y = w * 1
y.register_hook(lambda g: print("hook", g.tolist()))
(y * x).sum().backward()
torch.save([w.grad], "result.pt")
print("done")
"""

FAILING = """
import torch
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
x = torch.tensor([4.0, 5.0, 6.0])
y = w.exp()
failing = [True]

def hook(gradient):
    if failing.pop() if failing else False:
        raise ValueError("the first time")

y.register_hook(hook)
(y * x).sum().backward()
torch.save([w.grad], "result.pt")
print("done")
"""

INSIDE = """
import torch
from torch.utils.checkpoint import checkpoint
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(checkpoint(torch.exp, w * 1, use_reentrant=True) * 2).sum().backward()
torch.save([w.grad], "result.pt")
print("done")
"""


def first_stop(debuggee: Debuggee) -> tuple[Client, Stopped]:
    client = debuggee.client
    client.set_stops(first=True)
    return client, client.next_stop()


def to(client: Client, name: str) -> Stopped:
    """Step until a node of this name is next."""
    while True:
        client.step()
        stop = client.next_stop()
        if stop.name.endswith(name):
            return stop


ASKED = """\
import json, agviz_engine.thread_state as state
task = state.current().current_graph_task
print(json.dumps([task.dependencies, sorted(task.not_ready), task.executed]))
"""


def check_state(debuggee: Debuggee, client: Client) -> None:
    """The state that the trace has at this stop is what the engine holds."""
    (stop,) = client.where()
    waiting = client.ready_nodes()
    printed, _ = client.shell(ASKED)
    dependencies, not_ready, executed = json.loads(printed)
    with trace_of(debuggee) as trace:
        number = stop.graph_task
        state = trace.state_at(number, trace.event_count(number))
        assert state.seq == stop.seq
        assert state.running() == {stop.thread: ((number, stop.node),)}
        queued = [task.node for queue in state.queues() for task in queue.tasks]
        assert queued[:1] == waiting[:1]
        assert sorted(queued) == sorted(waiting)
        nodes = range(len(dependencies))
        assert [state.remaining(number, node) for node in nodes] == dependencies
        assert set(state.buffers(number)) - {*queued, stop.node} == {*not_ready}
        assert state.executed(number) == executed


def check_events(debuggee: Debuggee) -> None:
    """All events of the trace are possible, one after the other."""
    with trace_of(debuggee) as trace:
        state = trace.replay()
        for event in trace.events(limit=100_000):
            state.apply(event)


def test_a_pass_goes_back_and_ends_as_if_it_had_not(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN, "--back") as debuggee:
        client, first = first_stop(debuggee)
        for _ in range(6):
            client.step()
            client.next_stop()
        client.set_stops(exceptions=True)
        went = client.back(1)
        assert (went.node, went.nodes, went.python, went.against) == (1, 6, (), ())
        stop = client.next_stop()
        assert (stop.node, stop.event, stop.reasons) == (1, "NodeStarted", ("back",))
        assert stop.graph_task == first.graph_task + 1
        client.step()
        client.next_stop()
        client.go_on()
        assert finish(debuggee) == "done\n"
        assert all(map(same_value, result(tmp_path), natively(TRAIN)))
        with trace_of(debuggee) as trace:
            before, again, *rest = trace.graph_tasks
            assert before.error == "GoBack"
            assert before.message == "it was run again from PowBackward0 (node 1) on"
            assert (again.error, again.executed) == ("", rest[0].executed)
            assert failed_graph_tasks(trace) == []
            summed_up = gather(trace, None, 5)
            assert (summed_up["graph_tasks"]["failed"], summed_up["errors"]) == (0, [])
            assert {each["status"] for each in summed_up["graph_tasks"]["shown"]} == {
                "went back",
                "finished",
            }
            (said,) = verdicts(trace)
            assert "All came to their end but 1 that went back and ran on as the next" in (
                said.paragraph
            )
            marks = [e for e in trace.events(limit=100_000) if isinstance(e, events.Intervened)]
            assert [(m.graph_task, m.node, m.kind, m.slot) for m in marks] == [
                (again.id, 1, "back", before.id)
            ]


@pytest.mark.slow
def test_without_a_node_it_is_the_one_that_ran_last(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT, "--back") as debuggee:
        client, stop = first_stop(debuggee)
        with pytest.raises(RefusedError, match="no node ran before this one"):
            client.back()
        stop = to(client, "AccumulateGrad")
        for _ in range(3):
            client.back()
            stop = client.next_stop()
            assert stop.name == "MulBackward0"
            stop = to(client, "AccumulateGrad")
        client.go_on()
        finish(debuggee)
        assert all(map(same_value, result(tmp_path), natively(PRODUCT)))


@pytest.mark.slow
def test_a_gradient_changed_on_the_second_run_is_what_counts(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT, "--back") as debuggee:
        client, _ = first_stop(debuggee)
        to(client, "MulBackward0")
        client.change(0, "multiply", 100)
        stop = to(client, "AccumulateGrad")
        assert client.tensor("input", "0").text == "[400, 500, 600]"
        client.back()
        stop = client.next_stop()
        assert stop.name == "MulBackward0"
        assert client.tensor("input", "0").text == "[1, 1, 1]"
        client.change(0, "multiply", 10)
        client.go_on()
        finish(debuggee)
        (gradient,) = result(tmp_path)
        assert gradient.tolist() == [40, 50, 60]


@pytest.mark.slow
@pytest.mark.parametrize("values", ["health", "none"])
def test_the_trace_has_the_state_that_the_engine_holds(tmp_path: Path, values: str) -> None:
    with debug(tmp_path, TRAIN, "--back", "--values", values) as debuggee:
        client, _ = first_stop(debuggee)
        for _ in range(7):
            client.step()
            client.next_stop()
        for node in (4, 2, 1, 0):
            client.back(node)
            client.next_stop()
            check_state(debuggee, client)
            client.step()
            client.next_stop()
            check_state(debuggee, client)
            for _ in range(2):
                client.step()
                client.next_stop()
            check_state(debuggee, client)
        client.go_on()
        finish(debuggee)
        assert all(map(same_value, result(tmp_path), natively(TRAIN)))
        check_events(debuggee)


@pytest.mark.slow
def test_python_that_ran_is_named_and_runs_again(tmp_path: Path) -> None:
    with debug(tmp_path, HOOKED, "--back") as debuggee:
        client, _ = first_stop(debuggee)
        to(client, "AccumulateGrad")
        went = client.back(0)
        (said,) = went.python
        assert said.startswith("MulBackward0 (node ")
        assert said.endswith("hooks <lambda>")
        client.next_stop()
        client.go_on()
        assert finish(debuggee) == "hook [4.0, 5.0, 6.0]\n" * 2 + "done\n"


@pytest.mark.slow
def test_another_order_and_no_hooks_the_second_time(tmp_path: Path) -> None:
    with debug(tmp_path, HOOKED, "--back") as debuggee:
        client, _ = first_stop(debuggee)
        to(client, "AccumulateGrad")
        client.back()
        assert client.next_stop().name == "MulBackward0"
        client.skip_hooks()
        client.go_on()
        assert finish(debuggee) == "hook [4.0, 5.0, 6.0]\ndone\n"


@pytest.mark.slow
def test_it_goes_back_from_an_exception(tmp_path: Path) -> None:
    with debug(tmp_path, FAILING, "--back") as debuggee:
        client, _ = first_stop(debuggee)
        client.set_stops(exceptions=True)
        client.go_on()
        assert client.next_stop().event == "NodeFailed"
        client.back()
        assert client.next_stop().name == "MulBackward0"
        client.go_on()
        assert finish(debuggee) == "done\n"
        (gradient,) = result(tmp_path)
        expected = torch.tensor([1.0, 2.0, 3.0]).exp() * torch.tensor([4.0, 5.0, 6.0])
        assert torch.equal(gradient, expected)


@pytest.mark.slow
def test_a_pass_inside_is_not_undone_unless_that_is_forced(tmp_path: Path) -> None:
    with debug(tmp_path, INSIDE, "--back") as debuggee:
        client, first = first_stop(debuggee)
        stop = first
        while not (stop.name.endswith("AccumulateGrad") and stop.graph_task == first.graph_task):
            client.step()
            stop = client.next_stop()
        with pytest.raises(RefusedError) as refused:
            client.back(0)
        assert str(refused.value).startswith("what ran since then can't be undone: ")
        assert str(refused.value).endswith("began a backward pass inside")
        assert len(client.back(0, force=True).against) == 1
        assert client.next_stop().node == 0
        client.go_on()
        finish(debuggee)


def refusals(client: Client, **arguments: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        client.back(**arguments)
    return str(refused.value)


@pytest.mark.slow
def test_what_can_not_be_gone_back_to_is_said_in_a_sentence(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN, "--back", "--max-back-bytes", "300") as debuggee:
        client, first = first_stop(debuggee)
        assert refusals(client, node=99) == "there is no node 99 in this pass"
        assert refusals(client, node=2) == "AddmmBackward0 in 2 (node 2) has not run yet"
        for _ in range(6):
            client.step()
            client.next_stop()
        assert refusals(client, node=0).startswith(
            "SumBackward0 (node 0) ran before all that is kept, for "
        )
        client.until(first.graph_task, -1)
        client.next_stop()
        assert "this stop is at none" in refusals(client)
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_nothing_is_kept_without_the_option(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client, _ = first_stop(debuggee)
        client.step()
        client.next_stop()
        assert refusals(client).endswith("start the program with: agviz run --live --back")
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_the_native_engine_does_not_go_back(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT, "--engine", "native") as debuggee:
        client, _ = first_stop(debuggee)
        assert refusals(client) == (
            "a pass goes back only with agviz's own engine; this is torch's, observed"
        )
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
def test_changes_are_taken_back_one_by_one(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        with pytest.raises(RefusedError, match="no gradient was changed at this stop"):
            client.undo()
        client.change(0, "multiply", 10)
        client.change(0, "fill", 3)
        slot, health = client.undo()
        assert health is not None
        assert (slot, health.max) == (0, 10.0)
        assert client.tensor("input", "0").text == "[10, 10, 10]"
        client.undo()
        assert client.tensor("input", "0").text == "[1, 1, 1]"
        client.go_on()
        finish(debuggee)
        assert all(map(same_value, result(tmp_path), natively(PRODUCT)))
        with trace_of(debuggee) as trace:
            assert not any(
                isinstance(event, events.Intervened) for event in trace.events(limit=100_000)
            )


@pytest.mark.slow
def test_a_second_run_is_no_further_step_of_those_that_are_recorded(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN, "--back", "--steps", "1:2") as debuggee:
        client, first = first_stop(debuggee)
        assert first.graph_task == 1
        for _ in range(4):
            client.step()
            client.next_stop()
        client.back(1)
        assert client.next_stop().graph_task == 2
        check_state(debuggee, client)
        client.go_on()
        finish(debuggee)
        assert all(map(same_value, result(tmp_path), natively(TRAIN)))
        check_events(debuggee)
        with trace_of(debuggee) as trace:
            assert [(task.id, task.error) for task in trace.graph_tasks] == [(1, "GoBack"), (2, "")]


REFUSED = {
    "--max-back-bytes=1MB": "--max-back-bytes is for --back; say that, too",
    "--back --engine=native": (
        "--back needs agviz's own engine; --engine native is torch's, observed"
    ),
}


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: str) -> None:
    with pytest.raises(AgvizError, match=REFUSED[options]):
        debug(tmp_path, PRODUCT, *options.split())
