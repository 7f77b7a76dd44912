"""Lines of Python source as spans, in the few looks that every theme has."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from agviz.tui.text import Line, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LONG: Final = 100_000
"""Characters of a file that would take too long."""
_LOOKS = (
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
)


@cache
def _lexer() -> Any:
    from rich.syntax import Syntax  # 45 ms of CPU time, with Pygments

    return Syntax("", "python").lexer


@lru_cache(maxsize=1_000)  # the same stack is drawn for every answer that comes
def highlight(source: str) -> Line:
    """One line of Python."""
    return [span for span in _spans(source) if span.text.strip("\n")]


def highlight_file(lines: Sequence[str]) -> list[Line]:
    """The lines of a file of Python; a long one in one look, as anything else takes long."""
    if sum(map(len, lines)) > _LONG:
        return [[Span(line, "name")] for line in lines]
    return _highlight_text("\n".join(lines))[: len(lines)]


@lru_cache(maxsize=8)  # each pass that is opened asks for the file that the one before showed
def _highlight_text(text: str) -> list[Line]:
    found: list[Line] = [[]]
    for span in _spans(text):
        first, *others = span.text.split("\n")
        found[-1].append(Span(first, span.look))
        found += [[Span(other, span.look)] for other in others]
    return [[span for span in line if span.text] for line in found]


def _spans(source: str) -> Iterator[Span]:
    for _, token, text in _lexer().get_tokens_unprocessed(source):
        kind = str(token)
        yield Span(text, next((look for begin, look in _LOOKS if kind.startswith(begin)), "name"))
