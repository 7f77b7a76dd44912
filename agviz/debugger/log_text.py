"""The text of a log point: ``norm is {norm}, of the weight {fc.weight.norm()}``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agviz.debugger.expressions import (
    Expression,
    ExpressionError,
    UnknownValueError,
    write_value,
)

if TYPE_CHECKING:
    from agviz.debugger.expressions import Scope

LONGEST: Final = 500
"""Characters of a text."""
_PIECES: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")


class LogText:
    """A text with expressions in braces, ``{{`` and ``}}`` for braces themselves.

    Args:
        text: as the user writes it.

    Raises:
        ExpressionError: what is in braces is no expression.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ExpressionError(f"the text of a log point has at most {LONGEST} characters")
        self._pieces = [_piece(each) for each in _PIECES.findall(text)]

    def written(self, scope: Scope) -> str:
        """The text with values; of what has none, why it has none."""
        return "".join(
            each if isinstance(each, str) else _value(each, scope) for each in self._pieces
        )


def _piece(text: str) -> str | Expression:
    if text in {"{{", "}}"}:
        return text[0]
    if text in {"{", "}"}:
        raise ExpressionError(
            f"a log point has a {text!r} too many; expressions are in braces, {text * 2} is a brace"
        )
    return Expression(text[1:-1]) if text.startswith("{") else text


def _value(expression: Expression, scope: Scope) -> str:
    try:
        return write_value(expression.value(scope))
    except UnknownValueError as error:
        return f"<{error}>"
