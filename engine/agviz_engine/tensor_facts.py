"""Facts that are asked of very many tensors: read in memory, or asked of torch.

:mod:`agviz_engine.torch_layout` reads them where it knows how this torch lays out its objects.
Where it does not, the functions of the same meaning below ask torch for them, which takes half a
microsecond longer. Which of the two it is, is decided here, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch

from agviz_engine import support
from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

_C = cast("Any", torch._C)
_dispatch_keys = _C._dispatch_keys
UNKNOWN_NODE: Final = -1
COMPRESSED: Final = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""Parts of the compressed sparse layouts."""

Block: TypeAlias = "Hashable"
"""Equal for plain tensors (:func:`is_plain`) that are alike in shape, strides and dtype, and for
no others."""


def held_bytes(tensor: Tensor) -> int:
    """Bytes in memory of the tensor's elements; 0 where that is not known (nested, ...)."""
    try:
        if tensor.layout is torch.strided:
            nbytes = tensor.nbytes
            if type(nbytes) is not int:  # to compare a symbolic size would guard what is compiled
                return 0
            return (
                nbytes if tensor.is_contiguous() else min(nbytes, tensor.untyped_storage().nbytes())
            )
        if tensor.is_sparse:
            return tensor._values().nbytes + tensor._indices().nbytes
        if tensor.layout in COMPRESSED:
            return sum(getattr(tensor, part)().nbytes for part in COMPRESSED[tensor.layout])
    except (RuntimeError, NotImplementedError):
        pass
    return 0


def is_plain(tensor: Tensor) -> bool:
    """Whether blocks distinguish a tensor from others: dense memory on the CPU, read as it is.

    It must be of type Tensor itself or Parameter.
    """
    return _dispatch_keys(tensor).raw_repr() == _plain_keys and tensor.dim() <= MOST_DIMENSIONS


def _plain_keys_here() -> int:
    with _C.DisableTorchFunction(), torch.inference_mode(mode=False):
        return int(_dispatch_keys(torch.ones(2, device="cpu")).raw_repr())


def _asked_block(tensor: Tensor) -> Block:
    with _C.DisableTorchFunction():
        keys = _dispatch_keys(tensor).raw_repr()
        if keys != _plain_keys and (not tensor.is_cuda or tensor.layout is not torch.strided):
            return ()
        return tensor.shape, tensor.stride(), tensor.dtype, keys, tensor.get_device()


def _asked_impl(tensor: Tensor) -> int:
    with _C.DisableTorchFunction():
        return int(cast("Any", tensor)._cdata)


def _asked_storage(tensor: Tensor) -> int:
    with _C.DisableTorchFunction():
        try:
            return int(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):
            return 0


def _asked_node_nr(tensor: Tensor) -> int | None:
    with _C.DisableTorchFunction():
        if not tensor.requires_grad:
            return None
        # Torch would make the node of a view anew that was written to, or refuse to. A node itself
        # is not asked for: with a Python object it is dear to free, and a chain of them overflows
        # the stack.
        is_leaf = not (tensor._is_view() and tensor._version) and tensor.is_leaf
        return None if is_leaf else UNKNOWN_NODE


def _read_node_nr() -> Callable[[Tensor], int | None]:
    word = torch_layout.grad_fn_word()

    def node_nr(tensor: Tensor) -> int | None:
        node = torch_layout.grad_fn_base(tensor, word)
        return torch_layout.sequence_nr[node] if node else None

    return node_nr


tensor_block: Callable[[Tensor], Block]
"""What plain tensors of one kind have in common."""
block_places: tuple[int, ...] | None
"""Where compiled code finds a block (``BLOCK_PLACES`` of ``torch_layout``); None: not known."""
impl_number: Callable[[Tensor], int]
"""Identifies a tensor's ``TensorImpl`` among all that are alive."""
storage_address: Callable[[Tensor], int]
"""Address of a tensor's ``StorageImpl``; 0 where it has none."""
node_nr_reader: Callable[[], Callable[[Tensor], int | None]]
"""Gives what reads the sequence number of the node that made a tensor.

None: it is a leaf; :data:`UNKNOWN_NODE`: a node made it, whose number is not known. What is given
brings no view up to date; to ask for it may draw sequence numbers.
"""

try:
    with support.fitting():
        from agviz_engine import torch_layout
except UnsupportedTorchError:
    _plain_keys, MOST_DIMENSIONS = _plain_keys_here(), 64
    tensor_block, storage_address, block_places = _asked_block, _asked_storage, None
    impl_number, node_nr_reader = _asked_impl, lambda: _asked_node_nr
else:
    _plain_keys, MOST_DIMENSIONS = torch_layout.PLAIN_KEYS, torch_layout.DIMENSIONS
    tensor_block, storage_address = torch_layout.tensor_block, torch_layout.storage_address
    block_places = torch_layout.BLOCK_PLACES
    impl_number, node_nr_reader = torch_layout.tensor_base, _read_node_nr
