"""The torch functions that a program calls: against torch itself, asked by hand."""

from __future__ import annotations

import gc
import math
import re
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.errors import TraceError
from agviz.measure.health import measure
from agviz.traces.reader import Trace
from tests.test_trace_hostile import check_either

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.rows import ForwardOpRow

HERE = "tests/test_trace_forward.py"


def called(program: Callable[[], object], **how: Any) -> list[ForwardOpRow]:
    """What a program called."""
    with agviz.trace(check_forward=True, **how) as recorded:
        program()
    return recorded.trace.forward_ops()


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


x, y = leaf(2, 3), leaf(3, 3)
p = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("torch.sqrt", lambda: torch.sqrt(x)),
        ("Tensor.sqrt", lambda: Tensor.sqrt(x)),
        ("Tensor.add", lambda: x + 1),
        ("Tensor.__rsub__", lambda: 1 - x),
        ("Tensor.matmul", lambda: x @ y),
        ("torch.matmul", lambda: torch.matmul(x, y)),
        ("torch.norm", lambda: torch.norm(x)),
        ("torch.einsum", lambda: torch.einsum("ij->j", x)),
        ("torch.stack", lambda: torch.stack([x, x])),
        ("torch.where", lambda: torch.where(x.detach() > 0, x, 0)),
        ("torch.nn.functional.softmax", lambda: F.softmax(x, -1)),
        ("torch.nn.functional.linear", lambda: F.linear(x, y)),
        ("torch.nn.functional.gelu", lambda: F.gelu(x)),
        ("torch.nn.functional.max_pool1d", lambda: F.max_pool1d(x, 2)),
        ("torch.nn.functional.cross_entropy", lambda: F.cross_entropy(x, torch.tensor([0, 1]))),
        ("torch.fft.fft", lambda: torch.fft.fft(x)),
        ("torch.linalg.norm", lambda: torch.linalg.norm(x)),
        ("torch.special.expit", lambda: torch.special.expit(x)),
        ("Tensor.__getitem__", lambda: x[0]),
        ("Tensor.detach", lambda: Tensor.detach(x)),
        ("Tensor.data.__get__", lambda: x.data),
        ("Tensor.data.__set__", lambda: setattr(p, "data", torch.zeros(3))),
        ("Tensor.T.__get__", lambda: x.T),
        ("Tensor.requires_grad_", lambda: torch.ones(1).requires_grad_()),
        ("Tensor.requires_grad.__set__", lambda: setattr(torch.ones(1), "requires_grad", True)),
        ("Tensor.item", lambda: x.sum().item()),
        ("Tensor.tolist", lambda: Tensor.tolist(x)),
        ("Tensor.numpy", lambda: x.detach().numpy()),
        ("Tensor.long", lambda: Tensor.long(x)),
        ("Tensor.argmax", lambda: Tensor.argmax(x)),
        ("torch.nn.init.uniform_", lambda: nn.init.uniform_(torch.empty(1))),
    ],
)
def test_functions_go_by_the_names_that_users_write(name: str, call: Callable[[], object]) -> None:
    assert called(call)[-1].name == name


def test_what_tells_nothing_is_left_out() -> None:
    def program() -> None:
        _ = x.shape, x.dtype, x.size(0), x.dim(), len(x), x.requires_grad, x.is_leaf, x.grad_fn
        x.grad = None
        _ = x.grad, x.numel(), x.is_contiguous(), repr(x.shape), torch.is_grad_enabled()

    assert called(program) == []


def test_arguments_are_told_in_words() -> None:
    def program() -> None:
        x.pow(0.5)
        x[0, 1:]
        F.softmax(x, dim=-1)
        torch.cat([x, x], dim=1)
        x.to(torch.float64)
        x + x

    assert [op.arguments for op in called(program)] == [
        "tensor, 0.5",
        "tensor, [0, 1:]",
        "tensor, dim=-1, _stacklevel=3, dtype=None",
        "[tensor, tensor], dim=1",
        "tensor, torch.float64",
        "",
    ]


