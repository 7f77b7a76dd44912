"""Where the program's own text calls a function, from what the recording holds of it."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    container_name,
    line_at,
    nodes_beside,
    nodes_of,
    own_name,
    parsed,
    tree_of,
    values_named,
)
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.traces.reader import Trace

_MOST_DEEP: Final = 4
"""Calls inside of calls that are followed by name."""
BEYOND: Final = 1.01
"""Times the norm that gradients are clipped to; a gradient that nothing clipped is what it was to a
hundredth."""


def calls(trace: Trace, beside: Frame | None, fits: Callable[[ast.Call, str], bool]) -> list[Frame]:
    """The lines of the file of a frame that hold a call that fits.

    Args:
        trace: holds the text of the file, or this is empty.
        beside: of the program's own code; None: empty.
        fits: whether it is one, by the call and by how what is called is written.
    """
    if beside is None:
        return []
    return [
        line_at(trace, beside.file, node.lineno, function)
        for function, node in nodes_of(trace, beside.file)
        if isinstance(node, ast.Call) and fits(node, ast.unparse(node.func))
    ]


def in_loop(trace: Trace, line: Frame | None, fits: Callable[[ast.Call, str], bool]) -> list[Frame]:
    """Those of :func:`calls` in the innermost loop around a line, or in its function."""
    if line is None:
        return []
    nodes = nodes_beside(trace, line)
    loops = [
        range(node.lineno, (node.end_lineno or 0) + 1)
        for node in nodes
        if isinstance(node, ast.For | ast.While)
        and node.lineno <= line.line <= (node.end_lineno or 0)
    ]
    found = [one for one in calls(trace, line, fits) if one.function == line.function]
    inside = loops[-1] if loops else range(2**31)
    return [one for one in found if one.line in inside]


def made_at(trace: Trace, call: Frame) -> Frame | None:
    """The one line that makes what a line calls ``step()`` of; None: none is seen, or several.

    Args:
        trace: holds the text of the file.
        call: the line that calls it.
    """
    nodes = nodes_of(trace, call.file)
    owners = {
        ast.unparse(node.func.value)
        for _, node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr, node.lineno) == ("step", call.line)
    }
    found = [
        line_at(trace, call.file, node.lineno, function)
        for function, node in nodes
        if isinstance(node, ast.Assign) and owners & {ast.unparse(each) for each in node.targets}
    ]
    return found[0] if len(found) == 1 else None


_LOOKS: Final = frozenset({"abs", "data", "isfinite", "isnan", "mean", "norm", "std"})
"""What is asked of a gradient that is only looked at."""


def uses_gradients(
    trace: Trace, beside: Frame | None, step: Frame | None = None, called: Sequence[Frame] = ()
) -> bool:
    """Whether the file of a frame computes something of ``.grad``, besides figures to look at.

    Args:
        trace: holds the text of the file.
        beside: the frame; None: no file.
        step: the line of a step; what runs only where it does has that step's gradients.
        called: the stack that called backward.
    """
    if beside is None:
        return False
    tree = tree_of(trace, beside.file)
    looked_at = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _LOOKS
    }
    looked_at |= {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.Compare)}
    looked_at |= {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if step is not None and step.file == beside.file:
        looked_at |= _only_with(tree, step, {one.line for one in called if one.file == step.file})
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and isinstance(node.ctx, ast.Load)
        and id(node) not in looked_at
        for node in ast.walk(tree)
    )


def _only_with(tree: ast.Module, step: Frame, other: set[int]) -> set[int]:
    """Identities of what is under an ``if`` with a line, but without others.

    Of functions that are called only there, too.
    """
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and step.line in (lines := range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1))
        and other.isdisjoint(lines)
    ]
    found = {id(node) for outer in around[:1] for part in outer.body for node in ast.walk(part)}
    called = [
        (called_name(node), id(node)) for node in ast.walk(tree) if isinstance(node, ast.Call)
    ]
    inside = {name for name, node in called if node in found}
    inside -= {name for name, node in called if node not in found}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in inside:
            found.update(map(id, ast.walk(function)))
    return found


def gradients_read(trace: Trace, beside: Frame | None) -> set[str]:
    """What the file of a frame takes ``.grad`` of by its name, to work with it, not to show it.

    What loops go through, as all parameters of a model, is not meant by name.
    """
    tree = parsed(() if beside is None else trace.source(beside.file))
    turns = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.comprehension)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    }
    return {
        container_name(each.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign)
        for each in ast.walk(node.value)
        if isinstance(each, ast.Attribute)
        and each.attr == "grad"
        and isinstance(each.value, ast.Name | ast.Attribute)
        and container_name(each.value) not in turns
    } - {"autograd", "torch"}


def is_schedule(_call: ast.Call, name: str) -> bool:
    """Whether it is ``scheduler.step()``."""
    owner, _, method = name.rpartition(".")
    return method == "step" and any(
        word in owner.lower() for word in ("sched", "warm", "decay", "plateau", "cosine")
    )


def is_step(_call: ast.Call, name: str) -> bool:
    """Whether it is ``optimizer.step()``, or that of a GradScaler."""
    owner, _, method = name.rpartition(".")
    return method == "step" and any(word in owner.lower() for word in ("opt", "scaler"))


def conditions(trace: Trace, line: Frame) -> list[str]:
    """The conditions of its function under which a line runs, outermost first, as they are written.

    Args:
        trace: holds the text of the file.
        line: of the program.
    """
    return [
        ast.unparse(node.test)
        for node in nodes_beside(trace, line)
        if isinstance(node, ast.If)
        and node.body[0].lineno <= line.line <= (node.body[-1].end_lineno or 0)
    ]


def catching(trace: Trace, before: Frame, after: Frame) -> Frame | None:
    """The ``except`` that alone keeps a program from a later line; None: another reason may."""
    for function, node in nodes_of(trace, after.file):
        if not isinstance(node, ast.Try) or not node.handlers or before.file != after.file:
            continue
        body = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
        kinds = {type(one) for part in node.body for one in ast.walk(part)}
        again = any(isinstance(one, ast.Raise) for each in node.handlers for one in ast.walk(each))
        if before.line in body and after.line in body and kinds.isdisjoint(_LEAVING) and not again:
            line = node.handlers[0].lineno
            return line_at(trace, after.file, line, function)
    return None


_LEAVING: Final = (ast.Break, ast.Continue, ast.If, ast.Raise, ast.Return)


def is_clip(_call: ast.Call, name: str) -> bool:
    """Whether it is ``clip_grad_norm_`` or the like."""
    return "clip_grad" in name


def near(
    trace: Trace, stack: Sequence[Frame], fits: Callable[[ast.Call, str], bool]
) -> list[Frame]:
    """Those of :func:`calls` that run where a stack is: in a function of it, or that it calls.

    What stands in another function may be of a stage that this run does not have.
    """
    beside = visible(stack)
    nodes = [] if beside is None else nodes_of(trace, beside.file)
    called = {
        (function, called_name(node)) for function, node in nodes if isinstance(node, ast.Call)
    }
    inside = {"" if beside is None else beside.function}
    for _ in range(_MOST_DEEP):
        inside |= {name for function, name in called if function in inside}
    inside |= {frame.function for frame in stack}
    return [line for line in calls(trace, beside, fits) if line.function in inside]


def clips(trace: Trace, stack: Sequence[Frame]) -> list[tuple[Frame, float]]:
    """The calls of ``clip_grad_norm_`` near a stack, with the norm where it is known.

    A name or an attribute counts to which the file gives one number only.
    """
    limits: dict[int, float] = {}
    beside = visible(stack)
    tree = ast.Module([], []) if beside is None else tree_of(trace, beside.file)

    def fits(call: ast.Call, name: str) -> bool:
        given = {word.arg: word.value for word in call.keywords}.get("max_norm")
        limit = call.args[1] if len(call.args) > 1 else given
        if not name.endswith("clip_grad_norm_") or limit is None:
            return False
        values = set(values_named(tree, own_name(limit)) if own_name(limit) else ())
        if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float):
            values = {float(limit.value)}
        if len(values) != 1 or math.isnan(*values):
            return False
        limits[call.lineno] = values.pop()
        return True

    return [(line, limits[line.line]) for line in near(trace, stack, fits)]


_ITERATORS: Final = frozenset(
    {"chain", "filter", "iter", "map", "named_parameters", "parameters", "zip"}
)
"""What gives an iterator, whose items can be taken once."""
NOT_TAKING: Final = frozenset({"id", "isinstance", "print", "repr", "type"})
"""Functions that look at an iterator and take nothing of it."""


class UsedUp(NamedTuple):
    """An iterator that a call is given when another one has taken all of it."""

    name: str
    made: int
    """The line that makes it."""
    taken: int
    """The line of the call that takes all of it."""


def used_up(trace: Trace, call: Frame) -> UsedUp | None:
    """What a line is given as the first argument of a call, where that is an iterator at its end.

    None: it is none, or nobody is seen to have taken its items.

    Args:
        trace: holds the text of the file.
        call: the line.
    """
    nodes = nodes_of(trace, call.file)
    given = {
        ast.unparse(node.args[0])
        for _, node in nodes
        if isinstance(node, ast.Call)
        and node.lineno == call.line
        and node.args
        and isinstance(node.args[0], ast.Name | ast.Attribute)
    }
    for name in given:
        made = [
            (function, node)
            for function, node in nodes
            if isinstance(node, ast.Assign)
            and any(ast.unparse(each) == name for each in node.targets)
            and ("." in name or function == call.function)
        ]
        if len(made) != 1 or not is_iterator(made[0][1].value):
            continue
        ((where, maker),) = made
        taken = [
            node.lineno
            for function, node in nodes
            if isinstance(node, ast.Call)
            and function == where
            and maker.lineno < node.lineno
            and (function != call.function or node.lineno < call.line)
            and called_name(node) not in NOT_TAKING
            and any(ast.unparse(each) == name for each in node.args)
        ]
        if taken:
            return UsedUp(name, maker.lineno, taken[0])
    return None


def is_iterator(value: ast.expr) -> bool:
    """Whether an expression gives an iterator, as its text shows."""
    if isinstance(value, ast.Call):
        return called_name(value) in _ITERATORS
    return isinstance(value, ast.GeneratorExp)


def is_clear(_call: ast.Call, name: str) -> bool:
    """Whether it is ``zero_grad``."""
    return name.endswith("zero_grad")


def is_set_to_zero(trace: Trace, beside: Frame | None) -> bool:
    """Whether the file of a frame clears gradients by zeros, which a pass then adds to."""

    def fits(call: ast.Call, name: str) -> bool:
        keeps = {word.arg: word.value for word in call.keywords}.get("set_to_none")
        is_kept = keeps is not None and not (isinstance(keeps, ast.Constant) and keeps.value)
        return is_kept or name.endswith(("grad.zero_", "_foreach_zero_"))

    return bool(calls(trace, beside, fits))


_AVERAGES: Final = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg")
"""What optimizers of torch call tensors of their state."""


def state_written(trace: Trace, beside: Frame | None) -> Frame | None:
    """The first line of the file of a frame that writes to an average of an optimizer's state."""
    for function, node in nodes_of(trace, beside.file) if beside is not None else ():
        each = node.value if isinstance(node, ast.Attribute) and node.attr.endswith("_") else node
        if not isinstance(each, ast.Subscript) or not isinstance(each.slice, ast.Constant):
            continue
        is_written = each is not node or isinstance(each.ctx, ast.Store)
        if is_written and each.slice.value in _AVERAGES and beside is not None:
            return line_at(trace, beside.file, each.lineno, function)
    return None


