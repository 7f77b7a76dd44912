"""Calls of backward that are left out: torch's own engine runs them, and nothing observes them.

Where a program calls backward thousands of times, a
:class:`~agviz_engine.instruments.Sampler` chooses the calls that are observed. Of the others only
those that raise are emitted, as calls that were delegated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from agviz_engine.errors import comes_from_outside
from agviz_engine.events import LEFT_OUT
from agviz_engine.observe.caller import call_as_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agviz_engine.emit import Emitter
    from agviz_engine.instruments import Registry


_under_way: list[None] = []
"""One for each call that is left out and under way."""


def is_under_way() -> bool:
    """Whether a call that is left out has not returned, on any thread."""
    return bool(_under_way)


def leaves_out(
    registry: Registry, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_within: bool
) -> bool:
    """Whether a call is left out.

    Args:
        registry: has the sampler.
        args: of ``run_backward``, unchecked.
        kwargs: the same.
        is_within: whether this thread is in a graph task that is observed: then all of it is.
    """
    sampler = registry.sampler
    if sampler is None or is_within:
        return False
    if _under_way and _is_in_pass():
        return True
    try:
        return not sampler.wants(args, kwargs)
    except Exception as error:
        if comes_from_outside(error):
            raise
        registry.sampler = None
        registry.lose(error)
        return False


def run(
    emit: Emitter, native: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a call that is left out.

    Args:
        emit: emits that it was delegated, where it raises.
        native: ``run_backward`` of torch's own engine.
        args: what that is given.
        kwargs: the same.

    Raises:
        BaseException: whatever that raises, unchanged.
    """
    is_outermost = not _under_way
    _under_way.append(None)
    try:
        return call_as_caller(native, *args, **kwargs)
    except BaseException as error:
        if is_outermost:
            emit.delegated(LEFT_OUT)
            emit.delegated_failed(error)
        raise
    finally:
        _under_way.pop()


def _is_in_pass() -> bool:
    return int(torch._C._current_graph_task_id()) != -1
