"""What is measured of gradients: against NumPy, for every dtype and layout, and without a trace."""

from __future__ import annotations

import math
import time
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from agviz.measure import elements, health, kernel
from agviz.measure.health import health_of, measure, unseen
from agviz.measure.measuring import Measuring
from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live
from agviz_engine.observe.observing_engine import observed
from agviz_engine.tensor_facts import held_bytes
from tests.slow_cases import slow_but
from tests.unnoticed import noticed

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from agviz.measure.values import Health

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
OTHERS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)
SIZES = ((), (0,), (1,), (3,), (16,), (17,), (4, 5), (0, 3), (7, 1, 9), (40, 50), (3, 45_000))
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:Sparse (CS|BS)")


class KeepsHealth(Instrument):
    """Keeps what was measured, by event, node and slot."""

    measurer = Measuring

    def __init__(self) -> None:
        self.found: list[tuple[str, str, int, Health]] = []

    def gradient_measured(self, event: Any, live: Live) -> None:
        assert live.node is not None
        assert live.health is not None
        assert live.gradient is not None
        slot = event.output if isinstance(event, events.NonFiniteChecked) else 0
        self.found.append((type(event).__name__, live.node.name, slot, live.health))


def measured(tensor: Tensor) -> Health:
    with unseen():
        return measure(tensor)


def random_tensor(rng: Random) -> Tensor:
    """Of any dtype, shape, magnitude and order of elements, with special values among them."""
    dtype = rng.choice(FLOATS * 3 + COMPLEX + OTHERS)
    shape = rng.choice(SIZES)
    torch.manual_seed(rng.randrange(2**32))
    if dtype in OTHERS:
        values = torch.randint(0, 100, shape).to(torch.float32).to(dtype)
    else:
        kind = torch.complex128 if dtype.is_complex else torch.float64
        magnitude = 10.0 ** rng.choice(
            (-300, -150, -40, -28, -15, -6, 0, 0, 3, 15, 25, 37, 150, 300)
        )
        values = (torch.randn(shape, dtype=kind) + rng.choice((0, 0, 3))) * magnitude
        values = values.to(dtype)
        if rng.random() < 0.3 and values.numel():
            parts = torch.view_as_real(values) if dtype.is_complex else values
            flat = parts.view(-1)
            for _ in range(rng.choice((1, 5, len(flat)))):
                flat[rng.randrange(len(flat))] = rng.choice(SPECIAL)
    return rearranged(rng, values)


def rearranged(rng: Random, values: Tensor) -> Tensor:
    """The same, or part of it, or more of it, as a view of some kind."""
    views: list[Callable[[], Tensor]] = [
        lambda: values,
        lambda: values.expand(rng.choice((1, 3)), *values.shape),
    ]
    if values.dim() > 1:
        views += [lambda: values.transpose(0, -1), lambda: values[1:].transpose(0, 1)]
    if values.dim() and values.shape[-1] > 2:
        views.append(lambda: values[..., 1::2])
    if values.dtype.is_complex:
        views.append(values.conj)
    if values.dtype in (torch.complex64, torch.complex128):
        views.append(lambda: values.conj().imag)
    return rng.choice(views)()


def by_numpy(tensor: Tensor) -> dict[str, Any]:
    """The straightforward way, in float64."""
    if tensor.is_complex():
        wide = tensor.resolve_conj().to(torch.complex128).numpy()
        numbers = np.stack([wide.real, wide.imag]).astype(np.float64).ravel()
    else:
        if tensor.dtype is torch.bfloat16 or "float8" in str(tensor.dtype):
            tensor = tensor.to(torch.float32)
        numbers = tensor.resolve_neg().numpy().astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    largest = np.abs(finite).max(initial=0.0) or 1.0
    return {
        "numbers": numbers.size,
        "nan": int(np.isnan(numbers).sum()),
        "posinf": int(np.isposinf(numbers).sum()),
        "neginf": int(np.isneginf(numbers).sum()),
        "zero": int((numbers == 0).sum()),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float((finite / largest).mean() * largest) if finite.size else None,
        "norm": float(np.linalg.norm(finite / largest) * largest) if finite.size else None,
        "size of a mean": float(np.abs(finite / largest).mean() * largest) if finite.size else 0.0,
    }


