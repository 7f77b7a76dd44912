"""What optimizers should hold and don't, or hold and should not."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_of
from agviz.analysis.steps.finding import StepFinding, listed, names_of, parameters
from agviz.analysis.steps.source_calls import gradients_read
from agviz.analysis.steps.spent import spent
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame
    from agviz.traces.step_facts import HeldParameterRow, UnheldRow

_NUMBER: Final = re.compile(r"\.(\d+)(?=\.)")
_FEW: Final = 8
"""Parameters of no module; more are a model whose forward is not called as a module."""


def holding(run: RunSteps) -> Iterator[StepFinding]:
    """What gets gradients in pass after pass, never moves, and is in no optimizer by mistake."""
    if not run.optimizers:
        return
    found = _replaced(run) or spent(run) or _unregistered(run) or _unfrozen(run)
    found = found or _made_late(run) or _left_out(run)
    if found is not None:
        yield found


def held_twice(run: RunSteps) -> Iterator[StepFinding]:
    """Two optimizers that move the same parameters after the same passes."""
    several = run.optimizers
    names = [dict.fromkeys(row.name for row in each.held if row.name) for each in several]
    for number, second in enumerate(several):
        for first, held in zip(several, names[:number], strict=False):
            if not _step_together(run, first, second):
                continue
            both = [name for name in names[number] if name in held]
            if not both:
                continue
            if not (first.is_torchs and second.is_torchs):  # as a step that shrinks or averages
                continue
            yield StepFinding(
                kind="held twice",
                heading=f"two optimizers move {parameters(both)}",
                frame=second.made,
                paragraph=(
                    f"Both {first.name}{first.at} and {second.name}{second.at} hold"
                    f" {parameters(both)}, and both step after the same backward passes: each"
                    " gradient is applied twice, with two states. Give each parameter to one"
                    " optimizer only."
                ),
            )
            return


def held_instead(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that hold just what another one holds, while other parameters are in none."""
    others = [row.name for row in run.unheld if row.name]
    several = [(each, {row.name for row in each.held if row.name}) for each in run.optimizers]
    for number, (second, held) in enumerate(several):
        for first, before in several[:number]:
            if len(others) < 2 or len(held) < 2 or held != before or second.made == first.made:
                continue
            yield StepFinding(
                kind="held instead",
                heading=f"two optimizers hold the same, and {parameters(others)} are in none",
                frame=second.made,
                paragraph=(
                    f"Both {first.name}{first.at} and {second.name}{second.at} were given"
                    f" {parameters(names_of(second.held))}. Gradients come to {listed(others)}, and"
                    " no step moves these: they stay as they were made. Give one of the two the"
                    " parameters of the other model."
                ),
            )
            return


def note(run: RunSteps) -> str:
    """What gets gradients that no optimizer uses, in a sentence without its full stop; or empty."""
    names = [row.name for row in run.unheld if row.name]
    if names:
        of = "gets gradients" if len(names) == 1 else "get gradients"
        return f"{parameters(names)} {of} that no optimizer uses"
    frozen = [
        row.name
        for each in run.optimizers
        for row in each.held
        if row.name and not row.requires_grad
    ]
    if frozen:
        are = "is" if len(frozen) == 1 else "are"
        return f"{parameters(frozen)} {are} held by an optimizer, but frozen (requires_grad=False)"
    return ""


