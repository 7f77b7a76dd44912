"""Options of optimizers that no step can make good: as they are written, and by what steps did.

Note [Swallowed]
A number of 8 bits (bfloat16) or 11 (float16) stays as it is where less than half of its last bit
is added. Steps that should have moved a parameter by rate times gradient, and moved it by a small
part of that, while that is less than such a bit of its norm, were rounded away.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_of,
    own_name,
    parsed,
    tree_of,
    values_named,
)
from agviz.analysis.evidence import base_name
from agviz.analysis.measures import number
from agviz.analysis.median import median
from agviz.analysis.steps.finding import StepFinding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping

_ADAMS: Final = frozenset({"Adam", "AdamW", "Adamax", "NAdam", "RAdam"})
_MISNAMED: Final = {
    **dict.fromkeys(("LR", "learning_rate", "learningrate", "lrate"), "lr"),
    **dict.fromkeys(("decay", "l2", "wd", "weightdecay"), "weight_decay"),
    **dict.fromkeys(("beta1", "beta2", "beta"), "betas"),
}
_LONG_MOMENTUM: Final = 0.99
_BITS: Final = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Half of the distance of the next number from 1."""
_SMALL: Final = 0.3
"""Of what a step should have moved: less was rounded away."""
_OUTWEIGHS: Final = 10.0
"""Times the root of the mean square of the usual gradient."""
_LEAST_EPS: Final = 1e-3
_LEAST: Final = 3
"""Steps, or losses."""
_WORSE: Final = 1.2
"""Times the first losses."""
_NEAR_THE_ROOT: Final = 4
_ERRORS: Final = frozenset(
    {"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "HuberLoss", "MseLoss", "NllLoss"}
    | {"NllLoss2D", "SmoothL1Loss"}
)


def written_options(run: RunSteps) -> Iterator[StepFinding]:
    """Options whose numbers can't be meant."""
    for each in run.optimizers:
        call = _call(run, each)
        if call is None or not each.is_torchs:
            continue
        given = {word.arg: word.value for word in call.keywords if word.arg}
        tree = tree_of(run.trace, each.made.file) if each.made else ast.Module([], [])
        said = _momentum(run, each, _value(given.get("momentum"), tree))
        if each.name in _ADAMS:
            said = said or _betas(each, given.get("betas"), tree)
        said = said or (_maximizes(run, each) if _is_true(given.get("maximize")) else None)
        if said is not None:
            heading, paragraph = said
            yield StepFinding(kind="option", heading=heading, frame=each.made, paragraph=paragraph)


def misnamed_options(run: RunSteps) -> Iterator[StepFinding]:
    """Groups of parameters with an option by another name, which optimizers keep and never read."""
    for each in run.optimizers if all(one.is_torchs for one in run.optimizers) else ():
        if each.made is None:
            continue
        nodes = nodes_of(run.trace, each.made.file)
        keys_written = {
            id(key) for _, node in nodes if isinstance(node, ast.Dict) for key in node.keys
        }
        read = {
            node.value
            for _, node in nodes
            if isinstance(node, ast.Constant) and id(node) not in keys_written
        }
        for function, node in nodes:
            keys = _keys(node) if function in run.running else set()
            wrong = next((key for key in keys if key in _MISNAMED and key not in read), None)
            if "params" not in keys or wrong is None or _MISNAMED[wrong] in keys:
                continue
            right, fact = _MISNAMED[wrong], each.steps[0].fact
            seen = ""
            if right == "lr" and fact.most_rate is not None and fact.most_rate == fact.least_rate:
                seen = f" All groups have a learning rate of {number(fact.most_rate)}."
            yield StepFinding(
                kind="option",
                heading=f"a group of {each.name} is given {wrong}, which no optimizer reads",
                frame=line_at(run.trace, each.made.file, node.lineno, function),  # type: ignore[attr-defined]
                paragraph=(
                    f"Optimizers keep what else a group holds, without a word: its parameters get"
                    f" what {each.name} is given for all.{seen} The option is called {right}."
                ),
            )
            return


def _keys(node: ast.AST) -> set[str]:
    """The keys of a dictionary that is written out; empty: it is none."""
    match node:
        case ast.Dict(keys=keys):
            return {str(key.value) for key in keys if isinstance(key, ast.Constant)}
        case ast.Call(func=ast.Name(id="dict"), keywords=words):
            return {word.arg for word in words if word.arg}
    return set()


def _momentum(run: RunSteps, each: Stepping, value: float) -> tuple[str, str] | None:
    if _LONG_MOMENTUM < value < 1:
        return _horizon(run, each, value)
    if not value >= 1:
        return None
    heading = f"the momentum of {each.name} is {number(value)}: no earlier gradient ever fades"
    return heading, (
        f"{each.name} multiplies what it has added up by the momentum at each step: by 1 or more,"
        " steps only grow, and it runs past each minimum. Below 1 earlier gradients fade; 0.9 is"
        " usual."
    )


def _horizon(run: RunSteps, each: Stepping, value: float) -> tuple[str, str] | None:
    """That gradients add up for longer than the whole run, of a loss that gets worse meanwhile."""
    span, thirds = 1 / (1 - value), _thirds(run)
    if len(each.steps) >= span or not thirds or not thirds[-1] > _WORSE * min(thirds) > 0:
        return None
    heading = (
        f"the momentum of {each.name} is {number(value)}: gradients add up for {span:,.0f} steps"
    )
    return heading, (
        f"A step is the sum of all gradients before, each of which fades within {span:,.0f} steps:"
        f" more than the {len(each.steps):,} of this run. Where they agree, that is a learning rate"
        f" {span:,.0f} times as large, which runs past each minimum. The loss was"
        f" {number(min(thirds))}, and is {number(thirds[-1])} in the end. 0.9 is usual."
    )


def _thirds(run: RunSteps) -> list[float]:
    """The median losses of the three thirds of a run; empty: it is too short, or one is NaN."""
    losses = [run.losses[task] for task in run.passes.ids if task in run.losses]
    third = len(losses) // 3
    if third < _LEAST or not all(map(math.isfinite, losses)):
        return []
    return [median(losses[place : place + third]) for place in (0, third, len(losses) - third)]


def _betas(each: Stepping, value: ast.expr | None, tree: ast.Module) -> tuple[str, str] | None:
    if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != 2:
        return None
    first, second = (_value(part, tree) for part in value.elts)
    if not 1 > first > second:
        return None
    both = f"({number(first)}, {number(second)})"
    return f"the betas of {each.name} are the wrong way round: {both}", (
        "The first is how slowly its average of gradients fades, the second that of their squares."
        f" Here the size of steps follows the last {1 / (1 - second):,.0f} gradients, and their"
        f" direction the last {1 / (1 - first):,.0f}: it goes on where gradients no longer lead."
        f" Write betas=({number(second)}, {number(first)})."
    )


def _maximizes(run: RunSteps, each: Stepping) -> tuple[str, str] | None:
    thirds = _thirds(run)
    if not thirds or not thirds[-1] > _WORSE * thirds[0] > 0 or not _is_of_error(run):
        return None
    first, _, last = thirds
    return f"{each.name} makes the loss larger: maximize=True", (
        f"The loss went from {number(first)} to {number(last)}, and it is an error, which is to"
        " fall. With maximize=True each step follows the gradient upwards. Leave that out."
    )


def _is_of_error(run: RunSteps) -> bool:
    """Whether the loss of the last pass is one of torch's errors, or a multiple of it."""
    last = run.passes[-1]
    labels = run.trace.node_labels(last.id, 0, min(last.nodes, _NEAR_THE_ROOT))
    return any(base_name(label.name) in _ERRORS for label in labels)


def outweighed(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose ``eps`` is far larger than the gradients that they divide."""
    for each in run.optimizers:
        eps = min((taken.fact.eps or 0.0 for taken in each.steps), default=0.0)
        if each.name not in _ADAMS or eps < _LEAST_EPS:
            continue
        sizes = {row.name: math.prod(row.shape) for row in each.held if row.name}
        means = [
            row.gradient / math.sqrt(sizes[row.parameter])
            for taken in each.steps
            for row in taken.sample
            if row.gradient and sizes.get(row.parameter)
        ]
        if len(means) < _LEAST or not eps > max(*means, _OUTWEIGHS * median(means)):
            continue
        yield StepFinding(
            kind="option",
            heading=f"the eps of {each.name}, {number(eps)}, outweighs the gradients it divides",
            frame=each.made,
            paragraph=(
                f"{each.name} divides by the root of averaged squares plus eps. Elements of"
                f" gradients were some {number(median(means))} (root of the mean square, at most"
                f" {number(max(means))}): eps decides, each step is the gradient times"
                f" lr / {number(eps)}, and nothing is brought to one size. eps is there against"
                " division by 0: 1e-8 is usual."
            ),
        )


def swallowed(run: RunSteps) -> Iterator[StepFinding]:
    """Parameters in which most of each step is rounded away. Note [Swallowed]."""
    for each in run.optimizers:
        held = {row.name: row for row in each.held if row.name and row.dtype in _BITS}
        lost: dict[str, list[float]] = {}
        kept = set[str]()
        for taken in each.steps:
            rate = taken.fact.least_rate
            for row in taken.sample:
                of = held.get(row.parameter)
                if of is None or not rate or not row.gradient or not row.norm:
                    continue
                wanted = rate * row.gradient
                if each.is_normalising:
                    wanted = rate * math.sqrt(math.prod(of.shape)) / 2
                is_lost = (row.change or 0.0) < _SMALL * wanted < _BITS[of.dtype] * row.norm
                if is_lost:
                    lost.setdefault(row.parameter, []).append(wanted / row.norm)
                else:
                    kept.add(row.parameter)
        names = [name for name, parts in lost.items() if len(parts) >= _LEAST and name not in kept]
        if not names or not each.is_torchs:
            continue
        dtype = held[names[0]].dtype
        part = median(lost[names[0]])
        yield StepFinding(
            kind="swallowed",
            heading=f"steps of {each.name} are rounded away in {dtype}: {listed(names)}",
            frame=each.stepped,
            paragraph=(
                f"A step should change {names[0]} by {number(part)} of its norm, and {dtype} can't"
                f" hold a change below {number(_BITS[dtype])} of a number. So most weights stay as"
                " they are, though each gradient is fine. Keep the parameters in float32 and use"
                " torch.autocast, or have the optimizer keep a float32 copy of them; a larger"
                " learning rate only hides it."
            ),
        )


def _call(run: RunSteps, each: Stepping) -> ast.Call | None:
    """The call that makes an optimizer; None: it is not seen."""
    made = each.made if each.optimizer.made else None
    tree = parsed(run.trace.source(made.file) if made is not None else ())
    for node in ast.walk(tree):
        if made is None or not isinstance(node, ast.Call) or called_name(node) != each.name:
            continue
        if node.lineno <= made.line <= (node.end_lineno or node.lineno):
            return node
    return None


def _value(node: ast.expr | None, tree: ast.Module) -> float:
    """The number that is written, or given to a name in only one way; NaN: it is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    found = set(values_named(tree, own_name(node))) if node is not None and own_name(node) else ()
    return found.pop() if len(found) == 1 else math.nan


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
