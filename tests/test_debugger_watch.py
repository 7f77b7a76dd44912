"""Values of expressions at stops, data breakpoints and log points, over the real channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from agviz.debugger.breakpoints import parse
from agviz.debugger.client import RefusedError
from agviz.debugger.debugger import MOST_LOGGED
from agviz.debugger.messages import Logged, Stopped
from tests.debugger_support import TRAIN, debug, finish, natively, result, trace_of

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.debugger.client import Client

ENGINES = pytest.mark.parametrize(
    "engine", ["exact", pytest.param("native", marks=pytest.mark.slow)]
)
GROWS = TRAIN.replace(
    "loss = hidden", "scale = 100.0 if step == 2 else 1.0\n    loss = scale * hidden"
)


def norms(text: str = TRAIN) -> list[float]:
    """What torch says of the norm of the last weight's gradient after each pass of a program."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step in range(3):
        scale = 100.0 if step == 2 and text == GROWS else 1.0
        loss = scale * model(torch.randn(5, 4)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        found.append(model[2].weight.grad.norm().item())  # type: ignore[union-attr, operator]
        optimizer.step()
    return found


def same(folder: Path, text: str) -> bool:
    """Whether a debugged program has left bit for bit what Python alone leaves."""
    ours, native = result(folder), natively(text)
    return len(ours) == len(native) and all(map(torch.equal, ours, native))


def logged(client: Client) -> list[Logged]:
    """What log points say until the program ends."""
    found = []
    while True:
        notice = client.next_notice()
        if isinstance(notice, Logged):
            found.append(notice)
        elif not isinstance(notice, Stopped):
            return found


@ENGINES
def test_expressions_have_values_at_a_stop(tmp_path: Path, engine: str) -> None:
    with debug(tmp_path, TRAIN, "--engine", engine) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("event=LeafAccumulated parameter=2.weight"))
        for norm in norms():
            client.next_stop()
            texts = (
                "2.weight.grad.norm()",
                "norm",
                "2.weight.grad is None",
                "2.weight",
                "7.weight.norm()",
                "1 +",
            )
            values = client.values(*texts)
            assert [each.is_known for each in values] == [True, True, True, True, False, False]
            assert values[0].text == f"{norm:.6g}"
            assert float(values[1].text) == pytest.approx(norm, rel=1e-5)
            assert values[2].text == "False"
            assert values[3].text.startswith("[2, 8] float32, norm ")
            assert "no parameter 7.weight is known" in values[4].text
            client.go_on()
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, TRAIN)


@pytest.mark.slow
@ENGINES
def test_a_data_breakpoint_stops_where_its_bound_is_passed(tmp_path: Path, engine: str) -> None:
    first, second, third = norms(GROWS)
    bound = f"2.weight.grad.norm() > {third / 2}"
    with debug(tmp_path, GROWS, "--engine", engine) as debuggee:
        client = debuggee.client
        changes = client.add_breakpoint(parse("when 2.weight.grad.norm() changes 10x"))
        passes = client.add_breakpoint(parse(f"when {bound}"))
        client.add_breakpoint(
            parse("when 0.weight.grad is None")
        )  # never, after its AccumulateGrad
        stop = client.next_stop()
        assert (stop.event, stop.parameter, stop.graph_task) == ("LeafAccumulated", "2.weight", 2)
        assert (stop.reasons, stop.breakpoints) == (
            ("breakpoint",),
            (changes.number, passes.number),
        )
        assert stop.passed == (
            f"2.weight.grad.norm() changes 10x: {second:.6g} → {third:.6g}",
            f"{bound}: {second:.6g} → {third:.6g}",
        )
        assert first < third / 2
        assert [each.hits for each in client.breakpoints()] == [1, 1, 0]
        client.go_on()
        assert finish(debuggee) == "done\n"
        with trace_of(debuggee) as trace:
            assert not any("changes" in str(event) for event in trace.events())
    assert same(tmp_path, GROWS)


@pytest.mark.slow
def test_a_bound_is_looked_at_at_the_end_of_a_pass_too(tmp_path: Path) -> None:
    text = TRAIN.replace("model = nn", "def halve(p):\n    p.grad = None\nmodel = nn").replace(
        "rate =", "model[2].weight.register_post_accumulate_grad_hook(halve)\nrate ="
    )
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("when 2.weight.grad is None or 0.weight.norm() > 1e9"))
        stop = client.next_stop()
        assert stop.passed[0].endswith("first → True")
        client.go_on()
        finish(debuggee)


@pytest.mark.slow
@ENGINES
def test_a_log_point_says_its_text_and_stops_nothing(tmp_path: Path, engine: str) -> None:
    with debug(tmp_path, TRAIN, "--engine", engine) as debuggee:
        client = debuggee.client
        made = client.add_breakpoint(
            parse(
                "event=LeafAccumulated parameter=2.weight log norm {norm}, {2.weight.grad.norm()}"
            )
        )
        client.add_breakpoint(parse("if 2.weight.norm() > 1e9 log never"))
        found = logged(client)
        assert [(each.graph_task, each.breakpoint) for each in found] == [
            (number, made.number) for number in range(3)
        ]
        for each, norm in zip(found, norms(), strict=True):
            assert each.name.endswith("AccumulateGrad")
            head, _, tail = each.text.partition(", ")
            assert float(head.removeprefix("norm ")) == pytest.approx(norm, rel=1e-5)
            assert tail == f"{norm:.6g}"
        assert finish(debuggee) == "done\n"
    assert same(tmp_path, TRAIN)


@pytest.mark.slow
def test_what_a_log_point_says_too_often_is_counted(tmp_path: Path) -> None:
    text = TRAIN.replace("range(3)", "range(200)")
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        made = client.add_breakpoint(parse(". log here"))
        client.add_breakpoint(parse("event=GraphTaskFinished ignore=199"))
        found = []
        while isinstance(notice := client.next_notice(), Logged):
            found.append(notice)
        assert isinstance(notice, Stopped)
        (hits,) = (each.hits for each in client.breakpoints() if each.number == made.number)
        assert hits == 200 * 11
        assert len(found) + sum(each.left_out for each in found) <= hits
        assert len(found) >= MOST_LOGGED
        client.go_on()
        finish(debuggee)
    assert same(tmp_path, text)


@pytest.mark.slow
def test_too_many_expressions_are_refused(tmp_path: Path) -> None:
    with debug(tmp_path, TRAIN) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        client.next_stop()
        with pytest.raises(RefusedError, match="at most"):
            client.values(*["norm"] * 201)
        client.go_on()
        finish(debuggee)
