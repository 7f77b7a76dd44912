"""The gradients themselves, at ``--values full``: bit for bit what native hooks see."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.errors import AgvizError, TraceError
from agviz.measure import copying
from agviz.record import copies
from agviz.record.recorder import Recorder
from agviz.record.ring_store import RingStore
from agviz.record.writer import FORGOTTEN
from agviz.traces import schema
from agviz.traces.reader import Trace
from agviz.traces.values import ITEM_BYTES
from agviz_engine import installed
from tests import python_process
from tests.engine.test_health import Wrapped, random_tensor
from tests.slow_cases import slow_but
from tests.unnoticed import Noticed, noticed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agviz_engine.instruments import Live

pytestmark = pytest.mark.filterwarnings(
    *("ignore:ComplexHalf", "ignore:Sparse CSR", "ignore:The PyTorch API of nested"),
    *("ignore:Using backward.. with create_graph", "ignore:.*quantize"),
)

Outputs = list[Tensor | None]
Seen = list[tuple[str, Outputs]]


def raw(tensor: Tensor) -> bytes:
    """The elements by way of NumPy, which knows nothing of how they are stored."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if plain.dtype.is_complex:
        integer = {4: torch.int16, 8: torch.int32, 16: torch.int64}
    data: bytes = plain.reshape(-1).view(integer[plain.dtype.itemsize]).numpy().tobytes()
    return data


def strided_parts(tensor: Tensor) -> dict[str, Tensor]:
    """What a tensor consists of."""
    if tensor.layout is torch.jagged:
        return {"values": tensor.values(), "offsets": cast("Any", tensor).offsets()}
    if tensor.is_sparse:
        return {"values": tensor._values(), "indices": tensor._indices()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {"crow": tensor.crow_indices(), "col": tensor.col_indices(), "": tensor.values()}
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {"ccol": tensor.ccol_indices(), "row": tensor.row_indices(), "": tensor.values()}
    return {"": tensor}


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.layout) == (expected.dtype, expected.layout)
    if expected.layout is torch.jagged:
        assert len(found.shape) == len(expected.shape)
    else:
        assert found.shape == expected.shape
    if expected.is_sparse:
        assert found.is_coalesced() == expected.is_coalesced()
    parts = strided_parts(expected)
    for name, part in strided_parts(found).items():
        assert (part.dtype, part.shape) == (parts[name].dtype, parts[name].shape)
        assert raw(part) == raw(parts[name])


def hooked(roots: Sequence[Tensor]) -> Seen:
    """What post-hooks on every node are given when these are differentiated."""
    seen: Seen = []

    def watch(node: Any) -> None:
        def hook(outputs: Outputs, _inputs: object) -> None:
            seen.append((node.name(), [g if g is None else g.detach().clone() for g in outputs]))

        node.register_hook(hook)

    stack: list[Any] = [root.grad_fn for root in roots]
    known = set()
    while stack:
        node = stack.pop()
        if node is not None and node not in known and "AccumulateGrad" not in node.name():
            known.add(node)
            watch(node)
            stack += [following for following, _ in node.next_functions]
    return seen


def stored(trace: Trace, graph_task: int) -> Seen:
    """The same of a recorded graph task."""
    found: Seen = []
    for execution in trace.executions(graph_task):
        row = trace.node(graph_task, execution.node)
        if row.name.endswith(("AccumulateGrad", "GraphRoot")):
            continue
        values = trace.values(graph_task, execution.node)
        outputs = {value.slot: trace.value(value.seq) for value in values if value.role == "output"}
        width = max(outputs, default=-1) + 1
        found.append((row.name, [outputs.get(slot) for slot in range(width)]))
    return found


def assert_same_flow(found: Seen, expected: Seen) -> None:
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, outputs), (_, right) in zip(found, expected, strict=True):
        assert not any(right[len(outputs) :])
        for output, given in zip(outputs, right, strict=False):
            assert (output is None) == (given is None)
            if output is not None and given is not None:
                assert_same(output, given)


