"""What of torch the running functions have at hand, in variables and in attributes of ``self``.

That is how the module is found that a parameter is of, where nobody has called that module.
Programs call methods of their models as well: ``flow.log_prob(x)``, ``chain.nll(data)``. No hook of
torch shows such a call, so a bare parameter of such a module has no name. Whoever calls backward,
or makes an optimizer, has the module in a variable, or in an attribute of ``self``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.record.frame_locals import frames_of_others, locals_of
from agviz.record.kinds import is_a
from agviz.record.referrers import own_dict
from agviz.record.waiting import WAITING_LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

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


def others_use_torch() -> bool:
    """Whether another thread runs torch's code, or has a tensor, module or optimizer at hand.

    What such a thread writes, as the ``.grad`` of a leaf, may not be read at the same moment: torch
    writes without the GIL, and the process may end.
    """
    import torch

    package = str(Path(torch.__file__).parent)
    kinds = torch.Tensor, torch.nn.Module, torch.optim.Optimizer
    return any(
        frame.f_code.co_filename.startswith(package)
        or any(is_a(value, *kinds) for value in _at_hand(frame))
        for innermost in frames_of_others().values()
        if _package(innermost) not in WAITING_LIBRARIES  # as the thread that pins memory
        for frame in _frames(innermost)
    )


def _in_sight() -> Iterator[Module]:
    import torch

    for frame in _frames(sys._getframe(1)):
        for value in _at_hand(frame):
            # One whose constructor has not come to super().__init__() has no parts to ask for.
            if is_a(value, torch.nn.Module) and "_modules" in (own_dict(value) or {}):
                yield value


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _frames(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _at_hand(frame: FrameType) -> list[Any]:
    """Variables of a function, and attributes of its ``self``."""
    with locals_of(frame) as values:
        given: list[Any] = [*values.values()][:_MOST_VALUES]
        own = own_dict(values.get("self")) or {}
    return given + [*own.values()][:_MOST_VALUES]
