"""Summands of a loss that have no gradient, as a balance that is computed of an argmax.

Note [A summand without a way back]
The graph shows it: a sum on the way from the loss leads to one of its two arguments only, in all
passes that are looked at. Constants are added on purpose. So it is said only where the text shows
on the way to the other argument what has no derivative, or takes it out of the graph, and not where
the summand itself says so by ``detach()``. What is subtracted, and what ``detach()`` or ``no_grad``
took out elsewhere, counts only where the program weighs it: as a constant it may be meant, to show
a distance.

Note [Derivatives without a graph]
What ``torch.autograd.grad`` gives without ``create_graph`` is a constant. That a line called it so
is in the recording; that a summand is computed of it is read from the text. Added to what has a
graph, as in the residual of an equation, it may be meant: it is said and not judged, where the call
went through parameters that the pass trains, for a leaf that is none. Where a layer comes between
the sum and the loss, the sum is an input, as one that an attack has changed.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    container_name,
    elements,
    nodes_of,
    targets_of,
    tree_of,
    user_files,
)
from agviz.analysis.evidence import base_name
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_MOST_NODES: Final = 20_000
_PASSES: Final = 3
_LEAST: Final = 3
_SUMS: Final = frozenset({"Add", "Sub"})
_LEADING: Final = _SUMS | {"Div", "Mul", "Neg", "ToCopy"}
_BY_ELEMENTS: Final = _LEADING | {
    *("Abs", "Expand", "HuberLoss", "LinalgVectorNorm", "Mean", "MseLoss", "Norm", "Pow", "Rsub"),
    *("Select", "Slice", "SmoothL1Loss", "Sqrt", "Squeeze", "Sum", "Unsqueeze", "View"),
}
"""What leads from a loss to the residuals that it is made of, and through no layer."""
_GRAPHLESS: Final = "torch.autograd.grad() without create_graph"
_MOST_CALLS: Final = 64
"""Of ``grad``, the last ones."""
_MOST_DEEP: Final = 40
"""Expressions inside of each other, and behind names, that are followed."""
_BREAKING: Final = frozenset(
    {"argmax", "argmin", "argsort", "bincount", "detach", "histc", "item", "multinomial"}
    | {"numpy", "one_hot", "round", "searchsorted", "sign", "tolist"}
)
"""Functions and methods whose results have no gradient, or none of use."""
_OF_TRUTHS: Final = frozenset({"double", "float", "mean", "sum", "to", "type_as"})
_ON_PURPOSE: Final = frozenset({"detach()", "no_grad"})
"""What is there for nothing else than to take something out of the graph."""
_LONGEST: Final = 50
"""Letters of a summand that are shown."""


class _Broken(NamedTuple):
    """What the text shows on the way to a summand that has no gradient."""

    what: str
    line: int


def without_gradient(run: RunSteps) -> Iterator[StepFinding]:
    """A sum whose one summand trains nothing. Note [A summand without a way back]."""
    for _, frame, number, output in _always_one_sided(run.trace, run.passes, _LEADING):
        pair = _arguments(run.trace, frame, number)
        summand = None if pair is None else _summand(run.trace, frame, pair, output)
        if summand is None:
            continue
        text, broken = summand
        remedy = (
            "Give it create_graph=True."
            if broken.what == _GRAPHLESS
            else "Compute it of tensors that lead back to parameters (of probabilities where there"
            " is a count of choices), or leave it out."
        )
        yield StepFinding(
            kind="no way back",
            heading="a summand of the loss has no gradient: it trains nothing",
            frame=frame,
            paragraph=(
                f"{text} is added to the loss in each pass that was looked at, and no gradient"
                f" flows back from it: {broken.what} in line {broken.line}, of which it is"
                f" computed, gives none. It changes the number that is shown and no step. {remedy}"
            ),
        )
        return


def constant_derivative(trace: Trace) -> StepFinding | None:
    """A sum of a derivative without a graph and what has one; None: none is seen.

    Note [Derivatives without a graph].

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    passes = () if trace.meta.partial else trace.graph_tasks.outermost.accumulating
    if not passes or not _graphless(trace):
        return None
    for task, frame, number, output in _always_one_sided(trace, passes, _BY_ELEMENTS):
        pair = _arguments(trace, frame, number)
        found = None if pair is None else _constant(trace, frame, pair, output)
        if found is None:
            continue
        text, broken = found
        through = _trained_through(trace, task, broken.line)
        if not through:
            continue
        return StepFinding(
            kind="constant derivative",
            heading="a derivative goes into the loss as a constant: grad gave it without a graph",
            frame=frame,
            paragraph=(
                f"{text} comes of {broken.what} in line {broken.line}. That call went through"
                f" {listed(through)}, which this loss trains, but no gradient flows back through"
                " what it gave: they are trained as if it did not depend on them. If it is to be"
                " trained, as in the residual of an equation, give create_graph=True; if a"
                " constant is meant, write detach()."
            ),
        )
    return None


