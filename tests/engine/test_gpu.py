"""The engine on a CUDA device: one thread per device, streams as in the native engine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import Function, Variable
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live
from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import (
    assert_orders_equal,
    assert_outcomes_equal,
    assert_same,
    native_outcome,
    our_outcome,
)
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [
    pytest.mark.gpu,
    # Torch says so once in a process, of a thread that has done nothing else on the device before.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LONG = 50_000_000
"""GPU cycles, some 30 ms: whoever does not wait for a stream reads what is not there yet."""
Gradients = "Sequence[Tensor | None]"


class _Threads(Instrument):
    def __init__(self) -> None:
        self.queues: set[int] = set()

    def worker_started(self, event: events.WorkerStarted, _live: Live) -> None:
        self.queues.add(event.queue)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _on_device(program: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with torch.device("cuda"), _deterministic():
            return program()

    return run


# -- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_the_device(name: str) -> None:
    assert_same(_on_device(PROGRAMS[name]))


_ALL = [*FORWARD, *FORWARD, *HOOKS, *HOOKS, *CALLS]
_NUMBER = st.integers(0, 15)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    steps=st.lists(st.tuples(st.sampled_from(_ALL), _NUMBER, _NUMBER, _NUMBER), max_size=16),
    seed=st.integers(0, 3),
)
def test_random_programs_on_the_device(steps: list[Step], seed: int) -> None:
    @_on_device
    def program() -> list[Any]:
        return _DeviceMachine(seed, on_devices=True).run(steps)

    native, ours = native_outcome(program), our_outcome(program)
    if not any("called inside torch.vmap" in str(entry) for entry in native.tensors):
        assert_outcomes_equal(native, ours)
        # Where a pass fails, how far torch's device thread gets is open.
        if not any(entry[0] in CALLS and len(entry) == 3 for entry in native.tensors):
            assert_orders_equal(native, ours)


class _DeviceMachine(Machine):
    def random(self, *shape: int) -> Tensor:
        with torch.device("cpu"):  # where the generator is
            return super().random(*shape).cuda()


def _model() -> Sequence[Tensor | None]:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    model(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def _two_devices() -> Sequence[Tensor | None]:
    """The graph goes to the GPU and back, and leaves are on both."""
    host = [torch.randn(16, 16, requires_grad=True) for _ in range(3)]
    device = [torch.randn(16, 16, device="cuda", requires_grad=True) for _ in range(3)]
    x: Tensor = host[0]
    for own, other in zip(host, device, strict=True):
        x = (x @ own).cuda()
        x = (x @ other).tanh().cpu() + own
    x.sum().backward()
    return [leaf.grad for leaf in (*host, *device)]


def _several_roots() -> Sequence[Tensor | None]:
    x = torch.randn(8, device="cuda", requires_grad=True)
    y = torch.randn(8, requires_grad=True)
    torch.autograd.backward([(x * 2).sum(), (y * 3).sum(), (x * y.cuda()).sum()])
    return [x.grad, y.grad]


def _mixed_precision() -> Sequence[Tensor | None]:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**15)
    scales = []
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(16, 32, device="cuda")).float().pow(2).mean() * 100
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(torch.tensor(scaler.get_scale()))
    return [*(parameter.detach() for parameter in model.parameters()), *scales]


class _SeesAutocast(Function):
    seen: ClassVar[list[Any]] = []

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        made = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        _SeesAutocast.seen += [
            torch.is_autocast_enabled("cuda"),
            str(made.dtype),
            torch.is_grad_enabled(),
            torch.cuda.current_device(),
        ]
        return gradients[0]


def _backward_within_autocast() -> Sequence[Any]:
    _SeesAutocast.seen.clear()
    x = torch.ones(2, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        cast("Any", _SeesAutocast).apply(x).sum().backward()
    return [x.grad, *_SeesAutocast.seen]


def _checkpoint(*, use_reentrant: bool) -> Sequence[Tensor | None]:
    """The recomputation draws the same random numbers of the device again."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16)).cuda()
    x = torch.randn(8, 16, device="cuda", requires_grad=True)
    cast("Tensor", checkpoint(model, x, use_reentrant=use_reentrant)).sum().backward()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


def _reentrant_checkpoint() -> Sequence[Tensor | None]:
    return _checkpoint(use_reentrant=True)


