"""Every program of the gallery that fails for a version error is told why."""

from __future__ import annotations

import contextlib
import json
import runpy
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.backward_twice import BackwardTwice
from agviz.analysis.modified import InplaceModification
from agviz.analysis.version_errors import VersionError, version_error
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from tests.gallery import anomaly, anomaly_version
from tests.gallery_frame import Program, programs
from tests.spoken import check_length

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = programs("version")


def name_of(program: Program) -> str:
    return program.name


KINDS = {"modified by an inplace operation": InplaceModification, "second time": BackwardTwice}


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 8
    assert {program.one("error") for program in PROGRAMS} == set(KINDS)
    assert all(program.cause is not None for program in PROGRAMS)


def answer(program: Program, path: Path, **options: Any) -> VersionError:
    """What is said of the only failure of a program, whose message is torch's own."""
    with pytest.raises(RuntimeError) as native:
        program.run()
    with pytest.raises(RuntimeError) as ours:
        program.record(path, **options)
    assert str(ours.value) == str(native.value)
    with Trace.open(path) as trace:
        failed = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FAILED]
        assert {task.message for task in failed} == {str(native.value)}
        found = version_error(trace, failed[0].id)
        assert found is not None
        others = [task.id for task in trace.graph_tasks if task not in failed]
        assert all(version_error(trace, task) is None for task in others)
    assert json.loads(json.dumps(found.as_json()))["name"] == program.one("node")
    return found


