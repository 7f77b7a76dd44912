"""Verifying for as long as a program runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch._functorch.config
from torch.autograd.variable import Variable
from torch.nn.modules.module import register_module_forward_pre_hook

import agviz_engine
from agviz.record.names import Names
from agviz.verify.engine import VerifyingEngine
from agviz.verify.watching import Watcher

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from agviz.verify.findings import ComparisonReport


class Verification:
    """From :meth:`start` to :meth:`stop` every pass of this process runs on both engines.

    Models compiled meanwhile do without donated buffers, which a graph that is kept can't have.

    Args:
        steps: the passes to compare, counted from 0; None means all.
    """

    def __init__(self, steps: range | None = None) -> None:
        self._watcher = Watcher()
        self._names = Names()
        self._steps = steps
        self._engine: VerifyingEngine | None = None
        self._donated_buffer: bool
        self._modules: RemovableHandle

    def start(self) -> None:
        """Get between torch and its engine.

        Raises:
            agviz_engine.UnsupportedTorchError: this torch lacks something that our engine needs.
        """
        agviz_engine.install(self._watcher)
        self._donated_buffer = torch._functorch.config.donated_buffer
        torch._functorch.config.donated_buffer = False
        self._names.start()
        ours = Variable._execution_engine
        self._engine = VerifyingEngine(
            ours, self._watcher, self._names.parameter, steps=self._steps
        )
        Variable._execution_engine = self._engine
        self._modules = register_module_forward_pre_hook(self._engine.module_entered)

    def stop(self) -> ComparisonReport | None:
        """Give torch its engine back; return what was found, or None where it never began."""
        if self._engine is None:
            return None
        self._modules.remove()
        self._names.stop()
        torch._functorch.config.donated_buffer = self._donated_buffer
        agviz_engine.uninstall(self._watcher)
        return self._engine.findings
