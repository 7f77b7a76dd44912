"""Anomaly mode: the NaN check, the forward traceback, parents under double backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from agviz_engine import Instrument, events, installed
from agviz_engine.nonfinite_check import NonFinite, check_non_finite
from tests.engine.builders import apply, custom, leaf, node_of, throw
from tests.engine.oracle import assert_same, our_outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live

NAN, INF = float("nan"), float("inf")
spoil = custom(lambda _, g: g * NAN)
fail = custom(lambda _c, _g: throw(ValueError("backward")))


class _Broken(torch.autograd.Function):
    """Its backward makes a graph that will fail."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return fail(gradients[0] * 2 * x)


def _second_order() -> Tensor:
    x = leaf(3)
    (slope,) = torch.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
    return slope


def _nan_of_a_custom_function() -> Any:
    spoil(leaf(3).exp()).sum().backward()


def _nan_of_a_generated_node() -> Any:
    x = torch.zeros(3, requires_grad=True)
    ((x * 1).sqrt() * 0).sum().backward()


def _nan_before_a_leaf() -> Any:
    x = torch.zeros(3, requires_grad=True)
    (x.sqrt() * 0).sum().backward()


def _nan_in_grad() -> Any:
    x = torch.zeros(3, requires_grad=True)
    torch.autograd.grad(((x * 1).sqrt() * 0).sum(), x)


def _nan_in_the_root_gradient() -> Any:
    leaf(3).exp().backward(torch.tensor([1, NAN, 1]))


def _nan_of_a_post_hook() -> Any:
    y = leaf(3).exp()
    node_of(y).register_hook(lambda gi, _: (gi[0] * NAN,))
    y.sum().backward()


def _nan_in_a_second_output() -> Any:
    x, w = leaf(3), torch.zeros(3, requires_grad=True)
    (x * w.sqrt() * 0).sum().backward()


def _nan_in_a_sparse_gradient() -> Any:
    table = nn.Embedding(5, 3, sparse=True)
    y = table(torch.tensor([1, 2]))
    y.register_hook(lambda g: g * NAN)
    y.sum().backward()


def _nan_in_a_complex_gradient() -> Any:
    x = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    ((x * 1).abs() * NAN).sum().backward()


def _nan_in_a_second_backward() -> Any:
    x = torch.zeros(3, requires_grad=True)
    (slope,) = torch.autograd.grad((x**1.5).sum(), x, create_graph=True)
    (slope.sqrt() * 0).sum().backward()


def _error_in_a_custom_function() -> Any:
    fail(leaf(3).exp()).sum().backward()


def _error_in_a_hook() -> Any:
    y = leaf(3).exp()
    y.register_hook(lambda _: throw(KeyError("hook")))
    y.sum().backward()


def _error_in_a_hook_of_a_leaf() -> Any:
    x = leaf(3)
    x.register_hook(lambda _: throw(KeyError("hook")))
    x.exp().sum().backward()


def _error_in_a_post_accumulate_hook() -> Any:
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda _: throw(KeyError("hook")))
    x.exp().sum().backward()


def _error_in_a_second_backward() -> Any:
    slope = _second_order()
    node_of(slope).register_prehook(lambda _: throw(KeyError("hook")))
    slope.sum().backward()


def _error_in_a_third_backward() -> Any:
    x = leaf(3)
    value = (x.exp() * x).sum()
    for _ in range(2):
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        value = slope.sum()
    node_of(slope).register_prehook(lambda _: throw(KeyError("hook")))
    value.backward()


def _error_in_what_a_custom_function_made() -> Any:
    x = leaf(3)
    (slope,) = torch.autograd.grad(apply(_Broken, x).sum(), x, create_graph=True)
    slope.sum().backward()


def _error_in_a_reentrant_backward() -> Any:
    def reenter(_: Any, _gradient: Tensor) -> None:
        with torch.enable_grad():
            fail(leaf(3).exp()).sum().backward()

    custom(reenter)(leaf(3).exp()).sum().backward()


def _tensor_changed_in_place() -> Any:
    y = leaf(3).exp()
    z = y.sin()
    y.mul_(2)
    z.sum().backward()


FAILING: list[Callable[[], Any]] = [
    _nan_of_a_custom_function,
    _nan_of_a_generated_node,
    _nan_before_a_leaf,
    _nan_in_grad,
    _nan_in_the_root_gradient,
    _nan_of_a_post_hook,
    _nan_in_a_second_output,
    _nan_in_a_sparse_gradient,
    _nan_in_a_complex_gradient,
    _nan_in_a_second_backward,
    _error_in_a_custom_function,
    _error_in_a_hook,
    _error_in_a_hook_of_a_leaf,
    _error_in_a_post_accumulate_hook,
    _error_in_a_second_backward,
    _error_in_a_third_backward,
    _error_in_what_a_custom_function_made,
    _error_in_a_reentrant_backward,
    _tensor_changed_in_place,
]


