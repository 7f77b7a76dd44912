"""GraphShape: what a replay needs of a graph, and the few bytes as which a file keeps it.

Note [Stored shapes]
The rows of a hundred thousand nodes take longer to read than anybody waits for a state. Where a
recording is closed, the shapes of large graphs are stored beside them: columns of bytes,
compressed, and for queues the order in which the nodes would be popped, which takes long to sort.
They are believed as little as the rest of a file. Bytes that are none are passed over, and the rows
are read; columns that say something else than the rows give false facts, but never an error. A
false order gives false queues of the right nodes (``long_queue.py``).
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import lt
from typing import TYPE_CHECKING, Final, overload

from agviz.traces.heap_entry import ACCUMULATE_GRAD, HeapEntry, QueuedTask, Tied, key
from agviz.traces.integers import FEW, LARGEST, WORD, Planes, few_planes, little_endian

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEVEL: Final = 6
_LEAST_NODES: Final = 1_000
_MOST_NODES: Final = 2**20
_MOST_PLANES: Final = 4
"""So many digits of base 3 fit into a byte, with a bit beside them."""
_IS_SET: Final = bytes(byte > 0 for byte in range(256))
_IS_NOT_SET: Final = bytes(byte == 0 for byte in range(256))


def is_stored(nodes: int) -> bool:
    """Whether the shape of a graph of so many nodes is stored."""
    return _LEAST_NODES <= nodes <= _MOST_NODES


@dataclass(slots=True)
class GraphShape:
    """What of a graph its replay needs, each by node index."""

    sequence_nrs: Sequence[int | None]
    """None: AccumulateGrad."""
    dependencies: Sequence[int]
    left_out: Collection[int] = frozenset()
    """Nodes of whose events the recording keeps none."""
    queues: bytes = b""
    """One more than the ReadyQueue's number, which is -1 for the caller's; empty: not known."""
    packed_order: bytes = field(default=b"", repr=False)
    """The pop order as it was stored, empty where it was not."""
    _is_ordered: bool | None = field(default=None, init=False, repr=False)
    _is_scattered: bool | None = field(default=None, init=False, repr=False)
    _pop_order: Sequence[int] | None = field(default=None, init=False, repr=False)
    _masks: dict[int, bytes] = field(default_factory=dict, init=False, repr=False)
    _planes: list[bytes] | None = field(default=None, init=False, repr=False)

    @classmethod
    def unknown(cls, size: int) -> GraphShape:
        """Some graph of so many nodes, which takes up little memory."""
        return cls(_Numbered(Planes([], size)), bytes(size))

    def entry(self, graph_task: int, depth: int, node: int) -> HeapEntry:
        """The NodeTask of a node as it stands in a heap.

        Args:
            graph_task: the one whose graph this is.
            depth: its reentrant depth.
            node: index of the node.
        """
        return key(depth, self.sequence_nrs[node]), Tied(QueuedTask(graph_task, node))

    @property
    def is_ordered(self) -> bool:
        """Whether all nodes but AccumulateGrad nodes have sequence numbers of their own."""
        if self.packed_order:
            return True
        if self._is_ordered is None:
            numbers = [n for n in self.sequence_nrs if n not in {None, ACCUMULATE_GRAD}]
            self._is_ordered = len(set(numbers)) == len(numbers)
        return self._is_ordered

    @property
    def is_scattered(self) -> bool:
        """Whether sequence numbers go up and down all the time in the order of the nodes."""
        if self._is_scattered is None:
            numbers = [number for number in self.sequence_nrs if number is not None]
            ascents = sum(map(lt, numbers, numbers[1:]))
            self._is_scattered = 8 * min(ascents, len(numbers) - ascents) > len(numbers)
        return self._is_scattered

    @property
    def pop_order(self) -> Sequence[int]:
        """All nodes, by key; where it was read from a file, perhaps some other numbers from 0."""
        if self._pop_order is None:
            size = len(self.dependencies)
            try:
                (self._pop_order,), _ = _unpack(self.packed_order, size, 1)
            except ValueError:
                self._pop_order = array("q", sorted(range(size), key=self._key))
        return self._pop_order

    def place(self, entry: HeapEntry) -> int:
        """Where the node of a NodeTask stands in the pop order."""
        size = len(self.dependencies)
        wanted = self._key(entry[1].task.node)
        return bisect_left(self.pop_order, wanted, key=lambda node: self._key(node % size))

    def in_queue(self, queue: int, marks: bytes | bytearray) -> bytes | bytearray:
        """Marks, by node 1 or 0, of which those are left whose nodes belong into a queue.

        Args:
            queue: device index, or -1.
            marks: of nodes that are in some queue.
        """
        mask = self._masks.get(queue)
        if mask is None:
            table = bytes(number == queue + 1 for number in range(256))
            mask = self._masks[queue] = self.queues.translate(table)
        if mask.count(0) == 0:
            return marks
        left = int.from_bytes(mask, "little") & int.from_bytes(marks, "little")
        return left.to_bytes(len(marks), "little")

    def parted(self, number: int, larger: int, others: int, leaves: int) -> bytes:
        """A byte for each node, by its sequence number.

        Args:
            number: to compare with, below :data:`LARGEST`.
            larger: the byte of nodes that leave a queue before one with this number would.
            others: the byte of the others.
            leaves: that of AccumulateGrad nodes.
        """
        if self._planes is None:
            self._planes = _significant(self.sequence_nrs)
        *planes, are_leaves = self._planes
        code, weight = 0, 1
        # Digits of base 3: whether each byte of a number is smaller, the same, or larger.
        for place, plane in enumerate(planes):
            byte = number + 1 >> 8 * place & 255
            table = bytes(weight * ((each >= byte) + (each > byte)) for each in range(256))
            code += int.from_bytes(plane.translate(table), "little")
            weight *= 3
        code += weight * int.from_bytes(are_leaves, "little")
        same = weight if number + 1 >> 8 * len(planes) else (weight - 1) // 2
        table = bytes(larger if each > same else others for each in range(weight))
        table = (table + bytes([leaves]) * weight).ljust(256)
        return code.to_bytes(len(self.dependencies), "little").translate(table)

    def _key(self, node: int) -> int:
        return key(0, self.sequence_nrs[node])

    def pack(self) -> tuple[bytes, bytes]:
        """The columns, and the pop order where it says how a queue is popped, else nothing.

        Raises:
            OverflowError: a number is too large, or below 0.
        """
        size = len(self.dependencies)
        given = [number for number in self.sequence_nrs if number is not None]
        for column in (given, self.dependencies):
            if column and not 0 <= min(column) <= max(column) < LARGEST:
                raise OverflowError("a number of a node is out of range")
        numbers = array("q", (0 if n is None else n + 1 for n in self.sequence_nrs))
        dependencies = array("q", self.dependencies)
        left_out = bytearray(size if self.left_out else 0)
        for node in self.left_out:
            left_out[node] = 1
        told = bytes([bool(self.queues), bool(self.left_out)])
        columns = _pack(numbers, dependencies, then=told + self.queues + left_out)
        return columns, _pack(array("q", self.pop_order)) if self.is_ordered else b""

    @classmethod
    def unpack(cls, columns: bytes, order: bytes, size: int) -> GraphShape:
        """What :meth:`pack` was given.

        Args:
            columns: bytes from anywhere.
            order: likewise.
            size: number of nodes.

        Raises:
            ValueError: the columns are none of a graph of this size.
        """
        (numbers, dependencies), then = _unpack(columns, size, 2)
        told, then = then[:2], then[2:]
        if len(told) != 2 or max(told) > 1 or len(then) != size * sum(told):
            raise ValueError("columns are of another size")
        queues = then[: size * told[0]]
        left_out = _Marked(then[-size:]) if told[1] else frozenset[int]()
        return cls(_Numbered(numbers), dependencies, left_out, queues, order)


def _significant(numbers: Sequence[int | None]) -> list[bytes]:
    """The first byte of each number, the second, and so on, and at last 1 where there is none.

    Numbers are told as the next larger ones, and none as 0.
    """
    if isinstance(numbers, _Numbered):
        planes = numbers.larger.planes[:_MOST_PLANES]
    else:
        larger = array("q", (0 if n is None or n >= LARGEST else n + 1 for n in numbers))
        data = little_endian(larger).tobytes()
        planes = [data[byte::WORD] for byte in range(_MOST_PLANES)]
    while planes and planes[-1].count(0) == len(numbers):
        planes.pop()
    told = 0
    for plane in planes:
        told |= int.from_bytes(plane.translate(_IS_SET), "little")
    return [*planes, told.to_bytes(len(numbers), "little").translate(_IS_NOT_SET)]


class _Numbered(Sequence[int | None]):
    """Numbers, of which each is kept as the next larger one, and None as 0."""

    def __init__(self, larger: Planes) -> None:
        self.larger = larger

    def __len__(self) -> int:
        return len(self.larger)

    @overload
    def __getitem__(self, place: int) -> int | None: ...
    @overload
    def __getitem__(self, place: slice) -> list[int | None]: ...
    def __getitem__(self, place: int | slice) -> int | list[int | None] | None:
        if isinstance(place, slice):
            return [number - 1 if number else None for number in self.larger[place]]
        number = self.larger[place]
        return number - 1 if number else None


class _Marked(Collection[int]):
    """The places at which bytes are not 0."""

    def __init__(self, marks: bytes) -> None:
        self._marks = marks

    def __contains__(self, place: object) -> bool:
        marks = self._marks
        return isinstance(place, int) and 0 <= place < len(marks) and bool(marks[place])

    def __iter__(self) -> Iterator[int]:
        return compress(range(len(self._marks)), self._marks)

    def __len__(self) -> int:
        return len(self._marks) - self._marks.count(0)


def _pack(*columns: array[int], then: bytes | bytearray = b"") -> bytes:
    size = len(columns[0]).to_bytes(WORD, "little")
    return zlib.compress(b"".join([size, *map(few_planes, columns), then]), _LEVEL)


def _unpack(packed: bytes, size: int, count: int) -> tuple[list[Planes], bytes]:
    """So many columns of so many words, and the bytes behind them. Raises ValueError."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, WORD + (count + 1) * FEW * (size + 1))
    except zlib.error as error:
        raise ValueError("columns are none") from error
    if not unpacking.eof or unpacking.unused_data or data[:WORD] != size.to_bytes(WORD, "little"):
        raise ValueError("columns are of another size")
    rest = memoryview(data)[WORD:]
    columns = []
    for _ in range(count):
        column, end = Planes.read(rest, size)
        columns.append(column)
        rest = rest[end:]
    return columns, bytes(rest)
