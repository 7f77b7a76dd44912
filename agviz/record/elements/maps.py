"""From elements of what a function gave to those of its operands, for each kind of function.

A map is asked for a node, the number of the output, and a :data:`~agviz.record.elements.box.Box` of
that output. It gives the box of each operand that it knows, by the number of the operand among the
differentiable ones, or by the name under which the node saved a tensor that is none. What no map
knows is probed (:mod:`agviz.record.elements.probing`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import Tensor

from agviz.record.elements.box import (
    MOST,
    Axis,
    Box,
    at,
    broadcast,
    elements,
    mixed,
    reshaped,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.record.elements.forward_node import ForwardNode

log = logging.getLogger("agviz")

Operand: TypeAlias = "tuple[int | str, Box]"
Map: TypeAlias = "Callable[[ForwardNode, int, Box], Iterator[Operand] | None]"
"""None: it does not know this one."""

OPERANDS: Final[dict[str, tuple[str, ...]]] = {
    "Addmm": ("", "mat1", "mat2"),
    "Addmv": ("", "mat", "vec"),
    "Baddbmm": ("", "batch1", "batch2"),
    "Linear": ("input", "weight"),
    "Convolution": ("input", "weight"),
    "MseLoss": ("self", "target"),
    "SmoothL1Loss": ("self", "target"),
    "HuberLoss": ("self", "target"),
    "BinaryCrossEntropy": ("self", "target"),
    "BinaryCrossEntropyWithLogits": ("self", "target"),
    "NativeLayerNorm": ("input", "weight"),
    "NativeGroupNorm": ("input", "weight"),
    "NativeBatchNorm": ("input", "weight"),
    "Mv": ("self", "vec"),
    "MkldnnRnnLayer": ("input",),
}
"""By which names a function saved its operands, where these are not self and other."""
_PLAIN_OPERANDS: Final = ("self", "other")


def saved_operand(node: ForwardNode, operand: int | str) -> Tensor | None:
    """An operand to which no gradient goes, where it was saved."""
    if isinstance(operand, str):
        return node.tensor(operand)
    names = OPERANDS.get(node.name, _PLAIN_OPERANDS)
    if node.name in {"Mm", "Bmm"}:
        names = ("self", "mat2")
    name = names[operand] if operand < len(names) else ""
    return node.tensor(name) if name else None


def mapped(node: ForwardNode, slot: int, box: Box) -> list[Operand] | None:
    """The elements of each operand; None: no map knows this function."""
    how = MAPS.get(node.name)
    if how is None:
        return None
    try:
        found = how(node, slot, box)
        return None if found is None else list(found)
    except (IndexError, TypeError, ValueError):
        log.debug("the map of %s does not fit", node.full_name, exc_info=True)
        return None  # another release saves something else


# -- elementwise ----------------------------------------------------------------------------------


def _elementwise(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand]:
    for operand in range(max(len(node.operands), 2)):
        sizes = node.sizes(operand)
        if sizes is None:
            saved = saved_operand(node, operand)
            sizes = None if saved is None else tuple(saved.shape)
        if sizes is not None and len(sizes) <= len(box):
            yield operand, broadcast(box, sizes)


def _first_elementwise(_node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    """A function that normalises along axes: its result is where its operand is."""
    return iter([(0, box)]) if not slot else None


def _loss(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    if node.value("reduction") == 0:
        return _elementwise(node, slot, box)
    found: list[Operand] = []
    for operand in range(len(node.operands)):
        sizes = node.sizes(operand)
        if sizes is not None:
            found.append((operand, tuple(map(whole, sizes))))
    return iter(found)


# -- views ----------------------------------------------------------------------------------------


def _reshape(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    found = None if sizes is None else reshaped(box, sizes)
    return None if found is None else iter([(0, found)])


def _transpose(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    axes = list(box)
    if node.name == "T":
        axes.reverse()
    else:
        one, other = node.value("dim0"), node.value("dim1")
        axes[one], axes[other] = axes[other], axes[one]
    return iter([(0, tuple(axes))])


def _permute(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    found: list[Any] = [None] * len(box)
    for axis, dim in zip(box, node.value("dims"), strict=True):
        found[dim] = axis
    return iter([(0, tuple(found))])


def _expand(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    return None if sizes is None else iter([(0, broadcast(box, sizes))])


def _slice(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    dim, step = node.value("dim") % len(sizes), node.value("step")
    start = node.value("start") or 0
    start = max(0, start + sizes[dim]) if start < 0 else min(start, sizes[dim])
    return iter([(0, _shifted(box, dim, sizes[dim], lambda each: start + each * step))])


def _shifted(box: Box, dim: int, size: int, to: Callable[[int], int]) -> Box:
    """Along one axis, each coordinate is another one."""
    axis = box[dim]
    found = axis if axis.size == size and axis.at is None else Axis(size, None, axis.origin)
    if axis.at is not None:
        found = axis.moved(size, map(to, axis.at))
    return _put(box, dim, found)


def _put(box: Box, dim: int, axis: Axis) -> Box:
    axes = list(box)
    axes[dim] = axis
    return tuple(axes)


def _select(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    dim, index = node.value("dim") % len(sizes), node.value("index")
    chosen = at(sizes[dim], [index % sizes[dim]])
    return iter([(0, (*box[:dim], chosen, *box[dim:]))])


def _unbind(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    dim = node.value("dim") % len(sizes)
    chosen = at(sizes[dim], [slot])
    return iter([(0, (*box[:dim], chosen, *box[dim:]))])


def _split(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    dim = node.value("dim") % len(sizes)
    if node.name.endswith("Split"):
        begin = slot * node.value("split_size")
    else:
        begin = sum(node.value("split_sizes")[:slot])
    return iter([(0, _shifted(box, dim, sizes[dim], lambda each: begin + each))])


def _cat(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    found = [node.sizes(k) for k in range(len(node.operands))]
    if any(sizes is not None and len(sizes) != len(box) for sizes in found):
        return None  # an empty tensor of one axis, which cat leaves out
    dim = node.value("dim") % len(box)
    known = [None if sizes is None else sizes[dim] for sizes in found]
    if known.count(None) > 1:
        return None
    rest = box[dim].size - sum(size or 0 for size in known)
    lengths = [rest if size is None else size for size in known]
    begins = [sum(lengths[:k]) for k in range(len(lengths))]
    return (
        (k, _put(box, dim, _within(box[dim], begin, size)))
        for k, (begin, size) in enumerate(zip(begins, lengths, strict=True))
        if found[k] is not None
    )


def _within(axis: Axis, begin: int, size: int) -> Axis:
    """The part of an axis from ``begin`` on."""
    if axis.at is None:
        return Axis(size, None, axis.origin)
    return axis.moved(size, (each - begin for each in axis.at if begin <= each < begin + size))


def _stack(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    dim = node.value("dim") % len(box)
    rest = (*box[:dim], *box[dim + 1 :])
    chosen = range(box[dim].size) if box[dim].at is None else box[dim].at
    return ((k, rest) for k in range(len(node.operands)) if k in (chosen or ()))


def _flip(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    for dim in node.value("dims"):
        last = box[dim].size - 1
        box = _shifted(box, dim, box[dim].size, lambda each, last=last: last - each)  # type: ignore[misc]
    return iter([(0, box)])


def _roll(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    dims, shifts = node.value("dims"), node.value("shifts")
    if len(dims) != len(shifts):
        return None  # of the flattened tensor
    for dim, shift in zip(dims, shifts, strict=True):
        size = box[dim].size
        box = _shifted(box, dim, size, lambda each, by=shift, size=size: (each - by) % size)  # type: ignore[misc]
    return iter([(0, box)])


def _repeat(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    own = box[len(box) - len(sizes) :]
    found = [
        Axis(size, None, axis.origin)
        if axis.at is None
        else axis.moved(size, (each % size for each in axis.at))
        for axis, size in zip(own, sizes, strict=True)
    ]
    return iter([(0, tuple(found))])


def _pad(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, pad = node.sizes(0), node.value("pad")
    if sizes is None:
        return None
    for back in range(len(pad) // 2):
        dim = len(box) - 1 - back
        box = _put(box, dim, _within(box[dim], pad[2 * back], sizes[dim]))
    return iter([(0, box)])


# -- reductions -----------------------------------------------------------------------------------


def _reduce(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if sizes is None:
        return None
    dims = node.value("dim")
    dims = (dims,) if type(dims) is int else dims or range(len(sizes))
    return iter([(0, _unreduced(box, sizes, {dim % len(sizes) for dim in dims}))])


def _unreduced(box: Box, sizes: Sequence[int], dims: set[int]) -> Box:
    """With the axes that were reduced, whether they were kept or not."""
    if len(box) == len(sizes):
        return tuple(
            whole(size) if dim in dims else axis
            for dim, (axis, size) in enumerate(zip(box, sizes, strict=True))
        )
    others = iter(box)
    return tuple(whole(size) if dim in dims else next(others) for dim, size in enumerate(sizes))


def _chosen(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    """A function that chose along an axis, and saved which."""
    sizes, dim, indices = node.sizes(0), node.value("dim"), node.tensor("indices")
    if sizes is None or type(dim) is not int or indices is None or not sizes:
        return None if dim is not None else _reduce(node, slot, box)
    dim %= len(sizes)
    picked = _picked(indices, box)
    if picked is None:
        return _reduce(node, slot, box) if len(box) != len(sizes) else None
    chosen = at(sizes[dim], (int(each) for each in picked))
    if len(box) == len(sizes):
        return iter([(0, _put(box, dim, chosen))])
    return iter([(0, (*box[:dim], chosen, *box[dim:]))])


def _picked(indices: Tensor, box: Box) -> list[Any] | None:
    """The values of an index at some elements; None: too many."""
    wanted = elements(box)
    if wanted is None or tuple(indices.shape) != tuple(axis.size for axis in box):
        return None
    if not box:
        return [indices.item()]
    columns = torch.tensor(wanted, device=indices.device).unbind(1)
    values: list[Any] = indices[columns].tolist()
    return values


# -- indexing -------------------------------------------------------------------------------------


def _gather(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, dim, index = node.sizes(0), node.value("dim"), node.tensor("index")
    picked = None if index is None else _picked(index, box)
    if sizes is None or picked is None or len(sizes) != len(box):
        return None
    kept = [
        Axis(size, axis.at, axis.origin if size == axis.size else None)
        for axis, size in zip(box, sizes, strict=True)
    ]
    return iter([(0, _put(tuple(kept), dim, at(sizes[dim], map(int, picked))))])


def _index_select(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, index = node.sizes(0), node.tensor("index")
    if sizes is None or index is None or not sizes:
        return None
    dim = node.value("dim") % len(sizes)
    picked = _picked(index.view(-1), box[dim : dim + 1])
    chosen = mixed(sizes[dim]) if picked is None else at(sizes[dim], map(int, picked))
    found: list[Operand] = [(0, _put(box, dim, chosen))]
    if index.dim() == 1:
        found.append(("index", box[dim : dim + 1]))
    return iter(found)


def _index(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, given = node.sizes(0), node.tensors("indices")
    if sizes is None:
        return None
    columns: list[Tensor | None] = []
    for index in given:
        if index is not None and index.dtype in {torch.bool, torch.uint8}:
            columns += index.nonzero().unbind(1)
        else:
            columns.append(index)
    dims = [dim for dim, index in enumerate(columns) if index is not None]
    if not dims or len(columns) > len(sizes):
        return None
    indices = torch.broadcast_tensors(*[index for index in columns if index is not None])
    depth, others = indices[0].dim(), len(sizes) - len(dims)
    if len(box) != depth + others:
        return None
    begin = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    by_index = box[begin : begin + depth]
    rest = iter((*box[:begin], *box[begin + depth :]))
    found: list[Axis] = []
    for dim, size in enumerate(sizes):
        if dim not in dims:
            found.append(next(rest))
            continue
        picked = _picked(indices[dims.index(dim)], by_index)
        found.append(mixed(size) if picked is None else at(size, (each % size for each in picked)))
    return iter([(0, tuple(found))])


def _embedding(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    indices, sizes = node.tensor("indices"), node.sizes(0)
    if indices is None:
        return None
    found: list[Operand] = [("indices", box[:-1])]
    if sizes is not None:
        picked = _picked(indices, box[:-1])
        row = mixed(sizes[0]) if picked is None else at(sizes[0], map(int, picked))
        found.append((0, (row, box[-1])))
    return iter(found)


def _index_add(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, index = node.sizes(1), node.tensor("index")
    found: list[Operand] = [(0, box)]
    if sizes is not None and index is not None and len(sizes) == len(box):
        dim = node.value("dim") % len(box)
        wanted = box[dim].at
        if wanted is None or index.numel() > MOST:
            found.append((1, _put(box, dim, mixed(sizes[dim]))))
        else:
            rows = [row for row, target in enumerate(index.tolist()) if target in wanted]
            found.append((1, _put(box, dim, at(sizes[dim], rows))))
    return iter(found)


def _nll(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, target = node.sizes(0), node.tensor("target")
    if sizes is None or target is None or len(sizes) < 2:
        return None
    if not box:
        return iter([(0, tuple(map(whole, sizes)))])
    picked = _picked(target, box)
    column = mixed(sizes[1]) if picked is None else at(sizes[1], map(int, picked))
    found: list[Operand] = [(0, (box[0], column, *box[1:])), ("target", box)]
    return iter(found)


# -- products -------------------------------------------------------------------------------------


def _product(first: int) -> Map:
    """A matrix product whose left operand has this number."""

    def of(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand]:
        *before, row, column = box
        inner = _inner(node, first)
        if first:
            sizes = node.sizes(0)
            if sizes is not None:
                yield 0, broadcast(box, sizes)
        yield first, (*before, row, mixed(inner))
        yield first + 1, (*before, mixed(inner), column)

    return of


def _inner(node: ForwardNode, first: int) -> int:
    """How many products are summed for each element."""
    sizes = node.sizes(first)
    if sizes is None:
        saved = saved_operand(node, first)
        sizes = None if saved is None else tuple(saved.shape)
    if sizes is None:
        other = node.sizes(first + 1)
        return other[-2] if other is not None else 0
    return sizes[-1]


def _linear(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand]:
    weight = node.tensor("weight")
    sizes = node.sizes(1) or (None if weight is None else tuple(weight.shape))
    if sizes is not None:
        yield 0, (*box[:-1], mixed(sizes[1]))
        yield 1, (box[-1], mixed(sizes[1]))


def _vector(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand]:
    first = 1 if node.name == "Addmv" else 0
    saved = saved_operand(node, first)
    sizes = node.sizes(first) or (None if saved is None else tuple(saved.shape))
    if sizes is not None:
        yield first, (box[0], mixed(sizes[1]))


def _attention(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    if slot or len(box) < 3:
        return None
    return _of_attention(node, box)


def _of_attention(node: ForwardNode, box: Box) -> Iterator[Operand]:
    for operand, name in enumerate(("query", "key", "value")):
        saved = node.tensor(name)
        sizes = node.sizes(operand) or (None if saved is None else tuple(saved.shape))
        if sizes is None or len(sizes) != len(box):
            continue
        *before, row, column = box
        if name == "query":
            yield operand, (*before, row, mixed(sizes[-1]))
        else:
            last = column if name == "value" else mixed(sizes[-1])
            yield operand, (*before, mixed(sizes[-2]), last)


# -- convolutions and pooling ---------------------------------------------------------------------


def _convolution(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    saved, weight = node.tensor("input"), node.tensor("weight")
    sizes = node.sizes(0) or (None if saved is None else tuple(saved.shape))
    kernel = node.sizes(1) or (None if weight is None else tuple(weight.shape))
    if slot or sizes is None or kernel is None or len(sizes) != len(box):
        return None
    groups, is_transposed = node.value("groups"), node.value("transposed")
    window = [node.value(name) for name in ("stride", "padding", "dilation")]
    spatial = []
    for number, (axis, size) in enumerate(zip(box[2:], sizes[2:], strict=True)):
        stride, padding, dilation = (each[number] for each in window)
        offsets = [tap * dilation - padding for tap in range(kernel[2 + number])]
        if axis.at is None:
            spatial.append(Axis(size, None, axis.origin))
        elif is_transposed:
            spatial.append(_scattered(axis, size, stride, offsets))
        else:
            spatial.append(_window(axis, size, stride, offsets))
    found = (box[0], _of_group(box[1], sizes[1], groups), *spatial)
    return iter([(0, found)])


def _of_group(channel: Axis, given: int, groups: int) -> Axis:
    """The input channels of some output channels."""
    if groups == 1 or channel.at is None:
        return mixed(given)
    made, taken = channel.size // groups, given // groups
    of = {each // made for each in channel.at}
    return at(given, (group * taken + each for group in of for each in range(taken)))


def _window(axis: Axis, size: int, stride: int, offsets: Sequence[int]) -> Axis:
    """What a window that moves by ``stride`` covers."""
    if len(axis.at or ()) * len(offsets) > MOST:
        return Axis(size, None, axis.origin)
    covered = (each * stride + offset for each in axis.at or () for offset in offsets)
    return axis.moved(size, (each for each in covered if 0 <= each < size))


def _scattered(axis: Axis, size: int, stride: int, offsets: Sequence[int]) -> Axis:
    """What reaches some elements that windows are added to."""
    wanted = set(axis.at or ())
    if size * len(offsets) > MOST:
        return Axis(size, None, axis.origin)
    reaching = (
        each for each in range(size) if any(each * stride + offset in wanted for offset in offsets)
    )
    return axis.moved(size, reaching)


def _pool(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    sizes, kernel = node.sizes(0), node.value("kernel_size")
    if slot or sizes is None or not kernel:
        return None
    stride = node.value("stride") or kernel
    padding, dilation = node.value("padding"), node.value("dilation") or (1,)
    depth = len(sizes) - len(box) + min(len(box), 3 if "3D" in node.name else 2)
    found = list(box)
    for number in range(depth):
        dim = len(box) - depth + number
        axis, size = box[dim], sizes[dim]
        each = [
            values[min(number, len(values) - 1)] for values in (kernel, stride, padding, dilation)
        ]
        offsets = [tap * each[3] - each[2] for tap in range(each[0])]
        found[dim] = (
            Axis(size, None, axis.origin)
            if axis.at is None
            else _window(axis, size, each[1], offsets)
        )
    return iter([(0, tuple(found))])


def _adaptive_pool(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    if slot or sizes is None or len(sizes) != len(box):
        return None
    found = []
    for axis, size in zip(box, sizes, strict=True):
        if axis.size == size:
            found.append(axis)
        elif axis.at is None:
            found.append(Axis(size, None, axis.origin))
        else:
            spans = (
                range(each * size // axis.size, -(-(each + 1) * size // axis.size))
                for each in axis.at
            )
            found.append(axis.moved(size, (each for span in spans for each in span)))
    return iter([(0, tuple(found))])


def _nearest(node: ForwardNode, _slot: int, box: Box) -> Iterator[Operand] | None:
    sizes = node.sizes(0)
    scales = [node.value(name) for name in ("scales", "scales_h", "scales_w", "scales_d")]
    if sizes is None or any(scale is not None and scale != int(scale) for scale in scales):
        return None
    found = [
        axis
        if axis.size == size
        else Axis(size, None, axis.origin)
        if axis.at is None
        else axis.moved(size, (each * size // axis.size for each in axis.at))
        for axis, size in zip(box, sizes, strict=True)
    ]
    return iter([(0, tuple(found))])


def _rnn_layer(node: ForwardNode, slot: int, box: Box) -> Iterator[Operand] | None:
    given = node.tensor("input")
    sizes = node.sizes(0) or (None if given is None else tuple(given.shape))
    if slot or sizes is None or len(sizes) != len(box) or len(box) != 3:
        return None
    return iter([(0, (*box[:2], mixed(sizes[2])))])


ELEMENTWISE: Final = frozenset(
    {
        *("Abs", "Acos", "Acosh", "Add", "Addcdiv", "Addcmul", "Alias", "Angle", "Asin", "Asinh"),
        *("Atan", "Atan2", "Atanh", "Bernoulli", "Ceil", "Celu", "Clamp", "ClampMax", "ClampMin"),
        *("Clone", "Conj", "ConjPhysical", "Contiguous", "Copysign", "Cos", "Cosh", "Deg2Rad"),
        *("Digamma", "Div", "Elu", "Erf", "Erfc", "Erfinv", "Exp", "Exp2", "Expm1", "Floor"),
        *("Fmax", "Fmin", "Fmod", "Frac", "FusedDropout", "Gelu", "Hardshrink", "Hardsigmoid"),
        *("Hardswish", "Hardtanh", "Hypot", "I0", "Igamma", "Igammac", "Ldexp", "LeakyRelu"),
        *("Lerp", "Lgamma", "LiftFresh", "Log", "Log10", "Log1P", "Log2", "LogSigmoid"),
        *("Logaddexp", "Logaddexp2", "Logit", "MaskedFill", "Maximum", "Minimum", "Mish", "Mul"),
        *("NanToNum", "NativeDropout", "Neg", "NegView", "PinMemory", "Polygamma", "Pow"),
        *("PreluKernel", "Rad2Deg", "Reciprocal", "Relu", "Remainder", "Round", "RreluWithNoise"),
        *("Rsqrt", "Rsub", "Sgn", "Sigmoid", "Sign", "Silu", "Sin", "Sinc", "Sinh", "Softplus"),
        *("Softshrink", "SpecialEntr", "SpecialErfcx", "SpecialI0E", "SpecialI1", "SpecialI1E"),
        *("SpecialLogNdtr", "SpecialNdtri", "SpecialXlog1Py", "SpecialZeta", "Sqrt", "Sub", "Tan"),
        *("Tanh", "Threshold", "ToCopy", "Tril", "Triu", "Trunc", "Where", "Xlogy"),
    }
)
"""Functions each of whose elements is made of one of each operand."""
_NORMALISING: Final = (
    *("Softmax", "LogSoftmax", "SafeSoftmax", "Cumsum", "Cumprod", "Logcumsumexp"),
    *("NativeLayerNorm", "NativeBatchNorm", "NativeBatchNormLegit", "CudnnBatchNorm"),
    *("NativeBatchNormLegitNoTraining", "NativeGroupNorm", "FusedRmsNorm"),
    *("BatchNormWithUpdate", "BatchNormNoUpdate"),
)
_ATTENTION: Final = (
    *("ScaledDotProductFlashAttentionForCpu", "ScaledDotProductFlashAttention"),
    *("ScaledDotProductEfficientAttention", "ScaledDotProductCudnnAttention"),
    "ScaledDotProductFusedAttentionOverrideable",
)
_LOSSES: Final = (
    *("MseLoss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss"),
    *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
)
SIDE_BY_SIDE: Final = frozenset({*ELEMENTWISE, *_LOSSES})
"""Functions whose operands' elements meet those in the same place."""
MAPS: Final[dict[str, Map]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_NORMALISING, _first_elementwise),
    **dict.fromkeys(_ATTENTION, _attention),
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(
        ("View", "UnsafeView", "Reshape", "ReshapeAlias", "ReshapeCopy", "Unsqueeze", "Squeeze"),
        _reshape,
    ),
    **dict.fromkeys(("Transpose", "T"), _transpose),
    "Permute": _permute,
    "Expand": _expand,
    "Slice": _slice,
    "Select": _select,
    "Unbind": _unbind,
    **dict.fromkeys(("Split", "SplitWithSizes", "UnsafeSplit", "UnsafeSplitWithSizes"), _split),
    "Cat": _cat,
    "Stack": _stack,
    "Flip": _flip,
    "Roll": _roll,
    "Repeat": _repeat,
    "ConstantPadNd": _pad,
    **dict.fromkeys(
        (
            *("Sum", "Nansum", "Mean", "Amax", "Amin", "Logsumexp", "Norm", "LinalgVectorNorm"),
            *("Prod", "Std", "Var", "StdMean", "VarMean"),
        ),
        _reduce,
    ),
    **dict.fromkeys(
        (
            "Max",
            "Min",
            "Median",
            "Nanmedian",
            "Mode",
            "Kthvalue",
            "Sort",
            "Topk",
            "Cummax",
            "Cummin",
        ),
        _chosen,
    ),
    "Gather": _gather,
    "IndexSelect": _index_select,
    **dict.fromkeys(("Index", "UnsafeIndex"), _index),
    "Embedding": _embedding,
    "IndexAdd": _index_add,
    **dict.fromkeys(("NllLoss", "NllLoss2D"), _nll),
    **dict.fromkeys(("Mm", "Bmm"), _product(0)),
    **dict.fromkeys(("Addmm", "Baddbmm"), _product(1)),
    "Linear": _linear,
    **dict.fromkeys(("Mv", "Addmv"), _vector),
    "Convolution": _convolution,
    **dict.fromkeys(
        ("AvgPool2D", "AvgPool3D", "MaxPool2DWithIndices", "MaxPool3DWithIndices", "MaxPool2D"),
        _pool,
    ),
    **dict.fromkeys(("AdaptiveAvgPool2D", "AdaptiveAvgPool3D"), _adaptive_pool),
    **dict.fromkeys(
        (f"UpsampleNearest{depth}D" for depth in (1, 2, 3)),
        _nearest,
    ),
    "MkldnnRnnLayer": _rnn_layer,
}
