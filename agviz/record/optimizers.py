"""Steps of optimizers: between which backward passes parameters changed.

A ``torch.amp.GradScaler`` leaves a step out where a gradient is not finite, and that is all that
can be seen of it from outside. An optimizer that leaves steps out by itself (``fused=True``) is
lent ``found_inf`` by the scaler for the time of the step.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

log = logging.getLogger("agviz")


class OptimizerSteps:
    """Observes every step of every ``torch.optim.Optimizer`` in the process.

    Args:
        report: called with the number of the step, from 0, the optimizer, and whether it was lent
            ``found_inf``.
    """

    def __init__(self, report: Callable[[int, Any, bool], None]) -> None:
        self._report = report
        self._number = itertools.count().__next__
        self._handle: RemovableHandle | None = None

    def start(self) -> None:
        """Listen; calls of ``step`` that compiled code makes are observed, too."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        if self._handle is None:

            def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
                try:
                    self._report(self._number(), optimizer, hasattr(optimizer, "found_inf"))
                except Exception as error:  # noqa: BLE001 - whatever happens here, the user's program goes on
                    self.stop()
                    log.warning("steps of optimizers are no longer recorded (%r)", error)

            stepped._torchdynamo_disable = True  # type: ignore[attr-defined]  # Dynamo runs it as it is
            self._handle = register_optimizer_step_post_hook(stepped)

    def stop(self) -> None:
        """Listen no longer."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
