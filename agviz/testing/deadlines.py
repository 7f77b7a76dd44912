"""Hypothesis' deadline, which is not to count what recording costs.

How long an example would have taken natively is not known while it is recorded: on a loaded machine
all of it takes longer, not only backward. So no deadline holds meanwhile. Where an example took
longer than it allows, the test runs once more without agviz, and that run decides.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    import pytest

_SETTINGS: Final = "_hypothesis_internal_use_settings"
"""What ``@settings`` leaves, and what Hypothesis' own pytest plugin replaces."""


class Deadline:
    """What Hypothesis allows each example of a test.

    Args:
        item: the test, with or without a deadline.
    """

    def __init__(self, item: pytest.Item) -> None:
        test: Any = getattr(item, "obj", None)
        self._test: Any = getattr(test, "__func__", test)
        self.is_in_doubt = False
        """Whether it was missed with agviz: whether it is without is still to be seen."""

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Let a test take its time. Where it fails for its deadline all the same, it does not."""
        try:
            with contextlib.ExitStack() as until_then:
                self._lift(until_then)
                yield
        except BaseException as error:
            if not is_only_late(error):
                raise
            self.is_in_doubt = True

    def _lift(self, until_then: contextlib.ExitStack) -> None:
        """Where it can't be done, :meth:`lifted` sees the error; with coroutines, or machines."""
        settings: Any = getattr(self._test, _SETTINGS, None)
        handle = getattr(self._test, "hypothesis", None)
        allowed: timedelta | None = getattr(settings, "deadline", None)
        if allowed is None or handle is None or inspect.iscoroutinefunction(handle.inner_test):
            return
        inner, seconds = handle.inner_test, allowed.total_seconds()

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            began = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.is_in_doubt |= time.perf_counter() - began >= seconds

        handle.inner_test = timed
        setattr(self._test, _SETTINGS, type(settings)(settings, deadline=None))
        until_then.callback(setattr, self._test, _SETTINGS, settings)
        until_then.callback(setattr, handle, "inner_test", inner)


def is_only_late(error: BaseException) -> bool:
    """Whether a test failed for its deadline and nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_only_late, error.exceptions))
    errors: Any = sys.modules.get("hypothesis.errors")
    return errors is not None and isinstance(error, errors.DeadlineExceeded)
