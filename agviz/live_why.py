"""Why parameters would get no gradient, asked in a program that has just computed its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from agviz.analysis.causes import Cause
from agviz.analysis.gradients import GradientRow, Gradients
from agviz.analysis.lineage import Lineage
from agviz.analysis.phrases import not_in_graph, reached, stopped, unreached
from agviz.analysis.why import known_names
from agviz.errors import AgvizError
from agviz.live_graph import LiveGraph
from agviz.measure.health import name_of, shape_of
from agviz.traces.rows import ParameterRow, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.nn import Module

    from agviz.recording import Recording
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame
    from agviz_engine.node import NodeRef

_MOST_OPS: Final = 100_000
HINT: Final = (
    "agviz.why(model, lambda: loss_of(model)), which computes the loss itself, gives the line that "
    "cut it; so does a loss computed within agviz.trace(model, check_forward=True)."
)


class RecordedForward:
    """The forward as far as it is recorded.

    Args:
        recording: the one that goes on, and observes torch functions.
        trace: its file.
    """

    def __init__(self, recording: Recording, trace: Trace) -> None:
        self.names = recording.names
        self._provenance = recording.provenance
        self._forward = recording.forward
        self.ops = trace.forward_ops(limit=_MOST_OPS)

    def number(self, tensor: Tensor) -> int:
        """Number of a tensor in ``ops``; -1 where nothing is known of it."""
        return -1 if self._forward is None else self._forward.number(tensor)

    def frames(self, node: NodeRef) -> tuple[Frame, ...]:
        """Where a node was made, outermost frame first; empty where that is not known."""
        if self._provenance is None:
            return ()
        (frames,) = self._provenance.resolve([self._provenance.captured(node.node)])
        return frames


def gradients(
    model: Module,
    loss: Sequence[Tensor],
    parameter: str | None,
    forward: RecordedForward | None,
) -> Gradients:
    """What backward of ``loss`` would give the parameters of ``model``.

    Args:
        model: whose parameters are meant.
        loss: what backward would be called of.
        parameter: only this one, or those of this module; None: all.
        forward: what was recorded of its computation; None: nothing.

    Raises:
        agviz.errors.AgvizError: the model has no parameter of this name.
    """
    parameters = dict(model.named_parameters())
    names = list(parameters) if parameter is None else known_names(parameter, list(parameters))
    asked = _Live(loss, parameters, forward)
    rows = [asked.row(name) for name in names]
    hints = []
    if not any(each.requires_grad for each in loss):
        hints.append("The loss itself requires no gradient: backward would raise an error.")
    if any(row.cause is Cause.NOT_REACHED for row in rows):
        hints.append(HINT)
    return Gradients(rows, " ".join(hints))


def computed(result: Any) -> list[Tensor]:
    """The tensors of which backward is to be called.

    Raises:
        agviz.errors.AgvizError: it is no tensor, and no sequence of tensors.
    """
    found = list(result) if isinstance(result, list | tuple) else [result]
    for each in found:
        if not isinstance(each, Tensor):
            raise AgvizError(
                f"the loss is a {type(each).__name__}; give the tensor of which backward is called,"
                " or a function without arguments that gives it back"
            )
    return found


class _Live:
    """What is known of all parameters together."""

    def __init__(
        self,
        loss: Sequence[Tensor],
        parameters: Mapping[str, Tensor],
        forward: RecordedForward | None,
    ) -> None:
        self._parameters = parameters
        self._forward = forward
        self._graph = LiveGraph(loss)
        self._known_as = {
            name: forward.names.parameter(parameter) or name if forward else name
            for name, parameter in parameters.items()
        }
        self._lineage = None
        if forward is not None:
            self._lineage = Lineage(
                forward.ops,
                [forward.number(tensor) for tensor in loss],
                self._graph.sequence_nrs,
                set(self._known_as.values()),
            )

    def row(self, name: str) -> GradientRow:
        """What a parameter would get."""
        parameter = self._parameters[name]
        facts = ParameterRow(
            name=name,
            shape=_shape(parameter),
            dtype=name_of(parameter.dtype),
            requires_grad=parameter.requires_grad,
            had_grad=parameter.grad is not None,
            node=None,
        )
        leaf = self._graph.leaf(parameter)
        if leaf is not None:
            stop = self._graph.stop(leaf)
            if stop is None:
                return reached(facts)
            return stopped(facts, stop.cause, stop.node.name, *self._origin(stop.node))
        if not parameter.requires_grad:
            return unreached(facts, Cause.FROZEN)
        if self._lineage is None:
            return unreached(facts, Cause.NOT_REACHED)
        return not_in_graph(facts, self._lineage, self._known_as[name])

    def _origin(self, node: NodeRef) -> tuple[Frame | None, str | None]:
        """The line that made a node, and the module in whose forward, where they are known."""
        if self._forward is None:
            return None, None
        frames = self._forward.frames(node)
        return visible(frames), self._forward.names.module(node.sequence_nr)


def _shape(parameter: Tensor) -> tuple[int, ...] | None:
    try:
        return shape_of(parameter)
    except RuntimeError:  # of a lazy module, not made yet
        return None
