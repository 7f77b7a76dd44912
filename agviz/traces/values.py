"""Reading the gradients themselves, which ``--values full`` records.

Note [Stored values are not believed]
What a file says of a tensor has to fit what it holds before any memory is asked for: the dtype is
one of a list, the shape is one, and chunks of exactly the bytes that both make are there, which the
file is large enough for. Torch checks the indices of sparse tensors. Nothing is unpickled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.traces.events import ROW_OF_EVENT, beside
from agviz.traces.health import ROLE, ROLES, SLOT
from agviz.traces.schema import AT, CHUNK_BYTES
from agviz.words.shapes import read_ragged_shape, read_shape

if TYPE_CHECKING:
    from torch import Tensor

    from agviz.errors import TraceError
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database

ITEM_BYTES: Final = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    "float8_e8m0fnu": 1,
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of an element, by dtype without ``torch.``."""
_COMPRESSED: Final = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}
_COLUMNS: Final = (
    f"{AT}, event.graph_task, event.node, {ROLE}, {SLOT}, dtype, shape, layout, coalesced, unknown"
)
_LARGEST: Final = 2**62


class ValueRow(NamedTuple):
    """A gradient that was recorded itself; :meth:`Trace.value` gives it."""

    graph_task: int
    node: int
    role: str
    """As in :class:`~agviz.traces.health.HealthRow`, as is ``slot``."""
    slot: int
    seq: int
    """``seq`` of the event in which it flowed."""
    dtype: str
    shape: tuple[int | None, ...] | None
    """None: not known; in it: the ragged dimension of a jagged tensor."""
    layout: str
    coalesced: bool
    """Whether it is a sparse_coo tensor that is marked as coalesced."""
    unknown: str
    """Why its elements are not in the file; empty where they are."""


class Part(NamedTuple):
    """One of the strided tensors that a recorded gradient consists of."""

    dtype: str
    shape: tuple[int, ...]
    """Shape of ``values`` of a strided gradient: size 1 where the gradient was expanded."""
    data: bytearray
    """The elements in order of their indices, little-endian."""


class StoredValues(NamedTuple):
    """How much of gradients themselves is in a file."""

    stored: int
    """Number of gradients."""
    nbytes: int
    """Bytes of all of them; what several share counts once."""
    left_out: dict[str, int]
    """How many were not stored, by reason, the most frequent first."""


def stored(database: Database, contents: Contents) -> StoredValues:
    """Count them.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    counts = database.integers(
        "SELECT unknown, count(*) FROM tensor GROUP BY unknown ORDER BY count(*) DESC, unknown"
        " LIMIT 100"
    )
    reasons = {contents.name(reason): count for reason, count in counts}
    nbytes = database.value("SELECT coalesce(sum(length(bytes)), 0) FROM chunk")
    return StoredValues(reasons.pop("", 0), nbytes, reasons)


def read(
    database: Database, contents: Contents, condition: str, *parameters: int
) -> list[ValueRow]:
    """The rows of the events that fulfil an SQL condition.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        f"SELECT {_COLUMNS} FROM {beside('tensor')} WHERE {condition}",  # noqa: S608 - the caller's own words
        *parameters,
    )
    try:
        return [_row(contents, row) for row in rows]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _senseless(database) from error


def read_parts(database: Database, contents: Contents, seq: int) -> dict[str, Part]:
    """The parts of a gradient whose elements are in the file, by name.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        f"SELECT name, dtype, shape, chunk FROM part WHERE seq = {ROW_OF_EVENT} LIMIT 10",  # noqa: S608 - our words
        *(seq, seq, seq),
    )
    text = contents.name
    try:
        return {
            text(name): _part(database, text(dtype), read_shape(text(shape)), chunk)
            for name, dtype, shape, chunk in rows
        }
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _senseless(database) from error


def tensor(database: Database, contents: Contents, row: ValueRow) -> Tensor:
    """The gradient as it flowed, on the CPU. Imports torch.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    parts = read_parts(database, contents, row.seq)
    try:
        return _built(row, {name: _tensor(part) for name, part in parts.items()})
    except (
        *(ArithmeticError, IndexError, KeyError, NotImplementedError, RuntimeError),
        *(TypeError, ValueError),
    ) as error:
        raise _senseless(database) from error


def _row(contents: Contents, row: tuple[int, ...]) -> ValueRow:
    seq, graph_task, node, role, slot, dtype, shape, layout, coalesced, unknown = row
    if node < 0 or slot < 0 or coalesced not in {0, 1}:
        raise ValueError(row)
    text = contents.name
    sizes = read_ragged_shape(text(shape))
    place = graph_task, node, ROLES[role], slot, seq
    return ValueRow(*place, text(dtype), sizes, text(layout), bool(coalesced), text(unknown))


def _part(database: Database, dtype: str, shape: tuple[int, ...] | None, first: int) -> Part:
    if shape is None:
        raise ValueError(shape)
    size = ITEM_BYTES[dtype] * math.prod(shape)
    if size > database.size:
        raise ValueError(size)
    data = bytearray()
    last = first + (size - 1) // CHUNK_BYTES
    for start in range(first, last + 1, _CHUNKS_PER_QUERY):
        end = min(start + _CHUNKS_PER_QUERY - 1, last)
        rows = database.blobs(
            "SELECT id, bytes FROM chunk WHERE id BETWEEN ? AND ? LIMIT ?",
            start,
            end,
            _CHUNKS_PER_QUERY,
        )
        if [number for number, _ in rows] != list(range(start, end + 1)):
            raise ValueError("a chunk is missing")
        data += b"".join(piece for _, piece in rows)
    if len(data) != size:
        raise ValueError("a chunk is of the wrong length")
    return Part(dtype, shape, data)


_CHUNKS_PER_QUERY: Final = 16


def _tensor(part: Part) -> Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, part.dtype)
    if not part.data:
        return torch.empty(part.shape, dtype=dtype)
    return torch.frombuffer(part.data, dtype=dtype).view(part.shape)


def _built(row: ValueRow, parts: dict[str, Tensor]) -> Tensor:
    import torch

    values = parts["values"]
    shape: Any = row.shape
    if row.layout == "jagged":
        return torch.nested.nested_tensor_from_jagged(
            values, parts["offsets"], parts.get("lengths"), shape.index(None)
        )
    if math.prod(shape) > _LARGEST:
        raise ValueError(shape)
    if row.layout == "strided":
        return values.expand(shape)
    if row.layout == "sparse_coo":
        return torch.sparse_coo_tensor(
            parts["indices"], values, shape, is_coalesced=row.coalesced, check_invariants=True
        )
    compressed, plain = (parts[name] for name in _COMPRESSED[row.layout])
    return torch.sparse_compressed_tensor(
        compressed,
        plain,
        values,
        shape,
        layout=getattr(torch, row.layout),
        check_invariants=True,
    )


def _senseless(database: Database) -> TraceError:
    return database.damaged("a gradient's values make no sense")
