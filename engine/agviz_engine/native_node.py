"""A torch node seen from below: reading its bookkeeping and releasing what it saved.

Python does not show whether a C++ node has tensor hooks, how many inputs it takes, or its
topological number, and offers no way to call ``Node::release_variables``. All of it lies in the
base class ``torch::autograd::Node`` (``torch/csrc/autograd/node.h``), which every node has at the
same place, so it is read there: only within the object, only plain words, never written.

Nothing here trusts a constant. :func:`calibrate` finds each position by an experiment on nodes
made for the purpose (a word that changes when a hook is registered is that hook's word), finds the
virtual function through the one implementation that libtorch exports by name, and refuses with
:class:`~agviz_engine.errors.UnsupportedTorchError` where an experiment does not come out. What
experiments read they read through :mod:`agviz_engine.checked_memory`, so that a torch in which a
pointer stands elsewhere is refused too, and does not end the process.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz_engine import support
from agviz_engine.checked_memory import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

    from agviz_engine.errors import UnsupportedTorchError

_WORD = ctypes.sizeof(ctypes.c_uint64)
_SEARCHED = 34  # words of a node that an experiment compares: all of the base class
_CPP_FUNCTION_CDATA = object.__basicsize__  # THPCppFunction: PyObject_HEAD, then cdata
_COPY_SLICES_VTABLE = "_ZTVN5torch8autograd10CopySlicesE"
_COPY_SLICES_RELEASE = "_ZN5torch8autograd10CopySlices17release_variablesEv"
_SEQUENCE_NR = 2**41 + 7  # that no other word has
_VTABLE_SLOTS = 40
_VTABLE_HEADER = 2  # offset to top, type info: the virtual functions begin behind them

MEMORY = (ctypes.c_uint64 * 2**59).from_address(0)
"""This process's memory in words of 8 bytes: one read costs a tenth of a ``from_address``.

Indexed with a word number, which is an address divided by 8.
"""
BYTES = memoryview(MEMORY).cast("B")
"""The same by address, for ``struct.unpack_from``."""

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
    autograd_meta: int
    """Word of a ``TensorImpl`` that points to its ``AutogradMeta``; zero where it has none."""
    grad_accumulator: int
    """Word of an ``AutogradMeta`` that points to the leaf's AccumulateGrad."""
    leaf_hooks: int
    """Word of an ``AutogradMeta``: end pointer of ``hooks_``, the leaf's tensor hooks."""


FUNCTION_BASE: type = cast("Any", torch._C)._FunctionBase
"""Base class of the Python objects of custom Functions' nodes."""


