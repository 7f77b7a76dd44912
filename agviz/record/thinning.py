"""Recording some of the calls of backward of a program that makes very many.

A test that calls backward ten thousand times takes three times as long where each call is recorded,
and nobody reads them all. So the first ones are recorded, and then a few in a row at a time: what
goes on from pass to pass is seen. In between torch's own engine runs, no stacks are captured, and a
pass costs one look at its loss. Where that is not finite, the pass is recorded, and so are those
that follow it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, cast

from torch import Tensor

from agviz.measure.health import found_at_once
from agviz_engine.backward_call import EngineCall
from agviz_engine.graph_task import left_out_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agviz.record.options import SomePasses
    from agviz.record.provenance import Provenance
    from agviz.record.recorder import Recorder

_AHEAD: Final = 2
"""Passes before one that is recorded from which on stacks are captured: its forward may have begun
before the pass in front of it ended."""
_MOST_NUMBERS: Final = 4_096
"""A larger tensor is no loss, and a gradient that costs more to read than it is worth."""
_MOST_GRADIENTS: Final = 32
"""Of the parameters of an optimizer that are looked at: NaN reaches most of them."""

_CREATE_GRAPH: Final = EngineCall._fields.index("create_graph")


class Thinning:
    """A :class:`~agviz_engine.instruments.Sampler` for a program of one thread.

    Calls that other threads make, or that others observe as well, are all recorded.

    Args:
        plan: which calls are wanted.
        recorder: what records; None: nothing does yet.
        provenance: captures stacks.
    """

    def __init__(
        self,
        plan: SomePasses,
        recorder: Callable[[], Recorder | None],
        provenance: Provenance | None,
    ) -> None:
        self._plan = plan
        self._recorder = recorder
        self._provenance = provenance
        self._lock = threading.RLock()
        self._next = 0
        """Number of the next call."""
        self._all_before = 0
        """Of those below, all are recorded."""
        self._thread = threading.get_ident()
        self._is_over = False
        self._is_paused = False
        """Whether no stacks are captured."""
        self._is_skipping = False
        """Whether the last call was left out."""

    def wants(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is recorded; see :class:`~agviz_engine.instruments.Sampler`."""
        with self._lock:
            number, recorder = self._next, self._recorder()
            self._next += 1
            self._is_skipping = False
            self._is_over |= self._thread != threading.get_ident()
            if self._is_over or recorder is None or not recorder.is_alone:
                self._go_on(recorder)
                return True
            if not _is_finite(args):
                self._all_before = number + self._plan.first
            if self._has(number) or _warns(args, kwargs):
                self._go_on(recorder)
                return True
            if self._has(number + _AHEAD):
                self._capture()
            elif self._provenance is not None and self._provenance.is_capturing:
                self._is_paused = True
                self._provenance.stop()
            recorder.leave_out(left_out_id())
            self._is_skipping = True
            return False

    def stepped(self, optimizer: Any) -> None:
        """Look at the gradients of a step that follows a pass that was left out.

        Where one is not finite, the next passes are recorded.
        """
        parameter = _bad_gradient(optimizer) if self._is_skipping else None
        if parameter is None:
            return
        with self._lock:
            recorder = self._recorder()
            self._is_skipping = False
            self._all_before = self._next + self._plan.first
            if recorder is not None and recorder.is_alone:
                recorder.was_not_finite(parameter)

    def _has(self, number: int) -> bool:
        return number < self._all_before or self._plan.has(number)

    def _go_on(self, recorder: Recorder | None) -> None:
        self._capture()
        if recorder is not None:
            recorder.goes_on()

    def _capture(self) -> None:
        if self._is_paused and self._provenance is not None:
            self._is_paused = False
            self._provenance.start()


def _warns(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether torch warns of a call, once: ``backward(create_graph=True)``, which ours has done."""
    creates = args[_CREATE_GRAPH] if len(args) > _CREATE_GRAPH else kwargs.get("create_graph")
    if not creates:
        return False
    given = dict(zip(EngineCall._fields, args, strict=False)) | dict(kwargs)
    return bool(given.get("accumulate_grad"))


def _is_finite(args: Sequence[Any]) -> bool:
    """Whether nothing is seen in what is differentiated that is not finite; waits for no device."""
    tensors = args[0] if args else ()
    return not any(map(_is_bad, tensors if isinstance(tensors, tuple) else ()))


def _bad_gradient(optimizer: Any) -> Tensor | None:
    """The first parameter of an optimizer with a gradient in which something is seen so."""
    left = _MOST_GRADIENTS
    for group in optimizer.param_groups:
        for parameter in group["params"][:left]:
            if _is_bad(parameter.grad):
                return cast("Tensor", parameter)
        left = max(0, left - len(group["params"]))
    return None


def _is_bad(tensor: object) -> bool:
    """Whether a small tensor of the CPU is seen not to be finite; nothing is dispatched."""
    if not isinstance(tensor, Tensor) or not tensor.is_cpu or tensor.numel() > _MOST_NUMBERS:
        return False
    found = found_at_once(tensor)
    if found is None:
        return False
    nan, posinf, neginf, *_ = found[1]
    return bool(nan or posinf or neginf)
