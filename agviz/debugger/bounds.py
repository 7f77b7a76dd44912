"""Bounds: what a data breakpoint waits for, and what it saw before.

A bound is a condition that names a parameter, ``fc.weight.grad.norm() > 1e3``, which is passed when
it comes to hold; or ``fc.weight.grad.norm() changes 10x``, which is passed when a number is ten
times, or a tenth, of what it was in the last pass in which the parameter got a gradient.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.expressions import (
    LONGEST,
    Condition,
    Expression,
    ExpressionError,
    UnknownValueError,
    write_value,
)

if TYPE_CHECKING:
    from agviz.debugger.expressions import Scope

_CHANGES: Final = re.compile(r"(?s)(.*\S)\s+changes\s+(\d{1,9}(?:\.\d{1,9})?)\s*x")


class Bound:
    """What is written behind ``when``.

    Args:
        text: as the user writes it.

    Raises:
        ExpressionError: it makes no sense.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > LONGEST:
            raise ExpressionError(f"a bound has at most {LONGEST} characters")
        changes = _CHANGES.fullmatch(self.text)
        self.factor = 0.0 if changes is None else float(changes[2])
        """By how much a number has to change; 0: it is a condition."""
        if changes is not None and self.factor <= 1:
            raise ExpressionError(f"a number changes by a factor over 1, not {changes[2]}x")
        self._whole: Expression
        self._whole = Condition(self.text) if changes is None else Expression(changes[1])
        if self._whole.is_tensor:
            raise ExpressionError(
                f"{self._whole.text!r} is a tensor and no number; write"
                f" {self._whole.text}.norm() changes {changes[2] if changes else 10}x"
            )
        self.parameters = self._whole.parameters
        """After whose AccumulateGrad it is looked at."""
        if not self.parameters:
            raise ExpressionError(
                "a data breakpoint names a parameter, like fc.weight.grad.norm() > 1e3; for the"
                " gradients of a node write a place and a condition: Mul if norm > 1e3"
            )
        compared = self._whole.compared if changes is None else ""
        self._shown = Expression(compared) if compared else self._whole

    def look(self, scope: Scope) -> Any:
        """Whether it holds; of what changes, the number; None: it has no value now."""
        try:
            value = self._whole.value(scope)
        except UnknownValueError:
            return None
        if not self.factor:
            return bool(value)
        return value if isinstance(value, int | float) else None

    def shown(self, scope: Scope) -> str:
        """What is held against the bound, as text."""
        try:
            return write_value(self._shown.value(scope))
        except UnknownValueError:
            return "not known"


@dataclass
class Watched:
    """What a data breakpoint saw last."""

    found: Any = None
    """Whether its condition held; of what changes, the number. None: it had no value yet."""
    shown: str = ""
    graph_task: int = -1
    """In which pass."""
    before: Any = None
    """Of what changes: the number in the last pass before that one."""
    before_shown: str = ""

    def passes(self, bound: Bound, scope: Scope, graph_task: int) -> str:
        """Look again.

        Returns:
            What passed the bound, from which value to which; empty: nothing did.
        """
        found = bound.look(scope)
        if found is None:
            return ""
        was, was_shown = self.found, self.shown
        if bound.factor and graph_task != self.graph_task:
            self.before, self.before_shown = self.found, self.shown
        if bound.factor:
            was, was_shown = self.before, self.before_shown
        self.found, self.shown, self.graph_task = found, bound.shown(scope), graph_task
        if bound.factor:
            is_passed = was is not None and changed(was, found, bound.factor)
        else:
            is_passed = found and not was
        if not is_passed:
            return ""
        return f"{bound.text}: {was_shown or 'first'} → {self.shown}"


def changed(before: float, now: float, factor: float) -> bool:
    """Whether a number is so many times what it was, or so small a part of it.

    A number that was zero or not finite and is not any more has changed by any factor, and so has
    one that is now.
    """
    if math.isfinite(before) is not math.isfinite(now) or (before == 0) is not (now == 0):
        return True
    if not math.isfinite(now) or now == 0:
        return False
    larger, smaller = max(abs(before), abs(now)), min(abs(before), abs(now))
    return larger >= factor * smaller
