"""Returns that are summed from the first reward on, in the place of the last.

Note [What a return holds]
What an action is praised for are the rewards after it. A loop that goes through rewards in their
order, makes ``total = reward + discount * total`` and appends that, gives each place the rewards
before it. The same loop filters currents, averages and gradients, where that is meant. So it has to
be found, by the text, in what ``log_prob`` is multiplied by in a loss; what a sample or a step of
an environment is made of is not followed. Wherever something of the loss is reversed, nothing is
said.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, line_at
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.signs import terms_of_losses
from agviz.analysis.steps.values import GivenValue, Values, all_given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_CHANCES: Final = frozenset(
    {"binary_cross_entropy_with_logits", "cross_entropy", "log_prob", "log_softmax", "nll_loss"}
)
_CUTTING: Final = frozenset({"argmax", "multinomial", "rsample", "sample", "step"})
"""Calls whose arguments decide, and are no part of what is given."""
_TURNING: Final = frozenset({"appendleft", "flip", "fliplr", "flipud", "insert", "reverse"})
_MOST: Final = 400
"""Values that are followed."""


class _Summing(NamedTuple):
    """A loop that sums what it goes through, and appends each sum."""

    file: str
    function: str
    kept: str
    """The list."""
    line: int
    """Of the sum."""
    total: str
    over: str
    """What the loop goes through."""


def of_the_past(run: RunSteps) -> Iterator[StepFinding]:
    """Sums of past rewards that weigh what was done. Note [What a return holds]."""
    values: Values | None = None
    loops: list[_Summing] = []
    for file, _, term in terms_of_losses(run):
        if values is None:
            values = Values(run.trace)
            loops = [one for one in _loops(values) if one.function in run.running]
        if not loops:
            return
        for weight in _weights(values, GivenValue(term.value, file, term.function)):
            found = next(filter(_Way(values, weight).leads_to, loops), None)
            if found is not None:
                yield StepFinding(
                    kind="returns forwards",
                    heading=f"{found.kept} sums rewards from the first one on: each holds the past",
                    frame=line_at(run.trace, found.file, found.line, found.function),
                    paragraph=(
                        f"The loop goes through {found.over} in their order, so that {found.total}"
                        " holds the rewards up to each step, and none after it: log_prob of an"
                        " action is weighted by what came before it, which it can't have changed."
                        " Go through reversed(...), and insert(0, ...) each sum, or reverse the"
                        " list afterwards."
                    ),
                )
                return


def _loops(values: Values) -> Iterator[_Summing]:
    for file, nodes in values.nodes.items():
        for function, node in nodes:
            if isinstance(node, ast.For) and not _is_turned(node.iter):
                found = _summing(node)
                if found is not None:
                    line, kept, total = found
                    over = ast.unparse(node.iter)
                    yield _Summing(file, function, kept, line, total, over)


def _summing(loop: ast.For) -> tuple[int, str, str] | None:
    """The line of ``total = x + factor * total``, the list that gets it, and its name."""
    turns = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    sums: dict[str, int] = {}
    for node in loop.body:
        match node:
            case ast.Assign(targets=[target], value=ast.BinOp(left=one, op=ast.Add(), right=other)):
                total = ast.unparse(target)
                for added, faded in ((one, other), (other, one)):
                    if _is_faded(faded, total) and _is_of_turn(added, turns, total):
                        sums[total] = node.lineno
                turns |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.Assign(targets=[ast.Name()], value=ast.BinOp(op=ast.Sub(), right=ast.Name())):
                pass  # a place that is counted from the end
            case ast.Assign(targets=[ast.Name(id=name)]):
                turns.add(name)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=kept, attr="append"), args=[given])
            ):
                if ast.unparse(given) in sums:
                    total = ast.unparse(given)
                    return sums[total], ast.unparse(kept), total
    return None


def _is_faded(value: ast.expr, total: str) -> bool:
    """Whether it is a total times factors that don't depend on it."""
    factors = [value]
    parts: list[str] = []
    while factors:
        each = factors.pop()
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult):
            factors += [each.left, each.right]
        else:
            parts.append(ast.unparse(each))
    return len(parts) > 1 and parts.count(total) == 1


def _is_of_turn(value: ast.expr, turns: set[str], total: str) -> bool:
    """Whether it is what a loop gives in its turn, taken in order, and not scaled."""
    names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    is_in_order = all(
        isinstance(each.slice, ast.Name | ast.Constant)
        for each in ast.walk(value)
        if isinstance(each, ast.Subscript)
    )
    is_plain = not any(isinstance(each, ast.Mult | ast.Div) for each in ast.walk(value))
    return bool(names & turns) and total not in names and is_in_order and is_plain


