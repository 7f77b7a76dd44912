"""Arguments and results of torch functions: the tensors among them, and the rest in words."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_TENSORS: Final = 1_000
"""Of one call."""
_HOLDING: Final = (tuple, list, dict)
"""Of what may hold some; of ``dict`` no subclass is looked into."""
_MOST_DEPTH: Final = 3
"""Of lists in lists."""
_MOST_WORDS: Final = 12
"""Of the arguments that are written as words."""
_LONGEST_WORD: Final = 40
_PLAIN: Final = (bool, int, float, complex, str, type(None), type(...))
_TORCHS: Final = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def tensors_of(args: Iterable[Any], kwargs: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """The tensors among arguments, with their places."""
    found: list[tuple[str, Tensor]] = []
    for place, each in enumerate(args):
        if isinstance(each, Tensor):
            found.append((str(place), each))
        elif isinstance(each, _HOLDING):
            found += itertools.islice(_within(str(place), each, 0), _MOST_TENSORS)
        if len(found) > _MOST_TENSORS:
            break
    for name, each in kwargs.items():
        found += itertools.islice(_within(name, each, 0), _MOST_TENSORS)
    return found[:_MOST_TENSORS]


def tensors_given(result: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a result, with their places."""
    if isinstance(result, Tensor):
        return [("", result)]
    if isinstance(result, tuple | list):
        return tensors_of(result, {})
    return tensors_of((), result) if type(result) is dict else []


def _within(place: str, value: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield place, value
    elif depth < _MOST_DEPTH:
        if isinstance(value, tuple | list):
            for number, one in enumerate(value):
                yield from _within(f"{place}[{number}]", one, depth + 1)
        elif type(value) is dict:
            for key, one in value.items():
                yield from _within(f"{place}[{_word(key)}]", one, depth + 1)


def words(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Arguments in a few words; empty where there are only tensors."""
    if not kwargs and all(isinstance(arg, Tensor) for arg in args):
        return ""
    words = [*map(_word, args), *(f"{name}={_word(value)}" for name, value in kwargs.items())]
    return ", ".join([*words[:_MOST_WORDS], *["…"] * (len(words) > _MOST_WORDS)])


def _word(value: Any) -> str:
    """The program's own objects are not asked."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)[:_LONGEST_WORD]
    if kind is slice:
        parts = (value.start, value.stop, value.step)[: 2 + (value.step is not None)]
        return ":".join("" if part is None else _word(part) for part in parts)
    if isinstance(value, tuple | list):
        words = ", ".join(map(_word, value[:_MOST_WORDS]))
        return f"[{words}{', …' * (len(value) > _MOST_WORDS)}]"
    if isinstance(value, Tensor):
        return "tensor"
    return str(value) if isinstance(value, _TORCHS) else kind.__name__