class Model(nn.Module):
    """Some of everything: views, in-place functions, a custom Function, functions in functions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.LayerNorm(8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        hidden[:, 0] *= 2.0
        attended, _ = self.attention(hidden, hidden, hidden)
        last: Tensor = self.last(double(attended).reshape(-1, 8))
        return last


class Double(torch.autograd.Function):
    """Twice its argument."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


double: Any = Double.apply


def loss_of(model: nn.Module) -> Tensor:
    torch.manual_seed(1)
    return F.cross_entropy(model(torch.randn(2, 5, 4)), torch.arange(10) % 3)


def test_nodes_find_the_function_that_made_them() -> None:
    """The oracle is what torch captured when it made the node."""
    model = Model()
    with agviz.trace(model, check_forward=True) as recorded:
        loss_of(model).backward()
    trace = recorded.trace
    (task,) = trace.graph_tasks
    made = [node for node in trace.nodes(task.id) if not node.is_leaf]
    assert len(made) > 20
    names = set()
    for node in made:
        op = trace.forward_op(task.id, node.index)
        assert op is not None, node
        assert (op.line, op.module) == (node.line, node.module), node
        ours = [frame for frame in op.stack if not frame.hidden]
        assert ours == [frame for frame in node.stack if not frame.hidden]
        assert node.sequence_nr in op.sequence_nrs
        names.add(op.name)
    assert {"Double.apply", "torch.nn.functional.layer_norm", "Tensor.mul_"} <= names


def test_sequence_numbers_are_those_of_the_nodes() -> None:
    expected = []

    def program() -> None:
        for made in (
            x * 2,
            F.linear(x.view(1, 2, 3), y),
            x.max(0)[0],
            x.clone()[1:].relu_(),
            double(x),
        ):
            assert made.grad_fn is not None
            expected.append(made.grad_fn._sequence_nr())
        with torch.no_grad():
            x * 2
        x.detach()

    found = called(program)
    assert set(expected) <= {op.sequence_nr for op in found}
    assert [op.sequence_nr for op in found][-2:] == [None, None]
    assert [op.grad_enabled for op in found][-2:] == [False, True]
    assert [len(op.sequence_nrs) for op in found][-2:] == [0, 0]


def test_in_place_functions_show_versions() -> None:
    versions: list[tuple[int, int]] = []

    def program() -> None:
        base = torch.zeros(4)
        view = base[:2]

        def change(act: Callable[[], object]) -> None:
            before = base._version
            act()
            versions.append((before, base._version))

        change(lambda: base.add_(1))
        change(lambda: base.__setitem__(0, 3.0))
        change(lambda: view.mul_(2))
        change(lambda: torch.add(base, 1, out=base))
        change(lambda: nn.init.zeros_(base))
        change(lambda: base.data.fill_(7))

    ops = [op for op in called(program) if op.inputs]
    names = [op.name for op in ops]
    assert names[:2] == ["Tensor.__getitem__", "Tensor.add_"]
    base = ops[0].inputs[0]
    touching = [op for op in ops[1:] if any(t.memory == base.memory for t in op.outputs)]
    seen = [(op.inputs[0].version, op.outputs[0].version) for op in touching[:5]]
    assert seen == versions[:5]
    assert [op.outputs[0].tensor == base.tensor for op in touching[:5]] == [
        *(True, True, False, True, True)
    ]
    assert touching[1].outputs[0].place == "(0)"
    assert versions[5][0] == versions[5][1]  # .data has a version of its own
    assert touching[-1].name == "Tensor.fill_"


def test_one_tensor_has_one_number_and_never_another_s() -> None:
    addresses = []

    def program() -> None:
        kept = torch.ones(3)
        for _ in range(3000):
            addresses.append(id(kept + 1))
            kept.neg_()

    ops = called(program)
    assert len(set(addresses)) < len(addresses) // 2, "the allocator gives addresses again"
    added = [op for op in ops if op.name == "Tensor.add"]
    assert len({op.outputs[0].tensor for op in added}) == len(added) == 3000
    assert len({op.outputs[0].memory for op in added}) == 3000
    assert {op.inputs[0].tensor for op in added} == {ops[0].outputs[0].tensor}


