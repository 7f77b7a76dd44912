"""The colours of a theme as CSS, for pages that hold pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.export.palette import DARK, LIGHT, in_the_dark

if TYPE_CHECKING:
    from agviz.export.palette import Theme

_NAMES: Final = ("ink", "faint", "frame", "paper", "shade", "alarm")


def variables(theme: Theme) -> str:
    """Declarations of ``--ink``, ``--paper`` and so on."""
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in _NAMES)


def following() -> str:
    """Rules for a page in the light theme's colours that goes dark where its reader prefers that.

    They hold for the page, and for the colours that are written in its pictures.
    """
    rules = "".join(
        f'[{what}="{light}" i]{{{what}:{dark}}}'
        for light, dark in in_the_dark().items()
        for what in ("fill", "stroke")
    )
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} {rules} }}"
    return f":root {{ {variables(LIGHT)} }}\n{dark}"
