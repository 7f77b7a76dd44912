"""Checking for as long as a program runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from torch.autograd.variable import Variable

from agviz.after_import import after_import
from agviz.check.report import CheckReport, report_of
from agviz.check.watch import GradientWatch, watched_engine
from agviz.measure.saved_tensors import packing_hooks
from agviz.record.names import Names
from agviz_engine.instruments import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.check.ranks.notes import RankNotes


class GradientCheck:
    """From :meth:`start` to :meth:`stop` the gradients of this process are looked at.

    Args:
        compiles: whether backward passes are held against the same under ``torch.compile``.
        in_ranks: whether this process is one of several ranks that are to be compared.
    """

    def __init__(self, *, compiles: bool = False, in_ranks: bool = False) -> None:
        self._compiles = compiles
        self._names = Names()
        self._watch = GradientWatch(self._names, Registry(), in_ranks=in_ranks)
        self._forget: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Get between the program and torch."""
        if self._compiles:  # when the program has ended, Python refuses to import it
            importlib.import_module("concurrent.futures.process")
        packing_hooks.start()
        self._names.start()
        self._watch.start()
        self._own = Variable._execution_engine
        Variable._execution_engine = watched_engine(
            self._own,
            self._watch.backward_begins,
            self._watch.backward_ended,
            self._watch.backward_left,
            self._watch.grad_gave,
        )
        self._forget = after_import(
            "torch._dynamo.eval_frame", self._watch.stay_out_of_compiled_code
        )

    def stop(self) -> CheckReport:
        """Leave torch as it was, and judge what was seen: custom Functions are called again."""
        self._forget()
        Variable._execution_engine = self._own
        self._watch.stop()
        packing_hooks.stop()
        report = report_of(self._watch, compiles=self._compiles)
        self._names.stop()
        return report

    def notes(self) -> RankNotes | None:
        """What was noted for the comparison of ranks; None: this is none of several."""
        return None if self._watch.ranks is None else self._watch.ranks.notes()
