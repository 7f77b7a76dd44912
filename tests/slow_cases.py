"""Cases of a test of which few are run each time, and the others by ``make test-slow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from _pytest.mark import ParameterSet

T = TypeVar("T")


def slow_but(
    quick: Collection[str], cases: Iterable[T], name: Callable[[T], str] = str
) -> list[ParameterSet]:
    """All cases, those marked as slow whose name is none of ``quick``."""
    return [
        pytest.param(case, id=name(case), marks=() if name(case) in quick else pytest.mark.slow)
        for case in cases
    ]
