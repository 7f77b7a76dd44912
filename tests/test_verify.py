"""``agviz.verify`` in this process: what it finds, and that the program does not feel it."""

from __future__ import annotations

import gc
import random
import runpy
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.variable import Variable
from torch.utils.checkpoint import checkpoint

from agviz.verify import calls
from agviz.verify.findings import ComparisonOutcome, ComparisonReport
from agviz.verify.session import Verification
from agviz.verify.values import compare, take
from agviz_engine.engine import Engine
from agviz_engine.located_node import LocatedNode
from tests.engine.oracle import same_bits
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from agviz_engine.node import NodeRef

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
Result = Sequence[Any]

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")


@contextmanager
def verifying(steps: range | None = None) -> Iterator[ComparisonReport]:
    """What is found in the block, complete at its end."""
    verification = Verification(steps)
    findings = ComparisonReport()
    verification.start()
    try:
        yield findings
    finally:
        found = verification.stop()
        assert found is not None
        vars(findings).update(vars(found))


def run_natively_and_verified(
    program: Callable[[], Result],
) -> tuple[Result, Result, ComparisonReport]:
    """The program's results under the native engine, and under verification, and the findings."""
    torch.manual_seed(0)
    native = program()
    torch.manual_seed(0)
    with verifying() as findings:
        verified = program()
    return native, verified, findings


def assert_same(native: Result, verified: Result) -> None:
    assert len(native) == len(verified)
    for expected, got in zip(native, verified, strict=True):
        if isinstance(expected, Tensor):
            assert same_bits(expected, got)
        else:
            assert expected == got


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_training_scripts_are_equal(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    plain = capsys.readouterr().out
    with verifying() as findings:
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == plain != ""
    assert findings.outcomes == {ComparisonOutcome.EQUAL: findings.passes}
    assert findings.order_compared == findings.passes >= 4
    assert findings.gradients >= 40
    assert {finding.place.rpartition(":")[0] for finding in findings.kept} <= {
        str(path), str(path.relative_to(Path.cwd()))
    }  # fmt: skip


def test_the_scripts_are_of_six_kinds() -> None:
    assert [path.stem for path in SCRIPTS] == [
        "conv_net", "gan", "maml", "rnn", "transformer", "wgan_gp"
    ]  # fmt: skip


STATEFUL = {"retain_grad_and_tensor_hooks", "node_hooks"}  # their hooks note what they saw


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - STATEFUL))
def test_programs_are_equal_and_get_what_they_would_have_got(name: str) -> None:
    native, verified, findings = run_natively_and_verified(PROGRAMS[name])
    assert_same(native, verified)
    assert findings.passes > 0
    assert findings.outcomes == {ComparisonOutcome.EQUAL: findings.passes}
    assert findings.order_compared == findings.passes


@pytest.mark.parametrize("name", sorted(STATEFUL))
def test_hooks_are_called_three_times_and_that_is_counted(name: str) -> None:
    native, verified, findings = run_natively_and_verified(PROGRAMS[name])
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}
    assert findings.hooks >= 2
    assert len(verified) > len(native)


# -- an engine that is wrong ---------------------------------------------------------------------


def small_training() -> Result:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).pow(2).sum().backward()
        optimizer.step()
    return [*model.parameters(), *(parameter.grad for parameter in model.parameters())]


def test_a_wrong_gradient_is_named_and_the_program_goes_on_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    native = small_training()
    right = Engine._call_accumulate_grad

    def wrong(self: Engine, graph_task: Any, ref: NodeRef, inputs: Any) -> Any:
        (gradient,) = inputs
        if gradient.shape == (4, 3):
            gradient = gradient.clone()
            gradient[2, 1] += 1
        return right(self, graph_task, ref, (gradient,))

    monkeypatch.setattr(Engine, "_call_accumulate_grad", wrong)
    torch.manual_seed(0)
    with verifying() as findings:
        verified = small_training()
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.DIFFERENT: 3}
    first = findings.first_difference
    assert first is not None
    assert (first.number, first.call) == (0, "backward")
    (difference,) = first.differences
    assert difference.kind == "gradient"
    assert difference.where == "gradient of 0.weight, element [2, 1]"
    assert float(difference.agviz) == pytest.approx(float(difference.native) + 1)
    assert difference.note == "1 of 12 elements differs"


