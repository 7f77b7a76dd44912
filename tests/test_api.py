"""The Python API, as the documentation shows it."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
import agviz_engine.api
from agviz import api
from agviz.traces.event_row import EventRow
from agviz.traces.rows import GraphTaskRow, GraphTaskStatus, NodeStatus
from agviz_engine.events import EVENT_TYPES
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def recorded(tmp_path: Path) -> agviz.Recorded:
    """Two passes through a small model; the second runs into NaN."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with agviz.trace(path=tmp_path / "step.agviz") as t:
        model(torch.ones(2, 3)).sum().backward()
        (model(torch.ones(2, 3)).sum() * float("nan")).backward()
    return t


def test_a_recorded_step_can_be_read(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    with api.trace(path=tmp_path / "step.agviz"):
        model(torch.ones(2, 3)).sum().backward()
    assert not agviz_engine.is_installed()
    model(torch.ones(2, 3)).sum().backward()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        (task,) = trace.graph_tasks
        assert task.executed == task.nodes
        leaves = {node.parameter for node in trace.nodes(task.id) if node.is_leaf}
        assert leaves == {"weight", "bias"}
        assert trace.meta.end_ns is not None


def test_what_with_gives_reads_as_tables(recorded: agviz.Recorded) -> None:
    t = recorded
    assert [task.status for task in t.graph_tasks] == [GraphTaskStatus.FINISHED] * 2
    assert {node.parameter for node in t.nodes if node.is_leaf} == {
        f"{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")
    }
    assert len(t.events) == t.trace.event_count() == len(list(t.events))
    told = t.trace.events(limit=10_000)
    assert [row.seq for row in t.events] == [event.seq for event in told]
    assert [row.event for row in t.events[3:9:2]] == [type(e).__name__ for e in told[3:9:2]]
    assert t.events[-1] == list(t.events)[-1]
    for row, event in zip(t.events, told, strict=True):
        assert {name: getattr(row, name) for name in event._fields} == event._asdict()
    first = t.first_nonfinite()
    assert first is not None
    assert (first.graph_task, first.nan > 0) == (t.graph_tasks[1].id, True)
    story = t.story(first)
    second = first.graph_task
    (node,) = (n for n in t.nodes if (n.graph_task, n.index) == (second, first.node))
    assert story == t.story(node)
    assert "NodeStarted" in {row.event for row in story}
    started = next(row for row in story if row.event == "NodeStarted")
    assert t.state_at(started).status(second, first.node) is NodeStatus.RUNNING
    assert t.state_at(started.seq - 1).status(second, first.node) is NodeStatus.READY
    assert t.state_at(t.events[-1]).seq == t.events[-1].seq
    with pytest.raises(agviz.AgvizError, match="holds no event 99999"):
        t.state_at(99_999)
    assert agviz.load(t.path).nodes == t.nodes


def test_each_field_of_each_event_has_a_column() -> None:
    columns = set(EventRow._fields)
    for event_type in EVENT_TYPES:
        assert set(event_type._fields) <= columns


def test_rows_have_named_columns(recorded: agviz.Recorded) -> None:
    """What pandas.DataFrame takes its columns from: the fields of the first row, for all rows."""
    assert {tuple(row._asdict()) for row in recorded.events} == {EventRow._fields}
    assert {len(row) for row in recorded.events} == {len(EventRow._fields)}
    assert {tuple(row._asdict()) for row in recorded.graph_tasks} == {GraphTaskRow._fields}
    names = [field.name for field in dataclasses.fields(recorded.nodes[0])]
    assert {"name", "module", "start_ns", "graph_task"} <= set(names)
    assert all([*dataclasses.asdict(row)] == names for row in recorded.nodes)


def test_it_draws_itself_in_a_notebook(recorded: agviz.Recorded) -> None:
    page = recorded._repr_html_()
    assert page.count("<tr>") == 3
    assert "non-finite gradients begin at " in page
    picture = recorded._repr_svg_()
    assert picture is not None
    assert picture.startswith("<svg")
    assert picture in page
    assert "<script" not in page
    assert repr(recorded).startswith("<trace ")
    assert "2 backward passes" in repr(recorded)


