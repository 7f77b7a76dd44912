"""``agviz dap`` on programs that run: started by the editor, or there before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.debugger.listening import address
from agviz.errors import AgvizError
from tests.dap_support import Adapter, Editor
from tests.debugger_support import ENVIRONMENT, is_running, save, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import sys
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for step in range(3):
        hidden = model(torch.ones(5, 4))
        loss = hidden.square().sum()  # line 12
        model.zero_grad()
        loss.backward()  # line 14
        print("step", step, flush=True)
    sys.exit(int(sys.argv[1]))


main()
"""
MODEL, LOSS, CALL, END = 11, 12, 14, 19


def gradients() -> tuple[torch.Tensor, torch.Tensor]:
    """What torch computes in the same program: of the model's output, and of its last weight."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    hidden = model(torch.ones(5, 4))
    hidden.retain_grad()
    hidden.square().sum().backward()
    grad, weight = hidden.grad, model[2].weight.grad
    assert grad is not None
    assert isinstance(weight, torch.Tensor)
    return grad, weight


def output(editor: Editor) -> str:
    """What the program has printed."""
    return "".join(
        each["body"]["output"]
        for each in editor.seen
        if each["event"] == "output" and each["body"]["category"] == "stdout"
    )


@pytest.mark.slow
def test_a_program_stops_at_a_line_and_ends_with_its_code(tmp_path: Path) -> None:
    path = save(tmp_path, PROGRAM)
    of_output, of_weight = gradients()
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py", args=["3"], env={"AGVIZ_OUTPUT": "live.agviz"})
        (made,) = editor.on_lines(path, MODEL)
        assert made["verified"]
        stop = editor.done()
        assert (stop["reason"], stop["hitBreakpointIds"]) == ("breakpoint", [made["id"]])
        frames = editor.stack()
        assert [(each["name"], each["line"]) for each in frames] == [
            ("#3 AddmmBackward0", MODEL),
            ("module 2", 0),
            ("main (forward)", MODEL),
            ("<module> (forward)", END),
            ("backward() #0", 0),
            ("main", CALL),
            ("<module>", END),
        ]
        assert frames[0]["source"]["path"] == str(path)
        given = editor.scope("Gradients in")["input 0"]
        numbers = editor.variables(given["variablesReference"])
        assert float(numbers["norm"]["value"]) == pytest.approx(of_output.norm().item(), rel=1e-6)
        assert float(numbers["max"]["value"]) == of_output.max().item()
        first = f"{of_output[0, 0].item():.4f}"
        assert first in numbers["elements"]["value"]
        saved = editor.scope("Saved tensors")
        assert saved["mat1"]["type"] == "float32 [5, 8]"

        frame = editor.stack()[0]["id"]
        ask = {"context": "repl", "frameId": frame}
        assert (
            editor.ask("evaluate", expression="node.name()", **ask)["result"] == "'AddmmBackward0'"
        )
        shown = editor.ask("evaluate", expression="grads[0].norm().item()", **ask)["result"]
        assert float(shown) == pytest.approx(of_output.norm().item())
        said = editor.ask("evaluate", expression="1 / 0", **ask)["result"]
        assert "ZeroDivisionError" in said
        editor.ask("evaluate", expression="grads[0].mul_(2)", **ask)
        given = editor.scope("Gradients in")["input 0"]
        assert float(editor.inside(given)["norm"]) == pytest.approx(2 * of_output.norm().item())
        editor.ask("evaluate", expression="grads[0].div_(2)", **ask)

        editor.on_lines(path)
        editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "parameter=2.weight"}])
        assert editor.go("continue")["reason"] == "breakpoint"
        facts = editor.scope("Parameter")
        assert facts["grad"]["value"] == "None"
        weight = editor.inside(editor.scope("Gradients in")["input 0"])
        assert float(weight["norm"]) == pytest.approx(of_weight.norm().item(), rel=1e-6)
        editor.go("stepIn")
        assert float(editor.inside(editor.scope("Parameter")["grad"])["norm"]) == pytest.approx(
            of_weight.norm().item(), rel=1e-6
        )
        editor.ask("setFunctionBreakpoints", breakpoints=[])
        editor.ask("continue", threadId=1)
        assert editor.event("exited") == {"exitCode": 3}
        editor.event("terminated")
        assert editor.refused("next", threadId=1) == "the program has ended"
        assert output(editor) == "step 0\nstep 1\nstep 2\n"
    assert (tmp_path / "live.agviz").exists()


@pytest.mark.slow
def test_a_program_can_be_looked_at_backwards(tmp_path: Path) -> None:
    save(tmp_path, PROGRAM)
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py", args=["0"], stopOnEntry=True)
        assert editor.done()["reason"] == "entry"
        names = [editor.stack()[0]["name"]]
        for _ in range(3):
            assert editor.go("next")["reason"] == "step"
            names.append(editor.stack()[0]["name"])
        assert names[:2] == ["#1 SumBackward0", "#2 PowBackward0"]
        for name in names[2:0:-1]:
            editor.go("stepBack")
            assert editor.stack()[0]["name"] == name
        given = editor.scope("Gradients in")["input 0"]
        assert "elements" not in editor.inside(given)  # as it was recorded
        refused = editor.refused("evaluate", expression="1", context="repl")
        assert refused == "Python runs where the program is now; continue goes there"
        editor.go("next")
        assert editor.stack()[0]["name"] == names[2]
        assert editor.go("continue")["text"] == "The program is here now."
        assert editor.stack()[0]["name"] == names[3]
        assert editor.go("reverseContinue")["reason"] == "beginning"
        assert editor.stack()[0]["name"] == names[0]
        editor.go("continue")
        editor.go("stepOut")
        assert editor.stack()[0]["name"] == "backward() #0"
        editor.ask("terminate")
        assert editor.event("exited")["exitCode"] == 128 + 15
        editor.event("terminated")
        assert output(editor) == ""


@pytest.mark.slow
def test_it_stops_where_a_gradient_is_not_finite_and_where_it_fails(tmp_path: Path) -> None:
    text = PROGRAM.replace("square().sum()", "sub(hidden).sqrt().sum()").replace(
        "loss.backward()",
        "hidden.register_hook(lambda g: 1 / 0 if step else None); loss.backward()",
    )
    save(tmp_path, text)
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py", args=["0"])
        editor.ask("setExceptionBreakpoints", filters=["nonfinite", "failed"])
        stop = editor.done()
        assert stop["reason"] == "exception"
        assert "Inf in output 0 of #2 SqrtBackward0" in stop["text"]
        info = editor.ask("exceptionInfo", threadId=1)
        assert "sqrt at zero" in info["description"]
        editor.ask("setExceptionBreakpoints", filters=["failed"])
        stop = editor.go("continue")
        assert stop["reason"] == "exception"
        assert "ZeroDivisionError: division by zero" in stop["text"]
        editor.ask("continue", threadId=1)
        assert editor.event("exited") == {"exitCode": 1}


def test_a_program_that_can_not_begin_says_why(tmp_path: Path) -> None:
    save(tmp_path, PROGRAM)
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py", agvizArgs=["--no-such-option"])
        said = editor.refused("configurationDone")
        assert "--no-such-option" in said
        editor.event("terminated")


LOOP = """
import time, torch
x = torch.ones(3, requires_grad=True)
while True:
    (x * x).sum().backward()
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_program_that_runs_is_attached_to_and_let_go_of(tmp_path: Path) -> None:
    save(tmp_path, LOOP)
    command = [sys.executable, "-m", "agviz", "run", "-o", "loop.agviz", "program.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE
    ) as program:
        try:
            wait_until(lambda: listens(program.pid))
            with Adapter(tmp_path) as adapter:
                editor = adapter.editor
                editor.begin("attach", processId=str(program.pid))
                assert editor.done()["reason"] == "pause"
                assert editor.stack()
                editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "Mul"}])
                assert editor.go("continue")["reason"] == "breakpoint"
                assert editor.stack()[0]["name"] == "#2 MulBackward0"
                assert "only programs that it has started" in editor.refused("terminate")
            time.sleep(0.2)
            assert is_running(program.pid)
        finally:
            program.kill()


