"""What a hook may return (the checks of torch's ``python_hook.cpp``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def hook_name(hook: object) -> str:
    """The hook's ``__name__``, as ``hook_name`` in ``python_hook.cpp`` has it."""
    name = getattr(hook, "__name__", None)
    return name if isinstance(name, str) else "<unknown>"


def check_result(previous: Sequence[Tensor | None], result: Any, hook: Callable[..., Any]) -> None:
    """``check_result`` of ``python_hook.cpp``."""
    if not isinstance(result, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(result).__name__}'")
    if len(previous) != len(result):
        raise RuntimeError(
            f"hook '{hook_name(hook)}' has returned an incorrect number of values "
            f"(got {len(result)}, but expected {len(previous)})"
        )
    for old, new in zip(previous, result, strict=True):
        check_single_result(old, new, hook)


def check_single_result(original: Tensor | None, result: Any, hook: Callable[..., Any]) -> None:
    """``check_single_result`` of ``python_hook.cpp`` and ``check_variable_result``."""
    if result is None:
        return
    if original is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if not isinstance(result, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    same = (
        original.dtype == result.dtype
        and original.device.type == result.device.type
        and original.layout == result.layout
    )
    if not same:
        raise RuntimeError(
            f"hook '{hook_name(hook)}' has changed the type of value "
            f"(was {type_name(original)} got {type_name(result)})"
        )
    if original.shape != result.shape:
        raise RuntimeError(f"hook '{hook_name(hook)}' has changed the size of value")


_LEGACY = ("Double", "Float", "Half", "Byte", "Char", "Short", "Int", "Long", "Bool")


def type_name(tensor: Tensor) -> str:
    """``DeprecatedTypeProperties::toString``: legacy names where there are any."""
    legacy = tensor.type()
    scalar = legacy.rpartition(".")[2].removesuffix("Tensor")
    if tensor.device.type in ("cpu", "cuda") and scalar in _LEGACY:
        return legacy
    device = tensor.device.type
    backend = device.upper() if device in ("cpu", "cuda") else device.capitalize()
    return f"{'Sparse' if tensor.is_sparse else ''}{backend}{scalar}Type"
