"""What the analyses know about what is shown, and files for other tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.tui.command_line import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.notifications import SeverityLevel

    from agviz.tui.board import Board

FORMATS: Final = ("svg", "png", "pdf", "dot", "html", "chrome-trace", "json")
_SUFFIXES: Final = {"chrome-trace": "trace.json.gz"}


def explain_selected(board: Board, subject: str) -> None:
    """Explain the gradient of what is selected, or else what is unusual about the pass.

    Args:
        board: of the screen.
        subject: a parameter or module that is under the cursor; empty: the selected node is meant.
    """
    view = board.shown
    node = view.selected
    explain(board, subject or ("" if node is None else view.recording.node(node).parameter))


def explain(board: Board, parameter: str) -> None:
    """Explain a parameter's gradient; empty: what is unusual about the pass."""
    from agviz.tui.screens.answer import show_answer

    show_answer(board.screen, board.reader, parameter, None)


def follow_selected(board: Board, parameter: str) -> None:
    """Follow the gradient to what is selected.

    Args:
        board: of the screen.
        parameter: the one under the cursor; empty: the selected node is meant.
    """
    from agviz.analysis.flow import FlowTarget

    view = board.shown
    number, node = view.recording.key.graph_task, view.selected
    if not parameter and node is None:
        board.notify("Choose a node first: put the cursor on it.")
        return
    name = parameter or ("" if node is None else view.recording.node(node).parameter)
    board.follow(FlowTarget(number, name, None if name else node))


def follow(board: Board, parameter: str) -> None:
    """Follow the gradient to a parameter; empty: to what is selected."""
    from agviz.analysis.flow import FlowTarget

    if not parameter:
        follow_selected(board, "")
        return
    board.follow(FlowTarget(board.shown.recording.key.graph_task, parameter))


def export(board: Board, argument: str) -> None:
    """Write the graph task that is shown in a format, to a file that is named or chosen."""
    kind, _, name = argument.partition(" ")
    if kind not in FORMATS:
        raise CommandError(f"{kind} is none of {', '.join(FORMATS)}.")
    key = board.shown.recording.key
    path = board.paths[key.file]
    output = Path(name.strip() or path.with_suffix("." + _SUFFIXES.get(kind, kind)))
    command = [sys.executable, "-m", "agviz", "export", str(path), "--format", kind]
    command += ["--graph-task", str(key.graph_task), "-o", str(output)]
    board.notify(f"Writing {output} …")
    board.screen.run_worker(lambda: _export(board, command, output), thread=True, exclusive=False)


def complete_export(argument: str) -> Iterable[str]:
    """Formats."""
    return [kind for kind in FORMATS if kind.startswith(argument)]


def _export(board: Board, command: list[str], output: Path) -> None:
    def say(sentence: str, severity: SeverityLevel) -> None:
        screen = board.screen
        screen.app.call_from_thread(screen.notify, sentence, severity=severity, markup=False)

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sentence = (done.stderr.strip() or done.stdout.strip()).splitlines()
        say(sentence[-1] if sentence else "The export failed.", "error")
    else:
        say(f"Wrote {output}.", "information")
