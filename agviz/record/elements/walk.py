"""From elements of a tensor of the forward back to the data it was made of.

Along the way it is noted what is known of axes: by a function that has a sample, a channel or a
token axis of its own, by the module that a tensor was given to, and by the data of the program.
What these notes come to is decided by who reads them (:mod:`agviz.analysis.places`).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz.record.elements.box import is_empty, reshaped, says_something, united
from agviz.record.elements.forward_node import ForwardNode, given_sizes
from agviz.record.elements.given import in_given, shape_of_data
from agviz.record.elements.maps import SIDE_BY_SIDE, mapped, saved_operand
from agviz.record.elements.probing import probed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.record.elements.box import Box
    from agviz.record.elements.given import GivenTensors

_MOST_NODES: Final = 2_000
_MOST_NOTES: Final = 24
_MOST_PROBES: Final = 16
_MOST_VIEWS: Final = 4
"""Behind a convolution or the like, of what it gave."""


class AxisNote(NamedTuple):
    """What was found of a tensor on the way."""

    what: str
    """``function``, ``module``, ``given`` (data that an outermost module was given),
    ``data`` (what else has no gradient and is no parameter), ``parameter``, ``unknown`` (a function
    through which nothing can be followed), ``undecided`` (a module whose samples are along the
    second axis, which others may be along as well), ``elsewhere`` (modules were given data, and
    none of it was reached)."""
    name: str
    """Of the function; of data, its number."""
    roles: tuple[str, ...]
    """What each axis is: ``sample``, ``channel``, ``pixel``, ``step``, ``token``, ``class``,
    ``head``; empty where nothing says it. Fewer: the last axes are nothing in particular."""
    box: Box


class Modules(NamedTuple):
    """Modules whose samples are along an axis that they say."""

    is_batch_first: dict[str, bool]
    """By path."""
    recurrent: frozenset[str]
    """Those of them that go from step to step."""
    module_of: Any
    """Gives the path of the module in which a node was made, by its sequence number; or None."""

    @property
    def sequence_first(self) -> list[str]:
        """Those whose samples are along the second axis."""
        return sorted(path for path, is_first in self.is_batch_first.items() if not is_first)[:1]

    def around(self, number: int) -> str | None:
        """The outermost of these modules that made a node."""
        path = self.module_of(number) if number >= 0 and self.is_batch_first else None
        if not path:
            return None
        fit = (name for name in self.is_batch_first if f"{path}.".startswith(f"{name}."))
        return min(fit, key=len, default=None)


class Walk:
    """One walk.

    Args:
        given: the data that outermost modules were given.
        modules: modules whose samples are along an axis that they say.
    """

    def __init__(self, given: GivenTensors, modules: Modules) -> None:
        self._given = given
        self._modules = modules
        self._notes: list[AxisNote] = []
        for path in modules.sequence_first:
            self._notes.append(AxisNote("undecided", path, (), ()))
        self._boxes: dict[tuple[Any, int], Box] = {}
        self._waiting: list[tuple[int, int, tuple[Any, int]]] = []
        self._data: dict[tuple[str, int], int] = {}
        """Places in ``notes``, by tensor."""
        self._probes = 0
        self._met = 0

    @property
    def notes(self) -> list[AxisNote]:
        """What was found, in order of the way."""
        is_known = any(has_parameters for _, has_parameters in self._given)
        if not is_known or any(note.what == "given" for note in self._notes):
            return self._notes
        return [*self._notes, AxisNote("elsewhere", "", (), ())]

    def follow(self, edge: tuple[Any, int], box: Box) -> None:
        """Note what is found on the way from what a node, if any, gave as one of its outputs."""
        if edge[0] is not None:
            self._go(edge, box)
        for _ in range(_MOST_NODES):
            if not self._waiting or len(self._notes) >= _MOST_NOTES:
                break
            _, _, edge = heapq.heappop(self._waiting)
            self._pass(ForwardNode(edge[0]), edge[1], self._boxes[edge])

    def look_at_data(self, data: Tensor, box: Box, function: Any) -> None:
        """Note what is known of data that a function was given.

        Args:
            data: that.
            box: the elements.
            function: the node of what the function gave; None: it made none.
        """
        found = in_given(data, box, self._given)
        if found is not None:
            self._notes.append(AxisNote("given", "1", (), found[1]))
        if function is None:
            return
        node = ForwardNode(function)
        if node.name in SIDE_BY_SIDE:  # what is beside it is of the same sample
            for operand, edge in enumerate(node.operands):
                sizes = node.sizes(operand)
                if edge[0] is not None and sizes == tuple(data.shape):
                    self.follow(edge, box)
                    return
        for _ in range(_MOST_VIEWS):
            roles, sizes = _ROLES.get(node.name), _sizes_of_data(node, data)
            given = None if sizes is None else reshaped(box, sizes)
            if roles is not None and given is not None:
                name, own = node.name, roles(node, len(given))
                self._notes.append(AxisNote("function", name, own, given))
            if node.name not in _VIEWS or node.operands[0][0] is None:
                break
            node = ForwardNode(node.operands[0][0])

    def _go(self, edge: tuple[Any, int], box: Box) -> None:
        if is_empty(box) or not says_something(box):
            return
        known = self._boxes.get(edge)
        if known is not None:
            box = united(known, box)
            if box == known:
                return
        self._boxes[edge] = box
        here = ForwardNode(edge[0])
        self._met += 1
        if here.is_leaf:
            self._meet_leaf(here.node.variable, box)
        else:
            heapq.heappush(self._waiting, (-here.number, self._met, edge))

    def _pass(self, node: ForwardNode, slot: int, box: Box) -> None:
        roles = _ROLES.get(node.name)
        own = roles(node, len(box)) if roles is not None and not slot else ()
        if own:
            self._notes.append(AxisNote("function", node.name, own, box))
        found = self._operands(node, slot, box)
        if found is None:
            self._notes.append(AxisNote("unknown", node.full_name, (), box))
            return
        inside = self._modules.around(node.number)
        for operand, part in found:
            if is_empty(part):
                continue
            edge = node.edge(operand)
            if edge[0] is None:
                self._meet_data(node, operand, part, own)
            elif given_sizes(*edge) in {None, tuple(axis.size for axis in part)}:
                if node.name in _CHOOSING and operand == 0:
                    self._notes.append(AxisNote("function", node.name, _choice(node, part), part))
                if inside is not None:
                    self._leave(inside, ForwardNode(edge[0]), part)
                self._go(edge, part)

    def _operands(
        self, node: ForwardNode, slot: int, box: Box
    ) -> Sequence[tuple[int | str, Box]] | None:
        """The elements of each operand; None: it is not known."""
        if node.is_of_program or given_sizes(node.node, slot) is None:
            return None
        found = mapped(node, slot, box)
        if found is None and self._probes < _MOST_PROBES:
            self._probes += 1
            found = probed(node, slot, box)
        return found

    def _leave(self, inside: str, operand: ForwardNode, box: Box) -> None:
        """Note which axis is which, where a module was given a tensor."""
        if operand.is_leaf or len(box) != 3 or self._modules.around(operand.number) == inside:
            return
        is_first = self._modules.is_batch_first[inside]
        place = "step" if inside in self._modules.recurrent else "token"
        roles = ("sample", place, "") if is_first else (place, "sample", "")
        self._notes.append(AxisNote("module", inside, roles, box))

    def _meet_data(
        self, node: ForwardNode, operand: int | str, box: Box, own: tuple[str, ...]
    ) -> None:
        data = saved_operand(node, operand)
        if data is None or tuple(data.shape) != tuple(axis.size for axis in box):
            return
        if not _is_data(data) or (operand in _INDICES and _counts(data)):
            return
        found = in_given(data, box, self._given)
        if found is not None:
            what, (key, here) = "given", found
        else:
            shape = shape_of_data(data)
            whole = None if shape is None else reshaped(box, shape)
            if whole is None:
                return
            what, key, here = "data", data.data_ptr(), whole
        place = self._data.get((what, key))
        if place is None:
            self._data[what, key] = len(self._notes)
            roles = _roles_of_data(node, operand, box, here, own)
            self._notes.append(AxisNote(what, f"{len(self._data)} {node.name}", roles, here))
        else:
            known = self._notes[place]
            self._notes[place] = known._replace(box=united(known.box, here))

    def _meet_leaf(self, leaf: Tensor, box: Box) -> None:
        found = None if isinstance(leaf, Parameter) else in_given(leaf, box, self._given)
        if found is None:
            self._notes.append(AxisNote("parameter", "", (), box))
        else:
            self._notes.append(AxisNote("given", f"{len(self._data) + 1}", (), found[1]))


def _sizes_of_data(node: ForwardNode, data: Tensor) -> tuple[int, ...] | None:
    """The shape in which a function was given data; None: it was not, or did not save it."""
    saved = saved_operand(node, 0)
    is_it = saved is not None and saved.data_ptr() == data.data_ptr()
    return tuple(saved.shape) if saved is not None and is_it else None


def _is_data(tensor: Tensor) -> bool:
    return not isinstance(tensor, Parameter) and not tensor.requires_grad and tensor.dim() > 0


def _counts(index: Tensor) -> bool:
    """Whether an index numbers positions, and is no data."""
    flat = index.reshape(-1)
    is_row = index.dim() == 1 or index.shape[0] == 1
    return is_row and torch.equal(flat, flat[0] + torch.arange(flat.numel(), device=flat.device))


# -- what axes are --------------------------------------------------------------------------------


def _of_images(node: ForwardNode, ndim: int) -> tuple[str, ...]:  # noqa: ARG001
    """Functions of images, sounds and volumes."""
    places = ["step"] if ndim == 3 else ["pixel"] * (ndim - 2)
    return ("sample", "channel", *places) if ndim > 2 else ()


def _of_pooling(node: ForwardNode, ndim: int) -> tuple[str, ...]:
    return _of_images(node, ndim) if ndim == (5 if "3D" in node.name else 4) else ()


def _of_attention(node: ForwardNode, ndim: int) -> tuple[str, ...]:  # noqa: ARG001
    return ("sample", "head", "token", "") if ndim == 4 else ("sample", "token", "")


def _of_samples(node: ForwardNode, ndim: int) -> tuple[str, ...]:
    return _of_images(node, ndim) if ndim > 2 else ("sample",)


def _of_steps(node: ForwardNode, ndim: int) -> tuple[str, ...]:  # noqa: ARG001
    return ("step", "sample", "") if ndim == 3 else ()


def _choice(node: ForwardNode, box: Box) -> tuple[str, ...]:
    """What a function chose from."""
    dim = 1 if node.name.startswith("Nll") else node.value("dim") % len(box)
    return tuple("class" if number == dim else "" for number in range(len(box)))


def _roles_of_data(
    node: ForwardNode, operand: int | str, box: Box, data: Box, own: tuple[str, ...]
) -> tuple[str, ...]:
    """What the axes of data are of which a function was given these elements."""
    if operand in _INDICES and len(data) > 1:
        return (*[""] * (len(data) - 1), "token")
    if node.name == "Convolution" and operand == 0 and len(box) == len(data):
        return own
    return ()


_VIEWS: Final = frozenset({"Squeeze", "Unsqueeze", "View", "UnsafeView", "Transpose"})
_INDICES: Final = frozenset({"indices", "index"})
_CHOOSING: Final = frozenset({"Gather", "NllLoss", "NllLoss2D"})
_ROLES: Final = {
    "Convolution": _of_images,
    "MkldnnRnnLayer": _of_steps,
    "NativeBatchNorm": _of_samples,
    "NativeBatchNormLegit": _of_samples,
    "NativeBatchNormLegitNoTraining": _of_samples,
    "CudnnBatchNorm": _of_samples,
    "NativeGroupNorm": _of_samples,
    **dict.fromkeys(
        (
            *("MaxPool2DWithIndices", "AvgPool2D", "AdaptiveAvgPool2D"),
            *("MaxPool3DWithIndices", "AvgPool3D", "AdaptiveAvgPool3D"),
        ),
        _of_pooling,
    ),
    **dict.fromkeys(
        (
            *("ScaledDotProductFlashAttentionForCpu", "ScaledDotProductFlashAttention"),
            *("ScaledDotProductEfficientAttention", "ScaledDotProductCudnnAttention"),
        ),
        _of_attention,
    ),
}
"""Functions whose axes are something by definition."""
