"""Views and looks by the words that users write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agviz.errors import AgvizError
from agviz.export.look import Links, Look
from agviz.export.palette import THEMES
from agviz.graph.view import By, FoldMode, GraphView
from agviz.words.safe import clean

if TYPE_CHECKING:
    from enum import StrEnum

    Word = TypeVar("Word", bound=StrEnum)


def make_view(*, by: str = By.MODULE, fold: str = FoldMode.AUTO, **more: Any) -> GraphView:
    """A view.

    Raises:
        agviz.errors.AgvizError: a word is none of those there are, or a number makes no sense.
    """
    return GraphView(by=_word(By, "by", by), fold=_word(FoldMode, "fold", fold), **more)


def make_look(
    *, theme: str | None = None, links: str = Links.NONE, source_root: Path | None = None
) -> Look:
    """A look, whose colours are fixed where a theme is named; raises as :func:`make_view`."""
    if theme is not None and theme not in THEMES:
        raise _unknown("theme", theme, THEMES)
    return Look(
        theme=THEMES[theme or "light"],
        is_fixed=theme is not None,
        links=_word(Links, "links", links),
        source_root=(source_root or Path()).absolute(),
    )


def _word(kind: type[Word], what: str, said: str) -> Word:
    try:
        return kind(said)
    except ValueError:
        raise _unknown(what, said, kind) from None


def _unknown(what: str, said: object, known: Any) -> AgvizError:
    return AgvizError(f"{what} is {clean(repr(said))}: choose {', '.join(map(str, known))}")
