"""Asking: why a gradient is what it is, and files for other tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui.answers import VerdictsFound, why_parameter, why_unusual
from agviz.tui.board import Board
from agviz.tui.commands import CommandError, Usage
from agviz.tui.screens.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from textual.notifications import SeverityLevel

_FORMATS = ("svg", "png", "pdf", "dot", "html", "chrome-trace", "json")
_SUFFIXES = {"chrome-trace": "trace.json.gz"}


class Asking(Board):
    """What the analyses know about what is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "why", "Why", tooltip="Why a gradient is not finite, zero or None", id="why"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "why": Usage(
            "[NAME]", "why a gradient is not finite, or a parameter's or module's zero or None"
        ),
        "export": Usage("FORMAT [FILE]", f"write {', '.join(_FORMATS)}"),
    }

    def action_why(self) -> None:
        """Explain the selected parameter's gradient, or else what is unusual about the pass."""
        view = self.view
        if view is None:
            return
        parameter = "" if view.selected is None else view.recording.node(view.selected).parameter
        self.reader.ask(why_parameter(parameter) if parameter else why_unusual)

    def command_why(self, argument: str) -> None:
        """``:why``."""
        self.reader.ask(why_parameter(argument) if argument else why_unusual)

    def on_verdicts_found(self, message: VerdictsFound) -> None:
        """Show what was found."""
        self.app.push_screen(Answer(message))

    def command_export(self, argument: str) -> None:
        """``:export``."""
        if self.view is None:
            return
        kind, _, name = argument.partition(" ")
        if kind not in _FORMATS:
            raise CommandError(f"{kind} is none of {', '.join(_FORMATS)}.")
        key = self.view.recording.key
        path = self.paths[key.file]
        output = Path(name.strip() or path.with_suffix("." + _SUFFIXES.get(kind, kind)))
        command = [sys.executable, "-m", "agviz", "export", str(path), "--format", kind]
        command += ["--graph-task", str(key.graph_task), "-o", str(output)]
        self.notify(f"Writing {output} …", markup=False)
        self.run_worker(lambda: self._export(command, output), thread=True, exclusive=False)

    def complete_export(self, argument: str) -> Iterable[str]:
        """Formats."""
        return [kind for kind in _FORMATS if kind.startswith(argument)]

    def _export(self, command: list[str], output: Path) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sentence = (done.stderr.strip() or done.stdout.strip()).splitlines()
            self._tell(sentence[-1] if sentence else "The export failed.", "error")
        else:
            self._tell(f"Wrote {output}.", "information")

    def _tell(self, sentence: str, severity: SeverityLevel) -> None:
        self.app.call_from_thread(self.notify, sentence, severity=severity, markup=False)
