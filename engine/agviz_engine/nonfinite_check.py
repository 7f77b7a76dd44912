"""Look for NaN and infinities in what nodes put out, where no instrument measures it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from agviz_engine.emissions import CHECKED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz_engine.emit import Emitter
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef


class NonFinite(NamedTuple):
    """Numbers of elements; real and imaginary parts of complex tensors count apart."""

    nan: int
    posinf: int
    neginf: int

    def __bool__(self) -> bool:
        return bool(self.nan or self.posinf or self.neginf)


FINITE = NonFinite(0, 0, 0)


def check_non_finite(gradient: Tensor) -> NonFinite:
    """Count NaN and infinities in ``gradient``, of any dtype and layout.

    Integer tensors and tensors whose values can't be read (meta, fake) are finite.
    """
    with torch.no_grad():
        values = _plain_values(gradient)
        if values is None:
            return FINITE
        low, high = torch.aminmax(values)
        if math.isfinite(low.item()) and math.isfinite(high.item()):
            return FINITE
        return NonFinite(
            int(torch.isnan(values).sum()),
            int(torch.isposinf(values).sum()),
            int(torch.isneginf(values).sum()),
        )


def _plain_values(gradient: Tensor) -> Tensor | None:
    if gradient.is_meta or not (gradient.is_floating_point() or gradient.is_complex()):
        return None
    if gradient.is_nested or type(gradient) is not Tensor:
        return None
    if gradient.is_sparse:
        gradient = gradient._values()
    elif gradient.layout is not torch.strided:
        gradient = gradient.values() if hasattr(gradient, "values") else gradient
    if gradient.is_complex():
        gradient = torch.view_as_real(gradient.resolve_conj())
    return gradient if gradient.numel() else None


def check_outputs(
    emit: Emitter, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None]
) -> None:
    """Emit what is non-finite in each output of a node."""
    for i, output in enumerate(outputs):
        if output is not None:
            row = emit.row(graph_task, CHECKED, ref, i, *check_non_finite(output))
            emit.dispatch(graph_task, ref, row, output)