class Square(torch.autograd.Function):
    """A custom Function with an output that nobody needs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0] * ctx.scale, None


def model() -> list[Tensor]:
    block = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 6))
    images = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
    x = torch.randn(4, 6, requires_grad=True)
    hidden = block(block(x)) + x.t().reshape(6, 4).t().expand(2, 4, 6).mean(0)
    pictures = images(torch.randn(2, 2, 8, 8)).flatten(1)
    return [
        (hidden.roll(1, 0)[::2] ** 2).sum() + pictures.permute(1, 0).narrow(0, 1, 5).mean(),
        cast("Any", Square).apply(x, 0.5).sum(0),
        cast("Tensor", checkpoint(block, x, use_reentrant=False)).var(0),
    ]


def not_finite() -> list[Tensor]:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0], requires_grad=True)
    return [(x.sqrt() * x / x).sum() + x.log().prod()]


def sparse() -> list[Tensor]:
    table = torch.randn(7, 3, requires_grad=True)
    places = torch.tensor([[1, 5, 1], [0, 0, 6]])
    found = functional.embedding(places, table, sparse=True)
    matrix = torch.eye(4).to_sparse().requires_grad_()
    rows = torch.eye(4).to_sparse_csr().requires_grad_()
    dense = torch.randn(4, 2, requires_grad=True)
    return [
        (found**2).sum() + functional.embedding(places[0], table, sparse=True).mean(),
        torch.sparse.mm(matrix, dense).sum() + (rows @ dense).pow(2).sum(),
    ]


def jagged() -> list[Tensor]:
    rows = [torch.randn(size, 3) for size in (2, 0, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    return [(nested.sin() * nested).values().sum()]


def casts(dtype: torch.dtype) -> Callable[[], list[Tensor]]:
    def program() -> list[Tensor]:
        kind = torch.complex64 if dtype.is_complex else torch.float32
        x = torch.randn(5, 4, dtype=kind, requires_grad=True)
        y = (x * 3).to(dtype).t()
        if not dtype.is_complex:
            return [y.float()]
        z = y.to(torch.complex64)
        return [torch.view_as_real(z.conj().resolve_conj()).sum() + z.imag.sum()]

    return program


FLOATS = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]
PROGRAMS = {
    **{program.__name__: program for program in (model, not_finite, sparse, jagged)},
    **{str(dtype).removeprefix("torch."): casts(dtype) for dtype in FLOATS},
}


def roots_of(program: Callable[[], list[Tensor]]) -> list[Tensor]:
    torch.manual_seed(0)
    return program()


def given_for(roots: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the roots, some of them expanded."""
    return [
        torch.ones((), dtype=root.dtype).expand(root.shape) if root.dim() else torch.ones(())
        for root in roots
    ]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_are_what_native_hooks_see(tmp_path: Path, name: str, create_graph: bool) -> None:
    program = PROGRAMS[name]
    roots = roots_of(program)
    seen = hooked(roots)
    torch.autograd.backward(roots, given_for(roots), create_graph=create_graph)
    roots = roots_of(program)
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        torch.autograd.backward(roots, given_for(roots), create_graph=create_graph)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = stored(trace, trace.graph_tasks[0].id)
        assert_same_flow(found, seen)
        assert len(found) > 1
        values = trace.values()
        assert not {value.unknown for value in values} - {""}
        assert [(v.seq, v.role, v.dtype, v.layout) for v in values] == [
            (h.seq, h.role, h.dtype, h.layout) for h in trace.health()
        ]
        if name in {str(dtype).removeprefix("torch.") for dtype in FLOATS}:
            assert name in {value.dtype for value in values}
        if name == "sparse":
            assert {"sparse_coo", "sparse_csr"} & {value.layout for value in values}


