"""Elements of an SVG that is written by hand, as text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from agviz.export.text import plain
from agviz.words.units import ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.export.palette import Theme

WIDTH: Final = 1600
"""Of pictures of time."""
RIGHT: Final = 24
"""Room beside what is in them."""
CHARACTER: Final = 6.3
"""About the width of one at 11 px."""
_WIDE: Final = 7.0
"""The same where it must not be less."""


def rect(
    x: float, y: float, width: float, height: float, fill: str, about: str = "", more: str = ""
) -> str:
    """A rectangle, with a tooltip."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' fill="{fill}"{more}>{title(about)}</rect>\n'
    )


def title(about: str) -> str:
    """A tooltip; empty where there is nothing to say."""
    return f"<title>{escape(plain(about))}</title>" if about else ""


def words(x: float, y: float, text: str, style: str = "") -> str:
    """A line of text that begins at ``x``, unless the style says otherwise."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(plain(text))}</text>\n'


def fitting(texts: tuple[str, ...], width: float) -> str:
    """The first that has room in a bar; empty: none has."""
    return next((text for text in texts if len(text) * _WIDE + 6 <= width), "")


def opening(width: float, height: float, theme: Theme) -> str:
    """The beginning of a picture, on paper; ``</svg>`` ends it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans, Arial, sans-serif"'
        f' font-size="11" fill="{theme.ink}">\n'
        f'<rect width="100%" height="100%" fill="{theme.paper}"/>\n'
    )


def axis(
    times: tuple[float, float], across: tuple[float, float], down: tuple[float, float], theme: Theme
) -> Iterator[str]:
    """Lines at round moments.

    Args:
        times: at the left and at the right, in ns.
        across: where these are.
        down: where the words are, and where the lines end.
        theme: colours.
    """
    (begin, end), (left, right), (y, bottom) = times, across, down
    for time, label in ticks(begin, end, int((right - left) // 110)):
        x = left + (time - begin) / max(1.0, end - begin) * (right - left)
        yield (
            f'<line x1="{x:.1f}" y1="{y + 6:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"'
            f' stroke="{theme.frame}" stroke-width="0.5" opacity="0.5"/>\n'
        )
        yield words(x, y + 2, label, f'text-anchor="middle" fill="{theme.faint}"')


def ascii_only(pieces: Iterable[str]) -> Iterator[str]:
    """The same in ASCII."""
    for piece in pieces:
        yield piece.encode("ascii", "xmlcharrefreplace").decode("ascii")
