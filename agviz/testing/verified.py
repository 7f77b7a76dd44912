"""``--agviz-verify``: the backward passes of one test on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agviz_engine
from agviz.after_import import after_import
from agviz.testing.report_data import ReportData, nothing
from agviz_engine.support import remark

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.testing.slug import TestPart
    from agviz.verify.findings import ComparisonReport
    from agviz.verify.session import Verification


class Verified:
    """Compares from :meth:`start` to :meth:`stop`, if torch is imported by then.

    Args:
        run: which test, and which part of it.
    """

    def __init__(self, run: TestPart) -> None:
        self.run = run
        self.is_reported = False
        """Whether it was reported already."""
        self._verification: Verification | None = None
        self._findings: ComparisonReport | None = None
        self._problem = ""
        self._forget: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Compare from now on, or from the import of torch on."""
        self._forget = after_import("torch", self._start)

    def _start(self) -> None:
        try:
            agviz_engine.probe()
            from agviz.verify.session import Verification

            verification = Verification()
            verification.start()
        except agviz_engine.UnsupportedTorchError as error:
            self._problem = str(error)
        else:
            self._verification = verification

    def stop(self) -> None:
        """Give torch its engine back; a second call has no effect."""
        self._forget()
        if self._verification is not None:
            self._findings = self._verification.stop()
            self._verification = None

    @property
    def difference(self) -> str:
        """The first difference between the engines, in words; empty: there is none."""
        finding = None if self._findings is None else self._findings.first_difference
        if finding is None:
            return ""
        differences = "; ".join(each.described() for each in finding.differences)
        return (
            f"agviz's engine differs from torch's in pass {finding.number}, {finding.call}() at"
            f" {finding.place}: {differences}"
        )

    def report_data(self) -> ReportData:
        """For the end of the run."""
        data = nothing(self.run)
        data["problem"] = self._problem
        if self._findings is not None:
            import torch

            data["heading"] = self.difference
            data["remark"] = remark(torch.__version__)
            data["verified"] = self._findings.compared
            data["not_comparable"] = self._findings.passes - self._findings.compared
        return data
