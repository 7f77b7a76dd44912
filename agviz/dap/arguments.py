"""What an editor sends is checked here, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
_LARGEST: Final = 2**31 - 1
_DIGITS: Final = 10
_MOST: Final = 10_000
"""Things in a list."""
_KINDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


class RequestError(AgvizError):
    """A request can't be met; the message says why in one sentence."""


class Arguments:
    """What a request, or an object in one, says under which name.

    Every method raises :class:`RequestError` where it says something else than is asked for.

    Args:
        said: the object.
        where: its name; empty for a request's own.
    """

    def __init__(self, said: object, where: str = "") -> None:
        if not isinstance(said, dict) or not all(isinstance(name, str) for name in said):
            raise RequestError(f"{where or 'arguments'} has to be an object")
        self._said: Mapping[str, Any] = said
        self._where = where

    def __contains__(self, name: object) -> bool:
        return self._said.get(str(name)) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without ``default`` it has to be there."""
        return self._one(name, str, default)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth value."""
        return self._one(name, bool, default)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number of 31 bits, 0 or more."""
        found = self._one(name, int, default)
        if not 0 <= found <= _LARGEST:
            raise RequestError(f"{self._name(name)} can't be {found}")
        return found

    def process(self, name: str) -> int:
        """A process's number; an editor that lets one choose gives it as a text."""
        found = self._said.get(name)
        if isinstance(found, str) and found.isdecimal() and len(found) < _DIGITS:
            return int(found)
        return self.number(name)

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty where it is not there."""
        found = self._list(name)
        if not all(isinstance(each, str) for each in found):
            raise RequestError(f"{self._name(name)} has to be a list of texts")
        return found

    def objects(self, name: str) -> list[Arguments]:
        """A list of objects; empty where it is not there."""
        return [Arguments(each, self._name(name)) for each in self._list(name)]

    def object(self, name: str) -> Arguments:
        """An object; an empty one where it is not there."""
        return Arguments(self._said.get(name) or {}, self._name(name))

    def environment(self, name: str) -> dict[str, str | None]:
        """Texts by name, null for a variable that is to be unset; empty where it is not there."""
        found = self.object(name)._said
        if not all(value is None or isinstance(value, str) for value in found.values()):
            raise RequestError(f"{self._name(name)} has to have texts, or null")
        return dict(found)

    def _one(self, name: str, kind: type[T], default: T | None) -> T:
        found = self._said.get(name)
        if found is None:
            if default is None:
                raise RequestError(f"{self._name(name)} is missing")
            return default
        if type(found) is not kind:
            raise RequestError(f"{self._name(name)} has to be {_KINDS[kind]}")
        return found

    def _list(self, name: str) -> list[Any]:
        found = self._said.get(name)
        if found is None:
            return []
        if not isinstance(found, list) or len(found) > _MOST:
            raise RequestError(f"{self._name(name)} has to be a list of at most {_MOST:,}")
        return found

    def _name(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name
