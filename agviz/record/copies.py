"""Copies of gradients on their way to the file, at level ``full``: how many, and of which.

Note [Values are bounded]
What is copied counts against one bound from then on, while it waits and once it is in the file;
only what a flight recorder forgets is given back. The first gradient for which there is no room
ends the copying, so that up to there every value is in the file: later ones have their health only.
A flight recorder makes room instead, by letting go of the oldest values that it holds; a gradient
that finds none even so is left out alone, as is one that is larger than a sixteenth of the bound.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.measure.recent import Recent
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from agviz.measure.copying import Identity, Parts

MOST_BYTES: Final = 256 * 1024**2
"""The default bound."""
SHARE_OF_LARGEST: Final = 16
"""One gradient may take one part in so many of the bound."""


class Room:
    """How many bytes may still be copied. Any thread may ask.

    Args:
        most: the bound.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._changes: deque[tuple[int, int]] = deque()
        """What a destructor, which may run at any moment, has left to be added."""

    @property
    def waiting(self) -> int:
        """Bytes of copies that are in memory, on their way to the file or held."""
        with self._lock:
            self._settle()
            return self._waiting

    @property
    def free(self) -> int:
        """Bytes that may still be copied; nothing is waited for, so that a signal may ask."""
        return self.most - self._taken + sum(taken for taken, _ in list(self._changes))

    def take(self, nbytes: int) -> bool:
        """Whether there is room for so many bytes; if so, it is taken."""
        with self._lock:
            self._settle()
            if self._taken + nbytes > self.most:
                return False
            self._taken += nbytes
            self._waiting += nbytes
            return True

    def written(self, nbytes: int) -> None:
        """So many bytes have gone from memory to the file."""
        self._changes.append((0, nbytes))

    def given_back(self, nbytes: int) -> None:
        """So many bytes are neither in memory any longer nor in the file."""
        self._changes.append((nbytes, nbytes))

    def _settle(self) -> None:
        while self._changes:
            taken, waiting = self._changes.popleft()
            self._taken -= taken
            self._waiting -= waiting


class CopiedBytes:
    """The bytes of a tensor, which several gradients may share."""

    __slots__ = ("_room", "chunk", "data", "nbytes")

    def __init__(self, data: bytearray, room: Room) -> None:
        self.data: bytearray | None = data
        """None: written, or let go of."""
        self.nbytes = len(data)
        self.chunk: int | None = None
        """Number of its first chunk in the file; None: not written."""
        self._room = room

    @property
    def is_there(self) -> bool:
        """Whether it is in memory or in the file."""
        return self.data is not None or self.chunk is not None

    def written(self, chunk: int) -> None:
        """It is in the file."""
        self.chunk = chunk
        self.data = None
        self._room.written(self.nbytes)

    def let_go(self) -> int:
        """Forget the bytes, unless they were written; how many that were."""
        if self.data is None:
            return 0
        self.data = None
        self._room.given_back(self.nbytes)
        return self.nbytes

    def __del__(self) -> None:
        self.let_go()


class CopiedPart(NamedTuple):
    """One of the strided tensors that a gradient consists of."""

    name: str
    dtype: str
    shape: str
    contents: CopiedBytes


class Copy(NamedTuple):
    """A gradient as it waits for the writer; texts as in the ``tensor`` table."""

    dtype: str
    shape: str
    layout: str
    coalesced: bool
    parts: tuple[CopiedPart, ...]
    unknown: str

    @property
    def nbytes(self) -> int:
        """Bytes that still have to be written."""
        return sum(part.contents.nbytes for part in self.parts if part.contents.chunk is None)


class Copier:
    """Copies gradients while there is room. Note [Values are bounded].

    Args:
        most: bytes of all copies.
        make_room: called where there is no room; says how many bytes there are more. None: there is
            no way to make room, and nothing is copied after the first refusal.
    """

    def __init__(self, most: int, make_room: Callable[[], int] | None = None) -> None:
        self.room = Room(most)
        self._largest = max(1, most // SHARE_OF_LARGEST)
        self._make_room = make_room
        self._thread = threading.local()
        self.is_full = False
        """Whether nothing more is copied."""

    def copy(self, gradient: Tensor, graph_task: int) -> Copy | None:
        """A copy, or what is known where there is none; None: there is no room any more."""
        from agviz.measure import copying
        from agviz.measure.health import unseen

        if self.is_full:
            return None
        with unseen():
            found = copying.parts(gradient)
            if not found.unknown and found.nbytes > self._largest:
                found = _without(found, f"larger than {self._largest:,} bytes")
            contents = self._known(found.identity, graph_task)
            if not contents and not found.unknown:
                if not self._take(found.nbytes):
                    if self._make_room is None:
                        self.is_full = True
                        return None
                    found = _without(found, f"no room within {self.room.most:,} bytes")
                try:
                    taken = [copying.contents(part) for _, part in found.parts]
                except Exception as error:
                    if comes_from_outside(error):
                        raise
                    self.room.given_back(found.nbytes)
                    found, taken = _without(found, type(error).__name__), []
                contents = [CopiedBytes(data, self.room) for data in taken]
        if found.identity is not None and found.parts:
            known = _Known(found.identity, contents)
            self._memory().keep((found.identity.storage, graph_task), known)
        return _waiting(found, contents)

    def _take(self, nbytes: int) -> bool:
        while not self.room.take(nbytes):
            if self._make_room is None or not self._make_room():
                return False
        return True

    def _known(self, identity: Identity | None, graph_task: int) -> list[CopiedBytes]:
        if identity is None:
            return []
        known = self._memory().get((identity.storage, graph_task))
        if known is None or not known.identity.is_that_of(identity):
            return []
        return known.contents if all(each.is_there for each in known.contents) else []

    def _memory(self) -> Recent[tuple[int, int], _Known]:
        """Contents that may be referred to again, of this thread, by storage and graph task."""
        memory: Recent[tuple[int, int], _Known] = self._thread.__dict__.setdefault(
            "known", Recent()
        )
        return memory


class _Known(NamedTuple):
    identity: Identity
    contents: list[CopiedBytes]


def _without(found: Parts, why: str) -> Parts:
    return found._replace(parts=(), unknown=why, identity=None)


def _waiting(found: Parts, contents: list[CopiedBytes]) -> Copy:
    parts = tuple(
        CopiedPart(name, str(part.dtype).removeprefix("torch."), str(list(part.shape)), data)
        for (name, part), data in zip(found.parts, contents, strict=True)
    )
    shape = "" if found.shape is None else json.dumps(found.shape)
    return Copy(found.dtype, shape, found.layout, found.coalesced, parts, found.unknown)