def _other_checkpoint() -> Sequence[Tensor | None]:
    return _checkpoint(use_reentrant=False)


def _double_backward() -> Sequence[Tensor | None]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).pow(2).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def _some_inputs() -> Sequence[Tensor | None]:
    x = torch.randn(8, device="cuda", requires_grad=True)
    y = x * 2
    z = y.exp()
    return [*torch.autograd.grad(z.sum(), (y, x)), x.grad]


def _sparse() -> Sequence[Tensor | None]:
    table = nn.Embedding(10, 4, sparse=True).cuda()
    (table(torch.tensor([1, 2, 2], device="cuda")).sum() + table.weight[:1].sum() * 0).backward()
    return [table.weight.grad]


def _lstm() -> Sequence[Tensor | None]:
    model = nn.LSTM(8, 8, 2).cuda()
    out, _ = model(torch.randn(5, 3, 8, device="cuda"))
    out.sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def _fails_on_the_device() -> Sequence[Tensor | None]:
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x.exp()
    y.register_hook(lambda _: 1 / 0)
    y.sum().backward()
    return []


def _changed_in_place() -> Sequence[Tensor | None]:
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        y.mul_(2)
    y.sum().backward()
    return []


def _out_of_memory() -> Sequence[Tensor | None]:
    x = torch.ones(1, device="cuda", requires_grad=True)
    y = x * 1
    y.register_hook(lambda gradient: gradient.expand(1 << 50).clone().sum()[None])
    with contextlib.suppress(torch.OutOfMemoryError):
        y.sum().backward()
        raise AssertionError("there was memory enough")
    return [x.grad]


def _anomaly() -> Sequence[Tensor | None]:
    with torch.autograd.set_detect_anomaly(True), torch.device("cuda"):
        x = torch.zeros(2, requires_grad=True)
        (x.sqrt() * 0).sum().backward()
    return []


_EQUAL = [
    _model,
    _mixed_precision,
    _backward_within_autocast,
    _reentrant_checkpoint,
    _other_checkpoint,
    _double_backward,
    _some_inputs,
    _sparse,
    _lstm,
    _fails_on_the_device,
    _changed_in_place,
    _out_of_memory,
    _anomaly,
]


@pytest.mark.parametrize("program", _EQUAL)
def test_same_on_the_device(program: Callable[[], Any]) -> None:
    assert_same(program)


@pytest.mark.parametrize("program", [_two_devices, _several_roots])
def test_same_on_host_and_device(program: Callable[[], Any]) -> None:
    """Two threads at work: their nodes have no common order."""
    assert_same(program, order=False)


# -- threads --------------------------------------------------------------------------------------


def test_nodes_run_on_a_thread_of_their_device() -> None:
    threads = _Threads()
    with installed(threads):
        _model()
    assert 0 in threads.queues


def test_hooks_see_the_thread_and_the_device_that_they_see_natively() -> None:
    def program() -> list[Any]:
        here, seen = threading.get_ident(), []
        x = torch.ones(2, device="cuda", requires_grad=True)
        host = torch.ones(2, requires_grad=True)
        moved = host.cuda()
        for name, tensor in (("x", x), ("host", host), ("moved", moved)):
            tensor.register_hook(
                lambda _, name=name: seen.append((name, threading.get_ident() == here))
            )
        (x * moved).sum().backward()
        return sorted(seen)

    assert_same(program, order=False)


_FORKS = """
import os, sys, torch
from agviz_engine import installed
if sys.argv[1] == "ours":
    installed().__enter__()
def backward():
    x = torch.ones(2, requires_grad=True)
    try:
        (x * 2).sum().backward()
        print(x.grad.tolist(), flush=True)
    except RuntimeError as error:
        print(error, flush=True)
if sys.argv[2] == "used":
    backward()
if sys.argv[2] == "device":
    torch.ones(2, device="cuda")
if os.fork():
    os.wait()
else:
    backward()
    os._exit(0)
"""


@pytest.mark.parametrize("before", ["unused", "used", "device"])
def test_a_forked_child_is_refused_as_natively(before: str) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _FORKS, engine, before],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        for engine in ("native", "ours")
    ]
    assert said[0].stdout == said[1].stdout, said[1].stderr


