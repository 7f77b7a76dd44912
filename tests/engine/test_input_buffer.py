"""Gradients that meet in one buffer: added in place where torch adds in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.engine.builders import custom, leaf
from tests.engine.oracle import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy

_kept: list[Tensor] = []


def _keep(gradient: Tensor) -> Tensor:
    _kept.append(gradient)
    return gradient


def _keep_a_view(gradient: Tensor) -> None:
    _kept.append(gradient[:1])


def _hooked(y: Tensor, hook: Callable[[Tensor], Any]) -> Tensor:
    y.register_hook(hook)
    return y


def _rows(x: Tensor) -> Tensor:
    """What has a sparse gradient."""
    return torch.nn.functional.embedding(torch.tensor([0, 1, 0]), x, sparse=True).sum()


def _kept_by_a_post_hook(y: Tensor) -> Tensor:
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda outputs, _: _kept.extend(outputs))
    return y


_once = custom(lambda _, gradient: gradient * 3)
_same = custom(lambda _, gradient: _keep(gradient * 3))
MEETINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "two": lambda x: x.sin().sum() + x.exp().sum(),
    "three": lambda x: x.sin().sum() + x.exp().sum() + x.cos().sum(),
    "one twice": lambda x: (x + x).sum(),
    "expanded": lambda x: x.sum() + x.sum(),
    "expanded and not": lambda x: x.sum() + x.exp().sum(),
    "transposed": lambda x: (x.t() * torch.ones(3, 2)).sum() + x.exp().sum(),
    "transposed twice": lambda x: (x.t() * torch.ones(3, 2)).sum() + x.t().exp().sum(),
    "part of another": lambda x: torch.cat([x, x]).exp().sum(),
    "in two halves": lambda x: torch.stack([x, x], -1).exp().sum() + x.exp().sum(),
    "a custom Function": lambda x: _once(x).sum() + x.exp().sum(),
    "held by the program": lambda x: _same(x).sum() + x.exp().sum(),
    "seen by a hook": lambda x: _hooked(x * 2, lambda g: g * 1).sum() + x.exp().sum(),
    "held by a hook": lambda x: _hooked(x * 2, _keep).sum() + (x * 2).exp().sum(),
    "a view held by a hook": lambda x: _hooked(x.exp(), _keep_a_view).exp().sum() + x.sum(),
    "sparse, then dense": lambda x: x.exp().sum() + _rows(x),
    "sparse, then transposed": lambda x: x.t().exp().sum() + _rows(x),
    "sparse, then expanded": lambda x: x.sum() + _rows(x),
    "sparse twice": lambda x: _rows(x) + _rows(x),
    "sparse, then dense twice": lambda x: x.sin().sum() + x.t().exp().sum() + _rows(x),
    "sparse, then held": lambda x: _kept_by_a_post_hook(x.exp()).sum() + _rows(x),
    "sparse, then one for two": lambda x: (x + x).exp().sum() + _rows(x),
    "dense, then sparse": lambda x: _rows(x) + x.t().exp().sum(),
    "another dtype": lambda x: x.double().exp().sum().float() + x.exp().sum(),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("meeting", MEETINGS)
def test_where_gradients_meet(
    meeting: str, create_graph: bool, device_policy: DevicePolicy | None
) -> None:
    def program() -> Any:
        _kept.clear()
        x = leaf(2, 3)
        y = x * 1
        seen: list[Any] = []
        y.register_hook(lambda g: seen.append((g._version, g._is_view(), g.clone())))
        (slope,) = torch.autograd.grad(MEETINGS[meeting](y), x, create_graph=create_graph)
        return [slope, seen, [(kept, kept._version) for kept in _kept]]

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    if create_graph and meeting.startswith("sparse, then"):
        assert "add(sparse, dense) is not supported" in str(ours.error), "as in torch"
    else:
        assert ours.error is None
    _kept.clear()


def test_a_gradient_that_the_caller_holds_is_not_written_to() -> None:
    def program() -> Any:
        x = leaf(2, 3)
        y = x * 1
        held = torch.ones(2, 3)
        torch.autograd.backward([y, y * 2, y], [held, held, held])
        return [x.grad, held, held._version]

    assert assert_same(program).error is None
