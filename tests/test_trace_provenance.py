"""Where nodes come from, held against what anomaly mode itself says of the same nodes."""

from __future__ import annotations

import gc
import inspect
import re
import subprocess
import sys
import sysconfig
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import agviz
import agviz_engine
from agviz.cli import summary
from agviz.cli.main import main
from agviz.export.draw import drawn
from agviz.record import capturing
from agviz.record import provenance as provenance_module
from agviz.record.provenance import Provenance
from agviz.record.recorder import Recorder
from agviz_engine.torch_modes import anomaly_pause
from tests.slow_cases import slow_but
from tests.test_trace_hostile import changed, read_everything, refuse, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.rows import Frame, NodeRow


class Halved(torch.autograd.Function):
    """Saves a tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, None)
        return x / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / 2


class Broken(torch.autograd.Function):
    """Fails in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ValueError("no backward")


def transformer() -> Callable[[], Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return lambda: model(torch.ones(2, 5, 16)).square().mean()


def conv_net() -> Callable[[], Tensor]:
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    head = nn.Linear(4, 3)

    def loss() -> Tensor:
        x = body(torch.ones(2, 3, 8, 8))
        x = x + torch.nn.functional.avg_pool2d(x, 3, 1, 1)
        x[:, 0] = 1.0  # a CopySlices
        return nn.functional.cross_entropy(head(x.mean((2, 3))), torch.tensor([0, 1]))

    return loss


def lstm() -> Callable[[], Tensor]:
    model, cell = nn.LSTM(4, 5, 2), nn.LSTMCell(5, 5)

    def loss() -> Tensor:
        out = model(torch.ones(6, 2, 4))[0]
        h = c = torch.zeros(2, 5)
        for step in out:
            h, c = cell(step, (h, c))
        return h.sum() + c.sum()

    return loss


def custom() -> Callable[[], Tensor]:
    model = nn.Linear(3, 3)
    return lambda: Halved.apply(model(torch.ones(2, 3))).sum()  # type: ignore[no-untyped-call]


def checkpointed(*, use_reentrant: bool) -> Callable[[], Tensor]:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    x = torch.ones(2, 3, requires_grad=True)

    def part(value: Tensor) -> Tensor:
        inner = model(value)
        return inner.exp().sin()  # type: ignore[no-any-return]

    return lambda: checkpoint(part, x, use_reentrant=use_reentrant).sum()


def in_threads() -> Callable[[], Tensor]:
    models = [nn.Linear(3, 3) for _ in range(3)]

    def loss() -> Tensor:
        found: list[Tensor] = []
        threads = [
            threading.Thread(target=lambda model=model: found.append(model(torch.ones(3)).sin()))
            for model in models
        ]
        for thread in threads:
            thread.start()
            thread.join()
        return torch.stack(found).sum()

    return loss


def twice() -> Callable[[], Tensor]:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def loss() -> Tensor:
        x = torch.ones(3, requires_grad=True)
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return gradient.square().sum()

    return loss


PROGRAMS = {
    "transformer": transformer,
    "conv": conv_net,
    "lstm": lstm,
    "custom Function": custom,
    "checkpoint": lambda: checkpointed(use_reentrant=False),
    "reentrant checkpoint": lambda: checkpointed(use_reentrant=True),
    "threads": in_threads,
    "double backward": twice,
}


def torchs_own(node: Any, frame: Callable[..., Frame]) -> tuple[Frame, ...]:
    """What anomaly mode says of a node."""
    entry = re.compile(r'  File "(.*?)", line (\d+), in (.*?)\n')
    stack = []
    for text in node.metadata["traceback_"]:
        file, line, function = entry.match(text).groups()  # type: ignore[union-attr]
        stack.append(frame(file, int(line), function))
    return tuple(stack)


def graph(root: Any) -> list[Any]:
    """All nodes, in an order that two equal graphs share."""
    found, stack = {root: None}, [root]
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in found:
                found[node] = None
                stack.append(node)
    return list(found)


def anomaly_mode() -> Any:
    return torch.autograd.set_detect_anomaly(True, check_nan=False)


@pytest.fixture(params=["compiled", "torch"])
def captured_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """For tests of what the two ways to capture a stack must both do."""
    if request.param == "torch":
        monkeypatch.setattr(capturing, "way", capturing.by_torch)
    elif not capturing.is_built():
        pytest.skip("no C compiler was there")
    return str(request.param)


OFTEN = {"custom Function", "double backward", "reentrant checkpoint", "threads"}
"""Of the programs, those in which stacks are most unlike."""


@pytest.mark.parametrize("name", slow_but(OFTEN, PROGRAMS))
@pytest.mark.usefixtures("captured_by")
def test_every_nodes_stack_is_that_of_anomaly_mode(name: str) -> None:
    loss = PROGRAMS[name]()
    origins = Provenance()

    def ours(nodes: list[Any]) -> list[tuple[Frame, ...]]:
        return origins.resolve([origins.captured(node) for node in nodes])

    def native(nodes: list[Any]) -> list[tuple[Frame, ...]]:
        return [torchs_own(node, origins.files.frame) for node in nodes]

    found = []
    for around, read in ((lambda: origins, ours), (anomaly_mode, native)):
        with around():
            nodes = graph(loss().grad_fn)
        found.append(([node.name() for node in nodes], read(nodes)))
        del nodes
        gc.collect()  # a leaf's AccumulateGrad lives as long as a graph that it is in
    assert len(found[0][0]) >= 3
    assert all(found[0][1])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", slow_but(OFTEN, PROGRAMS))
def test_a_trace_says_what_anomaly_mode_says(name: str, tmp_path: Path) -> None:
    loss = PROGRAMS[name]()
    found: list[list[tuple[Any, ...]]] = []
    for path, is_native in ((tmp_path / "ours.agviz", False), (tmp_path / "own.agviz", True)):
        with agviz.trace(path=path), torch.autograd.set_detect_anomaly(is_native, check_nan=False):
            loss().backward()
        gc.collect()
        with agviz.Trace.open(path) as trace:
            found.append(
                [
                    (number, node.index, node.name, node.stack)
                    for number, task in enumerate(trace.graph_tasks)
                    for node in trace.nodes(task.id)
                    if node.name != "GraphRoot"
                ]
            )
    assert found[0] == found[1]
    assert all(stack for *_, stack in found[0])


def test_several_roots(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with agviz.trace(path=tmp_path / "t.agviz") as t:
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            torch.autograd.backward([x.exp().sum(), x.sin().sum()])
    lines = [node.line for node in t.nodes if node.short_name in {"ExpBackward0", "SinBackward0"}]
    assert len(lines) == 4
    assert all(line is not None and "test_trace_provenance.py" in line for line in lines)
    assert not caplog.records


def record(tmp_path: Path, loss: Callable[[], Tensor]) -> tuple[agviz.Trace, list[NodeRow]]:
    with agviz.trace(path=tmp_path / "t.agviz"):
        loss().backward()
    trace = agviz.Trace.open(tmp_path / "t.agviz")
    return trace, [node for task in trace.graph_tasks for node in trace.nodes(task.id)]


def by_name(nodes: list[NodeRow]) -> dict[str, NodeRow]:
    return {node.short_name: node for node in nodes}


def test_the_line_is_the_innermost_of_the_users(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)

    def loss() -> Tensor:
        return model(torch.ones(3)).sin().sum()  # type: ignore[no-any-return]

    here = inspect.getsourcelines(loss)[1] + 1
    trace, nodes = record(tmp_path, loss)
    trace.close()
    for node in nodes:
        assert node.frame is not None
        assert (node.frame.line, node.frame.function) == (here, "loss")
        assert node.line == f"tests/test_trace_provenance.py:{here} in loss"
    linear = next(node for node in nodes if node.module == "Linear")
    assert linear.stack[-1].hidden
    assert linear.stack[-1].file == "torch/nn/modules/linear.py"


@pytest.mark.slow
def test_the_command_agviz_is_no_frame_of_the_users(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n")
    command = [f"{sysconfig.get_path('scripts')}/agviz", "run", "-o", "t.agviz", str(script)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        stack = trace.nodes(0)[0].stack
    assert [frame.file for frame in stack if not frame.hidden] == ["train.py"]
    assert any(frame.file.endswith("bin/agviz") for frame in stack)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_nodes_name_the_forwards_line(tmp_path: Path, use_reentrant: bool) -> None:
    trace, nodes = record(tmp_path, checkpointed(use_reentrant=use_reentrant))
    trace.close()
    node = by_name(nodes)["ExpBackward0"]
    assert node.frame is not None
    assert node.frame.function == "part"
    assert any(frame.function == "record" for frame in node.stack)


def test_saved_tensors_by_name_shape_and_bytes(tmp_path: Path) -> None:
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        y = Halved.apply(x) @ torch.ones(3, 4, dtype=torch.float64)  # type: ignore[no-untyped-call]
        return y[torch.tensor([0, 1])].exp().sum()  # type: ignore[no-any-return]

    trace, nodes = record(tmp_path, loss)
    with trace:
        found = {
            name: [tuple(row[1:]) for row in trace.saved(node.graph_task, node.index)]
            for name, node in by_name(nodes).items()
        }
    assert found == {
        "SumBackward0": [],
        "ExpBackward0": [("result", (2, 4), "float64", 64)],
        "IndexBackward0": [("indices[0]", (2,), "int64", 16)],
        "MmBackward0": [("mat2", (3, 4), "float64", 96)],
        "HalvedBackward": [("tensors[0]", (2, 3), "float64", 48)],
        "AccumulateGrad": [],
    }


def test_saved_tensors_are_not_unpacked(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    calls: list[str] = []

    def pack(tensor: Tensor) -> Tensor:
        calls.append("pack")
        return tensor * 2

    def unpack(packed: Tensor) -> Tensor:
        calls.append("unpack")
        return packed / 2

    with saved_tensors_hooks(pack, unpack):
        y = x.exp()
    seen = list(Provenance().saved(y.grad_fn))
    assert calls == ["pack"]
    assert [each.name for each in seen] == ["result"]
    with saved_tensors_hooks(lambda tensor: tensor.numpy(force=True), torch.from_numpy):
        y = x.exp()
    assert list(Provenance().saved(y.grad_fn)) == [("result", "", "", None)]
    y.sum().backward()
    assert list(Provenance().saved(y.grad_fn)) == []


def test_no_subclass_is_asked_about_a_saved_tensor() -> None:
    asked: list[Any] = []

    class Curious(Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    x = torch.ones(3, requires_grad=True).as_subclass(Curious)
    y: Any = x * x
    node = y.grad_fn.next_functions[0][0]  # behind the AliasBackward0 that makes it a Curious
    asked.clear()
    assert [each.name for each in Provenance().saved(node)] == ["other", "self"]
    assert asked == []


@pytest.mark.usefixtures("captured_by")
def test_the_program_does_not_see_the_mode(recwarn: pytest.WarningsRecorder) -> None:
    functions = torch.is_anomaly_enabled, torch.set_anomaly_enabled
    with Provenance(), Provenance():
        assert not torch.is_anomaly_enabled()
        assert torch.is_anomaly_check_nan_enabled()
        (torch.ones(3, requires_grad=True) / 0).sum().backward()
        y = (torch.zeros(3, requires_grad=True) * 1).sqrt() * 0
        y.sum().backward()  # NaN
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            assert torch.is_anomaly_enabled()
            assert not torch.is_anomaly_check_nan_enabled()
            made: Any = torch.ones(3, requires_grad=True).exp()
            assert "in test_the_program" in "".join(made.grad_fn.metadata["traceback_"])
        assert not torch.is_anomaly_enabled()
        with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
            ((torch.zeros(3, requires_grad=True) * 1).sqrt() * 0).sum().backward()
    assert functions == (torch.is_anomaly_enabled, torch.set_anomaly_enabled)
    assert not torch.is_anomaly_enabled()
    made = torch.ones(3, requires_grad=True).exp()
    assert "traceback_" not in made.grad_fn.metadata
    assert not [w for w in recwarn if "no backward" in str(w.message)]


@pytest.mark.usefixtures("captured_by")
def test_the_mode_is_as_it_was_though_a_pause_of_another_thread_ends_later() -> None:
    provenance = Provenance()
    with anomaly_pause:
        provenance.start()
    assert anomaly_pause.flags == (True, False)
    assert "traceback_" in cast("Any", torch.ones(3, requires_grad=True).exp()).grad_fn.metadata
    with anomaly_pause:
        provenance.stop()
    assert not torch.is_anomaly_enabled()
    with torch.autograd.set_detect_anomaly(True):
        with anomaly_pause, Provenance():
            assert torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.usefixtures("captured_by")
def test_a_failing_function_fails_without_more_words(native: bool) -> None:
    engine = agviz_engine.native() if native else agviz_engine.installed()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with engine, Provenance():
            y = Broken.apply(torch.ones(3, requires_grad=True)).sum()  # type: ignore[no-untyped-call]
            with pytest.raises(ValueError, match="no backward"):
                y.backward()
    assert [str(each.message) for each in said] == []


@pytest.mark.usefixtures("captured_by")
def test_no_frame_of_ours_is_called_where_nodes_are_made() -> None:
    called: list[str] = []
    x = torch.ones(3, requires_grad=True)
    with Provenance() as origins:
        sys.setprofile(lambda frame, event, _: called.append(f"{event} {frame.f_code.co_name}"))
        y = x * 2
        sys.setprofile(None)
    assert [call for call in called if call.startswith("call")] == []
    assert origins.captured(y.grad_fn) is not None


@pytest.mark.slow
@pytest.mark.usefixtures("captured_by")
def test_a_compiled_function_is_compiled_all_the_same() -> None:
    graphs: list[int] = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(len(list(module.graph.nodes)))
        return module.forward

    def f(x: Tensor) -> Tensor:
        return (x * 2).sin() + 1

    x = torch.ones(3, requires_grad=True)
    compiled: Any = torch.compile(f, backend=backend)
    aot: Any = torch.compile(f, backend="aot_eager")
    with Provenance():
        assert torch.equal(compiled(x), f(x))
        aot(x).sum().backward()
    assert len(graphs) == 1
    torch._dynamo.reset()


@pytest.mark.usefixtures("captured_by")
def test_stacks_between_two_graph_tasks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance_module, "_MOST_CAPTURED", 5)
    x = torch.ones(3, requires_grad=True)
    with Provenance() as origins:
        for _ in range(2):
            nodes = [(x * 1).grad_fn for _ in range(8)]
            captured = [origins.captured(node) is not None for node in nodes]
            assert captured.count(True) in {4, 5}  # AccumulateGrad has one as well
            origins.renew()


@pytest.mark.usefixtures("captured_by")
def test_a_stack_goes_with_its_node() -> None:
    x = torch.ones(3, requires_grad=True)
    code = sys._getframe().f_code
    before = sys.getrefcount(code)
    with Provenance():
        y = x * 2
        held = sys.getrefcount(code) - before
        assert held >= 2  # MulBackward0 and AccumulateGrad
        del y
        assert sys.getrefcount(code) == before


@pytest.mark.usefixtures("captured_by")
def test_memory_does_not_grow_with_stacks_that_are_gone() -> None:
    x = torch.ones(3, requires_grad=True)
    with Provenance() as origins:
        for _ in range(500):
            x.exp()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(5_000):
            x.exp()
            origins.renew()
        gc.collect()
        assert sys.getallocatedblocks() - before < 500


def test_torchs_own_engine_reads_an_empty_stack(captured_by: str) -> None:
    x = torch.ones(3, requires_grad=True)
    with Provenance():
        y: Any = x * 2
    found = y.grad_fn.metadata["traceback_"]
    assert "".join(found) == ""
    assert list(found) == found.copy() == []
    assert ("Captured" in type(found).__name__) == (captured_by == "compiled")
    warns = pytest.warns(UserWarning, match=r"Traceback of forward call that caused the error:\n")
    with agviz_engine.native(), torch.autograd.set_detect_anomaly(True):
        y = Broken.apply(y)  # type: ignore[no-untyped-call]
        y.grad_fn.metadata["traceback_"] = found
        with warns, pytest.raises(ValueError, match="no backward"):
            y.sum().backward()


def test_a_recording_goes_on_where_stacks_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Any:
        raise OSError("planted")

    monkeypatch.setattr(Provenance, "resolve", fail)
    trace, nodes = record(tmp_path, lambda: torch.ones(3, requires_grad=True).exp().sum())
    with trace:
        assert len(nodes) == 3
        assert [node.line for node in nodes] == [None] * 3
        assert trace.meta.end_ns is not None
    assert "planted" in caplog.text


def test_without_provenance_nothing_is_kept(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", provenance=False):
        y: Any = torch.ones(3, requires_grad=True).exp().sum()
        assert "traceback_" not in y.grad_fn.metadata
        y.backward()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        (task,) = trace.graph_tasks
        assert [node.stack for node in trace.nodes(task.id)] == [()] * 3
        assert trace.saved(task.id, 1) == []


def test_equal_stacks_are_stored_once(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    origins = Provenance()
    with (
        origins,
        Recorder(tmp_path / "t.agviz", provenance=origins) as recorder,
        agviz_engine.installed(recorder),
    ):
        for _ in range(50):
            (x * 2).sum().backward()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        stacks = {node.stack for task in trace.graph_tasks for node in trace.nodes(task.id)}
        assert len(stacks) == 1
        assert len(trace._contents().stacks._stacks) == len(next(iter(stacks)))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "t.agviz"
    with agviz.trace(path=path):
        (torch.ones(3, requires_grad=True).exp() * torch.ones(3)).sum().backward()
    return path.read_bytes()


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE origin SET stack = 123456789",
        "UPDATE origin SET stack = -1",
        "UPDATE origin SET stack = 0",
        "UPDATE origin SET stack = 'x'",
        "UPDATE stack SET caller = id",
        "UPDATE stack SET caller = 9223372036854775807",
        "UPDATE stack SET caller = -1",
        "UPDATE stack SET frame = 123456789",
        "UPDATE frame SET file = 123456789",
        "UPDATE frame SET line = -1",
        "UPDATE frame SET line = 9223372036854775807",
        "UPDATE frame SET function = x'00'",
        "DELETE FROM frame",
        "DELETE FROM stack WHERE id = 1",
        "UPDATE saved SET name = 123456789",
        "UPDATE saved SET shape = 1",
        "UPDATE saved SET dtype = NULL",
        "UPDATE saved SET bytes = 'x'",
        "UPDATE saved SET bytes = -1",
        "UPDATE string SET text = '[1];[2]'; UPDATE saved SET shape = 1",
    ],
)
def test_lies_about_origins_are_noticed(good: bytes, tmp_path: Path, lie: str) -> None:
    assert "damaged" in refuse(told(tmp_path / "t.agviz", good, lie))


def test_nodes_that_are_not_there_may_have_origins(good: bytes, tmp_path: Path) -> None:
    path = changed(
        tmp_path / "t.agviz",
        good,
        "INSERT INTO origin SELECT graph_task, -5, stack FROM origin LIMIT 1",
    )
    read_everything(path)


def test_a_file_name_says_nothing_to_a_terminal(tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    code = compile("def f(x):\n    return x.exp()\n", "evil\x1b[2J\u202e\n.py", "exec")
    exec(code, made)  # noqa: S102 - the only way to a file of this name
    trace, nodes = record(tmp_path, lambda: made["f"](torch.ones(3, requires_grad=True)).sum())
    trace.close()
    line = by_name(nodes)["ExpBackward0"].line
    assert (
        line == "evil\N{REPLACEMENT CHARACTER}[2J" + "\N{REPLACEMENT CHARACTER}" * 2 + ".py:2 in f"
    )
    assert all(
        text.isprintable() for text in read_everything(tmp_path / "t.agviz") if "\n" not in text
    )


@pytest.mark.usefixtures("captured_by")
def test_a_very_deep_stack_is_cut_at_its_outer_end(tmp_path: Path) -> None:
    def deep(depth: int) -> Tensor:
        return deep(depth - 1) if depth else torch.ones(3, requires_grad=True).exp().sum()

    trace, nodes = record(tmp_path, lambda: deep(600))
    trace.close()
    assert {len(node.stack) for node in nodes} == {capturing.MOST_FRAMES}
    assert {node.frame.function for node in nodes if node.frame} == {"deep"}


@pytest.mark.usefixtures("captured_by")
def test_captured_stacks_are_laid_out_as_they_are_read() -> None:
    way = capturing.way()
    assert way is not None
    assert capturing._works(way)


def test_a_stack_that_lies_elsewhere_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    way = capturing.by_torch()
    assert capturing._works(way)
    elsewhere: list[Any] = []

    def captures_elsewhere() -> Any:
        elsewhere.append(way.one())
        return elsewhere[-1]

    assert not capturing._works(way._replace(one=captures_elsewhere))
    monkeypatch.setattr(capturing, "_works", lambda _: False)
    capturing.way.cache_clear()
    try:
        assert capturing.way() is None
        with Provenance():
            y: Any = torch.ones(3, requires_grad=True).exp()
        assert "traceback_" not in y.grad_fn.metadata
    finally:
        capturing.way.cache_clear()


@pytest.mark.slow
def test_resolving_imports_no_compiler() -> None:
    program = """
import sys, torch
from agviz.record.provenance import Provenance
with Provenance() as origins:
    y = torch.ones(3, requires_grad=True).exp()
(stack,) = origins.resolve([origins.captured(y.grad_fn)])
assert stack[-1].line == 5, stack
assert not any(name.startswith("torch._inductor.codecache") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(agviz.__file__).parents[1])


def test_the_line_is_shown_where_nodes_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, nodes = record(tmp_path, lambda: torch.zeros(3, requires_grad=True).log().sum())
    with trace:
        node = by_name(nodes)["LogBackward0"]
        line = node.line
        assert line is not None
        facts = summary.gather(trace, None, top=5)
        assert line in {row["line"] for row in facts["slowest_nodes"]}
        assert facts["non_finite"][0]["first"]["line"] == line
        drawing = drawn(trace, "dot").decode()
    assert main(["summary", str(tmp_path / "t.agviz")]) == 0
    assert f"created by {line}" in capsys.readouterr().out
    assert f"created by {line}" in drawing