def test_the_same_run_gives_the_same_numbers() -> None:
    def program() -> None:
        a = torch.ones(3)
        b = [a * n for n in range(5)]
        torch.stack(b).sum()

    first, second = called(program), called(program)
    assert [op.inputs for op in first] == [op.inputs for op in second]
    assert [op.outputs for op in first] == [op.outputs for op in second]


def test_no_tensor_is_kept_alive() -> None:
    with agviz.trace(check_forward=True):
        made = torch.ones(3) * 2
        gone = weakref.ref(made)
        storage = weakref.ref(made.untyped_storage())
        (made + 1).sum()
        del made
        assert gone() is None
        assert storage() is None
        with pytest.raises(RuntimeError):
            torch.ones(3) @ torch.ones(1013)  # of a size that no other test has left alive
        assert not [
            each for each in gc.get_objects() if type(each) is Tensor and each.shape == (1013,)
        ]


def test_health_is_that_of_the_tensors() -> None:
    expected = []

    def program() -> None:
        values = torch.tensor([-1.0, 0.0, math.inf, 4.0])
        for made in (values.sqrt(), values.log(), values / 0, values.half(), values[:2]):
            expected.append(measure(made))  # noqa: PERF401 - it is measured at once
        values.to(torch.int32)

    ops = [op for op in called(program) if op.inputs and op.name != "torch.sqrt"]
    found = [op.outputs[0].health for op in ops if op.outputs and op.inputs]
    assert [health for health in found if health is not None][: len(expected)] == expected
    assert ops[-1].outputs[0].health is None  # of integers


def test_the_first_that_is_not_finite() -> None:
    def program() -> None:
        a = torch.tensor([1.0, 0.0], requires_grad=True)
        b = a * 2
        c = b.log()  # the first
        (c * 2).sum().backward()

    with agviz.trace(check_forward=True) as recorded:
        program()
    trace = recorded.trace
    bad = trace.forward_nonfinite()
    assert [op.name for op in bad] == ["Tensor.log", "Tensor.mul", "Tensor.sum"]
    assert trace.forward_nonfinite(limit=1) == bad[:1]
    assert trace.forward_nonfinite(trace.graph_tasks[0].id) == bad
    line = (bad[0].line or "").split(":")[1].split()[0]
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert source[int(line) - 1].endswith("# the first")


def test_memory_that_was_not_filled_is_not_measured() -> None:
    def program() -> None:
        torch.empty(3).fill_(1.0)
        torch.ones(2).new_empty(3)

    ops = called(program)
    assert [op.outputs[0].health is None for op in ops] == [True, False, False, True]