def test_a_lost_gradient_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Engine._call_accumulate_grad

    def without(self: Engine, graph_task: Any, ref: NodeRef, inputs: Any) -> Any:
        (gradient,) = inputs
        return right(self, graph_task, ref, (None if gradient.shape == (2, 4) else gradient,))

    monkeypatch.setattr(Engine, "_call_accumulate_grad", without)
    with verifying() as findings:
        small_training()
    first = findings.first_difference
    assert first is not None
    assert [d.described() for d in first.differences] == [
        "gradient of 2.weight: torch a tensor, agviz None"
    ]


def test_another_order_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocatedNode, "sequence_nr", 0)

    def program() -> Result:
        x = torch.randn(3, requires_grad=True)
        a, b = x.exp(), x.sin()
        (b * a.cos().tanh()).sum().backward()
        return [x.grad]

    native, verified, findings = run_natively_and_verified(program)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.DIFFERENT: 1}
    (difference,) = findings.kept[0].differences
    assert difference.kind == "order"
    assert difference.where.startswith("node ")
    assert difference.native != difference.agviz


def test_an_exception_of_our_engine_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate_function(*_arguments: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Engine, "evaluate_function", evaluate_function)
    native, verified, findings = run_natively_and_verified(small_training)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.DIFFERENT: 3}
    described = findings.kept[0].differences[0].described()
    assert described == "outcome: torch raised nothing, agviz ValueError: broken"


def test_a_program_that_can_not_tell_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def getcwd() -> str:
        raise ZeroDivisionError("nobody asks for it")

    monkeypatch.setattr("os.getcwd", getcwd)
    with verifying() as findings:
        torch.ones(3, requires_grad=True).exp().sum().backward()
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}


# -- passes that raise ---------------------------------------------------------------------------


class Fails(torch.autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise ZeroDivisionError("no gradient today")


def test_an_exception_of_both_is_equal_and_reaches_the_program() -> None:
    x = torch.randn(3, requires_grad=True)
    with verifying() as findings:
        with pytest.raises(ZeroDivisionError, match="no gradient today"):
            (cast("Any", Fails).apply(x.exp()) * x.sin()).sum().backward()
        twice = x.exp().sum()
        twice.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            twice.backward()
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 3}
    assert [finding.raised.partition(":")[0] for finding in findings.kept] == [
        "ZeroDivisionError", "", "RuntimeError"
    ]  # fmt: skip


def test_a_hook_that_raises_before_its_node_is_no_difference_in_order() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda _: 1 / 0)
    with verifying() as findings, pytest.raises(ZeroDivisionError):
        y.sin().sum().backward()
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}


def test_refused_arguments_are_equal() -> None:
    with verifying() as findings, pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(3).sum().backward()
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}


def test_control_c_passes_through() -> None:
    def interrupt(_gradient: Tensor) -> None:
        raise KeyboardInterrupt

    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    handle = y.register_hook(interrupt)
    with verifying() as findings:
        with pytest.raises(KeyboardInterrupt):
            y.sum().backward()
        handle.remove()
        x.exp().sum().backward()
    assert findings.outcomes == {ComparisonOutcome.NOT_COMPARED: 1, ComparisonOutcome.EQUAL: 1}


# -- passes that can't be repeated ---------------------------------------------------------------