def base(node: Node, cdata: int = _CPP_FUNCTION_CDATA) -> int:
    """Word number of the C++ object behind ``node``, whose pointer stands at byte ``cdata``.

    The node's word ``i`` is ``MEMORY[base(node) + i]``, as long as ``node`` is alive.
    """
    return MEMORY[(id(node) + cdata) // _WORD] // _WORD


def _words(node: Node) -> list[int]:
    return words(base(node), _SEARCHED)


def _sample() -> tuple[Tensor, Node]:
    with torch.enable_grad():
        leaf = torch.ones(2, requires_grad=True)
        output = leaf.mul(2.0).exp()
    return output, cast("Node", output.grad_fn)


def _sequence_word() -> int:
    output, node = _sample()
    cast("Any", node)._set_sequence_nr(_SEQUENCE_NR)
    found = _words(node)
    if found.count(_SEQUENCE_NR) != 1:
        raise _refusal("the sequence number")
    del output
    return found.index(_SEQUENCE_NR)


def _changed(
    what: str, act: Callable[[Tensor, Any], object], *, becomes: int | None = None
) -> list[int]:
    output, node = _sample()
    before = _words(node)
    keep = act(output, node)
    after = _words(node)
    found = [
        i
        for i, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new and (becomes is None or (old == 0 and new == becomes))
    ]
    del keep
    if not found:
        raise _refusal(what)
    return found


def _vector_end(changed: list[int]) -> int:
    """The middle one of the three pointers of a ``std::vector`` that got its first element."""
    begin = changed[0]
    if changed[:3] != [begin, begin + 1, begin + 2]:
        raise _refusal("a list of hooks")
    return begin + 1


def _refusal(what: str) -> UnsupportedTorchError:
    return support.refusal(f"{what} was not found in its nodes")


def _size_word() -> int:
    with torch.enable_grad():
        leaf = torch.ones(6, requires_grad=True)
        nodes = [cast("Node", leaf.split(size)[0].grad_fn) for size in (1, 2, 3)]
    views = [_words(node) for node in nodes]
    for i in range(_SEARCHED):
        if [view[i] & 0xFFFFFFFF for view in views] == [6, 3, 2]:
            return i
    raise _refusal("the number of a node's inputs")


def _topological_word(sequence_word: int) -> int:
    with torch.enable_grad():
        value = torch.ones(2, requires_grad=True)
        nodes = []
        for _ in range(5):
            value = value.exp()
            nodes.append(cast("Node", value.grad_fn))
    views = [_words(node) for node in nodes]
    for i in range(sequence_word + 1, _SEARCHED):
        if [view[i] for view in views] == [1, 2, 3, 4, 5]:
            return i
    raise _refusal("the topological number")


@functools.cache
def _copy_slices() -> tuple[int, int]:
    """Addresses of the virtual table of CopySlices and of its ``release_variables``."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        lib = ctypes.CDLL(str(library))
        table = ctypes.addressof(ctypes.c_uint64.in_dll(lib, _COPY_SLICES_VTABLE))
        release = ctypes.cast(getattr(lib, _COPY_SLICES_RELEASE), ctypes.c_void_p).value
    except (OSError, ValueError, AttributeError) as error:
        raise _refusal("Node::release_variables") from error
    return table, release or 0


def _release_slot() -> int:
    table, release = _copy_slices()
    entries = words(table // _WORD, _VTABLE_SLOTS)
    if entries.count(release) != 1:
        raise _refusal("Node::release_variables")
    return entries.index(release) - _VTABLE_HEADER


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


def _only_edge(parent: Node) -> int | None:
    """Word number of the node that ``parent``'s only edge leads to, found by the vector's shape."""
    for begin, end in itertools.pairwise(_words(parent)):
        if end - begin == _EDGE_BYTES and begin % _WORD == 0 and begin > _LOWEST_HEAP_ADDRESS:
            return words(begin // _WORD, 1)[0] // _WORD
    return None


def _function_cdata() -> int:
    output, parent = _sample()
    child = cast("Node", parent.next_functions[0][0])
    if _only_edge(parent) != base(child):
        raise _refusal("the list of edges")
    with torch.enable_grad():
        inner = cast("Any", _Clone).apply(torch.ones(2, requires_grad=True))
        outer = inner.exp()
    wanted = _only_edge(cast("Node", outer.grad_fn))
    function = cast("Node", inner.grad_fn)
    for offset in range(object.__basicsize__, FUNCTION_BASE.__basicsize__, _WORD):
        if base(function, offset) == wanted:
            return offset
    del output
    raise _refusal("the node of a custom Function")


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of ``dladdr``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("file_begin", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("symbol_begin", ctypes.c_void_p),
    )


def _library_of(address: int) -> int | None:
    """Where the shared library begins that an address lies in; None: in none."""
    info = _SymbolInfo()
    find = ctypes.CDLL(None).dladdr
    find.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SymbolInfo))
    find(address, ctypes.byref(info))
    begin: int | None = info.file_begin
    return begin


def _check_release(layout: Layout) -> None:
    output, node = _sample()
    begin = base(node)
    (vtable,) = words(begin, 1)
    (release,) = words(vtable // _WORD + layout.release_slot, 1)
    if _library_of(release) != _library_of(_copy_slices()[1]):  # what is called must be code
        raise _refusal("Node::release_variables")
    _releaser(layout.release_slot, vtable)(begin * _WORD)
    try:
        cast("Any", node)._saved_result  # noqa: B018
    except RuntimeError:
        pass
    else:
        raise _refusal("Node::release_variables")
    del output


@functools.cache
def calibrate() -> Layout:
    """Find where a node keeps what; the experiments run once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it elsewhere.
    """
    sequence = _sequence_word()
    tensor_pre = _changed("the list of tensor hooks", lambda out, _: out.register_hook(lambda g: g))
    pre = _changed("the list of pre-hooks", lambda _, node: node.register_prehook(lambda g: g))
    post = _changed(
        "the list of post-hooks",
        lambda _, node: node.register_hook(lambda outputs, _: outputs),
    )
    retains = _changed("the retain_grad hooks", lambda out, _: out.retain_grad(), becomes=1)
    layout = Layout(
        sequence_nr=sequence,
        topological_nr=_topological_word(sequence),
        pre_hooks=_vector_end(pre),
        tensor_pre_hooks=_vector_end(tensor_pre),
        retains_grad_hooks=retains[0],
        post_hooks=_vector_end(post),
        num_inputs=_size_word(),
        release_slot=_release_slot(),
        function_cdata=_function_cdata(),
        autograd_meta=(meta := _autograd_meta()),
        grad_accumulator=_grad_accumulator(meta),
        leaf_hooks=_leaf_hooks(meta),
    )
    order = layout.pre_hooks, layout.tensor_pre_hooks, layout.retains_grad_hooks, layout.post_hooks
    if list(order) != sorted(order):
        raise _refusal("the lists of hooks in their order")
    _check_release(layout)
    return layout


_TENSOR_WORDS = 7  # of a TensorImpl: what comes before its sizes
_META_WORDS = 16


def _pointer() -> int:
    """The one word of a tensor's Python object that holds ``_cdata``, be it a parameter or not."""
    tensors = torch.ones(2, device="cpu"), Parameter(torch.ones(3, device="cpu"))
    found = [
        i
        for i in range(object.__basicsize__ // _WORD, Tensor.__basicsize__ // _WORD)
        if all(MEMORY[(id(each) >> 3) + i] == cast("Any", each)._cdata for each in tensors)
    ]
    if len(found) != 1:
        raise support.refusal("the TensorImpl was not found behind a tensor")
    return found[0]


POINTER = _pointer()
"""Word of a tensor's Python object that points to its ``TensorImpl`` (THPVariable)."""


def tensor_base(tensor: Tensor) -> int:
    """Word number of the ``TensorImpl`` behind ``tensor``."""
    return MEMORY[(id(tensor) >> 3) + POINTER] >> 3


def _autograd_meta() -> int:
    plain, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    without, with_meta = (words(tensor_base(each), _TENSOR_WORDS) for each in (plain, leaf))
    found = [
        i for i in range(_TENSOR_WORDS) if without[i] == 0 and with_meta[i] > _LOWEST_HEAP_ADDRESS
    ]
    if len(found) != 1:
        raise _refusal("a tensor's AutogradMeta")
    return found[0]


def _meta(leaf: Tensor, autograd_meta: int) -> int:
    return words(tensor_base(leaf) + autograd_meta, 1)[0] // _WORD


def _grad_accumulator(autograd_meta: int) -> int:
    leaf = torch.ones(2, requires_grad=True)
    with torch.enable_grad():
        accumulator = cast("Node", leaf.exp().grad_fn).next_functions[0][0]
    meta = words(_meta(leaf, autograd_meta), _META_WORDS)
    wanted = base(cast("Node", accumulator)) * _WORD
    if wanted in meta:
        return meta.index(wanted)
    raise _refusal("a leaf's AccumulateGrad")


def _leaf_hooks(autograd_meta: int) -> int:
    leaf = torch.ones(2, requires_grad=True)
    begin = _meta(leaf, autograd_meta)
    before = words(begin, _META_WORDS)
    leaf.register_hook(lambda gradient: gradient)
    after = words(begin, _META_WORDS)
    return _vector_end([i for i in range(_META_WORDS) if before[i] != after[i]])


def leaf_hook_list(leaf: Tensor) -> list[int]:
    """Addresses of a leaf's tensor hooks (``impl::hooks``), as :func:`hook_list` has a node's."""
    layout = calibrate()
    meta = MEMORY[tensor_base(leaf) + layout.autograd_meta] // _WORD
    return hook_list(meta, layout.leaf_hooks)


def grad_accumulator(leaf: Tensor) -> int:
    """Word number of a leaf's AccumulateGrad (``impl::try_get_grad_accumulator``), or 0.

    A leaf that no graph has used has none, and after ``set_`` it gets a new one.
    """
    layout = calibrate()
    meta = MEMORY[tensor_base(leaf) + layout.autograd_meta] // _WORD
    return MEMORY[meta + layout.grad_accumulator] // _WORD if meta else 0


def hook_list(node_base: int, end_word: int) -> list[int]:
    """Addresses of the hook objects in the ``std::vector`` whose end pointer is at ``end_word``."""
    begin, end = MEMORY[node_base + end_word - 1], MEMORY[node_base + end_word]
    return MEMORY[begin // _WORD : end // _WORD]


class PythonHooks(NamedTuple):
    """What ``PyFunctionTensorPreHook``, ``PyFunctionPreHook`` and ``PyFunctionPostHook`` hold."""

    hooks: dict[int, Callable[..., Any]]
    """The live dict that ``RemovableHandle`` removes from."""
    value_idx: int
    """The input a tensor hook belongs to; means nothing for the other kinds."""


def python_hooks(hook: int) -> PythonHooks | None:
    """The Python hooks behind the hook object at that address, or None for a C++ hook."""
    vtable, hooks, value_idx = MEMORY[hook // _WORD : hook // _WORD + 3]
    if vtable not in python_hook_vtables():
        return None
    return PythonHooks(ctypes.cast(hooks, ctypes.py_object).value, value_idx & 0xFFFFFFFF)


@functools.cache
def python_hook_vtables() -> frozenset[int]:
    """First words of the three kinds of Python hook objects, learnt from hooks made for it."""
    layout = calibrate()
    output, node = _sample()
    output.register_hook(lambda gradient: gradient)
    node.register_prehook(lambda gradients: gradients)
    handle = node.register_hook(lambda outputs, _: outputs)
    found = []
    for end in (layout.tensor_pre_hooks, layout.pre_hooks, layout.post_hooks):
        first, last = words(base(node) + end - 1, 2)
        if last - first != _WORD:
            raise _refusal("a list of hooks")
        (hook,) = words(first // _WORD, 1)
        found.append(words(hook // _WORD, 2))
    if found[0][1] != id(cast("Any", output)._backward_hooks):
        raise _refusal("the dict of tensor hooks")
    if found[2][1] != id(handle.hooks_dict_ref()):
        raise _refusal("the dict of post-hooks")
    return frozenset(entry[0] for entry in found)


class _Releasers(dict[int, "Callable[[int], None]"]):
    """``Node::release_variables`` of each class of nodes, by its vtable: a node's first word.

    What it holds is called with the node's address.
    """

    def __missing__(self, vtable: int) -> Callable[[int], None]:
        release = _releaser(calibrate().release_slot, vtable)
        self[vtable] = release
        return release


def _releaser(release_slot: int, vtable: int) -> Callable[[int], None]:
    entry = MEMORY[vtable // _WORD + release_slot]
    return cast("Callable[[int], None]", _release_type(entry))


releasers = _Releasers()
