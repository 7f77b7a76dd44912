"""A program does not feel that its torch functions are observed: without that it is the oracle."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.traces.reader import Trace
from tests import python_process
from tests.engine.oracle import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def bits(values: list[Tensor]) -> list[bytes]:
    return [value.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for value in values]


def modes() -> list[object]:
    torch_c: Any = torch._C
    return [torch_c._get_function_stack_at(i) for i in range(torch_c._len_torch_function_stack())]


def checked(program: Callable[[], Any]) -> tuple[Any, Trace]:
    """What a program gives while its functions are observed, and the trace."""
    before = modes()
    with agviz.trace(check_forward=True) as recorded:
        result = program()
    assert modes() == before
    return result, recorded.trace


def trained(model: nn.Module, inputs: Callable[[], Tensor], **how: Any) -> list[bytes]:
    """Parameters, gradients and the random state after three steps."""
    optimizer = torch.optim.Adam(model.parameters(), **how)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(inputs()).float().pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return bits([loss, *model.parameters(), *grads, torch.get_rng_state()])


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten()
    )


class Recurrent(nn.Module):
    """An LSTM and what hangs on it."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.cell(x.squeeze(1))
        return torch.as_tensor(hidden)


class Transformer(nn.Module):
    """Two layers, one of them checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(6, 2, 12, batch_first=True) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1, 2)
        x = self.layers[0](x)
        return torch.as_tensor(checkpoint(self.layers[1], x, use_reentrant=False))


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("kind", [convolutional, Recurrent, Transformer])
@pytest.mark.parametrize("foreach", [False, True])
def test_a_training_comes_out_bit_for_bit(kind: Callable[[], nn.Module], foreach: bool) -> None:
    def program() -> list[bytes]:
        torch.manual_seed(0)
        model = kind()
        return trained(model, lambda: torch.randn(3, 1, 6, 6), foreach=foreach)

    native = program()
    result, trace = checked(program)
    assert result == native
    assert len(trace.forward_ops()) > 50


def test_autocast_and_a_scaler() -> None:
    def program() -> list[bytes]:
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.softmax(model(torch.randn(2, 4)), -1).sum()
        loss.backward()
        return bits([loss, model.weight.grad if model.weight.grad is not None else loss])

    assert checked(program)[0] == program()


@pytest.mark.parametrize("grad", [False, True])
def test_transformers_take_their_fast_path(grad: bool) -> None:
    """It has other last bits than the slow one, and modules ask for modes before they take it."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    layer.requires_grad_(grad)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(grad)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval().requires_grad_(grad)
    x = torch.randn(2, 5, 16)

    def program() -> list[bytes]:
        with torch.set_grad_enabled(grad):
            return bits([encoder(x), layer(x), attention(x, x, x)[0]])

    with torch.profiler.profile() as native:
        expected = program()
    with torch.profiler.profile() as ours:
        result, trace = checked(program)
    assert result == expected
    count = [
        sum("_transformer_encoder_layer_fwd" in event.name for event in profile.events() or ())
        for profile in (native, ours)
    ]
    assert count[0] == count[1]
    assert bool(count[0]) != grad
    assert bool([op for op in trace.forward_ops() if op.module]) == grad


