"""What stands beside the engine: checkpointing, functorch, odd layouts, subclasses, compilers."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import subprocess
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, func, nn
from torch._subclasses import FakeTensorMode
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import forward_ad
from torch.autograd import functional as autograd_functional
from torch.autograd.function import once_differentiable
from torch.autograd.grad_mode import _force_original_view_tracking
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live
from agviz_engine.releases import is_grad_layout_enforced
from tests.engine.builders import Log, Multiply, apply, custom, engine, leaf, node_of, throw
from tests.engine.oracle import as_native, assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy

# -- checkpointing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner"), itertools.product(["reentrant", "not reentrant"], repeat=2)
)
def test_checkpoint_inside_checkpoint(
    outer: str, inner: str, device_policy: DevicePolicy | None
) -> None:
    def program() -> Any:
        first, second = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

        def body(x: Tensor) -> Tensor:
            h = checkpoint(second, first(x), use_reentrant=inner == "reentrant")
            return cast("Tensor", h).tanh()

        x = leaf(2, 3)
        checkpoint(body, x, use_reentrant=outer == "reentrant").sum().backward()
        return [x.grad, *(p.grad for m in (first, second) for p in m.parameters())]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


@pytest.mark.parametrize("call", ["grad", "inputs"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_under_grad(call: str, reentrant: bool) -> None:
    def program() -> Any:
        x = leaf(3)
        y = checkpoint(lambda a: a.sin().exp(), x, use_reentrant=reentrant).sum()
        if call == "inputs":
            y.backward(inputs=[x])
            return [x.grad]
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        slope.sum().backward()
        return [slope, x.grad]

    assert (assert_same(program).error is None) != reentrant


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_a_second_time(reentrant: bool, retain: bool) -> None:
    def program() -> Any:
        log = Log()
        x = leaf(3)

        def body(a: Tensor) -> Tensor:
            log.note("forward")
            return a.sin().exp()

        y = checkpoint(body, x, use_reentrant=reentrant).sum()
        y.backward(retain_graph=retain)
        y.backward()
        return [x.grad, log.entries]

    assert (assert_same(program).error is None) == retain


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("how", ["raises", "saves less"])
def test_checkpoint_whose_second_forward_differs(how: str, reentrant: bool) -> None:
    def program() -> Any:
        x, calls = leaf(3), []

        def body(a: Tensor) -> Tensor:
            calls.append(1)
            if len(calls) == 1:
                return a.sin().exp()
            return throw(ValueError("second forward")) if how == "raises" else a.sin()

        checkpoint(body, x, use_reentrant=reentrant).sum().backward()
        return [x.grad]

    assert_same(program)


@pytest.mark.parametrize("reentrant", [True, False])
def test_sequential_checkpoint_under_autocast(reentrant: bool) -> None:
    def program() -> Any:
        model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
        x = leaf(2, 3)
        with torch.autocast("cpu", torch.bfloat16):
            y = checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        y.float().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    assert assert_same(program).error is None


@as_native
def test_selective_checkpoint() -> Any:
    def policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        if operator == torch.ops.aten.sin.default:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    x = leaf(3)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    body: Any = lambda a: a.sin().exp().cos()  # noqa: E731 - a body is a body
    checkpoint(body, x, use_reentrant=False, context_fn=contexts).sum().backward()
    return [x.grad]


@as_native
def test_hooks_and_callbacks_inside_checkpoints() -> Any:
    log = Log()
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda p: log.note("post", p.grad))

    def body(a: Tensor) -> Tensor:
        b = a.sin() * x
        if b.requires_grad:
            b.register_hook(log.hook("hook"))
            b.register_hook(lambda _: engine().queue_callback(lambda: log.note("callback")))
        return b.exp()

    y = checkpoint(body, x, use_reentrant=True)
    z = checkpoint(body, y, use_reentrant=False)
    z.register_hook(lambda _: engine().queue_callback(lambda: log.note("outer callback")))
    z.sum().backward()
    return [x.grad, log.entries]


@as_native
def test_where_checkpointing_is_valid() -> Any:
    """Within the nodes of a pass with ``inputs=`` it is not, around them it is."""
    log = Log()
    x = leaf(3)

    def note(place: str) -> None:
        log.note(place, engine().is_checkpoint_valid())

    @torch.enable_grad()
    def passes() -> None:
        y = x.exp()
        z = y.sin()
        y.register_hook(lambda _: note("hook of a captured tensor"))
        z.register_hook(lambda _: note("hook"))

        def nested(_: Tensor) -> None:
            note("before")
            with torch.enable_grad():
                w = leaf(2)
                v = w * 2
                v.register_hook(lambda _: note("nested"))
                torch.autograd.grad(v.sum(), w)
            note("after")
            engine().queue_callback(lambda: note("callback"))

        z.register_hook(nested)
        torch.autograd.grad(z.sum(), y)
        note("outside")

    passes()
    u = x.cos()
    u.register_hook(lambda _: passes())
    torch.autograd.grad(u.sum(), u)
    torch.autograd.grad((x.cos() * 2).sum(), x)
    return log.entries


@as_native
def test_a_checkpoint_in_the_hook_of_a_captured_tensor() -> Any:
    log = Log()
    x = leaf(3)
    y = checkpoint(torch.sin, x, use_reentrant=True)
    u = x * 2

    def run(_: Tensor) -> None:
        with torch.enable_grad():
            y.sum().backward()
        log.note("ran", x.grad)

    u.register_hook(run)
    found = torch.autograd.grad(u.exp().sum(), u)
    return [found, log.entries]


@as_native
def test_multithreading_as_what_runs_in_a_pass_sees_it() -> Any:
    log = Log()

    def note(place: str) -> None:
        log.note(place, torch._C._is_multithreading_enabled())

    def doubled(place: str) -> Callable[[Any, Tensor], Tensor]:
        def backward(_: Any, gradient: Tensor) -> Tensor:
            note(place)
            return gradient * 2

        return backward

    x = leaf(3)
    y = custom(doubled("Function"))(x)
    y.register_hook(lambda _: note("hook"))
    y.grad_fn.register_prehook(lambda _: note("pre-hook"))
    y.grad_fn.register_hook(lambda *_: note("post-hook"))
    z = checkpoint(custom(doubled("inner")), y, use_reentrant=True)
    x.register_post_accumulate_grad_hook(lambda _: note("leaf"))
    for enabled in (True, False):
        with torch.autograd.set_multithreading_enabled(enabled):
            z.sum().backward(retain_graph=True)
    return [x.grad, log.entries]


# -- final callbacks --------------------------------------------------------------------------


@as_native
def test_callbacks_that_add_callbacks() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()

    def queue(name: str, *more: str) -> None:
        def callback() -> None:
            log.note(name, x.grad, torch.is_grad_enabled(), engine().is_checkpoint_valid())
            if more:
                queue(*more)
                queue("beside " + more[0])

        engine().queue_callback(callback)

    y.register_hook(lambda _: queue("first", "second", "third"))
    y.register_hook(lambda _: queue("fourth"))
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x, create_graph=True)
    return [x.grad, log.entries]


@as_native
def test_a_callback_that_raises() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    y.register_hook(lambda _: engine().queue_callback(lambda: throw(ValueError("callback"))))
    y.register_hook(lambda _: engine().queue_callback(lambda: log.note("next")))
    try:
        y.sum().backward()
    except ValueError as error:
        log.note(str(error))
    return [x.grad, log.entries]


@as_native
def test_a_callback_that_runs_a_backward() -> Any:
    x, w = leaf(3), leaf(3)
    y = x.exp()

    def callback() -> None:
        with torch.enable_grad():
            (w * 2).sum().backward()

    y.register_hook(lambda _: engine().queue_callback(callback))
    y.sum().backward()
    return [x.grad, w.grad]


@as_native
def test_callbacks_of_a_reentrant_backward_run_at_its_end() -> Any:
    log = Log()

    def reenter(_: Any, gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            y = leaf(3).exp()
            y.register_hook(lambda _: engine().queue_callback(lambda: log.note("inner")))
            y.sum().backward()
        log.note("inner is done")
        engine().queue_callback(lambda: log.note("outer"))
        return gradient

    custom(reenter)(leaf(3).exp()).sum().backward()
    log.note("outer is done")
    return log.entries


@as_native(raises=TypeError)
def test_a_callback_that_is_none() -> None:
    y = leaf(3).exp()
    y.register_hook(lambda _: engine().queue_callback(3))
    y.sum().backward()


# -- functorch --------------------------------------------------------------------------------


class _Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * gradients[0] * x


def _loss(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def _differentiated_inside(x: Tensor) -> Tensor:
    y = x.sin()
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return (slope * x).sum()


def _vjp(function: Callable[..., Any]) -> Any:
    output, pull = cast("Any", func.vjp(function, torch.randn(3)))
    return [output, pull(torch.ones(3))]


def _ensemble() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return cast("Tensor", func.functional_call(model, parameters, (x,)).pow(2).sum())

    over_samples: Any = func.vmap(func.grad(loss), in_dims=(None, 0))
    return list(over_samples(parameters, torch.randn(5, 2, 3)).values())


def _outside() -> Any:
    x = leaf(3)
    func.grad(lambda z: (z.sin() * x * z).sum())(x * 2).sum().backward()
    return [x.grad]


def _batched_over_a_graph() -> Any:
    x = leaf(3)
    y = x.sin() * x
    return [func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(3))]


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "grad": lambda: [func.grad(_loss)(torch.randn(3))],
    "grad of grad": lambda: [func.grad(func.grad(_loss))(torch.randn(()))],
    "grad of the identity": lambda: [func.grad(lambda x: x)(torch.randn(()))],
    "grad_and_value": lambda: func.grad_and_value(_loss)(torch.randn(3)),
    "vmap of grad": lambda: [func.vmap(func.grad(_loss))(torch.randn(4, 3))],
    "jacrev": lambda: [func.jacrev(lambda x: x.sin() * x.sum())(torch.randn(3))],
    "jacrev of jacrev": lambda: [func.jacrev(func.jacrev(torch.sin))(torch.randn(3))],
    "jacfwd of jacrev": lambda: [func.jacfwd(func.jacrev(torch.sin))(torch.randn(3))],
    "hessian": lambda: [func.hessian(_loss)(torch.randn(3))],
    "vjp": lambda: _vjp(torch.sin),
    "vjp of the identity": lambda: _vjp(lambda x: x),
    "linearize": lambda: [func.linearize(torch.sin, torch.randn(3))[1](torch.ones(3))],
    "ensemble": _ensemble,
    "gradient of what grad used": _outside,
    "autograd.grad inside grad": lambda: [func.grad(_differentiated_inside)(torch.randn(3))],
    "autograd.grad inside vmap": _batched_over_a_graph,
    "custom Function": lambda: [func.grad(lambda x: _square(x).sum())(torch.randn(3))],
    "custom Function under vmap": lambda: [
        func.vmap(func.grad(lambda x: _square(x).sum()))(torch.randn(4, 3))
    ],
    "custom Function under jacrev": lambda: [func.jacrev(_square)(torch.randn(3))],
}


def _square(x: Tensor) -> Tensor:
    return cast("Tensor", apply(_Square, x))


@pytest.fixture(scope="module")
def decompositions() -> None:
    """What forward mode needs is compiled when first used, which some releases warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")


