"""Anomaly mode that the program is shown as off: provenance turns it on for the stacks of nodes.

Under it the native engine warns where a node fails, and torch's message about a modified saved
tensor has other words. The program gets neither: what it asked for is torch without the mode. It
stays on meanwhile, because a recomputed forward makes nodes in the middle of a backward.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from agviz_engine import torch_modes

if TYPE_CHECKING:
    from collections.abc import Iterator

_C = cast("Any", torch._C)
_MODIFIED: Final = re.compile(
    r"(one of the variables needed for gradient computation has been modified by an inplace "
    r"operation: .* expected version \d+ instead\.) Hint: the backtrace further above "
)
_FAILED: Final = r"Error detected in .*"
"""What the native engine warns with where a node failed, before the forward's traceback."""
_lock: Final = threading.RLock()
_IGNORED: Final = ("ignore", re.compile(_FAILED), UserWarning, None, 0)
_passes: list[None] = []
"""One for each pass under way."""


@contextlib.contextmanager
def unfelt() -> Iterator[None]:
    """Let the native engine run as if the mode were what the program is shown.

    Raises:
        BaseException: what is raised inside, with the words that it has without the mode.
    """
    if not torch_modes.is_anomaly_enabled() or _C.is_anomaly_enabled():
        yield
        return
    _ignore()
    try:
        yield
    except RuntimeError as error:
        said = _MODIFIED.match(str(error)) if type(error) is RuntimeError else None
        if said is not None:
            error.args = (said[1] + torch_modes.inplace_hint(),)
        raise
    finally:
        _heed()


def _ignore() -> None:
    """Ignore the warning; a filter of the program that comes later goes before this one.

    The list is changed past ``warnings``, which would forget what it has shown, and show it again.
    """
    with _lock:
        if not _passes:
            cast("Any", warnings.filters).insert(0, _IGNORED)
        _passes.append(None)


def _heed() -> None:
    with _lock:
        _passes.pop()
        if not _passes:
            with contextlib.suppress(ValueError):  # the program has put other filters in place
                cast("Any", warnings.filters).remove(_IGNORED)