def listens(pid: int) -> bool:
    try:
        return address(str(pid)).exists()
    except AgvizError:
        return False


@pytest.mark.slow
def test_a_program_runs_on_where_that_is_wanted_and_pause_stops_it(tmp_path: Path) -> None:
    save(tmp_path, LOOP)
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py")
        editor.ask("configurationDone")
        pid = editor.event("process")["systemProcessId"]
        assert editor.refused("next", threadId=1) == "the program runs; pause it first"
        editor.ask("pause", threadId=1)
        assert editor.event("stopped")["reason"] == "pause"
        # Python that does not end is ended by pause.
        number = editor.send("evaluate", {"expression": "while True: pass\n\n", "context": "repl"})
        time.sleep(0.5)
        editor.send("pause", {"threadId": 1})
        answers = [editor.next_message() for _ in range(2)]  # in whatever order
        (shown,) = (each for each in answers if each["request_seq"] == number)
        assert shown["body"]["result"].endswith("KeyboardInterrupt")
        adapter.leaving = {"terminateDebuggee": False}
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_program_ends_with_the_editor(tmp_path: Path, *, is_killed: bool) -> None:
    save(tmp_path, LOOP)
    adapter = Adapter(tmp_path)
    adapter.editor.begin(program="program.py", stopOnEntry=True)
    adapter.editor.done()
    pid = adapter.editor.event_seen("process")["systemProcessId"]
    assert adapter.process.stdin is not None
    if is_killed:
        adapter.process.terminate()
    else:
        adapter.process.stdin.close()
    adapter.editor.until_gone()
    assert adapter.end() == ("exit code 143: " if is_killed else "")
    wait_until(lambda: not is_running(pid))


