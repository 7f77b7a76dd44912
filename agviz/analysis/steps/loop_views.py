"""Views of data that a loop makes, and what it writes to them, by the text of a program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.analysis.code_search import called_name, container_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.rows import Frame

Loop: TypeAlias = ast.For | ast.While
_MOST_DEEP: Final = 8
_VIEWING: Final = frozenset(
    {"detach", "narrow", "select", "squeeze", "t", "transpose", "unsqueeze", "view"}
)
"""Methods that give a view, whatever they are called of."""
_IN_PARTS: Final = frozenset({"chunk", "split", "unbind"})
_DRAWN: Final = frozenset(
    {"bernoulli", "choice", "multinomial", "normal", "rand", "rand_like", "randint"}
    | {"randint_like", "randn", "randn_like", "random", "randperm", "randrange", "uniform"}
)
_PLAIN: Final = _DRAWN | {
    *("bool", "chunk", "clone", "expand", "float", "int", "len", "long", "numel", "range"),
    *("size", "slice", "split", "to", "unsqueeze", "view", "zip"),
}
"""Functions and methods by which no model is asked."""
_LIKE: Final = frozenset({"device", "dim", "dtype", "ndim", "numel", "shape", "size"})
_ARITHMETIC: Final = {"add_": ast.Add, "div_": ast.Div, "mul_": ast.Mult, "sub_": ast.Sub}
_SETTLING: Final = frozenset(
    {"bernoulli_", "clamp_", "clip_", "clamp_max_", "clamp_min_", "fill_", "masked_fill_"}
    | {"nan_to_num_", "normal_", "relu_", "requires_grad_", "uniform_", "zero_"}
)
"""Methods that give the same a second time, or something that is new altogether."""
_LEAVING: Final = _IN_PARTS | {"item", "numpy", "tolist"}
"""Methods of tensors that give something else."""
_NO_TENSORS: Final = frozenset({"load", "nn", "optim", "utils"})
"""Parts of torch whose functions, or classes, give something else."""
_SHOWING: Final = frozenset(
    {"append", "format", "isinstance", "len", "log", "print", "repr", "type"}
)


class DataView(NamedTuple):
    """A variable that a loop makes a view of data."""

    name: str
    of: str
    """The data, as it is written."""
    indices: tuple[ast.expr, ...]
    line: int


class ViewWrite(NamedTuple):
    """A statement that writes to a view."""

    node: ast.stmt
    is_again: bool | None
    """Whether it changes again what it has changed before; None: it writes what the turn made."""


def holds(node: ast.stmt, line: int) -> bool:
    """Whether a line is one of a statement."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