@pytest.mark.parametrize("anomaly", [False, True])
def test_roots_accumulated_and_captured_gradients(tmp_path: Path, anomaly: bool) -> None:
    """Those that may differ from what one node put out, against what torch hands to its user."""
    x = torch.randn(3, 4, requires_grad=True)
    given = torch.randn(4, 3)
    with (
        torch.autograd.set_detect_anomaly(anomaly),
        agviz.trace(path=tmp_path / "t.agviz", values="full"),
    ):
        grads: list[Tensor] = []
        for _ in range(3):
            (x.t() * 2).backward(given)
            assert x.grad is not None
            grads.append(x.grad.clone())
            x.grad.mul_(-3)  # as an optimizer might
        (captured,) = torch.autograd.grad((x * 2 + x.sin()).t(), x, given)
        expected = given.clone()
        given.zero_()
    with Trace.open(tmp_path / "t.agviz") as trace:
        by_role: dict[str, list[Tensor]] = {}
        for value in trace.values():
            by_role.setdefault(value.role, []).append(trace.value(value.seq))
        for root in by_role["root"]:
            assert_same(root, expected)
        assert len(by_role["root"]) == 4
        for found, grad in zip(by_role["accumulated"], grads[1:], strict=True):
            assert_same(found, grad)
        (found,) = by_role["captured"]
        assert_same(found, captured)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Takes tensors up as if they had flowed, writes them, and reads them: or why they are not."""

    def copied(tensors: Sequence[Tensor], **options: Any) -> list[Any]:
        recorder = Recorder(tmp_path / "c.agviz", values="full", **options)
        x = torch.ones((), requires_grad=True)
        with recorder, installed(recorder) as engine:
            note = recorder._note_copy
            flow = iter(tensors)

            def note_next(event: Any, live: Live) -> None:
                live.gradient = next(flow)
                note(event, live)

            monkeypatch.setattr(recorder, "gradient_measured", note_next)
            engine.registry.reindex()
            for _ in tensors:
                x.backward()
                x.grad = None
        with Trace.open(tmp_path / "c.agviz") as trace:
            return [value.unknown or trace.value(value.seq) for value in trace.values()]

    return copied


def test_tensors_of_every_dtype_and_order(tmp_path: Path, copied: Callable[..., list[Any]]) -> None:
    rng = Random(5)
    tensors = [random_tensor(rng) for _ in range(300)]
    found = copied(tensors)
    assert len(found) == len(tensors)
    for tensor, expected in zip(found, tensors, strict=True):
        assert_same(tensor, expected)
    assert {str(t.dtype).removeprefix("torch.") for t in tensors} == ITEM_BYTES.keys() - {
        "float8_e8m0fnu"
    }
    assert any(tensor.is_conj() for tensor in tensors)
    assert any(tensor.is_neg() for tensor in tensors)
    assert any(0 in tensor.shape for tensor in tensors)
    assert any(0 in tensor.stride() for tensor in tensors)


def test_every_dtype_of_the_engine_can_be_read() -> None:
    sizes = {str(dtype).removeprefix("torch."): dtype.itemsize for dtype in copying.COPIED}
    assert sizes == ITEM_BYTES


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_tensors_of_every_layout(tmp_path: Path, copied: Callable[..., list[Any]]) -> None:
    dense = torch.tensor([[0.0, 3.0, 0, 0], [-4.0, float("nan"), 0, 1]])
    uncoalesced = torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 1], [1, 0, 0]]),
        torch.tensor([3.0, -4.0, 2.0]),
        (2, 4),
        check_invariants=True,
    )
    hybrid = torch.sparse_coo_tensor(
        torch.tensor([[2, 0]]), torch.randn(2, 3), (4, 3), check_invariants=True
    )
    with_holes = torch.nested.nested_tensor_from_jagged(
        torch.randn(3, 5), torch.tensor([0, 2, 5]), torch.tensor([1, 2]), 2
    )
    strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    tensors = [
        *(dense.to_sparse(), uncoalesced, hybrid, torch.zeros(3, 2).to_sparse()),
        *(dense.to_sparse_csr(), dense.to_sparse_csc()),
        *(dense.to_sparse_bsr((1, 2)), dense.to_sparse_bsc((1, 2))),
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged),
        with_holes,
        torch._efficientzerotensor((2, 3)),
    ]
    *found, last = copied([*tensors, strided])
    tensors[-1] = torch.zeros(2, 3)
    for tensor, expected in zip(found, tensors, strict=True):
        assert_same(tensor, expected)
    assert last == "a nested tensor"
    lengths = found[9].lengths()
    assert lengths is not None
    assert lengths.tolist() == [1, 2]


def test_what_is_not_stored_says_why(tmp_path: Path, copied: Callable[..., list[Any]]) -> None:
    tensors = [
        torch.ones(2).as_subclass(Wrapped),
        torch.ones(2, device="meta"),
        torch.ones(3).to_mkldnn(),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        torch.ones(1000),
    ]
    reasons = copied(tensors, max_values_bytes=16 * 3_999)
    for reason, word in zip(
        reasons, ("Wrapped", "meta", "mkldnn", "qint8", "larger than 3,999 bytes"), strict=True
    ):
        assert word in reason
    with Trace.open(tmp_path / "c.agviz") as trace:
        first = trace.values()[0]
        assert (first.dtype, first.shape) == ("float32", (2,))
        with pytest.raises(TraceError, match=r"is not in .* \(a Wrapped\)"):
            trace.value(first.seq)
        with pytest.raises(TraceError, match="holds no gradient for event 9999"):
            trace.value(9999)
        assert trace.stored_values().left_out[reasons[4]] == 1


def test_a_copy_that_fails_is_told_and_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Tensor) -> bytearray:
        raise NotImplementedError("no such kernel")

    with monkeypatch.context() as patched:
        patched.setattr(copying, "contents", broken)
        copier = copies.Copier(1000)
        copy = copier.copy(torch.ones(10), 0)
    assert copy is not None
    assert (copy.unknown, copy.parts) == ("NotImplementedError", ())
    assert copier.room.waiting == 0


@pytest.mark.parametrize("where", ["tensor hook", "post-hook", "Function", "between", "version"])
def test_what_changes_afterwards_is_stored_as_it_was(tmp_path: Path, where: str) -> None:
    """``.data`` shares memory, but not the version; a view of it has been copied before."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return change(gradients[0])

    def change(gradient: Tensor) -> Tensor:
        if where == "version":
            gradient.mul_(2)
        else:
            gradient.data.mul_(2)
        return gradient

    x = torch.ones(6, 10, requires_grad=True)
    middle = (x * 3).view(60)
    if where in {"tensor hook", "version"}:
        middle.register_hook(change)
    elif where == "post-hook":
        node = cast("Any", middle.grad_fn)
        node.register_hook(lambda _, received: (change(received[0]).view(6, 10),))
    elif where == "Function":
        middle = cast("Any", Double).apply(middle)
    given = torch.ones(60)
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        if where == "between":
            middle.backward(given, retain_graph=True)
            change(given)
        middle.view(60).backward(given)
        given.fill_(7)
    with Trace.open(tmp_path / "t.agviz") as trace:
        last = trace.graph_tasks[-1].id
        found = {
            (trace.node(last, value.node).short_name, value.role): trace.value(value.seq)
            for value in trace.values(last)
        }
    (root,) = (tensor for (_, role), tensor in found.items() if role == "root")
    assert root.tolist() == [2.0 if where == "between" else 1.0] * 60
    assert found["MulBackward0", "output"].tolist() == [[6.0] * 10] * 6
    if ("ViewBackward0", "output") in found:  # the last of them, after the change
        assert found["ViewBackward0", "output"].unique().tolist() == [2.0]