def console(editor: Editor) -> list[str]:
    """What the adapter has printed."""
    return [
        each["body"]["output"]
        for each in editor.seen
        if each["event"] == "output" and each["body"]["category"] == "console"
    ]


def test_log_points_watches_and_data_breakpoints(tmp_path: Path) -> None:
    path = save(tmp_path, PROGRAM)
    _, of_weight = gradients()
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(program="program.py", args=["0"], env={"AGVIZ_OUTPUT": "live.agviz"})
        (made,) = editor.on_lines(path, LOSS, logMessage="norm {norm}, {1 + 1}")
        assert made["verified"]
        (wrong,) = editor.ask(
            "setBreakpoints",
            source={"path": str(path)},
            breakpoints=[{"line": LOSS, "logMessage": "{open('x')}"}],
        )["breakpoints"]
        assert not wrong["verified"]
        assert "is not possible" in wrong["message"]
        editor.on_lines(path, LOSS, logMessage="norm {norm}, {1 + 1}")
        editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "parameter=2.weight"}])
        assert editor.done()["reason"] == "breakpoint"
        said = [text for text in console(editor) if text.startswith("norm ")]
        assert [each.endswith(", 2\n") for each in said] == [True, True]

        frame = editor.stack()[0]["id"]
        norm = f"{of_weight.norm().item():.6g}"
        ask = {"frameId": frame, "context": "watch"}
        assert editor.ask("evaluate", expression="input[0].norm()", **ask)["result"] == norm
        hover = {"frameId": frame, "context": "hover"}
        shown = editor.ask("evaluate", expression="2.weight", **hover)["result"]
        assert shown.startswith("[2, 8] float32, norm ")
        assert "no parameter loss is known" in editor.refused(
            "evaluate", expression="loss", **hover
        )
        assert "#2 PowBackward0" in editor.ask("evaluate", expression="#2", **ask)["result"]
        assert "division" in editor.refused("evaluate", expression="1 / 0", **ask)

        inside = editor.scopes()["Parameter"]
        info = editor.ask("dataBreakpointInfo", variablesReference=inside, name="grad")
        assert info["dataId"] == "2.weight.grad.norm()"
        assert editor.ask("dataBreakpointInfo", name="norm")["dataId"] is None
        (known, bad) = editor.ask(
            "setDataBreakpoints",
            breakpoints=[
                {"dataId": info["dataId"], "condition": "> 0"},
                {"dataId": info["dataId"], "condition": "changes 0.5x"},
            ],
        )["breakpoints"]
        assert known["verified"]
        assert "factor over 1" in bad["message"]
        given = editor.scopes()["Gradients in"]
        changed = editor.ask("setVariable", variablesReference=given, name="input 0", value="* 2")
        assert changed["value"]
        wrong_value = {"variablesReference": given, "name": "input 0", "value": "x"}
        assert editor.refused("setVariable", **wrong_value) == "'x' is no number"
        assert (
            editor.refused("setVariable", variablesReference=inside, name="input 0", value="1")
            == "only the gradients that come in can be changed"
        )
        editor.ask("setFunctionBreakpoints", breakpoints=[])
        stop = editor.go("continue")
        assert stop["reason"] == "data breakpoint"
        assert stop["hitBreakpointIds"] == [known["id"]]
        twice = f"{(of_weight * 2).norm().item():.6g}"
        assert stop["text"] == f"2.weight.grad.norm() > 0: first → {twice}"
