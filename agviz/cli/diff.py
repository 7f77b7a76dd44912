"""Say where two recordings part: a good step and a bad one, before and after, two ranks.

Nodes are aligned by name, module, parameter and position in the graph, so that a layer in between
leaves the others aligned. Of two folders, the traces in them are compared one by one.
Exit code 0: nothing differs, 1: something does, 2: the call was wrong.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis import diff_words
from agviz.analysis.comparing import Tolerance
from agviz.analysis.diff import diff
from agviz.cli import of_ranks
from agviz.cli.console import columns_table, stdout_console, styled
from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.words.documents import head
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console

    from agviz.analysis.diff_rows import Change, Divergence, PassDiff
    from agviz.analysis.diff_words import TraceDiff
    from agviz.traces.health import HealthRow
    from agviz.traces.rows import GraphTaskRow, NodeRow

_SAME: Final = 0
_DIFFERENT: Final = 1
_FACTS: Final = (
    *("dtype", "shape", "layout", "device", "numel", "nan", "posinf", "neginf", "zero"),
    *("min", "max", "mean", "norm"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz diff``."""
    parser.add_argument("a", metavar="A", type=Path, help="a recorded trace, or a folder of them")
    parser.add_argument(
        "b",
        metavar="B",
        type=Path,
        nargs="?",
        help="the other one; without it A is a folder of ranks, which are held against each other",
    )
    parser.add_argument(
        "--graph-task",
        metavar="N[:M]",
        type=_two_numbers,
        help="compare only backward pass N of A with N, or M, of B (default: all, in order)",
    )
    for name, what in (("rtol", "X times the largest magnitude"), ("atol", "X")):
        parser.add_argument(
            f"--{name}",
            metavar="X",
            type=float,
            default=0.0,
            help=f"numbers may differ by {what} in a gradient (default: 0)",
        )
    parser.add_argument("--verbose", action="store_true", help="list everything that differs")
    parser.add_argument("--json", action="store_true", help="for other programs")


def _two_numbers(text: str) -> tuple[int, int]:
    first, _, second = text.partition(":")
    return int(first), int(second or first)


def execute(arguments: argparse.Namespace) -> int:
    """Print where the traces part; return 0 where they don't, else 1."""
    if arguments.b is None:
        if not arguments.a.is_dir():
            raise AgvizError("say which trace to compare it with: agviz diff A B")
        return of_ranks.diff(arguments.a, as_json=arguments.json)
    tolerance = Tolerance(arguments.rtol, arguments.atol).checked()
    found = []
    for path_a, path_b in _pairs(arguments.a, arguments.b):
        with Trace.open(path_a) as a, Trace.open(path_b) as b:
            found.append(diff(a, b, graph_tasks=arguments.graph_task, tolerance=tolerance))
    if arguments.json:
        documents = [facts(each) for each in found]
        if arguments.a.is_dir() and arguments.b.is_dir():
            document = {**head("diff-folders"), "pairs": documents}
        else:
            document = {**head("diff"), **documents[0]}
        print(json.dumps(document, indent=2))
    else:
        console = stdout_console()
        for number, each in enumerate(found):
            if number:
                console.print()
            show(each, console, verbose=arguments.verbose)
    return _SAME if all(each.same for each in found) else _DIFFERENT


def _pairs(a: Path, b: Path) -> list[tuple[Path, Path]]:
    """The files that are compared: of folders, those of the same name, or in order of names.

    Raises:
        agviz.errors.AgvizError: the folders hold no traces, or not as many.
    """
    if not (a.is_dir() and b.is_dir()):
        return [(a, b)]
    of_a, of_b = (sorted(folder.glob("*.agviz")) for folder in (a, b))
    if len(of_a) != len(of_b) or not of_a:
        raise AgvizError(
            f"{a} holds {len(of_a)} traces (*.agviz) and {b} {len(of_b)}; it must be as many, from"
            " one up"
        )
    return list(zip(of_a, of_b, strict=True))


def show(found: TraceDiff, console: Console, *, verbose: bool = False) -> None:
    """Print what was found.

    Args:
        found: it.
        console: where to.
        verbose: everything, not only what comes first.
    """
    for side, path in (("A", found.a), ("B", found.b)):
        console.print(f"{side}: {path}", markup=False)
    for number, sentence in enumerate(diff_words.sentences(found)):
        outcome = found.outcome
        line = styled("") if number else styled(f"{outcome.glyph} ", style=outcome.style)
        console.print(line.append(sentence, style="not bold default"))
    if found.first is not None and found.first[1].health_a and found.first[1].health_b:
        console.print()
        _show_numbers(found.first[1], console)
    if verbose and not found.same:
        console.print(diff_words.compared(found.passes), markup=False)
        for each in found.differing:
            _show_pass(each, console)