def test_inputs_are_measured_when_nothing_is_known_of_them() -> None:
    layer = nn.Linear(3, 1)
    data = torch.randn(2, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def program() -> None:
        for _ in range(2):
            layer(data).sum().backward()
            optimizer.step()
        with torch.no_grad():
            layer.weight.data.fill_(math.nan)
        layer(data)

    ops = [op for op in called(program) if op.name == "torch.nn.functional.linear"]
    measured = [[t.health is not None for t in op.inputs] for op in ops]
    assert measured == [[True, True, True], [False, True, True], [False, True, True]]
    assert ops[0].inputs[1].parameter == "weight"
    assert ops[2].inputs[1].health is not None
    assert ops[2].inputs[1].health.nan == 3


def test_graph_tasks_say_which_functions_came_before_them() -> None:
    with agviz.trace(check_forward=True) as recorded:
        (x * 2).sum().backward()
        (x * 3).sum().backward()
        x * 4
    trace = recorded.trace
    first, second = (task.id for task in trace.graph_tasks)
    told = {"tensor, 2": first, "tensor, 3": second, "tensor, 4": -1}
    ops = [op for op in trace.forward_ops() if op.name == "Tensor.mul"]
    assert {op.arguments: op.graph_task for op in ops} == told
    assert [op.arguments for op in trace.forward_ops(second)] == ["tensor, 3", ""]
    everything = trace.forward_ops()
    assert trace.forward_ops(offset=1, limit=2) == everything[1:3]
    assert [op.id for op in everything] == list(range(len(everything)))
    assert [op.time_ns for op in everything] == sorted(op.time_ns for op in everything)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_anew_is_marked(reentrant: bool) -> None:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with agviz.trace(check_forward=True) as recorded:
        checkpoint(layer, leaf(2, 3), use_reentrant=reentrant).sum().backward()
    trace = recorded.trace
    task = trace.graph_tasks[0].id
    ops = [op for op in trace.forward_ops() if op.name == "torch.nn.functional.linear"]
    assert [op.recomputed_in for op in ops] == [-1, task]
    assert all(op.module == "0" for op in ops)


def test_what_a_device_thread_computes_anew_is_marked() -> None:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with agviz.trace(check_forward=True, device_policy=lambda _: 0) as recorded:
        checkpoint(layer, leaf(2, 3), use_reentrant=False).sum().backward()
    trace = recorded.trace
    ops = [op for op in trace.forward_ops() if op.name == "torch.nn.functional.linear"]
    assert [op.recomputed_in for op in ops] == [-1, trace.graph_tasks[0].id]
    device = {thread.id for thread in trace.threads if thread.queue == 0}
    assert [op.thread in device for op in ops] == [False, True]


def test_functions_that_raise() -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="mat1 and mat2") as ours:
            torch.ones(2, 3) @ torch.ones(2, 3)
        messages.append(str(ours.value))

    messages: list[str] = []
    program()
    ops = called(program)
    assert messages[0] == messages[1]
    assert [(op.name, op.error) for op in ops][-1] == ("Tensor.matmul", "RuntimeError")
    assert ops[-1].outputs == ()


def test_a_function_that_raised_may_have_written() -> None:
    def program() -> None:
        target = torch.zeros(3)
        with pytest.raises(RuntimeError):
            torch._foreach_add_([target, torch.zeros(2)], [torch.ones(3), torch.ones(3)])
        written.append(target._version > 0)

    written: list[bool] = []
    op = called(program)[-1]
    assert (op.error, bool(op.outputs)) == ("RuntimeError", written[0])


def test_other_threads_are_seen_inside_modules() -> None:
    layer = nn.Linear(3, 3)

    def program() -> None:
        def work() -> None:
            layer(torch.ones(1, 3))
            torch.ones(2).exp()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.ones(2).sin()

    ops = called(program)
    names = [op.name for op in ops]
    assert names == ["torch.nn.functional.linear", "torch.ones", "Tensor.sin"]
    assert ops[0].thread != ops[1].thread


def test_a_trace_says_whether_functions_were_recorded(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "a.agviz"):
        (x * 2).sum().backward()
    with agviz.trace(path=tmp_path / "b.agviz", check_forward=True, provenance=False):
        (x * 2).sum().backward()
    with Trace.open(tmp_path / "a.agviz") as without, Trace.open(tmp_path / "b.agviz") as with_:
        assert (without.meta.check_forward, with_.meta.check_forward) == (False, True)
        assert without.forward_ops() == []
        assert re.match(HERE, with_.forward_ops()[0].line or "")


def test_only_chosen_passes(tmp_path: Path) -> None:
    with agviz.trace(check_forward=True, steps=range(1, 2)) as recorded:
        for n in range(3):
            (x * n).sum().backward()
    trace = recorded.trace
    assert [op.arguments for op in trace.forward_ops()] == ["tensor, 1", ""]
    assert trace.forward_ops()[0].graph_task == trace.graph_tasks[0].id


