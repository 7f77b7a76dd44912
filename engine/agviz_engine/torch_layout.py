"""Where torch keeps what, read in place: the only module that follows torch's pointers.

Python does not show whether a C++ node has tensor hooks, how many inputs it takes, its topological
number, or the layout and ``grad_dtype`` that an input expects, and offers no way to call
``Node::release_variables``. What it does show of a tensor, question by question, runs through code
that a convolution has driven out of all caches, so that a gradient's shape, strides, dtype, layout
and device cost more than all else the engine does. All of it lies side by side in
``torch::autograd::Node``, ``InputMetadata`` and ``TensorImpl`` (``torch/csrc/autograd/node.h``,
``input_metadata.h``, ``c10/core/TensorImpl.h``): plain words, which are read and never written.

Note [What is checked]
:func:`calibrate_node`, :func:`calibrate_tensor` and :func:`calibrate_metadata` find each position
by an experiment on objects made for the purpose (a word that changes when a hook is registered is
that hook's word), find the virtual function through the one implementation that libtorch exports
by name, and refuse with :class:`~agviz_engine.errors.UnsupportedTorchError` where an experiment
does not come out. A tensor's address is found through ``_cdata``, the size of an edge by nodes with
one, two and three of them. Assumed, with an experiment that would contradict it:

- a C++ node's address follows the head of its Python object (its sequence number is set and found);
- a list begins with pointers to its begin and its end (the end moves when it gets an element);
- the base class of nodes takes up at most ``_SEARCHED`` words;
- within ``InputMetadata`` options come first, then the shape, and stream, flags and ``grad_dtype``
  are in the last three words (tried with the dtypes of gradients and with an undefined input);
- sizes, strides, offset, element count, dtype and keys of a tensor follow one another;
- a storage counts its holders in the low 32 bits of a word (it is seen to count to four).

Taken for granted: what no experiment changed within such a word is padding or means nothing here,
and all classes of nodes begin with their base class.

In a torch that fits nothing of this, a word they follow need not be a pointer; so they read through
:func:`agviz_engine.checked_memory.words`, where the kernel looks whether an address is one, and a
wrong one is refused and does not end the process. Only the words of a Python object that is at hand
are read in place there.

All other functions read in place, unchecked: the kernel's look costs two system calls, a word a
tenth of a microsecond, and every node has a dozen read. They may, because they follow only what the
experiments found to be a pointer, within objects that the caller keeps alive.

Objects go by word numbers: an address divided by 8. ``MEMORY`` and ``BYTES`` are for this module;
others have functions, and, for what is read of every node, fields to index with the node's word
number: that costs no call.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz_engine import support
from agviz_engine.checked_memory import words
from agviz_engine.dense import is_dense
from agviz_engine.node import FUNCTION_BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.autograd.graph import Node

    from agviz_engine.errors import UnsupportedTorchError

_WORD = ctypes.sizeof(ctypes.c_uint64)
_SEARCHED = 36  # words of a node that an experiment compares: at least all of the base class
_CPP_FUNCTION_CDATA = object.__basicsize__  # THPCppFunction: PyObject_HEAD, then cdata
_COPY_SLICES_VTABLE = "_ZTVN5torch8autograd10CopySlicesE"
_COPY_SLICES_RELEASE = "_ZN5torch8autograd10CopySlices17release_variablesEv"
_SEQUENCE_NR = 2**41 + 7  # that no other word has
_VTABLE_SLOTS = 40
_VTABLE_HEADER = 2  # offset to top, type info: the virtual functions begin behind them

BYTES = memoryview((ctypes.c_uint64 * 2**59).from_address(0)).cast("B")
"""This process's memory by address, for ``struct.unpack_from``."""
MEMORY = BYTES.cast("Q")
"""The same in words of 8 bytes: one read costs a tenth of a ``from_address``.

Indexed with a word number, which is an address divided by 8.
"""

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