def _is_turned(value: ast.AST) -> bool:
    """Whether something in it is taken from the end on."""
    for node in ast.walk(value):
        match node:
            case ast.Call() if called_name(node) in _TURNING | {"reversed"}:
                return True
            case ast.Slice(step=ast.UnaryOp(op=ast.USub())):
                return True
            case ast.Call(args=[_, _, ast.UnaryOp(op=ast.USub())]) if called_name(node) == "range":
                return True
    return False


def _weights(values: Values, of: GivenValue) -> Iterator[GivenValue]:
    """What log probabilities are multiplied by, in what a value is made of."""
    way = _Way(values, of)
    for each in () if way.is_turned else way.met:
        for node in ast.walk(each.value):
            sides: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                sides = [node.left, node.right]
            elif isinstance(node, ast.Call) and called_name(node) in {"mul", "multiply"}:
                sides = all_given(node)
            if len(sides) != 2:
                continue
            chances = [_Way(values, each._replace(value=side)).is_chance for side in sides]
            if chances.count(True) == 1:
                yield each._replace(value=sides[chances.index(False)])


class _Way:
    """All values of which one is made, as far as the text shows them.

    Args:
        values: of the program.
        of: the value.
    """

    def __init__(self, values: Values, of: GivenValue) -> None:
        self._values = values
        self._names: set[tuple[str, str, str]] = set()
        self.met: list[GivenValue] = []
        self.is_chance = False
        """Whether a log probability is among them."""
        self.is_turned = False
        waiting = [of]
        while waiting and len(self.met) < _MOST:
            each = waiting.pop()
            self.met.append(each)
            waiting += self._behind(each)

    def leads_to(self, loop: _Summing) -> bool:
        """Whether the list that a loop fills is among them."""
        return (loop.kept, loop.file, loop.function) in self._names

    def _behind(self, of: GivenValue) -> Iterator[GivenValue]:
        waiting: list[ast.AST] = [of.value]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                name = called_name(node)
                if name in _CUTTING:
                    continue
                self.is_chance |= name in _CHANCES
                yield from self._returned(name)
            self.is_turned |= isinstance(node, ast.Call | ast.Subscript) and _is_turned(node)
            if isinstance(node, ast.Name | ast.Attribute):
                key = (ast.unparse(node), of.file, of.function)
                if key not in self._names:
                    self._names.add(key)
                    yield from self._given(*key)
            waiting += ast.iter_child_nodes(node)

    def _returned(self, name: str) -> Iterator[GivenValue]:
        key = (f"{name}()", "", "")
        if name in {"", "forward", "__init__"} or key in self._names:
            return
        self._names.add(key)
        for file, nodes in self._values.nodes.items():
            for function, node in nodes:
                if function == name and isinstance(node, ast.Return) and node.value is not None:
                    yield GivenValue(node.value, file, function)

    def _given(self, name: str, file: str, function: str) -> Iterator[GivenValue]:
        """What is given to a name, put into a list, or gone through by a loop."""
        yield from self._values.assigned(name, file, function)
        if function != "forward":
            yield from self._values.arguments(name, file, function)
        for where, node in self._values.nodes.get(file, ()):
            if where == function or "." in name:
                self.is_turned |= _turns(node, name)
                yield from (GivenValue(each, file, where) for each in _put(node, name))


def _put(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a node puts into a list of this name, or gives to it beside others."""
    match node:
        case ast.Call(func=ast.Attribute(value=kept, attr="append" | "extend"), args=[given]):
            if ast.unparse(kept) == name:
                yield given
        case (
            ast.Assign(targets=[ast.Tuple() as target], value=over)
            | ast.For(target=target, iter=over)
            | ast.comprehension(target=target, iter=over)
        ):
            yield from _of_target(target, over, name)


def _of_target(target: ast.expr, over: ast.expr, name: str) -> Iterator[ast.expr]:
    """What a name among targets is given, one by one where that is zipped."""
    match target, over:
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=given):
            if len(targets) == len(given):
                for one, other in zip(targets, given, strict=True):
                    yield from _of_target(one, other, name)
        case ast.Tuple(elts=[_, one]), ast.Call(func=ast.Name(id="enumerate"), args=[other, *_]):
            yield from _of_target(one, other, name)
        case _ if name in {ast.unparse(each) for each in ast.walk(target)}:
            yield over


def _turns(node: ast.AST, name: str) -> bool:
    """Whether a node is a call of a method that changes the order of what has this name."""
    match node:
        case ast.Call(func=ast.Attribute(value=kept, attr=attr)) if attr in _TURNING:
            return ast.unparse(kept) == name
    return False
