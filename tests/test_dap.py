"""``agviz dap``, driven by an editor that holds every message against the protocol's schema."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agviz.cli.dap import user_of
from agviz.cli.main import main
from agviz.traces.reader import Trace
from agviz.words.units import plural
from agviz_engine.events import NodeFailed
from tests import python_process
from tests.dap_support import Adapter, Editor, broken
from tests.debugger_support import ENVIRONMENT, save
from tests.tui_support import record

PROGRAM = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        attended, _ = self.attention(x, x, x, need_weights=False)
        x = self.norm(x + attended)
        return x + torch.relu(self.linear(x))  # line 15


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.layers(x))  # line 25


def make():
    torch.manual_seed(0)
    return Model(), torch.randn(3, 4, 8)


def loss_of(model, x, step):
    out = model(x)
    if step == 1:
        out = (out - out).sqrt()  # line 36
    return out.square().mean()  # line 37


def main():
    model, x = make()
    for step in range(3):
        model.zero_grad()
        loss_of(model, x, step).backward()  # line 44
        print("step", step)


if __name__ == "__main__":
    main()
"""
BLOCK, HEAD, CAUSE, LOSS, CALL = 15, 25, 36, 37, 44


def load(path: Path) -> Any:
    """The program as a module, to run it without agviz."""
    spec = importlib.util.spec_from_file_location("program_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and its recording."""
    folder = tmp_path_factory.mktemp("dap")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "agviz", "run", "-o", "trace.agviz", "program.py"]
    python_process.run(command, cwd=folder, env=ENVIRONMENT, check=True)
    return folder


def test_the_reader_finds_starts_and_the_nodes_of_lines(recorded: Path) -> None:
    with Trace.open(recorded / "trace.agviz") as trace:
        tasks = [task.id for task in trace.graph_tasks]
        starts = sorted(
            (row.seq, task, row.node) for task in tasks for row in trace.executions(task)
        )
        assert trace.starts_near(-1, 10_000) == starts
        assert trace.starts_near(2**62, -10_000) == starts[::-1]
        for place in (0, 7, len(starts) - 1):
            seq = starts[place][0]
            assert trace.starts_near(seq, 3) == starts[place + 1 : place + 4]
            assert trace.starts_near(seq, -3) == starts[max(place - 3, 0) : place][::-1]
        made: dict[int, list[tuple[int, int]]] = {}
        for task in tasks:
            for node in trace.nodes(task):
                lines = {frame.line for frame in node.stack if frame.file == "program.py"}
                for line in lines:
                    made.setdefault(line, []).append((task, node.index))
        assert made
        found = trace.nodes_by_line(lambda file: file == "program.py")
        assert {line: sorted(nodes) for line, nodes in found.items()} == made
        assert trace.nodes_by_line(lambda _file: False) == {}
        assert {frame.line for frame in trace.frames() if frame.file == "program.py"} >= {*made}


def node_at(editor: Editor) -> str:
    """Name of the node that the top frame is of."""
    name: str = editor.stack()[0]["name"]
    return name


def test_a_recording_goes_forwards_and_backwards_by_nodes(recorded: Path) -> None:
    with Trace.open(recorded / "trace.agviz") as trace, Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        stop = editor.done()
        assert (stop["reason"], stop["threadId"], stop["allThreadsStopped"]) == ("entry", 1, True)
        ran = trace.executions(0)
        seen = [node_at(editor)]
        for _ in range(5):
            assert editor.go("next")["reason"] == "step"
            seen.append(node_at(editor))
        assert [each.split(" of ")[0] for each in seen] == [
            f"#{row.order} {row.name}" for row in ran[:6]
        ]
        for name in reversed(seen[:-1]):
            assert editor.go("stepBack")["reason"] == "step"
            assert node_at(editor) == name
        assert editor.go("stepBack")["reason"] == "beginning"
        assert editor.scope("Engine")["event"]["value"].startswith("DependenciesComputed")
        assert editor.go("reverseContinue")["reason"] == "beginning"
        assert editor.scope("Engine")["event"]["value"].startswith("DependenciesComputed")
        editor.go("next")
        assert node_at(editor) == seen[0]


