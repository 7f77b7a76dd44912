"""A torch node seen from below: reading its bookkeeping and releasing what it saved.

Python does not show whether a C++ node has tensor hooks, how many inputs it takes, or its
topological number, and offers no way to call ``Node::release_variables``. All of it lies in the
base class ``torch::autograd::Node`` (``torch/csrc/autograd/node.h``), which every node has at the
same place, so it is read there: only within the object, only plain words, never written.

Nothing here trusts a constant. :func:`calibrate` finds each position by an experiment on nodes
made for the purpose (a word that changes when a hook is registered is that hook's word), finds the
virtual function through the one implementation that libtorch exports by name, and refuses with
:class:`~agviz_engine.errors.UnsupportedTorchError` where an experiment does not come out.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

_WORDS = 40
_WORD = ctypes.sizeof(ctypes.c_uint64)
_CPP_FUNCTION_CDATA = object.__basicsize__  # THPCppFunction: PyObject_HEAD, then cdata
_COPY_SLICES_VTABLE = "_ZTVN5torch8autograd10CopySlicesE"
_COPY_SLICES_RELEASE = "_ZN5torch8autograd10CopySlices17release_variablesEv"
_VTABLE_SLOTS = 40
_VTABLE_HEADER = 2  # offset to top, type info: the virtual functions begin behind them

Words = ctypes.Array[ctypes.c_uint64]
_WordArray = ctypes.c_uint64 * _WORDS
_release_type = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # keeps the GIL: tensors may be freed


class Layout(NamedTuple):
    """Where things lie in a ``Node``, in words of 8 bytes from its beginning."""

    sequence_nr: int
    topological_nr: int
    pre_hooks: int
    """End pointer of ``pre_hooks_``; zero until a hook is registered for the first time."""
    tensor_pre_hooks: int
    retains_grad_hooks: int
    """Element count of ``retains_grad_hooks_``."""
    post_hooks: int
    num_inputs: int
    """The low 32 bits are the size of ``input_metadata_``."""
    release_slot: int
    """Index of ``release_variables`` among the virtual functions."""
    function_cdata: int
    """Byte offset of the pointer to the ``PyNode`` within a custom Function's Python object."""


FUNCTION_BASE: type = cast("Any", torch._C)._FunctionBase
"""Base class of the Python objects of custom Functions' nodes."""


def address(node: Node, cdata: int = _CPP_FUNCTION_CDATA) -> int:
    """Address of the C++ object behind ``node``, whose pointer stands at byte offset ``cdata``."""
    return cast("int", ctypes.c_void_p.from_address(id(node) + cdata).value)


def view(node_address: int) -> Words:
    """A live view of the first words of the node at that address, valid while it is alive."""
    return _WordArray.from_address(node_address)


def words(node: Node) -> Words:
    """A live view of the first words of a C++ node. Valid while ``node`` is alive."""
    return view(address(node))


def _sample() -> tuple[Tensor, Node]:
    with torch.enable_grad():
        leaf = torch.ones(2, requires_grad=True)
        output = leaf.mul(2.0).exp()
    return output, cast("Node", output.grad_fn)


def _changed(what: str, act: Callable[[Tensor, Any], object], *, becomes: int | None) -> list[int]:
    output, node = _sample()
    view = words(node)
    before = list(view)
    keep = act(output, node)
    after = list(view)
    found = [
        i
        for i, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new and (becomes is None or (old == 0 and new == becomes))
    ]
    del keep
    if not found:
        raise UnsupportedTorchError(_refusal(what))
    return found


def _refusal(what: str) -> str:
    return (
        f"agviz can't serve torch {torch.__version__}: {what} was not found in its nodes; "
        "install torch 2.13 or update agviz"
    )


def _size_word() -> int:
    with torch.enable_grad():
        leaf = torch.ones(6, requires_grad=True)
        nodes = [cast("Node", leaf.split(size)[0].grad_fn) for size in (1, 2, 3)]
    views = [words(node) for node in nodes]
    for i in range(_WORDS):
        if [view[i] & 0xFFFFFFFF for view in views] == [6, 3, 2]:
            return i
    raise UnsupportedTorchError(_refusal("the number of a node's inputs"))


def _topological_word(sequence_word: int) -> int:
    with torch.enable_grad():
        value = torch.ones(2, requires_grad=True)
        nodes = []
        for _ in range(5):
            value = value.exp()
            nodes.append(cast("Node", value.grad_fn))
    views = [words(node) for node in nodes]
    for i in range(sequence_word + 1, _WORDS):
        if [view[i] for view in views] == [1, 2, 3, 4, 5]:
            return i
    raise UnsupportedTorchError(_refusal("the topological number"))


def _release_slot() -> int:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        lib = ctypes.CDLL(str(library))
        table = (ctypes.c_uint64 * _VTABLE_SLOTS).in_dll(lib, _COPY_SLICES_VTABLE)
        release = ctypes.cast(getattr(lib, _COPY_SLICES_RELEASE), ctypes.c_void_p).value
    except (OSError, ValueError, AttributeError) as error:
        raise UnsupportedTorchError(_refusal("Node::release_variables")) from error
    slots = [i for i, entry in enumerate(table) if entry == release]
    if len(slots) != 1:
        raise UnsupportedTorchError(_refusal("Node::release_variables"))
    return slots[0] - _VTABLE_HEADER


class _Clone(torch.autograd.Function):
    """A custom Function to experiment on."""

    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


