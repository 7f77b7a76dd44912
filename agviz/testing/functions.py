"""The custom Functions that took part in backward passes: derivatives that are written by hand."""

from __future__ import annotations

import inspect
import linecache
import sys
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.analysis.gradient_flow import is_custom
from agviz.analysis.place import place
from agviz.analysis.source import source_line
from agviz.testing.paths import shown
from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.verdict import Verdict
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_ENDING: Final = "Backward"
"""What torch adds to the name of a Function's class, for its node."""
_MOST: Final = 5


class _Function(NamedTuple):
    node: NodeRow
    """The first node of it."""
    definitions: tuple[Frame, ...]
    """Its ``backward``; several where classes share a name, none where no class is known."""

    @property
    def name(self) -> str:
        return self.node.short_name.removesuffix(_ENDING)

    @property
    def defined(self) -> str:
        """``Exp (ops.py:12)``."""
        places = " or ".join(f"{frame.file}:{frame.line}" for frame in self.definitions)
        return f"{self.name} ({places})" if places else self.name

    def __str__(self) -> str:
        where = place(self.node).removeprefix(self.node.short_name)
        made = "" if self.node.line is None else f", applied at {self.node.line}"
        return f"{self.defined}{where}{made}"


class Functions:
    """All of them in a recording, in the order in which they first took part.

    Args:
        trace: the recording, of this process where their definitions are to be known.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def _all(self) -> list[_Function]:
        return list(self._find())

    def _find(self) -> Iterator[_Function]:
        for node in self._trace.first_nodes():
            if not is_custom(node):
                continue
            known = [_backward(each) for each in _classes(node.short_name.removesuffix(_ENDING))]
            if known and not any(known):
                continue  # all of them are torch's own, such as that of a checkpoint
            yield _Function(node, tuple(frame for frame in known if frame))

    @property
    def names(self) -> str:
        """Their names and where they are defined; empty where there are none."""
        more = [f"{len(self._all) - _MOST} more"] if len(self._all) > _MOST else []
        return ", ".join([*(each.defined for each in self._all[:_MOST]), *more])

    @property
    def sentence(self) -> str:
        """Where each is defined and was applied; empty where there are none."""
        if not self._all:
            return ""
        listed = "; ".join(map(str, self._all[:_MOST]))
        return f"Where numbers are wrong, look first at derivatives written by hand: {listed}."

    def at_only(self, verdict: Verdict) -> Verdict:
        """A verdict that points at the only one, if there is only one."""
        if len(self._all) != 1:
            return verdict
        (first,) = self._all
        frame = first.definitions[0] if first.definitions else first.node.frame
        source = "" if frame is None else source_line(frame, self._trace.path)
        return replace(verdict, frame=frame, source=source)


def _classes(name: str) -> Iterator[type]:
    """The Functions of this name in this process, if torch is here at all."""
    torch: Any = sys.modules.get("torch")
    left: list[type] = [] if torch is None else torch.autograd.Function.__subclasses__()
    seen: set[type] = set()
    while left:
        found = left.pop()
        if found not in seen:
            seen.add(found)
            left += found.__subclasses__()
            if found.__name__ == name:
                yield found


def _backward(function: Any) -> Frame | None:
    """Where its derivative is written; None for one of torch's own, or where that is not known."""
    own = next((name for name in ("backward", "vjp") if name in vars(function)), "backward")
    code = getattr(inspect.unwrap(getattr(function, own)), "__code__", None)
    if code is None or function.__module__.partition(".")[0] == "torch":
        return None
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return Frame(shown(code.co_filename), line, code.co_name, hidden=False)
