"""How a line of the command line is read. Nothing is ever evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.tui.model import LoadedPass


class CommandError(AgvizError):
    """A command can't be carried out; the sentence says why."""


class Usage(NamedTuple):
    """How a command is written behind ``:``, and what it does."""

    name: str
    argument: str
    """In brackets if it may be left out; empty: there is none."""
    help: str


SHORTHANDS: Final = {
    "b": "break",
    "c": "continue",
    "n": "next",
    "q": "quit",
    "s": "step",
    "u": "until",
}
"""As in pdb and gdb, whatever else begins so."""


def parse(text: str, known: Sequence[Usage]) -> tuple[str, str]:
    """Name and argument of a command; a beginning that fits only one name will do.

    Args:
        text: what was typed behind the colon.
        known: the commands that there are.

    Raises:
        CommandError: there is no such command, or it takes no argument, or it needs one.
    """
    name, _, argument = text.strip().partition(" ")
    name = SHORTHANDS.get(name, name)
    argument = argument.strip()
    fitting = [usage for usage in known if usage.name == name]
    fitting = fitting or [usage for usage in known if usage.name.startswith(name)]
    if not fitting:
        raise CommandError(f"There is no command {name}; :help lists them.")
    if len(fitting) > 1:
        names = " or ".join(usage.name for usage in fitting)
        raise CommandError(f"{name} could be {names}; type more of it.")
    name, wanted, _ = fitting[0]
    if argument and not wanted:
        raise CommandError(f"{name} takes no argument.")
    if not argument and wanted and not wanted.startswith("["):
        raise CommandError(f"{name} needs an argument: {name} {wanted}.")
    return name, argument


def number(argument: str, default: int = 1) -> int:
    """A whole number.

    Raises:
        CommandError: it is none.
    """
    try:
        return int(argument.replace(",", "")) if argument else default
    except ValueError:
        raise CommandError(f"{argument} is no whole number.") from None


def node(argument: str, recording: LoadedPass) -> int:
    """The node that is meant by its number in execution order, or by a part of its names.

    Raises:
        CommandError: there is none.
    """
    if argument.lstrip("#").isdecimal():
        order = int(argument.lstrip("#"))
        run = len(recording.columns.started)
        if not 1 <= order <= run:
            raise CommandError(f"There is no node #{order}: {run:,} were run.")
        return recording.columns.started[order - 1]
    found = recording.columns.find(argument)
    if not found:
        raise CommandError(f"No node's name, module or parameter holds “{argument}”.")
    return found[0]