def _replaced(run: RunSteps) -> StepFinding | None:
    """An optimizer that was made before some of the parameters were."""
    every = {row.name: row for row in run.unheld if row.name}  # the last one of a name
    named = list(every.values())
    shapes = {short: row.shape for row in named for short in (row.name, _within_root(row.name))}
    last = max((row.graph_task for row in named), default=-1)
    for each in reversed(run.optimizers):
        # A module has one parameter of a name: of another shape, it is one from before, which may
        # have the gradient of an earlier training still.
        is_used = bool(each.steps) and each.steps[-1].graph_task >= last
        stale = [
            row
            for row in each.held
            if (not row.had_grad and row.name in {*shapes, ""})
            or (is_used and row.shape != shapes.get(row.name, row.shape))
        ]
        pairs = _pairs(stale, named)
        if not pairs or len(pairs) * 2 < len(named):
            continue
        found = parameters([row.name for row in pairs])
        many = len(pairs) > 1
        line = _given_anew(run, each)
        anew = "" if line is None else f" (line {line} gives another model that name)"
        return StepFinding(
            kind="replaced",
            heading=f"{each.name} was made before {found} {'were' if many else 'was'} replaced",
            frame=each.made,
            paragraph=(
                f"{found} {'get gradients' if many else 'gets a gradient'} in pass after pass and"
                f" {'are' if many else 'is'} in no optimizer. {each.name} holds"
                f" {plural(len(stale), 'other tensor')} that no pass leads to: what was there"
                f" before a layer or parameter was assigned anew{anew}. Make the optimizer after"
                " the model is complete, and load a state in place of making another model."
            ),
            evidence=tuple(
                f"held, and led to by no pass: shape {list(row.shape)} {row.dtype}" for row in stale
            ),
        )
    return None


def _given_anew(run: RunSteps, each: Stepping) -> int | None:
    """The line that gives the name of the model, of which an optimizer was made, another value."""
    if each.made is None:
        return None
    nodes = nodes_of(run.trace, each.made.file)
    models = {
        ast.unparse(node.func.value)
        for _, node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr, node.lineno) == ("parameters", each.made.line)
    }
    lines = [
        node.lineno
        for function, node in nodes
        if isinstance(node, ast.Assign)
        and function == each.made.function
        and node.lineno > each.made.line
        and isinstance(node.value, ast.Call)
        and models & {ast.unparse(target) for target in node.targets}
    ]
    return lines[0] if len(lines) == 1 else None


def _within_root(name: str) -> str:
    """The name of a parameter as it was while there was one outermost module."""
    return name.partition(".")[2]


def _pairs(stale: Sequence[HeldParameterRow], named: Sequence[UnheldRow]) -> list[UnheldRow]:
    """Those that are like a tensor that got no gradient, but for the first size (of classes)."""
    left = Counter(row.shape[1:] if row.shape else None for row in stale)
    found = []
    for row in named:
        key = row.shape[1:] if row.shape else None
        if left[key]:
            left[key] -= 1
            found.append(row)
    return found


def _unregistered(run: RunSteps) -> StepFinding | None:
    """What is in a module, but not as a parameter or as a module."""
    made = run.optimizers[0].made
    read = gradients_read(run.trace, made)
    inside = [
        row
        for row in run.unheld
        if not row.name and row.attribute and row.attribute.rpartition(".")[2] not in read
    ]
    free = [
        row
        for row in run.unheld
        if not read and not row.name and not row.attribute and row.is_parameter
    ]
    if inside:
        names = [row.attribute for row in inside]
        it, each, plain = "It is", "it", "a plain tensor"
        if len(names) > 1:
            it, each, plain = "They are", "each", "plain tensors"
        what = f"{it} {plain}, which a module's"
        remedy = f"parameters() does not give: make {each} an nn.Parameter"
        if any("[" in name for name in names):
            what = f"{it} in a plain list or dict, which"
            remedy = (
                "parameters() does not look into: use nn.ModuleList, nn.ModuleDict or"
                " nn.ParameterList instead"
            )
        return StepFinding(
            kind="unregistered",
            heading=f"{listed(names)} {'are' if len(names) > 1 else 'is'} in no optimizer",
            frame=made,
            paragraph=(
                f"{listed(names)} {'get gradients' if len(names) > 1 else 'gets a gradient'} in"
                f" pass after pass, but never {'move' if len(names) > 1 else 'moves'}: no optimizer"
                f" holds {'them' if len(names) > 1 else 'it'}. {what} {remedy}."
            ),
        )
    if free and (copied := _copied(run, free)) is not None:
        return copied
    if free and len(free) <= _FEW:
        shapes = listed([str(list(row.shape)) for row in free])
        many = len(free) > 1
        return StepFinding(
            kind="unregistered",
            heading=f"{plural(len(free), 'nn.Parameter')} of no module"
            f" {'are' if many else 'is'} in no optimizer",
            frame=made,
            paragraph=(
                f"{plural(len(free), 'nn.Parameter')} of shape {shapes}"
                f" {'get gradients' if many else 'gets a gradient'} in pass after pass, but never"
                f" {'move' if many else 'moves'}: no module has {'them' if many else 'it'} among"
                f" its parameters(), and no optimizer holds {'them' if many else 'it'}. Hand"
                f" {'them' if many else 'it'} to the optimizer."
            ),
        )
    return None


