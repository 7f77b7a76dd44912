"""Hooks of every kind: when they run, what they see, what they may return, how they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

from tests.engine.builders import (
    Log,
    Multiply,
    Swallow,
    apply,
    custom,
    engine,
    leaf,
    node_of,
    throw,
)
from tests.engine.oracle import as_native, assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

# -- order ------------------------------------------------------------------------------------


@as_native
def test_order_on_a_generated_node() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    y.register_hook(log.hook("tensor"))
    y.retain_grad()
    y.register_hook(log.hook("tensor, doubling", lambda g: g * 2))
    node = node_of(y)
    node.register_prehook(log.hook("pre"))
    node.register_prehook(log.hook("pre, adding", lambda g: (g[0] + 1,)))
    node.register_hook(log.hook("post, tripling", lambda gi, _: (gi[0] * 3,)))
    node.register_hook(log.hook("post"))
    y.sum().backward()
    return [x.grad, y.grad, log.entries]


@as_native
def test_order_on_a_leaf() -> Any:
    log = Log()
    x = leaf(3)
    node = node_of(x)
    node.register_hook(log.hook("post"))
    node.register_prehook(log.hook("pre, doubling", lambda g: (g[0] * 2,)))
    x.register_post_accumulate_grad_hook(lambda p: log.note("post accumulate", p.grad))
    x.register_hook(log.hook("tensor, adding", lambda g: g + 1))
    x.exp().sum().backward()
    return [x.grad, log.entries]


@as_native
def test_order_on_a_custom_function() -> Any:
    log = Log()
    x, w = leaf(3), leaf(3)
    product, total = apply(Multiply, x, w)
    product.register_hook(log.hook("product"))
    total.register_hook(log.hook("total, doubling", lambda g: g * 2))
    product.retain_grad()
    total.retain_grad()
    node = node_of(product)
    node.register_prehook(log.hook("pre", lambda g: (g[0] * 2, g[1])))
    node.register_hook(log.hook("post", lambda gi, _: (gi[0] + 1, gi[1])))
    (product * total).sum().backward()
    return [x.grad, w.grad, product.grad, total.grad, log.entries]


@as_native
def test_hooks_of_outputs_that_nobody_used() -> Any:
    log = Log()
    x, w = leaf(3), leaf(3)
    product, total = apply(Multiply, x, w)
    y = leaf(4, 3)
    rows = y.unbind(0)
    for name, tensor in [("product", product), ("total", total), ("0", rows[0]), ("2", rows[2])]:
        tensor.register_hook(log.hook(name))
        tensor.retain_grad()
    for node in (node_of(product), node_of(rows[0])):
        node.register_prehook(log.hook("pre"))
        node.register_hook(log.hook("post"))
    (total.sum() + rows[1].sum()).backward()
    return [x.grad, y.grad, product.grad, total.grad, rows[0].grad, rows[2].grad, log.entries]


@as_native
def test_retain_grad_keeps_what_the_hooks_before_and_after_it_made() -> Any:
    x = leaf(3)
    y = x.exp()
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    return [x.grad, y.grad]


@as_native
def test_hooks_stay_with_the_gradient_of_a_tensor_changed_in_place() -> Any:
    x = leaf(3)
    y = x * 5
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.mul_(3)
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    return [x.grad, y.grad]


@as_native
def test_hooks_on_a_base_and_on_its_view() -> Any:
    log = Log()
    x = leaf(3, 3)
    base = x * 5
    view = base[0]
    base.register_hook(log.hook("before"))
    view.mul_(3)
    view.register_hook(log.hook("view", lambda g: g + 1))
    base.register_hook(log.hook("after", lambda g: g * 2))
    base.retain_grad()
    view.retain_grad()
    node = node_of(base)
    node.register_prehook(log.hook("pre"))
    node.register_hook(log.hook("post"))
    (base.sum() + view.sum()).backward()
    return [x.grad, base.grad, view.grad, log.entries]


@as_native
def test_gradient_mode_in_every_kind_of_hook() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()

    def note(*_: Any) -> None:
        log.note(torch.is_grad_enabled())

    y.register_hook(note)
    node_of(y).register_prehook(note)
    node_of(y).register_hook(note)
    x.register_hook(note)
    x.register_post_accumulate_grad_hook(note)
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x, create_graph=True)
    return log.entries


@as_native
def test_current_node_and_graph_task_in_every_kind_of_hook() -> Any:
    log = Log()
    x = leaf(3)

    def note(*_: Any) -> None:
        node = cast("Any", torch._C._current_autograd_node())
        log.note(None if node is None else node.name(), torch._C._current_graph_task_id() >= 0)

    def note_and_pass(_: Any, gradient: Tensor) -> Tensor:
        note()
        return gradient

    y = x.exp()
    y.register_hook(note)
    node_of(y).register_prehook(note)
    node_of(y).register_hook(note)
    x.register_hook(note)
    x.register_post_accumulate_grad_hook(note)
    z = custom(note_and_pass)(y)
    z.register_hook(lambda _: engine().queue_callback(note))
    z.sum().backward()
    note()
    return log.entries


# -- undefined gradients ----------------------------------------------------------------------


@as_native
def test_undefined_gradients_reach_every_hook_as_none() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    for name, tensor in [("x", x), ("y", y)]:
        tensor.register_hook(log.hook(name))
        node_of(tensor).register_prehook(log.hook(f"{name} pre"))
        node_of(tensor).register_hook(log.hook(f"{name} post"))
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda p: log.note("post accumulate", p.grad))
    apply(Swallow, y).sum().backward()
    return [x.grad, y.grad, log.entries]


class _TakesUndefined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


@as_native
def test_undefined_gradients_reach_the_hooks_of_a_custom_function() -> Any:
    log = Log()
    x = leaf(3)
    first, second = apply(_TakesUndefined, apply(Multiply, x, x)[0])
    first.register_hook(log.hook("first"))
    second.register_hook(log.hook("second"))
    node_of(first).register_prehook(log.hook("pre"))
    node_of(first).register_hook(log.hook("post"))
    x.register_hook(log.hook("x"))
    apply(Swallow, second).sum().backward()
    return [x.grad, log.entries]


@as_native
def test_undefined_gradients_in_grad() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    y.register_hook(log.hook("y"))
    x.register_hook(log.hook("x"))
    y.retain_grad()
    found = torch.autograd.grad(apply(Swallow, y).sum(), [x, y], allow_unused=True)
    return [found, y.grad, log.entries]


# -- removing and adding while running --------------------------------------------------------


def _remove_another(register: str, of: str) -> Callable[[], Any]:
    def program() -> Any:
        log = Log()
        x = leaf(3)
        y = apply(Multiply, x, x)[0] if of == "custom" else x.exp()
        target = {"tensor": y, "leaf": x}.get(of) if register == "register_hook" else None
        target = target if target is not None else node_of(x if of == "leaf" else y)

        def first(*_: Any) -> None:
            log.note("first")
            own.remove()
            other.remove()

        own = getattr(target, register)(first)
        other = getattr(target, register)(log.hook("removed"))
        getattr(target, register)(log.hook("last"))
        y.sum().backward(retain_graph=True)
        log.note("again")
        y.sum().backward()
        return [x.grad, log.entries]

    return program


@pytest.mark.parametrize("of", ["tensor", "node", "leaf", "custom"])
@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_a_hook_removes_itself_and_the_next_one(register: str, of: str) -> None:
    assert assert_same(_remove_another(register, of)).error is None


@as_native
def test_a_post_accumulate_hook_removes_the_next_one() -> Any:
    log = Log()
    x = leaf(3)

    def first(_: Tensor) -> None:
        log.note("first")
        other.remove()

    x.register_post_accumulate_grad_hook(first)
    other = x.register_post_accumulate_grad_hook(lambda _: log.note("removed"))
    for _ in range(2):
        x.exp().sum().backward()
    return [x.grad, log.entries]


@as_native
def test_hooks_added_by_a_hook_of_the_same_node() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()

    def add(*_: Any) -> None:
        log.note("adding")
        y.register_hook(log.hook("new tensor hook"))
        node_of(y).register_prehook(log.hook("new pre"))
        node_of(y).register_hook(log.hook("new post"))

    y.register_hook(add)
    y.sum().backward(retain_graph=True)
    log.note("again")
    y.sum().backward()
    return [x.grad, log.entries]


@as_native
def test_hooks_added_by_a_hook_further_up() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    z = y.sin()

    def add(_: Tensor) -> None:
        y.register_hook(log.hook("y"))
        y.retain_grad()
        x.register_hook(log.hook("x"))
        x.register_post_accumulate_grad_hook(lambda p: log.note("post", p.grad))

    z.register_hook(add)
    z.sum().backward()
    return [x.grad, y.grad, log.entries]


# -- post-accumulate-grad hooks ---------------------------------------------------------------


@as_native
def test_post_accumulate_hook_steps_an_optimizer() -> Any:
    model = nn.Linear(3, 3)
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def step(_: Tensor, optimizer: torch.optim.SGD = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(torch.randn(2, 3)).sum().backward()
    return [p.detach() for p in model.parameters()] + [p.grad for p in model.parameters()]


@as_native
def test_post_accumulate_hook_takes_the_gradient_away() -> Any:
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    x.exp().sum().backward()
    return [x.grad]


# -- multi-grad hooks -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("of", ["leaves", "others"])
def test_multi_grad_hook(mode: Any, of: str) -> None:
    def program() -> Any:
        log = Log()
        leaves = [leaf(3) for _ in range(4)]
        tensors = leaves if of == "leaves" else [x.exp() for x in leaves]
        handle = register_multi_grad_hook(tensors, log.hook("called"), mode=mode)
        (tensors[0] * tensors[1]).sum().backward(retain_graph=True)
        sum(t.sum() for t in tensors).backward(retain_graph=True)  # type: ignore[union-attr]
        torch.autograd.backward((tensors[0] * tensors[1]).sum(), inputs=[tensors[0]])
        handle.remove()
        tensors[2].exp().sum().backward()
        return [*(x.grad for x in leaves), log.entries]

    assert assert_same(program).error is None


@as_native
def test_multi_grad_hook_does_not_count_a_single_root() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    z = y.sum()
    register_multi_grad_hook([z, y, z], log.hook("called"))
    z.backward(retain_graph=True)
    torch.autograd.grad(z, y, retain_graph=True)
    torch.autograd.backward([z, y], [None, torch.ones(3)])
    return log.entries


@as_native
def test_multi_grad_hook_on_a_leaf_that_grad_does_not_want() -> Any:
    log = Log()
    x, w = leaf(3), leaf(3)
    register_multi_grad_hook([x], log.hook("called"))
    found = torch.autograd.grad(x, w, torch.ones(3), allow_unused=True)
    return [found, log.entries]


@as_native(raises=RuntimeError)
def test_multi_grad_hook_on_a_leaf_that_grad_captures() -> Any:
    x, w = leaf(3), leaf(3)
    register_multi_grad_hook([x, w], lambda _: None)
    return torch.autograd.grad((x * w).sum(), x)


@as_native(raises=KeyError)
def test_multi_grad_hook_that_raises() -> Any:
    x, w = leaf(3), leaf(3)
    register_multi_grad_hook([x, w], lambda _: throw(KeyError("multi")))
    (x * w).sum().backward()


# -- captures of grad() -----------------------------------------------------------------------


@as_native
def test_grad_calls_tensor_hooks_only() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    for name, tensor in [("x", x), ("y", y)]:
        tensor.register_hook(log.hook(f"{name} tensor, doubling", lambda g: g * 2))
        node_of(tensor).register_prehook(log.hook(f"{name} pre, tripling", lambda g: (g[0] * 3,)))
        node_of(tensor).register_hook(log.hook(f"{name} post"))
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda _: log.note("post accumulate"))
    z = y.sin().sum()
    results: list[Any] = []
    for inputs in ([y], [x], [y, x], [x, y, y]):
        results += torch.autograd.grad(z, inputs, retain_graph=True)
        results.append(None if y.grad is None else y.grad.clone())
        log.note("next")
    torch.autograd.backward(z, inputs=[y], retain_graph=True)
    torch.autograd.backward(z, inputs=[x])
    return [*results, x.grad, y.grad, log.entries]


@as_native
def test_grad_captures_at_a_custom_function() -> Any:
    log = Log()
    x, w = leaf(3), leaf(3)
    product, total = apply(Multiply, x, w)
    product.register_hook(log.hook("product", lambda g: None if g is None else g * 2))
    total.register_hook(log.hook("total"))
    product.retain_grad()
    total.retain_grad()
    node_of(product).register_prehook(log.hook("pre"))
    node_of(product).register_hook(log.hook("post"))
    loss = (product * total).sum()
    results: list[Any] = []
    for root, inputs in [
        (loss, [product, total]),
        (loss, [total, x]),
        (total.sum(), [product, total, x]),
    ]:
        results += torch.autograd.grad(root, inputs, retain_graph=True, allow_unused=True)
        results += [product.grad, total.grad]
        log.note("next")
    return [*results, log.entries]


@as_native
def test_grad_captures_outputs_that_nobody_used() -> Any:
    log = Log()
    x = leaf(4, 3)
    rows = x.unbind(0)
    for name, row in zip("abcd", rows, strict=True):
        row.register_hook(log.hook(name))
        row.retain_grad()
    found = torch.autograd.grad(rows[1].sum(), rows[:3], allow_unused=True)
    return [found, *(row.grad for row in rows), log.entries]


# -- module hooks -----------------------------------------------------------------------------


@as_native
def test_full_backward_hooks_of_modules() -> Any:
    log = Log()
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    model[0].register_full_backward_hook(lambda _, gi, go: log.note("full", gi, go))
    model[1].register_full_backward_hook(lambda _, gi, __: (cast("Any", gi)[0] * 3,))
    model[2].register_full_backward_pre_hook(lambda _, go: (cast("Any", go)[0] * 2,))
    x = leaf(2, 3)
    model(x).sum().backward()
    return [x.grad, *(p.grad for p in model.parameters()), log.entries]


# -- what hooks may not return, and exceptions ------------------------------------------------


class _OfTwo(Exception):  # noqa: N818 - a name of its own
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


def _with_cause() -> None:
    try:
        throw(ZeroDivisionError("inner"))
    except ZeroDivisionError as error:
        raise KeyError("outer") from error


def _with_context() -> None:
    try:
        throw(ZeroDivisionError("inner"))
    except ZeroDivisionError:
        raise KeyError("outer") from None


RETURNS: dict[str, Callable[[], Any]] = {
    "wrong shape": lambda: torch.ones(4),
    "wrong dtype": lambda: torch.ones(3, dtype=torch.float64),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "wrong device": lambda: torch.ones(3, device="meta"),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "parameter": lambda: nn.Parameter(torch.ones(3)),
    "text": lambda: "a",
    "number": lambda: 1,
    "list": lambda: [torch.ones(3)],
    "tuple": lambda: (torch.ones(3),),
    "tuple of wrong shape": lambda: (torch.ones(4),),
    "tuple of wrong dtype": lambda: (torch.ones(3, dtype=torch.float64),),
    "tuple of complex": lambda: (torch.ones(3, dtype=torch.complex64),),
    "tuple of None": lambda: (None,),
    "tuple of two None": lambda: (None, None),
    "tuple of two": lambda: (torch.ones(3), torch.ones(3)),
    "tuple of text": lambda: ("a",),
    "empty tuple": lambda: (),
    "error": lambda: throw(ValueError("in a hook")),
    "error with cause": _with_cause,
    "error with context": _with_context,
    "error of two arguments": lambda: throw(_OfTwo(1, 2)),
    "stop iteration": lambda: throw(StopIteration(5)),
    "keyboard interrupt": lambda: throw(KeyboardInterrupt()),
    "system exit": lambda: throw(SystemExit(3)),
}


def _register(place: str, hook: Callable[..., Any]) -> Callable[[], Any]:
    """Register ``hook`` at ``place`` of a new graph; gives what runs the backward."""
    x = leaf(3)
    y = apply(Multiply, x, x)[0] if place.startswith("custom") else x.exp()
    where, kind = place.removeprefix("custom ").split()
    tensor = x if where == "leaf" else y
    if kind == "tensor":
        tensor.register_hook(hook)
    elif kind == "pre":
        node_of(tensor).register_prehook(hook)
    elif kind == "post":
        node_of(tensor).register_hook(hook)
    elif kind == "retained":
        tensor.register_hook(hook)
        tensor.retain_grad()
    elif kind == "accumulated":
        tensor.register_post_accumulate_grad_hook(hook)
    elif kind == "captured":
        tensor.register_hook(hook)
        return lambda: torch.autograd.grad(y.sum(), tensor)

    def run() -> Any:
        y.sum().backward()
        return [x.grad]

    return run


PLACES = [
    "node tensor",
    "node retained",
    "node captured",
    "node pre",
    "node post",
    "leaf tensor",
    "leaf captured",
    "leaf pre",
    "leaf post",
    "leaf accumulated",
    "custom node tensor",
    "custom node pre",
    "custom node post",
]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("place", PLACES)
def test_what_a_hook_returns_or_raises(place: str, device_policy: Any) -> None:
    for returned in RETURNS.values():

        def program(returned: Callable[[], Any] = returned) -> Any:
            def hook(*_: Any) -> Any:
                return returned()

            return _register(place, hook)()

        assert_same(program, device_policy=device_policy, order=device_policy is None)


class _Undefined(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        return None


@as_native
def test_hooks_of_a_node_that_is_reached_again_while_it_runs() -> Any:
    """Its gradients are undefined, so that its hooks are called from here."""
    log = Log()
    running: list[Tensor] = []

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(_ctx: Any, *gradients: Any) -> Any:
            if len(running) < 3:
                running.append(end)
                torch.autograd.grad(end, x, retain_graph=True, allow_unused=True)
            return gradients[0]

    x = leaf(3)
    y = apply(Again, x)
    y.register_hook(lambda gradient: log.note("tensor hook", gradient))
    node_of(y).register_prehook(lambda gradients: log.note("pre-hook", gradients))
    end = apply(_Undefined, y).sum()
    end.backward(retain_graph=True)
    return log.entries


@pytest.mark.parametrize("before", [False, True])
def test_retain_grad_where_no_gradient_comes(before: bool) -> None:
    def program() -> Any:
        x = leaf(3)
        y = custom(lambda _, gradient: gradient)(x)
        y.retain_grad()
        if before:
            y.sum().backward(retain_graph=True)
        apply(_Undefined, y).sum().backward()
        return [y.grad, x.grad]

    assert assert_same(program).error is None


@pytest.mark.parametrize("layout", ["same", "other"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_post_hook_of_a_leaf_whose_gradient_the_program_holds(number: int, layout: str) -> None:
    """What the hook sees must not change when the leaf's ``.grad`` does."""

    def program() -> Any:
        x = leaf(2, 3)
        node = get_gradient_edge(x).node
        held = torch.ones(2, 3) if layout == "same" else torch.ones(3, 2).t()
        seen: list[Any] = []

        def hook(_outputs: Any, gradients: Any) -> None:
            cast("Tensor", x.grad).add_(1)
            seen.append([gradient.clone() for gradient in gradients])

        for _ in range(number):
            node.register_hook(hook)
        x.backward(held)
        return [seen, held, x.grad]

    assert assert_same(program).error is None
