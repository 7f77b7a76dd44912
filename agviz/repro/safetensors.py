"""The safetensors format: eight bytes of length, a JSON header, the elements.

Written and read here with the standard library, so that neither recording nor reading needs another
package; ``safetensors.torch.load_file`` reads the same files. What is read is believed nothing:
names, dtypes and shapes have to fit the bytes that are there.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CODES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""Of torch's dtypes, without ``torch.``; elements of others are stored as bytes."""
ITEM_BYTES: Final = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
_METADATA: Final = "__metadata__"
_LENGTH: Final = 8
_ALIGNED: Final = 8
_LONGEST_HEADER: Final = 100_000_000
"""Bytes: the bound of the format itself."""


class StoredTensor(NamedTuple):
    """Elements in order of their indices, little-endian, without gaps."""

    code: str
    """As in :data:`CODES`."""
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview


def encode(tensors: Mapping[str, StoredTensor], metadata: Mapping[str, str]) -> bytes:
    """A file of these tensors, in this order."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, (code, shape, data) in tensors.items():
        header[name] = {
            "dtype": code,
            "shape": list(shape),
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNED)
    parts: Sequence[Any] = [each.data for each in tensors.values()]
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])


def decode(data: bytes) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors of a file and its metadata.

    Raises:
        agviz.errors.AgvizError: it is damaged.
    """
    try:
        return _decoded(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AgvizError("the tensors that were kept are damaged; record them again") from error


def _decoded(data: bytes) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    length = int.from_bytes(data[:_LENGTH], "little")
    begin = _LENGTH + length
    if length > _LONGEST_HEADER or begin > len(data):
        raise ValueError(length)
    header = json.loads(data[_LENGTH:begin])
    metadata = header.pop(_METADATA, {})
    if any(type(text) is not str for text in metadata.values()):
        raise TypeError(metadata)
    view = memoryview(data)[begin:]
    found, reached = {}, 0
    for name, facts in header.items():
        shape = tuple(facts["shape"])
        first, end = facts["data_offsets"]
        if any(type(size) is not int or size < 0 for size in (*shape, first, end)):
            raise TypeError(shape)
        size = ITEM_BYTES[facts["dtype"]] * math.prod(shape)
        if first != reached or end - first != size or end > len(view):
            raise ValueError(name)
        reached = end
        found[name] = StoredTensor(facts["dtype"], shape, view[first:end])
    if reached != len(view):
        raise ValueError(reached)
    return found, metadata
