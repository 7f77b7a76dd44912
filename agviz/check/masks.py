"""Attention that looks at padding, and at nothing else: its mask is inverted.

Note [Who is padding]
Padding is what an attention may look at where that is always the same: in each row one run of
entries at its end, or at its beginning, of other lengths in other rows, which all hold one token
that nothing left out holds, or the same key. A mask the right way round leaves these out. A
summary token, which may be all that is looked at, is as many in each row.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_C = cast("Any", torch._C)
_MOST_LOOKED: Final = 16
"""Masks, which have to be read, a program's first ones."""
_MOST_LOOKUPS: Final = 4
"""The last ones, whose tokens a mask may be about."""
_LEAST_NUMBER: Final = -1e4
"""What is no larger leaves an entry out where it is added, or filled in."""
_OF_MODULES: Final = "multi_head_attention_forward"
_TRUE_STAYS: Final = "scaled_dot_product_attention"
"""Whose mask says what is looked at, and not what is left out."""
_PLACES: Final = {
    "masked_fill": (1, "mask"),
    "masked_fill_": (1, "mask"),
    _OF_MODULES: (14, "key_padding_mask"),
    _TRUE_STAYS: (3, "attn_mask"),
}
"""Where functions take a mask, and what they call it."""


class InvertedMask(NamedTuple):
    """A mask that leaves all but padding to an attention."""

    captured: Any
    """The stack of the call that takes it."""
    name: str
    """Of the argument."""
    is_of_what_stays: bool
    """Whether True stands for what is looked at."""
    fewest: int
    """Entries that a row leaves."""
    most: int
    token: int | None
    """What they hold; None: the same key."""


class Masks:
    """Holds the masks of attentions against the tokens that were looked up."""

    def __init__(self) -> None:
        self.found: list[InvertedMask] = []
        self._looked = 0
        self._lookups: deque[weakref.ref[Tensor]] = deque(maxlen=_MOST_LOOKUPS)

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], captured: Any
    ) -> None:
        """A torch function has run."""
        last = name.rpartition(".")[2]
        if last == "embedding":
            tokens = args[0] if args else kwargs.get("input")
            if isinstance(tokens, Tensor) and tokens.dim() == 2:
                self._lookups.append(weakref.ref(tokens))
            return
        if last in _PLACES and self._looked < _MOST_LOOKED:
            self._look(last, args, kwargs, captured)

    def _look(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], captured: Any
    ) -> None:
        place, word = _PLACES[name]
        mask = args[place] if len(args) > place else kwargs.get(word)
        if type(mask) is not Tensor or not _is_of_attention(name, args, mask):
            return
        is_true = name == _TRUE_STAYS
        stays = _stays(mask, is_true=is_true)
        if stays is None:
            return
        self._looked += 1
        lengths = _lengths(stays)
        if lengths is None:
            return
        token = self._token(stays)
        key = args[1] if len(args) > 1 else kwargs.get("key")
        if token is not None or (name == _OF_MODULES and _are_same(key, stays)):
            self.found.append(InvertedMask(captured, word, is_true, *lengths, token))

    def _token(self, stays: Tensor) -> int | None:
        """The token that all entries that stay hold, and no other does; None: there is none."""
        for lookup in self._lookups:
            held = lookup()
            for tokens in () if held is None else (held, held.t()):
                if tokens.shape == stays.shape and (value := _only(tokens, stays)) is not None:
                    return value
        return None


def _is_of_attention(name: str, args: Sequence[Any], mask: Tensor) -> bool:
    """Whether it leaves something out, as the program gave it, and may be read."""
    if _C._are_functorch_transforms_active():
        return False
    if name == _TRUE_STAYS:
        return mask.dtype == torch.bool  # else a module made it of its key_padding_mask
    return name == _OF_MODULES or _excludes(args)


def _excludes(args: Sequence[Any]) -> bool:
    """Whether a number that is filled into scores leaves an entry out of a softmax."""
    value = args[2] if len(args) > 2 else None
    is_low = isinstance(value, int | float) and value <= _LEAST_NUMBER
    return is_low and bool(args[0].requires_grad)


def _stays(mask: Tensor, *, is_true: bool) -> Tensor | None:
    """Which entries each row leaves, (N, S); None: the mask is not one of rows."""
    if mask.dim() == 4 and mask.shape[1] == mask.shape[2] == 1:
        mask = mask[:, 0, 0]
    if mask.dim() == 3 and mask.shape[1] == 1:
        mask = mask[:, 0]
    if mask.dim() != 2 or min(mask.shape) < 2 or mask.device.type == "meta":
        return None
    if mask.dtype == torch.bool:
        return mask if is_true else ~mask
    return mask > _LEAST_NUMBER if mask.is_floating_point() else None


def _lengths(stays: Tensor) -> tuple[int, int] | None:
    """The fewest and the most entries that rows leave; None: not a run at an end of each."""
    counts = stays.sum(1)
    fewest, most = int(counts.min()), int(counts.max())
    if fewest == most or most == stays.shape[1]:
        return None
    steps = torch.arange(stays.shape[1], device=stays.device)
    for along in (steps, steps.flip(0)):
        if torch.equal(stays, along < counts[:, None]):
            return fewest, most
    return None


def _only(tokens: Tensor, stays: Tensor) -> int | None:
    left = tokens[stays]
    value = left[0]
    is_only = bool((left == value).all()) and not bool((tokens[~stays] == value).any())
    return int(value) if is_only else None


def _are_same(key: Any, stays: Tensor) -> bool:
    """Whether all keys that stay are the same, and the others are not; (S, N, E), (N, S)."""
    if type(key) is not Tensor or key.dim() != 3 or key.shape[:2] != stays.shape[::-1]:
        return False
    keys = key.transpose(0, 1)
    left, others = keys[stays], keys[~stays]
    return bool((left == left[0]).all()) and not bool((others == others[0]).all())
