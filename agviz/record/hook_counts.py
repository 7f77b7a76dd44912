"""How many hooks modules and parameters have: looked at now and then, as they must not grow."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from agviz.record.files import Files
from agviz.record.live_graphs import is_time_to_look
from agviz.traces.hook_counts import HookCount
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.record.names import Names
    from agviz.traces.rows import Frame

log = logging.getLogger("agviz")

_OF_MODULE: Final = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
_OF_ALL: Final = tuple(f"_global{each}" for each in _OF_MODULE)
"""Of all modules together."""
_OF_PARAMETER: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")
_MOST_MODULES: Final = 20_000


class HookCounts:
    """Counts them before some of the outermost passes."""

    def __init__(self) -> None:
        self._passes = 0
        self._looks = 0
        self._is_off = False

    @functools.cached_property
    def _files(self) -> Files:
        return Files()

    def begin(self, graph_task: int, names: Names) -> HookCount | None:
        """An outermost pass begins; how many hooks there are, where it is time to look."""
        self._passes += 1
        if self._is_off or not is_time_to_look(self._passes):
            return None
        try:
            return self._count(graph_task, names)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._is_off = True
            log.warning("hooks are no longer counted (%r)", error)
            return None

    def _count(self, graph_task: int, names: Names) -> HookCount:
        hooks = most = 0
        owner, last = "", None
        for name, of_owner in _owners(names):
            hooks += len(of_owner)
            if len(of_owner) > most:
                most, owner, last = len(of_owner), name, of_owner[-1]
        found = HookCount(
            self._looks,
            graph_task,
            self._passes - 1,
            hooks,
            most,
            owner,
            getattr(last, "__name__", "") or "",
            self._definition(last),
        )
        self._looks += 1
        return found

    def _definition(self, hook: Any) -> tuple[Frame, ...]:
        while isinstance(hook, functools.partial):
            hook = hook.func
        code = getattr(getattr(hook, "__func__", hook), "__code__", None)
        if code is None:
            return ()
        return (self._files.frame(code.co_filename, code.co_firstlineno, code.co_name),)


def _owners(names: Names) -> Iterator[tuple[str, list[Any]]]:
    """Name and hooks of all modules and parameters that have any."""
    from torch.nn.modules import module as modules

    found = [each for each in _hooks(modules, _OF_ALL) if not _is_ours(each)]
    if found:
        yield "all modules", found
    seen = 0
    for label, root in names.roots():
        for path, module in root.named_modules():
            seen += 1
            if seen > _MOST_MODULES:
                return
            at = ".".join(filter(None, (label, path)))
            if found := _hooks(module, _OF_MODULE):
                yield at, found
            for name, parameter in module._parameters.items():
                if parameter is not None and (found := _hooks(parameter, _OF_PARAMETER)):
                    yield f"{at}.{name}".lstrip("."), found


def _is_ours(hook: Any) -> bool:
    return (getattr(hook, "__module__", None) or "").startswith("agviz.")


def _hooks(owner: Any, kinds: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    for kind in kinds:
        if of := getattr(owner, kind, None):
            found += of.values()
    return found
