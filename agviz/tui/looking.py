"""Looking: tensors, gradients, hooks, the queue and Python at a stop."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from agviz.debugger.python_input import is_whole
from agviz.errors import AgvizError
from agviz.tui import commands
from agviz.tui.commands import CommandError, Usage
from agviz.tui.linked import Linked, in_words
from agviz.tui.model import StopTensors
from agviz.tui.panels.output import ANSWER, INPUT
from agviz.tui.prompt import COMMAND, SHELL, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agviz.debugger.client import Client, Shown, StopTensor, WentBack
    from agviz.measure.values import Health
    from agviz.tui.panels.inspector import Inspector
    from agviz.tui.python_field import PythonField

_NARROWEST: Final = 20


class Looking(Linked):
    """What can be done with the node that a thread is at."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("exclamation_mark", "shell", "Python", priority=True, id="shell"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "tensors": Usage("", "list the tensors at this stop"),
        "print": Usage("WHAT [NAME] [INDEX]", "show a tensor: input 0 [0:3]"),
        "change": Usage("SLOT HOW VALUE [INDEX]", "change a gradient: 0 multiply 2, 0 set 1 [3]"),
        "undo": Usage("", "take back the last change of a gradient at this stop"),
        "back": Usage(
            "[NODE] [force]",
            "stop again before a node that ran, or the last one, to run on from there"
            " (agviz run --live --back)",
        ),
        "skiphooks": Usage("", "leave out the node's hooks"),
        "pick": Usage("NODE", "run a ready node right after this one"),
        "python": Usage("LINE", "run a line of Python at this node"),
    }

    def look_at_tensors(self) -> None:
        """Have the tensors of the node measured that the thread is at."""
        stop = self.stop
        if stop is None or stop.node is None:
            return
        thread, node = stop.thread, stop.node

        def take(found: list[StopTensor]) -> None:
            if self.stop is stop:
                self.stop_tensors = StopTensors(stop.graph_task, node, stop.seq, tuple(found))
                self.show_alive()

        self.ask_quietly(lambda client: client.tensors(thread, samples=True), take)

    def action_shell(self) -> None:
        """Open a line for Python at the stopped node."""
        if self.is_stopped():
            self.action_ask(SHELL)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Run Python; what else is typed is not ours."""
        if message.kind == SHELL:
            message.prevent_default()
            self._run_python(message.text)

    def on_python_field_completion_wanted(self, message: PythonField.CompletionWanted) -> None:
        """Ask the program what it knows."""
        text = message.text

        def take(names: tuple[str, ...]) -> None:
            if self.query_one(Prompt).complete(names, text):
                width = max(self.output.content_size.width - 2, _NARROWEST)
                self.answer("\n".join(textwrap.wrap("  ".join(names), width)))
            elif not names:
                self.notify("Nothing known begins so.", timeout=2)

        self.ask_thread(lambda client, thread: client.complete(text, thread), take)

    def on_inspector_command_begun(self, message: Inspector.CommandBegun) -> None:
        """Let a command be written to its end."""
        self.ask(COMMAND, message.text)

    def command_tensors(self, _argument: str) -> None:
        """``:tensors``."""
        self.ask_thread(lambda client, thread: client.tensors(thread), self._list_tensors)

    def command_print(self, argument: str) -> None:
        """``:print``."""
        match = re.fullmatch(r"(\w+)(?:\s+([^\[\s]\S*))?(?:\s*(\[[^\]]*\]?))?", argument)
        if match is None:
            raise CommandError("Say what to print, like input 0 [0:3]; :tensors lists all.")
        what, name, index = match[1], match[2] or "", match[3] or ""
        if what in {"input", "output"} and not name:
            name = "0"
        self.ask_thread(
            lambda client, thread: client.tensor(what, name, index, thread), self._print
        )

    def complete_print(self, argument: str) -> Iterable[str]:
        """What can be looked at."""
        found = () if self.stop_tensors is None else self.stop_tensors.tensors
        known = [f"{each.what} {each.name}".rstrip() for each in found]
        return [each for each in known if each.startswith(argument)]

    def command_change(self, argument: str) -> None:
        """``:change``."""
        match = re.fullmatch(r"(\d+)\s+(\w+)\s+(\S+)(?:\s*(\[.*\]))?", argument)
        if match is None:
            raise CommandError("Say slot, how and value, like 0 multiply 2 or 0 set 1 [3].")
        slot, how, value, index = int(match[1]), match[2], match[3], match[4] or ""
        self.ask_thread(
            lambda client, thread: client.change(slot, how, value, index, thread),
            lambda health: self.answer(f"input {slot} is now {in_words(health)}"),
        )
        self.look_at_tensors()

    def command_undo(self, _argument: str) -> None:
        """``:undo``."""

        def take(found: tuple[int, Health]) -> None:
            slot, health = found
            self.answer(f"input {slot} is again {in_words(health)}")

        self.ask_thread(lambda client, thread: client.undo(thread), take)
        self.look_at_tensors()

    def command_back(self, argument: str) -> None:
        """``:back``."""
        words = argument.split()
        force = words[-1:] == ["force"]
        wanted = " ".join(words[:-1] if force else words)
        node = self._node_of_the_stop(wanted) if wanted and self.is_stopped() else None
        self.ask_thread(
            lambda client, thread: client.back(node, thread, force=force), self._say_back
        )

    def _node_of_the_stop(self, wanted: str) -> int:
        """Index of a node of the pass in which the thread stands that is looked at."""
        stop, view = self.stop, self.view
        if stop is None or view is None or view.recording.key.graph_task != stop.graph_task:
            raise CommandError("Another pass is shown; :now goes to where the program stands.")
        return commands.node(wanted, view.recording)

    def _say_back(self, went: WentBack) -> None:
        nodes = f"{went.nodes} node{'s' * (went.nodes != 1)}"
        lines = [f"back before {went.name}: {nodes} undone"]
        if went.python:
            lines.append("not undone is what Python did outside of the engine in")
        lines += [f"  {each}" for each in went.python]
        lines += [f"  but {each}" for each in went.against]
        self.answer("\n".join(lines))

    def command_skiphooks(self, _argument: str) -> None:
        """``:skiphooks``."""
        self.ask_thread(
            lambda client, thread: client.skip_hooks(thread),
            lambda _: self.notify("The node's Python hooks are left out this time."),
        )

    def command_pick(self, argument: str) -> None:
        """``:pick``."""
        if self.view is None:
            return
        found = self.view.recording.columns.find(argument)
        node = int(argument) if argument.isdecimal() else next(iter(found), -1)
        self.ask_thread(
            lambda client, thread: client.run_next(node, thread),
            lambda _: self.notify(f"Node {node} runs right after this one."),
        )

    def command_python(self, argument: str) -> None:
        """``:python``."""
        text = f"{argument}\n"
        if not is_whole(text):
            raise CommandError("Python waits for more of it: press ! to write several lines.")
        self._run_python(text)

    def _run_python(self, text: str) -> None:
        if not self.is_stopped():
            return
        self.output.add(f"{text.rstrip()}\n", INPUT)
        self.show_output()
        self.python_runs += 1

        def run(client: Client, thread: int) -> tuple[str, bool]:
            try:
                return client.shell(text, thread)
            except AgvizError as error:
                return f"{error}\n", False

        self.ask_thread(run, self._say_output)
        self.look_at_tensors()

    def _say_output(self, answer: tuple[str, bool]) -> None:
        output, _ = answer
        self.python_runs -= 1
        self.output.add(output, ANSWER)

    def _list_tensors(self, found: list[StopTensor]) -> None:
        for each in found:
            self.answer(f"{each.what} {each.name}".rstrip() + f"  {in_words(each.health)}")

    def _print(self, shown: Shown) -> None:
        self.answer(f"{shown.text}\n{in_words(shown.health)}")