def _name(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", " ")


SHOWS_THE_ENGINE = [_error_in_what_a_custom_function_made, _error_in_a_reentrant_backward]
"""Forward tracebacks with lines of our engine among them, see ``docs/fidelity.md``."""


@pytest.mark.parametrize("check_nan", [True, False], ids=["checking", "not checking"])
@pytest.mark.parametrize("fails", [f for f in FAILING if f not in SHOWS_THE_ENGINE], ids=_name)
def test_error_and_forward_traceback(fails: Callable[[], Any], check_nan: bool) -> None:
    def program() -> None:
        with torch.autograd.set_detect_anomaly(True, check_nan=check_nan):
            fails()

    ours = assert_same(program)
    assert (ours.error is None) == ("nan" in fails.__name__ and not check_nan)


@pytest.mark.parametrize("fails", FAILING[:2] + FAILING[10:12], ids=_name)
def test_without_a_forward_traceback(fails: Callable[[], Any]) -> None:
    """Anomaly mode that is turned on for the backward only."""

    def program() -> None:
        before: Any = torch.Tensor.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            with torch.autograd.set_detect_anomaly(True):
                before(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "backward", backward)
            fails()

    ours = assert_same(program)
    assert "No forward pass information available" in ours.warnings[-1][1]


@pytest.mark.parametrize("fails", FAILING, ids=_name)
def test_error_on_a_device_thread(fails: Callable[[], Any]) -> None:
    """There the forward traceback of what the backward made is that of the device thread."""
    kinds = []
    for policy in (None, lambda _: 0):

        def program() -> None:
            with torch.autograd.set_detect_anomaly(True):
                fails()

        outcome = our_outcome(program, device_policy=policy)
        kinds.append(
            (type(outcome.error), str(outcome.error), [w[1][:60] for w in outcome.warnings])
        )
    assert kinds[0] == kinds[1]


def test_what_is_fine_stays_fine(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
            x, zeros = leaf(2, 3), torch.zeros(3, requires_grad=True)
            model(x).sum().backward()
            zeros.sqrt().sum().backward()  # infinite, which native does not look for
            leaf_root = leaf(3)
            leaf_root.backward(torch.tensor([1, NAN, 1]))  # a leaf has no outputs to check
        return [x.grad, zeros.grad, leaf_root.grad, *(p.grad for p in model.parameters())]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is None


def test_metadata_of_nodes_made_in_a_backward(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            pending: list[Any] = [_second_order().grad_fn]
            found = []
            while pending:
                node = pending.pop(0)
                parent = node.metadata.get("parent_")
                found.append((node.name(), sorted(node.metadata), parent and parent.name()))
                pending += [child for child, _ in node.next_functions if child is not None]
            return found

    assert assert_same(program, device_policy=device_policy, order=False).error is None


# -- the checks that native lacks -------------------------------------------------------------


class _Checks(Instrument):
    def __init__(self) -> None:
        self.found: list[tuple[str, int, NonFinite]] = []

    def non_finite_checked(self, event: events.NonFiniteChecked, live: Live) -> None:
        assert live.node is not None
        found = NonFinite(event.nan, event.posinf, event.neginf)
        self.found.append((live.node.name, event.output, found))


def _infinite() -> None:
    x = torch.tensor([0.0, 1.0, -0.0], requires_grad=True)
    (1 / x).sum().backward(retain_graph=True)


def test_the_non_finite_check_is_off_unless_asked_for() -> None:
    silent, asked = _Checks(), _Checks()
    with installed(silent):
        _infinite()
    with installed(asked, nonfinite_check=True):
        _infinite()
    assert not silent.found
    assert [check for check in asked.found if check[2]] == [("ReciprocalBackward0", 0, (0, 0, 2))]
    assert ("SumBackward0", 0, (0, 0, 0)) in asked.found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (torch.tensor([1.0, NAN, NAN, INF, -INF, -INF, -INF]), (2, 1, 3)),
        (torch.tensor([INF]), (0, 1, 0)),
        (torch.tensor(NAN), (1, 0, 0)),
        (torch.ones(0), (0, 0, 0)),
        (torch.ones(5), (0, 0, 0)),
        (torch.tensor([3, 4]), (0, 0, 0)),
        (torch.tensor([True]), (0, 0, 0)),
        (torch.tensor([complex(NAN, INF), complex(1, -INF)]), (1, 1, 1)),
        (torch.tensor([complex(1, INF)]).conj(), (0, 0, 1)),
        (torch.tensor([1.0, NAN, 0.0]).to_sparse(), (1, 0, 0)),
        (torch.tensor([[1.0, NAN], [INF, 0.0]], dtype=torch.float16), (1, 1, 0)),
        (torch.tensor([[1.0, -INF]], dtype=torch.bfloat16), (0, 0, 1)),
        (torch.ones(3, device="meta"), (0, 0, 0)),
        (torch.full((2, 3), NAN).t()[1:], (4, 0, 0)),
    ],
)
def test_what_is_counted(values: Tensor, expected: tuple[int, int, int]) -> None:
    assert check_non_finite(values) == expected


def test_one_warning_where_torch_ran_the_hook_that_failed() -> None:
    def program() -> Any:
        y = leaf(3).tanh()
        y.retain_grad()
        y.register_hook(lambda _: throw(ValueError("hook")))
        with torch.autograd.detect_anomaly():
            y.sum().backward()

    assert len(assert_same(program).warnings) == 2


def test_forward_traceback_of_a_custom_function_called_in_a_backward() -> None:
    def program() -> Any:
        inner = custom(lambda _, __: throw(ValueError("inner")))

        def outer(ctx: Any, gradient: Tensor) -> Tensor:
            with torch.enable_grad():
                again = ctx.saved_tensors[0].detach().requires_grad_()
                inner(again).sum().backward()
            return gradient

        x = leaf(3)
        with torch.autograd.detect_anomaly():
            custom(outer)(x).sum().backward()

    said = [message for _, message, _, _ in assert_same(program).warnings]
    assert any("in outer" in message and "inner(again)" in message for message in said)
