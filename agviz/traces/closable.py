"""What has to be closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closable(ABC):
    """Is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds; a second call has no effect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