def chunks(path: Path) -> int:
    database = sqlite3.connect(path)
    (count,) = database.execute("SELECT count(*) FROM chunk").fetchone()
    database.close()
    return int(count)


def test_equal_memory_is_stored_once(tmp_path: Path, copied: Callable[..., list[Any]]) -> None:
    x = torch.ones(6, 10, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        (x * 2).view(60).view(3, 20).t().backward(torch.ones(20, 3))
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.values()) == 5
        assert {trace.value(v.seq).numel() for v in trace.values()} == {60}
    assert chunks(tmp_path / "t.agviz") == 4  # given, transposed, its contiguous copy, twice that
    tensors = [torch.full((1000,), float(number)) for number in range(3)]
    same = [tensors[0], tensors[0].view(10, 100), tensors[0][1:], tensors[0]]
    changed = torch.ones(1000)
    found = copied([*same, *tensors, changed, changed])
    assert [tensor.shape for tensor in found[:4]] == [(1000,), (10, 100), (999,), (1000,)]


def test_memory_is_taken_for_equal_only_where_it_is() -> None:
    copier = copies.Copier(100_000)

    def contents(tensor: Tensor, graph_task: int = 0) -> copies.CopiedBytes:
        copy = copier.copy(tensor, graph_task)
        assert copy is not None
        (part,) = copy.parts
        assert part.contents.data == bytearray(raw(tensor))
        return part.contents

    tensor = torch.arange(1000.0)
    first = contents(tensor)
    assert contents(tensor.view(10, 100)) is first
    assert contents(tensor, graph_task=1) is not first
    assert contents(tensor[1:]) is not contents(tensor[:-1])
    assert contents(tensor.view(10, 100).t()) is not first
    again = contents(tensor)
    tensor.mul_(2)
    assert contents(tensor) is not again
    with torch.inference_mode():
        untracked = torch.ones(1000)
        assert contents(untracked) is not contents(untracked)
    kept = [contents(torch.full((100,), float(number))) for number in range(50)]
    assert len(set(map(id, kept))) == 50