def test_names_that_are_markup_stay_text(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<b>bold", torch.nn.Linear(2, 1))

        def forward(self, x: Any) -> Any:
            return self._modules["<b>bold"](x)  # type: ignore[misc]

    with agviz.trace(path=tmp_path / "t.agviz") as t:
        (Odd()(torch.ones(1, 2)) * float("nan")).backward()
    assert "<b>" not in t._repr_html_()


def test_it_can_be_asked_while_the_block_runs() -> None:
    with agviz.trace() as t:
        for number in range(1, 4):
            torch.ones(2, requires_grad=True).exp().sum().backward()
            assert len(t.graph_tasks) == number
            assert t.graph_tasks[-1].status is GraphTaskStatus.FINISHED
    assert len(t.graph_tasks) == 3
    assert t.trace.meta.end_ns is not None


def test_a_temporary_file_goes_with_its_object() -> None:
    with agviz.trace() as t:
        torch.ones(2, requires_grad=True).sum().backward()
    path = t.path
    assert path.exists()
    t.close()
    del t
    assert not path.parent.exists()


def test_names_of_a_model_whose_forward_lies_outside() -> None:
    model = torch.nn.Linear(3, 1)
    loss = model(torch.ones(2, 3)).sum()
    with agviz.trace(model) as t:
        loss.backward()
    assert {node.parameter for node in t.nodes if node.is_leaf} == {"weight", "bias"}


def test_what_to_record_can_be_chosen(tmp_path: Path) -> None:
    def passes(**chosen: Any) -> agviz.Recorded:
        with agviz.trace(path=tmp_path / "t.agviz", **chosen) as t:
            for number in range(5):
                x = torch.full((2,), 1.0 if number != 3 else float("inf"), requires_grad=True)
                x.exp().sum().backward()
        return t

    def finite(t: agviz.Recorded) -> list[bool]:
        return [t.trace.first_nonfinite(task.id) is None for task in t.graph_tasks]

    assert finite(passes()) == [True, True, True, False, True]
    assert finite(passes(steps=range(1, 5, 2))) == [True, False]
    only = passes(nodes="^Exp")
    assert {n.short_name for n in only.nodes if n.status is NodeStatus.DONE} == {"ExpBackward0"}
    assert finite(passes(on="nonfinite", keep=2)) == [True, False]
    health, none = passes().trace, passes(values="none").trace
    assert [bool(health.health(task.id)) for task in health.graph_tasks] == [True] * 5
    assert [bool(none.health(task.id)) for task in none.graph_tasks] == [False] * 5


def test_nobody_listens_to_steps_that_are_not_wanted(tmp_path: Path) -> None:
    listening = []

    def look(gradient: torch.Tensor) -> None:
        registry = agviz_engine.api.engine().registry
        listening.append(bool(registry.takes or registry.measurer))

    def step() -> None:
        x = torch.ones(2, requires_grad=True)
        x.register_hook(look)
        x.exp().sum().backward()

    with agviz.trace(path=tmp_path / "t.agviz", steps=range(1, 6, 2)) as t:
        for _ in range(5):
            step()
        threads = [threading.Thread(target=step) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert listening[:5] == [False, True, False, True, False]
    assert len(t.graph_tasks) == 3
    for task in t.graph_tasks:
        assert task.status is GraphTaskStatus.FINISHED
        assert {n.status for n in t.nodes if n.graph_task == task.id} == {NodeStatus.DONE}
        assert t.trace.event_count(task.id) == t.trace.event_count(t.graph_tasks[0].id)


def test_nobody_listens_once_the_file_is_full(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", max_bytes=1_000_000) as t:
        x = torch.ones(2, requires_grad=True)
        for _ in range(8_000):  # a pass that has no room, whatever else goes
            x = x + 1
        x.sum().backward()
        t.trace.forget()
        assert not agviz_engine.api.engine().registry.instruments
    assert t.trace.meta.stopped == "the limit of 1,000,000 bytes was reached"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"nodes": "("}, "is no regular expression"),
        ({"max_bytes": 10}, "at least 1,000,000 bytes"),
        ({"on": ["full moon"]}, "'full moon' is no occasion"),
        ({"on": ["signal"], "keep": 0}, "can't keep 0"),
        ({"values": "all"}, "values='all' is none of"),
        (
            {"model": "t.agviz"},
            "'t.agviz', which is no torch.nn.Module; the file to write is path=",
        ),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(agviz.AgvizError, match=re.escape(sentence)):
        agviz.trace(path=tmp_path / "t.agviz", **wrong)
    assert not (tmp_path / "t.agviz").exists()


def test_a_device_policy_is_obeyed(tmp_path: Path) -> None:
    with api.trace(path=tmp_path / "step.agviz", device_policy=lambda node: 1):
        torch.ones(2, requires_grad=True).exp().sum().backward()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        assert {node.queue for node in trace.nodes(trace.graph_tasks[0].id)} == {1}


def test_what_the_block_raises_comes_out_and_the_trace_is_complete(tmp_path: Path) -> None:
    def fails_in_the_second_backward() -> None:
        with api.trace(path=tmp_path / "step.agviz"):
            torch.ones(2, requires_grad=True).exp().sum().backward()
            torch.ones(2).sum().backward()

    with pytest.raises(RuntimeError, match="does not require grad"):
        fails_in_the_second_backward()
    assert not agviz_engine.is_installed()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        assert len(trace.graph_tasks) == 1
        assert trace.meta.end_ns is not None


def test_an_exception_outside_of_backward_is_an_occasion(tmp_path: Path) -> None:
    t = agviz.trace(path=tmp_path / "t.agviz", on="exception")

    def train() -> None:
        with t:
            torch.ones(2, requires_grad=True).sum().backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert len(t.graph_tasks) == 1


def test_a_place_that_can_not_be_written_changes_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(api.TraceError, match="there is no folder"),
        api.trace(path=tmp_path / "a" / "b"),
    ):
        pass
    assert not agviz_engine.is_installed()