@pytest.mark.usefixtures("decompositions")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_functorch(name: str, device_policy: DevicePolicy | None) -> None:
    ours = assert_same(TRANSFORMS[name], device_policy=device_policy, order=False)
    assert ours.error is None


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_functorch_hands_nothing_to_the_native_engine() -> None:
    class Delegations(Instrument):
        def delegated(self, event: events.Delegated, _live: Live) -> None:
            reasons.append(event.reason)

    reasons: list[str] = []
    with installed(Delegations()):
        for program in TRANSFORMS.values():
            program()
    assert reasons == []


def _product(x: Tensor, y: Tensor) -> Tensor:
    return (x.exp() * y).sum()


A, B = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1.5, 0.1, -0.7])
FUNCTIONALS: dict[str, Callable[[], Any]] = {
    "jacobian": lambda: autograd_functional.jacobian(torch.exp, A),
    "vectorized jacobian": lambda: autograd_functional.jacobian(torch.exp, A, vectorize=True),
    "hessian": lambda: autograd_functional.hessian(_product, (A, B)),
    "vectorized hessian": lambda: autograd_functional.hessian(_product, (A, B), vectorize=True),
    "vjp": lambda: autograd_functional.vjp(_product, (A, B)),
    "jvp": lambda: autograd_functional.jvp(_product, (A, B), (B, A)),
    "hvp": lambda: autograd_functional.hvp(_product, (A, B), (B, A)),
    "vhp": lambda: autograd_functional.vhp(_product, (A, B), (B, A)),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_autograd_functional(name: str) -> None:
    assert assert_same(lambda: [FUNCTIONALS[name]()]).error is None


@as_native
def test_gradcheck() -> Any:
    x = leaf(3, dtype=torch.float64)
    check = functools.partial(torch.autograd.gradcheck, lambda a: a.sin() * a, x)
    return [
        check(check_batched_grad=True, check_forward_ad=True),
        check(fast_mode=True),
        torch.autograd.gradgradcheck(lambda a: a.sin() * a, x),
    ]


@as_native
def test_forward_mode_over_reverse_mode() -> Any:
    with forward_ad.dual_level():
        x = leaf(3)
        dual = forward_ad.make_dual(x, torch.ones(3))
        (slope,) = torch.autograd.grad((dual.sin() * dual).sum(), dual)
        return list(forward_ad.unpack_dual(slope))


# -- layouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested(layout: torch.layout, device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        a, b = leaf(2, 3), leaf(4, 3)
        model = nn.Linear(3, 2)
        nested = torch.nested.as_nested_tensor([a, b], layout=layout)
        y = model(nested)
        y = y * y + y
        torch.nested.to_padded_tensor(y, 0.0).sum().backward()
        return [a.grad, b.grad, *(p.grad for p in model.parameters())]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


@pytest.mark.parametrize("gradient", ["nested", "of another shape", "dense"])
def test_nested_leaf(gradient: str) -> None:
    def program() -> Any:
        x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], requires_grad=True)
        rows = 5 if gradient == "of another shape" else 4
        parts = [torch.ones(2, 3), torch.ones(rows, 3)]
        (x * 2).backward(
            torch.ones(3) if gradient == "dense" else torch.nested.nested_tensor(parts)
        )
        return [x.grad]

    assert (assert_same(program).error is None) == (gradient == "nested")


