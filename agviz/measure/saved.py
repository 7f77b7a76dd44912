"""What a node saved for its backward, looked at before the node lets go of it.

Asked where a node makes something non-finite of finite gradients. Nothing is unpacked: hooks of the
program (``saved_tensors_hooks``, checkpointing) are not called, and what they packed stays unknown.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from agviz.measure.health import measure, unknown, unseen
from agviz.measure.saved_tensors import raw_saved
from agviz.measure.values import Looked, SavedValue
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz_engine")

_RAW: Final = "_raw_saved_"
_SAVED: Final = "_saved_"
_MOST: Final = 64
"""Values looked at of one node."""
_LONGEST: Final = 200
"""Characters of a value's text."""
_MOST_PARTS: Final = 16
"""Of a list or tuple that is shown."""
_PLAIN: Final = (bool, int, float, complex, str, type(None))
_NEGATIVE: Final = 2**63
"""From here on, torch gave a negative ``int64_t`` (a ``dim`` of -1) as if it were unsigned."""
_NAMED: Final = (torch.dtype, torch.layout, torch.device, torch.memory_format)


def measured(ref: NodeRef) -> tuple[SavedValue, ...]:
    """What the node still has, measured; in the order of torch's names. Does not raise."""
    found: list[SavedValue] = []
    try:
        with unseen():
            for saved in _saved(ref):
                found.append(saved)
                if len(found) == _MOST:
                    break
    except Exception as error:
        if comes_from_outside(error):
            raise
        log.exception("what a node saved could not be looked at; gradients are not affected")
    return tuple(found)


def look(ref: NodeRef, outputs: Sequence[Tensor | None]) -> Looked:
    """Measure what a node put out, and where that is not finite what it still has."""
    with unseen():
        found = [None if output is None else measure(output) for output in outputs]
    is_broken = any(one is not None and not one.is_finite for one in found)
    return Looked(outputs, found, measured(ref) if is_broken else ())


def _saved(ref: NodeRef) -> Iterator[SavedValue]:
    node = ref.node
    names = dir(type(node))
    raw = {name.removeprefix(_RAW) for name in names if name.startswith(_RAW)}
    for name in sorted({*raw, *(n.removeprefix(_SAVED) for n in names if n.startswith(_SAVED))}):
        try:
            value = raw_saved(node, _RAW + name) if name in raw else getattr(node, _SAVED + name)
        except (RuntimeError, AttributeError):
            continue  # released already, or of a kind that Python has no name for
        if name not in raw:
            yield SavedValue(name, None, _text(value), None)
        elif isinstance(value, tuple | list):
            for number, one in enumerate(value):
                yield from _tensor(f"{name}[{number}]", one)
        else:
            yield from _tensor(name, value)
    if ref.is_custom_function:
        yield from _attributes(node)


def _tensor(name: str, raw: Any) -> Iterator[SavedValue]:
    if raw.unpack_hook is not None:
        yield SavedValue(name, None, None, unknown("packed by a hook"))
        return
    data = raw.data
    if isinstance(data, Tensor):
        yield SavedValue(name, data, None, measure(data))


def _attributes(node: Any) -> Iterator[SavedValue]:
    """What a custom Function keeps in ``ctx`` itself."""
    for name, value in vars(node).items():
        if isinstance(value, Tensor):
            yield SavedValue(name, value, None, measure(value))
        elif type(value) in _PLAIN:
            yield SavedValue(name, None, _text(value), None)


def _text(value: Any) -> str:
    """A value of torch's own in a few words; the program's own objects are not asked."""
    if type(value) is int and _NEGATIVE <= value < 2 * _NEGATIVE:
        return str(value - 2 * _NEGATIVE)
    if type(value) in _PLAIN:
        text = value if type(value) is str else repr(value)
        return text[:_LONGEST]
    if isinstance(value, _NAMED):
        return str(value).removeprefix("torch.")
    if type(value) in {list, tuple}:
        parts = [_text(part) for part in value[:_MOST_PARTS]]
        more = ["…"] * (len(value) > _MOST_PARTS)
        return f"[{', '.join(parts + more)}]"[:_LONGEST]
    return f"a {type(value).__name__}"
