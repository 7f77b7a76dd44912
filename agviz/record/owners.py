"""The module that a parameter is of, where nobody has called that module.

Programs call methods of their models as well: ``flow.log_prob(x)``, ``chain.nll(data)``. No hook of
torch shows such a call, so a bare parameter of such a module has no name. Whoever calls backward,
or makes an optimizer, has the module in a variable, or in an attribute of ``self``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from agviz.record.frame_locals import locals_of
from agviz.record.kinds import is_a
from agviz.record.referrers import own_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.nn import Module

_MOST_FRAMES: Final = 64
_MOST_VALUES: Final = 1_000
"""Variables of one frame that are looked at."""


def owner_of(parameter: Tensor) -> Module | None:
    """The module with the most parts, of those in sight of this thread's frames, that has it.

    None: none has it.
    """
    found = {
        id(module): module
        for module in _in_sight()
        if any(each is parameter for each in module.parameters())
    }
    return max(found.values(), key=lambda module: sum(1 for _ in module.modules()), default=None)


def _in_sight() -> Iterator[Module]:
    import torch

    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        with locals_of(frame) as values:
            given: list[Any] = [*values.values()][:_MOST_VALUES]
            own = own_dict(values.get("self")) or {}
        given += [*own.values()][:_MOST_VALUES]
        for value in given:
            # One whose constructor has not come to super().__init__() has no parts to ask for.
            if is_a(value, torch.nn.Module) and "_modules" in (own_dict(value) or {}):
                yield value
        if frame.f_back is None:
            return
        frame = frame.f_back