def _copied(run: RunSteps, free: Sequence[UnheldRow]) -> StepFinding | None:
    """Leaves of which one node, made before the first pass, gives all passes what they use."""
    first = run.passes[0].id
    made = []
    for row in free:
        users = {edge.producer for edge in run.trace.edges_into(row.graph_task, row.node)}
        if len(users) == 1:
            (user,) = users
            tasks = [task for task, _ in run.trace.same_nodes(row.graph_task, user)]
            if first in tasks and len(tasks) + 1 >= row.passes:
                made.append(run.trace.node(row.graph_task, user))
    if len(made) < len(free) or made[0].frame is None:
        return None
    many = len(free) > 1
    shapes = listed([str(list(row.shape)) for row in free])
    return StepFinding(
        kind="unregistered",
        heading=f"what this makes of {'each' if many else 'an'} nn.Parameter is a copy,"
        " no nn.Parameter: it is never trained",
        frame=made[0].frame,
        paragraph=(
            f"{plural(len(free), 'nn.Parameter')} of shape {shapes}"
            f" {'get gradients' if many else 'gets a gradient'} in pass after pass, but"
            f" {'are' if many else 'is'} in no optimizer. All passes go through one"
            f" {made[0].short_name}, made in this line before the first of them: its result is no"
            " leaf, no module registers it, parameters() does not give it, and it stays as it was"
            " made. Convert or compute before: nn.Parameter(value.to(dtype)), or convert the whole"
            " module by its own .to()."
        ),
    )


def _unfrozen(run: RunSteps) -> StepFinding | None:
    """What did not require a gradient at first, and now gets one in vain."""
    named = {row.name for row in run.unheld if row.name}
    if not named:
        return None
    frozen = [
        row.name
        for row in run.trace.parameters(run.passes[0].id)
        if row.name in named and not row.requires_grad
    ]
    if not frozen:
        return None
    each = run.optimizers[0]
    are = "were" if len(frozen) > 1 else "was"
    return StepFinding(
        kind="unfrozen",
        heading=f"{parameters(frozen)} {are} unfrozen, but {are} never given to an optimizer",
        frame=each.made,
        paragraph=(
            f"{parameters(frozen)} did not require a gradient at first. Now"
            f" {'they get gradients, but are' if len(frozen) > 1 else 'it gets one, but is'} in no"
            f" optimizer, and never {'move' if len(frozen) > 1 else 'moves'}: {each.name} was given"
            " only what required a gradient when it was made. Give it all parameters, or call"
            " add_param_group when they are unfrozen."
        ),
    )


def _made_late(run: RunSteps) -> StepFinding | None:
    """What a method makes when it runs first, after the optimizer was given all there was."""
    named = [row.name for row in run.unheld if row.name]
    lines: list[Frame] = []
    for file, function, node in run.statements() if named else ():
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=str(attribute))],
                value=ast.Call(),
            ) if function not in {"__init__", "<module>"}:
                if all(attribute in name.split(".") for name in named):
                    lines.append(line_at(run.trace, file, node.lineno, function))
    each = run.optimizers[0]
    if len(lines) != 1 or each.made is None or ".parameters()" not in each.made.source:
        return None
    many = len(named) > 1
    return StepFinding(
        kind="not held",
        heading=f"no optimizer holds {parameters(named)}: made after {each.name}",
        frame=lines[0],
        paragraph=(
            f"This line makes {'them' if many else 'it'} when the model is first called, and"
            f" {each.name}, made in line {each.made.line}, was given only what there was until"
            f" then: {'they get gradients' if many else 'it gets a gradient'} in pass after pass,"
            f" and never {'move' if many else 'moves'}. Make all layers in __init__, or call the"
            " model once before the optimizer is made."
        ),
    )