@pytest.fixture
def disabled() -> Iterator[None]:
    yield
    agviz.disable()


@pytest.mark.usefixtures("disabled")
def test_enable_and_disable(tmp_path: Path) -> None:
    assert agviz.disable() is None
    path = agviz.enable(tmp_path / "t.agviz")
    with pytest.raises(agviz.AgvizError, match="is being recorded already"):
        agviz.enable(tmp_path / "other.agviz")
    torch.ones(2, requires_grad=True).sum().backward()
    assert agviz.disable() == path
    assert not agviz_engine.is_installed()
    torch.ones(2, requires_grad=True).sum().backward()
    assert len(agviz.load(path).graph_tasks) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["t.agviz"]
    agviz.enable(tmp_path / "t.agviz", agviz.Options(steps=range(1, 2)))
    for _ in range(3):
        torch.ones(2, requires_grad=True).sum().backward()
    agviz.disable()
    assert len(agviz.load(path).graph_tasks) == 1


def test_what_is_enabled_ends_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import agviz, os, torch\n"
        "agviz.enable()\n"
        "torch.ones(1, requires_grad=True).backward()\n"
        "if not (pid := os.fork()):\n"
        "    torch.ones(1, requires_grad=True).backward()\n"
        "    torch.ones(1, requires_grad=True).backward()\n"
        "    raise SystemExit\n"
        "os.waitpid(pid, 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ended.stderr.count("agviz: recorded ") == 2
    files = list(tmp_path.glob("agviz-train.*.agviz"))
    assert sorted(len(agviz.load(path).graph_tasks) for path in files) == [1, 2]


DIR = """
import sys, types
import {module} as module
shown = dir(module)
assert shown == sorted(set(shown)), shown
assert "torch" not in sys.modules, "to list names is no reason to import it"
public = {{name for name in shown if not name.startswith("_")}}
lent = set(module.__all__) - {{"__version__"}}
assert set(module.__all__) <= set(shown), set(module.__all__) - set(shown)
for name in public - lent:
    assert isinstance(getattr(module, name), types.ModuleType), name
given = {{name: getattr(module, name) for name in shown}}
assert all(value is not None or name.startswith("__") for name, value in given.items())
import {api} as api
for name in lent:
    assert given[name] is getattr(api, name, given[name]), name
assert set(dir(module)) >= set(shown)
try:
    module.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
names = {{}}
exec("from {module} import *", names)
assert lent <= set(names), lent - set(names)
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("module", ["agviz", "agviz_engine"])
def test_dir_shows_all_that_can_be_had(module: str) -> None:
    program = DIR.format(module=module, api=f"{module}.api")
    listed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert (listed.returncode, listed.stderr) == (0, "")


def test_the_package_lends_what_its_api_names() -> None:
    assert set(agviz.__all__) == {*api.__all__, "__version__"}
    assert set(agviz_engine.__all__) <= {*agviz_engine.api.__all__, *agviz_engine._HOMES}