def test_a_stack_is_node_module_and_forward_and_then_the_call(recorded: Path) -> None:
    path = str(recorded / "program.py")
    with Adapter(recorded, ["trace.agviz"]) as adapter:
        editor = adapter.editor
        editor.begin()
        (made,) = editor.on_lines(recorded / "program.py", HEAD)
        assert made["verified"]
        editor.done()
        stop = editor.go("continue")
        assert (stop["reason"], stop["hitBreakpointIds"]) == ("breakpoint", [made["id"]])
        frames = editor.stack()
        said = [(each["name"], each.get("source", {}).get("path"), each["line"]) for each in frames]
        assert said == [
            ("#3 ViewBackward0", path, HEAD),
            ("module head", None, 0),
            ("forward (forward)", path, HEAD),
            ("loss_of (forward)", path, 34),
            ("main (forward)", path, CALL),
            ("<module> (forward)", path, 49),
            ("backward() #0", None, 0),
            ("main", path, CALL),
            ("<module>", path, 49),
        ]
        assert frames[1]["presentationHint"] == "label"
        part = editor.ask("stackTrace", threadId=1, startFrame=1, levels=2)
        assert [each["name"] for each in part["stackFrames"]] == [said[1][0], said[2][0]]
        assert part["totalFrames"] == len(said)


def test_variables_are_the_gradients_that_torch_computes(recorded: Path) -> None:
    program = load(recorded / "program.py")
    model, x = program.make()
    found = []
    model.head.register_forward_hook(lambda _module, _given, out: found.append(out))
    model.layers.register_forward_hook(lambda _module, _given, out: found.append(out))
    loss = program.loss_of(model, x, 0)
    before, after = found
    to_after, to_before = torch.autograd.grad(loss, [after, before], retain_graph=True)
    loss.backward()
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        editor.ask(
            "setFunctionBreakpoints",
            breakpoints=[{"name": "Addmm module=head"}, {"name": "parameter=head.weight"}],
        )
        editor.done()
        editor.go("continue")
        given = editor.scope("Gradients in")["input 0"]
        assert given["type"] == "float32 [12, 2]"
        numbers = editor.inside(given)
        flat = to_after.reshape(12, 2)
        assert float(numbers["norm"]) == pytest.approx(flat.norm().item(), rel=1e-5)
        assert float(numbers["min"]) == flat.min().item()
        assert float(numbers["max"]) == flat.max().item()
        assert (numbers["shape"], numbers["nan"], numbers["posinf"]) == ("[12, 2]", "0", "0")
        assert numbers["from"] == "#3 ViewBackward0"
        outs = editor.scope("Gradients out")
        assert {each["value"] for each in outs.values()} == {"has not been put out"}
        saved = editor.scope("Saved tensors")
        assert saved["mat1"]["value"] == "float32 [12, 8], 384 B"

        editor.go("next")
        editor.go("stepBack")
        assert editor.go("continue")["reason"] == "breakpoint"
        assert node_at(editor) == "#7 AccumulateGrad of head.weight"
        facts = editor.scope("Parameter")
        assert facts["name"]["value"] == "head.weight"
        assert facts["grad"]["value"] == "None"
        editor.go("next")
        frame = editor.ask("evaluate", expression="head.weight", context="repl")
        assert frame["result"] == "#7 AccumulateGrad of head.weight, done"
        inside = editor.variables(frame["variablesReference"])
        grad = editor.variables(inside["Parameter"]["variablesReference"])["grad"]
        assert float(editor.inside(grad)["norm"]) == pytest.approx(
            model.head.weight.grad.norm().item(), rel=1e-5
        )
        module = editor.variables(inside["Parameters of head"]["variablesReference"])
        assert set(module) == {"head.bias.grad", "head.weight.grad"}
        layer = editor.ask("evaluate", expression="head", context="watch")["result"]
        assert layer.startswith("#3 ViewBackward0")
        assert to_before.shape == (3, 4, 8)


