"""Say why gradients are NaN or infinite, why backward failed, or what holds it.

Names the first gradient that was not finite, in causal order: its node, what went in and what came
out, the line of the forward, the known pattern that fits and what to do, and what it reached.

Of a backward pass that failed: the exception, the node, hook or callback that raised it, and the
line; for a saved tensor, what had been modified and by which line, or which backward pass had gone
through the graph before. Of one that has not ended, in a program that hangs or was killed: which
thread is in which node, hook or callback, and what waits for it.

Of a folder of ranks: which rank was the first that raised, was killed, left early or made something
that is not finite; which called another collective, took another branch of the forward or lost the
synchronisation of a parameter; and which rank all others wait for, in which node and line.

With --element, says instead which sample and position the largest element comes from of what a node
put out, where it was recorded with `agviz run --elements`.

Exits with 0 where nothing unusual was found in what was recorded, with 1 where something was
(✗), with 2 where that can't be said (?): no gradient was measured, or no backward pass recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agviz.analysis.explanation import Explanation
from agviz.analysis.largest_element import largest_element
from agviz.analysis.outcome import EXIT_CODES
from agviz.analysis.verdict import verdicts
from agviz.cli import of_ranks
from agviz.cli.console import stdout_console, write
from agviz.cli.said import show
from agviz.errors import AgvizError
from agviz.traces.inferred import withdrawals
from agviz.traces.reader import Trace
from agviz.words.documents import head
from agviz.words.safe import clean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


from agviz.analysis.verdict import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz explain``."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a recorded trace, or a folder of ranks"
    )
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="this backward pass (default: the first that went wrong)",
    )
    parser.add_argument(
        "--element",
        metavar="NODE",
        help="instead: the largest element of what a node put out, and which sample and position"
        " it comes from; by number, name or module (recorded with --elements)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="also what the answer rests on, line by line"
    )
    parser.add_argument("--json", action="store_true", help="everything, for other programs")


def execute(arguments: argparse.Namespace) -> int:
    """Print the answer; return 0, 1 or 2 by the worst outcome."""
    if arguments.file.is_dir():
        if arguments.graph_task is not None:
            raise AgvizError("--graph-task is of one rank; give its trace instead of the folder")
        if arguments.element is not None:
            raise AgvizError("--element is of one rank; give its trace instead of the folder")
        return of_ranks.explain(arguments.file, as_json=arguments.json, verbose=arguments.verbose)
    if arguments.element is not None:
        return _largest(arguments)
    with Trace.open(arguments.file) as trace:
        found = verdicts(trace, arguments.graph_task)
        name, engine = trace.path, trace.meta.engine
        withdrawn = withdrawals(
            trace.graph_tasks
            if arguments.graph_task is None
            else [trace.graph_task(arguments.graph_task)]
        )
    if arguments.json:
        about = {**head("explain"), "file": name, "engine": engine, "withdrawn": withdrawn}
        print(json.dumps({**about, **_facts(found)}, indent=2))
    else:
        console = stdout_console()
        show(found, console, verbose=arguments.verbose)
        if withdrawn:
            console.print()
            write(f"! {withdrawn}", console, indent=0)
    return EXIT_CODES[found[0].outcome]


def _largest(arguments: argparse.Namespace) -> int:
    """Print where the largest element of a node comes from."""
    with Trace.open(arguments.file) as trace:
        found = largest_element(trace, arguments.element, arguments.graph_task)
    if arguments.json:
        about = {**head("explain-element"), "file": clean(str(arguments.file))}
        print(json.dumps({**about, **found.as_json()}, indent=2))
        return 0
    console = stdout_console()
    write(found.heading, console, indent=0)
    if found.line:
        write(found.line, console)
    write(found.source, console, indent=6, style="cyan")
    write(found.paragraph, console)
    return 0


def _facts(found: Sequence[Verdict]) -> dict[str, Any]:
    bases = [verdict.basis for verdict in found if verdict.basis is not None]
    explained = next((each for each in bases if isinstance(each, Explanation)), None)
    wrong = next((each for each in bases if not isinstance(each, Explanation)), None)
    return {
        "verdicts": [each.as_json() for each in found],
        "explanation": None if explained is None else explained.as_json(),
        "failure": None if wrong is None else wrong.as_json(),
    }
