"""The breakpoints that an editor has set: what it said, and what that means in a recording."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

from agviz.dap.arguments import RequestError
from agviz.dap.breakpoints import FILTERS, SetBreakpoint, conditioned
from agviz.debugger.breakpoints import Breakpoint, parse
from agviz.debugger.expressions import Expression
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.dap.arguments import Arguments
    from agviz.dap.channel import Json
    from agviz.dap.sources import Sources
    from agviz.traces.reader import Trace

_NEAREST: Final = 2
_BOUND: Final = re.compile(r"\s*(?:[<>=!]|changes\b)")
"""How a condition of a data breakpoint begins that says nothing of what is held against it."""
_USUAL_CHANGE: Final = "changes 10x"
_NOWHERE: Final = "no node of the recording comes from this line"
File = tuple[str, int]
"""A file as an editor names it: its path, or the number under which it asked for it."""


class ChosenBreakpoints:
    """Those of all files, those on names and on data, and the filters.

    Args:
        sources: where files are.
    """

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.filters: Sequence[str] = FILTERS
        self._lines: dict[File, dict[int, tuple[int, Breakpoint]]] = {}
        """Line and breakpoint by number, by file."""
        self._names: dict[int, Breakpoint] = {}
        self._data: dict[int, Breakpoint] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        """By what is said of them: the same breakpoints keep theirs."""
        self._next = itertools.count(1)
        self._nodes: dict[File, Mapping[int, list[tuple[int, int]]]] = {}
        """Nodes of the recording by line, by file."""
        self._made: dict[int, SetBreakpoint] = {}
        self._version = -1
        """Of the recording that these two are of."""

    def on_lines(self, file: File, wanted: Sequence[Arguments]) -> list[Json]:
        """Replace those of a file.

        Returns:
            What the editor is answered; where they make no sense, why.

        Raises:
            RequestError: there is no such file.
        """
        name = self.sources.name(*file)
        answers: list[Json] = []
        kept = {}
        for each in wanted:
            line = each.number("line")
            try:
                made = _read(Breakpoint(line=f"{name}:{line}"), each)
            except AgvizError as error:
                answers.append({"line": line, **unverified(str(error))})
                continue
            number = self._number("line", file, made)
            kept[number] = line, made
            answers.append({"id": number, "verified": True, "line": line})
        self._lines[file] = kept
        return answers

    def on_names(self, wanted: Sequence[Arguments]) -> list[Json]:
        """Replace those on nodes, modules and parameters; the answers are as for lines."""
        answers: list[Json] = []
        self._names = {}
        for each in wanted:
            try:
                made = _read(parse(each.text("name")), each)
            except AgvizError as error:
                answers.append(unverified(str(error)))
                continue
            number = self._number("name", made)
            self._names[number] = made
            answers.append({"id": number, "verified": True})
        return answers

    def on_data(self, wanted: Sequence[Arguments]) -> list[Json]:
        """Replace data breakpoints; the answers are as for lines.

        What is held against a bound is named as :func:`data_name` does. A condition is the bound:
        ``> 1e3``, ``changes 10x`` (also where there is none), or a whole expression.
        """
        answers: list[Json] = []
        self._data = {}
        for each in wanted:
            said = each.text("condition", "").strip() or _USUAL_CHANGE
            bound = f"{each.text('dataId')} {said}" if _BOUND.match(said) else said
            try:
                made = conditioned(Breakpoint(when=bound), "", each.text("hitCondition", ""))
            except AgvizError as error:
                answers.append(unverified(str(error)))
                continue
            number = self._number("data", made)
            self._data[number] = made
            answers.append({"id": number, "verified": True})
        return answers

    def _number(self, *said: Any) -> int:
        if said not in self._numbers:
            self._numbers[said] = next(self._next)
        return self._numbers[said]

    @property
    def all(self) -> dict[int, Breakpoint]:
        """Everyone, by number."""
        on_lines = (each for several in self._lines.values() for each in several.items())
        return {**{number: made for number, (_, made) in on_lines}, **self._names, **self._data}

    def lines(self, trace: Trace, file: File) -> Mapping[int, list[tuple[int, int]]]:
        """The nodes of a recording that lines of a file made, by line."""
        self._look(trace)
        if file not in self._nodes:
            self._nodes[file] = trace.nodes_by_line(self.sources.fits(*file))
        return self._nodes[file]

    def recorded(self, trace: Trace) -> list[SetBreakpoint]:
        """Everyone, as places in a recording."""
        self._look(trace)
        for number, made in self._names.items():
            if number not in self._made and not why_not_recorded(made):
                self._made[number] = SetBreakpoint(number, made)
        for file, several in self._lines.items():
            for number, (line, made) in several.items():
                if number not in self._made and not why_not_recorded(made):
                    nodes = frozenset(self.lines(trace, file).get(line, ()))
                    self._made[number] = SetBreakpoint(number, made, nodes)
        return [self._made[number] for number in self.all if number in self._made]

    def _look(self, trace: Trace) -> None:
        """Forget what was found in a recording that has grown."""
        version = trace.version
        if version != self._version:
            self._version = version
            self._nodes.clear()
            self._made.clear()

    def verify(self, trace: Trace, answers: Sequence[Json], file: File | None = None) -> None:
        """Say in answers at which breakpoints a recording can't stop.

        Args:
            trace: the recording.
            answers: to be changed.
            file: that they are of; None: they are on names.
        """
        known = {each.number: each for each in self.recorded(trace)}
        lines = [] if file is None else sorted(self.lines(trace, file))
        every = self.all
        for answer in answers:
            made = every.get(answer.get("id", 0))
            if made is not None and (why := why_not_recorded(made)):
                answer.update(unverified(why))
            found = known.get(answer.get("id", 0))
            if found is None or found.has_any(trace):
                continue
            if file is None:
                answer.update(unverified("no node of the recording fits"))
                continue
            line: int = answer["line"]
            near = sorted(sorted(lines, key=lambda each: abs(each - line))[:_NEAREST])
            where = f"; the nearest such lines are {', '.join(map(str, near))}" if near else ""
            answer.update(unverified(f"{_NOWHERE}{where or ', nor from its file'}"))


def _read(wanted: Breakpoint, said: Arguments) -> Breakpoint:
    if text := said.text("logMessage", ""):
        wanted = wanted.changed(log=text)
    return conditioned(wanted, said.text("condition", ""), said.text("hitCondition", ""))


def why_not_recorded(wanted: Breakpoint) -> str:
    """Why a breakpoint stops no recording; empty: it may."""
    if wanted.when:
        return "a data breakpoint stops only a program that runs"
    if wanted.log:
        return "a log point prints only while a program runs"
    if wanted.predicate is not None and wanted.predicate.needs_tensors:
        return "a recording has no tensors: its conditions speak of what was measured, like norm"
    return ""


def data_name(name: str) -> str:
    """The expression that a data breakpoint on a value holds against its bound.

    Args:
        name: a parameter, its ``.grad``, or an expression.

    Raises:
        AgvizError: it names no parameter.
    """
    expression = Expression(name)
    if not expression.parameters:
        raise RequestError("a data breakpoint names a parameter, like fc.weight.grad")
    return f"{name}.norm()" if expression.is_tensor else name


def unverified(why: str) -> Json:
    """A breakpoint that stops nothing."""
    return {"verified": False, "message": why}
