"""Taking tensors down, and finding the first bit in which two of them differ."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from agviz.words.shapes import write_shape
from agviz_engine.torch_modes import legacy_vmap_level

if TYPE_CHECKING:
    from collections.abc import Iterator

_C = cast("Any", torch._C)
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_DIGITS = {torch.float64: 17, torch.float32: 9, torch.bfloat16: 4, torch.float16: 5}


class Value(NamedTuple):
    """A tensor as it was at one moment. What it consists of are copies."""

    facts: dict[str, str]
    """What is known without its elements: dtype, shape, strides and so on."""
    parts: list[tuple[str, Tensor]]
    """Its elements: strided tensors, with a name where there are several."""


class Mismatch(NamedTuple):
    """Where two values differ first, what is there, and how much else differs."""

    where: str
    native: str
    agviz: str
    note: str = ""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Work on tensors without the program's gradient mode, transforms and function modes."""
    with torch.no_grad(), _C._DisableFuncTorch(), _C.DisableTorchFunction():
        yield


def take(tensor: Tensor | None) -> Value | None:
    """Note down ``tensor``; None for an undefined gradient."""
    if tensor is None:
        return None
    with undisturbed():
        tensor = _unwrapped(tensor)
        facts = {
            "type": type(tensor).__name__,
            "dtype": str(tensor.dtype),
            "layout": str(tensor.layout),
            "device": str(tensor.device),
            "requires_grad": str(tensor.requires_grad),
        }
        if not tensor.is_nested:
            facts["shape"] = write_shape(tensor.shape)
        if tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() > 1:
            facts["strides"] = str(tensor.stride())
        if tensor.is_sparse:
            facts["is_coalesced"] = str(tensor.is_coalesced())
        return Value(facts, list(_parts("", tensor.detach())))


def _unwrapped(tensor: Tensor) -> Tensor:
    """``tensor`` without the wrappings of ``torch.func`` and of ``is_grads_batched``."""
    while _C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _C._functorch.get_unwrapped(tensor)
    for level in range(legacy_vmap_level(), 0, -1):
        tensor = cast("Any", torch)._remove_batch_dim(tensor, level, 1, 0)
    return tensor


def _parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    subclass: Any = tensor
    if is_traceable_wrapper_subclass(subclass):
        for attribute in subclass.__tensor_flatten__()[0]:
            yield from _parts(f"{name}.{attribute}", getattr(tensor, attribute))
    elif tensor.is_meta:
        return
    elif tensor.is_nested:
        for number, component in enumerate(tensor.unbind()):
            yield from _parts(f"{name} component {number}", component)
    elif tensor.is_sparse:
        yield f"{name} indices", tensor._indices().clone()
        yield f"{name} values", tensor._values().clone()
    elif tensor.layout in _COMPRESSED:
        for part in _COMPRESSED[tensor.layout]:
            yield f"{name} {part}", getattr(tensor, part)().clone()
    elif tensor.layout is not torch.strided:
        yield name, tensor.to_dense()
    else:
        yield name, tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def compare(native: Value | None, agviz: Value | None) -> Mismatch | None:
    """Where two values differ first, bit for bit; None where they are the same."""
    if native is None or agviz is None:
        if native is agviz:
            return None
        return Mismatch("", *("None" if value is None else "a tensor" for value in (native, agviz)))
    for fact in native.facts | agviz.facts:
        mine, other = native.facts.get(fact, "none"), agviz.facts.get(fact, "none")
        if mine != other:
            return Mismatch(fact, mine, other)
    with undisturbed():
        for (name, mine_part), (_, other_part) in zip(native.parts, agviz.parts, strict=True):
            found = _compare_elements(name.strip(), mine_part, other_part)
            if found is not None:
                return found
    return None


def _compare_elements(name: str, native: Tensor, agviz: Tensor) -> Mismatch | None:
    if native.shape != agviz.shape:
        shapes = (write_shape(tensor.shape) for tensor in (native, agviz))
        return Mismatch(f"{name} shape".strip(), *shapes)
    if not native.numel() or torch.equal(_bits(native), _bits(agviz)):
        return None
    different = (_bits(native) != _bits(agviz)).any(dim=1).nonzero().flatten()
    position = int(different[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), native.shape)]
    texts = [_text(tensor.flatten()[position]) for tensor in (native, agviz)]
    if texts[0] == texts[1]:
        texts = [
            f"{text} (bits {_hex(tensor, position)})"
            for text, tensor in zip(texts, (native, agviz), strict=True)
        ]
    verb = "differs" if len(different) == 1 else "differ"
    note = f"{len(different):,} of {native.numel():,} elements {verb}"
    return Mismatch(f"{name} element {index}".strip(), texts[0], texts[1], note)


def _bits(tensor: Tensor) -> Tensor:
    """The bytes of each element, one row per element."""
    return tensor.contiguous().flatten().unsqueeze(1).view(torch.uint8)


def _hex(tensor: Tensor, position: int) -> str:
    row = _bits(tensor)[position].tolist()
    return bytes(reversed(row)).hex()


def _text(element: Tensor) -> str:
    value = element.item()
    digits = _DIGITS.get(element.dtype)
    return f"{value:.{digits}g}" if digits and isinstance(value, float) else str(value)
