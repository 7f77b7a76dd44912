"""Probes: which elements of its operands a function's derivative leads to, where no map knows it.

The node runs once with a gradient that is 0 but at the elements that are asked about. That is done
with torch's own formulas only, whose nodes change nothing but what they return.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from agviz.measure.health import why_unknown
from agviz.record.elements.box import Axis, Box, coordinates, mixed
from agviz.record.elements.finding import along_axes
from agviz.record.elements.forward_node import given_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from agviz.record.elements.forward_node import ForwardNode

_FORMULA: Final = re.compile(r"\w+Backward\d+(_copy)?")
_MOST: Final = 1 << 22
"""Elements of a result, and of an operand."""


def probed(node: ForwardNode, slot: int, box: Box) -> list[tuple[int | str, Box]] | None:
    """The elements of each operand; None: it can't be probed. Call it within ``unseen``."""
    if node.is_of_program or not _FORMULA.fullmatch(node.full_name) or node.is_packed:
        return None
    count = len(node.node._input_metadata)
    sizes = [given_sizes(node.node, number) for number in range(count)]
    own = sizes[slot] if slot < count else None
    given = [node.sizes(operand) for operand in range(len(node.operands))]
    if own is None or any(_is_large(each) for each in (own, *given) if each is not None):
        return None
    metadata = node.node._input_metadata[slot]
    if not metadata.dtype.is_floating_point:
        return None
    asked = [range(axis.size) if axis.at is None else axis.at for axis in box]
    if math.prod(map(len, asked)) in {0, math.prod(own)}:
        return None  # nothing would be learned
    devices = [metadata.device] if metadata.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        gradient = torch.zeros(own, dtype=metadata.dtype, device=metadata.device)
        # Different values, so that what is added does not cancel.
        count_asked = math.prod(map(len, asked))
        values = 1 + torch.arange(count_asked, device=metadata.device) / count_asked / 3
        vectors = [torch.tensor(list(at), device=metadata.device) for at in asked]
        index = torch.meshgrid(*vectors, indexing="ij") if vectors else ()
        gradient[index] = values.view([len(at) for at in asked]).to(gradient.dtype)
        inputs = [gradient if number == slot else None for number in range(count)]
        result: Any = cast("Any", node.node)(*inputs)
        outputs = result if type(result) is tuple else (result,)
        return list(_reached(outputs))


def _is_large(sizes: tuple[int, ...]) -> bool:
    return math.prod(sizes) > _MOST


def _reached(outputs: tuple[Tensor | None, ...]) -> Iterator[tuple[int | str, Box]]:
    for operand, output in enumerate(outputs):
        if output is None or why_unknown(output) or output.layout is not torch.strided:
            continue
        touched = (output != 0) | output.isnan()
        if touched.any():
            found = along_axes(touched)
            sizes = zip(output.shape, found, strict=True)
            yield (
                operand,
                tuple(
                    mixed(size) if len(at) == size else Axis(size, coordinates(at))
                    for size, at in sizes
                ),
            )