class Seeing(TorchFunctionMode):
    """A mode of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_program_see_the_same() -> None:
    layer = nn.Linear(3, 3)

    def program() -> Any:
        with Seeing() as mode:
            F.relu(layer(torch.ones(2, 3))).sum()
            torch.ones(2).add_(1)[0] = 3
        return mode.seen

    native = program()
    result, trace = checked(program)
    assert result == native
    assert {"torch.nn.functional.linear", "Tensor.add_"} <= {op.name for op in trace.forward_ops()}


def test_a_mode_that_is_left_after_the_recording_began_is_left() -> None:
    mode = Seeing()
    recording = agviz.trace(check_forward=True)
    with contextlib.ExitStack() as later:
        with mode:
            later.enter_context(recording)
            torch.ones(2)
        assert mode not in modes()
        torch.zeros(3)
    assert modes() == []
    assert [op.name for op in recording.trace.forward_ops()] == ["torch.ones", "torch.zeros"]


def test_the_default_device() -> None:
    def program() -> list[str]:
        devices = []
        torch.set_default_device("meta")
        try:
            devices.append(str(torch.ones(2).device))
            with torch.device("cpu"):
                devices.append(str(torch.ones(2).device))
            devices.append(str(torch.ones(2).device))
        finally:
            torch.set_default_device(None)
        return [*devices, str(torch.ones(2).device)]

    result, trace = checked(program)
    assert result == program() == ["meta", "cpu", "meta", "cpu"]
    assert len(trace.forward_ops()) == 4


def test_a_default_device_set_before() -> None:
    torch.set_default_device("meta")
    try:
        with agviz.trace(check_forward=True):
            assert torch.ones(2).is_meta
            torch.set_default_device(None)
            assert not torch.ones(2).is_meta
    finally:
        torch.set_default_device(None)
    assert modes() == []


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_functorch() -> None:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)

    def program() -> list[bytes]:
        def f(v: Tensor) -> Tensor:
            return torch.sin(v).sum() * v.pow(2).sum()

        return bits(
            [
                torch.func.grad(f)(x),
                torch.func.vmap(torch.func.grad(f))(x),
                torch.func.jacrev(torch.cos)(x),
                torch.func.jvp(f, (x,), (x,))[1],
                torch.autograd.functional.hessian(f, x[0]),
            ]
        )

    assert checked(program)[0] == program()


def test_tracing_gives_the_same_graph() -> None:
    def f(v: Tensor) -> Tensor:
        return F.relu(v * v.shape[0]).sum()

    def program() -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced: Any = torch.jit.trace(f, torch.ones(3))
        return [str(traced.graph), torch.fx.symbolic_trace(f).code]

    assert [line.split("#")[0] for line in checked(program)[0][0].splitlines()] == [
        line.split("#")[0] for line in program()[0].splitlines()
    ]
    assert checked(program)[0][1] == program()[1]


def test_tensors_can_be_swapped() -> None:
    with agviz.trace(check_forward=True):
        a, b = torch.ones(2), torch.zeros(2)
        (a + b).sum()
        torch.utils.swap_tensors(a, b)
        assert a.tolist() == [0, 0]
        (a + b).sum()
    assert torch.utils.swap_tensors.__module__ == "torch.utils"


def test_errors_and_their_words_stay_the_same() -> None:
    def program() -> list[str]:
        said = []
        for wrong in (
            lambda: torch.ones(2) @ torch.ones(3),
            lambda: F.cross_entropy(torch.ones(2, 2), torch.tensor([0, 5])),
            lambda: torch.ones(2).view(7),
            lambda: torch.ones(2, requires_grad=True).add_(1),
            lambda: torch.sqrt("a"),  # type: ignore[arg-type]
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever torch raises
                wrong()  # type: ignore[no-untyped-call]
            said.append(f"{caught.type}: {caught.value}")
        return said

    assert checked(program)[0] == program()


def test_a_subclass_keeps_its_own_functions() -> None:
    class Own(Tensor):
        called: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            cls.called.append(str(func))
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]

    def program() -> list[str]:
        Own.called.clear()
        value = torch.ones(2).as_subclass(Own)
        (value * 2).sum()
        return [*Own.called]

    native = program()
    result, trace = checked(program)
    assert result == native
    assert "Tensor.mul" in {op.name for op in trace.forward_ops()}


@pytest.fixture
def compiler() -> Iterator[Any]:
    """Torch's compiler, which does not remember what it compiled before."""
    dynamo: Any = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    yield dynamo
    dynamo.reset()


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_is_compiled_once_and_whole(compiler: Any) -> None:
    layer = nn.Linear(3, 3)
    graphs = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(str(graph.graph))
        return graph.forward

    def f(v: Tensor) -> Tensor:
        return F.relu(layer(v)).sum()

    def program() -> list[bytes]:
        whole = torch.compile(f, backend=backend, fullgraph=True)
        results = [whole(torch.full((2, 3), float(n))) for n in range(4)]
        module: Any = torch.compile(layer, backend=backend)
        results += [module(torch.ones(1, 3)) for _ in range(2)]
        torch.stack([result.sum() for result in results]).sum().backward()
        return bits([result.detach() for result in results])

    with agviz.trace():
        native = program()
    in_native = list(graphs)
    graphs.clear()
    compiler.reset()
    result, trace = checked(program)
    assert result == native
    assert graphs == in_native
    names = [op.name for op in trace.forward_ops()]
    assert names.count("torch.full") == 4  # between the calls it is there again
    assert "torch.nn.functional.relu" not in names