class LoopScope:
    """The statements of a function that run again and again around a call.

    Args:
        outside: statements of the file that are not among them.
        inside: those that are.
        arguments: of the function, where its loop is around the call.
    """

    def __init__(
        self, outside: list[ast.stmt], inside: list[ast.stmt], arguments: set[str]
    ) -> None:
        self._inside = inside
        self._made = {
            ast.unparse(to): value for node in outside for to, value in _bindings(node)
        } | {name: ast.Constant(None) for name in arguments}
        self._bound: dict[str, list[ast.expr]] = {}
        for node in inside:
            for to, value in _bindings(node):
                self._bound.setdefault(ast.unparse(to), []).append(value)
        self._arguments = arguments

    @classmethod
    def around(
        cls, tree: ast.Module, frame: Frame, *, is_called_in_a_loop: bool
    ) -> LoopScope | None:
        """That of the innermost function around a line; None: nothing shows that it runs again."""
        functions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and holds(node, frame.line)
        ]
        body = functions[-1].body if functions else tree.body
        whole = [each for part in body for each in _statements(part)]
        loops = [each for each in whole if isinstance(each, Loop) and holds(each, frame.line)]
        if not loops and not (functions and is_called_in_a_loop):
            return None
        inside = [*_statements(loops[0])] if loops else whole
        known = {id(each) for each in inside}
        outside = [
            each for each in ast.walk(tree) if isinstance(each, ast.stmt) and id(each) not in known
        ]
        given = functions[-1].args.args if functions and loops else []
        return cls(outside, inside, {each.arg for each in given})

    def changed(self) -> Iterator[tuple[DataView, ViewWrite]]:
        """Views of data, each with the first statement that changes it in each round."""
        for node in self._inside:
            for view in self._views(node):
                writes = [each for each in map(self._write_to(view), self._inside) if each]
                again = [each for each in writes if each.is_again]
                if not again or any(each.is_again is None for each in writes):
                    continue
                line = again[0].node.lineno
                is_always = not any(
                    isinstance(each, ast.If) and holds(each, line) for each in self._inside
                )
                if is_always and self._comes_back(view) and self._is_used(view, line):
                    yield view, again[0]

    def _views(self, node: ast.stmt) -> Iterator[DataView]:
        """The variables that a statement makes views, and that nothing else gives a value."""
        for to, value in _bindings(node):
            if not isinstance(to, ast.Name) or len(self._bound[to.id]) != 1:
                continue
            is_loop = isinstance(node, ast.For)
            base, index = _viewed(value, is_loop=is_loop)
            written = "" if base is None else ast.unparse(base)
            if not written or written in self._bound or not all(map(self._is_plain, index)):
                continue
            if self._is_data(written, index) and not self._is_kept(written):
                yield DataView(to.id, written, tuple(index), node.lineno)

    def _is_data(self, name: str, index: list[ast.expr]) -> bool:
        """Whether it is a tensor that was made before."""
        made = self._made.get(name)
        if name in self._arguments:
            return any(isinstance(node, ast.Slice) for each in index for node in ast.walk(each))
        return made is not None and self._is_tensor(made, 0)

    def _is_kept(self, name: str) -> bool:
        """Whether the loop itself writes to it by its name, as to a memory."""
        for node in self._inside:
            match node:
                case ast.Assign(targets=[ast.Subscript(value=of)]) if ast.unparse(of) == name:
                    return True
                case ast.AugAssign(target=target) if ast.unparse(target).startswith(name):
                    return True
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=str(method)))):
                    if method.endswith("_") and ast.unparse(of).startswith(name):
                        return True
        return False

    def _is_tensor(self, value: ast.expr, deep: int) -> bool:
        """Whether an expression gives one, as far as the text shows."""
        parts: list[ast.expr] = []
        match value:
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
            case ast.UnaryOp(operand=of) | ast.Subscript(value=of):
                parts = [of]
            case ast.Call() if _is_of_torch(value):
                return True
            case ast.Call(func=ast.Attribute(value=of, attr=str(name))) if name not in _LEAVING:
                parts = [of]
            case ast.Name() | ast.Attribute() if ast.unparse(value) in self._made:
                parts = [self._made[ast.unparse(value)]]
        return deep < _MOST_DEEP and any(self._is_tensor(each, deep + 1) for each in parts)

    def _is_plain(self, index: ast.expr) -> bool:
        """Whether an index gives a view: slices and integers, as far as the text shows."""
        if isinstance(index, ast.Tuple):
            return all(map(self._is_plain, index.elts))
        if isinstance(index, ast.Slice):
            return True
        if isinstance(index, ast.Constant):
            return index.value is None or index.value is ... or isinstance(index.value, int)
        if isinstance(index, ast.BinOp):
            return self._is_plain(index.left) and self._is_plain(index.right)
        if isinstance(index, ast.Call):
            return called_name(index) in {"slice", "int", "len", "randrange"}
        values = self._bound.get(ast.unparse(index), [])
        return len(values) == 1 and (_counts(values[0]) or self._is_plain(values[0]))

    def _comes_back(self, view: DataView) -> bool:
        """Whether a later turn has the same rows again."""
        index = [node for each in view.indices for node in self._reached(each)]
        if any(
            (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
            or (isinstance(node, ast.Call) and called_name(node) in _DRAWN)
            for node in index
        ):
            return True
        names = {node.id for node in index if isinstance(node, ast.Name)}
        around = [each for each in self._inside if isinstance(each, Loop)]
        around = [each for each in around if each.lineno < view.line and holds(each, view.line)]
        return any(
            isinstance(loop, ast.For)
            and not _is_one_turn(loop.iter)
            and names.isdisjoint(
                node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)
            )
            for loop in around
        )

    def _reached(self, value: ast.expr) -> Iterator[ast.AST]:
        """The nodes of an expression, and of those that its variables are given in the loop."""
        waiting: list[ast.expr] = [value]
        seen: set[int] = set()
        while waiting:
            each = waiting.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            for node in ast.walk(each):
                yield node
                if isinstance(node, ast.Name):
                    waiting += self._bound.get(node.id, [])

    def _write_to(self, view: DataView) -> _Writes:
        return _Writes(self, view)

    def value_comes_of(self, value: ast.expr, view: DataView) -> str:
        """``itself``, ``drawn``, ``constant``, ``before`` the loop; or empty: of the turn."""
        inside = [*self._reached(value)]
        shapes = {
            id(part)
            for node in inside
            if (isinstance(node, ast.Attribute) and node.attr in _LIKE)
            or (isinstance(node, ast.Call) and called_name(node).endswith("_like"))
            for part in ast.walk(node)
        }
        names = {
            node.id
            for node in inside
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            if id(node) not in shapes
        }
        if view.name in names:
            return "itself"
        calls = [node for node in inside if isinstance(node, ast.Call)]
        drawn = any(called_name(call) in _DRAWN for call in calls)
        is_bound = any(self._bound.get(name) for name in names)
        if is_bound and not (drawn and all(map(_is_plain_call, calls))):
            return ""
        if drawn:
            return "drawn"
        return "constant" if names <= {"math"} else "before"

    def _is_used(self, view: DataView, after: int) -> bool:
        """Whether a function is given the view after the write."""
        return any(
            isinstance(node, ast.Call)
            and node.lineno > after
            and called_name(node) not in _SHOWING
            and any(
                isinstance(each, ast.Name) and each.id == view.name
                for each in (*node.args, *(word.value for word in node.keywords))
            )
            for statement in self._inside
            for node in ast.walk(statement)
        )


