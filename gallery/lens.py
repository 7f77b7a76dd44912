"""Asks TorchLens about the modules that a program calls; imported into the program before it runs.

TorchLens runs no scripts: it is handed a module and its input. Where a backward pass has left a
loss or a gradient that is not finite, this hands it each call of a module since the pass before,
and writes what ``torchlens.debug.nan_report`` finds to stderr.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torchlens
from torch import nn

_calls: list[tuple[nn.Module, tuple[Any, ...]]] = []
_depth = 0
_call = nn.Module.__call__
_backward = torch.autograd.backward


def _remember(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    global _depth  # noqa: PLW0603
    if _depth == 0 and not kwargs:
        _calls.append((module, tuple(copy.copy(arg) for arg in args)))
    _depth += 1
    try:
        return _call(module, *args, **kwargs)
    finally:
        _depth -= 1


def _ask(tensors: Any, *args: Any, **kwargs: Any) -> None:
    global _depth  # noqa: PLW0603
    _backward(tensors, *args, **kwargs)
    losses = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
    called = list(_calls)
    _calls.clear()
    grads = [p.grad for module, _ in called for p in module.parameters() if p.grad is not None]
    if all(bool(value.isfinite().all()) for value in (*losses, *grads)):
        return
    _depth += 1
    try:
        for module, given in called:
            found = torchlens.debug.nan_report(copy.deepcopy(module), given)
            if found.found:
                print(
                    f"TorchLens: first {found.kind} of the {found.phase} in the {found.tensor_role}"
                    f" of {found.origin_label}, at {found.source_line}",
                    file=sys.stderr,
                )
                return
    finally:
        _depth -= 1


nn.Module.__call__ = _remember  # type: ignore[method-assign]
torch.autograd.backward = _ask
