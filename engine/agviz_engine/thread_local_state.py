"""Torch's thread-locals, carried to the threads that work (torch's ``ThreadLocalState.h``)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from agviz_engine.releases import autograd_state

if TYPE_CHECKING:
    from collections.abc import Iterator

_C = cast("Any", torch._C)


class _Autocast(NamedTuple):
    device_type: str
    enabled: bool
    dtype: torch.dtype


_AUTOCAST_DEVICES = ("cpu", "cuda")


class ThreadLocalState:
    """Torch's thread-locals of the thread that called backward (``at::ThreadLocalState``).

    Torch's own class can't be reached from Python. Carried here: ``AutogradState`` but for
    inference mode, in which no node runs, autocast, default saved-tensor hooks and whether they are
    disabled, torch-dispatch modes. The rest is in ``docs/fidelity.md``.
    """

    __slots__ = (
        "_autocast",
        "_autograd_state",
        "_cache",
        "_grad_mode",
        "_modes",
        "_no_hooks",
        "_saved_tensor_hooks",
    )

    def __init__(self, *, grad_mode: bool) -> None:
        self._grad_mode = grad_mode
        self._autograd_state = [read() for read, _ in autograd_state()]
        self._autocast = [
            _Autocast(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in _AUTOCAST_DEVICES
        ]
        self._cache = torch.is_autocast_cache_enabled()
        self._saved_tensor_hooks = _C._autograd._top_saved_tensors_default_hooks(True)
        self._no_hooks = _C._autograd._saved_tensors_hooks_get_disabled_error_message()
        self._modes = [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Make this the state of the current thread for a while."""
        with contextlib.ExitStack() as stack:
            for (read, write), value in zip(autograd_state(), self._autograd_state, strict=True):
                stack.callback(write, read())
                write(value)
            for device, enabled, dtype in self._autocast:
                if enabled:
                    stack.enter_context(
                        torch.autocast(device, dtype=dtype, cache_enabled=self._cache)
                    )
            if self._saved_tensor_hooks is not None:
                _C._autograd._push_saved_tensors_default_hooks(*self._saved_tensor_hooks)
                stack.callback(_C._autograd._pop_saved_tensors_default_hooks)
            if self._no_hooks is not None:
                _C._autograd._saved_tensors_hooks_disable(self._no_hooks)
                stack.callback(_C._autograd._saved_tensors_hooks_enable)
            for mode in self._modes:
                stack.enter_context(mode)
            stack.enter_context(torch.set_grad_enabled(self._grad_mode))
            yield