def _jagged() -> Tensor:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    return nested.detach().requires_grad_()


LEAVES: dict[str, Callable[[], Tensor]] = {
    "dense": lambda: leaf(3),
    "jagged": _jagged,
    "sparse": lambda: torch.eye(3).to_sparse().requires_grad_(),
    "compressed sparse": lambda: torch.eye(3).to_sparse_csr().requires_grad_(),
    "mkldnn": lambda: torch.randn(3).to_mkldnn().requires_grad_(),
    "subclass": lambda: TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_(),
}


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("call", ["backward", "grad", "both roots"])
@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
def test_leaf_as_root(kind: str, call: str, device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        x = LEAVES[kind]()
        gradient = x.detach().clone()
        x.register_hook(lambda g: g + g)
        if call == "grad":
            return torch.autograd.grad(x, x, gradient)
        roots = [x, x * 2] if call == "both roots" else [x]
        torch.autograd.backward(roots, [gradient] * len(roots))
        return [x.grad]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


def test_threads_do_not_look_at_one_jagged_gradient_together() -> None:
    x = _jagged()
    gradient = x.detach().clone()
    x.register_hook(lambda g: g + g)
    with installed(device_policy=lambda _: 0):
        for _ in range(300):  # torch's sizes of a jagged tensor don't survive two threads
            (slope,) = torch.autograd.grad(x, x, gradient)
    assert torch.equal(slope.values(), (gradient + gradient).values())


def _embed(weight: Tensor, *rows: int) -> Tensor:
    return nn.functional.embedding(torch.tensor(rows), weight, sparse=True).sum()


@pytest.mark.parametrize("order", list(itertools.permutations(["sparse", "other", "dense"])))
@pytest.mark.parametrize("where", ["leaf", "other"])
@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
def test_sparse_and_dense_gradients_of_one_tensor(order: tuple[str, ...], where: str) -> None:
    def program() -> Any:
        parameter = leaf(5, 3)
        weight = parameter if where == "leaf" else parameter * 1
        rows = {"sparse": (1, 2), "other": (2, 3)}
        parts = [_embed(weight, *rows[o]) if o in rows else (weight * 2).sum() for o in order]
        torch.stack(parts).sum().backward()
        return [parameter.grad]

    assert assert_same(program).error is None


@as_native
def test_sparse_and_dense_gradients_over_several_steps() -> Any:
    weight = leaf(5, 3)
    results: list[Any] = []
    for step in range(6):
        loss = (weight * 2).sum() if step in {2, 4} else _embed(weight, step % 5, 1, 1)
        loss.backward()
        assert weight.grad is not None
        results.append(weight.grad.clone())
        if step == 3:
            weight.grad = None
    return results


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.filterwarnings("ignore:.*Sparse:UserWarning")
def test_sparse_leaves(layout: str) -> None:
    def program() -> Any:
        values = torch.eye(3) * 2
        sparse = getattr(values, "to_sparse" if layout == "coo" else f"to_sparse_{layout}")()
        sparse.requires_grad_()
        dense = leaf(3, 2)
        ((sparse @ dense).sum() + (sparse @ dense.exp()).sum()).backward()
        return [sparse.grad, dense.grad]

    assert_same(program)


@as_native
def test_mkldnn() -> Any:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch was built without mkldnn")
    x = torch.randn(2, 3).to_mkldnn().requires_grad_()
    y = torch.relu(x)
    ((y + y).to_dense() * 2).sum().backward()
    assert x.grad is not None
    return [x.grad.to_dense()]


@as_native
def test_complex_and_real() -> Any:
    x, r = leaf(3, dtype=torch.complex64), leaf(3)
    (x * r).exp().backward(torch.randn(3, dtype=torch.complex64))
    first = [x.grad, r.grad]
    torch.view_as_real(x.conj() * r).sum().backward()
    ((r.to(torch.complex64) * 2j).abs().sum() + (x.imag * r).sum()).backward()
    return [*first, x.grad, r.grad]


@as_native
def test_conjugate_and_negative_gradients() -> Any:
    x, y = (leaf(3, dtype=torch.complex64) for _ in range(2))
    x.conj().backward(torch.randn(3, dtype=torch.complex64))
    y.conj().imag.backward(torch.randn(3))
    return [x.grad, y.grad]


@as_native
def test_memory_formats_of_gradients() -> Any:
    convolution = cast("Any", nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last)
    images = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    convolution(images).sum().backward()
    leaves = [leaf(3, 4), torch.randn(4, 3).t().requires_grad_(), leaf(2, 3, 4), leaf(3)]
    leaves[0].sum().backward()
    (leaves[1] * 2).sum().backward()
    leaves[2].permute(2, 0, 1).exp().sum(0).sum().backward()
    shared = leaf(3)
    (leaves[3] + shared).backward(gradient := torch.ones(3))
    gradient.mul_(5)
    return [*(p.grad for p in convolution.parameters()), *(x.grad for x in leaves), shared.grad]


@as_native
def test_meta_and_fake_tensors() -> Any:
    results: list[Any] = []
    x = torch.randn(3, 4, device="meta", requires_grad=True)
    model = nn.Linear(4, 5, device="meta")
    (model(x).exp() + model(x)).sum().backward()
    results += [x.grad, model.weight.grad]
    with FakeTensorMode():
        y = torch.randn(3, 4, requires_grad=True)
        (y.exp() @ y.t()).sum().backward()
        assert y.grad is not None
        results += [type(y.grad).__name__, list(y.grad.shape)]
    return results


# -- views and in-place changes ---------------------------------------------------------------


@as_native
def test_views_changed_in_place() -> Any:
    x = leaf(4, 4)
    y = x.clone()
    y[1:3].view(-1).mul_(2)
    y[1:3][0].add_(leaf(4).detach())
    y.t()[2].neg_()
    y.diagonal().mul_(3)
    (y * x).sum().backward()
    return [x.grad]


@as_native
def test_copy_slices() -> Any:
    x, w = leaf(4, 4), leaf(4)
    y = x.clone()
    y[1].mul_(w)
    loss = y.pow(3).sum()
    results = [
        *torch.autograd.grad(loss, w, retain_graph=True),
        *torch.autograd.grad(loss, [x, y], retain_graph=True),
    ]
    slopes = torch.autograd.grad(loss, [x, w], create_graph=True)
    (slopes[0].sum() * slopes[1].sum()).backward()
    return [*results, *slopes, x.grad, w.grad]


class _TimesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, fails: bool) -> Tensor:
        ctx.mark_dirty(x)
        ctx.save_for_backward(w)
        ctx.fails = fails
        return x.mul_(w)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.fails:
            raise ValueError("inside CopySlices")
        (w,) = ctx.saved_tensors
        return gradients[0] * w, gradients[0], None


