"""Following: a trace that grows, one that was replaced, and keys that need a program that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui.board import Board
from agviz.tui.commands import CommandError, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_RECORDED = (
    "This is a recording: nothing runs that could stop here. agviz run --live script.py opens the"
    " debugger on a program; u runs to the cursor, c to the next finding."
)


class Following(Board):
    """The end of a trace that is being written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("F", "follow", "Follow a trace that grows", show=False, id="follow"),
        Binding("R", "reload", "Open the files anew", show=False, id="reload"),
        Binding("b", "toggle_breakpoint", "Breakpoint here (live)", show=False, id="break.toggle"),
        Binding("B", "edit_breakpoints", "Breakpoints (live)", show=False, id="break.edit"),
        Binding(
            "exclamation_mark", "shell", "Python shell at this node (live)", show=False, id="shell"
        ),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "follow": Usage("", "keep the playhead at the end of a trace that grows"),
        "reload": Usage("", "open the files anew"),
        **{
            name: Usage("[WHAT]", "about a program that runs: agviz run --live")
            for name in ("break", "tbreak", "condition", "ignore", "enable", "disable")
        },
    }

    def action_follow(self) -> None:
        """Go to the end and stay there; again: stop that."""
        view = self.view
        if view is None:
            return
        if view.follows:
            self.view = replace(view, follows=False)
            self.reader.follow(on=False)
        elif view.recording.meta.end_ns is not None:
            self.notify("The recording is closed: there is nothing more to come.")
        else:
            self.view = replace(view, follows=True)
            self.reader.follow(on=True)

    def action_reload(self) -> None:
        """Open the files anew."""
        self.reader.reopen()

    def action_toggle_breakpoint(self) -> None:
        """Say why there are none."""
        self.notify(_RECORDED, timeout=10)

    def action_edit_breakpoints(self) -> None:
        """Say why there are none."""
        self.notify(_RECORDED, timeout=10)

    def action_shell(self) -> None:
        """Say why there is none."""
        self.notify(
            "This is a recording: its tensors are gone. agviz run --live script.py opens the"
            " debugger on a program.",
            timeout=10,
        )

    def command_follow(self, _argument: str) -> None:
        """``:follow``."""
        self.action_follow()

    def command_reload(self, _argument: str) -> None:
        """``:reload``."""
        self.action_reload()

    def command_break(self, _argument: str) -> None:
        """``:break`` and others that only a live session has."""
        raise CommandError(_RECORDED)

    command_tbreak = command_condition = command_ignore = command_break
    command_enable = command_disable = command_break
