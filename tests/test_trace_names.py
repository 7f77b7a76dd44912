"""Parameter names and module paths, held against the model's own structure."""

from __future__ import annotations

import gc
import logging
import random
import threading
import tracemalloc
import weakref
from array import array
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
import agviz_engine
from agviz.record import names as names_module
from agviz.record.names import Names
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch.autograd.graph import Node


@pytest.fixture
def names() -> Iterator[Names]:
    with Names() as listening:
        yield listening


def walk(loss: Tensor) -> list[Node]:
    """All nodes behind ``loss``."""
    assert loss.grad_fn is not None
    found, stack = {loss.grad_fn}, [loss.grad_fn]
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in found:
                found.add(node)
                stack.append(node)
    return list(found)


class Tagged(nn.Module):
    """A module whose every output knows, by a hook of torch itself, which module made it."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.own = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.own
        for part in self.parts:
            x = part(x).sin()
        return x


def nodes_by_module(model: nn.Module, run: Callable[[], Tensor]) -> tuple[Tensor, dict[int, str]]:
    """An independent record: which sequence numbers a module drew, found by wrapping forward."""
    peek = torch._C._autograd._get_sequence_nr
    owner: dict[int, str] = {}
    for path, module in model.named_modules():

        def forward(
            *args: Any, inner: Any = module.forward, path: str = path, **kwargs: Any
        ) -> Any:
            before = peek()
            result = inner(*args, **kwargs)
            for number in range(before, peek()):
                owner.setdefault(number, path)  # inner modules come back first
            return result

        module.forward = forward
    return run(), owner


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tagged(nn.Linear(3, 3), Tagged(nn.Linear(3, 3), nn.ReLU()), nn.Tanh()),
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(3, 1, 8, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda: nn.Sequential(nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(3, 1)),
    ],
)
def test_paths_are_those_of_the_model(names: Names, make: Callable[[], nn.Module]) -> None:
    model: Any = make()
    x = torch.randn(2, 2, 3, requires_grad=True)
    loss, owner = nodes_by_module(model, lambda: model(x))
    numbers = [n._sequence_nr() for n in walk(loss) if "AccumulateGrad" not in n.name()]
    assert len(numbers) > 3
    expected = [owner[number] or type(model).__name__ for number in numbers]
    assert list(map(names.module, numbers)) == expected
    assert names.modules([*numbers, -1])() == [*expected, ""]
    assert names.modules(array("q", numbers))() == expected


def test_parameters_have_the_models_names(names: Names) -> None:
    model = Tagged(nn.Linear(3, 3), Tagged(nn.Linear(3, 3)))
    model(torch.randn(3))
    for name, parameter in model.named_parameters():
        assert names.parameter(parameter) == name
    assert names.parameter(torch.randn(3, requires_grad=True)) is None


def test_a_loss_module_does_not_lengthen_the_names(names: Names) -> None:
    model, criterion = nn.Sequential(nn.Linear(3, 3)), nn.MSELoss()
    loss = criterion(model(torch.randn(2, 3)), torch.zeros(2, 3))
    assert names.parameter(model.get_parameter("0.weight")) == "0.weight"
    assert names.module(loss.grad_fn._sequence_nr()) == "MSELoss"


def test_several_models_are_told_apart(names: Names) -> None:
    a, b, c = nn.Sequential(nn.Linear(3, 3)), nn.Linear(3, 3), nn.Linear(3, 3)
    y = c(b(a(torch.randn(3))))
    assert names.parameter(a.get_parameter("0.weight")) == "Sequential.0.weight"
    assert names.parameter(b.bias) == "Linear.bias"
    assert names.parameter(c.bias) == "Linear#2.bias"
    assert names.module(y.grad_fn._sequence_nr()) == "Linear#2"


def test_a_part_called_by_itself_before_the_whole(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1](torch.randn(3))
    assert names.parameter(model.get_parameter("1.weight")) == "weight"
    model(torch.randn(3))
    assert names.parameter(model.get_parameter("1.weight")) == "1.weight"


def test_parameters_and_modules_that_come_later(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model(torch.randn(3))
    model[0].weight = nn.Parameter(torch.ones(3, 3))
    assert names.parameter(model.get_parameter("0.weight")) == "0.weight"
    model.append(nn.Linear(3, 3))
    y = model(torch.randn(3))
    assert names.module(y.grad_fn._sequence_nr()) == "1"


def test_a_module_made_in_forward_belongs_to_its_maker(names: Names) -> None:
    class Maker(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made: nn.Module = nn.Tanh()
            return cast("Tensor", made(x))

    model = nn.Sequential(Maker())
    for _ in range(3):
        y = model(torch.randn(3, requires_grad=True))
        assert names.module(y.grad_fn._sequence_nr()) == "0"


def test_no_model_is_kept_alive(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model(torch.randn(3)).sum().backward()
    gone: list[weakref.ref[Any]] = [
        weakref.ref(model),
        weakref.ref(model[0]),
        weakref.ref(model[0].weight),
    ]
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    assert not names._modules
    assert not names._parameters


def test_an_error_in_forward_leaves_the_stack_right(names: Names) -> None:
    class Fragile(nn.Module):
        fails = True

        def forward(self, x: Tensor) -> Tensor:
            if self.fails:
                raise ValueError("no")
            return x * 2

    model = nn.Sequential(nn.Sequential(Fragile()), nn.Tanh())
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(ValueError, match="no"):
        model(x)
    outside = x * 3
    assert outside.grad_fn is not None
    assert names.module(outside.grad_fn._sequence_nr()) is None
    Fragile.fails = False
    y = model(x)
    assert names.module(y.grad_fn._sequence_nr()) == "1"
    assert names.module(y.grad_fn.next_functions[0][0]._sequence_nr()) == "0.0"


def test_threads_have_numbers_of_their_own(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    made: list[Tensor] = []
    worker = threading.Thread(target=lambda: made.append(model(torch.randn(3))))
    worker.start()
    worker.join()
    node = made[0].grad_fn
    assert node is not None
    # This thread may have used the number for something else, outside any module.
    assert names.module(node._sequence_nr()) in {"1", None}
    y = model(torch.randn(3))
    assert names.module(y.grad_fn._sequence_nr()) == "1"


@pytest.mark.slow
def test_the_modules_of_many_nodes_are_those_of_each(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Tanh()))
    peek = torch._C._autograd._get_sequence_nr
    ends = [0]

    def work() -> None:
        for _ in range(5):
            model(torch.randn(3)) * torch.ones(3, requires_grad=True)
        ends.append(peek())

    workers = [threading.Thread(target=work) for _ in range(2)]
    for thread in workers:
        thread.start()
        thread.join()
    work()
    numbers = list(range(-1, max(ends) + 2))
    random.Random(0).shuffle(numbers)
    found = names.modules(numbers)()
    assert found == [names.module(number) or "" for number in numbers]
    assert len(set(found)) > 3
    assert names.modules([-1, -1])() == [""]
    assert names.modules([max(ends) + 1] * 3)() == [""]


def test_old_marks_are_dropped(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "_MOST_MARKS", 50)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    first = model(torch.randn(3)).grad_fn._sequence_nr()
    for _ in range(100):
        y = model(torch.randn(3))
        assert names.module(y.grad_fn._sequence_nr()) == "1"
    assert len(names._local.thread.marks.columns[0]) <= 50
    assert names.module(first) is None


def test_a_pass_costs_the_same_after_many_others(names: Names) -> None:
    model = nn.Linear(2, 1)

    def asked() -> int:
        nodes = walk(model(torch.ones(1, 2)).sum())
        numbers = [cast("Any", node)._sequence_nr() for node in nodes]
        signed = [-1 if number >= 2**63 else number for number in numbers]
        assert -1 in signed
        tracemalloc.start()
        try:
            names.modules(signed)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    first = asked()
    for _ in range(2_000):
        model(torch.ones(1, 2))
    assert asked() < first + 1_000, "one mark of a call takes 16 bytes"


def test_trouble_is_reported_once_and_never_felt(
    names: Names, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(names, "_next_number", broken)
    model = nn.Sequential(nn.Linear(3, 3))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert model(torch.randn(3)).shape == (3,)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_hooks_are_gone_afterwards() -> None:
    hooks = torch.nn.modules.module
    with Names():
        assert hooks._global_forward_hooks
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks_always_called


def test_a_compiled_model_goes_by_its_own_names(names: Names) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2, 3)
    y = compiled(x)  # torch's warning about global hooks would be an error here
    assert torch.equal(y, model(x))
    assert [names.parameter(p) for p in model.parameters()] == ["0.weight", "0.bias"]
    assert names.module(y.grad_fn._sequence_nr()) == "Sequential"


def test_names_reach_the_trace(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
            self.head = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(checkpoint(self.body, x, use_reentrant=True)).sum()
            return y

    model = Net()
    x = torch.randn(2, 3, requires_grad=True)
    with (
        Names() as names,
        Recorder(tmp_path / "t.agviz", names=names) as recorder,
        agviz_engine.installed(recorder),
    ):
        model(x).backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        outer, inner = trace.graph_tasks
        assert inner.parent == outer.id
        leaves = {
            node.parameter: node.shape
            for row in (outer, inner)
            for node in trace.nodes(row.id)
            if node.is_leaf
        }
        assert leaves.pop(None) == (2, 3)  # x, and what checkpoint detached from it
        assert leaves == {name: tuple(p.shape) for name, p in model.named_parameters()}
        modules = {node.short_name: node.module for node in trace.nodes(outer.id)}
        assert modules["SumBackward0"] == "Net"
        assert modules["CheckpointFunctionBackward"] == "Net"
        assert modules["AddmmBackward0"] == "head"
        again = {node.short_name: node.module for node in trace.nodes(inner.id)}
        assert again["TanhBackward0"] == "body.1"
        assert again["AddmmBackward0"] == "body.0"
        addmm = next(n for n in trace.nodes(outer.id) if n.short_name == "AddmmBackward0")
        assert addmm.input_shapes == ((2, 1),)
        assert (1,) in addmm.output_shapes
        assert (2, 4) in addmm.output_shapes


def test_shapes_of_gradients(tmp_path: Path) -> None:
    x = torch.randn(3, 2, requires_grad=True)
    with Recorder(tmp_path / "t.agviz") as recorder, agviz_engine.installed(recorder):
        a, b = (x * 2).split([1, 2])
        (a.sum() * b.mean()).backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (task,) = trace.graph_tasks
        nodes = {node.short_name: node for node in trace.nodes(task.id)}
    assert nodes["SplitWithSizesBackward0"].input_shapes == ((1, 2), (2, 2))
    assert nodes["SplitWithSizesBackward0"].output_shapes == ((3, 2),)
    assert nodes["SumBackward0"].output_shapes == ((1, 2),)
    assert nodes["MeanBackward0"].output_shapes == ((2, 2),)
    assert nodes["MeanBackward0"].input_shapes == ((),)
    assert nodes["AccumulateGrad"].shape == (3, 2)
    assert nodes["AccumulateGrad"].output_shapes == ()


def test_parameters_can_be_swapped() -> None:
    """As ``Module.to`` does with tensor subclasses; torch refuses what has weak references."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer = nn.Linear(2, 2)
        with Names() as names:
            names.learn(nn.Sequential(layer))
            layer.double()
            assert layer.weight.dtype == torch.float64
            assert names.parameter(layer.weight) == "0.weight"
        assert torch.utils.swap_tensors.__module__ == "torch.utils"
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