def node_base(node: Node, cdata: int = _CPP_FUNCTION_CDATA) -> int:
    """Word number of the C++ object behind ``node``, whose pointer is at byte ``cdata``.

    The node's word ``i`` is ``MEMORY[node_base(node) + i]``, as long as ``node`` is alive.
    """
    return MEMORY[(id(node) + cdata) // _WORD] // _WORD


def _words(node: Node) -> list[int]:
    return words(node_base(node), _SEARCHED)


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


def _refusal(what: str, where: str = "its nodes") -> UnsupportedTorchError:
    return support.refusal(f"{what} was not found in {where}")


def _inputs_word() -> int:
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


_LOWEST_HEAP_ADDRESS = 2**20


def _edges_word() -> int:
    """Begin pointer of ``next_edges_``: the list grows by the same with each edge that a node has.

    How many bytes an edge takes differs: it begins with a plain pointer or with a shared one.
    """
    with torch.enable_grad():
        child = torch.ones(2, requires_grad=True).exp()
        nodes = [cast("Node", torch.stack([child] * count).grad_fn) for count in (1, 2, 3)]
    views = [_words(node) for node in nodes]
    wanted = node_base(cast("Node", child.grad_fn))
    for i in range(_SEARCHED - 1):
        one, two, three = (view[i + 1] - view[i] for view in views)
        if (
            one >= 2 * _WORD
            and (two, three) == (2 * one, 3 * one)
            and all(words(view[i] // _WORD, 1)[0] // _WORD == wanted for view in views)
        ):
            return i
    raise _refusal("the list of edges")


def _function_cdata() -> int:
    edges = _edges_word()
    with torch.enable_grad():
        inner = cast("Any", _Clone).apply(torch.ones(2, requires_grad=True))
        outer = inner.exp()
    wanted = words(_words(cast("Node", outer.grad_fn))[edges] // _WORD, 1)[0] // _WORD
    function = cast("Node", inner.grad_fn)
    for offset in range(object.__basicsize__, FUNCTION_BASE.__basicsize__, _WORD):
        if node_base(function, offset) == wanted:
            return offset
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
    begin = node_base(node)
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
def calibrate_node() -> Layout:
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
        num_inputs=_inputs_word(),
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
    wanted = node_base(cast("Node", accumulator)) * _WORD
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
    """Addresses of a leaf's tensor hooks (``impl::hooks``), as :func:`pre_hooks` has a node's."""
    return _hook_list(_autograd_meta_of(leaf), NODE.leaf_hooks)


def grad_accumulator(leaf: Tensor) -> int:
    """Word number of a leaf's AccumulateGrad (``impl::try_get_grad_accumulator``), or 0.

    A leaf that no graph has used has none, and after ``set_`` it gets a new one.
    """
    meta = _autograd_meta_of(leaf)
    return MEMORY[meta + NODE.grad_accumulator] // _WORD if meta else 0


def _hook_list(node_base: int, end_word: int) -> list[int]:
    """Addresses of the hook objects in the ``std::vector`` whose end pointer is at ``end_word``."""
    begin, end = MEMORY[node_base + end_word - 1], MEMORY[node_base + end_word]
    return MEMORY[begin // _WORD : end // _WORD].tolist()


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
    output, node = _sample()
    output.register_hook(lambda gradient: gradient)
    node.register_prehook(lambda gradients: gradients)
    handle = node.register_hook(lambda outputs, _: outputs)
    found = []
    for end in (NODE.tensor_pre_hooks, NODE.pre_hooks, NODE.post_hooks):
        first, last = words(node_base(node) + end - 1, 2)
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
        release = _releaser(NODE.release_slot, vtable)
        self[vtable] = release
        return release


def _releaser(release_slot: int, vtable: int) -> Callable[[int], None]:
    entry = MEMORY[vtable // _WORD + release_slot]
    return cast("Callable[[int], None]", _release_type(entry))


releasers = _Releasers()

NODE = calibrate_node()
_AUTOGRAD_META, _LEAF_HOOKS = NODE.autograd_meta, NODE.leaf_hooks


def _field(word: int, form: Literal["Q", "q"] = "Q") -> memoryview[int]:
    """``MEMORY`` from a word of a node on: indexed with the node's word number it is that word."""
    return BYTES[word * _WORD :].cast(form)


pointers = _field(0)
"""Pointers of a Python object: indexed with its word number and that of the pointer within it."""
vtables = pointers
"""Address of the virtual table of a node's class."""
num_inputs = _field(NODE.num_inputs)
"""The low 32 bits are the number of inputs that a node takes."""
sequence_nr = _field(NODE.sequence_nr)
"""The later a node was made, the higher; ``UINT64_MAX`` for an AccumulateGrad."""
topological_nr = _field(NODE.topological_nr)
"""Length of the longest path from a node to a leaf."""
signed_sequence_nr = _field(NODE.sequence_nr, "q")
signed_topological_nr = _field(NODE.topological_nr, "q")
had_post_hooks = _field(NODE.post_hooks)
"""0 where a node never had a post-hook."""


def release_variables(node: int) -> None:
    """Call ``Node::release_variables`` of the node's own class."""
    releasers[vtables[node]](node << 3)


def _hook_words() -> Callable[[int], tuple[int, int, int, int]]:
    places = NODE.pre_hooks, NODE.tensor_pre_hooks, NODE.retains_grad_hooks, NODE.post_hooks
    gaps = (_WORD * (after - before - 1) for before, after in itertools.pairwise(places))
    words = struct.Struct("=Q" + "".join(f"{gap}xQ" for gap in gaps))
    first = BYTES[NODE.pre_hooks * _WORD :]
    read: Callable[[int], Any] = functools.partial(words.unpack_from, first)
    return read


had_hooks = _hook_words()
"""Of a node's address: 0 where it never had pre-hooks, and tensor pre-hooks; the number of its
retain_grad hooks; 0 where it never had post-hooks."""


def retains_grad(node: int) -> bool:
    """Whether a node has retain_grad hooks."""
    return bool(MEMORY[node + NODE.retains_grad_hooks])


def pre_hooks(node: int) -> list[int]:
    """Addresses of a node's pre-hooks, for :func:`python_hooks`."""
    return _hook_list(node, NODE.pre_hooks)


def tensor_pre_hooks(node: int) -> list[int]:
    """Addresses of the tensor hooks of a node."""
    return _hook_list(node, NODE.tensor_pre_hooks)


def post_hooks(node: int) -> list[int]:
    """Addresses of the post-hooks of a node."""
    return _hook_list(node, NODE.post_hooks)


def _autograd_meta_of(tensor: Tensor) -> int:
    return MEMORY[(MEMORY[(id(tensor) >> 3) + POINTER] >> 3) + _AUTOGRAD_META] >> 3


def leaf_has_tensor_hooks(leaf: Tensor) -> bool:
    """Whether a leaf that a graph has used has tensor hooks."""
    end = _autograd_meta_of(leaf) + _LEAF_HOOKS
    return MEMORY[end - 1] != MEMORY[end]


@functools.cache
def grad_fn_word() -> int:
    """Word of an ``AutogradMeta`` that points to the node; 0 where it is not found."""
    with torch._C.DisableTorchFunction(), torch.inference_mode(mode=False), torch.enable_grad():
        tensor = torch.ones(2, requires_grad=True, device="cpu").exp()
        node = tensor.grad_fn
        meta = _autograd_meta_of(tensor)
    if node is None or not meta:
        return 0
    wanted = node_base(node)
    found = [i for i, word in enumerate(words(meta, NODE.grad_accumulator)) if word >> 3 == wanted]
    return found[0] if len(found) == 1 else 0


def grad_fn_base(tensor: Tensor, word: int) -> int:
    """Word number of the node that made a tensor, by :func:`grad_fn_word`; 0: it is a leaf.

    ``tensor.grad_fn`` would give the node a Python object, which makes it dear to free, and it and
    ``tensor.is_leaf`` bring that of a view up to date before its time, which torch may refuse.
    """
    meta = _autograd_meta_of(tensor)
    return MEMORY[meta + word] >> 3 if meta and word else 0


# -- tensors --------------------------------------------------------------------------------------

DIMENSIONS = 5
"""As many sizes and strides are kept in the tensor itself."""
_dispatch_keys = cast("Any", torch._C)._dispatch_keys
_IMPL_SEARCHED = 16  # words
_OFFSET_AND_NUMEL = 2  # words between the strides and the dtype
_DTYPE, _KEYS = 1 + 2 * DIMENSIONS + _OFFSET_AND_NUMEL, 2 + 2 * DIMENSIONS + _OFFSET_AND_NUMEL
_CODE = 0xFFFF  # of the dtype's word; device and flags follow, with bits that nobody sets
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
)
_SHAPES_KEPT = 4096
_T = TypeVar("_T")
_HOLDERS = 2**32 - 1
_REFERENCES_SEARCHED = 4  # words


class ImplLayout(NamedTuple):
    """How the ``TensorImpl`` of a plain tensor lies in memory."""

    sizes: int
    """Byte at which the number of dimensions is; sizes, strides and the rest follow."""
    keys: int
    """Its dispatch keys, as one number."""
    dtypes: dict[int, torch.dtype]
    """Those of gradients, by ``ScalarType`` number."""
    storage: int
    """Word that points to the ``StorageImpl``."""
    references: int
    """Word of a ``StorageImpl`` whose low 32 bits count its holders."""


def _sizes_words(*shape: int) -> list[int]:
    """Address of the number of dimensions, with sizes, strides and the rest behind it."""
    tensor = torch.empty(2, *shape, device="cpu")[1]
    dimensions, all_words = len(shape), words(tensor_base(tensor), _IMPL_SEARCHED + _DTYPE)
    found = []
    for i in range(_IMPL_SEARCHED):
        here = all_words[i : i + _DTYPE]
        strides = here[1 + DIMENSIONS :][:dimensions]
        if (here[0], here[1 : 1 + dimensions], strides, here[-2:]) == (
            dimensions,
            list(shape),
            list(tensor.stride()),
            [tensor.numel(), tensor.numel()],
        ):
            found.append(i)
    return found


@functools.cache
def calibrate_tensor() -> ImplLayout:
    """Find how a tensor lies in memory; once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it in another way.
    """
    found = _sizes_words(7, 11, 13)
    if len(found) != 1 or _sizes_words(2, 3, 5, 7, 11) != found or _sizes_words(17) != found:
        raise _refusal("the sizes of a tensor", "its TensorImpl")

    def word(tensor: Tensor, number: int) -> int:
        return words(tensor_base(tensor) + found[0] + number, 1)[0]

    tensor = torch.ones(2, 3, dtype=torch.float32, device="cpu")
    plain = [tensor, tensor.t(), tensor[1:], Parameter(tensor), tensor.double()]
    keys = {word(each, _KEYS) for each in plain}
    for each in (*plain, tensor.to("meta"), tensor.to(torch.complex64).conj()):
        if word(each, _KEYS) != _dispatch_keys(each).raw_repr():
            raise _refusal("the dispatch keys of a tensor", "its TensorImpl")
    if len(keys) != 1:
        raise _refusal("the dispatch keys of a tensor", "its TensorImpl")
    dtypes = {word(tensor.to(dtype), _DTYPE) & _CODE: dtype for dtype in _DTYPES}
    if len(dtypes) != len(_DTYPES):
        raise _refusal("the dtype of a tensor", "its TensorImpl")
    storage = _storage_word(found[0])
    return ImplLayout(found[0] * _WORD, keys.pop(), dtypes, storage, _reference_word(storage))


def _storage_word(end: int) -> int:
    tensor = torch.ones(2, device="cpu")
    storage = tensor.untyped_storage()._cdata
    found = [i for i, word in enumerate(words(tensor_base(tensor), end)) if word == storage]
    if len(found) != 1:
        raise _refusal("the storage of a tensor", "its TensorImpl")
    return found[0]


def _reference_word(storage: int) -> int:
    tensor = torch.ones(2, device="cpu")
    begin = words(tensor_base(tensor) + storage, 1)[0] // _WORD
    counts = []
    views: list[Tensor] = []
    for _ in range(4):
        counts.append([word & _HOLDERS for word in words(begin, _REFERENCES_SEARCHED)])
        views.append(tensor[:1])
    found = [i for i, count in enumerate(zip(*counts, strict=True)) if count == (1, 2, 3, 4)]
    if len(found) != 1:
        raise _refusal("the number of holders of a tensor", "its TensorImpl")
    return found[0]


SIZES, PLAIN_KEYS, DTYPES, STORAGE, _REFERENCES = calibrate_tensor()
_SIZES = DIMENSIONS * _WORD  # bytes
_unpack_tensor = cast(
    "Callable[[memoryview, int], tuple[int, bytes, bytes, int, int]]",
    struct.Struct(f"=Q{_SIZES}s{_SIZES}s{_OFFSET_AND_NUMEL * _WORD}xH6xQ").unpack_from,
)
"""Number of dimensions, sizes and strides as they lie in memory, number of the dtype, keys."""
Block: TypeAlias = tuple[bytes, bytes, bytes]
"""All that, in three pieces: number of dimensions and sizes, strides, the rest.

Equal blocks are those of tensors that are alike, and a block that was looked through once need not
be again. What lies behind the last size and the last stride was never set, and is left out.
"""


class _ByDimensions(dict[int, "Callable[[memoryview, int], Any]"]):
    """What unpacks something with sizes, by the number of dimensions; made when first asked for."""

    def __init__(self, layout: Callable[[int, int], str]) -> None:
        self._layout = layout
        """Of the bytes that sizes take up, and of those reserved for more."""

    def __missing__(self, dimensions: int) -> Callable[[memoryview, int], Any]:
        used = min(dimensions, DIMENSIONS) * _WORD
        unpack = struct.Struct(self._layout(used, _SIZES - used)).unpack_from
        if dimensions <= DIMENSIONS:
            self[dimensions] = unpack
        return unpack


_read_block = _ByDimensions(
    lambda used, unused: (
        f"={_WORD + used}s{unused}x{used}s{unused}x{(_OFFSET_AND_NUMEL + 2) * _WORD}s"
    )
)
_contiguous: dict[bytes, bytes] = {}
"""Strides by sizes."""
_contiguous_blocks: set[Block] = set()
"""Those of plain, contiguous tensors."""


def _remember(found: set[_T], what: _T) -> bool:
    """Put ``what`` into a set that does not grow for ever; True."""
    if len(found) >= _SHAPES_KEPT:
        found.clear()
    found.add(what)
    return True


def tensor_block(tensor: Tensor) -> Block:
    """What :func:`are_alike` compares: equal blocks are those of tensors that are alike."""
    address = MEMORY[(id(tensor) >> 3) + POINTER] + SIZES
    block: Block = _read_block[MEMORY[address >> 3]](BYTES, address)
    return block


BLOCK_PLACES = (POINTER * _WORD, SIZES, DIMENSIONS, _SIZES, (_OFFSET_AND_NUMEL + 2) * _WORD)
"""For compiled code that reads blocks itself, all but the third in bytes: where a tensor's Python
object points to the ``TensorImpl``; where there the number of dimensions is, behind which sizes,
strides and the rest of the block follow; for how many dimensions there is room; how much that is
for sizes, and for strides; how long the rest is."""


def storage_address(tensor: Tensor) -> int:
    """Address of a tensor's ``StorageImpl``; 0 where it has none."""
    return MEMORY[(MEMORY[(id(tensor) >> 3) + POINTER] >> 3) + STORAGE]


def has_own_storage(tensor: Tensor) -> bool:
    """Whether no other tensor has the storage of this one, which must have one."""
    return MEMORY[(storage_address(tensor) >> 3) + _REFERENCES] & _HOLDERS == 1


def are_alike(gradient: Tensor, variable: Tensor) -> bool:
    """Whether both are plain, contiguous and alike in dtype and shape. False says nothing.

    Both must be of type Tensor itself or Parameter.
    """
    block = tensor_block(gradient)
    if block == tensor_block(variable) and block in _contiguous_blocks:
        return True
    return _are_alike(gradient, variable) and _remember(_contiguous_blocks, block)


def _are_alike(gradient: Tensor, variable: Tensor) -> bool:
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    other = MEMORY[(id(variable) >> 3) + POINTER] + SIZES
    dimensions, sizes, strides, code, keys = _unpack_tensor(BYTES, address)
    theirs = _unpack_tensor(BYTES, other)
    if keys != PLAIN_KEYS or dimensions > DIMENSIONS:
        return False
    end = dimensions << 3
    sizes, strides = sizes[:end], strides[:end]
    return (dimensions, sizes, strides, code, keys) == (
        theirs[0],
        theirs[1][:end],
        theirs[2][:end],
        *theirs[3:],
    ) and strides == (_contiguous.get(sizes) or _contiguous_strides(sizes))


def fits_into(gradient: Tensor, tensor: Tensor) -> bool:
    """Whether both are plain and alike in dtype and shape, and ``tensor`` is dense.

    Both must be of type Tensor itself or Parameter. False says nothing.
    """
    ours = _unpack_tensor(BYTES, MEMORY[(id(gradient) >> 3) + POINTER] + SIZES)
    theirs = _unpack_tensor(BYTES, MEMORY[(id(tensor) >> 3) + POINTER] + SIZES)
    dimensions, keys = theirs[0], theirs[-1]
    if keys != PLAIN_KEYS or dimensions > DIMENSIONS:
        return False
    end = dimensions << 3
    sizes = theirs[1][:end]
    return (dimensions, sizes, *theirs[3:]) == (ours[0], ours[1][:end], *ours[3:]) and (
        theirs[2][:end] == _contiguous_strides(sizes) or is_dense(tensor)
    )


def _contiguous_strides(sizes: bytes) -> bytes:
    """Strides of a contiguous tensor, the usual ones where a dimension has size 1."""
    strides = _contiguous.get(sizes)
    if strides is None:
        if len(_contiguous) >= _SHAPES_KEPT:
            _contiguous.clear()
        words = struct.Struct(f"={len(sizes) // _WORD}Q")
        shape = words.unpack(sizes)
        steps = itertools.accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1)
        strides = _contiguous[sizes] = words.pack(*reversed(tuple(steps))) if shape else b""
    return strides


# -- what a node expects of its inputs ------------------------------------------------------------

_TEXTS_KEPT = 4096
_LARGEST_SIZE = 2**62 - 1
"""A word with a higher bit set points to a symbol (``c10/core/SymInt.h``)."""
_LIMIT = 24  # words; the struct has 12
_SHAPE_POINTER, _SHAPE_SIZE, _SHAPE_INLINE = 1, 2, 3  # SmallVector<SymInt, 5> behind the options
_INLINE_DIMENSIONS = 5
_TAIL_MASK = 2**40 - 1  # what follows is padding
_LAYOUTS = {  # enum Layout, c10/core/Layout.h
    0: torch.strided,
    1: torch.sparse_coo,
    2: torch.sparse_csr,
    3: cast("Any", torch)._mkldnn,
    4: torch.sparse_csc,
    5: torch.sparse_bsr,
    6: torch.sparse_bsc,
    7: torch.jagged,
}


class Kind(NamedTuple):
    """All that an input expects but the shape; inputs of one kind share one object."""

    dtype: torch.dtype | None
    """``grad_dtype_``; None where any dtype will do."""
    input_dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    is_tensor_subclass: bool
    is_nested: bool
    is_cpu: bool
    is_defined: bool
    """False for an output of the forward that was not a tensor (``was_default_constructed_``)."""


class InputStream(NamedTuple):
    """The stream on which the forward made the tensor of an input (``stream_``)."""

    device_type: int
    """``c10::DeviceType``, like ``torch.Stream.device_type``."""
    device_index: int
    stream_id: int


class MetadataLayout(NamedTuple):
    """How the array of ``InputMetadata`` lies in memory, in words of 8 bytes."""

    array: int
    """Word of the node that points to it."""
    stride: int


@functools.cache
def calibrate_metadata() -> MetadataLayout:
    """Find how the metadata lies in memory; once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it in another way.
    """
    array = NODE.num_inputs - 1
    with torch.enable_grad():
        node = cast("Node", torch.ones(6, requires_grad=True).split(2)[0].grad_fn)
    stride = _stride(words(node_base(node) + array, 1)[0])
    layout = MetadataLayout(array, stride)
    for code, dtype in DTYPES.items():
        with torch.enable_grad():
            leaf = torch.empty(1, dtype=dtype, requires_grad=True)
            accumulator = torch.autograd.graph.get_gradient_edge(leaf).node
        begin = words(node_base(accumulator) + array, 1)[0] // _WORD
        metadata = words(begin, stride)
        if metadata[0] >> 16 & 0xFFFF != code:
            raise _refusal("the dtype", "a node's input metadata")
        if metadata[-3] & 0xFFFF != metadata[0] & 0xFFFF:
            raise _refusal("the stream", "a node's input metadata")
        if metadata[-1] >> 24 & 0xFFFF != code | 1 << 8:
            raise _refusal("grad_dtype", "a node's input metadata")
    _check_undefined(layout)
    return layout


def _stride(address: int) -> int:
    found = words(address // _WORD, 2 * _LIMIT)
    if found[_SHAPE_POINTER] != address + _SHAPE_INLINE * _WORD or found[_SHAPE_INLINE] != 2:
        raise _refusal("the shape", "a node's input metadata")
    for stride in range(_SHAPE_INLINE + _INLINE_DIMENSIONS, _LIMIT):
        inline = address + (stride + _SHAPE_INLINE) * _WORD
        if found[stride + _SHAPE_POINTER] == inline and found[stride] == found[0]:
            return stride
    raise _refusal("the size", "a node's input metadata")


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> tuple[int, Tensor]:
        return 1, value.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[1]


def _check_undefined(layout: MetadataLayout) -> None:
    with torch.enable_grad():
        output = cast("Any", _Mixed).apply(torch.ones(2, requires_grad=True))[1]
    node = node_base(output.grad_fn, NODE.function_cdata)
    begin = words(node + layout.array, 1)[0] // _WORD
    both = words(begin, 2 * layout.stride)
    if [both[layout.stride - 1] >> 16 & 0xFF, both[-1] >> 16 & 0xFF] != [1, 0]:
        raise _refusal("whether an input is defined", "a node's input metadata")


_ARRAY, _STRIDE = calibrate_metadata()
_TAIL = _STRIDE - 1
_BYTES_EACH = _STRIDE * _WORD
_Metadata: TypeAlias = tuple[bytes, int, bytes, bytes]
"""Options, number of dimensions, sizes, what _TAIL_MASK leaves of the tail."""
_read_metadata = _ByDimensions(
    lambda used, unused: (
        f"=8s8xI4x{used}s{unused}x{(_TAIL - _SHAPE_INLINE - _INLINE_DIMENSIONS) * _WORD}x5s"
    )
)
_kinds: dict[tuple[int, int], Kind] = {}


class NodeInMemory(Protocol):
    """A node, and where it is: a :class:`~agviz_engine.node.NodeRef`."""

    node: Any
    base: int
    """Word number of the C++ node; 0 for a node that torch does not know."""

    @property
    def num_inputs(self) -> int:
        """Number of the gradients that it expects."""

    @property
    def input_shapes(self) -> str:
        """Shapes of the gradients that the node expects, asked of torch."""


def expectation(ref: NodeInMemory, slot: int) -> tuple[Kind, tuple[int, ...] | None]:
    """Kind and shape of the input ``slot`` of a node.

    The shape is None where it is not made of plain numbers: nested tensors.
    """
    begin = (MEMORY[ref.base + _ARRAY] >> 3) + slot * _STRIDE
    options, tail = MEMORY[begin], MEMORY[begin + _TAIL] & _TAIL_MASK
    kind = _kinds.get((options, tail))
    if kind is None:
        kind = _kinds[options, tail] = _kind(ref.node, slot, options, tail)
        is_plain = kind.layout is torch.strided and not (kind.is_nested or kind.is_tensor_subclass)
        if is_plain and kind.is_cpu and kind.dtype in _CODES:
            facts = _metadata(begin * _WORD)
            _plain[facts[0], facts[-1]] = _CODES[kind.dtype]
    if kind.is_nested:
        return kind, None
    size = MEMORY[begin + _SHAPE_SIZE] & 0xFFFFFFFF
    begin = (
        begin + _SHAPE_INLINE if size <= _INLINE_DIMENSIONS else MEMORY[begin + _SHAPE_POINTER] >> 3
    )
    return kind, tuple(MEMORY[begin : begin + size])


_CODES: dict[torch.dtype | None, int] = {dtype: code for code, dtype in DTYPES.items()}
_plain: dict[tuple[bytes, bytes], int] = {}
"""``ScalarType`` number of the kinds that :func:`first_to_judge` can judge."""
_texts: dict[_Metadata, str] = {}
"""Of the only shape, by what lies in memory."""
_fitting: dict[Block, _Metadata] = {}
"""What a tensor was last found to fit: of metadata and of the tensor, all that is asked for it."""
_reduced: dict[tuple[_Metadata, Block], tuple[int, ...]] = {}
"""The same, where only the shape differs: what is expected."""


def _metadata(address: int) -> _Metadata:
    """What a node expects of the input whose metadata lies there."""
    dimensions = MEMORY[(address >> 3) + _SHAPE_SIZE] & 0xFFFFFFFF
    metadata: _Metadata = _read_metadata[dimensions](BYTES, address)
    return metadata


def first_to_judge(
    edges: Sequence[tuple[NodeInMemory, int] | None], gradients: Sequence[Tensor | None]
) -> int:
    """Position of the first gradient that is not just what its edge's input expects.

    Others may fit, too: subclasses, whose sizes may be symbols that a look would pin down, nested
    and sparse tensors and those of an accelerator are not judged here.

    Returns:
        The position; -1: all fit; 0 where there are more or fewer gradients than edges.
    """
    if len(edges) != len(gradients):
        return 0
    for i, edge in enumerate(edges):
        gradient = gradients[i]
        if edge is None or gradient is None:
            continue
        if type(gradient) is not Tensor:
            return i
        # _metadata and tensor_block, written out: every gradient comes through here. Both are read
        # with the gradient's number of dimensions; what is found to fit has the same.
        ref, slot = edge
        address = MEMORY[ref.base + _ARRAY] + slot * _BYTES_EACH
        own = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
        dimensions = MEMORY[own >> 3]
        block = _read_block[dimensions](BYTES, own)
        expected = _read_metadata[dimensions](BYTES, address)
        if _fitting.get(block) != expected and not (  # three times as quick as to hash both
            expected[1] == dimensions and _do_fit(expected, gradient) and _fits(block, expected)
        ):
            return i
    return -1


def _fits(block: Block, expected: _Metadata) -> bool:
    if len(_fitting) >= _TEXTS_KEPT:
        _fitting.clear()
    _fitting[block] = expected
    return True


def reduced_shape(ref: NodeInMemory, slot: int, gradient: Tensor) -> tuple[int, ...] | None:
    """The shape to which ``gradient`` is summed down, where it differs in nothing else.

    None says nothing, as False of :func:`first_to_judge`. A broadcast bias has such a gradient in
    every pass: to ask for its metadata costs several times what the sum does.
    """
    if type(gradient) is not Tensor:
        return None
    facts = _metadata(MEMORY[ref.base + _ARRAY] + slot * _BYTES_EACH), tensor_block(gradient)
    shape = _reduced.get(facts)
    if shape is None and _differs_in_shape(facts[0], gradient):
        shape = expectation(ref, slot)[1]
        if shape is not None:
            if len(_reduced) >= _TEXTS_KEPT:
                _reduced.clear()
            _reduced[facts] = shape
    return shape


def _differs_in_shape(expected: _Metadata, gradient: Tensor) -> bool:
    options, dimensions, _, tail = expected
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    own_dimensions, _, _, code, keys = _unpack_tensor(BYTES, address)
    return (
        _plain.get((options, tail)) == code
        and keys == PLAIN_KEYS
        and max(dimensions, own_dimensions) <= _INLINE_DIMENSIONS
        and not _do_fit(expected, gradient)
    )


def _do_fit(expected: _Metadata, gradient: Tensor) -> bool:
    options, dimensions, sizes, tail = expected
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    own_dimensions, own_sizes, _, code, keys = _unpack_tensor(BYTES, address)
    end = dimensions << 3
    return (
        own_dimensions == dimensions
        and _plain.get((options, tail)) == code
        and own_sizes[:end] == sizes
        and keys == PLAIN_KEYS
        and dimensions <= _INLINE_DIMENSIONS
    )


def shapes_texts(refs: Sequence[NodeInMemory]) -> list[str]:
    """The shapes of all inputs of each node, like ``[3, 4];[5]``; empty: they are not known."""
    found = []
    for ref in refs:
        if ref.num_inputs != 1 or not ref.base:
            found.append(ref.input_shapes)
            continue
        address = MEMORY[ref.base + _ARRAY]  # _metadata, written out: every node comes through here
        dimensions = MEMORY[(address >> 3) + _SHAPE_SIZE] & 0xFFFFFFFF
        facts = _read_metadata[dimensions](BYTES, address)
        found.append(_texts.get(facts) or _text(ref, facts))
    return found


def _text(ref: NodeInMemory, facts: _Metadata) -> str:
    options, dimensions, _, tail = facts
    _, shape = expectation(ref, 0)  # which makes its kind known
    is_plain = (options, tail) in _plain and dimensions <= _INLINE_DIMENSIONS
    if not is_plain or shape is None or any(size > _LARGEST_SIZE for size in shape):
        return ref.input_shapes
    if len(_texts) >= _TEXTS_KEPT:
        _texts.clear()
    text = _texts[facts] = str(list(shape))
    return text


def stream_of(ref: NodeInMemory, slot: int) -> InputStream:
    """The stream of the input ``slot`` of a node; that of a CPU input means nothing."""
    begin = (MEMORY[ref.base + _ARRAY] >> 3) + slot * _STRIDE
    device, stream_id = MEMORY[begin + _STRIDE - 3], MEMORY[begin + _STRIDE - 2]
    return InputStream(device & 0xFF, device >> 8 & 0xFF, stream_id)


def _kind(node: Node, slot: int, options: int, tail: int) -> Kind:
    metadata = cast("Any", node)._input_metadata[slot]
    input_dtype = DTYPES.get(options >> 16 & 0xFFFF, metadata.dtype)
    has_dtype = tail >> 32 & 0xFF
    return Kind(
        dtype=DTYPES.get(tail >> 24 & 0xFF, input_dtype) if has_dtype else None,
        input_dtype=input_dtype,
        device=metadata.device,
        layout=_LAYOUTS.get(options >> 32 & 0xFF, torch.strided),
        is_tensor_subclass=bool(tail & 0xFF),
        is_nested=bool(tail >> 8 & 0xFF),
        is_cpu=metadata.device.type == "cpu",
        is_defined=not tail >> 16 & 0xFF,
    )
