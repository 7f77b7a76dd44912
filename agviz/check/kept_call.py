"""Calls of custom Functions, kept with copies of their arguments until the program has ended.

Note [After the program]
A Function is the program's own code. To call it once more may count something up, draw random
numbers or print. So while the program runs, only copies of arguments are made; Functions are called
again when it has ended, when there is no result left that could change.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES: Final = 512 * 1024**2
"""Of all copies of arguments together."""
_MOST_SHAPES: Final = 3
"""Calls of one Function with different shapes that are kept."""
_MOST_DEPTH: Final = 3
_PLAIN: Final = (Tensor, torch.nn.Parameter)


class KeptCall:
    """One call of a Function.

    Args:
        args: what ``apply`` is called with; tensors are copied.
    """

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.args = tuple(mapped(arg, _copy) for arg in args)
        self.needs_grad = [
            place for place, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad
        ]
        """Places of the arguments whose gradients the program asks for."""
        self.parameters = {
            place for place, arg in enumerate(args) if isinstance(arg, torch.nn.Parameter)
        }
        self.captured: Any = None
        """The stack of the call."""


class CustomFunction:
    """What was seen of one Function while the program ran."""

    def __init__(self, function: type[Any]) -> None:
        self.function = function
        self.calls = 0
        self.kept: dict[Any, KeptCall] = {}
        self.not_kept = ""
        """Why calls of other shapes were not kept."""
        self.overtaken = 0
        """Calls whose backward ran after forward had been called again."""
        self.is_differentiated_twice = False
        """Whether its backward ran with ``create_graph``."""
        self.is_scaled = False
        """Whether a gradient that came in was not 1 throughout."""
        self.writes_to: set[int] = set()
        """Places of the arguments whose memory its backward changes."""
        self.writes_to_incoming = False
        """Whether its backward changes the gradient that it is given."""

    @property
    def name(self) -> str:
        """As the program calls it."""
        return self.function.__name__

    def argument(self, place: int) -> str:
        """The name that ``forward`` has for an argument of ``apply``."""
        try:
            parameters = list(inspect.signature(self.function.forward).parameters.values())
        except (TypeError, ValueError):
            return f"argument {place}"
        if not has_setup_context(self.function):
            parameters = parameters[1:]
        positional = [each.name for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
        return positional[place] if place < len(positional) else f"argument {place}"


def has_setup_context(function: type[Any]) -> bool:
    """Whether ``forward`` gets no ``ctx``."""
    return function.setup_context is not torch.autograd.Function.setup_context


class KeptCalls:
    """The first calls of each Function, with different shapes, within a bound of memory."""

    def __init__(self) -> None:
        self.functions: dict[type[Any], CustomFunction] = {}
        self._names: dict[str, set[Any]] = {}
        self._bytes = 0

    def before(self, name: str, args: tuple[Any, ...]) -> KeptCall | None:
        """``apply`` is about to run; None: its arguments are not needed, or too large."""
        shapes = signature(args)
        seen = self._names.setdefault(name, set())
        if shapes in seen or len(seen) >= _MOST_SHAPES or not torch.is_grad_enabled():
            return None
        nbytes = sum(arg.numel() * arg.element_size() for arg in args if type(arg) in _PLAIN)
        if self._bytes + nbytes > MOST_BYTES:
            return None
        kept = KeptCall(args)
        if not kept.needs_grad:
            return None
        seen.add(shapes)
        self._bytes += nbytes
        return kept

    def after(self, function: type[Any], args: tuple[Any, ...], kept: KeptCall | None) -> None:
        """``apply`` has given something that requires a gradient."""
        about = self.functions.get(function)
        if about is None:
            about = self.functions[function] = CustomFunction(function)
        about.calls += 1
        if kept is not None:
            about.kept[signature(args)] = kept
        elif not about.kept:
            about.not_kept = "its arguments are too large to keep"


def signature(args: tuple[Any, ...]) -> Any:
    """What two calls share that need not both be looked at."""
    return tuple(
        (tuple(arg.shape), arg.dtype, arg.requires_grad)
        if isinstance(arg, Tensor)
        else repr(arg)
        if isinstance(arg, bool | int | float | str | type(None))
        else type(arg).__name__
        for arg in args
    )


def mapped(
    value: Any,
    change: Callable[[Any], Any],
    kinds: type | tuple[type, ...] = Tensor,
    depth: int = 0,
) -> Any:
    """``value`` with each tensor in it, and in its lists, changed; the rest is the same object.

    Args:
        value: an argument of a function.
        change: what becomes of a tensor.
        kinds: what is changed in place of tensors.
        depth: of the list that it is in.
    """
    if isinstance(value, kinds):
        return change(value)
    if depth < _MOST_DEPTH and type(value) in {list, tuple}:
        return type(value)(mapped(each, change, kinds, depth + 1) for each in value)
    if depth < _MOST_DEPTH and type(value) is dict:
        return {key: mapped(each, change, kinds, depth + 1) for key, each in value.items()}
    return value


def _copy(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.detach().clone()
