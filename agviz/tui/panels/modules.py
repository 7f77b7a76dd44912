"""The modules of the program as a tree, with what happened in this pass in each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.analysis.module_tree import equal_runs
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span, left, right
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agviz.analysis.module_tree import ModuleFigures, ModuleTree
    from agviz.tui.model import View

_LEAST_NAME: Final = 18
_MOST_NAME: Final = 60
_ORDERS: Final = ("model", "time", "gradient")
_NO_MODULES: Final = "No modules are known: provenance was not recorded, or no module was called."


class _ModuleLine(NamedTuple):
    """A module, a parameter, or modules that are alike."""

    depth: int
    modules: Sequence[ModuleFigures]
    key: str
    """Of what is folded or not."""
    has_more: bool
    """Whether there is anything in it."""


class _Column(NamedTuple):
    """A column of figures."""

    name: str
    width: int


_COLUMNS: Final = (
    _Column("grad", 8),
    _Column("time", 7),
    _Column("nodes", 6),
    _Column("put out", 8),
    _Column("forward", 7),
    _Column("self", 7),
    _Column("fwd self", 8),
)
"""The most important first."""


class ModulesPanel(LineList):
    """One line per module."""

    HEADING = "Modules"
    DRAWS = ("recording", "selected", "modules")
    HAS_HEADER = True
    EMPTY = "Reading the modules …"
    HELP = (
        "The modules of the program and their parameters, with what happened in them in this"
        " backward pass, everything in a module counted: grad is the norm of the gradients that its"
        " parameters have after the pass, together (as clip_grad_norm_ has it); time that of its"
        " nodes, self without modules in it; put out the largest norm of what its nodes put out, of"
        " those that are finite; forward the time of its calls before this pass.\n\n"
        "In front, ! is where a node put out something that is not finite, and ∅ where a"
        " parameter got no gradient: None. Of a module that the forward of another one calls in a"
        " reentrant backward pass (checkpoint), nodes and times are in that pass.\n\n"
        "Space opens or closes a module; left closes it, or goes to the one around; right opens"
        " it. Modules that follow each other and are alike are one line: 0 … 11, with the least and"
        " the largest of their norms. On a module, its first node is selected, enter shows it in"
        " Graph. s sorts by time, by gradient norm, in the order of the model. w says why a"
        " gradient is zero or None, L follows the gradient to a parameter."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e,space", "fold", "Fold", id="modules.fold"),
        Binding("h,left", "close", "Close", show=False, id="modules.close"),
        Binding("l,right", "open", "Open", show=False, id="modules.open"),
        Binding("E", "fold_all", "Fold or unfold all", show=False, id="modules.fold-all"),
        Binding("enter", "show_node", "Show node", id="modules.show-node"),
        Binding("s", "sort", "Sort", id="modules.sort"),
    ]

    class TreeWanted(Message):
        """What happened by module was not read yet, or not all of it."""

    class NodeWanted(Message):
        """The user wants to see where a module begins."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._tree: ModuleTree | None = None
        self._lines: list[_ModuleLine] = []
        self._open: set[str] = set()
        self._is_new = True
        """Whether no tree of this file was shown yet."""
        self._order = _ORDERS[0]
        self._longest = _LEAST_NAME

    def take_over(self, view: View, before: View | None) -> None:
        """Draw the tree of ``view``, once it was read."""
        if not self.display:
            return
        if before is not None and before.recording.key.file != view.recording.key.file:
            self._is_new = True
        if view.lacks("modules"):
            self.screen.post_message(self.TreeWanted())
        tree = view.modules
        if tree is None:
            self._tree, self.line_count = None, 0
        elif tree is not self._tree:
            self._tree = tree
            if self._is_new and tree.has_modules:
                self._is_new = False
                self._open = set(_open_at_first(tree.top))
            self._list()
        self._describe()

    def on_show(self) -> None:
        """Show what has become of the view meanwhile."""
        if self.view is not None:
            self.take_over(self.view, self.view)

    @property
    def subject(self) -> str:
        """The parameter or module under the cursor; empty: none that has a name."""
        line = self._here
        return line.modules[0].path if line is not None and len(line.modules) == 1 else ""

    @property
    def parameter(self) -> str:
        """The parameter under the cursor, or that of the module with the largest gradient."""
        line = self._here
        if line is None:
            return ""
        found = [each for module in line.modules for each in module.walk() if each.is_parameter]
        return max(found, key=_size, default=found[0]).path if found else ""

    @property
    def _here(self) -> _ModuleLine | None:
        return self._lines[self.cursor] if self.cursor < len(self._lines) else None

    def header(self, width: int) -> Line:
        """Names of the columns."""
        if not self._lines:
            return []
        text = f"   {left('module', self._name_width(width))}"
        text += "".join(f" {right(name, cells)}" for name, cells in _fitting(width))
        return [Span(text, "muted")]

    def line(self, index: int, width: int) -> Line:
        """A module with its figures."""
        depth, modules, key, has_more = self._lines[index]
        first = modules[0]
        glyph = ("▾" if key in self._open else "▸") if has_more else " "
        name = first.name
        if len(modules) > 1:
            name = f"{first.name} … {modules[-1].name}"
        name_width = self._name_width(width)
        is_selected = self.shown.selected is not None and any(
            module.node == self.shown.selected for module in modules
        )
        is_bad = any(module.first_bad is not None for module in modules)
        missing = any(module.missing for module in modules)
        line = [
            Span("→" if is_selected and not has_more else " ", "playhead"),
            Span("!" if is_bad else "∅" if missing else " ", "nonfinite"),
            Span(" "),
        ]
        look = "place" if first.is_parameter else "name"
        start = "  " * depth
        line.append(Span(left(f"{start}{glyph} {name}", name_width), look))
        for column in _fitting(width):
            text, bad = _cell(column, modules)
            line.append(Span(f" {right(text, column.width)}", "nonfinite" if bad else "number"))
        return line

    def copy_text(self) -> str:
        """The line under the cursor with all that is known."""
        line = self._here
        if line is None:
            return ""
        first = line.modules[0]
        cells = (
            f"{column.name} {text}"
            for column in _COLUMNS
            if (text := _cell(column, line.modules)[0])
        )
        name = first.path or first.name
        if len(line.modules) > 1:
            name = f"{name} … {line.modules[-1].path}"
        return "  ".join([name, *cells])

    def cursor_moved(self) -> None:
        """The first node of the module is looked at."""
        line = self._here
        node = None if line is None else line.modules[0].node
        self._describe()
        if node is not None:
            self.look_at_node(node)

    def action_show_node(self) -> None:
        """Look at the first node of the module, in Graph."""
        line = self._here
        if line is None or line.modules[0].node is None:
            self.notify("No node of this pass is known to belong here.")
            return
        self.look_at_node(line.modules[0].node)
        self.screen.post_message(self.NodeWanted())

    def action_fold(self) -> None:
        """Open or close what is under the cursor."""
        line = self._here
        if line is None or not line.has_more:
            self.notify("There is nothing in it to open.")
        else:
            self._open ^= {line.key}
            self._list()

    def action_close(self) -> None:
        """Close the module, or go to the one around."""
        line = self._here
        if line is None:
            return
        if line.has_more and line.key in self._open:
            self._open.discard(line.key)
            self._list()
            return
        above = self.cursor
        while above > 0 and self._lines[above].depth >= line.depth:
            above -= 1
        if above < self.cursor and self._lines[above].depth < line.depth:
            self.action_cursor_to(above)

    def action_open(self) -> None:
        """Open the module, or go to the first in it."""
        line = self._here
        if line is None or not line.has_more:
            self.notify("There is nothing in it to open.")
        elif line.key in self._open:
            self.action_cursor(1)
        else:
            self._open.add(line.key)
            self._list()

    def action_fold_all(self) -> None:
        """Open everything, or close all where everything is open."""
        if self._tree is None:
            return
        everything = set(_keys(self._tree.top))
        self._open = set() if everything <= self._open else everything
        self._list()

    def action_sort(self) -> None:
        """Sort by what comes next."""
        self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
        self._list()

    def _list(self) -> None:
        """Make the lines anew, and stay where the cursor is."""
        here = self._here
        tree = self._tree
        if tree is None:
            return
        self._lines = [*self._lines_of(tree.top, 0)] if tree.has_modules else []
        self.line_count = len(self._lines)
        self._longest = max((_name_cells(line) for line in self._lines), default=_LEAST_NAME)
        if here is not None:
            keys = [line.key for line in self._lines]
            paths = {module.path for module in here.modules}
            place = keys.index(here.key) if here.key in keys else None
            if place is None:
                place = next((at for at, key in enumerate(keys) if key in paths), None)
            if place is not None:
                self.put_cursor(place)
        self._describe()
        self.redraw()

    def _lines_of(self, modules: Iterable[ModuleFigures], depth: int) -> Iterator[_ModuleLine]:
        is_sorted = self._order != _ORDERS[0]
        children = sorted(modules, key=self._sorting) if is_sorted else list(modules)
        runs = [[each] for each in children] if is_sorted else equal_runs(children)
        for run in runs:
            if len(run) > 1:
                key = _run_key(run)
                yield _ModuleLine(depth, run, key, has_more=True)
                if key in self._open:
                    for module in run:
                        yield from self._line_of(module, depth + 1)
            else:
                yield from self._line_of(run[0], depth)

    def _line_of(self, module: ModuleFigures, depth: int) -> Iterator[_ModuleLine]:
        yield _ModuleLine(depth, [module], module.path, has_more=bool(module.children))
        if module.children and module.path in self._open:
            yield from self._lines_of(module.children, depth + 1)

    def _sorting(self, module: ModuleFigures) -> float:
        if self._order == "time":
            return -module.time_ns
        return -_size(module)

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line, or in words why there is none."""
        if y == 1 and not self.line_count and self._tree is not None:
            return [Span(f" {_NO_MODULES}", "muted")], ""
        return super().row(y, width)

    def _describe(self) -> None:
        """Say at the lower border what the columns of a narrow panel have no room for."""
        line = self._here
        if line is None:
            self.subtitle("")
            return
        first = line.modules[0]
        parts = []
        missing = [module.missing for module in line.modules]
        asked = sum(module.parameters for module in line.modules)
        count = sum(each or 0 for each in missing)
        if count:
            of = "no gradient" if first.is_parameter else f"{count} of {asked} without gradient"
            parts.append(of)
        if len(line.modules) > 1:
            parts.append(f"{len(line.modules)} alike")
        elif first.is_parameter and not first.parameters:
            parts.append("frozen")
        elif not first.is_parameter and first.own_nodes and first.own_nodes < first.nodes:
            parts.append(f"self {plural(first.own_nodes, 'node')}, {duration(first.own_time_ns)}")
        if first.first_bad is not None and self.view is not None:
            parts.append(f"! first in {self.view.recording.label(first.first_bad[1])}")
        by = "" if self._order == _ORDERS[0] else f"by {self._order}"
        self.subtitle(", ".join(filter(None, [*parts, by])))

    def _name_width(self, width: int) -> int:
        figures = sum(column.width + 1 for column in _fitting(width))
        return max(8, min(width - 3 - figures, self._longest, _MOST_NAME))


def _fitting(width: int) -> list[_Column]:
    """The columns that there is room for, in the order in which they are shown."""
    found: list[_Column] = []
    room = width - 3 - _LEAST_NAME
    for column in _COLUMNS:
        if column.width + 1 > room:
            break
        found.append(column)
        room -= column.width + 1
    return found


def _name_cells(line: _ModuleLine) -> int:
    names = {len(line.modules[0].name), len(line.modules[0].name) + len(line.modules[-1].name) + 3}
    return 2 * line.depth + 2 + (max(names) if len(line.modules) > 1 else min(names))


def _run_key(run: Sequence[ModuleFigures]) -> str:
    return f"{run[0].path} … {run[-1].path}"


def _open_at_first(top: Sequence[ModuleFigures]) -> Iterator[str]:
    """Those around the first level that has more than one module."""
    modules = [module for module in top if module.path]
    while len(modules) == 1:
        yield modules[0].path
        modules = [child for child in modules[0].children if not child.is_parameter]


def _keys(modules: Sequence[ModuleFigures]) -> Iterator[str]:
    for run in equal_runs(modules):
        if len(run) > 1:
            yield _run_key(run)
    for module in modules:
        if module.children:
            yield module.path
            yield from _keys(module.children)


def _size(module: ModuleFigures) -> float:
    """Of its gradient: not finite first, none last."""
    if module.gradient is None:
        return -1.0
    return math.inf if math.isnan(module.gradient) else module.gradient


def _cell(column: _Column, modules: Sequence[ModuleFigures]) -> tuple[str, bool]:
    """What a column says of modules, and whether that is not as it should be."""
    if column.name in _TIMES:
        return _time([_TIMES[column.name](module) for module in modules]), False
    if column.name == "nodes":
        nodes = sum(module.nodes for module in modules)
        return (f"{nodes:,}" if nodes else ""), False
    if column.name == "put out":
        return _norms([module.norm for module in modules], column.width)
    if len(modules) == 1 and modules[0].missing and modules[0].is_parameter:
        return "None", True
    return _norms([module.gradient for module in modules], column.width)


_TIMES: Final[dict[str, Callable[[ModuleFigures], int | None]]] = {
    "time": lambda module: module.time_ns or None,
    "self": lambda module: module.own_time_ns or None,
    "forward": lambda module: module.forward_ns,
    "fwd self": lambda module: module.own_forward_ns,
}


def _time(times: Iterable[int | None]) -> str:
    known = [time for time in times if time is not None]
    return duration(sum(known)) if known else ""


def _norms(norms: Iterable[float | None], width: int) -> tuple[str, bool]:
    """The least and the largest, where there is room for both."""
    known = [norm for norm in norms if norm is not None]
    if not known:
        return "", False
    if any(math.isnan(norm) for norm in known):
        return "NaN, Inf", True
    least, most = f"{min(known):.2g}", f"{max(known):.2g}"
    both = f"{least}…{most}"
    if least == most or len(both) > width:
        return f"{max(known):.3g}", False
    return both, False
