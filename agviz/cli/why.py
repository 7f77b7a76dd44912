"""Say why a parameter has no gradient, or one of zeros.

  agviz why FILE                   what is wrong, and all parameters at a glance
  agviz why FILE encoder.weight    one of them, and the line that cut it off from the loss
  agviz why FILE encoder           those of a module
  agviz why FOLDER                 all parameters of all ranks
  agviz why FOLDER encoder.weight  one of them on all ranks, and whether it is equal on them

A parameter that got a gradient in one of the last 20 backward passes has one; --graph-task asks
about one pass. Which line cut the graph is known where the forward was recorded, too:
agviz run --check-forward.

The exit code is 0 where the gradients are there (or the parameters are frozen, unless one is asked
for by name), 1 where one is None, zero or not finite, 2 where there is no such parameter or file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.gradients import WORDS, Gradients, Group, norms
from agviz.analysis.outcome import EXIT_CODES, Outcome
from agviz.analysis.source import source_line
from agviz.analysis.why import why
from agviz.cli import of_ranks
from agviz.cli.console import headed_table, stdout_console, styled, write
from agviz.ranks.answers.found import numbers
from agviz.ranks.folder import Folder
from agviz.traces.reader import Trace
from agviz.words.documents import head
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

    from rich.console import Console
    from rich.table import Table

    from agviz.analysis.gradients import GradientRow

_GLYPHS: Final = {
    "some": "[green]✓[/]",
    "unknown": "[yellow]?[/]",
    "faint": "[red]≈[/]",
    "nonfinite": "[red]✗[/]",
    "zero": "[red]0[/]",
    "none": "[red]✗[/]",
}
_INTENDED: Final = "[dim]-[/]"
_MOST_SHOWN: Final = 2
"""Things that are wrong of which all is said; of others the table has reason and line."""
_MORE: Final = "For what to do: agviz why FILE PARAM."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz why``."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a recorded trace, or a folder of ranks"
    )
    parser.add_argument(
        "parameter",
        metavar="PARAM",
        nargs="?",
        help="its name, as in named_parameters(), or that of a module",
    )
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="only this backward pass, with the reentrant ones in it (default: the last 20)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="every parameter on a line of its own, and figures"
    )
    parser.add_argument("--json", action="store_true", help="for other programs")


def execute(arguments: argparse.Namespace) -> int:
    """Print the answer; return 0, 1 or 2 by the outcome."""
    if arguments.file.is_dir() and arguments.parameter is None:
        return _on_all_ranks(arguments)
    if arguments.file.is_dir():
        return of_ranks.why_not(arguments.file, arguments.parameter, as_json=arguments.json)
    with Trace.open(arguments.file) as trace:
        answer = why(trace, arguments.parameter, arguments.graph_task)
    is_one = arguments.parameter is not None and len(answer) == 1
    if arguments.json:
        print(json.dumps(as_json(answer), indent=2))
    elif is_one:
        show_one(answer, stdout_console(), verbose=arguments.verbose)
    else:
        show_all(answer, stdout_console(), verbose=arguments.verbose)
    if is_one and not answer[0].is_there:
        return EXIT_CODES[Outcome.FOUND]
    return EXIT_CODES[answer.outcome]


def _on_all_ranks(arguments: argparse.Namespace) -> int:
    """Print what is to be said of the ranks of a folder, of those alike once; return 0, 1 or 2.

    What has a gradient on one rank is trained; it is left out where another one has none for it.
    """
    answers = {
        file.number: why(trace, None, arguments.graph_task)
        for file, trace in Folder.open(arguments.file).traces()
    }
    trained = {row.parameter for answer in answers.values() for row in answer if row.is_there}
    found: dict[tuple[object, ...], tuple[Gradients, list[int]]] = {}
    for number, whole in answers.items():
        rows = [row for row in whole if row.gradient != "none" or row.parameter not in trained]
        answer = Gradients(rows, whole.hint, whole.doubt)
        key = tuple((row.parameter, row.gradient, row.reason) for row in answer)
        found.setdefault(key, (answer, []))[1].append(number)
    if arguments.json:
        ranks = {number: as_json(answer) for answer, of in found.values() for number in of}
        print(json.dumps({**head("why-ranks"), "ranks": ranks}, indent=2))
    else:
        console = stdout_console()
        for answer, of in found.values():
            write(f"{numbers(of)}:", console, indent=0)
            show_all(answer, console, verbose=arguments.verbose)
            console.print()
    outcomes = {answer.outcome for answer, _ in found.values()}
    return EXIT_CODES[next(each for each in of_ranks.WORST if each in outcomes)]


def as_json(answer: Gradients) -> dict[str, Any]:
    """The answer as JSON can hold it."""
    return {
        **head("why"),
        "verdict": answer.verdict,
        "outcome": str(answer.outcome),
        "is_fine": answer.is_fine,
        "doubt": answer.doubt,
        "hint": answer.hint,
        "parameters": [row.as_json() for row in answer],
    }


def show_one(answer: Gradients, console: Console, *, verbose: bool) -> None:
    """Print what is to be said of the only parameter."""
    row = answer[0]
    outcome = answer.outcome if row.is_there else Outcome.FOUND
    group = Group(row.parameter, [row])
    _show(group, group.heading, outcome, console, verbose=verbose)
    for more in filter(None, (answer.doubt, answer.hint)):
        write(more, console)


def show_all(answer: Gradients, console: Console, *, verbose: bool) -> None:
    """Print what is wrong, and all parameters in a table.

    Those of a module are listed together where they are alike.
    """
    outcome, faults = answer.outcome, _by_fault(answer)
    shown = faults[: None if verbose else _MOST_SHOWN]
    if len(faults) == 1 and not answer.doubt:
        (fault,) = faults
        _show(fault, fault.heading_among(len(answer.trained)), outcome, console, verbose=verbose)
    else:
        said = " ".join(filter(None, (f"{answer.verdict}.", answer.doubt)))
        write(f"{outcome.glyph} {said}", console, indent=0, style=outcome.style)
        for group in shown:
            console.print()
            _show(group, group.heading, group.rows[0].outcome, console, verbose=verbose)
    console.print()
    console.print(_table(answer.groups(apart=verbose), {_fault(group.rows[0]) for group in shown}))
    more = _MORE if len(shown) < len(faults) else ""
    if said := " ".join(filter(None, (more, answer.hint))):
        console.print()
        write(said, console, indent=0)


def _show(group: Group, heading: str, outcome: Outcome, console: Console, *, verbose: bool) -> None:
    row = group.rows[0]
    write(f"{outcome.glyph} {heading}", console, indent=0, style=outcome.style)
    if row.frame is not None:
        write(f"{row.line} ({row.module})" if row.module else str(row.line), console)
        write(source_line(row.frame), console, indent=6, style="cyan")
    write(row.remedy, console)
    for detail in row.details if verbose else ():
        write(detail, console)


def _by_fault(answer: Gradients) -> list[Group]:
    """For each thing that is wrong, all parameters of which it is to be said."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in answer.groups():
        if not group.rows[0].is_fine:
            found.setdefault(_fault(group.rows[0]), []).append(group)
    return [Group.of(groups) for groups in found.values()]


