"""Calling a function as soon as the program has imported a module, without importing it before."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module as others would, and calls a function once that has been imported.

    A program may ask for a module's spec without ever importing it, so this stays until the import.
    """

    def __init__(self, module: str, call: Callable[[], None]) -> None:
        self.module = module
        self.call = call
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self.module or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            self._watch(cast("Any", spec.loader))
        return spec

    def _watch(self, loader: Any) -> None:
        execute = loader.exec_module
        is_watched = "exec_module" in vars(loader)  # by another of us

        def exec_module(module: ModuleType) -> None:
            if is_watched:
                loader.exec_module = execute
            else:
                del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.call()

        loader.exec_module = exec_module


def after_import(module: str, call: Callable[[], None]) -> Callable[[], None]:
    """Call ``call`` when the program has imported ``module``, or now if that has happened.

    Returns:
        A function that takes this back, if it has not happened yet.
    """
    if module in sys.modules:
        call()
        return lambda: None
    finder = _AfterImport(module, call)
    sys.meta_path.insert(0, finder)

    def forget() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return forget
