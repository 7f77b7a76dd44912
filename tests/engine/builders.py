"""Small pieces that the engine's tests are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.autograd.variable import Variable

if TYPE_CHECKING:
    from collections.abc import Callable


def leaf(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """A random leaf that requires a gradient."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def engine() -> Any:
    """What torch calls to run a backward pass: the native engine or ours."""
    return Variable._execution_engine


def node_of(tensor: Tensor) -> Any:
    """The node that produced a tensor, or a leaf's AccumulateGrad."""
    return get_gradient_edge(tensor).node


def apply(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Call a custom Function."""
    return cast("Any", function).apply(*args)


def custom(backward: Callable[[Any, Any], Any], inputs: int = 1) -> Callable[..., Any]:
    """A custom Function that multiplies its inputs, with this ``backward(ctx, gradient)``."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(*args)
            return args[0] * 2 if inputs == 1 else args[0] * args[1]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, gradients[0])

    return cast("Callable[..., Any]", cast("Any", Custom).apply)


class Multiply(torch.autograd.Function):
    """``x * y`` and ``x + y``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, y = ctx.saved_tensors
        product, total = gradients
        return product * y + total, product * x + total


class Swallow(torch.autograd.Function):
    """Lets no gradient through: what is behind it gets undefined ones."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        return None


class Log:
    """Makes hooks that note their name and what they are called with, as it is then."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def note(self, *what: Any) -> None:
        """Note something."""
        self.entries.append(_copied(what))

    def hook(self, name: str, change: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """A hook that returns ``change(*its arguments)``, or nothing."""

        def hook(*args: Any) -> Any:
            self.note(name, *args)
            return None if change is None else change(*args)

        hook.__name__ = name
        return hook


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [_copied(v) for v in value] if isinstance(value, tuple | list) else value


def throw(error: BaseException) -> NoReturn:
    """Raise, where only an expression is allowed."""
    try:
        raise error
    finally:
        del error  # or this frame, which the traceback keeps, would keep the exception