@pytest.mark.filterwarnings("ignore")
def test_what_was_compiled_before_is_not_compiled_again(compiler: Any) -> None:
    graphs = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda v: v.sin() + 1, backend=backend)
    compiled(torch.ones(3))
    with agviz.trace(check_forward=True):
        compiled(torch.ones(3))
        compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert len(graphs) == 1


def run(folder: Path, source: str, *options: str, **environment: str) -> str:
    (folder / "program.py").write_text(source)
    command = [sys.executable, "-m", "agviz", "run", *options, "-o", "t.agviz", "program.py"]
    finished = python_process.run(command, cwd=folder, env={**os.environ, **environment})
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


PROGRAM = """\
import torch
layer = torch.nn.Linear(2, 2)
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        return value * value
    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient
Square.apply(layer(torch.ones(1, 2))).log().sum().backward()
print(layer.weight.grad.isfinite().all().item())
"""


@pytest.mark.parametrize(
    ("options", "environment", "is_checked"),
    [
        (["--check-forward"], {}, True),
        ([], {"AGVIZ_CHECK_FORWARD": "1"}, True),
        ([], {"AGVIZ_CHECK_FORWARD": "0"}, False),
        ([], {}, False),
    ],
)
def test_the_command_line(
    tmp_path: Path, options: list[str], environment: dict[str, str], is_checked: bool
) -> None:
    assert run(tmp_path, PROGRAM, *options, **environment) == "True\n"
    with Trace.open(tmp_path / "t.agviz") as trace:
        ops = trace.forward_ops()
    assert bool(ops) == is_checked
    if is_checked:
        made = [op for op in ops if op.sequence_nr is not None]
        assert [(op.name, op.line) for op in made] == [
            ("torch.nn.functional.linear", "program.py:11 in <module>"),
            ("Square.apply", "program.py:11 in <module>"),
            ("Tensor.log", "program.py:11 in <module>"),
            ("Tensor.sum", "program.py:11 in <module>"),
        ]


def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    source = """\
import os, torch
x = torch.ones(2, requires_grad=True)
x.sin()
child = os.fork()
if not child:
    x.cos().sum().backward()
    exit()
os.waitpid(child, 0)
x.tan().sum().backward()
"""
    run(tmp_path, source, "--check-forward")
    files = sorted(tmp_path.glob("*.agviz"), key=lambda path: len(path.name))
    assert len(files) == 2
    told = []
    for file in files:
        with Trace.open(file) as trace:
            told.append([op.name for op in trace.forward_ops()])
    assert told == [
        ["torch.ones", "Tensor.sin", "Tensor.tan", "Tensor.sum"],
        ["Tensor.cos", "Tensor.sum"],
    ]


def test_a_forked_child_knows_the_model_that_it_calls(tmp_path: Path) -> None:
    """A worker that loads data calls none of its parent, and is asked for none of its gradients."""
    source = """\
import os, torch
model = torch.nn.Linear(2, 1)
model(torch.ones(1, 2)).sum().backward()
for calls_it in (False, True):
    child = os.fork()
    if not child:
        made = model(torch.ones(1, 2)) if calls_it else torch.ones(2, requires_grad=True)
        made.sum().backward()
        exit()
    os.waitpid(child, 0)
"""
    run(tmp_path, source)
    known = []
    for file in tmp_path.glob("*.agviz"):
        with Trace.open(file) as trace:
            known.append([row.name for row in trace.parameters(trace.graph_tasks.ids[-1])])
    assert sorted(known) == [[], ["weight", "bias"], ["weight", "bias"]]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("torch.ones(2) @ torch.ones(3)", marks=pytest.mark.slow),
        pytest.param("torch.ones(2)[5]", marks=pytest.mark.slow),
        "Broken.apply(torch.ones(2))",
        pytest.param("torch.ones(2).backward()", marks=pytest.mark.slow),
    ],
)
def test_an_error_ends_the_program_as_ever(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "class Broken(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, value):\n"
        "        raise KeyError('no')\n"
        f"def f():\n    return {wrong}\n"
        "f()\n"
    )
    said = []
    for command in ([], ["-m", "agviz", "run", "--check-forward", "-o", "t.agviz"]):
        finished = python_process.run([sys.executable, *command, "program.py"], cwd=tmp_path)
        assert finished.returncode == 1
        said.append([x for x in finished.stderr.splitlines() if not x.startswith("agviz: ")])
    assert said[0] == said[1]