def _trained_through(trace: Trace, trained: int, line: int) -> list[str]:
    """Parameters of a pass through which ``grad`` went in a line, for a leaf that is none."""
    own = {row.name for row in trace.parameters(trained) if row.node is not None}
    for each in _graphless(trace):
        at = visible(trace.call_site(each.id))
        if at is None or at.line != line or each.nodes > _MOST_NODES:
            continue
        nodes = trace.nodes(each.id)
        wanted = [nodes[index] for index, _ in trace.captures(each.id)]
        if wanted and not any(one.shape is None or one.parameter for one in wanted):
            return [one.parameter for one in nodes if one.parameter in own and one.parameter]
    return []


def _graphless(trace: Trace) -> list[GraphTaskRow]:
    """The last calls of ``grad`` without ``create_graph``."""
    calls = [each for each in trace.graph_tasks.outermost if not each.accumulate_grad]
    return [each for each in calls[-_MOST_CALLS:] if not each.create_graph]


def _always_one_sided(
    trace: Trace, passes: Sequence[GraphTaskRow], leading: frozenset[str]
) -> Iterator[tuple[int, Frame, int, int]]:
    """Sums that lead to one argument in all of the last passes.

    The last of these, the line, the number of the sum in it, and the argument.

    That is asked of each line that calls backward: a critic and a generator have losses of their
    own.
    """
    by_site: dict[Frame | None, list[GraphTaskRow]] = {}
    for task in reversed(passes[-_MOST_CALLS:]):
        last = by_site.setdefault(visible(trace.call_site(task.id)), [])
        if len(last) < _PASSES:
            last.append(task)
    for last in by_site.values():
        if len(last) < _LEAST or any(task.nodes > _MOST_NODES for task in last):
            continue
        found = [_one_sided(trace, task.id, leading) for task in last]
        for place, output in found[0].items():
            if all(one.get(place) == output for one in found):
                yield last[0].id, *place, output


def _one_sided(
    trace: Trace, graph_task: int, leading: frozenset[str]
) -> dict[tuple[Frame, int], int]:
    """Sums on the way from the loss that lead to one argument: which one.

    By line, and by the number of the sum among those of its line, from the last one back.
    """
    nodes = trace.nodes(graph_task)
    ahead: dict[int, list[tuple[int, int]]] = {}
    for edge in trace.edges(graph_task):
        ahead.setdefault(edge.producer, []).append((edge.output, edge.consumer))
    sums: dict[Frame, list[NodeRow]] = {}
    waiting, seen = [0][: len(nodes)], set()  # a pass that only began has none
    while waiting:
        index = waiting.pop()
        node = nodes[index]
        name = base_name(node.name)
        is_number = (node.input_shapes or ((0,),))[0] == ()
        if index in seen or name not in leading or not (is_number or leading is _BY_ELEMENTS):
            continue
        seen.add(index)
        consumers = {consumer for _, consumer in ahead.get(index, ())}
        if name in _SUMS or len(consumers) == 1:  # else a product of what is trained
            waiting += consumers
        if name in _SUMS and node.frame is not None:
            sums.setdefault(node.frame, []).append(node)
    found = {}
    for frame, rows in sums.items():
        rows.sort(key=lambda node: node.sequence_nr or 0, reverse=True)
        for number, node in enumerate(rows):
            outputs = {output for output, _ in ahead.get(node.index, ())}
            if len(outputs) == 1:
                found[frame, number] = outputs.pop()
    return found


