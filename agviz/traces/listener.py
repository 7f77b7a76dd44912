"""What listens to torch between a start and a stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Listener(ABC):
    """Listens between :meth:`start` and :meth:`stop`; as a context manager, within the block."""

    @abstractmethod
    def start(self) -> None:
        """Listen from now on; a second call has no effect."""

    @abstractmethod
    def stop(self) -> None:
        """Listen no longer; a second call has no effect."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()