class FreesItsBuffer(torch.autograd.Function):
    """Can run backward once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.buffer = x.exp()
        return x.exp()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        buffer = ctx.buffer
        del ctx.buffer
        return gradients[0] * buffer


def once_only_function() -> Result:
    x = torch.randn(3, requires_grad=True)
    cast("Any", FreesItsBuffer).apply(x).sum().backward()
    return [x.grad]


def counting_hook() -> Result:
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    factors = iter((1.0, 2.0, 3.0))
    y.register_hook(lambda gradient: gradient * next(factors))
    y.sum().backward()
    return [x.grad]


def draws_from_its_own_generator() -> Result:
    x = torch.randn(3, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    y = x * 2
    y.register_hook(lambda gradient: gradient + torch.randn(3, generator=generator))
    y.sum().backward()
    return [x.grad]


def optimizer_in_a_hook() -> Result:
    model = nn.Linear(3, 3)
    optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[cast("Any", parameter)].step()
        optimizers[cast("Any", parameter)].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(torch.randn(2, 3)).pow(2).sum().backward()
    return [*model.parameters()]


def changes_data_unseen() -> Result:
    x = torch.randn(3, requires_grad=True)

    def change(leaf: Tensor) -> None:
        leaf.data += 1

    x.register_post_accumulate_grad_hook(change)
    x.exp().sum().backward()
    return [x, x.grad]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (once_only_function, "does not repeat it: outcome: first raised nothing, then Attribute"),
        (
            counting_hook,
            "does not repeat it: gradient of leaf 0 of shape [3], element [0]: first 2",
        ),
        (draws_from_its_own_generator, "does not repeat it: gradient of leaf 0"),
        (optimizer_in_a_hook, "it changes bias itself"),
        (changes_data_unseen, "it changes a tensor of shape [3] itself"),
    ],
)
def test_what_can_not_be_repeated_is_not_compared_and_comes_out_natively(
    program: Callable[[], Result], why: str
) -> None:
    native, verified, findings = run_natively_and_verified(program)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.NOT_COMPARABLE: findings.passes}
    assert why in findings.kept[0].reason


def test_what_can_not_be_taken_down_is_not_compared_and_does_not_reach_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take(_tensor: Tensor) -> None:
        raise TypeError("a tensor like no other")

    monkeypatch.setattr(calls, "take", take)
    native, verified, findings = run_natively_and_verified(small_training)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.NOT_COMPARABLE: 3}
    assert "can't be taken down (TypeError: a tensor like no other)" in findings.kept[0].reason


# -- what must stay as it is ---------------------------------------------------------------------


def test_a_gradient_is_added_to_in_place_as_ever() -> None:
    for sparse in (False, True):
        table = nn.Embedding(6, 2, sparse=sparse)
        with verifying() as findings:
            table(torch.tensor([1, 2])).sum().backward()
            held = table.weight.grad
            assert held is not None
            table(torch.tensor([2, 5])).sum().backward()
        assert table.weight.grad is held
        assert held.to_dense().sum() == 8
        assert findings.outcomes == {ComparisonOutcome.EQUAL: 2}


def test_random_numbers_go_on_as_if_a_pass_ran_once() -> None:
    def program() -> Result:
        x = torch.randn(3, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: g * torch.rand(3) * random.random())
        y.sum().backward()
        return [x.grad, torch.rand(1), random.random()]

    random.seed(0)
    torch.manual_seed(0)
    native = program()
    random.seed(0)
    torch.manual_seed(0)
    with verifying() as findings:
        verified = program()
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_modules_move_their_averages_as_if_a_pass_ran_once(
    *, use_reentrant: bool
) -> None:
    def program() -> Result:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        x = torch.randn(5, 3, requires_grad=True)
        checkpoint(model, x, use_reentrant=use_reentrant).pow(2).sum().backward()
        return [x.grad, *model.buffers()]

    native, verified, findings = run_natively_and_verified(program)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}


def test_the_graph_is_released_as_usual() -> None:
    x = torch.randn(3, requires_grad=True)
    with verifying():
        saved = x.exp()
        gone = weakref.ref(saved)
        loss = saved.sin().sum()
        del saved
        loss.backward()
        gc.collect()
        assert gone() is None
        again = x.exp().sum()
        again.backward(retain_graph=True)
        again.backward()


class _Wrapper(Tensor):
    """A leaf of no storage, with no operators but those it notes."""

    called: ClassVar[list[str]] = []

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        cls.called.append(str(func))
        raise NotImplementedError(func)


def test_a_leaf_as_root_is_not_asked_to_be_viewed() -> None:
    make = cast("Any", Tensor)._make_wrapper_subclass
    root = make(_Wrapper, (3,), requires_grad=True)
    with verifying() as findings:
        root.backward(torch.ones(3))
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 1}
    assert root.grad.tolist() == [1.0] * 3
    assert _Wrapper.called == []


def test_results_with_a_graph_of_their_own_come_from_one_engine() -> None:
    def program() -> Result:
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        return [slope, x.grad]

    native, verified, findings = run_natively_and_verified(program)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 2}


def test_torch_gets_its_engine_back() -> None:
    native = Variable._execution_engine
    with verifying():
        assert Variable._execution_engine is not native
    assert Variable._execution_engine is native


def test_threads_come_one_after_the_other() -> None:
    weight = torch.randn(20, 20, requires_grad=True)

    def work() -> None:
        for _ in range(4):
            (weight @ weight).tanh().sum().backward()

    with verifying() as findings:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert findings.outcomes == {ComparisonOutcome.EQUAL: 16}


def test_transforms_are_compared() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(x @ w).sum()

    def program() -> Result:
        w, xs = torch.randn(3), torch.randn(5, 3)
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(w, xs)
        slope = torch.func.grad(lambda w: torch.func.grad(loss)(w, xs[0]).pow(2).sum())(w)
        return [each, slope]

    native, verified, findings = run_natively_and_verified(program)
    assert_same(native, verified)
    assert findings.outcomes == {ComparisonOutcome.EQUAL: findings.passes}
    assert findings.gradients == findings.passes == 3


def test_steps_leaves_passes_out() -> None:
    with verifying(range(1, 3)) as findings:
        native = small_training()
    assert [finding.outcome for finding in findings.kept] == [
        ComparisonOutcome.NOT_COMPARED, ComparisonOutcome.EQUAL, ComparisonOutcome.EQUAL
    ]  # fmt: skip
    assert findings.kept[0].reason == "left out by --steps"
    assert native


# -- values --------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("native", "agviz", "described"),
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.tensor([NAN, 1]), torch.tensor([NAN, 1]), None),
        (None, None, None),
        (torch.empty(0, 3), torch.empty(0, 3), None),
        (torch.ones(1, 3).expand(2, 3), torch.ones(1, 3).expand(2, 3), None),
        (torch.ones(2), None, "a tensor None"),
        (torch.ones(2), torch.ones(2).double(), "dtype torch.float32 torch.float64"),
        (torch.ones(2), torch.ones(1, 2), "shape [2] [1, 2]"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "strides (3, 1) (1, 2)"),
        (torch.ones(2), torch.ones(2, requires_grad=True), "requires_grad False True"),
        (torch.zeros(2), torch.tensor([0.0, -0.0]), "element [1] 0 -0 1 of 2 elements differs"),
        (torch.tensor(1.0), torch.tensor(1.0 + 2**-23), "element [] 1 1.00000012"),
        (torch.tensor([1j]), torch.tensor([2j]), "element [0] 1j 2j"),
        (torch.ones(2).bfloat16(), torch.full((2,), 1.5).bfloat16(), "element [0] 1 1.5 2 of 2"),
        (torch.eye(2).to_sparse(), (torch.eye(2) * 2).to_sparse(), "values element [0] 1 2"),
        (
            torch.eye(2).to_sparse(),
            torch.ones(2, 2).tril().to_sparse(),
            "indices shape [2, 2] [2, 3]",
        ),
    ],
)
def test_values_are_compared_to_the_last_bit(
    native: Tensor | None, agviz: Tensor | None, described: str | None
) -> None:
    found = compare(take(native), take(agviz))
    if described is None:
        assert found is None
    else:
        assert found is not None
        assert " ".join(found).strip().startswith(described)


@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse CSR).*:UserWarning")
def test_values_of_unusual_layouts_are_compared_too() -> None:
    one, two = (take((torch.eye(2) * factor).to_sparse_csr()) for factor in (1, 2))
    assert compare(one, two) == ("values element [0]", "1", "2", "2 of 2 elements differ")
    one, two = (
        take(torch.nested.nested_tensor([torch.ones(1), torch.full((2,), value)]))
        for value in (1.0, 0.0)
    )
    assert compare(one, two) == ("component 1 element [0]", "1", "0", "2 of 2 elements differ")


def test_bits_are_shown_where_numbers_look_the_same() -> None:
    quiet, other = (torch.tensor([bits], dtype=torch.int32) for bits in (0x7FC00000, 0x7FC00001))
    found = compare(take(quiet.view(torch.float32)), take(other.view(torch.float32)))
    assert found is not None
    assert (found.native, found.agviz) == ("nan (bits 7fc00000)", "nan (bits 7fc00001)")