class _Arguments(NamedTuple):
    left: ast.expr
    right: ast.expr
    is_difference: bool


def _arguments(trace: Trace, frame: Frame, number: int) -> _Arguments | None:
    """What a sum adds, by its number among those of a line, from the last one back."""
    pairs: list[_Arguments] = []
    for node in ast.walk(tree_of(trace, frame.file)):  # from outside to inside
        if not isinstance(node, ast.BinOp | ast.AugAssign) or node.lineno != frame.line:
            continue
        if isinstance(node.op, ast.Add | ast.Sub):
            is_difference = isinstance(node.op, ast.Sub)
            if isinstance(node, ast.AugAssign):
                pairs.append(_Arguments(node.target, node.value, is_difference))
            else:
                pairs.append(_Arguments(node.left, node.right, is_difference))
    return pairs[number] if number < len(pairs) else None


def _summand(
    trace: Trace, frame: Frame, arguments: _Arguments, output: int
) -> tuple[str, _Broken] | None:
    """The argument of a sum without a gradient, and why; None: the text does not show it."""
    one, broken = _without_way(trace, frame, arguments, output)
    if broken is None or any(_is_detach(node) for node in ast.walk(one)):
        return None
    if not _is_product(one) and (arguments.is_difference or broken.what in _ON_PURPOSE):
        return None
    return _shown(one), broken


def _constant(
    trace: Trace, frame: Frame, arguments: _Arguments, output: int
) -> tuple[str, _Broken] | None:
    """The argument of a sum that is a derivative without a graph; None: the text shows none."""
    one, broken = _without_way(trace, frame, arguments, output)
    if broken is None or broken.what != _GRAPHLESS:
        return None
    return _shown(one), broken


def _without_way(
    trace: Trace, frame: Frame, arguments: _Arguments, output: int
) -> tuple[ast.expr, _Broken | None]:
    """The argument of a sum that has no gradient, and why, where the text shows it."""
    left, right, _ = arguments
    sure, likely = _Texts(trace), _Texts(trace, is_constant=True)
    if output == 1:
        return left, likely.broken(frame.function, left)
    of_left = sure.broken(frame.function, left)
    if of_left is None:
        return right, likely.broken(frame.function, right)
    # A number counts as the second, on either side.
    return left, None if sure.broken(frame.function, right) else of_left


