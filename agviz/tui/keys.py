"""The bindings that there are, so that users can give them other keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from agviz.tui.arrangement import PANELS
from agviz.tui.panels.compare import CompareList
from agviz.tui.panels.files import FileList
from agviz.tui.panels.flow import FlowList
from agviz.tui.panels.output import Output
from agviz.tui.panels.process import ProcessLanes
from agviz.tui.panels.ranks import RankLanes
from agviz.tui.panels.run import RunList
from agviz.tui.prompt import Prompt
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.answer import Answer
from agviz.tui.screens.breakpoints import Breakpoints
from agviz.tui.screens.compare import CompareScreen
from agviz.tui.screens.flow import FlowScreen
from agviz.tui.screens.help import Help
from agviz.tui.screens.leave import Leave
from agviz.tui.screens.process import ProcessScreen
from agviz.tui.screens.ranks import RanksScreen
from agviz.tui.screens.run import RunScreen
from agviz.tui.screens.tour import Tour

if TYPE_CHECKING:
    from textual.dom import DOMNode


def bindings() -> dict[str, Binding]:
    """All bindings that have an id, by id."""
    owners: tuple[type[DOMNode], ...] = (TraceScreen, *PANELS, Output, Prompt, Help, Answer)
    owners += (RunScreen, RunList, FileList, CompareScreen, CompareList)
    owners += (FlowScreen, FlowList, ProcessScreen, ProcessLanes)
    owners += (Breakpoints, Leave, Tour, RanksScreen, RankLanes)
    return {
        binding.id: binding
        for owner in owners
        for part in owner.__mro__
        if part.__module__.startswith("agviz.")
        for binding in vars(part).get("BINDINGS", ())
        if isinstance(binding, Binding) and binding.id
    }


def binding_ids() -> set[str]:
    """Their ids."""
    return set(bindings())