_EDGE_BYTES = 16  # struct Edge: a pointer to the node, its input number, padding
_LOWEST_HEAP_ADDRESS = 2**20


def _only_edge(parent: Words) -> int | None:
    """Address of the node that ``parent``'s only edge points to, found by the vector's shape."""
    for begin, end in itertools.pairwise(parent):
        if end - begin == _EDGE_BYTES and begin % _WORD == 0 and begin > _LOWEST_HEAP_ADDRESS:
            return ctypes.c_uint64.from_address(begin).value
    return None


def _function_cdata() -> int:
    output, parent = _sample()
    child = cast("Node", parent.next_functions[0][0])
    if _only_edge(words(parent)) != address(child):
        raise UnsupportedTorchError(_refusal("the list of edges"))
    with torch.enable_grad():
        inner = cast("Any", _Clone).apply(torch.ones(2, requires_grad=True))
        outer = inner.exp()
    wanted = _only_edge(words(cast("Node", outer.grad_fn)))
    function = cast("Node", inner.grad_fn)
    for offset in range(object.__basicsize__, FUNCTION_BASE.__basicsize__, _WORD):
        if address(function, offset) == wanted:
            return offset
    del output
    raise UnsupportedTorchError(_refusal("the node of a custom Function"))


def _check_release(layout: Layout) -> None:
    output, node = _sample()
    releaser(layout.release_slot, words(node)[0])(address(node))
    try:
        cast("Any", node)._saved_result  # noqa: B018
    except RuntimeError:
        pass
    else:
        raise UnsupportedTorchError(_refusal("Node::release_variables"))
    del output


@functools.cache
def calibrate() -> Layout:
    """Find where a node keeps what; the experiments run once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it elsewhere.
    """
    sequence = _changed(
        "the sequence number", lambda _, node: node._set_sequence_nr(2**41 + 7), becomes=None
    )[0]
    tensor_pre = _changed(
        "the list of tensor hooks", lambda out, _: out.register_hook(lambda g: g), becomes=None
    )
    pre = _changed(
        "the list of pre-hooks", lambda _, node: node.register_prehook(lambda g: g), becomes=None
    )
    post = _changed(
        "the list of post-hooks",
        lambda _, node: node.register_hook(lambda outputs, _: outputs),
        becomes=None,
    )
    retains = _changed("the retain_grad hooks", lambda out, _: out.retain_grad(), becomes=1)
    layout = Layout(
        sequence_nr=sequence,
        topological_nr=_topological_word(sequence),
        pre_hooks=pre[1],
        tensor_pre_hooks=tensor_pre[1],
        retains_grad_hooks=retains[-1],
        post_hooks=post[1],
        num_inputs=_size_word(),
        release_slot=_release_slot(),
        function_cdata=_function_cdata(),
    )
    _check_release(layout)
    return layout


def hook_list(node_words: Words, end_word: int) -> list[int]:
    """Addresses of the hook objects in the ``std::vector`` whose end pointer is at ``end_word``."""
    begin = node_words[end_word - 1]
    count = (node_words[end_word] - begin) // _WORD
    return list((ctypes.c_uint64 * count).from_address(begin))


class PythonHooks(NamedTuple):
    """What ``PyFunctionTensorPreHook``, ``PyFunctionPreHook`` and ``PyFunctionPostHook`` hold."""

    hooks: dict[int, Callable[..., Any]]
    """The live dict that ``RemovableHandle`` removes from."""
    value_idx: int
    """The input a tensor hook belongs to; means nothing for the other kinds."""


def python_hooks(hook: int) -> PythonHooks | None:
    """The Python hooks behind the hook object at that address, or None for a C++ hook."""
    vtable, hooks, value_idx = (ctypes.c_uint64 * 3).from_address(hook)
    if vtable not in _python_hook_vtables():
        return None
    return PythonHooks(ctypes.cast(hooks, ctypes.py_object).value, value_idx & 0xFFFFFFFF)


@functools.cache
def _python_hook_vtables() -> frozenset[int]:
    """First words of the three kinds of Python hook objects, learnt from hooks made for it."""
    layout = calibrate()
    output, node = _sample()
    output.register_hook(lambda gradient: gradient)
    node.register_prehook(lambda gradients: gradients)
    handle = node.register_hook(lambda outputs, _: outputs)
    found = []
    node_words = words(node)
    for end in (layout.tensor_pre_hooks, layout.pre_hooks, layout.post_hooks):
        (hook,) = hook_list(node_words, end)
        found.append((ctypes.c_uint64 * 2).from_address(hook))
    if found[0][1] != id(cast("Any", output)._backward_hooks):
        raise UnsupportedTorchError(_refusal("the dict of tensor hooks"))
    if found[2][1] != id(handle.hooks_dict_ref()):
        raise UnsupportedTorchError(_refusal("the dict of post-hooks"))
    return frozenset(entry[0] for entry in found)


_releasers: dict[int, Callable[[int], None]] = {}


def releaser(release_slot: int, vtable: int) -> Callable[[int], None]:
    """``Node::release_variables`` of the class with this ``vtable``, a node's first word.

    What it returns is called with the node's :func:`address`.
    """
    found = _releasers.get(vtable)
    if found is None:
        entry = ctypes.c_uint64.from_address(vtable + _WORD * release_slot).value
        found = _releasers[vtable] = cast("Callable[[int], None]", _release_type(entry))
    return found