def is_load(_call: ast.Call, name: str) -> bool:
    """Whether it is ``optimizer.load_state_dict``."""
    owner, _, method = name.rpartition(".")
    return method == "load_state_dict" and "opt" in owner.lower()


def is_new_scale(call: ast.Call, name: str) -> bool:
    """Whether it is ``scaler.update(...)`` with a scale."""
    owner, _, method = name.rpartition(".")
    return method == "update" and "scale" in owner.lower() and bool(call.args or call.keywords)


def parts_named(trace: Trace, made: Frame, name: str) -> set[str]:
    """The attributes that are named in the call that makes an optimizer, as ``model.head`` is.

    Args:
        trace: holds the text of the file.
        made: a line of the call.
        name: of the optimizer's class.
    """
    return {
        part.attr
        for _, node in nodes_of(trace, made.file)
        if isinstance(node, ast.Call)
        and called_name(node) == name
        and node.lineno <= made.line <= (node.end_lineno or node.lineno)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
    }


def is_unfrozen(trace: Trace, beside: Frame) -> bool:
    """Whether the file of a frame switches ``requires_grad`` on, or not by a constant."""
    found = calls(trace, beside, lambda _, name: "unfreeze" in name)
    values = [node for _, _, node in _given_to_requires_grad(trace, beside)]
    return bool(found) or not all(map(_is_false, values))