def test_a_flight_recorder_writes_what_came_before_the_occasion(tmp_path: Path) -> None:
    with agviz.trace(check_forward=True, on="nonfinite", keep=2, path=tmp_path / "t") as recorded:
        for n in (1.0, 2.0, 0.0):
            root = torch.tensor([n], requires_grad=True).sqrt()
            time.sleep(0.4)  # the writer looks meanwhile what there is to write
            root.sum().backward()
    trace = recorded.trace
    kept = {task.id for task in trace.graph_tasks}
    assert len(kept) == 2
    assert {op.graph_task for op in trace.forward_ops()} == kept
    assert [op.name for op in trace.forward_ops()].count("Tensor.sqrt") == 2


@pytest.mark.slow
def test_a_file_of_limited_size_keeps_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(check_forward=True, max_bytes=1_000_000, path=path) as recorded:
        for _ in range(200):
            a = leaf(2)
            for _ in range(40):
                a = a * 1.0
            a.sum().backward()
    assert path.stat().st_size <= 1_000_000
    assert recorded.trace.forward_ops(limit=1)


def test_what_was_called_before_any_backward_is_in_the_file() -> None:
    with agviz.trace(check_forward=True) as recorded:
        torch.ones(2).exp()
        assert recorded.trace.graph_tasks == []
        assert [op.name for op in recorded.trace.forward_ops()] == ["torch.ones", "Tensor.exp"]


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE forward_op SET name = 99999",
        "UPDATE forward_op SET stack = 99999",
        "UPDATE forward_op SET end_nr = first_nr - 1",
        "UPDATE forward_op SET thread = 'x'",
        "UPDATE forward_op SET sequence_nr = 0.5",
        "UPDATE forward_tensor SET shape = 99999",
        "UPDATE forward_tensor SET shape = place",
        "UPDATE forward_tensor SET health = 99999",
        "UPDATE forward_tensor SET tensor = 'x'",
        "UPDATE measured SET min = max + 1.0",
        "UPDATE measured SET nan = -1",
        "DELETE FROM measured",
    ],
)
def test_lies_are_noticed(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "t.agviz"
    called(lambda: (x * 2).sum().backward(), path=path)
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute(lie).rowcount
    database.close()
    with Trace.open(path) as trace, pytest.raises(TraceError, match="damaged"):
        trace.forward_ops()


@pytest.mark.parametrize("foreach", [False, True])
def test_of_an_optimizer_s_step_what_writes_to_parameters_is_told(foreach: bool) -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters(), foreach=foreach)

    def program() -> None:
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()  # the step
        with torch.no_grad():
            layer.bias.mul_(2)
            torch.ones(2).add_(1)

    ops = called(program)
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    at = 1 + next(i for i, line in enumerate(source) if line.endswith("# the step"))
    step = [op for op in ops if f":{at} " in (op.line or "")]
    written = [tensor for op in step for tensor in op.outputs if tensor.parameter]
    assert {tensor.parameter for tensor in written} == {"weight", "bias"}
    assert all(tensor.health is None for tensor in written)
    assert len(step) <= (1 if foreach else 2)
    assert [op.name for op in ops][-3:] == ["Tensor.mul_", "torch.ones", "Tensor.add_"]
    assert ops[-3].outputs[0].health is not None


def test_the_closure_of_a_step_is_a_forward() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.cosh().sum()
        loss.backward()
        return loss

    def program() -> None:
        optimizer.step(closure)

    assert "Tensor.cosh" in {op.name for op in called(program)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with rows in all tables of a forward."""
    path = tmp_path_factory.mktemp("whole") / "t.agviz"
    model = Model()
    with agviz.trace(model, path, check_forward=True):
        loss_of(model).log().backward()
        leaf(2).mul(0).sqrt().sum().backward()
    return path.read_bytes()


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("seed", range(25))
def test_flipped_bits(whole: bytes, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(whole)
    for _ in range(rng.choice([5, 50, 500])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    check_either(tmp_path, bytes(data))
