"""The last few things that were found, by key."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
_MOST = 32


class Recent(dict[K, V]):
    """Keeps the 32 things that were kept last; the others it forgets."""

    def keep(self, key: K, value: V) -> None:
        """Keep ``value``, as the last one."""
        self.pop(key, None)
        self[key] = value
        if len(self) > _MOST:
            del self[next(iter(self))]