def _left_out(run: RunSteps) -> StepFinding | None:
    """A minority that belongs to what is held.

    Part of a module, one of several alike, the end, or what is no matrix beside all that are.
    """
    named = [row.name for row in run.unheld if row.name]
    lines = [row.name for row in run.unheld if row.name and len(row.shape) < 2]  # no matrices
    held = {row.name for each in run.optimizers for row in each.held if row.name}
    if not named or len(named) > len(held):
        return None
    owners = {name.rpartition(".")[0] for name in held}
    parts = [name for name in named if name.rpartition(".")[0] in owners]
    alike = [name for name in named if _is_amid(name, held)]
    order = [row.name for row in run.trace.parameters(run.passes[-1].id)]
    is_last = bool(order) and set(order[-len(named) :]) == set(named)
    if len(parts) == len(named):
        why = "others of the same modules are held"
    elif all(_is_beside_modules(name, held) for name in named) and 2 * len(named) < len(held):
        why = "all modules beside them are held: they are parameters of their own, of no layer"
    elif len(alike) == len(named) < len(held):
        why = "modules of the same kind before them are held"
    elif is_last and len(named) < len(held):
        why = f"all {len(held):,} before them are held"
    elif len(lines) == len(named) < len(held):
        why = "all weights with two dimensions or more are held"
    else:
        return None
    each = run.optimizers[0]
    many = len(named) > 1
    return StepFinding(
        kind="not held",
        heading=f"no optimizer holds {parameters(named)}",
        frame=each.made,
        paragraph=(
            f"{parameters(named)} {'get gradients' if many else 'gets a gradient'} in pass after"
            f" pass, but never {'move' if many else 'moves'}: no optimizer holds"
            f" {'them' if many else 'it'}, though {why}. If that is not meant, hand"
            f" {'them' if many else 'it'} to {each.name}; if it is, requires_grad_(False)"
            " saves time."
        ),
    )


def _is_beside_modules(name: str, held: set[str]) -> bool:
    """Whether it is a parameter of a module several of whose modules inside are held."""
    owner, _, _ = name.rpartition(".")
    begin = f"{owner}." if owner else ""
    inside = {each[len(begin) :].split(".")[0] for each in held if each.startswith(begin)}
    return len(inside) > 1 and all(f"{begin}{each}" not in held for each in inside)


def _is_amid(name: str, held: set[str]) -> bool:
    """Whether one with a smaller number in the same list is held: what is left out is no stem."""
    for match in _NUMBER.finditer(name):
        before, after = name[: match.start()], name[match.end() :]
        if any(f"{before}.{number}{after}" in held for number in range(min(int(match[1]), 1_000))):
            return True
    return False


def _step_together(run: RunSteps, first: Stepping, second: Stepping) -> bool:
    """Whether most steps of one come after the same pass as one of the other, beside each other."""
    if first.steps[-1].graph_task < second.steps[0].graph_task:
        return False
    times = run.taken_at
    after = {taken.graph_task: times[taken.number] for taken in first.steps}
    together = 0
    for taken in second.steps:
        other, own = after.get(taken.graph_task), times[taken.number]
        if other is None or other.begin_ns is None or own.begin_ns is None:
            continue
        # One inside of the other: an optimizer that wraps another.
        together += own.begin_ns >= other.time_ns or other.begin_ns >= own.time_ns
    return together >= 2 and together * 5 >= 4 * max(len(first.steps), len(second.steps))
