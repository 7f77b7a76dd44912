"""How large parameters are: each is measured once, so that a gradient can be seen beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.multiprocessing.reductions import StorageWeakRef

_MOST_NUMBERS: Final = 2**28
"""That are measured at once; it takes some tenths of a second."""
_FEW_NUMBERS: Final = 4_096
"""Of one parameter, which are read one after the other: sooner than torch is called."""
_MOST_KNOWN: Final = 200_000


class ParameterNorms:
    """Euclidean norms of parameters as they were when first asked for."""

    def __init__(self) -> None:
        self._known: dict[
            tuple[int, int, tuple[int, ...]], tuple[StorageWeakRef, float | None]
        ] = {}
        """By what distinguishes parameters without a reference to them, which swapping forbids. The
        storage shows whether a parameter is gone whose memory another one has now."""

    def of(self, parameters: Sequence[Tensor], *, measure: bool) -> list[float | None]:
        """The norm of each; None where it is not known, or not finite.

        Args:
            parameters: the parameters.
            measure: those that are not known.
        """
        keys = [_key(parameter) for parameter in parameters]
        if measure:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            new = {
                key: parameter
                for key, parameter in zip(keys, parameters, strict=True)
                if key is not None and not self._is_known(key)
            }
            storages = [_storage(parameter) for parameter in new.values()]
            measured = _measured(list(new.values()))
            self._known.update(zip(new, zip(storages, measured, strict=True), strict=True))
        return [self._known[key][1] if key and self._is_known(key) else None for key in keys]

    def _is_known(self, key: tuple[int, int, tuple[int, ...]]) -> bool:
        known = self._known.get(key)
        return known is not None and not known[0].expired()


def _key(parameter: Tensor) -> tuple[int, int, tuple[int, ...]] | None:
    """None: of a kind that is not measured."""
    import torch

    if type(parameter) not in {torch.Tensor, torch.nn.Parameter}:
        return None
    if parameter.layout is not torch.strided or parameter.is_meta or parameter.is_nested:
        return None
    if not (parameter.is_floating_point() or parameter.is_complex()) or not parameter.numel():
        return None
    try:
        if not parameter.untyped_storage().nbytes():  # given back, as by FSDP
            return None
        return id(parameter), parameter.data_ptr(), tuple(parameter.shape)
    except RuntimeError:  # functorch has wrapped it
        return None


def _storage(parameter: Tensor) -> StorageWeakRef:
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(parameter.untyped_storage())


def _measured(parameters: Sequence[Tensor]) -> list[float | None]:
    from agviz.measure.health import FINITE, found_at_once

    found: list[float | None] = []
    others: list[int] = []
    for number, parameter in enumerate(parameters):
        at_once = found_at_once(parameter) if parameter.numel() <= _FEW_NUMBERS else None
        found.append(None)
        if at_once is None:
            others.append(number)
        elif at_once[1][FINITE] == at_once[0].numel and math.isfinite(at_once[1][-1]):
            found[-1] = at_once[1][-1]
    if others:
        measured = _measured_by_torch([parameters[number] for number in others])
        for number, norm in zip(others, measured, strict=True):
            found[number] = norm
    return found


def _measured_by_torch(parameters: Sequence[Tensor]) -> list[float | None]:
    import torch

    from agviz.measure.health import unseen

    norms: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    places: list[tuple[tuple[torch.device, torch.dtype], int] | None] = []
    left = _MOST_NUMBERS
    try:
        with unseen():
            for parameter in parameters:
                left -= parameter.numel()
                if left < 0:
                    places.append(None)
                    continue
                wide = parameter.dtype if parameter.element_size() >= 4 else torch.float32
                norm = torch.linalg.vector_norm(parameter.detach(), dtype=wide)
                alike = norms.setdefault((norm.device, norm.dtype), [])
                places.append(((norm.device, norm.dtype), len(alike)))
                alike.append(norm)
            found = {kind: torch.stack(each).tolist() for kind, each in norms.items()}
    except (RuntimeError, TypeError):  # a device that can't, or will not now
        return [None] * len(parameters)
    known = [None if place is None else found[place[0]][place[1]] for place in places]
    return [norm if norm is not None and math.isfinite(norm) else None for norm in known]
