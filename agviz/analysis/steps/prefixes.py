"""Parts that are frozen because their numbers begin with that of one that is meant to be.

Note [Blocks 1, 10 and 11]
``name.startswith("blocks.1")`` and ``"blocks.1" in name`` hold of blocks 10 and 11, too. That is
told where all of the parts whose numbers begin with that of a frozen one are frozen, one in between
is trained, every frozen part of two digits is one of these, and a line of the program freezes by
such a test.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_FREEZES: Final = (".requires_grad = False", ".requires_grad_(False)")
_NUMBERED: Final = re.compile(r"(\D*)(\d+)(?=\.)")
_PART: Final = re.compile(r'"[\w.]*\.(?:\d+|\{\w+\})\."')
"""A part of a name that ends with a number and a dot, as it is written."""


def frozen_by_prefix(run: RunSteps) -> Iterator[StepFinding]:
    """Numbered parts that a test of the beginning of names froze besides those that it names."""
    if not run.passes:
        return
    rows = run.trace.parameters(run.passes[-1].id)
    taken = _too_many((row.name, row.requires_grad) for row in rows)
    if taken is None:
        return
    meant, others = taken
    found = [frame for file in user_files(run.trace) for frame in _freezing(run, file)]
    if len(found) != 1 or _are_meant(run.trace.source(found[0].file), others):
        return
    many = len(others) > 1
    yield StepFinding(
        kind="frozen by name",
        heading=f"{listed(others)} {'are' if many else 'is'} frozen besides {meant}",
        frame=found[0],
        paragraph=(
            f"{'Their names begin' if many else 'Its name begins'} with {meant!r}, so that the test"
            f" in front of this line holds of {'them' if many else 'it'}, too: requires_grad is"
            f" False, and {'they get' if many else 'it gets'} no gradient, while parts in between"
            f" are trained. End what is looked for with a dot: '{meant}.'."
        ),
    )


def _too_many(parameters: Iterable[tuple[str, bool]]) -> tuple[str, list[str]] | None:
    """The part that a test names, and others of which it holds; None: it does not look so."""
    parts: dict[str, dict[str, bool]] = {}
    for name, is_trained in parameters:
        for match in _NUMBERED.finditer(f"{name}."):
            numbers = parts.setdefault(name[: match.start(2)], {})
            numbers[match[2]] = numbers.get(match[2], False) or is_trained
    for before, numbers in parts.items():
        frozen = {number for number, is_trained in numbers.items() if not is_trained}
        for meant in sorted(frozen):
            others = sorted(each for each in numbers if each != meant and each.startswith(meant))
            between = any(
                numbers.get(str(number), False)
                for other in others
                for number in range(int(meant) + 1, int(other))
            )
            is_all = all(len(each) == 1 or each in {meant, *others} for each in frozen)
            if others and between and is_all and set(others) <= frozen:
                return f"{before}{meant}", [f"{before}{other}" for other in others]
    return None


def _are_meant(source: Sequence[str], others: Collection[str]) -> bool:
    """Whether a text names these parts, or ends what it looks for with a dot."""
    text = "\n".join(source).replace("'", '"')
    return _PART.search(text) is not None or any(f'"{other}' in text for other in others)


def _freezing(run: RunSteps, file: str) -> Iterator[Frame]:
    """The lines of a file that freeze a parameter after a test of a part of its name."""
    nodes = nodes_of(run.trace, file)
    names = {
        node.target.elts[0].id
        for _, node in nodes
        if isinstance(node, ast.For)
        and isinstance(node.target, ast.Tuple)
        and isinstance(node.target.elts[0], ast.Name)
        and ".named_" in ast.unparse(node.iter)
    }
    for function, node in nodes:
        if not isinstance(node, ast.If) or not _tests_a_part(node.test, names):
            continue
        for statement in node.body:
            if ast.unparse(statement).endswith(_FREEZES):
                yield line_at(run.trace, file, statement.lineno, function)


def _tests_a_part(test: ast.expr, names: Collection[str]) -> bool:
    """Whether it is asked for a part, or the beginning, of what has one of these names."""
    for each in ast.walk(test):
        asked: list[ast.expr] = []
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.In):
            asked = each.comparators
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            if each.func.attr == "startswith":
                asked = [each.func.value]
            elif each.func.attr in {"match", "search"}:
                asked = each.args
        if any(isinstance(one, ast.Name) and one.id in names for one in asked):
            return True
    return False
