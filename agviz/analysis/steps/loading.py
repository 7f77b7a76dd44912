"""Loads and saves of states that do not do what they seem to, from what was seen of each.

Note [A state that goes on changing]
What ``state_dict()`` gave shares the memory of the parameters. To load it later, or a mixture of it
and of what they are by then, changes nothing, and to save it saves what they are by then. A line
that takes one again and again at different steps, in a loop that does not hold the line which loads
or saves it, is there to keep one of them; a state that is taken once may be meant to follow.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import ADDING, called_name, container_name, targets_of, tree_of
from agviz.analysis.source import source_line
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.module_states import EQUAL, SAME, SAVED, UNUSED
from agviz.traces.rows import Frame
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.module_states import StateFact
    from agviz.traces.reader import Trace

_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_STATEMENTS: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_LOAD: Final = "load_state_dict"
_MOST_DEEP: Final = 4
"""Assignments behind assignments that are followed."""
_DOES: Final = {
    EQUAL: "What is loaded is computed of it, and so is what the parameters are already",
    SAVED: "What is saved is therefore the state of the last step, not the one that was kept",
}


def without_copy(run: RunSteps) -> Iterator[StepFinding]:
    """States that were taken without a copy. Note [A state that goes on changing]."""
    for fact in run.trace.module_states():
        if fact.taken is None or not _is_snapshot(run.trace, fact):
            continue
        taken = _frame(run.trace, fact.taken)
        later = f", {plural(fact.steps, 'step')} later," if fact.steps else ""
        does = _DOES.get(fact.kind, "Loading it copies each parameter onto itself")
        call = "torch.save" if fact.kind == SAVED else _LOAD
        yield StepFinding(
            kind="restores nothing",
            heading="what state_dict() gave is no copy: it goes on changing with the parameters",
            frame=taken,
            paragraph=(
                "state_dict() gives the very memory of the parameters, and each step writes to it."
                f" {call} in line {fact.at[1]}{later} gets what they are by then. {does}. Keep a"
                " copy: copy.deepcopy(model.state_dict()), or"
                " {name: x.clone() for name, x in model.state_dict().items()}."
            ),
        )
        return


def of_nothing(run: RunSteps) -> Iterator[StepFinding]:
    """Loads that are not strict, used nothing, and whose result nobody looks at."""
    for fact in run.trace.module_states():
        if fact.kind != UNUSED or not _is_let_go(run.trace, fact):
            continue
        which = "No" if fact.missing == fact.parameters else "Hardly any"
        remedy = "Compare its names with those of model.state_dict()."
        if fact.more.startswith("["):
            remedy = f"The state is inside of what was loaded: take {fact.more} of it."
        elif fact.more:
            remedy = (
                f"Its names begin with {fact.more!r} besides: take that away by"
                f" name.removeprefix({fact.more!r})."
            )
        elif fact.less:
            remedy = f"The model's names begin with {fact.less!r} besides: put that before them."
        yield StepFinding(
            kind="nothing loaded",
            heading=f"{_LOAD} with strict=False loads nothing: the names are others",
            frame=_frame(run.trace, fact.at),
            paragraph=(
                f"{which} name of the state is one of the model's: {fact.missing:,} of"
                f" {plural(fact.parameters, 'parameter')} keep what they were made with, and"
                " strict=False says so only in its result, which nobody looks at here."
                f" {remedy} Load without strict=False, or look at missing_keys."
            ),
        )
        return


def of_itself(run: RunSteps) -> Iterator[StepFinding]:
    """Loads by which a module is given its own state, again and again as others are trained."""
    for fact in run.trace.module_states():
        if fact.kind != SAME or fact.steps or fact.taken != fact.at or not fact.is_again:
            continue
        name = given_its_own(run.trace, *fact.at[:2])
        if name:
            yield StepFinding(
                kind="loads itself",
                heading=f"{name} is loaded with its own state: nothing changes",
                frame=_frame(run.trace, fact.at),
                paragraph=(
                    f"{name} gives its state and takes it, each time that this line runs, and is"
                    " what it was before: as a target network or a teacher it stays as it was made,"
                    " whatever is trained beside it. Load the state of the module that it is to"
                    " follow."
                ),
            )
            return


def given_its_own(trace: Trace, file: str, line: int) -> str:
    """What a line loads with what it itself gives, as it is written; empty: it does not."""
    for node in ast.walk(tree_of(trace, file)):
        if not isinstance(node, ast.Call) or not _holds(node, line):
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=of), args=[given, *_]):
                name = ast.unparse(of)
                if called_name(node) == _LOAD and ast.unparse(given) == f"{name}.state_dict()":
                    return name
    return ""


def _frame(trace: Trace, place: tuple[str, int, str]) -> Frame:
    frame = Frame(*place, False)
    lines = trace.source(frame.file)[frame.line - 1 : frame.line]
    source = lines[0].strip() if lines else source_line(frame, trace.path)
    return frame._replace(source=source)


def _is_let_go(trace: Trace, fact: StateFact) -> bool:
    """Whether nothing reads what a load gives."""
    tree = tree_of(trace, fact.at[0])
    for node in ast.walk(tree):
        if not isinstance(node, _STATEMENTS) or not _holds(node, fact.at[1]):
            continue
        value = node.value
        if not isinstance(value, ast.Call) or called_name(value) != _LOAD:
            continue
        if isinstance(node, ast.Expr):
            return True
        if isinstance(node, ast.Assign):
            names = set().union(*map(_names, node.targets))
            read = {
                one.id
                for one in ast.walk(tree)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
            }
            return names.isdisjoint(read)
    return False


def _is_snapshot(trace: Trace, fact: StateFact) -> bool:
    """Whether a state was to stay what it was."""
    if fact.taken is None or fact.kind == UNUSED:
        return False
    if fact.kind == EQUAL:
        return _leads(trace, fact)
    if fact.kind != SAVED and fact.steps:
        return True
    file, line, function = fact.taken
    is_beside = (file, function) == (fact.at[0], fact.at[2])
    loops = [
        node
        for node in ast.walk(tree_of(trace, file))
        if isinstance(node, _LOOPS) and _holds(node, line)
    ]
    is_kept = fact.is_again and bool(loops) and is_beside
    return is_kept and not _holds(loops[-1], fact.at[1])


def _leads(trace: Trace, fact: StateFact) -> bool:
    """Whether what is loaded is computed of the state that was taken, as far as names tell."""
    if fact.taken is None or fact.taken[0] != fact.at[0] or fact.taken[2] != fact.at[2]:
        return False
    tree = tree_of(trace, fact.at[0])
    kept = _kept_as(tree, fact.taken[1])
    loads = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and called_name(node) == _LOAD
        and node.args
        and _holds(node, fact.at[1])
    ]
    names = set().union(*(_names(node.args[0]) for node in loads))
    for _ in range(_MOST_DEEP):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
                if names & set(map(container_name, targets_of(node))):
                    names |= _names(node.value)
            elif isinstance(node, ast.For | ast.comprehension) and names & _names(node.target):
                names |= _names(node.iter)
    return bool(kept & names)


def _kept_as(tree: ast.Module, line: int) -> set[str]:
    """By what names a line keeps what it takes: variables, attributes, containers."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _holds(node, line):
            for target in targets_of(node):
                found |= {container_name(target), *_names(target)}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ADDING and _holds(node, line):
            found.add(container_name(node.func.value))
    return found - {""}


def _names(node: ast.expr) -> set[str]:
    return {
        container_name(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)
    }


def _holds(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