def _shown(one: ast.expr) -> str:
    text = ast.unparse(one)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _is_detach(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == "detach"


class _Texts:
    """What the text of a program says of where a value comes from.

    Args:
        trace: holds the text.
        is_constant: whether the graph shows that no gradient flows to what is asked about, so that
            one factor of a product suffices as the reason.
    """

    def __init__(self, trace: Trace, *, is_constant: bool = False) -> None:
        self._is_constant = is_constant
        self._nodes = [each for file in user_files(trace) for each in nodes_of(trace, file)]
        sites = [visible(trace.call_site(each.id)) for each in _graphless(trace)]
        self._graphless = {
            id(node)
            for site in dict.fromkeys(filter(None, sites))
            for _, node in nodes_of(trace, site.file)
            if isinstance(node, ast.Call)
            and called_name(node) == "grad"
            and node.lineno <= site.line <= (node.end_lineno or node.lineno)
        }
        self._within: list[int] = []
        """Identities of the expressions that are being looked at, outermost first."""
        self._classes = {
            node.name: node for _, node in self._nodes if isinstance(node, ast.ClassDef)
        }
        self._unrecorded = {
            id(one)
            for _, node in self._nodes
            if isinstance(node, ast.With) and _is_no_grad(node)
            for one in ast.walk(node)
        }

    def broken(self, function: str, value: ast.expr) -> _Broken | None:
        """What keeps a value from having a gradient; None: it may have one, or is a constant.

        Args:
            function: in which it is.
            value: as it is written.
        """
        found: list[_Broken] = []
        return None if self._may_lead(function, value, found) or not found else found[0]

    def _may_lead(self, function: str, value: ast.AST, found: list[_Broken]) -> bool:
        """Whether gradients may flow on from a value; what stops them is put into ``found``."""
        if id(value) in self._within:
            return False
        if len(self._within) > _MOST_DEEP:
            return True
        self._within.append(id(value))
        try:
            if what := _broken(value):
                found.append(_Broken(what, getattr(value, "lineno", 0)))
                return False
            if id(value) in self._graphless:
                found.append(_Broken(_GRAPHLESS, getattr(value, "lineno", 0)))
                return False
            if id(value) in self._unrecorded:
                found.append(_Broken("no_grad", getattr(value, "lineno", 0)))
                return False
            return self._does_lead(function, value, found)
        finally:
            self._within.pop()

    def _does_lead(self, function: str, value: ast.AST, found: list[_Broken]) -> bool:
        parts: Sequence[tuple[str, ast.AST]] | None
        is_fact = isinstance(value, ast.Attribute) and value.attr in _FACTS
        is_number = ast.unparse(value).startswith(_NUMBERS)
        if is_fact or is_number or isinstance(value, ast.Compare):
            parts = ()
        elif isinstance(value, ast.Attribute | ast.Name):
            parts = self._given(function, value)
        elif isinstance(value, ast.Call):
            parts = self._parts(function, value)
        else:
            inside = ast.iter_child_nodes(value)
            parts = [(function, one) for one in inside if isinstance(one, ast.expr)]
        if parts is None:  # not known
            return True
        lead: list[bool] = []
        for where, one in parts:
            before = len(found)
            lead.append(self._may_lead(where, one, found))
            is_factor = self._is_constant and _is_product(value)
            if is_factor and not lead[-1] and len(found) > before:
                return False
        return any(lead)

    def _parts(self, function: str, call: ast.Call) -> Sequence[tuple[str, ast.AST]] | None:
        """What a call computes its result of; None: not known."""
        called, name = call.func, called_name(call)
        returned = self._returned(function, call, None)
        if name in _COUNTS:
            return ()
        if returned is not None:
            return returned
        if isinstance(called, ast.Name) and name not in _ADDING_UP:
            return None
        given = [*call.args, *(word.value for word in call.keywords)]
        if isinstance(called, ast.Attribute) and not _OF_TORCH.match(ast.unparse(called.value)):
            given.append(called.value)
        return [(function, one) for one in given]

    def _given(self, function: str, name: ast.expr) -> list[tuple[str, ast.AST]] | None:
        """What is assigned to a variable or an attribute; None: nothing that is seen."""
        given: list[tuple[str, ast.AST]] = []
        kind, own = type(name), container_name(name)
        for where, target, value in self._bindings():
            if kind is ast.Name and where not in {function, "<module>"}:
                continue
            for number, to in enumerate(elements(target)):
                if type(to) is not kind or container_name(to) != own:
                    continue
                found = self._element(where, value, None if to is target else number)
                if found is None:
                    return None
                given += found
        if not given and kind is ast.Name:
            return self._passed(function, own)
        return given or None

    def _bindings(self) -> Iterator[tuple[str, ast.expr, ast.expr]]:
        """What is assigned, or taken out of something one by one: function, target, value."""
        for where, node in self._nodes:
            if isinstance(node, ast.comprehension | ast.For):
                yield where, node.target, node.iter
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value:
                for target in targets_of(node):
                    yield where, target, node.value

    def _passed(self, function: str, name: str) -> list[tuple[str, ast.AST]] | None:
        """What calls of a function of the program give for an argument; None: not known."""
        made = [n for _, n in self._nodes if isinstance(n, ast.FunctionDef) and n.name == function]
        if len(made) != 1 or function.startswith("__") or function == "forward":
            return None
        (of,) = made
        names = [each.arg for each in (*of.args.posonlyargs, *of.args.args)]
        is_method = names[:1] == ["self"]
        defaults = dict(zip(reversed(names), reversed(of.args.defaults), strict=False))
        given: list[tuple[str, ast.AST]] = []
        for where, call in self._nodes:
            if not isinstance(call, ast.Call) or called_name(call) != function:
                continue
            values = dict(zip(names[is_method:], call.args, strict=False))
            values |= {word.arg: word.value for word in call.keywords if word.arg}
            value = values.get(name, defaults.get(name))
            if value is None or any(isinstance(each, ast.Starred) for each in call.args):
                return None
            given.append((where, value))
        return given or None

    def _element(
        self, function: str, value: ast.expr, number: int | None
    ) -> list[tuple[str, ast.AST]] | None:
        """A value, or one of the several that it is; None: not seen."""
        if number is None:
            return [(function, value)]
        values = elements(value)
        if id(value) in self._graphless:
            return [(function, value)]
        if number < len(values) and len(values) > 1:
            return [(function, values[number])]
        return self._returned(function, value, number) if isinstance(value, ast.Call) else None

    def _returned(
        self, function: str, call: ast.Call, number: int | None
    ) -> list[tuple[str, ast.AST]] | None:
        """What a function of the program, or a module's forward, returns; None: not seen."""
        name = called_name(call)
        makers = [
            called_name(value)
            for _, value in self._given(function, call.func) or ()
            if isinstance(value, ast.Call)
        ]
        owners = [self._classes[maker] for maker in makers if maker in self._classes]
        functions = [
            each
            for owner in owners
            for each in owner.body
            if isinstance(each, ast.FunctionDef) and each.name == "forward"
        ] or [
            node
            for _, node in self._nodes
            if isinstance(node, ast.FunctionDef)
            if node.name == name
        ]
        if len(functions) != 1:
            return None
        (of,) = functions
        returned: list[tuple[str, ast.AST]] = []
        for inner in ast.walk(of):
            if isinstance(inner, ast.Return) and inner.value is not None:
                values = elements(inner.value)
                is_one = number is not None and len(values) > 1
                if is_one and number is not None and number >= len(values):
                    return None
                returned.append((of.name, values[number or 0] if is_one else inner.value))
        without = [one for one in of.decorator_list if "no_grad" in ast.unparse(one)]
        return [(of.name, without[0])] if without else returned or None


_FACTS: Final = frozenset({"device", "dtype", "ndim", "shape"})
_COUNTS: Final = frozenset({"dim", "int", "len", "numel", "range", "size"})
_NUMBERS: Final = ("math.", "np.", "numpy.")
_ADDING_UP: Final = frozenset({"max", "min", "sum"})
_OF_TORCH: Final = re.compile(r"(torch|nn|F)(\.\w+)*$")


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _is_no_grad(node: ast.With) -> bool:
    return any("no_grad" in ast.unparse(item.context_expr) for item in node.items)


def _broken(node: ast.AST) -> str:
    """What it is that has no gradient, as it is written; empty: it is nothing of the kind."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return ".data"
    if not isinstance(node, ast.Call):
        return "no_grad" if "no_grad" in getattr(node, "attr", "") else ""
    called = called_name(node)
    if called == "no_grad":
        return called
    if called in _BREAKING:
        return f"{called}()"
    compared = node.func.value if isinstance(node.func, ast.Attribute) else None
    if called in _OF_TRUTHS and isinstance(compared, ast.Compare):
        return "a comparison"
    return ""
