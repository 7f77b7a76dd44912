"""What can be done with the node that a thread is at: tensors, gradients, hooks, Python."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from agviz.debugger.python_input import is_whole
from agviz.errors import AgvizError
from agviz.tui import command_line
from agviz.tui.command_line import CommandError
from agviz.tui.model import StopTensors
from agviz.tui.panels.output import ANSWER, INPUT
from agviz.tui.prompt import SHELL, Prompt
from agviz.words.health import nonfinite
from agviz.words.shapes import write_shape
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.debugger.client import Client
    from agviz.debugger.messages import Shown, StopTensor, WentBack
    from agviz.measure.values import Health
    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board
    from agviz.tui.program import LiveProgram

_NARROWEST: Final = 20


class StoppedNode:
    """The node of the stop that is looked at.

    Args:
        program: which is stopped.
        board: of the screen that shows its trace.
        arrangement: of the panels.
    """

    def __init__(self, program: LiveProgram, board: Board, arrangement: Arrangement) -> None:
        self._program = program
        self._board = board
        self._arrangement = arrangement

    def look_at_tensors(self) -> None:
        """Have the tensors of the node measured that the thread is at."""
        program = self._program
        stop = program.stop
        if stop is None or stop.node is None:
            return
        thread, node = stop.thread, stop.node

        def take(found: list[StopTensor]) -> None:
            if program.stop is stop:
                program.stop_tensors = StopTensors(stop.graph_task, node, stop.seq, tuple(found))
                program.show()

        program.ask_quietly(lambda client: client.tensors(thread, samples=True), take)

    def open_shell(self) -> None:
        """Open a line for Python at the stopped node."""
        if self._program.is_stopped() and self._board.view is not None:
            self._arrangement.ask(SHELL)

    def complete_python(self, text: str) -> None:
        """Complete a name of the stopped program."""

        def take(names: tuple[str, ...]) -> None:
            if self._board.screen.query_one(Prompt).complete(names, text):
                width = max(self._program.output.content_size.width - 2, _NARROWEST)
                self._program.answer("\n".join(textwrap.wrap("  ".join(names), width)))
            elif not names:
                self._board.screen.notify("Nothing known begins so.", timeout=2)

        self._program.ask_thread(lambda client, thread: client.complete(text, thread), take)

    def list_tensors(self) -> None:
        """Say which tensors there are."""

        def take(found: list[StopTensor]) -> None:
            for each in found:
                self._program.answer(
                    f"{each.what} {each.name}".rstrip() + f"  {_in_words(each.health)}"
                )

        self._program.ask_thread(lambda client, thread: client.tensors(thread), take)

    def print_tensor(self, argument: str) -> None:
        """Show a tensor, or a part of one."""
        match = re.fullmatch(r"(\w+)(?:\s+([^\[\s]\S*))?(?:\s*(\[[^\]]*\]?))?", argument)
        if match is None:
            raise CommandError("Say what to print, like input 0 [0:3]; :tensors lists all.")
        what, name, index = match[1], match[2] or "", match[3] or ""
        if what in {"input", "output"} and not name:
            name = "0"

        def take(shown: Shown) -> None:
            self._program.answer(f"{shown.text}\n{_in_words(shown.health)}")

        self._program.ask_thread(
            lambda client, thread: client.tensor(what, name, index, thread), take
        )

    def complete_tensor(self, argument: str) -> Iterable[str]:
        """What can be looked at."""
        tensors = self._program.stop_tensors
        found = () if tensors is None else tensors.tensors
        known = [f"{each.what} {each.name}".rstrip() for each in found]
        return [each for each in known if each.startswith(argument)]

    def change(self, argument: str) -> None:
        """Give the node another gradient."""
        match = re.fullmatch(r"(\d+)\s+(\w+)\s+(\S+)(?:\s*(\[.*\]))?", argument)
        if match is None:
            raise CommandError("Say slot, how and value, like 0 multiply 2 or 0 set 1 [3].")
        slot, how, value, index = int(match[1]), match[2], match[3], match[4] or ""
        self._program.ask_thread(
            lambda client, thread: client.change(slot, how, value, index, thread),
            lambda health: self._program.answer(f"input {slot} is now {_in_words(health)}"),
        )
        self.look_at_tensors()

    def undo(self) -> None:
        """Take back the last change of a gradient."""

        def take(found: tuple[int, Health | None]) -> None:
            slot, health = found
            said = "None" if health is None else _in_words(health)
            self._program.answer(f"input {slot} is again {said}")

        self._program.ask_thread(lambda client, thread: client.undo(thread), take)
        self.look_at_tensors()

    def back(self, argument: str) -> None:
        """Stop again before a node that ran, or the last one, to run on from there."""
        words = argument.split()
        force = words[-1:] == ["force"]
        wanted = " ".join(words[:-1] if force else words)
        node = self._node_of_the_stop(wanted) if wanted and self._program.is_stopped() else None
        self._program.ask_thread(
            lambda client, thread: client.back(node, thread, force=force), self._say_back
        )

    def _node_of_the_stop(self, wanted: str) -> int:
        stop, view = self._program.stop, self._board.view
        if stop is None or view is None or view.recording.key.graph_task != stop.graph_task:
            raise CommandError("Another pass is shown; :now goes to where the program stopped.")
        return command_line.node(wanted, view.recording)

    def _say_back(self, went: WentBack) -> None:
        lines = [f"back before {went.name}: {plural(went.nodes, 'node')} to run again"]
        if went.python:
            lines.append("not undone is what Python did outside of the engine in")
        lines += [f"  {each}" for each in went.python]
        lines += [f"  but {each}" for each in went.against]
        self._program.answer("\n".join(lines))

    def skip_hooks(self) -> None:
        """Leave out the node's hooks."""
        self._program.ask_thread(
            lambda client, thread: client.skip_hooks(thread),
            lambda _: self._board.notify("The node's Python hooks are left out this time."),
        )

    def pick(self, argument: str) -> None:
        """Have a ready node run right after this one."""
        found = self._board.shown.recording.columns.find(argument)
        node = int(argument) if argument.isdecimal() else next(iter(found), -1)
        self._program.ask_thread(
            lambda client, thread: client.run_next(node, thread),
            lambda _: self._board.notify(f"Node {node} runs right after this one."),
        )

    def run_line(self, line: str) -> None:
        """Run a line of Python."""
        text = f"{line}\n"
        if not is_whole(text):
            raise CommandError("Python waits for more of it: press ! to write several lines.")
        self.run_python(text)

    def run_python(self, text: str) -> None:
        """Run Python at the node, and show what it prints."""
        program = self._program
        if not program.is_stopped():
            return
        program.answer(text.rstrip(), INPUT)
        program.python_runs += 1

        def run(client: Client, thread: int) -> tuple[str, bool]:
            try:
                return client.shell(text, thread)
            except AgvizError as error:
                return f"{error}\n", False

        def take(answer: tuple[str, bool]) -> None:
            output, _ = answer
            program.python_runs -= 1
            program.output.add(output, ANSWER)

        program.ask_thread(run, take)
        self.look_at_tensors()


def _in_words(health: Health) -> str:
    """What was measured, on one line."""
    facts = [f"{write_shape(health.shape, '?')} {health.dtype}"]
    if found := nonfinite(health.nan, health.posinf, health.neginf):
        facts.append(found)
    if health.norm is not None:
        facts.append(f"{health.min:.4g} … {health.max:.4g}, norm {health.norm:.4g}")
    return ", ".join(facts)
