"""Lines of Python source as spans, in the few looks that every theme has."""

from __future__ import annotations

from functools import cache
from typing import Any

from rich.syntax import Syntax

from agviz.tui.text import Line, Span

_LOOKS = (
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
)


@cache
def _lexer() -> Any:
    return Syntax("", "python").lexer


def highlight(source: str) -> Line:
    """One line of Python."""
    spans = [
        Span(text, next((look for kind, look in _LOOKS if str(token).startswith(kind)), "name"))
        for token, text in _lexer().get_tokens(source)
    ]
    return [span for span in spans if span.text.strip("\n")]