def _show_numbers(first: Divergence, console: Console) -> None:
    """A table of the numbers of both sides; what differs is marked."""
    table = columns_table("", ("", False), ("A", True), ("B", True))
    for fact in _FACTS:
        values = [_value(getattr(row, fact)) for row in (first.health_a, first.health_b)]
        differs = fact in first.facts
        table.add_row(f"{'≠' if differs else ' '} {fact}", *values)
    if first.largest is not None:
        table.add_row("≠ largest difference", "", f"{first.largest:.9g}")
    console.print(table)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return write_shape(value).replace("[", r"\[")
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _show_pass(found: PassDiff, console: Console) -> None:
    """All that differs in a graph task, in causal order."""
    table = columns_table(
        f"Backward pass {found.a.id} of A, {found.b.id} of B",
        *(("", False), ("order", True), ("node", False), ("gradient", False), ("", False)),
        *(("A", True), ("B", True)),
    )
    for divergence in found.divergences:
        node = divergence.node
        gradient = f"{divergence.role} {divergence.slot}" if divergence.role else ""
        table.add_row(
            "✗" if divergence.is_first else "→",
            "" if node.order is None else f"{node.order:,}",
            styled(diff_words.node(node, with_line=False)),
            gradient,
            *map(styled, diff_words.most_telling(divergence)),
        )
    console.print()
    console.print(table)
    for change in found.changes:
        console.print(f"~ {diff_words.change(change)}", markup=False)
    if found.other_order is not None:
        console.print(f"! {diff_words.order(found)}", markup=False)


def facts(found: TraceDiff) -> dict[str, Any]:
    """The same as JSON can hold it; infinite numbers are texts."""
    first = found.first
    return {
        "a": found.a,
        "b": found.b,
        "same": found.same,
        "outcome": str(found.outcome),
        "wrong_in_a": found.wrong[0],
        "wrong_in_b": found.wrong[1],
        "rtol": found.tolerance.rtol,
        "atol": found.tolerance.atol,
        "answer": "\n".join(diff_words.sentences(found)),
        "first": None
        if first is None
        else {"graph_tasks": [first[0].a.id, first[0].b.id], **_divergence(first[1])},
        "graph_tasks": [_pass(each) for each in found.passes],
        "only_in_a": [task.id for task in found.only_in_a],
        "only_in_b": [task.id for task in found.only_in_b],
    }


def _pass(found: PassDiff) -> dict[str, Any]:
    return {
        "a": _task(found.a),
        "b": _task(found.b),
        "same": found.same,
        "level": found.level,
        "aligned": found.aligned,
        "gradients": found.gradients,
        "elements": found.elements,
        "unknown": found.unknown,
        "diverged": found.diverged,
        "divergences": [_divergence(each) for each in found.divergences],
        "reached": [_node(row) for row in found.reached],
        "leaves": found.leaves,
        "only_in_a": [_node(row) for row in found.only_in_a],
        "only_in_b": [_node(row) for row in found.only_in_b],
        "changes": [_change(each) for each in found.changes],
        "nonfinite": [_node(row) for row in found.nonfinite],
        "ended": found.failure,
        "other_order": found.other_order and [_node(row) for row in found.other_order],
    }


def _task(task: GraphTaskRow) -> dict[str, Any]:
    return {
        "graph_task": task.id,
        "parent": task.parent if task.parent >= 0 else None,
        "nodes": task.nodes,
        "status": task.status,
    }


def _node(row: NodeRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "node": row.index,
        "name": row.short_name,
        "module": row.module,
        "parameter": row.parameter,
        "line": row.line,
        "order": row.order,
        "status": row.status,
    }


def _change(change: Change) -> dict[str, Any]:
    ends = {"in_a": change.of_a, "in_b": change.of_b}
    return {"a": _node(change.a), "b": _node(change.b), "what": change.what, **ends}


def _divergence(divergence: Divergence) -> dict[str, Any]:
    return {
        "kind": divergence.kind,
        "a": _node(divergence.a),
        "b": _node(divergence.b),
        "is_first": divergence.is_first,
        "role": divergence.role,
        "slot": divergence.slot,
        "facts": divergence.facts,
        "health_a": _health(divergence.health_a),
        "health_b": _health(divergence.health_b),
        "largest": _finite(divergence.largest),
    }


def _health(row: HealthRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {fact: _finite(value) for fact, value in _pairs_of(row)}


def _pairs_of(row: HealthRow) -> Iterator[tuple[str, Any]]:
    for fact in (*_FACTS, "unknown"):
        yield fact, getattr(row, fact)


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