def test_a_graph_of_the_host_makes_no_context_on_the_device() -> None:

    code = (
        "import torch\n"
        "from agviz_engine import installed\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "with installed():\n"
        "    x.sum().backward()\n"
        "print(torch.cuda.is_initialized(), torch._C._cuda_hasPrimaryContext(0), x.grad.tolist())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.split("\n")[0] == "False False [1.0, 1.0]", result.stderr


# -- streams --------------------------------------------------------------------------------------


class _Slow(Function):
    """Its gradient comes late, on the stream it is made on."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        torch.cuda._sleep(LONG)
        return gradients[0] * 1


def _slow(x: Tensor) -> Tensor:
    return cast("Tensor", cast("Any", _Slow).apply(x))


def _sides(count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream() for _ in range(count)]


def _side_stream() -> Sequence[Tensor | None]:
    x = torch.randn(512, 512, device="cuda", requires_grad=True)
    (side,) = _sides(1)
    h = x @ x
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        k = (h * 2).tanh() @ h
    torch.cuda.current_stream().wait_stream(side)
    (k + h).sum().backward()
    return [x.grad]


def _sums_across_streams() -> Sequence[Tensor | None]:
    """Gradients from three streams are summed, each comes late."""
    x = torch.randn(256, 256, device="cuda", requires_grad=True)
    h = x * 2
    parts: list[Tensor] = []
    for side in _sides(3):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            parts.append(_slow(h) * len(parts))
    torch.cuda.synchronize()
    torch.stack(parts).sum().backward()
    return [x.grad]


def _leaf_of_another_stream() -> Sequence[Tensor | None]:
    """AccumulateGrad runs where it was made; the caller gets its gradient on its own stream."""
    (side,) = _sides(1)
    with torch.cuda.stream(side):
        x = torch.randn(1 << 20, device="cuda", requires_grad=True)
        accumulator = get_gradient_edge(x)
    torch.cuda.synchronize()
    _slow(x * 2).sum().backward()
    copy = x.grad.clone() if x.grad is not None else None
    del accumulator
    return [copy]


def _backward_on_another_stream() -> Sequence[Tensor | None]:
    (side,) = _sides(1)
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    y = _slow(x * 3)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y.sum().backward()
        return [cast("Tensor", x.grad).clone()]


def _root_gradient_of_another_stream() -> Sequence[Tensor | None]:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    y = x * 3
    torch.cuda.synchronize()
    (side,) = _sides(1)
    with torch.cuda.stream(side):
        gradient = torch.zeros_like(x)
        torch.cuda._sleep(LONG)
        gradient.add_(2)
        y.backward(gradient)
        return [cast("Tensor", x.grad).clone()]


def _several_roots_of_another_stream() -> Sequence[Tensor | None]:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    y, z = x * 3, x * 4
    torch.cuda.synchronize()
    (side,) = _sides(1)
    with torch.cuda.stream(side):
        gradient = torch.zeros_like(x)
        torch.cuda._sleep(LONG)
        gradient.add_(2)
        torch.autograd.backward([y, z], [gradient, gradient])
        return [cast("Tensor", x.grad).clone()]


def _captured_on_another_stream() -> Sequence[Tensor | None]:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    (side,) = _sides(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = _slow(x * 2)
    torch.cuda.synchronize()
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return [gradient.clone()]


def _callback_sees_the_callers_stream() -> Sequence[Any]:
    """Final callbacks run on the streams of the caller, after all leaves."""
    seen: list[Any] = []
    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    (side,) = _sides(1)

    class Ends(Function):
        @staticmethod
        def forward(_ctx: Any, value: Tensor) -> Tensor:
            return value.clone()

        @staticmethod
        def backward(_ctx: Any, *gradients: Any) -> Any:
            def look() -> None:
                seen.append(torch.cuda.current_stream() == side)
                seen.append(cast("Tensor", x.grad).sum().clone())

            cast("Any", Variable._execution_engine).queue_callback(look)
            return gradients[0]

    y = _slow(cast("Any", Ends).apply(x) * 2)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y.sum().backward()
    return seen


def _device_transfer_on_side_streams() -> Sequence[Tensor | None]:
    x = torch.randn(1 << 18, device="cuda", requires_grad=True)
    host = torch.randn(1 << 18, requires_grad=True)
    (side,) = _sides(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = _slow(x + host.cuda())
        z = y.cpu() * host
    torch.cuda.synchronize()
    z.sum().backward()
    return [cast("Tensor", x.grad).clone(), host.grad]


_ON_STREAMS = [
    _side_stream,
    _sums_across_streams,
    _leaf_of_another_stream,
    _backward_on_another_stream,
    _root_gradient_of_another_stream,
    _several_roots_of_another_stream,
    _captured_on_another_stream,
    _callback_sees_the_callers_stream,
    _device_transfer_on_side_streams,
]


@pytest.mark.parametrize("program", _ON_STREAMS)
def test_same_on_streams(program: Callable[[], Any]) -> None:
    for _ in range(2):
        assert_same(program, order=False)


def test_each_node_runs_on_the_stream_of_its_forward() -> None:
    def program() -> list[Any]:
        here, (side,) = torch.cuda.current_stream(), _sides(1)
        names = {here: "here", side: "side"}
        seen: list[Any] = []
        x = torch.ones(4, device="cuda", requires_grad=True)
        y = x * 2
        side.wait_stream(here)
        with torch.cuda.stream(side):
            z = y * 3
        here.wait_stream(side)
        loss = (z * 4).sum()
        for node in (loss.grad_fn, z.grad_fn, y.grad_fn):
            cast("Any", node).register_prehook(
                lambda _: seen.append(names.get(torch.cuda.current_stream(), "another"))
            )
        loss.backward()
        return seen

    ours = assert_same(program)
    assert ours.tensors == ["here", "side", "here"]


def test_memory_of_a_gradient_is_not_used_again_before_its_consumer_is_through() -> None:
    """What one stream made is read late on another, while the first makes more of the same size."""

    def program() -> list[Any]:
        x = torch.ones(1 << 22, device="cuda", requires_grad=True)
        (side,) = _sides(1)

        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = _slow(x)
        torch.cuda.current_stream().wait_stream(side)
        z = y * 2
        for _ in range(8):
            z = z + torch.ones_like(x) * x
        z.sum().backward()
        return [cast("Tensor", x.grad).clone()]

    for _ in range(3):
        assert_same(program, order=False)


@pytest.mark.skipif(
    not hasattr(torch._C, "_warn_on_accumulate_grad_stream_mismatch"),
    reason="this torch does not warn of streams",
)
def test_a_leaf_of_another_stream_makes_torch_warn() -> None:
    def program() -> list[Any]:
        from agviz_engine import streams

        streams._warned.clear()
        return list(_leaf_of_another_stream())

    native, ours = native_outcome(program), our_outcome(program)
    assert [w[:2] for w in native.warnings] == [w[:2] for w in ours.warnings]
    assert native.warnings


# -- what goes to the native engine, and what comes along -----------------------------------------


def _captured_graph() -> Sequence[Tensor | None]:
    """A whole step is captured; the engine must not get in between."""
    model = nn.Linear(8, 8).cuda()
    data = torch.randn(4, 8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            model(data).pow(2).mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model(data).pow(2).mean().backward()
    data.copy_(torch.ones_like(data))
    graph.replay()
    torch.cuda.synchronize()
    return [cast("Tensor", parameter.grad).clone() for parameter in model.parameters()]


def _graphed_callable() -> Sequence[Tensor | None]:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(4, 8, device="cuda"),))
    cast("Any", graphed)(torch.ones(4, 8, device="cuda")).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def test_a_graph_is_captured_as_without() -> None:
    for program in (_captured_graph, _graphed_callable):
        native, ours = native_outcome(program), our_outcome(program)
        assert native.error is None
        assert_outcomes_equal(native, ours)


def test_compiled_training_is_as_without() -> None:
    def program() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)).cuda()
        compiled = torch.compile(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.randn(8, 16, device="cuda")).pow(2).mean().backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        native = program()
        torch._dynamo.reset()
        with installed():
            ours = program()
    assert all(torch.equal(one, other) for one, other in zip(native, ours, strict=True))


def test_random_numbers_of_the_device_are_drawn_as_natively() -> None:
    def program() -> list[Any]:
        x = torch.ones(64, device="cuda", requires_grad=True)
        y = x * 1
        y.register_hook(lambda gradient: gradient * torch.rand_like(gradient))
        y.sum().backward()
        return [x.grad, torch.rand(4, device="cuda")]

    assert_same(program)
