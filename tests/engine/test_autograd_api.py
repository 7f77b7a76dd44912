"""``backward`` and ``grad`` with every parameter."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

import agviz_engine
from agviz_engine import Instrument, events, installed
from tests.engine.builders import Log, Multiply, apply, custom, leaf, node_of
from tests.engine.oracle import as_native, assert_same, same_value

if TYPE_CHECKING:
    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live


def _graph() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Leaves x and w, y in between, z at the end."""
    x, w = leaf(3), leaf(3)
    y = x.exp() * w
    return x, w, y, (y * x).sin()


# -- every combination of flags ---------------------------------------------------------------

FLAGS = list(itertools.product([None, True, False], [True, False]))


@pytest.mark.parametrize(("retain", "create"), FLAGS)
@pytest.mark.parametrize("inputs", [None, "leaves", "both", "edges"])
def test_backward(retain: bool | None, create: bool, inputs: str | None) -> None:
    def program() -> Any:
        x, w, y, z = _graph()
        chosen: dict[Any, Any] = {
            None: None,
            "leaves": [x],
            "both": [x, y],
            "edges": [get_gradient_edge(w)],
        }
        torch.autograd.backward(
            z, torch.randn(3), retain_graph=retain, create_graph=create, inputs=chosen[inputs]
        )
        y.retain_grad()
        return [x.grad, w.grad, y.grad]

    assert assert_same(program).error is None


@pytest.mark.parametrize(("retain", "create"), FLAGS)
@pytest.mark.parametrize("allow_unused", [None, True, False])
@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_grad(
    retain: bool | None, create: bool, allow_unused: bool | None, materialize: bool, batched: bool
) -> None:
    def program() -> Any:
        x, w, y, z = _graph()
        results: list[Any] = []
        choices: list[list[Any]] = [[x, y], [w, leaf(2)], [get_gradient_edge(y), w]]
        for inputs in choices:
            try:
                results += torch.autograd.grad(
                    z,
                    inputs,
                    torch.randn(2, 3) if batched else torch.randn(3),
                    retain_graph=retain,
                    create_graph=create,
                    allow_unused=allow_unused,
                    is_grads_batched=batched,
                    materialize_grads=materialize,
                )
            except (RuntimeError, ValueError) as error:
                results.append(str(error))
        return results

    assert assert_same(program).error is None


# -- roots ------------------------------------------------------------------------------------


@as_native
def test_several_roots_of_which_some_meet() -> Any:
    x, w, y, z = _graph()
    torch.autograd.backward([z, y, z.sum(), x], [torch.randn(3), torch.randn(3), None, x.detach()])
    return [x.grad, w.grad]


@as_native
def test_edges_as_roots() -> Any:
    x, w, y, z = _graph()
    torch.autograd.backward(get_gradient_edge(z), torch.randn(3), retain_graph=True)
    found = torch.autograd.grad(
        [get_gradient_edge(y), get_gradient_edge(x)], [x, w], [torch.randn(3), torch.randn(3)]
    )
    return [x.grad, w.grad, *found]


@as_native
def test_edges_of_a_node_with_several_outputs() -> Any:
    x = leaf(3, 4)
    rows = x.unbind(0)
    products = apply(Multiply, x.exp(), x)
    edges = [get_gradient_edge(t) for t in (rows[2], products[1], rows[0])]
    gradients = [torch.randn(4), torch.randn(3, 4), torch.randn(4)]
    return torch.autograd.grad(edges, [x], gradients)


@as_native
def test_leaves_as_roots() -> Any:
    log = Log()
    x = leaf(3)
    x.register_hook(log.hook("x", lambda g: g * 2))
    gradient = torch.randn(3)
    found = torch.autograd.grad(x, x, gradient)
    x.backward(gradient)
    shares = x.grad is gradient, x.grad is not None and x.grad.data_ptr() == gradient.data_ptr()
    return [*found, x.grad, shares, log.entries]


@as_native
def test_the_output_is_the_input() -> Any:
    x, _, y, z = _graph()
    return torch.autograd.grad(z, [z, y, z, x], torch.randn(3))


@as_native
def test_empty_and_scalar_tensors() -> Any:
    empty, scalar = leaf(0, 3), torch.randn((), requires_grad=True)
    (empty * 2).exp().sum().backward()
    (scalar * 2).exp().backward()
    return [empty.grad, scalar.grad]


# -- inputs -----------------------------------------------------------------------------------


@as_native
def test_inputs_named_twice_and_out_of_reach() -> Any:
    x, w, y, z = _graph()
    other = leaf(2)
    torch.autograd.backward(z.sum(), inputs=[x, x, y, other], retain_graph=True)
    return [x.grad, w.grad, y.grad, other.grad, *torch.autograd.grad(z.sum(), [w, w, y, y])]


def _takes_inputs_in_a_dict() -> bool:
    x = leaf(2)
    try:
        torch.autograd.grad(x.sum(), cast("Any", {"x": x}))
    except RuntimeError:
        return False
    return True