def test_an_expanded_gradient_takes_up_what_it_has(
    tmp_path: Path, copied: Callable[..., list[Any]]
) -> None:
    (found,) = copied([torch.full((3, 1), 2.0).expand(4, 3, 10**9)])
    assert found.shape == (4, 3, 10**9)
    assert found[2, 1, 77].item() == 2.0
    with Trace.open(tmp_path / "c.agviz") as trace:
        (value,) = trace.values()
        assert trace.stored_values().nbytes == 12
        assert trace.value_parts(value.seq)["values"].shape == (1, 3, 1)
        assert trace.value_parts(value.seq)["values"].data == raw(torch.full((3, 1), 2.0))


def test_large_gradients_are_stored_in_chunks(
    tmp_path: Path, copied: Callable[..., list[Any]]
) -> None:
    for numel in (schema.CHUNK_BYTES - 1, schema.CHUNK_BYTES, 40 * schema.CHUNK_BYTES + 3):
        tensor = torch.randint(0, 255, (numel,), dtype=torch.uint8)
        (found,) = copied([tensor], max_values_bytes=10**9)
        assert torch.equal(found, tensor)
        assert chunks(tmp_path / "c.agviz") == -(-numel // schema.CHUNK_BYTES)


def train(steps: int, width: int = 32, record: Any = None) -> list[Tensor]:
    """Some steps of a training; gives the parameters."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(8, width)).pow(2).mean().backward()
        optimizer.step()
        if record is not None:
            record()
    return list(network.parameters())


@pytest.mark.parametrize("threads", [False, True])
def test_a_training_is_the_same_with_and_without(tmp_path: Path, threads: bool) -> None:
    def policy(node: Any) -> int:
        return int("Addmm" in node.name())

    with installed(device_policy=policy if threads else None):
        plain = train(5)
    with agviz.trace(
        path=tmp_path / "t.agviz", values="full", device_policy=policy if threads else None
    ):
        recorded = train(5)
    for one, other in zip(plain, recorded, strict=True):
        assert_same(one, other)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.values()) == len(trace.health()) > 30
        for value, health in zip(trace.values(), trace.health(), strict=True):
            tensor = trace.value(value.seq)
            assert (tensor.max().item(), tensor.min().item()) == (health.max, health.min)
        assert len({e.thread for e in trace.executions(trace.graph_tasks[0].id)}) == 1 + threads


def test_the_bound_ends_the_values_only(tmp_path: Path) -> None:
    bound = 20_000
    with agviz.trace(path=tmp_path / "t.agviz", values="full", max_values_bytes=bound):
        train(20)
    with Trace.open(tmp_path / "t.agviz") as trace:
        health, values = trace.health(), trace.values()
        assert 0 < len(values) < len(health) / 2
        assert [v.seq for v in values] == [h.seq for h in health[: len(values)]]
        assert len(trace.graph_tasks) == 20
        assert {task.id for task in trace.graph_tasks} == {row.graph_task for row in health}
        assert trace.meta.values == "full"
        assert trace.meta.values_stopped == "their bound of 20,000 bytes was reached"
        assert trace.meta.stopped == ""
        total = trace.stored_values()
        assert bound / 2 < total.nbytes <= bound
        assert total.stored + sum(total.left_out.values()) == len(values)
    said = summary(tmp_path / "t.agviz")
    assert (
        "! of later gradients only the health is recorded: their bound of 20,000 bytes was reached"
        in said
    )
    assert "larger than 1,250 bytes" in said


def summary(path: Path) -> str:
    command = (sys.executable, "-m", "agviz", "summary", os.fspath(path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return " ".join(done.stdout.split())


def test_the_summary_counts_what_is_stored(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        (torch.ones(1000, requires_grad=True) * 2).backward(torch.rand(1000))
    said = summary(tmp_path / "t.agviz")
    assert "values: 2 gradients, 7.81 KiB health" not in said
    assert "values: 2 gradients, 7.81 KiB Graph tasks" in said


@pytest.mark.parametrize("limit", slow_but({"1000000"}, [1_000_000, 8_000_000]))
def test_a_limit_of_the_file_holds(tmp_path: Path, limit: int) -> None:
    recorder = Recorder(tmp_path / "t.agviz", values="full", max_bytes=limit)
    with recorder, installed(recorder):
        for _ in range(1000):
            train(20)
            recorder.flush()
            with Trace.open(tmp_path / "t.agviz") as trace:
                if trace.left_out:
                    break
        train(20)
    assert limit / 2 < (tmp_path / "t.agviz").stat().st_size <= limit
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.end_ns is not None
        assert not trace.meta.stopped
        assert trace.left_out
        values = trace.values()
        assert limit / 10 < trace.stored_values().nbytes <= limit / 4
        assert trace.value(values[-1].seq).dtype is torch.float32
        last = trace.graph_tasks[-1]
        trace.state_at(last.id, trace.event_count(last.id))


def test_what_is_left_out_is_not_copied_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_shapes = []
    contents = copying.contents

    def counted(part: Tensor) -> bytearray:
        copied_shapes.append(tuple(part.shape))
        return contents(part)

    monkeypatch.setattr(copying, "contents", counted)
    with agviz.trace(
        path=tmp_path / "t.agviz", values="full", steps=range(1, 2), nodes="Sum|Exp"
    ) as t:
        for size in (2, 3, 4):
            (torch.ones(size, requires_grad=True) * 2).exp().sum().backward()
        rows = t.trace.values()
        names = {t.trace.node(row.graph_task, row.node).short_name for row in rows}
    assert names == {"SumBackward0", "ExpBackward0"}
    assert copied_shapes == [(), (1,), (3,)]


def test_a_program_does_not_notice(tmp_path: Path) -> None:
    """Random numbers, modes, versions, the profilers and the gradients are as without."""

    def run(values: Any) -> Noticed:
        return noticed(agviz.trace(path=tmp_path / "t.agviz", values=values, provenance=False))

    assert run("full") == run("health")
    assert run("full")[:4] == run("none")[:4]
    run("full")
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.values()) > 5


def test_transforms_and_batches_are_seen_through(tmp_path: Path) -> None:
    x = torch.arange(3.0, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        torch.autograd.grad(x * x, x, torch.eye(3), is_grads_batched=True)
        torch.func.grad(lambda y: (y * y).sum())(torch.ones(4))
    with Trace.open(tmp_path / "t.agviz") as trace:
        first, *_, last = trace.values()
        assert torch.equal(trace.value(first.seq), torch.eye(3))
        assert trace.value(last.seq).shape == (4,)


class Flight:
    """A flight recorder whose backward passes each hold 2 x 4,000 bytes of values."""

    def __init__(self, path: Path, keep: int, bound: int, on: str = "nonfinite") -> None:
        self.recorder = Recorder(
            path, store=RingStore(on=[on], keep=keep), values="full", max_values_bytes=bound
        )

    def backward(self, numbers: Sequence[float]) -> None:
        with installed(self.recorder):
            for number in numbers:
                (torch.ones(1000, requires_grad=True) * number).backward(torch.rand(1000) + 1)


def by_pass(path: Path) -> list[list[str | float]]:
    """The largest value of each gradient, or why it is not there, by backward pass."""
    with Trace.open(path) as trace:
        return [
            [v.unknown or trace.value(v.seq)[0].item() for v in trace.values(task.id)]
            for task in trace.graph_tasks
        ]


def test_a_flight_recorder_keeps_values_as_long_as_events(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", keep=2, bound=400_000)
    flight.backward(range(1, 200))
    assert flight.recorder._copier is not None
    assert flight.recorder._copier.room.waiting == 2 * 8_000
    flight.backward([float("inf")])
    flight.recorder.close()
    (_, before), (_, last) = by_pass(tmp_path / "t.agviz")
    assert isinstance(before, float)
    assert 199 <= before <= 2 * 199
    assert last == float("inf")


def test_a_flight_recorder_gives_up_the_oldest_values(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", keep=6, bound=16 * 4_000 // 2 - 8_001)
    assert flight.recorder._copier is not None
    flight.recorder._copier._largest = 4_000
    flight.backward([*range(1, 20), float("inf")])
    assert flight.recorder._copier.room.waiting <= 24_000
    flight.recorder.close()
    found = by_pass(tmp_path / "t.agviz")
    assert found[:3] == [[FORGOTTEN] * 2] * 3
    assert all(type(number) is float for numbers in found[4:] for number in numbers)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.graph_tasks) == 6
        assert trace.stored_values().nbytes == 16_000


def test_a_flight_recorder_without_room_leaves_out_single_gradients(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", keep=1, bound=8_500)
    assert flight.recorder._copier is not None
    flight.recorder._copier._largest = 4_000
    with installed(flight.recorder):
        x = torch.ones(1000, requires_grad=True)
        (x * 2 * 3 * float("inf")).backward(torch.rand(1000))
    flight.recorder.close()
    (found,) = by_pass(tmp_path / "t.agviz")
    reasons = [reason for reason in found if isinstance(reason, str)]
    assert set(reasons) == {"no room within 8,500 bytes"}
    assert 2 <= len(reasons) < len(found)


def test_what_waits_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agviz.record.recorder._MOST_BYTES_WAITING", 10_000)
    recorder = Recorder(tmp_path / "t.agviz", values="full")
    assert recorder._copier is not None
    room, most = recorder._copier.room, []
    with recorder, installed(recorder):
        for number in range(30):
            (torch.ones(1000, requires_grad=True) * number).backward(torch.rand(1000))
            most.append(room.waiting)
    assert max(most) <= 10_000 + 4_000
    assert room.waiting == 0
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.values()) == 60
        assert trace.stored_values().nbytes == 60 * 4_000


def test_room_is_counted_right_by_many_threads() -> None:
    room = copies.Room(100_000)
    taken = []

    def work(seed: int) -> None:
        rng = Random(seed)
        for _ in range(2_000):
            size = rng.randrange(200)
            if room.take(size):
                contents = copies.CopiedBytes(bytearray(size), room)
                if rng.random() < 0.01:
                    contents.written(1)
                    taken.append(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert room.waiting == 0
    assert room.take(100_000 - sum(taken))
    assert not room.take(1)


TRAINS = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10**6):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    if "--native" in sys.argv and step < 30:
        print(step, model[0].weight.grad.numpy().tobytes().hex())
    elif "--native" in sys.argv:
        break
    optimizer.step()
"""


@pytest.mark.slow
def test_kill_9_leaves_whole_values(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    (tmp_path / "train.py").write_text(TRAINS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    native = subprocess.run(
        [sys.executable, "train.py", "--native"],
        cwd=tmp_path, check=True, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    command = ("-m", "agviz", "run", "-o", path, "--values", "full", "train.py")
    child = subprocess.Popen([sys.executable, *command], cwd=tmp_path, env=environment)
    try:
        while finished(path) < 40:
            assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with Trace.open(path) as trace:
        assert trace.meta.end_ns is None
        for task, line in zip(trace.graph_tasks, native.stdout.splitlines(), strict=False):
            (leaf,) = (n for n in trace.nodes(task.id) if n.parameter == "0.weight")
            (edge,) = (e for e in trace.edges(task.id) if e.consumer == leaf.index)
            (value,) = trace.values(task.id, edge.producer, edge.output)
            assert raw(trace.value(value.seq)).hex() == line.split()[1]
        values, health = trace.values(), trace.health()
        assert [v.seq for v in values] == [h.seq for h in health[: len(values)]]
        assert len(health) - len(values) <= 1


def finished(path: Path) -> int:
    try:
        with Trace.open(path) as trace:
            return sum(task.end_ns is not None for task in trace.graph_tasks)
    except TraceError:
        return 0


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from agviz.traces.reader import Trace
with Trace.open(sys.argv[1]) as trace:
    for value in trace.values():
        part = trace.value_parts(value.seq)["values"]
        print(value.role, part.dtype, list(part.shape), bytes(part.data).hex())
    try:
        trace.value(value.seq)
    except ImportError:
        print("no torch")
"""


def test_values_are_read_where_there_is_no_torch(tmp_path: Path) -> None:
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz", values="full"):
        (x * 2).backward(torch.tensor([1.0, -0.5], dtype=torch.float64))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, tmp_path / "t.agviz"],
        check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "root float64 [2] 000000000000f03f000000000000e0bf",
        "output float64 [2] 0000000000000040000000000000f0bf",
        "no torch",
    ]


def test_options(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import torch\n(torch.ones(2000, requires_grad=True) * 2).backward(torch.ones(2000))\n"
    )
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return python_process.run([*command, *options, "s.py"], cwd=tmp_path, env=environment)

    assert run("--values", "full", "--max-values-bytes", "10KiB").returncode == 0
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert {value.unknown for value in trace.values()} == {"larger than 640 bytes"}
    refused = run("--max-values-bytes", "10KiB")
    assert refused.returncode == 2
    assert "--max-values-bytes is for gradients themselves" in refused.stderr
    with pytest.raises(AgvizError, match="no gradient fits into 0 bytes"):
        agviz.trace(values="full", max_values_bytes=0)