def _fault(row: GradientRow) -> tuple[object, ...]:
    return row.gradient, row.cause, row.reason, row.line


def _table(groups: list[Group], shown: Collection[tuple[object, ...]]) -> Table:
    """All parameters, with reasons where these have not been shown."""
    reasons = [_reason(group.rows[0], shown) for group in groups]
    table = headed_table()
    table.add_column("")
    table.add_column("parameter", overflow="fold")
    table.add_column("shape", no_wrap=True)
    table.add_column("gradient", no_wrap=True)
    table.add_column("norm", justify="right", no_wrap=True)
    if any(reasons):
        table.add_column("why", overflow="fold")
    for group, reason in zip(groups, reasons, strict=True):
        row = group.rows[0]
        many = len(group.rows) > 1
        table.add_row(
            _INTENDED if row.is_fine and row.cause else _GLYPHS[row.gradient],
            styled(group.name),
            f"{len(group.rows):,} of them" if many else write_shape(row.shape),
            WORDS[row.gradient],
            norms(group),
            *([styled(reason)] if any(reasons) else []),
        )
    return table


def _reason(row: GradientRow, shown: Collection[tuple[object, ...]]) -> str:
    """What the table says of a row, with the line where that is a fault; empty: it is shown."""
    if row.is_fine:
        return row.reason
    return "" if _fault(row) in shown else ", at ".join(filter(None, (row.reason, row.line)))
