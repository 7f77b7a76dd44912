"""Which engine runs what is recorded: the exact one, or torch's own, observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Instrument, Registry

EXACT: Final = "exact"
"""Ours: all of it can be seen and steered."""
NATIVE: Final = "native"
"""Torch's own, observed (:mod:`agviz_engine.observe`)."""
AUTO: Final = "auto"
"""The exact one where it fits this torch, else the native one."""
ENGINES: Final = (AUTO, EXACT, NATIVE)


class ChosenEngine(NamedTuple):
    """An engine that serves."""

    name: str
    """``exact`` or ``native``."""
    why_not_exact: str
    """Why ``auto`` is not the exact one, in a sentence; empty: it is, or was not asked for."""

    def _module(self) -> Any:
        if self.name == EXACT:
            from agviz_engine import api

            return api
        from agviz_engine.observe import observing_engine

        return observing_engine

    @property
    def registry(self) -> Registry:
        """The instruments that observe this engine."""
        module = self._module()
        engine = module.engine() if self.name == EXACT else module.observing_engine()
        return cast("Registry", engine.registry)

    def installed(
        self,
        *instruments: Instrument,
        device_policy: DevicePolicy | None = None,
        nonfinite_check: bool = False,
    ) -> AbstractContextManager[object]:
        """Let instruments observe it for the length of a ``with`` block.

        Args:
            instruments: observers to add.
            device_policy: maps nodes to device threads; the native engine has its own.
            nonfinite_check: look for NaN and Inf in every output.
        """
        module = self._module()
        if self.name == EXACT:
            entered = module.installed(
                *instruments, device_policy=device_policy, nonfinite_check=nonfinite_check
            )
        else:
            entered = module.observed(*instruments, nonfinite_check=nonfinite_check)
        return cast("AbstractContextManager[object]", entered)


def choose(wanted: str) -> ChosenEngine:
    """The engine that serves where ``wanted`` is asked for: one of :data:`ENGINES`.

    Raises:
        UnsupportedTorchError: the exact one was asked for, and does not fit this torch.
    """
    if wanted == NATIVE:
        return ChosenEngine(NATIVE, "")
    chosen = ChosenEngine(EXACT, "")
    try:
        _ = chosen.registry
    except UnsupportedTorchError as error:
        if wanted == EXACT:
            raise
        return ChosenEngine(NATIVE, str(error))
    return chosen
