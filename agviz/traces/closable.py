"""What has to be closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Closable(ABC):
    """Is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds; a second call has no effect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