@pytest.fixture(params=["compiled", "torch"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What does the measuring of dense floats."""
    if request.param == "torch":
        monkeypatch.setattr(kernel, "MEASURE", {})
        monkeypatch.setattr(health, "_plain_by_block", {})
        monkeypatch.setattr(health, "_known_of", lambda _: None)
    elif not kernel.is_built():
        pytest.skip("no C compiler was there when agviz was installed")
    return cast("str", request.param)


@pytest.mark.parametrize("seed", slow_but(set(map(str, range(4))), range(20)))
@pytest.mark.usefixtures("by")
def test_as_numpy_says(seed: int) -> None:
    """1,000 tensors in all: counts and extremes exactly, sums as well as float32 can."""
    rng = Random(seed)
    for _ in range(50):
        tensor = random_tensor(rng)
        found, expected = measured(tensor), by_numpy(tensor)
        assert not found.unknown, found
        for fact in ("numbers", "nan", "posinf", "neginf", "zero", "min", "max"):
            assert getattr(found, fact) == expected[fact], (fact, found, expected)
        if expected["mean"] is None:
            assert found.mean is found.norm is None
        else:
            assert found.mean is not None
            assert abs(found.mean - expected["mean"]) <= 1e-5 * expected["size of a mean"]
            assert found.norm == pytest.approx(expected["norm"], rel=1e-5)
        assert found.dtype == str(tensor.dtype).removeprefix("torch.")
        assert found.shape == tuple(tensor.shape)
        assert (found.device, found.layout) == ("cpu", "strided")
        assert found.numel == tensor.numel()
        assert found.nbytes == min(tensor.nbytes, tensor.untyped_storage().nbytes())


def test_the_samples_have_everything() -> None:
    rng = Random(1)
    samples = [random_tensor(rng) for _ in range(200)]
    assert {sample.dtype for sample in samples} == {*FLOATS, *COMPLEX, *OTHERS}
    assert any(not sample.is_contiguous() and sample.numel() > 1 << 17 for sample in samples)
    found = [measured(sample) for sample in samples]
    assert sum(health.nan + health.posinf + health.neginf > 0 for health in found) > 20
    assert sum(health.numbers > 0 and health.min is None for health in found) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float16])
def test_a_tensor_of_zeros_without_memory_is_measured(dtype: torch.dtype) -> None:
    make = cast("Any", torch)._efficientzerotensor
    for shape in SIZES:
        assert health_of(make(shape, dtype=dtype)) == health_of(torch.zeros(shape, dtype=dtype))
    assert health_of(make((4, 5), dtype=dtype).t()[1:]).zero == (32 if dtype.is_complex else 16)


@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("layout", ["coo", "uncoalesced", "csr", "csc", "bsr", "bsc"])
def test_of_sparse_tensors_the_stored_values_count(layout: str) -> None:
    dense = torch.tensor([[0.0, 3.0], [-4.0, math.nan]])
    if layout == "coo":
        tensor = dense.to_sparse()
    elif layout == "uncoalesced":
        indices = torch.tensor([[0, 1, 1], [1, 0, 1]])
        tensor = torch.sparse_coo_tensor(
            indices, torch.tensor([3.0, -4.0, math.nan]), check_invariants=True
        )
    elif layout in ("csr", "csc"):
        tensor = getattr(dense, f"to_sparse_{layout}")()
    else:
        tensor = getattr(dense, f"to_sparse_{layout}")((1, 1))
    found = measured(tensor)
    assert (found.numbers, found.nan, found.zero) == (3, 1, 0)
    assert (found.min, found.max, found.norm) == (-4.0, 3.0, 5.0)
    assert (found.numel, found.shape) == (4, (2, 2))
    assert found.nbytes > 3 * 4


class Wrapped(Tensor):
    """A subclass, of which nothing is known."""


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.ones(2).as_subclass(Wrapped), "a Wrapped"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.ones(3).to_mkldnn(), "mkldnn"),
    ],
)
def test_what_is_not_known_says_why(tensor: Tensor, why: str) -> None:
    found = measured(tensor)
    assert why in found.unknown
    assert found.numbers == 0
    assert found[11:15] == (None,) * 4
    assert found.shape == tuple(tensor.shape)


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_a_nested_tensor_is_not_known() -> None:
    strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    for tensor in (strided, jagged):
        found = measured(tensor)
        assert found.unknown
        assert found.shape is None


def test_a_fake_tensor_has_a_shape_only() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        found = measured(torch.ones(2, 3))
    assert (found.unknown, found.shape) == ("a FakeTensor", (2, 3))


def test_an_expanded_gradient_takes_up_what_its_storage_does() -> None:
    found = measured(torch.full((1,), 2.0).expand(1000, 50))
    assert (found.nbytes, found.numbers, found.mean) == (4, 50_000, 2.0)
    assert found.norm == pytest.approx(2 * math.sqrt(50_000))


def test_what_is_measured_of_a_backward_pass() -> None:
    """Each output, the root, and a ``.grad`` only where it is not what one node put out."""
    x = torch.ones(3, requires_grad=True)
    y = torch.full((3,), 2.0, requires_grad=True)

    def health_found() -> list[tuple[str, str, int, float | None]]:
        instrument = KeepsHealth()
        with installed(instrument):
            (x * y).sum().backward()
        return [(event, name, slot, health.max) for event, name, slot, health in instrument.found]

    outputs = [
        ("GradientAccumulated", "SumBackward0", 0, 1.0),
        ("NonFiniteChecked", "SumBackward0", 0, 1.0),
        ("NonFiniteChecked", "MulBackward0", 0, 2.0),
        ("NonFiniteChecked", "MulBackward0", 1, 1.0),
    ]
    leaf = "torch::autograd::AccumulateGrad"
    assert health_found() == outputs
    assert sorted(health_found()[4:]) == [
        ("LeafAccumulated", leaf, 0, 2.0),
        ("LeafAccumulated", leaf, 0, 4.0),
    ]
    x.grad = y.grad = None
    y.register_hook(lambda gradient: gradient * 10)
    assert health_found()[4:] == [("LeafAccumulated", leaf, 0, 10.0)]


@pytest.mark.parametrize("where", ["tensor hook", "pre-hook", "post-hook", "Function", "between"])
def test_what_changed_behind_the_version_is_measured_again(where: str) -> None:
    """``.data`` shares memory but not the version; a view of it has been measured before."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return change(gradients[0])

    def change(gradient: Tensor) -> Tensor:
        gradient.data.mul_(2)
        return gradient

    x = torch.ones(60, 100, requires_grad=True)
    middle = (x * 3).view(6000)
    node = cast("Any", middle.grad_fn)
    if where == "tensor hook":
        middle.register_hook(change)
    elif where == "pre-hook":
        node.register_prehook(lambda gradients: (change(gradients[0]),))
    elif where == "post-hook":
        node.register_hook(lambda _, received: (change(received[0]).view(60, 100),))
    elif where == "Function":
        middle = cast("Any", Double).apply(middle)
    given = torch.ones(6000)
    instrument = KeepsHealth()
    with installed(instrument):
        if where == "between":
            middle.backward(given, retain_graph=True)
            change(given)
            instrument.found.clear()
        middle.view(6000).backward(given)
    seen = {
        name: health.max
        for event, name, _, health in instrument.found
        if event != "LeafAccumulated"
    }
    assert seen["MulBackward0"] == 6.0
    assert instrument.found[1 if where == "between" else 0][3].max in (1.0, 2.0)
    assert [h.max for _, name, _, h in instrument.found if name == "ViewBackward0"][-1] == 2.0


def test_a_view_is_measured_once(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    home, name = (kernel, "measured_at") if by == "compiled" else (elements, "_of_chunk")
    measuring = getattr(home, name)

    def counted(*given: Any) -> Any:
        calls.append(given)
        return measuring(*given)

    monkeypatch.setattr(home, name, counted)
    x = torch.ones(60, 100, requires_grad=True)
    instrument = KeepsHealth()
    with installed(instrument):
        (x * 2).view(6000).view(30, 200).t().backward(torch.ones(200, 30))
    assert len([1 for event, *_ in instrument.found if event == "NonFiniteChecked"]) == 4
    assert len(calls) == 3  # what was given, a contiguous copy of it, and twice that


def test_memory_that_was_used_again_is_measured_again() -> None:
    kept = set()
    for number in range(200):
        tensor = torch.full((5000,), float(number))
        kept.add(tensor.data_ptr())
        assert measured(tensor).max == number
    assert len(kept) < 200


def test_a_shared_leaf_and_the_results_of_grad() -> None:
    x = torch.ones(3, requires_grad=True)
    instrument = KeepsHealth()
    with installed(instrument):
        (x * 2 + x * 3).sum().backward()
        torch.autograd.grad((x * 2 + x * 3).sum(), x)
        torch.autograd.grad((x * 2).sum(), x)
    kinds = ("LeafAccumulated", "GradientCaptured")
    found = [(event, health.max) for event, _, _, health in instrument.found if event in kinds]
    assert found == [("LeafAccumulated", 5.0), ("GradientCaptured", 5.0)]


def test_batched_gradients_are_looked_at_in_all_their_batches() -> None:
    x = torch.arange(3.0, requires_grad=True)
    instrument = KeepsHealth()
    with installed(instrument):
        torch.autograd.grad(x * x, x, torch.eye(3), is_grads_batched=True)
    assert all(not health.unknown for *_, health in instrument.found)
    assert instrument.found[0][3].numbers == 9


def test_measuring_leaves_no_trace() -> None:
    """Random numbers, modes, versions, the profiler and the gradients are as without."""
    instrument = KeepsHealth()
    *with_it, _allocations = noticed(installed(instrument))
    *without, _allocations = noticed(installed())
    assert with_it == without
    assert len(instrument.found) > 5


def test_an_exotic_tensor_does_not_end_the_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise NotImplementedError("no such kernel")

    monkeypatch.setattr("agviz.measure.elements._of_chunk", broken)
    found = measured(torch.ones(100))
    assert (found.unknown, found.numbers, found.shape) == ("NotImplementedError", 0, (100,))


def test_a_gradient_whose_memory_was_given_back_is_not_looked_at() -> None:
    tensor = torch.ones(100)
    tensor.untyped_storage().resize_(0)
    found = measured(tensor)
    assert (found.unknown, found.shape) == ("its memory was given back", (100,))
    assert health_of(tensor) == found


@pytest.mark.parametrize("begin", [0, 600_000])
def test_so_is_a_view_of_it_though_its_like_was_looked_at(begin: int) -> None:
    whole = torch.ones(1_200_000)
    view = whole[begin:]
    assert health_of(view).numbers == len(view)
    whole.untyped_storage().resize_(0)
    assert health_of(view).unknown == "its memory was given back"


@pytest.mark.parametrize("seed", range(5))
def test_measured_at_once_is_as_measured(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        tensor = random_tensor(rng)
        assert repr(health_of(tensor)) == repr(measured(tensor))


@pytest.mark.parametrize("seed", range(5))
def test_an_expanded_gradient_measured_at_once_is_as_measured(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        sizes = [rng.choice((1, 2, 3, 7)) for _ in range(rng.randrange(1, 5))]
        few = [size if rng.random() < 0.4 else 1 for size in sizes]
        begin = rng.choice((0, 3))
        whole = torch.randn(math.prod(few) + begin, dtype=rng.choice(FLOATS))
        whole[begin] = rng.choice((*SPECIAL, 1.0, 1e-30))
        tensor = whole[begin:].view(few).expand(sizes)
        assert repr(health_of(tensor)) == repr(measured(tensor))
        whole.untyped_storage().resize_(0)
        assert health_of(tensor).unknown == "its memory was given back"


@pytest.mark.skipif(not kernel.is_built(), reason="no C compiler was there")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_changes_no_digit(dtype: torch.dtype) -> None:
    tensor = torch.randn(1_300_001, dtype=dtype)
    before = torch.get_num_threads()
    found = set()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.add(measured(tensor))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_symbolic_sizes_are_not_known_and_nothing_is_asked_of_them() -> None:
    """Torch.compile traces a backward with them; an answer would become a guard of its code."""
    from torch.fx.experimental.proxy_tensor import make_fx

    found: list[Any] = []

    def look(x: Any) -> Tensor:
        found.append((type(x.numel()), health_of(x), held_bytes(x), x.fake_mode.shape_env.guards))
        return x * 2  # type: ignore[no-any-return]

    make_fx(look, tracing_mode="symbolic")(torch.ones(3, 5))
    ((size, seen, nbytes, guards),) = found
    assert size is torch.SymInt
    assert hash(seen.tensor_type)
    assert (seen.numel, seen.nbytes, nbytes) == (0, 0, 0)
    assert not guards


class _Timed(Instrument):
    """Keeps all events of an engine that measures."""

    measurer = Measuring

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def any_event(self, event: events.Event, _live: Live) -> None:
        self.seen.append(event)

    def gradient_measured(self, _event: Any, _live: Live) -> None:
        """Without which nothing is measured."""


@pytest.mark.parametrize("around", [installed, observed])
def test_measuring_is_not_part_of_a_nodes_time(
    around: Callable[..., AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node ends when its outputs are there, and is measured after that."""
    slept = 250_000_000  # ns: longer than a busy machine stops a node

    def slow(gradient: Tensor) -> Any:
        time.sleep(slept / 1e9)
        return health.found_at_once(gradient)

    monkeypatch.setattr("agviz.measure.measuring.found_at_once", slow)
    instrument = _Timed()
    with around(instrument):
        (torch.ones(3, requires_grad=True) * 2).exp().sum().backward()
    begun = {e.node: e.time_ns for e in instrument.seen if isinstance(e, events.NodeStarted)}
    ended = {e.node: e.time_ns for e in instrument.seen if isinstance(e, events.NodeFinished)}
    assert len(ended) == 4
    assert all(ended[node] - begun[node] < slept for node in ended)
    times = [event.time_ns for event in instrument.seen]
    assert times == sorted(times)
    assert times[-1] - times[0] > slept