class _Writes:
    """Finds whether a statement writes to a view, and what."""

    def __init__(self, scope: LoopScope, view: DataView) -> None:
        self._scope = scope
        self._view = view

    def __call__(self, node: ast.stmt) -> ViewWrite | None:
        """None: it does not."""
        match node:
            case ast.AugAssign(target=target, op=op, value=value) if self._is_it(target):
                return ViewWrite(node, self._again(op, value))
            case ast.Assign(targets=[ast.Subscript() as target], value=value) if self._is_it(
                target
            ):
                return ViewWrite(node, self._put(target.slice, value))
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=str(name))) as call):
                if not name.endswith("_") or name.endswith("__") or not self._is_it(of):
                    return None
                if name in _ARITHMETIC and len(call.args) == 1 and not call.keywords:
                    return ViewWrite(node, self._again(_ARITHMETIC[name](), call.args[0]))
                return ViewWrite(node, False if name in _SETTLING else None)
        return None

    def _is_it(self, target: ast.expr) -> bool:
        """Whether it is the view, a part of it, or what a method in place gave of it."""
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            return target.func.attr.endswith("_") and self._is_it(target.func.value)
        return isinstance(target, ast.Name) and target.id == self._view.name

    def _again(self, op: ast.operator, value: ast.expr) -> bool | None:
        comes = self._scope.value_comes_of(value, self._view)
        if not comes or not isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            return None
        if comes == "constant" and isinstance(value, ast.Constant):
            return value.value not in ((0,) if isinstance(op, ast.Add | ast.Sub) else (0, 1))
        # A mask that is made once gives the same a second time.
        is_mask = isinstance(op, ast.Mult) and comes == "before"
        return comes != "itself" and not is_mask

    def _put(self, index: ast.expr, value: ast.expr) -> bool | None:
        """Whether other places are written each time, with what no turn made."""
        where = self._scope.value_comes_of(index, self._view)
        what = self._scope.value_comes_of(value, self._view)
        if not what:
            return None
        return where == "drawn" and what != "itself"


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """A statement, and those in it, but for functions' and classes'."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _statements(child)


def _bindings(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement gives a value, one by one where it gives several, and which."""
    if isinstance(node, ast.For):
        over = node.iter
        is_zip = isinstance(over, ast.Call) and called_name(over) == "zip"
        values = over.args if isinstance(over, ast.Call) and is_zip else []
        yield from _one_by_one(node.target, over, values)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        for target in targets_of(node):
            if not isinstance(target, ast.Subscript):
                yield from _one_by_one(target, node.value, values)
    elif isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is not None:
                yield item.optional_vars, item.context_expr


def _one_by_one(
    target: ast.expr, value: ast.expr, values: Sequence[ast.expr]
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The names of a target, each with its own value, or with what gives all of them."""
    if not isinstance(target, ast.Tuple):
        yield target, value
        return
    is_each = len(values) == len(target.elts)
    for number, to in enumerate(target.elts):
        yield to, values[number] if is_each else ast.Call(ast.Name("?"), [value], [])


def _viewed(value: ast.expr, *, is_loop: bool) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a value is a view of, and by which indices; None: it is none.

    Args:
        value: the expression.
        is_loop: whether a loop takes its parts, one by one.
    """
    index: list[ast.expr] = []
    if is_loop:
        if not isinstance(value, ast.Call) or called_name(value) not in _IN_PARTS:
            return None, []
        value = value.func.value if isinstance(value.func, ast.Attribute) else value
        index.append(ast.Slice())
    while True:
        match value:
            case ast.Subscript(value=of, slice=part):
                index.append(part)
                value = of
            case ast.Call(func=ast.Attribute(value=of, attr=str(name))) if name in _VIEWING:
                value = of
            case ast.Attribute(value=of, attr="T" | "mT"):
                value = of
            case ast.Name() | ast.Attribute():
                return (value, index) if index and container_name(value) else (None, [])
            case _:
                return None, []


def _is_of_torch(call: ast.Call) -> bool:
    """Whether a function of torch gives a tensor, as far as its name tells."""
    name = ast.unparse(call.func)
    if name.startswith("torch.nn.functional."):
        return True
    return name.startswith("torch.") and _NO_TENSORS.isdisjoint(name.split("."))


def _is_plain_call(call: ast.Call) -> bool:
    """Whether a call asks no model, as far as its name tells."""
    return called_name(call) in _PLAIN or ast.unparse(call.func).startswith("torch.")


def _counts(value: ast.expr) -> bool:
    """Whether a loop through it gives integers."""
    return isinstance(value, ast.Call) and called_name(value) in {"enumerate", "range"}


def _is_one_turn(over: ast.expr) -> bool:
    match over:
        case ast.Call(args=[ast.Constant(value=1)]) if called_name(over) == "range":
            return True
    return isinstance(over, ast.List | ast.Tuple) and len(over.elts) == 1
