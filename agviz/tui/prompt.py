"""The line at the bottom that takes a search (``/``), a command (``:``) or Python (``!``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from agviz.tui.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from textual.app import ComposeResult

    from agviz.tui.python_field import PythonField

Complete: TypeAlias = "Callable[[str], Iterable[str]]"

SEARCH = "/"
COMMAND = ":"
SHELL = "!"

_EXPLAINED = {
    SEARCH: "search nodes by name, module or parameter",
    COMMAND: "command, for example: until 12 (tab completes, help lists all)",
    SHELL: "Python at this node: node, grads, module (tab completes, escape leaves)",
}


class _Commands(Suggester):
    """Completes the name of a command, and then its argument."""

    def __init__(self, complete: Complete) -> None:
        super().__init__(case_sensitive=True, use_cache=False)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """The first line that begins with ``value``."""
        return next(iter(self._complete(value)), None) if value else None


class Prompt(Horizontal):
    """Hidden until :meth:`ask`; goes away when it was answered or left.

    Args:
        complete: gives the command lines that begin with what was typed.
        takes_python: whether Python may be asked for.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="prompt.cancel"),
        Binding("up", "earlier(1)", "Earlier", id="prompt.earlier"),
        Binding("down", "earlier(-1)", "Later", show=False, id="prompt.later"),
        Binding("tab", "complete", "Complete", priority=True, id="prompt.complete"),
    ]

    class Answered(Message):
        """The user pressed enter."""

        def __init__(self, kind: str, text: str) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    class Left(Message):
        """The prompt is closed, answered or not."""

    def __init__(
        self,
        complete: Complete,
        *,
        takes_python: bool,
        id: str,  # noqa: A002 - Textual's name for it
    ) -> None:
        super().__init__(id=id)
        self._takes_python = takes_python
        self._completed = _Commands(complete)
        self.kind = SEARCH
        self._history = History(_EXPLAINED)
        self._back = 0
        self._draft = ""
        """What was typed before the user walked through history."""

    def compose(self) -> ComposeResult:
        """The sign that says what is asked for, and the fields, one of which is shown."""
        yield Static(SEARCH, id="prompt-kind", markup=False)
        yield Input(compact=True, select_on_focus=False, id="prompt-field")
        if self._takes_python:
            from agviz.tui.python_field import PythonField  # 60 ms of CPU, with what it imports

            yield PythonField(_EXPLAINED[SHELL], id="prompt-python")

    @property
    def field(self) -> Input:
        """Where the user types a search or a command."""
        return self.query_one(Input)

    @property
    def python(self) -> PythonField:
        """Where the user types Python; only where that may be asked for."""
        return cast("PythonField", self.query_one("#prompt-python"))

    @property
    def is_open(self) -> bool:
        """Whether the user types here."""
        return self.has_class("-open")

    def ask(self, kind: str, begin: str = "") -> None:
        """Open for a search, a command, or Python at a stopped node."""
        self.kind = kind
        self._back = 0
        self.query_one("#prompt-kind", Static).update(kind)
        self.set_class(kind == SHELL, "-python")
        self.field.placeholder = _EXPLAINED[kind]
        self.field.suggester = self._completed if kind == COMMAND else None
        self._write(begin)
        self.add_class("-open")
        self.screen.set_focus(self.python if kind == SHELL else self.field)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Pass the answer on."""
        event.stop()
        text = event.value.strip()
        self.action_leave()
        if text:
            self._history.add(self.kind, text)
            self.post_message(self.Answered(self.kind, text))

    def on_python_field_entered(self, event: PythonField.Entered) -> None:
        """Pass the answer on, and stay open."""
        event.stop()
        self._back = 0
        if event.text.strip():
            self._history.add(SHELL, event.text.rstrip())
            self.post_message(self.Answered(SHELL, event.text))

    def on_python_field_earlier_wanted(self, event: PythonField.EarlierWanted) -> None:
        """Walk through what was entered before."""
        event.stop()
        self.action_earlier(event.by)

    def on_python_field_line_count_changed(self, event: PythonField.LineCountChanged) -> None:
        """Show that further lines go on."""
        event.stop()
        if self.kind == SHELL:
            self.query_one("#prompt-kind", Static).update(
                "\n".join([SHELL, *"…" * (event.lines - 1)])
            )

    def complete(self, names: tuple[str, ...], text: str) -> bool:
        """Write on a name of Python, unless something else is there by now.

        Args:
            names: which it could be.
            text: what was asked about.

        Returns:
            Whether the user has to choose among them.
        """
        if not self.is_open or self.python.before_cursor != text:
            return False
        return not self.python.extend(names) and len(names) > 1

    def action_leave(self) -> None:
        """Close."""
        if self.is_open:
            self.remove_class("-open")
            self.post_message(self.Left())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual passes it
        """Where Python is typed, tab comes to the field, behind the keys before it."""
        return action != "complete" or self.kind != SHELL

    def action_complete(self) -> None:
        """Take the suggestion."""
        self.field.action_cursor_right()

    def action_earlier(self, by: int) -> None:
        """Walk through what was entered before."""
        history = self._history.of(self.kind)
        if not self._back:
            self._draft = self.python.text if self.kind == SHELL else self.field.value
        back = min(max(self._back + by, 0), len(history))
        if back != self._back:
            self._back = back
            self._write(history[-back] if back else self._draft)

    def on_descendant_blur(self) -> None:
        """Close where the user went on elsewhere; it may have been opened again meanwhile."""
        if self.screen.focused not in self.children:
            self.action_leave()

    def _write(self, text: str) -> None:
        """Put a text into the field that is shown."""
        if self.kind == SHELL:
            self.python.put(text)
        else:
            self.field.value = text
            self.field.cursor_position = len(text)