@pytest.mark.skipif(not _takes_inputs_in_a_dict(), reason="this torch takes no inputs in a dict")
@as_native
def test_inputs_in_a_dict() -> Any:
    x, w, _, z = _graph()
    found: Any = torch.autograd.grad(z.sum(), {"x": x, "w": w})
    return [list(found), list(found.values())]


@as_native
def test_inputs_of_backward_leave_other_leaves_alone() -> Any:
    x, w, y, z = _graph()
    x.grad, w.grad = torch.ones(3), torch.ones(3)
    torch.autograd.backward(z.sum(), inputs=[y, w])
    return [x.grad, w.grad, y.grad]


@as_native
def test_an_input_changed_in_place_since() -> Any:
    x = leaf(3)
    y = x * 2
    before = get_gradient_edge(y)
    y.mul_(3)
    z = y.sum()
    return [torch.autograd.grad(z, [before], retain_graph=True), torch.autograd.grad(z, [y, x])]


@as_native
def test_an_input_whose_storage_was_swapped() -> Any:
    """``set_`` gives a leaf a new accumulator; the graph has the old one."""
    x = leaf(3)
    y = x.exp()
    with torch.no_grad():
        cast("Any", x).set_(torch.randn(3))
    return torch.autograd.grad(y.sum(), x, allow_unused=True, retain_graph=True) + (
        torch.autograd.grad((y * x).sum(), x)
    )


@as_native
def test_what_the_node_needs_to_compute() -> Any:
    """A node skips the outputs that nobody wants."""
    log = Log()
    x, w = leaf(3), leaf(3)
    y = x * w
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda gi, _: log.note([g is None for g in gi]))

    def backward(ctx: Any, gradient: Tensor) -> Any:
        log.note(list(ctx.needs_input_grad))
        return gradient, gradient

    z = custom(backward, inputs=2)(x.exp(), w.exp())
    for inputs in ([x], [w], [x, w], [y]):
        torch.autograd.backward((y * z).sum(), inputs=inputs, retain_graph=True)
        torch.autograd.grad((y * z).sum(), inputs, retain_graph=True)
    return [log.entries, x.grad, w.grad]


# -- deprecated and odd -----------------------------------------------------------------------


@as_native
def test_grad_variables_is_deprecated() -> Any:
    x = leaf(3)
    torch.autograd.backward(x * 2, grad_variables=torch.ones(3))
    return [x.grad]


@as_native(raises=RuntimeError)
def test_grad_variables_beside_grad_tensors() -> None:
    torch.autograd.backward(leaf(3) * 2, torch.ones(3), grad_variables=torch.ones(3))


@as_native
def test_only_inputs_is_deprecated() -> Any:
    x = leaf(3)
    return torch.autograd.grad((x * 2).sum(), x, only_inputs=False)


@as_native
def test_create_graph_of_backward_warns() -> Any:
    x = leaf(3)
    for _ in range(2):
        x.exp().sum().backward(create_graph=True)
    torch.autograd.grad(apply(Multiply, x, x)[0].sum(), x, create_graph=True)
    return [x.grad]


def test_each_thread_is_warned_of_create_graph() -> None:
    def program() -> Any:
        x, y = leaf(3), leaf(3)

        def other(_ctx: Any, gradient: Tensor) -> Tensor:
            thread = threading.Thread(target=lambda: y.sin().sum().backward(create_graph=True))
            thread.start()
            thread.join(60)
            return gradient * 2

        custom(other)(x).sum().backward(create_graph=True)
        return [x.grad, y.grad]

    ours = assert_same(program, order=False)
    said = [message for _, message, _, _ in ours.warnings if "create_graph=True" in message]
    assert len(said) == 2


# -- batched gradients ------------------------------------------------------------------------


@as_native
def test_batched_gradients_and_hooks() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()

    def hook(gradient: Tensor) -> Tensor:
        log.note(list(gradient.shape))
        return gradient * 2

    y.register_hook(hook)
    y.retain_grad()
    return [*torch.autograd.grad(y * x, [x, y], torch.eye(3), is_grads_batched=True), log.entries]


@as_native
def test_batched_gradients_of_custom_functions_and_views() -> Any:
    x = leaf(3, 3)
    y = x.clone()
    y[0].mul_(2)
    y[:, 1].exp_()
    z = apply(Multiply, y, x)[0]
    return torch.autograd.grad(z, [x], torch.eye(9).view(9, 3, 3), is_grads_batched=True)


# -- the state around a call ------------------------------------------------------------------


