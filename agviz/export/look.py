"""How a picture looks, whatever it shows: colours, and where its links lead."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from agviz.export.palette import LIGHT, Theme

if TYPE_CHECKING:
    from agviz.traces.rows import Frame


class Links(StrEnum):
    """What opens the line that created a node."""

    NONE = "none"
    FILE = "file"
    """``file://``: whatever opens files of that kind."""
    VSCODE = "vscode"
    """``vscode://``: Visual Studio Code, at the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colours and links.

    Args:
        theme: the colours.
        is_fixed: whether a page has these colours wherever it is read; else one with the light ones
            has the dark ones where its reader's browser asks for them.
        links: what opens a line; by default nothing does, so that a picture says nothing about
            where it was made.
        source_root: the folder that the program ran in, from which its files are found.
    """

    theme: Theme = LIGHT
    is_fixed: bool = False
    links: Links = Links.NONE
    source_root: Path = field(default_factory=Path.cwd)

    def link(self, frame: Frame | None) -> str:
        """The address of a line; empty where there is none."""
        if frame is None or self.links is Links.NONE or frame.file.startswith("<"):
            return ""
        path = quote((self.source_root / frame.file).as_posix())
        if self.links is Links.VSCODE:
            return f"vscode://file{path}:{frame.line}"
        return f"file://{path}#L{frame.line}"