def test_it_stops_at_the_first_gradient_that_is_not_finite(recorded: Path) -> None:
    program = load(recorded / "program.py")
    model, x = program.make()
    program.loss_of(model, x, 1).backward()
    bad = int(model.head.bias.grad.isnan().sum())
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz", stopOnEntry=False)
        editor.ask("setExceptionBreakpoints", filters=["nonfinite", "failed"])
        stop = editor.done()
        assert stop["reason"] == "exception"
        assert stop["text"] == "24 NaN in output 0 of #3 SqrtBackward0"
        assert editor.stack()[0]["line"] == CAUSE
        out = editor.scope("Gradients out")["output 0"]
        assert editor.inside(out)["nan"] == "24"
        assert bad == 2
        info = editor.ask("exceptionInfo", threadId=1)
        assert (info["exceptionId"], info["breakMode"]) == ("non-finite", "always")
        assert "sqrt at zero, in SqrtBackward0, in backward pass 1" in info["description"]
        assert f"program.py:{CAUSE} in loss_of" in info["description"]
        assert editor.scope("Pass")["status"]["value"] == "running"
        stop = editor.go("continue")
        assert (stop["reason"], stop["text"]) == ("end", "This is the end of the recording.")
        assert "no failure" in editor.refused("exceptionInfo", threadId=1)
        assert editor.go("reverseContinue")["reason"] == "exception"
        editor.ask("setExceptionBreakpoints", filters=[])
        assert editor.go("reverseContinue")["reason"] == "beginning"
        assert editor.go("continue")["reason"] == "end"


def test_steps_in_and_out_go_by_events_and_passes(recorded: Path) -> None:
    with Trace.open(recorded / "trace.agviz") as trace, Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        editor.ask("setExceptionBreakpoints", filters=[])
        editor.done()
        first = trace.starts_near(-1, 1)[0].seq
        event = trace.events_of([first + 1])[0]
        editor.go("stepIn")
        assert editor.scope("Engine")["event"]["value"].startswith(type(event).__name__)
        editor.go("stepBack", granularity="instruction")
        assert editor.scope("Engine")["event"]["value"].startswith("NodeStarted")
        for number in range(3):
            editor.go("stepOut")
            assert editor.stack()[0]["name"] == f"backward() #{number}"
            facts = editor.scope("Pass")
            assert facts["status"]["value"] == "finished"
            count = trace.graph_task(number).nodes
            assert facts["executed"]["value"] == f"{count} of {count} nodes"
        assert editor.go("stepOut")["reason"] == "end"


def test_the_engine_is_as_the_trace_says(recorded: Path) -> None:
    with Trace.open(recorded / "trace.agviz") as trace, Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        editor.done()
        for _ in range(6):
            editor.go("next")
        seq = trace.start_near(0, -1, 7) or 0
        state = trace.state_at(0, trace.position(seq, 0) + 1)
        (queue,) = state.queues()
        shown = editor.scope("Engine")["ReadyQueue of caller T0"]
        assert shown["value"] == f"{len(queue.tasks)} node{'s' * (len(queue.tasks) != 1)}"
        inside = editor.inside(shown)
        assert len(inside) == len(queue.tasks)
        node = editor.scope("Node")
        (running,) = state.running()[0]
        row = trace.node(0, running.node)
        assert node["sequence_nr"]["value"] == str(row.sequence_nr or "none")
        assert node["status"]["value"] == "running"
        assert node["dependencies"]["value"] == f"0 of {row.dependencies} missing"
        threads = editor.ask("threads")["threads"]
        assert [each["id"] for each in threads] == [1]
        assert threads[0]["name"].startswith("T0 caller")


