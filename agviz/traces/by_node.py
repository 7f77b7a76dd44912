"""A number for some nodes of a graph: cheap to copy and to pack, however many have one."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from agviz.traces.integers import LARGEST, WORD, few_planes, from_few_planes

if TYPE_CHECKING:
    from collections.abc import Iterable

_MANY: Final = 2_000
"""Where more nodes have a number, they stand in an array."""
_LARGEST: Final = LARGEST - 1


class ByNode:
    """Numbers of nodes, by index: an array that copies share, and what has changed since."""

    __slots__ = ("_base", "_changes", "_count")

    def __init__(self, numbers: Iterable[tuple[int, int]] = ()) -> None:
        self._base: array[int] | None = None
        """By node: 0 for none, or one more than the number. It never changes."""
        self._count = 0
        """Nodes that have a number in the array."""
        self._changes: dict[int, int | None] = dict(numbers)
        """None: the node has no number any more."""

    def get(self, node: int, default: int) -> int:
        """The number of a node of the graph, or ``default``."""
        if node in self._changes:
            number = self._changes[node]
            return default if number is None else number
        if self._base is None or not self._base[node]:
            return default
        return self._base[node] - 1

    def __setitem__(self, node: int, number: int) -> None:
        self._changes[node] = number

    def __contains__(self, node: int) -> bool:
        if node in self._changes:
            return self._changes[node] is not None
        return self._base is not None and self._base[node] != 0

    def pop(self, node: int, default: int) -> int:
        """The same as :meth:`get`; then the node has none."""
        if self._base is None:
            number = self._changes.pop(node, None)
            return default if number is None else number
        number = self.get(node, default)
        self._changes[node] = None
        return number

    def clear(self) -> None:
        """Take all numbers away."""
        self._base, self._count, self._changes = None, 0, {}

    def copy(self) -> ByNode:
        """A copy that shares nothing that changes."""
        twin = ByNode()
        twin._base, twin._count, twin._changes = self._base, self._count, self._changes.copy()
        return twin

    def numbers(self) -> dict[int, int]:
        """All of them, by node."""
        base = self._base or ()
        found = {node: number - 1 for node, number in enumerate(base) if number}
        for node, number in self._changes.items():
            if number is None:
                found.pop(node, None)
            else:
                found[node] = number
        return found

    def pack(self, status: bytes) -> tuple[int, bytes]:
        """How many there are, and all of them, where they are many; else 0 and nothing.

        Args:
            status: a byte for each node of the graph, which says much about its number.
        """
        self._settle(len(status))
        if self._base is None:
            return 0, b""
        return self._count, few_planes(self._base, status)

    @classmethod
    def unpack(cls, count: int, data: memoryview, status: bytes) -> tuple[ByNode, int]:
        """What :meth:`pack` was given, and how many bytes of ``data`` it was. Raises ValueError."""
        found = cls()
        found._base, end = from_few_planes(data, len(status), status)
        found._count = count
        return found, end

    def _settle(self, nodes: int) -> None:
        """Put many numbers into an array, and few out of it."""
        changes = self._changes
        given = [number for number in changes.values() if number is not None]
        is_odd = bool(given) and not 0 <= min(given) <= max(given) <= _LARGEST
        if self._base is None and (is_odd or len(changes) < _MANY):
            return
        if not is_odd and changes:
            base = array("q", bytes(nodes * WORD) if self._base is None else self._base)
            for node, number in changes.items():
                new = 0 if number is None else number + 1
                self._count += bool(new) - bool(base[node])
                base[node] = new
            self._base, self._changes = base, {}
        if is_odd or self._count < _MANY // 2:
            self._base, self._count, self._changes = None, 0, dict(self.numbers())
