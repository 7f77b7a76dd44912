"""What a user has chosen: colours, sizes and tours, which the terminal UI keeps, and keys.

All are in ``$XDG_CONFIG_HOME/agviz`` (``~/.config/agviz``, on Windows ``%APPDATA%``): ``theme`` is
a line with a theme's name, ``toured`` the names of tours that were shown, ``layout.json`` what
:mod:`agviz.tui.shares` keeps; ``keys.toml``, which is only read, gives bindings other keys, by id::

    [keys]
    "go.next-node" = "f8,n"
    "go.previous-node" = "f7,N"
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from agviz.errors import AgvizError


class Settings(NamedTuple):
    """As they were found."""

    folder: Path
    theme: str
    """Empty: none was chosen."""
    keys: dict[str, str]
    """Keys with commas between them, by id of the binding."""

    @classmethod
    def read(cls, folder: Path | None = None) -> Settings:
        """Read what there is; nothing is fine.

        Args:
            folder: of both files; None: where users have it.

        Raises:
            agviz.errors.AgvizError: keys.toml can't be understood.
        """
        folder = _folder() if folder is None else folder
        return cls(folder, _line(folder / "theme"), _keys(folder / "keys.toml"))

    def keep_theme(self, name: str) -> None:
        """Remember a theme for the next time; where that is not possible, it is forgotten."""
        self._write("theme", name + "\n")

    def take_tour(self, name: str) -> bool:
        """Whether a tour was not shown yet, and can be remembered to be shown now."""
        seen = _line(self.folder / "toured").split()
        return name not in seen and self._write("toured", " ".join([*seen, name]) + "\n")

    def _write(self, name: str, text: str) -> bool:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, encoding="utf-8")
        except OSError:
            return False
        return True


def _folder() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME") or ""
    if not named and sys.platform == "win32":
        named = os.environ.get("APPDATA") or ""
    return (Path(named) if named else Path.home() / ".config") / "agviz"


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""


def _keys(path: Path) -> dict[str, str]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise AgvizError(f"{path} can't be read: {error}") from error
    keys = found.get("keys", {})
    if found.keys() - {"keys"} or not isinstance(keys, dict):
        raise AgvizError(f"{path} can't be understood: it holds more than a table [keys]")
    if not all(isinstance(key, str) for key in keys.values()):
        raise AgvizError(f'{path} can\'t be understood: keys are texts, such as "f8,n"')
    return keys
