"""The demo: models, their placement on devices, and the whole run as a user calls it."""

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

import agviz_engine
from agviz.analysis.origins import spread
from agviz.cli.main import main
from agviz.demo import SUBJECTS
from agviz.demo.placement import Placement
from agviz.demo.session import DemoSession
from agviz.traces.reader import Trace
from tests import python_process

ROOT = Path(__file__).parent.parent


def graph(tensor: Tensor) -> list[Node]:
    assert tensor.grad_fn is not None
    nodes = {tensor.grad_fn: None}
    to_visit = [tensor.grad_fn]
    while to_visit:
        for node, _ in to_visit.pop().next_functions:
            if node is not None and node not in nodes:
                nodes[node] = None
                to_visit.append(node)
    return list(nodes)


def demo(
    *arguments: str, cwd: Path, fresh: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    return python_process.run(
        [sys.executable, "-m", "agviz", "demo", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **env},
        timeout=300,
        fresh=fresh,
    )


class TwoHalves(nn.Module):
    """A part for each device, and something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.second = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Use the second part twice."""
        y: Tensor = self.second(self.first(x).exp())
        z: Tensor = self.second(y)
        return z.sin()


def test_a_node_goes_to_the_device_of_its_module() -> None:
    model = TwoHalves()
    placement = Placement(model, {model.first: 0, model.second: 1}, elsewhere=-1)
    devices: list[list[tuple[str, int]]] = []
    with placement:
        for _ in range(2):
            output = model(torch.ones(2, 3))
            devices.append(sorted((node.name(), placement(node)) for node in graph(output)))
    assert devices[0] == devices[1]
    assert Counter(devices[0]) == {
        ("AddmmBackward0", 0): 1,
        ("AddmmBackward0", 1): 2,
        ("ExpBackward0", -1): 1,
        ("SinBackward0", -1): 1,
        ("TBackward0", 0): 1,
        ("TBackward0", 1): 2,
        ("TanhBackward0", 0): 1,
        ("torch::autograd::AccumulateGrad", 0): 2,
        ("torch::autograd::AccumulateGrad", 1): 2,
    }
    assert not model.first._forward_hooks, "the hooks are gone"
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_subject_lies_on_both_devices(name: str) -> None:
    session = DemoSession(name, steps=None, plant_nan=False)
    placement = session._placement
    with placement:
        inputs, targets = session.subject.batches(0)
        loss = session.subject.loss(session.subject.model(inputs), targets)
    devices = Counter(placement(node) for node in graph(loss))
    assert devices[0] > 50
    assert devices[1] > 50
    assert devices[-1] < 5
    again, _ = session.subject.batches(0)
    assert torch.equal(inputs, again)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_subject_learns_and_its_gradients_are_those_of_the_native_engine(
    name: str, tmp_path: Path
) -> None:
    session = DemoSession(name, steps=12, plant_nan=False)
    losses = list(session.train())
    losses.append(session.record(tmp_path / "t.agviz"))
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    comparison = session.compare()
    assert comparison.parameters == len(list(session.subject.model.parameters()))
    assert comparison.different == []
    with Trace.open(tmp_path / "t.agviz") as trace:
        (task,) = trace.graph_tasks
        assert task.executed == task.nodes
        executed = {row.thread: row.executed for row in trace.thread_times() if row.executed}
        queues = {thread.id: thread.queue for thread in trace.threads}
        assert {queues[thread] for thread in executed} >= {0, 1}
        leaves = [node for node in trace.nodes(task.id) if node.is_leaf]
        names = {name for name, _ in session.subject.model.named_parameters()}
        assert {leaf.parameter for leaf in leaves} == names
        assert trace.first_nonfinite() is None


def test_training_is_the_same_as_on_the_native_engine() -> None:
    def losses() -> list[float]:
        return list(DemoSession("mlp", steps=6, plant_nan=False).train())

    ours = losses()
    with agviz_engine.native():
        assert losses() == ours


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_planted_nan_spares_the_loss_and_what_lies_behind_it(name: str, tmp_path: Path) -> None:
    session = DemoSession(name, steps=2, plant_nan=True)
    for loss in session.train():
        assert torch.tensor(loss).isfinite()
    assert torch.tensor(session.record(tmp_path / "t.agviz")).isfinite()
    finite = {
        name: bool(parameter.grad.isfinite().all())
        for name, parameter in session.subject.model.named_parameters()
        if parameter.grad is not None
    }
    assert set(finite.values()) == {True, False}
    assert session.compare().different == []
    with Trace.open(tmp_path / "t.agviz") as trace:
        (task,) = trace.graph_tasks
        found = spread(trace, task.id)
        assert found is not None
        first = trace.node(found.first.graph_task, found.first.node)
        assert first.short_name == "DivBackward0"
        module = session.subject.model.get_submodule(str(first.module))
        assert module is session.subject.planted
        leaves = trace.leaves(task.id)
        reached = {leaves[node] for _, node in found.leaves}
        assert reached == {name for name, is_finite in finite.items() if not is_finite}
        assert set(leaves.values()) == set(finite)


def test_a_difference_is_seen(tmp_path: Path) -> None:
    session = DemoSession("mlp", steps=1, plant_nan=False)
    session.record(tmp_path / "t.agviz")
    name, parameter = next(session.subject.model.named_parameters())
    assert parameter.grad is not None
    with torch.no_grad():
        parameter.grad[0, 0] = parameter.grad[0, 0].nextafter(torch.tensor(9.0))
    assert session.compare().different == [name]


def test_what_is_measured_is_plain_training(tmp_path: Path) -> None:
    """On the caller's thread alone, the same steps natively, and recorded as `agviz run` does."""
    session = DemoSession("mlp", steps=2, plant_nan=True)
    session.record(tmp_path / "t.agviz")
    threads: set[tuple[bool, str]] = set()
    listened: list[bool] = []

    def seen(gradient: torch.Tensor) -> None:
        threads.add((agviz_engine.is_installed(), threading.current_thread().name))
        assert gradient.isfinite().all()

    parameter = next(session.subject.model.parameters())
    parameter.register_hook(seen)
    session.subject.model.register_forward_hook(
        lambda *_: listened.append(torch.is_anomaly_enabled() or agviz_engine.is_installed())
    )
    found = session.measure(rounds=3, steps=2)
    assert threads == {(False, "MainThread"), (True, "MainThread")}
    assert listened == ([False] * 2 + [True] * 2) * 4
    assert found.steps == 6
    assert found.step.median > 0.5
    assert 0 < found.native_backward_ns < found.native_step_ns


@pytest.mark.slow
def test_the_demo_in_a_pipe(tmp_path: Path) -> None:
    finished = demo("--steps", "8", "--output-dir", "out", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    text = finished.stdout
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert re.search(r"step 1/8: loss 4\.\d+", words)
    assert "device 0" in words
    assert "device 1" in words
    parameters = re.search(r"gradients of all (\d+) parameters are equal", words)
    assert parameters is not None
    assert re.search(
        r"in CPU time, against this model's training on torch's own engine: 27 steps of each in"
        r" turn, nothing simulated backward [\d.]+ x \(mostly [\d.]+ to [\d.]+\) torch's"
        r" [\d.]+ (m|µ)s whole step [\d.]+ x \(mostly [\d.]+ to [\d.]+\) torch's"
        r" [\d.]+ (m|µ)s the file [\d.]+ x \(mostly [\d.]+ to [\d.]+\) a step more",
        words,
    )
    assert "✓ nothing unusual in 1 backward pass" in words
    assert "agviz view out/agviz-demo.agviz" in words
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "agviz-demo.agviz",
        "agviz-demo.svg",
    ]


def test_the_demo_finds_the_planted_nan(tmp_path: Path) -> None:
    finished = demo("--model", "mlp", "--plant-nan", "--headless", "--steps", "3", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    words = " ".join(finished.stdout.split())
    assert "begin at DivBackward0" in words
    assert "that is the planted bug: the module second.planted.norm" in words
    assert "reached 38 of 76 parameters" in words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--steps", "0"], "'0' is no number of steps"),
        (["--model", "gpt"], "invalid choice: 'gpt'"),
        (["--output-dir", "file"], "the folder file can't be made"),
        (["--output-dir", "taken"], "exists and is not a trace"),
    ],
)
def test_a_wrong_call_of_the_demo(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "agviz-demo.agviz").write_text("Dear reader,")
    finished = demo(*arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert sentence in finished.stderr.splitlines()[-1]
    assert not finished.stdout, "nothing was trained"


def test_a_torch_that_the_engine_can_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise agviz_engine.UnsupportedTorchError("agviz can't serve this torch; install another")

    monkeypatch.setattr("agviz_engine.api.engine", refuse)
    assert main(["demo", "--engine", "exact", "--output-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "agviz: agviz can't serve this torch; install another\n"


@pytest.mark.slow
def test_the_language_model_needs_text(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\nsysconfig.get_paths = lambda: {'stdlib': '/nonexistent'}\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])
    finished = demo(cwd=tmp_path, fresh=True, PYTHONPATH=path)
    assert finished.returncode == 2
    assert "try another model: agviz demo --model conv" in finished.stderr