def freezing(trace: Trace, beside: Frame, part: str = "") -> Frame | None:
    """The one line of the file of a frame that freezes something; None: it is not seen.

    Args:
        trace: holds the text of the file.
        beside: of the program's own code.
        part: an attribute that ``nn.Embedding.from_pretrained`` may have frozen; empty: none.
    """
    found = {
        node.lineno: function
        for function, node in nodes_of(trace, beside.file)
        if part
        and isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_name(node.value) == "from_pretrained"
        and any(isinstance(each, ast.Attribute) and each.attr == part for each in node.targets)
        and not any(word.arg == "freeze" for word in node.value.keywords)
    }
    given = _given_to_requires_grad(trace, beside)
    found |= {line: function for line, function, value in given if _is_false(value)}
    if len(found) != 1:
        return None
    ((line, function),) = found.items()
    return line_at(trace, beside.file, line, function)


def _given_to_requires_grad(trace: Trace, beside: Frame) -> list[tuple[int, str, ast.expr]]:
    """What ``requires_grad`` is set to in the file of a frame: lines, functions, values.

    Of a function that is given the value, the lines that call it.
    """
    nodes = nodes_of(trace, beside.file)
    handed: dict[str, tuple[int, str]] = {}
    for _, node in nodes:
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in node.args.args]
            own = names[1:] if names[:1] == ["self"] else names
            for _, value in filter(None, map(_sets_requires_grad, ast.walk(node))):
                if isinstance(value, ast.Name) and value.id in own:
                    handed[node.name] = own.index(value.id), value.id
    found = []
    for function, node in nodes:
        if (direct := _sets_requires_grad(node)) is not None and function not in handed:
            found.append((direct[0], function, direct[1]))
        if isinstance(node, ast.Call) and (known := handed.get(called_name(node))) is not None:
            place, name = known
            by_name = [word.value for word in node.keywords if word.arg == name]
            given = by_name or node.args[place : place + 1] or [ast.Constant(None)]
            found.append((node.lineno, function, given[0]))
    return found


def _sets_requires_grad(node: ast.AST) -> tuple[int, ast.expr] | None:
    """The line and the value of what sets ``requires_grad``; None: it does not."""
    if isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in node.targets
    ):
        return node.lineno, node.value
    if isinstance(node, ast.Call) and called_name(node) == "requires_grad_":
        given = [*node.args, *(word.value for word in node.keywords), ast.Constant(True)]
        return node.lineno, given[0]
    return None


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