def line_of(found: VersionError) -> int | None:
    return None if found.frame is None else found.frame.line


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_what_was_saved_or_released_is_named(program: Program, tmp_path: Path) -> None:
    found = answer(program, tmp_path / "t.agviz")
    assert type(found) is KINDS[program.one("error") or ""]
    assert found.node.short_name == program.one("node")
    assert found.heading
    assert found.paragraph.startswith(("Backward pass", found.node.short_name))
    if isinstance(found, BackwardTwice):
        assert line_of(found) == program.cause
        assert f"{program.path.name}:{program.cause} in " in found.paragraph
        assert found.first is not None
    else:
        assert found.saved is not None
        assert found.saved.name == program.one("saved")
        assert found.saved.parameter == (program.one("parameter") or "")
        assert found.saved.version > found.saved.expected
        assert (found.carried and found.carried.name) == program.one("carried")
        if found.step is not None:
            assert line_of(found) == program.cause
            assert f"The step of {found.step.optimizer} at" in found.paragraph
        else:
            assert "--check-forward" in found.paragraph
            assert found.frame == found.node.frame


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_the_line_that_modified_it_is_named(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(program, tmp_path / "t.agviz", check_forward=True)
    check_length(tmp_path / "t.agviz", capsys, "explain")
    assert line_of(found) == program.cause
    assert f"{program.path.name}:{program.cause} in " in found.paragraph
    if isinstance(found, InplaceModification):
        assert len(found.changes) == 1
        assert (found.carried and found.carried.name) == program.one("carried")
        assert found.saved is not None
        assert found.saved.memory >= 0
        assert "--check-forward" not in found.paragraph
        assert (program.one("carried") is None) == ("Carry " not in found.paragraph)
    assert (program.name == "optimizer_step_between") == ("optimizer's step" in found.paragraph)


@pytest.mark.parametrize("culprit", ["step", "write"])
def test_a_step_is_named_only_where_it_came_between(culprit: str, tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        layer(torch.ones(1, 2)).sum().backward()
        if culprit == "write":
            optimizer.step()
        x = torch.ones(1, 2, requires_grad=True)
        loss = layer(x).sum()
        if culprit == "step":
            optimizer.step()
        else:
            with torch.no_grad():
                layer.weight.clamp_(-1, 1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = version_error(trace, trace.graph_tasks[1].id)
    assert isinstance(found, InplaceModification)
    assert (found.step is not None) == (culprit == "step")
    assert ("No optimizer had stepped since" in found.paragraph) == (culprit == "write")


LOOP = """
import torch
from torch import nn

trunk, head = nn.Linear(3, 3), nn.Linear(3, 3)
optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(2, 3)
h = trunk(trunk(x)).tanh()
for step in range(3):
    {}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("turn", "carried"),
    [
        ("h = head(h).tanh(); h.sum().backward(retain_graph=True)", "h"),
        ("h = trunk(h).tanh(); head(h).sum().backward(retain_graph=True)", "h"),
        ("out = head(h); h = trunk(out); h.sum().backward(retain_graph=True)", ""),
        ("head(trunk(x).tanh() + head(h)).sum().backward(retain_graph=True)", None),  # made once
        ("head(trunk(h)).sum().backward(retain_graph=True)", None),
    ],
)
def test_what_is_carried_on_is_named(turn: str, carried: str | None, tmp_path: Path) -> None:
    path, program = tmp_path / "t.agviz", tmp_path / "train.py"
    program.write_text(LOOP.format(turn), encoding="utf-8")
    torch.manual_seed(0)
    with (
        pytest.raises(RuntimeError, match="inplace operation"),
        agviz.trace(path=path),
    ):
        runpy.run_path(str(program))
    with Trace.open(path) as trace:
        failed = next(t.id for t in trace.graph_tasks if t.status is GraphTaskStatus.FAILED)
        found = version_error(trace, failed)
    assert isinstance(found, InplaceModification)
    assert (found.carried and found.carried.name) == carried
    assert (carried is not None) == ("retain_graph=True" in found.paragraph)


@pytest.mark.parametrize("is_detached", [True, False])
def test_a_critic_that_steps_in_the_same_function_is_not_carried_on(
    is_detached: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t.agviz"
    made, critic = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    steps = [torch.optim.SGD(each.parameters(), 0.1) for each in (critic, made)]

    def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()

    with agviz.trace(path=path):
        fake = made(torch.randn(2, 3))
        said = critic(fake)
        step(steps[0], critic(fake.detach()).sum() if is_detached else said.square().sum())
        with pytest.raises(RuntimeError, match="inplace operation"):
            step(steps[1], -said.sum())
    with Trace.open(path) as trace:
        found = version_error(trace, trace.graph_tasks[1].id)
    assert isinstance(found, InplaceModification)
    assert found.carried is None
    assert "optimizer's step has to come after" in found.paragraph


def by_name(name: str) -> Program:
    (program,) = (program for program in PROGRAMS if program.name == name)
    return program


def test_where_two_graphs_meet_is_told(tmp_path: Path) -> None:
    for name, names in {
        "hidden_state_carried_over": ("CatBackward0", "TanhBackward0"),
        "shared_trunk": ("AddmmBackward0", "TanhBackward0"),
        "gradient_penalty": None,
    }.items():
        found = answer(by_name(name), tmp_path / f"{name}.agviz")
        assert isinstance(found, BackwardTwice)
        entry = found.entry and tuple(node.short_name for node in found.entry)
        assert entry == names
        assert (found.shared < found.nodes - 4) == (names is not None)


def test_a_first_backward_that_was_not_recorded(tmp_path: Path) -> None:
    found = answer(by_name("shared_trunk"), tmp_path / "t.agviz", steps=range(1, 9))
    assert isinstance(found, BackwardTwice)
    assert (found.first, found.first_call, found.entry) == (None, None, None)
    assert "is not in this trace" in found.paragraph
    assert found.frame == found.node.frame


def test_threads_whose_nodes_have_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"

    def work(times: int) -> None:
        loss = torch.ones(3, requires_grad=True).exp().sum()
        with contextlib.suppress(RuntimeError):
            for _ in range(times):
                loss.backward()

    with agviz.trace(path=path):
        for times in (1, 1, 2, 1):
            thread = threading.Thread(target=work, args=(times,))
            thread.start()
            thread.join()
    with Trace.open(path) as trace:
        tasks = [task.id for task in trace.graph_tasks]
        assert len({trace.node(task, 1).sequence_nr for task in tasks}) == 1
        (found,) = filter(None, (version_error(trace, task) for task in tasks))
    assert isinstance(found, BackwardTwice)
    assert (found.first, found.graph_task) == (tasks[2], tasks[3])


def test_a_hook_that_meets_what_another_node_had_saved(tmp_path: Path) -> None:
    y: Any = torch.ones(3, requires_grad=True).exp()
    y.mul_(2)
    saver = y.grad_fn.next_functions[0][0]
    x = torch.ones(3, requires_grad=True) * 2
    x.register_hook(lambda _: saver._saved_result)
    path = tmp_path / "t.agviz"
    with pytest.raises(RuntimeError, match="modified by an in"), agviz.trace(path=path):
        x.sum().backward()
    with Trace.open(path) as trace:
        found = version_error(trace, trace.graph_tasks[0].id)
    assert isinstance(found, InplaceModification)
    assert (found.saved, found.node.short_name) == (None, "MulBackward0")
    assert found.heading == "modified by an inplace operation, found in MulBackward0"
    assert found.message in found.paragraph


def test_without_provenance_no_line_is_told(tmp_path: Path) -> None:
    for name in ("shared_trunk", "inplace_relu"):
        found = answer(by_name(name), tmp_path / f"{name}.agviz", provenance=False)
        assert found.frame is None
        assert found.paragraph
        assert list(found.details())


@pytest.mark.slow
def test_the_table_beside_anomaly_mode_is_up_to_date() -> None:
    document = anomaly.DOCUMENT.read_text(encoding="utf-8")
    assert anomaly_version.written(document) == document
