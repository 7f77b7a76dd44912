"""The stack of torch-function modes of a thread, and a mode's place in it.

Note [Place of the mode]
Modes lie on a stack of their thread, and one that ends takes off whatever lies on top. So ours lies
at the bottom, above only the one of ``torch.set_default_device``, which has its place there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils._device import DeviceContext

if TYPE_CHECKING:
    from torch.overrides import TorchFunctionMode

_C = cast("Any", torch._C)


def put(mode: TorchFunctionMode) -> None:
    """Note [Place of the mode]; on this thread."""
    modes = _modes()
    if mode in modes:
        return
    place = sum(isinstance(other, DeviceContext) for other in modes)
    _replace([*modes[:place], mode, *modes[place:]])


def take(mode: TorchFunctionMode) -> None:
    """Off this thread, if it is there."""
    modes = _modes()
    if mode in modes:
        modes.remove(mode)
        _replace(modes)


def has(mode: TorchFunctionMode) -> bool:
    """Whether it is on this thread."""
    return any(_C._get_function_stack_at(i) is mode for i in range(_C._len_torch_function_stack()))


def _modes() -> list[TorchFunctionMode]:
    """From the bottom to the top."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def _replace(modes: list[TorchFunctionMode]) -> None:
    for _ in range(_C._len_torch_function_stack()):
        _C._pop_torch_function_stack()
    for mode in modes:
        _C._push_on_torch_function_stack(mode)