@pytest.mark.parametrize("fails", [False, True])
def test_copy_slices_of_a_custom_function(fails: bool, device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        x, w = leaf(4, 4), leaf(4)
        y = x.clone()
        apply(_TimesInPlace, y[1], w, fails)
        apply(_TimesInPlace, y[2:], w, False)
        y.exp().sum().backward()
        return [x.grad, w.grad]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert (ours.error is None) != fails


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.clone().split(2)[0].mul_(2),
        lambda x: x[1:].mul_(2),
        lambda x: apply(_TimesInPlace, x, torch.ones(4), False),
    ],
    ids=["one of several views", "of a leaf", "a leaf, custom"],
)
def test_changes_that_torch_refuses(change: Callable[[Tensor], Any]) -> None:
    assert assert_same(lambda: change(leaf(4, 4))).error is not None


# -- custom Functions -------------------------------------------------------------------------


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0]


class _Kinds(torch.autograd.Function):
    """Non-tensor and non-differentiable outputs, undefined gradients as they come."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int, Tensor, Tensor]:
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        ctx.set_materialize_grads(False)
        return x * y, 7, positive, x + y

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        first, _, _, last = gradients
        return last if first is None else first, first if last is None else last


@as_native
def test_once_differentiable() -> Any:
    x = leaf(3)
    (slope,) = torch.autograd.grad(apply(_Once, x).sum(), x, create_graph=True)
    results: list[Any] = [slope, slope.requires_grad]
    try:
        slope.sum().backward()
    except RuntimeError as error:
        results.append(str(error))
    return results


@as_native
def test_outputs_of_several_kinds() -> Any:
    x, w = leaf(3), leaf(3)
    product, number, positive, total = apply(_Kinds, x, w)
    product.sum().backward(retain_graph=True)
    first = [x.grad, w.grad]
    total.sum().backward()
    return [*first, number, positive, x.grad, w.grad]


@as_native
def test_setup_context() -> Any:
    x = leaf(3)
    (slope,) = torch.autograd.grad(_square(x).pow(2).sum(), x, create_graph=True)
    slope.sum().backward()
    return [slope, x.grad]


@as_native
def test_custom_function_under_autocast() -> Any:
    class Matmul(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> Any:
            x, w = ctx.saved_tensors
            return gradients[0] @ w.t(), x.t() @ gradients[0]

    x, w = leaf(2, 3), leaf(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        loss = apply(Matmul, x, w).float().sum()
    loss.backward()
    return [x.grad, w.grad]


# -- modes around a backward ------------------------------------------------------------------


def test_backward_under_autocast(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        log = Log()

        def backward(_: Any, gradient: Tensor) -> Tensor:
            enabled = torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))
            log.note(enabled, gradient @ torch.ones(3, 3))
            return gradient

        x = leaf(2, 3)
        with torch.autocast("cpu", torch.bfloat16):
            custom(backward)(x).sum().backward()
        custom(backward)(x).sum().backward()
        return [x.grad, log.entries]

    assert assert_same(program, device_policy=device_policy, order=False).error is None


GRAD_LAYOUT_POLICY = getattr(torch.autograd, "enforce_grad_layout_policy", None)
NO_GRAD_LAYOUT_POLICY = pytest.mark.skipif(
    GRAD_LAYOUT_POLICY is None, reason="this torch has no grad layout policy"
)


@pytest.mark.parametrize("enforced", [True, pytest.param(False, marks=NO_GRAD_LAYOUT_POLICY)])
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2)])
def test_layout_of_a_leaf_gradient(
    enforced: bool, order: tuple[int, int, int], device_policy: DevicePolicy | None
) -> None:
    def program() -> Any:
        x = torch.randn(2, 3, 4).permute(order).requires_grad_()
        y = torch.randn(x.shape)
        with GRAD_LAYOUT_POLICY(enforced) if GRAD_LAYOUT_POLICY else contextlib.nullcontext():
            (x * y).sum().backward()
            first = x.grad
            x.grad = None
            (x * y.permute(2, 1, 0).contiguous().permute(2, 1, 0)).sum().backward()
        return [first, x.grad]

    ours = assert_same(program, device_policy=device_policy)
    first = cast("Tensor", ours.tensors[0])
    assert first.is_contiguous() is not enforced


def test_autograd_state_of_the_caller(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        log = Log()

        def backward(_: Any, gradient: Tensor) -> Tensor:
            log.note(torch._C._is_fwd_grad_enabled(), torch._C._is_view_replay_enabled())
            log.note(is_grad_layout_enforced())
            return gradient * 2

        x = leaf(2, 3)
        with (
            forward_ad._set_fwd_grad_enabled(False),
            _force_original_view_tracking(True),
            GRAD_LAYOUT_POLICY(False) if GRAD_LAYOUT_POLICY else contextlib.nullcontext(),
        ):
            custom(backward)(x).sum().backward()
        custom(backward)(x).sum().backward()
        return [x.grad, log.entries]

    assert assert_same(program, device_policy=device_policy, order=False).error is None


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


def _double(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(2)


@pytest.mark.parametrize("mode", [_Operators, _Functions])
@pytest.mark.parametrize("call", ["backward", "grad", "double", "of a leaf"])
def test_modes_see_the_operations_of_native(
    mode: type[_Operators | _Functions], call: str, device_policy: DevicePolicy | None
) -> None:
    def program() -> Any:
        x, w = leaf(3), leaf(3)
        w.register_post_accumulate_grad_hook(_double)
        h = x.exp()
        h.register_hook(lambda g: g * 2)
        h.retain_grad()
        node_of(h).register_hook(lambda gi, _: (gi[0] + 1,))
        y = (apply(Multiply, h, w)[0] * w).sin() + x
        with mode() as seen:
            if call == "backward":
                y.sum().backward()
            elif call == "of a leaf":
                w.backward(x)
            else:
                torch.autograd.grad(y.sum(), [x, h], create_graph=call == "double")
        return [seen.names, x.grad, w.grad, h.grad]

    ours = assert_same(program, device_policy=device_policy, order=False)
    assert ours.error is None
    assert ours.tensors[0]


# -- subclasses -------------------------------------------------------------------------------


class _Plain(torch.Tensor):
    """A subclass without behaviour of its own."""


def test_wrapper_subclass(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        a = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
        b = leaf(3)
        y = (a * b).sin()
        z = y * y + y
        z.register_hook(lambda g: g * 2)
        found = torch.autograd.grad(z.sum(), [a, y], create_graph=True)
        z.sum().backward()
        return [*found, a.grad, b.grad]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


@as_native
def test_plain_subclass() -> Any:
    a = torch.randn(3).as_subclass(_Plain).requires_grad_()
    y = (a * 2).sin()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    p = nn.Parameter(torch.randn(3).as_subclass(_Plain))
    (p * 2).sum().backward()
    return [a.grad, p.grad, type(a.grad).__name__, type(p.grad).__name__]


# -- compilers and the profiler ---------------------------------------------------------------


@pytest.mark.slow_but_one_in(2)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_aot_autograd(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        compiled = torch.compile(model, backend="aot_eager")
        x = leaf(2, 3)
        compiled(x).sum().backward()
        compiled(x).exp().sum().backward()
        results: list[Any] = [x.grad, *(p.grad for p in model.parameters())]
        y = compiled(x).sum()
        y.backward()
        try:
            y.backward()
        except RuntimeError as error:
            results.append(str(error))
        return results

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript() -> None:
    class Body(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.sin() * x).sum()

    def program() -> Any:
        body = torch.jit.script(Body())
        x = leaf(3)
        for _ in range(4):
            body(x).backward()
        return [x.grad]

    assert assert_same(program, order=False).error is None


def test_leaf_as_root_in_the_profiler() -> None:
    def program() -> Any:
        x = leaf(3)
        with torch.profiler.profile(acc_events=True) as profile:
            x.backward(torch.ones(3))
        return [sorted(event.name for event in cast("Any", profile.events()))]

    assert_same(program)


def test_names_in_the_profiler() -> None:
    def program() -> Any:
        x = leaf(3)
        y = apply(Multiply, x.sin(), x)[0].sum()
        with torch.profiler.profile(acc_events=True) as profile:
            y.backward()
        names = [event.name for event in cast("Any", profile.events())]
        return [sorted(name for name in names if "Backward" in name or "evaluate" in name)]

    ours = assert_same(program)
    assert len(ours.tensors[0]) == 7


def test_while_another_thread_imports_compiled_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the first optimizer does; the module is there, and has nothing in it yet."""
    name = "torch._dynamo.compiled_autograd"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    x = torch.ones(2, requires_grad=True)
    with installed():
        x.exp().sum().backward()
    assert x.grad is not None


_INSTALLS = """
import sys
import torch
from torch.autograd import Variable
Native = type(Variable._execution_engine)
class Watched(Native):
    def run_backward(self, *args, **kwargs):
        print("ran")
        return super().run_backward(*args, **kwargs)
torch._C._ImperativeEngine = Watched
from agviz_engine import installed
with installed():
    print("installed")
    torch.ones(1, requires_grad=True).exp().backward()
"""


def test_to_install_runs_no_backward_of_torchs_own_engine() -> None:
    """Where there is an accelerator, no child that is forked after one can run another."""
    code = [sys.executable, "-c", _INSTALLS]
    said = subprocess.run(code, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "installed"
    assert "ran" in said  # or nothing was watched