def test_breakpoints_say_where_they_can_be(recorded: Path) -> None:
    file = recorded / "program.py"
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        found = editor.on_lines(file, LOSS, 28)
        assert [each["verified"] for each in found] == [True, False]
        assert "no node of the recording comes from this line" in found[1]["message"]
        assert "nearest such lines are 25, 34" in found[1]["message"]
        (other,) = editor.on_lines(recorded / "other.py", 3)
        assert not other["verified"]
        (wrong,) = editor.on_lines(file, LOSS, condition="__import__('os')")
        assert not wrong["verified"]
        assert "is not possible in a condition" in wrong["message"]
        (wrong,) = editor.on_lines(file, LOSS, hitCondition="sometimes")
        assert "is no number of hits" in wrong["message"]
        names = [{"name": "name=["}, {"name": "NoSuchNode"}, {"name": "event=LeafAccumulated"}]
        made = editor.ask("setFunctionBreakpoints", breakpoints=names)["breakpoints"]
        assert [each["verified"] for each in made] == [False, False, True]
        lines = editor.ask("breakpointLocations", source={"path": str(file)}, line=30, endLine=50)
        assert [each["line"] for each in lines["breakpoints"]] == [34, CAUSE, LOSS, CALL, 49]
        kept = editor.on_lines(file, LOSS, BLOCK)
        again = editor.on_lines(file, BLOCK)
        assert again[0]["id"] == kept[1]["id"]


def test_conditions_and_counts_choose_among_hits(recorded: Path) -> None:
    file = recorded / "program.py"
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        editor.ask("setExceptionBreakpoints", filters=[])
        editor.on_lines(file, HEAD, condition="nan > 0 and shape == (3, 4, 2)")
        editor.done()
        editor.go("continue")
        assert node_at(editor).endswith("ViewBackward0")
        assert editor.scope("Pass")["graph task"]["value"] == "1"
        assert editor.go("continue")["reason"] == "end"
        editor.on_lines(file, LOSS, hitCondition="> 4")
        editor.go("reverseContinue")
        assert editor.scope("Pass")["graph task"]["value"] == "2"
        assert node_at(editor) == "#2 PowBackward0"
        editor.go("reverseContinue")
        assert node_at(editor) == "#1 MeanBackward0"
        assert editor.go("reverseContinue")["reason"] == "beginning"
        editor.on_lines(file, LOSS, hitCondition="3")
        editor.go("continue")
        assert editor.scope("Pass")["graph task"]["value"] == "1"
        assert editor.go("continue")["reason"] == "end"


def test_source_comes_from_the_recording_where_the_file_is_gone(
    recorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "moved.agviz").write_bytes((recorded / "trace.agviz").read_bytes())
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(trace="moved.agviz")
        editor.done()
        source = editor.stack()[0]["source"]
        assert (source["name"], "path" in source) == ("program.py", False)
        number = source["sourceReference"]
        text = editor.ask("source", sourceReference=number)["content"].split("\n")
        lines = PROGRAM.split("\n")
        for line in (HEAD, CAUSE, LOSS, CALL):
            assert text[line - 1] == lines[line - 1].strip()
        assert text[0] == ""
        at = {"sourceReference": number, "name": "program.py"}
        (made,) = editor.ask("setBreakpoints", source=at, breakpoints=[{"line": HEAD}])[
            "breakpoints"
        ]
        assert made["verified"]
        assert editor.go("continue")["hitBreakpointIds"] == [made["id"]]
        assert "no source 99" in editor.refused("source", sourceReference=99)