class _CallsBackward(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            torch.ones(3, requires_grad=True).sum().backward()
        return gradients[0]


@pytest.mark.parametrize("where", ["function", "tensor hook", "pre-hook", "post-hook"])
def test_backward_is_refused_while_gradients_are_batched(where: str) -> None:
    def program() -> Any:
        def hook(*_: Any) -> None:
            torch.ones(3, requires_grad=True).sum().backward()

        x = leaf(3)
        y = apply(_CallsBackward, x) if where == "function" else apply(Multiply, x, x)[0]
        node = node_of(y)
        {"tensor hook": y.register_hook, "pre-hook": node.register_prehook}.get(
            where, node.register_hook
        )(hook if where != "function" else lambda *_: None)
        torch.autograd.grad(y, [x], torch.eye(3), is_grads_batched=True)

    assert "backward() called inside torch.vmap" in str(assert_same(program).error)
    x = leaf(3)
    assert torch.equal(
        torch.autograd.grad(x * 2, x, torch.eye(3), is_grads_batched=True)[0], 2 * torch.eye(3)
    )


def test_hooks_beside_retain_grad_are_where_gradients_are_batched() -> None:
    def program() -> Any:
        x = leaf(3)
        y = x.exp()
        y.register_hook(lambda gradient: gradient * torch.randn(3))
        y.retain_grad()
        torch.autograd.grad(y.sin(), [x], torch.eye(3), is_grads_batched=True)

    assert "random operations inside of vmap" in str(assert_same(program).error)


@pytest.mark.parametrize("mode", ["no_grad", "enable_grad", "inference_mode"])
def test_gradient_mode_of_the_caller(mode: str, device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        log = Log()
        results: list[Any] = []
        for create in (True, False):
            x, _, _, z = _graph()
            z.register_hook(
                lambda _: log.note(torch.is_grad_enabled(), torch.is_inference_mode_enabled())
            )
            with getattr(torch, mode)():
                try:
                    results += torch.autograd.grad(z, x, torch.ones(3), create_graph=create)
                except RuntimeError as error:
                    results.append(str(error))
                results += [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
        return [*results, torch.is_grad_enabled(), log.entries]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


@as_native
def test_ids_and_names_of_the_current_graph_task() -> Any:
    seen = []
    x, w, y, z = _graph()

    def hook(_: Tensor) -> None:
        will = [torch._C._will_engine_execute_node(node_of(t)) for t in (y, z)]
        keeps = torch._C._autograd._get_current_graph_task_keep_graph()
        seen.append((will, keeps, torch._C._current_graph_task_id() >= 0))

    y.register_hook(hook)
    loss = z.sum()
    loss.backward(retain_graph=True)
    for inputs in ([x], [w], [y]):
        torch.autograd.grad(loss, inputs, retain_graph=True)
        torch.autograd.backward(loss, inputs=inputs, retain_graph=True)
    loss.backward()
    return [seen, torch._C._current_graph_task_id(), torch._C._current_autograd_node()]


@pytest.mark.parametrize("call", ["backward", "grad", "inputs", "several roots"])
def test_execution_order_that_is_announced(call: str) -> None:
    """``_current_graph_task_execution_order``, as checkpointing asks for it."""

    def program() -> Any:
        log = Log()
        x, _, y, z = _graph()
        other = y.sum()

        def hook(_: Any) -> None:
            if not log.entries:
                order = torch._C._current_graph_task_execution_order()  # type: ignore[attr-defined]
                log.note([node.name() for node in order])

        loss = z.sum()
        assert loss.grad_fn is not None
        loss.grad_fn.register_prehook(hook)
        with torch.autograd.set_multithreading_enabled(False):
            if call == "backward":
                loss.backward()
            elif call == "grad":
                torch.autograd.grad(loss, [y, x])
            elif call == "inputs":
                loss.backward(inputs=[y])
            else:
                torch.autograd.backward([other, loss])
        return log.entries

    assert assert_same(program).error is None


@as_native(raises=RuntimeError)
def test_execution_order_needs_a_single_thread() -> None:
    x = leaf(3)
    y = x.exp()
    y.register_hook(lambda _: torch._C._current_graph_task_execution_order())  # type: ignore[attr-defined]
    y.sum().backward()


# -- agviz's own entrance ---------------------------------------------------------------------


class _Tasks(Instrument):
    def __init__(self) -> None:
        self.begun: list[events.GraphTaskBegun] = []

    def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
        self.begun.append(event)


def test_backward_and_grad_of_agviz_engine() -> None:
    x, w, _, z = _graph()
    expected = torch.autograd.grad(z.sum(), [x, w], retain_graph=True)
    tasks = _Tasks()
    with installed(tasks):
        found = agviz_engine.grad(z.sum(), [x, w], retain_graph=True)
    assert same_value(found, expected)
    assert [(e.accumulate_grad, e.inputs, e.keep_graph) for e in tasks.begun] == [(False, 2, True)]
    agviz_engine.backward(z.sum(), inputs=[x])
    assert not agviz_engine.is_installed()
    assert same_value([x.grad, w.grad], [expected[0], None])


def test_native_within_installed() -> None:
    tasks = _Tasks()
    x = leaf(3)
    with installed(tasks):
        with agviz_engine.native():
            x.exp().sum().backward()
        assert not tasks.begun
        x.exp().sum().backward()
    assert len(tasks.begun) == 1
    x.exp().sum().backward()
    assert len(tasks.begun) == 1


def test_installing_twice_takes_uninstalling_twice() -> None:
    outer, inner = _Tasks(), _Tasks()
    x = leaf(3)
    with installed(outer):
        with installed(inner):
            x.exp().sum().backward()
        assert agviz_engine.is_installed()
        x.exp().sum().backward()
    assert not agviz_engine.is_installed()
    x.exp().sum().backward()
    assert (len(outer.begun), len(inner.begun)) == (2, 1)
