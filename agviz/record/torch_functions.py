"""What torch's functions are called by users, and which of them matter to a forward.

A ``TorchFunctionMode`` gets function objects: builtin ones, methods, getters and setters of
attributes, and Python functions that call others in turn.
"""

from __future__ import annotations

from types import MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any, Final, NamedTuple, Self

from agviz.traces.forward import READS_GRADIENT

_QUERIES: Final = frozenset(
    f"Tensor.{name}"
    for name in (
        *("__bool__", "__contains__", "__dir__", "__format__", "__hash__", "__len__", "__repr__"),
        *("__reduce_ex__", "__setstate__", "__str__", "_is_view", "_nnz", "_typed_storage"),
        *("_use_count", "allclose", "backward", "data_ptr", "dense_dim", "dim", "dim_order"),
        *("element_size", "equal", "get_device", "has_names", "is_coalesced", "is_complex"),
        *("is_conj", "is_contiguous", "is_distributed", "is_floating_point", "is_inference"),
        *("is_neg", "is_nonzero", "is_pinned", "is_same_size", "is_set_to", "is_shared"),
        *("is_signed", "ndimension", "nelement", "numel", "register_hook"),
        *("register_post_accumulate_grad_hook", "retain_grad", "size", "sparse_dim", "storage"),
        *("storage_offset", "storage_type", "stride", "untyped_storage"),
    )
) | {
    *("Tensor.grad.__set__", "Tensor.grad.__delete__"),
    *("torch.autograd.backward", "torch.autograd.grad", "torch._C._set_grad_enabled"),
    *("torch.equal", "torch.allclose", "torch.is_complex", "torch.is_floating_point"),
    *("torch.is_nonzero", "torch.is_same_size", "torch.numel", "torch.result_type"),
}
"""They change no tensor and give none that backward could reach, or run backward itself."""

_ATTRIBUTES: Final = frozenset({"data", "T", "mT", "H", "mH", "real", "imag", "_base"})
"""Of a tensor: those that are tensors a forward may go on with."""

_LEAVING: Final = frozenset(
    f"Tensor.{name}"
    for name in (
        *("__array__", "__complex__", "__dlpack__", "__float__", "__index__", "__int__"),
        *("item", "numpy", "tolist"),
    )
)
"""They take numbers out of a tensor, and out of the graph."""

_UNFILLED: Final = frozenset(
    {
        *("torch.empty", "torch.empty_like", "torch.empty_permuted", "torch.empty_strided"),
        *("Tensor.new_empty", "Tensor.new_empty_strided", "Tensor.new", "Tensor.resize_"),
        "Tensor.resize_as_",
    }
)
"""What they give back holds whatever was in memory."""

_NAMESPACES: Final = {
    "torch._C._nn": ("torch.nn.functional", ""),
    "torch._C._fft": ("torch.fft", "fft_"),
    "torch._C._linalg": ("torch.linalg", "linalg_"),
    "torch._C._special": ("torch.special", "special_"),
    "torch._C._sparse": ("torch.sparse", "sparse_"),
    "torch._C._nested": ("torch.nested", "nested_"),
    "torch.functional": ("torch", ""),
    "torch.autograd.function": ("torch.autograd", ""),
}
"""Where users find what torch keeps elsewhere, and what precedes its name there."""


def name_of(function: Any) -> str:
    """Name of a torch function as users write it: ``Tensor.add_``, ``torch.linalg.norm``."""
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, MethodWrapperType):
        attribute: Any = function.__self__
        of = attribute.fget if isinstance(attribute, property) else attribute
        return f"Tensor.{getattr(of, '__name__', type(of).__name__)}.{name}"
    if isinstance(function, MethodDescriptorType | WrapperDescriptorType):
        return f"Tensor.{name}"
    module = getattr(function, "__module__", None) or "torch"
    if module == "torch._tensor":
        return str(function.__qualname__)
    place, prefix = _NAMESPACES.get(module, (module, ""))
    return f"{place}.{name.removeprefix(prefix)}"


def is_query(name: str) -> bool:
    """Whether a call of this function says nothing of a forward."""
    if name.endswith(".__get__") and name != READS_GRADIENT:
        return name.removeprefix("Tensor.").removesuffix(".__get__") not in _ATTRIBUTES
    return name in _QUERIES


class Traits(NamedTuple):
    """What of a function matters to a forward, which is asked of every call of it."""

    name: str
    leaves_torch: bool
    sets: bool
    leaves_unfilled: bool
    """Whether what it gives back has elements that mean nothing yet."""

    @classmethod
    def of(cls, name: str) -> Self:
        """Those of the function of this name."""
        return cls(name, leaves_torch(name), is_setter(name), name in _UNFILLED)


def leaves_torch(name: str) -> bool:
    """Whether it takes numbers out of a tensor."""
    return name in _LEAVING


def is_setter(name: str) -> bool:
    """Whether it sets or deletes an attribute of a tensor."""
    return name.endswith((".__set__", ".__delete__"))
