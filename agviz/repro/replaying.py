"""Running a node's calls in this process. Imports torch when it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agviz.repro.isolated_node import TAGS, GivenTensor
from agviz.repro.safetensors import CODES, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from agviz.repro.isolated_node import AtenCall


def rebuilt(given: GivenTensor, of: StoredTensor) -> Tensor:
    """A tensor as it was given, in memory of its own."""
    import torch

    dtype: torch.dtype = getattr(torch, given.dtype)
    numel = len(of.data) // dtype.itemsize
    flat = torch.empty(numel, dtype=dtype)
    if numel:
        flat.view(torch.uint8).copy_(torch.frombuffer(bytearray(of.data), dtype=torch.uint8))
    flat = flat.to(given.device)
    tensor = flat.as_strided(given.size, given.stride) if given.is_span else flat.view(given.size)
    tensor = tensor.conj() if given.is_conj else tensor
    return torch._neg_view(tensor) if given.is_neg else tensor


def described_plainly(name: str, tensor: Tensor) -> tuple[GivenTensor, StoredTensor]:
    """A tensor for the file, its elements in order of their indices."""
    import torch

    plain = tensor.resolve_conj().resolve_neg().contiguous()
    data = bytes(plain.cpu().reshape(-1).view(torch.uint8).numpy())
    dtype = str(tensor.dtype).removeprefix("torch.")
    code = CODES.get(dtype)
    size = tuple(plain.shape)
    given = GivenTensor(name, dtype, size, plain.stride(), str(tensor.device))
    return given, StoredTensor(code or "U8", size if code else (len(data),), data)


def replay(
    calls: Sequence[AtenCall],
    given: Mapping[str, Tensor],
    outputs: Sequence[str | None],
) -> list[Tensor | None]:
    """What a node puts out. What torch raises goes up.

    Args:
        calls: its calls.
        given: the tensors that no call makes, by name; they may be written to.
        outputs: names of what it puts out.
    """
    import torch

    known = dict(given)
    with torch.no_grad():
        for call in calls:
            operator: Any = torch.ops
            for part in call.operator.split("."):
                operator = getattr(operator, part)
            args = [_argument(each, known) for each in call.args]
            kwargs = {key: _argument(each, known) for key, each in call.kwargs.items()}
            _bind(call.result, operator(*args, **kwargs), known)
    return [None if name is None else known[name] for name in outputs]


def _argument(value: Any, known: Mapping[str, Tensor]) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return [_argument(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tensor":
        return known[content]
    if tag in TAGS:
        return getattr(torch, content)
    return {"float": float, "complex": complex, "device": torch.device}[tag](content)


def _bind(names: Any, result: Any, known: dict[str, Tensor]) -> None:
    if isinstance(names, list | tuple):
        for name, each in zip(names, result, strict=True):
            _bind(name, each, known)
    elif names is not None:
        known[names] = result