def test_two_recordings_observe_the_same() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            return value + value

    apply: Any = Twice.apply
    with agviz.trace(check_forward=True) as outer:
        with agviz.trace(check_forward=True) as inner:
            apply(torch.ones(2))
        apply(torch.ones(2))
    name = f"{Twice.__qualname__}.apply"
    names = ["torch.ones", name, "Tensor.add"]
    assert [op.name for op in inner.trace.forward_ops()] == names
    assert [op.name for op in outer.trace.forward_ops()] == names * 2
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)
    assert modes() == []


def test_what_fails_in_the_recording_ends_only_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> str:
        raise ValueError("no words")

    monkeypatch.setattr("agviz.record.check_forward.words", fail)
    with agviz.trace(check_forward=True) as recorded:
        assert torch.ones(2).sum() == 2
        torch.ones(2, requires_grad=True).sum().backward()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no longer recorded" in caplog.text
    assert recorded.trace.forward_ops() == []
    assert len(recorded.graph_tasks) == 1


def in_inference_mode() -> Any:
    with torch.inference_mode():
        return torch.ones(2).add_(1) * 3


def fake() -> Any:
    with FakeTensorMode():
        return F.relu(torch.ones(2) * 2).shape


def traced_by_proxies() -> Any:
    return make_fx(lambda v: v.sin() + 1)(torch.ones(2)).code


def forward_mode() -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        return forward_ad.unpack_dual(dual.sin()).tangent


def nested() -> Any:
    parts = [torch.ones(2), torch.ones(3)]
    return [part.sum() for part in (torch.nested.nested_tensor(parts) * 2).unbind()]


def sparse() -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (3,)).to_dense()


def copied() -> Any:
    layer = copy.deepcopy(nn.Linear(2, 2))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    return torch.load(file)["weight"].shape


def scripted() -> Any:
    return torch.distributions.Normal(torch.zeros(2), torch.ones(2)).log_prob(torch.ones(2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [in_inference_mode, fake, traced_by_proxies, forward_mode, nested, sparse, copied, scripted],
)
def test_exotic_programs(program: Callable[[], Any]) -> None:
    result, trace = checked(program)
    assert described(result) == described(program())
    assert trace.forward_ops()


def test_a_recording_can_begin_in_inference_mode() -> None:
    with torch.inference_mode(), agviz.trace(check_forward=True) as recorded:
        torch.ones(2).add_(1)
    ops = recorded.trace.forward_ops()
    assert [op.outputs[0].version for op in ops] == [None, None]


def test_no_mode_stays_on_a_thread_that_is_in_a_module_when_the_recording_stops(
    tmp_path: Path,
) -> None:
    """One that was left could abort the process where its thread ended as Python shut down."""
    is_in, may_go_on = threading.Event(), threading.Event()
    found: list[list[object]] = []

    class Waiting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found.append(modes())
            is_in.set()
            may_go_on.wait()
            return x + 1

    def run() -> None:
        nn.Sequential(Waiting())(torch.ones(1))
        found.append(modes())

    hooks = nn.modules.module._global_forward_hooks
    before = len(hooks)
    thread = threading.Thread(target=run)
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        thread.start()
        is_in.wait()
    may_go_on.set()
    thread.join()
    inside, after = found
    assert inside
    assert not after
    assert len(hooks) == before
