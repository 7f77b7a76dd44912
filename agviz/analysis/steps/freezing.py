"""Parameters that are frozen: those that an optimizer is given, and those that something moves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding, parameters
from agviz.analysis.steps.source_calls import BEYOND, freezing, is_unfrozen, parts_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.step_facts import StepSampleRow

_LEAST: Final = 3
"""Steps from which a rule is drawn."""


def frozen(run: RunSteps) -> Iterator[StepFinding]:
    """What the line that makes an optimizer names, and that is frozen throughout."""
    for each in run.optimizers:
        rows = [row for row in each.held if row.name and row.name not in each.trained]
        if each.made is None or not rows or is_unfrozen(run.trace, each.made):
            continue
        named = parts_named(run.trace, each.made, each.name)
        found = [row.name for row in rows if _owner(row.name) in named]
        if not found:
            continue
        owner = _owner(found[0])
        line = freezing(run.trace, each.made, owner)
        by = ""
        if line is not None:
            by = f" in line {line.line}"
            if "from_pretrained" in line.source:
                by += ": nn.Embedding.from_pretrained freezes unless it is given freeze=False"
        many = len(found) > 1
        are, they = ("are", "They get") if many else ("is", "It gets")
        yield StepFinding(
            kind="frozen",
            heading=f"{each.name} was given {parameters(found)}, which {are} frozen",
            frame=line or each.made,
            paragraph=(
                f"{they} no gradient (requires_grad is False{by}), and no step moves"
                f" {'them' if many else 'it'}, though line {each.made.line} hands"
                f" {'them' if many else 'it'} to the optimizer. Set requires_grad_(True) if"
                f" {'they are' if many else 'it is'} to be trained, or leave"
                f" {'them' if many else 'it'} out there."
            ),
        )


def moved_though_frozen(run: RunSteps) -> Iterator[StepFinding]:
    """Frozen parameters that steps move by what is left in ``.grad`` and in averages."""
    for each in run.optimizers:
        rows = [row for row in each.held if row.name and not row.requires_grad and row.had_grad]
        names = {row.name for row in rows}
        after = [taken for taken in each.steps if rows and taken.number >= rows[0].since]
        samples = [
            row
            for taken in after
            for row in taken.sample
            if row.parameter in names and row.change and row.norm
        ]
        if any(_grows(row for row in samples if row.parameter == name) for name in names):
            continue  # the program puts gradients there by itself
        steps = len({row.step for row in samples})
        tasks = [taken.graph_task for taken in after[: 2 * _LEAST] if taken.graph_task >= 0]
        seen = (row for task in tasks for row in run.trace.parameters(task))
        if steps < _LEAST or any(row.name in names and row.node is not None for row in seen):
            continue
        share = max((row.change or 0.0) / (row.norm or 1.0) for row in samples)
        line = None if each.stepped is None else freezing(run.trace, each.stepped)
        by = "" if line is None else f" (line {line.line})"
        is_zero = all(row.gradient == 0 for row in samples)
        left = "is still there, all zeros," if is_zero else "of before is still there"
        what = "averages of earlier gradients or weight decay" if is_zero else "it"
        yield StepFinding(
            kind="frozen, moved",
            heading=f"{each.name} still moves {parameters(sorted(names))}, which are frozen",
            frame=line,
            paragraph=(
                f"They don't require a gradient any more{by}, and no pass leads to them, but their"
                f" .grad {left} and step moves all that has a .grad, here by {what}: at"
                f" {steps:,} measured steps by up to {share:.2g} of a norm. Set .grad to None when"
                " they are frozen, or have zero_grad do so (set_to_none=True), or take them out of"
                " the optimizer."
            ),
        )


def _grows(rows: Iterable[StepSampleRow]) -> bool:
    """Whether gradients become larger: what is left over can at most be clipped again."""
    gradients = [row.gradient or 0.0 for row in rows]
    return any(after > BEYOND * before for before, after in itertools.pairwise(gradients))


def _owner(name: str) -> str:
    """The last part of the module that owns a parameter; of one without a module, its name."""
    owner, _, own = name.rpartition(".")
    return owner.rpartition(".")[2] or own
