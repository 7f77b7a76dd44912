"""What a test failed for: numbers that gradients may have a part in, or something else."""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import traceback
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from agviz.testing.deadlines import is_only_late
from agviz.testing.gradcheck import Checked, checked
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

_PROGRAM: Final = (
    *(LookupError, AttributeError, TypeError, NameError, ImportError, OSError),
    *(SyntaxError, NotImplementedError, StopIteration, StopAsyncIteration),
)
"""What Python raises where a program is wrong, whatever its numbers are."""
_NAME: Final = re.compile(r"[^\W\d]\w*")
_LONGEST: Final = 200
"""Characters of a line."""
_MOST: Final = 100
"""Values that are looked at within another."""


class Failing:
    """Why a test failed.

    Args:
        error: what it raised; None: that is not known, as where its process died.
        path: the file of the test.
        wrong: what the plugin itself failed it for.
        said: what pytest prints of it.
        has_missed_deadline: whether it has, run once more without agviz.
    """

    def __init__(
        self,
        error: BaseException | None = None,
        path: Path | None = None,
        wrong: str = "",
        *,
        said: str = "",
        has_missed_deadline: bool = False,
    ) -> None:
        self.wrong = wrong
        self.said = said
        self.has_missed_deadline = has_missed_deadline
        self._error = error
        self._path = path

    @property
    def first_line(self) -> str:
        """Type and message of what it raised, on one line; empty where that is not known."""
        if self.wrong or self._error is None:
            return clean(self.wrong)
        said = "".join(traceback.format_exception_only(self._error)).strip()
        return clean(said.partition("\n")[0])[:_LONGEST]

    @cached_property
    def gradcheck(self) -> Checked | None:
        """What gradcheck raised, where it did."""
        found = (checked(error) for error in _all(self._error))
        return next((each for each in found if each is not None), None)

    @cached_property
    def may_be_numbers(self) -> bool:
        """Whether gradients may have a part in it; True where that is not known."""
        return self._error is None or any(map(self._is_of_numbers, _all(self._error)))

    def _is_of_numbers(self, error: BaseException) -> bool:
        if is_only_late(error):
            return False
        read = list(self._read(error))
        if not read or any("grad" in name.lower() for name, _ in read):
            return True
        return not isinstance(error, _PROGRAM) and any(_holds_numbers(value) for _, value in read)

    def _read(self, error: BaseException) -> Iterator[tuple[str, Any]]:
        """The names in the statements that were under way, from the test on, and their values."""
        stack = [
            (frame, frame.f_code.co_filename, where)
            for (frame, _), where in zip(
                traceback.walk_tb(error.__traceback__),
                traceback.extract_tb(error.__traceback__),
                strict=False,
            )
        ]
        own = str(self._path)
        of_test = list(itertools.dropwhile(lambda each: each[1] != own, stack))
        for frame, file, where in of_test or stack:
            last = where.end_lineno or where.lineno or 0
            text = "".join(
                linecache.getline(file, line) for line in range(where.lineno or 0, last + 1)
            )
            yield from _values(frame, text)


def _values(frame: FrameType, text: str) -> Iterator[tuple[str, Any]]:
    for name in dict.fromkeys(_NAME.findall(text)):
        if name in frame.f_locals:
            yield name, frame.f_locals[name]
        else:
            yield name, frame.f_globals.get(name)


def _all(error: BaseException | None) -> Iterator[BaseException]:
    """An error, or those in a group, and what they came from."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        found = left.pop()
        if found is None or any(found is each for each in seen):
            continue
        seen.append(found)
        if isinstance(found, BaseExceptionGroup):
            left += reversed(found.exceptions)
        else:
            yield found
        left.append(found.__cause__)


def _holds_numbers(value: Any) -> bool:
    """Whether it is a float, an array, a tensor or a module, or holds one."""
    if _is_number(value):
        return True
    if isinstance(value, dict):
        inside = iter(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inside = iter(value)
    else:
        inside = iter(getattr(value, "__dict__", {}).values())
    is_namespace = isinstance(value, type | type(sys))
    return not is_namespace and any(map(_is_number, itertools.islice(inside, _MOST)))


def _is_number(value: Any) -> bool:
    if isinstance(value, float | complex) or hasattr(type(value), "__array__"):
        return True
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)
