"""Every operation that torch tests itself with: samples of its OpInfo database on all engines."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from agviz_engine.observe.observing_engine import observed
from tests.engine.oracle import assert_same, native_outcome, our_outcome, outcome_with
from tests.engine.test_observe import Kept, without_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of what torch itself has deprecated
]
SHARDS = 8
SAMPLES = 30
"""Of each operation and dtype."""
DTYPES = torch.float64, torch.complex128, torch.bfloat16


class Sample(NamedTuple):
    """One call of an operation."""

    title: str
    operation: Any
    given: Any
    inputs: list[Any]
    leaves: list[Tensor]

    def outputs(self) -> list[Tensor]:
        """Those that need a gradient."""
        torch.manual_seed(1)
        out = self.operation.op(*self.inputs, **self.given.kwargs)
        found = _differentiable(out)
        if self.given.output_process_fn_grad is not None and len(found) == 1:
            found = _differentiable(self.given.output_process_fn_grad(found[0]))
        return found

    def backward(self) -> Sequence[Tensor | None]:
        """Gradients of all leaves."""
        for leaf in self.leaves:
            leaf.grad = None
        outputs = self.outputs()
        if outputs:
            torch.autograd.backward(outputs, _gradients(outputs))
        return [leaf.grad for leaf in self.leaves]

    def twice(self) -> Sequence[Tensor | None]:
        """Gradients of the gradients' squares."""
        outputs = self.outputs()
        if not outputs:
            return []
        first: Sequence[Tensor | None] = torch.autograd.grad(
            outputs, self.leaves, _gradients(outputs), create_graph=True, allow_unused=True
        )
        squares = [(g * g).sum() for g in first if g is not None and g.requires_grad]
        if not squares:
            return []
        return torch.autograd.grad(squares, self.leaves, allow_unused=True)


def _differentiable(out: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _gradients(outputs: Sequence[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    return [
        torch.randn_like(each) if each.layout is torch.strided else torch.ones_like(each)
        for each in outputs
    ]


def samples(shard: int, device: str) -> Iterator[Sample]:
    """Samples of every operation of a shard, the same in each run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    operations = sorted(op_db, key=lambda each: (each.name, each.variant_test_name))
    for operation in operations[shard::SHARDS]:
        for dtype in DTYPES:
            if not operation.supports_autograd:
                continue
            if dtype not in operation.supported_backward_dtypes(device):
                continue
            torch.manual_seed(0)
            random.seed(0)
            found = list(operation.sample_inputs(device, dtype, requires_grad=True))
            random.Random(0).shuffle(found)
            for number, given in enumerate(found[:SAMPLES]):
                inputs = [given.input, *given.args]
                leaves = _differentiable((inputs, given.kwargs))
                title = f"{operation.name} {operation.variant_test_name} {dtype}, sample {number}"
                if leaves:
                    yield Sample(title, operation, given, inputs, leaves)


def _repeatable(program: Callable[[], Sequence[Tensor | None]]) -> Callable[[], Any]:
    """The same where each run gives the same bits; without its values where torch warns of others.

    Some kernels of a GPU add in whatever order their blocks come.
    """

    def repeatable() -> Sequence[Tensor | None]:
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            return program()
        finally:
            torch.use_deterministic_algorithms(False)

    said = [message for _, message, *_ in native_outcome(repeatable).warnings]
    if any("does not have a deterministic implementation" in message for message in said):
        return lambda: [None for _ in repeatable()]
    return repeatable


class _Peek(torch.autograd.Function):
    """Read which number the thread of its backward gives its next node."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, found: list[int]) -> Tensor:
        ctx.found = found
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.found.append(torch._C._autograd._get_sequence_nr())
        return gradients[0], None


def _number_above_the_device() -> None:
    """Number the next nodes of this thread above all that a device's thread makes in a program.

    A second backward runs nodes of both threads in the order of their numbers, and those of a
    device's thread are from what its engine has done before.
    """
    found: list[int] = []
    probe = torch.ones((), device="cuda", requires_grad=True)
    cast("Any", _Peek).apply(probe, found).backward()
    leaf = torch.ones((), requires_grad=True)
    while torch._C._autograd._get_sequence_nr() < found[0] + 10_000:
        leaf.neg()


def _by_thread(events: list[Any]) -> list[Any]:
    return sorted(events, key=lambda event: event[1]["thread"])


ON_EACH_DEVICE = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)


@ON_EACH_DEVICE
@pytest.mark.parametrize("shard", range(SHARDS))
def test_gradients_order_and_errors_are_torchs(shard: int, device: str) -> None:
    for sample in samples(shard, device):
        print(sample.title)  # shown where it fails
        programs = [sample.backward]
        if sample.operation.supports_gradgrad and sample.leaves[0].dtype is torch.float64:
            programs.append(sample.twice)
        if device != "cpu":
            _number_above_the_device()
        for program in programs:
            assert_same(program if device == "cpu" else _repeatable(program))


@ON_EACH_DEVICE
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_is_observed_is_what_the_exact_engine_does(shard: int, device: str) -> None:
    for sample in samples(shard, device):
        print(sample.title)  # shown where it fails
        seen, exact = Kept(), Kept()
        outcome_with(observed(seen), sample.backward)
        our_outcome(sample.backward, 0, exact)
        ours, theirs = seen.plain(), exact.plain()
        if device != "cpu":  # what a device thread does meanwhile is in no order to the others'
            ours, theirs = _by_thread(ours), _by_thread(theirs)
        assert ours == without_unknown(theirs, ours)
