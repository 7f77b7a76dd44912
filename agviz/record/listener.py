"""What listens to torch between a start and a stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


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

    def __exit__(self, *_: object) -> None:
        self.stop()