class Chain(nn.Module):
    """Its methods are called, and it never is."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(3))
        self.body = nn.Linear(3, 3)

    def nll(self, data: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.body(data) + self.start
        return -scores.log_softmax(-1).mean()


class Owner:
    """Holds a model as an attribute."""

    def __init__(self) -> None:
        self.model = Chain()

    def go(self) -> None:
        self.model.nll(torch.ones(2, 3)).backward()


def names_of(path: Path, run: Callable[[], object]) -> set[str | None]:
    with agviz.trace(path=path):
        run()
    with Trace.open(path) as trace:
        (task,) = trace.graph_tasks
        return {node.parameter for node in trace.nodes(task.id) if node.is_leaf}


def test_a_module_whose_methods_are_called_is_known_where_it_is_in_sight(tmp_path: Path) -> None:
    chain = Chain()

    def by_variable() -> None:
        chain.nll(torch.ones(2, 3)).backward()

    expected = {"start", "body.weight", "body.bias"}
    assert names_of(tmp_path / "a.agviz", by_variable) == expected
    assert names_of(tmp_path / "b.agviz", Owner().go) == expected


class Early(nn.Module):
    """Calls backward before it is a module, and answers whoever asks for an attribute."""

    asked: ClassVar[list[str]] = []

    def __init__(self, chain: Chain) -> None:
        chain.nll(torch.ones(2, 3)).backward()

    def __getattribute__(self, name: str) -> Any:
        Early.asked.append(name)
        return super().__getattribute__(name)


def test_to_look_for_a_module_calls_no_code_of_the_program(tmp_path: Path) -> None:
    found = names_of(tmp_path / "t.agviz", lambda: Early(Chain()))
    assert found == {"start", "body.weight", "body.bias"}
    assert not Early.asked


def test_no_grad_is_read_of_what_another_thread_trains(names: Names) -> None:
    """The process may end where one is read while torch's own engine writes it."""

    def train(parts: list[nn.Linear]) -> None:
        whole = nn.ModuleList(parts)  # never called
        names.trained(parts[0].weight)  # as an optimizer asks
        for part in whole:
            part(torch.ones(1, 2)).sum().backward()
        kept.append(whole)

    kept: list[nn.Module] = []
    elsewhere = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)]
    thread = threading.Thread(target=train, args=(elsewhere,))
    thread.start()
    thread.join()
    train([nn.Linear(2, 2)])
    known = names.parameters()
    assert known is not None
    had_grad = [f"{fact[0]} {had}" for fact, had in zip(known.facts, known.had_grad, strict=True)]
    assert sorted(had_grad) == [
        *("ModuleList#2.0.bias 1", "ModuleList#2.0.weight 1"),
        *("ModuleList.0.weight 0", "ModuleList.1.weight 0"),
    ]