REENTRANT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
inner, outer = nn.Linear(3, 3), nn.Linear(3, 3)
x = torch.randn(2, 3, requires_grad=True)
out = outer(checkpoint(inner, x, use_reentrant=True))
out.sum().backward()  # line 9
"""


def test_a_reentrant_pass_is_inside_the_node_that_called_it(tmp_path: Path) -> None:
    save(tmp_path, REENTRANT)
    command = [sys.executable, "-m", "agviz", "run", "-o", "r.agviz", "program.py"]
    python_process.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True)
    with Adapter(tmp_path, ["r.agviz"]) as adapter:
        editor = adapter.editor
        editor.begin()
        editor.done()
        while editor.scope("Pass")["graph task"]["value"] == "0":
            editor.go("next")
        names = [each["name"] for each in editor.stack()]
        calls = [name for name in names if name.startswith(("backward()", "grad()"))]
        assert calls == ["backward() #1", "backward() #0"]
        around = names[names.index("backward() #1") :]
        assert any("CheckpointFunctionBackward" in name for name in around)
        inside = editor.scope("Pass")
        assert "CheckpointFunctionBackward" in inside["inside"]["value"]
        assert editor.go("stepOut")["reason"] == "step"
        assert "CheckpointFunctionBackward" in editor.stack()[0]["name"]
        assert editor.scope("Pass")["graph task"]["value"] == "0"
        editor.go("stepOut")
        assert editor.stack()[0]["name"] == "backward() #0"
        assert [each["line"] for each in editor.stack()] == [0, 9]


def test_threads_of_devices_have_stacks_of_their_own(tmp_path: Path) -> None:
    record(tmp_path / "devices.agviz", graph_tasks=2)
    with Trace.open(tmp_path / "devices.agviz") as trace, Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(trace="devices.agviz")
        editor.done()
        ids = {each["id"]: each["name"] for each in editor.ask("threads")["threads"]}
        assert len(ids) == 3
        assert {each["body"]["threadId"] for each in editor.seen if each["event"] == "thread"} == {
            *ids
        }
        device = next(number for number, name in ids.items() if "device 0" in name)
        mine = [row for row in trace.executions(0) if row.thread == device - 1]
        for row in mine[:4]:
            editor.ask("next", threadId=device, singleThread=True)
            assert editor.event("stopped")["threadId"] == device
            state = trace.state_at(0, trace.position(row.seq, 0) + 1)
            for thread, name in ids.items():
                nodes = state.running().get(thread - 1, ())
                top = editor.stack(thread)[0]["name"]
                if nodes:
                    assert trace.node(0, nodes[-1].node).short_name in top
                elif thread != device and "device" in name:
                    assert top.startswith("waits for the ReadyQueue of device")
        shown = {name: each["value"] for name, each in editor.scope("Engine").items()}
        for queue in state.queues():
            if queue.thread is None:
                count = len(queue.tasks)
                assert shown[f"ReadyQueue of device {queue.queue}"] == plural(count, "node")


def test_it_stops_where_a_node_fails(tmp_path: Path) -> None:
    record(tmp_path / "failed.agviz", fail_at=6)
    with Trace.open(tmp_path / "failed.agviz") as trace, Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.begin(trace="failed.agviz", stopOnEntry=False)
        editor.ask("setExceptionBreakpoints", filterOptions=[{"filterId": "failed"}])
        stop = editor.done()
        assert stop["reason"] == "exception"
        seq = trace.first_failure(0)
        assert seq is not None
        (event,) = trace.events_of([seq])
        assert isinstance(event, NodeFailed)
        assert stop["text"] == f"{event.error}: {event.message}"
        info = editor.ask("exceptionInfo", threadId=stop["threadId"])
        assert info["exceptionId"] == event.error
        assert event.error in info["description"]
        assert trace.node(0, event.node).short_name in editor.stack(stop["threadId"])[0]["name"]


def test_an_editor_can_connect_to_a_port(recorded: Path) -> None:
    with Adapter(recorded, ["--port", "0", "trace.agviz"]) as adapter:
        editor = adapter.editor
        editor.begin()
        assert editor.done()["reason"] == "entry"
        assert node_at(editor) == "#1 MeanBackward0"


def test_a_port_that_can_not_be_had_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dap", "--port", str(port)]) == 2
    assert f"port {port} can't be used" in capsys.readouterr().err
    assert main(["dap", "--port", "70000"]) == 2
    assert "there is no port 70000" in capsys.readouterr().err


def test_whose_a_connection_is_can_be_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        connection, _ = listening.accept()
        with connection:
            assert user_of(connection) == os.getuid()


def test_a_recording_is_debugged_without_torch(recorded: Path) -> None:
    program = "import sys, agviz.cli.main as m; m.main(['dap']); sys.exit('torch' in sys.modules)"
    with Adapter(recorded, python=["-c", program]) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        editor.on_lines(recorded / "program.py", LOSS)
        editor.done()
        editor.go("continue")
        for number in editor.scopes().values():
            editor.variables(number)
        editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "Sqrt if norm > 0"}])
        while editor.go("continue")["reason"] != "exception":
            pass
        editor.ask("exceptionInfo", threadId=1)


def configurations() -> list[dict[str, Any]]:
    """Those for VS Code in the documentation."""
    text = (Path(__file__).parent.parent / "docs" / "editors.md").read_text()
    package, launch = map(json.loads, re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    (debugger,) = package["contributes"]["debuggers"]
    assert debugger["runtimeArgs"] == ["dap"]
    found: list[dict[str, Any]] = launch["configurations"]
    assert {each["type"] for each in found} == {debugger["type"]}
    for each in found:
        known = debugger["configurationAttributes"][each["request"]]["properties"]
        assert each.keys() - {"type", "request", "name"} <= known.keys()
    return found


@pytest.mark.slow
def test_the_documented_configurations_work(recorded: Path) -> None:
    recording, program, process = configurations()
    assert process["processId"] == "${command:pickProcess}"
    for each in (recording, program):
        said = json.dumps(each).replace("${workspaceFolder}", str(recorded))
        said = said.replace("${file}", str(recorded / "program.py"))
        said = said.replace("agviz-train.4711.agviz", "trace.agviz")
        arguments = json.loads(said)
        with Adapter(recorded) as adapter:
            editor = adapter.editor
            editor.begin(arguments.pop("request"), **arguments, output="other.agviz")
            (made,) = editor.on_lines(recorded / "program.py", CAUSE)
            assert made["verified"]
            if "trace" in arguments:
                assert editor.done()["reason"] == "entry"
                editor.ask("continue", threadId=1)
                stop = editor.event("stopped")
            else:
                stop = editor.done()
            assert stop["hitBreakpointIds"] == [made["id"]]
            assert editor.stack()[0]["line"] == CAUSE


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("launch", {}, "say what to debug"),
    ("launch", {"trace": 7}, "trace has to be a text"),
    ("launch", {"trace": "no.agviz"}, "there is no file of this name"),
    ("launch", {"program": "no.py"}, "there is no script"),
    ("launch", {"program": "program.py", "args": "x"}, "args has to be a list"),
    ("launch", {"program": "program.py", "env": {"A": 1}}, "env has to have texts"),
    ("launch", {"program": "program.py", "trace": "x"}, "not both"),
    ("launch", {"trace": "program.py"}, "is not a trace of agviz"),
    ("attach", {"pid": "many"}, "pid has to be a whole number"),
    ("attach", {"pid": 999_999_999}, "does not listen"),
    ("configurationDone", {}, "launch or attach comes before"),
    ("next", {"threadId": 1}, "nothing is debugged yet"),
    ("next", {}, "threadId is missing"),
    ("stackTrace", {"threadId": -3}, "threadId can't be -3"),
    ("restartFrame", {"frameId": 1}, "agviz has no request 'restartFrame'"),
    ("setBreakpoints", {}, "neither a path nor a number"),
    ("setExceptionBreakpoints", {"filters": ["uncaught"]}, "there is no filter 'uncaught'"),
    ("initialize", {"adapterID": "x", "linesStartAt1": False}, "can't be false"),
]


def test_a_wrong_request_is_refused_in_one_sentence(recorded: Path) -> None:
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.ask("initialize", adapterID="agviz")
        for command, arguments, complaint in WRONG:
            said = editor.refused(command, **arguments)
            assert complaint in said, said
            assert "\n" not in said
        number = editor.send("next", [])  # type: ignore[arg-type]
        assert not editor.answer(number)["success"]
        editor.send_bytes(b'{"seq": "x"}')
        editor.begin(trace="trace.agviz")
        assert editor.refused("launch", trace="trace.agviz") == "something is debugged already"
        editor.done()
        assert "no such frame" in editor.refused("scopes", frameId=12345)
        assert "no such variables" in editor.refused("variables", variablesReference=12345)
        assert "no node of this pass" in editor.refused("evaluate", expression="os.getpid()")
        assert "does not run" in editor.refused("pause", threadId=1)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 999999999\r\n\r\n",
        b"Content-Type: x\r\n\r\n",
        b"Content-Length: 3\r\n\r\nno}",
        b"Content-Length: 2\r\n\r\n[]",
    ],
)
def test_what_is_no_message_ends_it(recorded: Path, sent: bytes) -> None:
    adapter = Adapter(recorded)
    assert adapter.process.stdin is not None
    adapter.process.stdin.write(sent)
    adapter.process.stdin.flush()
    assert "the connection is closed" in adapter.editor.event("output")["output"]
    adapter.editor.until_gone()
    assert adapter.end() == ""


def test_it_ends_when_the_editor_goes_away(recorded: Path) -> None:
    adapter = Adapter(recorded)
    adapter.editor.begin(trace="trace.agviz")
    adapter.editor.done()
    assert adapter.process.stdin is not None
    adapter.process.stdin.close()
    adapter.editor.until_gone()
    assert adapter.end() == ""


def test_the_schema_finds_what_is_wrong() -> None:
    rule = {"$ref": "#/definitions/StoppedEvent"}
    good = {"seq": 1, "type": "event", "event": "stopped", "body": {"reason": "step"}}
    assert broken(good, rule) == []
    assert broken({**good, "body": {}}, rule) == ["message.body lacks reason"]
    assert broken({**good, "event": "x"}, rule) == ["message.event is none of ['stopped']"]
    assert broken({**good, "seq": "1"}, rule) == ["message.seq is no integer"]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE event SET node = 1000000 WHERE kind = 26",
        "UPDATE event SET graph_task = 77",
        "DELETE FROM node WHERE idx > 3",
        "UPDATE frame SET line = 2147483647",
        "UPDATE edge SET consumer = -5",
        "DELETE FROM graph_task WHERE id = 0",
        "UPDATE stack SET caller = id",
    ],
)
def test_a_damaged_recording_is_refused_and_does_not_end_it(
    recorded: Path, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "bad.agviz"
    path.write_bytes((recorded / "trace.agviz").read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)
    with Adapter(tmp_path) as adapter:
        editor = adapter.editor
        editor.ask("initialize", adapterID="agviz")
        answers = [editor.attempt("launch", trace="bad.agviz")]
        source = {"path": str(recorded / "program.py")}
        lines = [{"line": LOSS}]
        answers += [
            editor.attempt("setBreakpoints", source=source, breakpoints=lines),
            editor.attempt("setFunctionBreakpoints", breakpoints=[{"name": "Add"}]),
            editor.attempt("configurationDone"),
        ]
        for command in ("next", "continue", "stepIn", "stepOut", "stepBack", "reverseContinue"):
            answers.append(editor.attempt(command, threadId=1))
            stack = editor.attempt("stackTrace", threadId=1)
            answers.append(stack)
            for frame in stack.get("body", {}).get("stackFrames", []):
                scopes = editor.attempt("scopes", frameId=frame["id"])
                answers += [
                    editor.attempt("variables", variablesReference=each["variablesReference"])
                    for each in scopes.get("body", {}).get("scopes", [])
                ]
                if "sourceReference" in (source := frame.get("source", {})):
                    number = source["sourceReference"]
                    answers.append(editor.attempt("source", sourceReference=number))
        refused = [each["message"] for each in answers if not each["success"]]
        assert all("\n" not in each for each in refused)


def test_what_only_a_program_can_do_is_not_verified_in_a_recording(recorded: Path) -> None:
    file = recorded / "program.py"
    with Adapter(recorded) as adapter:
        editor = adapter.editor
        editor.begin(trace="trace.agviz")
        (log,) = editor.on_lines(file, LOSS, logMessage="norm {norm}")
        assert log["message"] == "a log point prints only while a program runs"
        (one,) = editor.on_lines(file, LOSS, condition="head.weight.norm() > 3")
        assert one["message"].startswith("a recording has no tensors")
        info = editor.ask("dataBreakpointInfo", name="head.weight.grad")
        assert info == {
            "dataId": None,
            "description": "a data breakpoint stops only a program that runs",
        }
        (data,) = editor.ask(
            "setDataBreakpoints", breakpoints=[{"dataId": "head.weight.grad.norm()"}]
        )["breakpoints"]
        assert data["message"] == "a data breakpoint stops only a program that runs"
        assert not any(each["verified"] for each in (log, one, data))
        editor.on_lines(file)
        editor.done()
        hover = {"expression": "norm", "context": "hover"}
        assert editor.refused("evaluate", **hover) == (
            "values are shown where a program is stopped now"
        )
