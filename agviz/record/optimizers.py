"""Steps of optimizers: between which backward passes parameters changed, and how long that took.

A ``torch.amp.GradScaler`` leaves a step out where a gradient is not finite, and that is all that
can be seen of it from outside. An optimizer that leaves steps out by itself (``fused=True``) is
lent ``found_inf`` by the scaler for the time of the step.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from agviz.record.frame_locals import locals_of
from agviz.record.global_hooks import STEP_BEGINS, STEP_ENDS, GlobalHooks
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

log = logging.getLogger("agviz")

_MOST_NESTED: Final = 16
"""Steps within each other of which the begin is kept; those that raised stay until others come."""


class Stepped(Protocol):
    """Takes a step that has returned."""

    def __call__(
        self, number: int, optimizer: Any, *, is_guarded: bool, begin_ns: int | None, thread: int
    ) -> None:
        """Take it.

        Args:
            number: from 0.
            optimizer: which stepped.
            is_guarded: whether it was lent ``found_inf``.
            begin_ns: ``time.monotonic_ns()`` when the step was called; None: before this began.
            thread: on which it was called, as in events.
        """


class _Begun(NamedTuple):
    """A step that was called."""

    optimizer: int
    """Its identity."""
    begin_ns: int
    is_inner: bool
    """Whether another step of the same optimizer called it: ``super().step()``."""


class _UnderWay(threading.local):
    def __init__(self) -> None:
        self.begun: list[_Begun] = []
        """Steps of this thread, the innermost last."""


class OptimizerSteps:
    """Observes every step of every ``torch.optim.Optimizer`` in the process.

    Args:
        report: is given each step.
        begin: is given each optimizer whose step is called.
    """

    def __init__(self, report: Stepped, begin: Callable[[Any], None]) -> None:
        self._report = report
        self._begin = begin
        self._number = itertools.count().__next__
        self._hooks = GlobalHooks()
        self._here = _UnderWay()

    def start(self) -> None:
        """Observe steps, also those that compiled code calls."""
        from agviz_engine.thread_state import current

        if self._hooks:
            return

        def called(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
            begun, is_inner = self._here.begun, False
            del begun[: -_MOST_NESTED + 1]
            if any(each.optimizer == id(optimizer) for each in begun):  # or it has raised
                is_inner = _is_within(sys._getframe(1), optimizer)
            begun.append(_Begun(id(optimizer), time.monotonic_ns(), is_inner))
            if not is_inner:
                self._begin(optimizer)

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
            try:
                begun = self._begun(optimizer)
                if begun is not None and begun.is_inner:
                    return
                self._report(
                    self._number(),
                    optimizer,
                    is_guarded=hasattr(optimizer, "found_inf"),
                    begin_ns=None if begun is None else begun.begin_ns,
                    thread=current().thread_id,
                )
            except Exception as error:
                if comes_from_outside(error):
                    raise
                self.stop()
                log.warning("steps of optimizers are no longer recorded (%r)", error)

        for hook in (called, stepped):
            hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # Dynamo runs it as it is
        self._hooks.put(STEP_BEGINS, called)
        self._hooks.put(STEP_ENDS, stepped)

    def stop(self) -> None:
        """Observe no longer."""
        self._hooks.clear()

    def _begun(self, optimizer: Any) -> _Begun | None:
        """The step that has returned; steps inside of it that raised are forgotten."""
        begun = self._here.begun
        for place in reversed(range(len(begun))):
            if begun[place].optimizer == id(optimizer):
                found = begun[place]
                del begun[place:]
                return found
        return None


def _is_within(wrapper: FrameType, optimizer: Any) -> bool:
    """Whether a step is called by a step of the same optimizer, as its class is a subclass's base.

    Args:
        wrapper: of torch, in which every step runs (``Optimizer.profile_hook_step``).
        optimizer: whose step is called.
    """
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code:
            with locals_of(frame) as values:
                is_same = values.get("self") is optimizer
            if is_same:
                return True
        frame = frame.f_back
    return False
