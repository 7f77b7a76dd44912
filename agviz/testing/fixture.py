"""What the fixture ``agviz`` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.testing import checks
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from os import PathLike

    from torch.nn import Module

    from agviz.recorded import Recorded
    from agviz.testing.attempt import Attempt
    from agviz.testing.checks import Wanted


class Agviz:
    """The backward passes of a running test. Each ``assert_`` raises AssertionError.

    All of it raises :class:`agviz.errors.AgvizError` where no backward has run: what was not
    recorded can't be right.

    Args:
        attempt: the run of the test.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def trace(self) -> Recorded:
        """What ``agviz.trace`` gives: ``trace.nodes``, ``trace.explain()``, ``trace.svg()``."""
        return self._attempt.live

    def assert_finite(self) -> None:
        """No NaN or infinity may have reached a parameter or a result of ``grad``."""
        __tracebackhide__ = True
        _demand(checks.not_finite(self.trace.trace))

    def assert_order(self, wanted: Wanted, graph_task: int | None = None) -> None:
        """The nodes must have run in this order.

        Args:
            wanted: all of them: ``MulBackward0``, parameters or modules; a set for those that may
                run in any order, ``...`` for any number of nodes.
            graph_task: the backward pass; None: the last.
        """
        __tracebackhide__ = True
        _demand(checks.out_of_order(self.trace.trace, wanted, graph_task))

    def assert_reaches(self, model: Module) -> None:
        """Every parameter of ``model`` that requires a gradient must have one that is not zero."""
        __tracebackhide__ = True
        _demand(checks.unreached(self.trace.trace, model))

    def assert_same_as(
        self, other: Recorded | Trace | str | PathLike[str], *, rtol: float = 0.0, atol: float = 0.0
    ) -> None:
        """Nodes and gradients must be those of another trace.

        Args:
            other: it, or its file.
            rtol: numbers may differ by this share of the largest magnitude in a gradient.
            atol: and by this much.
        """
        __tracebackhide__ = True
        if isinstance(other, Trace):
            other = other.path
        found = self.trace.diff(other, rtol=rtol, atol=atol)
        _demand("" if found.same else str(found))


def not_recorded(node_id: str) -> AgvizError:
    """Why there is nothing to give."""
    return AgvizError(f"{node_id} is not recorded: its marker says mode='off'")


def _demand(wrong: str) -> None:
    __tracebackhide__ = True
    if wrong:
        raise AssertionError(wrong)
