"""Hooks for all optimizers and modules, put into torch's dictionaries and taken out unnoticed.

Note [Dictionaries that others go through]
torch calls these hooks while it goes through a dictionary. What is put in or taken out meanwhile,
by another thread or by a hook, raises "OrderedDict mutated during iteration" in the program's step.
So a hook is exchanged for one that does nothing, and taken out only while nobody is in there.
Hooks of a module's forward are not among them: torch copies these before it calls the first.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agviz.record.frame_locals import frames_of_threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch.utils.hooks import RemovableHandle

_MOST_WAITS: Final = 50
"""Times 1 ms that are waited for others to be through, where they have hooks of their own."""
_GO_THROUGH: Final = {
    "torch.optim.optimizer": {"wrapper"},
    "torch.nn.modules.module": {"__setattr__", "add_module", "register_parameter"},
}
"""The functions of torch that go through the dictionaries of a module."""
_left: Final[list[RemovableHandle]] = []
"""Of hooks that do nothing, which could not be taken out."""


class _Kind(NamedTuple):
    module: str
    dictionary: str
    register: str


STEP_BEGINS: Final = _Kind(
    "torch.optim.optimizer", "_global_optimizer_pre_hooks", "register_optimizer_step_pre_hook"
)
STEP_ENDS: Final = _Kind(
    "torch.optim.optimizer", "_global_optimizer_post_hooks", "register_optimizer_step_post_hook"
)
MODULE_PLACED: Final = _Kind(
    "torch.nn.modules.module",
    "_global_module_registration_hooks",
    "register_module_module_registration_hook",
)
PARAMETER_PLACED: Final = _Kind(
    "torch.nn.modules.module",
    "_global_parameter_registration_hooks",
    "register_module_parameter_registration_hook",
)


class GlobalHooks:
    """Those of one observer; Note [Dictionaries that others go through]."""

    def __init__(self) -> None:
        self._put: list[tuple[_Kind, RemovableHandle]] = []

    def __bool__(self) -> bool:
        return bool(self._put)

    def put(self, kind: _Kind, hook: Callable[..., Any]) -> None:
        """Have torch call a hook. Imports the module of torch.

        Not where the program has hooks of its own, and goes on going through them: where a
        recording is begun by one of these.
        """
        module = importlib.import_module(kind.module)
        hooks = getattr(module, kind.dictionary)
        for place, handle in enumerate(_left):
            if cast("Any", handle).hooks_dict_ref() is hooks and handle.id in hooks:
                del _left[place]
                hooks[handle.id] = hook
                self._put.append((kind, handle))
                return
        for _ in range(_MOST_WAITS):
            if not hooks or not _is_gone_through(kind.module):
                self._put.append((kind, getattr(module, kind.register)(hook)))
                return
            time.sleep(0.001)

    def clear(self) -> None:
        """Have torch call none of them any more."""
        while self._put:
            kind, handle = self._put.pop()
            hooks: Any = handle.hooks_dict_ref()
            if hooks is None or handle.id not in hooks:
                continue
            if _is_gone_through(kind.module):
                hooks[handle.id] = _nothing
                _left.append(handle)
            else:
                handle.remove()


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """In the place of a hook; calls into it must not be traced."""


_nothing._torchdynamo_disable = True  # type: ignore[attr-defined]


def _is_gone_through(module: str) -> bool:
    """Whether any thread is in a function that goes through a dictionary of hooks of a module."""
    file, names = sys.modules[module].__file__, _GO_THROUGH[module]
    # The caller's, since a frame that is among its own variables would keep all callers alive.
    frames = {**frames_of_threads(), threading.get_ident(): sys._getframe(1)}
    for innermost in frames.values():
        frame: FrameType | None = innermost
        while frame is not None:  # no generator: each test of a suite goes through some 50 frames
            code = frame.f_code
            if code.co_name in names and code.co_filename == file:
                return True
            frame = frame.f_back
    return False
