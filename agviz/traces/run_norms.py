"""RunNorms: how large the gradients are that each pass of a run leaves, and what changed most.

That takes a look at everything that was measured. Of a recording that was not closed it is read
piece by piece; closing one stores it.
"""

from __future__ import annotations

import math
import time
from array import array
from typing import TYPE_CHECKING, TypeAlias

from agviz.traces.doubles import Doubles
from agviz.traces.leaf_reading import LeafReading
from agviz.traces.task_facts import PassNorms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.traces.reader import Trace
    from agviz.traces.rows import LeafNorm

_Kind: TypeAlias = tuple[bool, int, int]


class RunNorms:
    """Norms of the passes of a trace, in their order.

    Args:
        trace: stays open as long as this is used.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._leaves: LeafReading | None = None
        """None: all that is known was stored."""
        self._last: dict[tuple[_Kind | None, str], float] = {}
        """By kind of pass and parameter, the norm after the last one that was read; None: of any
        kind."""
        self.names: dict[int, str] = {}
        """Of parameters, by id of the text."""
        self.known = PassNorms(Doubles(0), array("q"), Doubles(0))
        self.renew()

    def renew(self) -> None:
        """Take over what has come to a file that grows.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        stored = self._trace.stored_norms()
        if self._leaves is None and stored is not None:
            self.known, self.names = stored
            return
        if self._leaves is None:
            self._leaves = LeafReading(self._trace)
        else:
            self._leaves.renew()
        tasks = self._leaves.tasks
        self._kinds = tasks.kinds
        before, count = self.known, len(tasks)
        self.known = PassNorms(Doubles(count), array("q", [0]) * count, Doubles(count))
        for place, known in enumerate(zip(*before, strict=True)):
            self._set(place, *known)

    @property
    def is_read(self) -> bool:
        """Whether all was read."""
        return self._leaves is None or self._leaves.is_read

    def read_on(self, seconds: float) -> bool:
        """Read for about so long; return whether there was any left to read.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        if self._leaves is None:
            return False
        until = time.perf_counter() + seconds
        begin = self._leaves.until
        while not self._leaves.is_read and time.perf_counter() < until:
            for place, leaves in self._leaves.read_piece():
                self._add(place, leaves)
        return self._leaves.until > begin

    def _add(self, place: int, leaves: Iterable[LeafNorm]) -> None:
        square = 0.0
        most, parameter, factor = 0.0, 0, None
        for leaf in leaves:
            square += leaf.norm * leaf.norm
            found = self._factor(self._kinds[place], leaf) if leaf.parameter else None
            if found is not None and (size := change_size(found)) > most:
                most, parameter, factor = size, leaf.text, found
                self.names[leaf.text] = leaf.parameter
        self._set(place, math.sqrt(square), parameter, factor)

    def _set(self, place: int, norm: float | None, parameter: int, factor: float | None) -> None:
        norms, parameters, factors = self.known
        parameters[place] = parameter
        if norm is not None:
            norms[place] = norm
        if factor is not None:
            factors[place] = factor

    def _factor(self, kind: _Kind, leaf: LeafNorm) -> float | None:
        """By how much a gradient changed since the last pass of the kind; None: not at all."""
        norm, parameter = leaf.norm, leaf.parameter
        last = self._last.get((None, parameter))
        before = self._last.get((kind, parameter), last)
        self._last[None, parameter] = self._last[kind, parameter] = norm
        if before is None or before == norm or (math.isnan(before) and math.isnan(norm)):
            return None
        is_from_zero = not before and math.isfinite(norm)
        return math.inf if is_from_zero else norm / (before or math.nan)


def change_size(factor: float) -> float:
    """How large a change is, the same for ten times more and a tenth; infinite where not finite."""
    if not 0 < factor < math.inf:
        return math.inf
    return max(factor, 1 / factor)
