"""The line that puts what an earlier step made into a list or its like, by the program's text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import ADDING, container_name, elements, line_at, parsed, tree_of
from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.traces.reader import Trace

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)


class PutAway(NamedTuple):
    """Where a tensor is kept for later steps."""

    frame: Frame
    name: str
    """Of the tensor's variable."""
    container: str
    """Empty: the variable itself outlives the step; with a dot in front: an attribute."""

    @property
    def remedy(self) -> str:
        """What is kept, and what to do."""
        name, container = self.name, self.container
        if not container:
            return (
                f"That is {name}, which is kept from step to step with its graph. Carry on"
                f" {name}.detach(), or compute it anew in each step."
            )
        if container.startswith("."):
            return (
                f"That is {name}, which is put into {container} with its graph. Put in"
                f" {name}.detach(), or compute it anew in each step."
            )
        return (
            f"That is {name}, which is put into {container} with its graph, and stays there. Empty"
            f" {container} after each step, put in {name}.detach() where its value is all that is"
            " needed, or compute it anew in each step."
        )


def put_away(source: Sequence[str], made: Frame, used: Frame) -> PutAway | None:
    """Where what a line makes is put into a container that another line takes it from.

    None: more than one line may do it, or none, or the other line reads the variable itself,
    which is not made anew before.

    Args:
        source: of the file of both lines.
        made: the line that gives a variable its value.
        used: the line that uses that in a later step.
    """
    scope = _scope(parsed(source), made.line)
    if made.file != used.file or scope is None:
        return None
    statements = list(_statements(scope))
    names = _given(statements, made.line)
    known = len(names)
    reading = [each for each in statements if _holds(each, used.line)]
    read = set().union(*(_loads(each) for each in reading)) if reading else set()
    names -= read
    if not names or not read or (len(names) < known and not _is_made_anew(scope, made, used)):
        return None
    _follow(statements, read)
    found = _kept(statements, names, read)
    if len(found) != 1:
        return None
    line, name, container = found.pop()
    text = source[line - 1].strip()
    return PutAway(Frame(made.file, line, made.function, False, text), name, container)


def put_away_elsewhere(trace: Trace, made: Sequence[Frame], used: Frame) -> PutAway | None:
    """The same where a function makes it, its caller keeps it, and another function takes it.

    Args:
        trace: holds the files.
        made: the stack of what made it.
        used: the line that uses it in a later step.
    """
    scope = _scope(tree_of(trace, used.file), used.line)
    statements = [] if scope is None else list(_statements(scope))
    reading = [each for each in statements if _holds(each, used.line)]
    read = set().union(*map(_loads, reading))
    _follow(statements, read)
    for frame in (each for each in made if not each.hidden and each.function != used.function):
        scope = _scope(tree_of(trace, frame.file), frame.line)
        statements = [] if scope is None else list(_statements(scope))
        found = _kept(statements, _given(statements, frame.line), read)
        if len(found) == 1:
            line, name, container = found.pop()
            return PutAway(line_at(trace, frame.file, line, frame.function), name, container)
    return None


def _given(statements: Iterable[ast.stmt], line: int) -> set[str]:
    """The variables and attributes to which a line assigns."""
    return {
        name
        for each in statements
        if isinstance(each, ast.Assign) and _holds(each, line)
        for target in each.targets
        for name in _names(target)
    }


def _kept(
    statements: Iterable[ast.stmt], names: set[str], read: set[str]
) -> set[tuple[int, str, str]]:
    """Where variables of some names are put into what is read: lines, variables, containers."""
    return {
        (each.lineno, name, container)
        for each in statements
        for name, container in _puts(each)
        if name in names and container in read
    }


def kept_on_object(source: Sequence[str], made: Frame) -> PutAway | None:
    """Where what a line makes is assigned to an attribute that the same function reads again.

    By that line itself or a later one. None: no line does, or several do.

    Args:
        source: of the file.
        made: the line that gives a variable its value.
    """
    scope = _scope(parsed(source), made.line)
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    assigned = [each for each in _statements(scope) if isinstance(each, ast.Assign)]
    names = {
        name
        for each in assigned
        if _holds(each, made.line)
        for target in each.targets
        if isinstance(target, ast.Name)
        for name in _names(target)
    }
    read = _loads(scope)
    own = [
        target
        for each in assigned
        if _holds(each, made.line)
        for target in each.targets
        if isinstance(target, ast.Attribute) and target.attr in read
    ]
    if len(own) == 1:
        return PutAway(made, ast.unparse(own[0]), "")
    found = [
        (each.lineno, each.value.id, target.attr)
        for each in assigned
        for target in each.targets
        if isinstance(target, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id in names
        and target.attr in read
        and each.lineno > made.line
    ]
    if len(found) != 1:
        return None
    line, name, attribute = found[0]
    text = source[line - 1].strip()
    return PutAway(Frame(made.file, line, made.function, False, text), name, f".{attribute}")


def carried_variable(source: Sequence[str], made: Frame) -> str:
    """The one variable or attribute that the statement of a line reads and gives a new value.

    Empty: there is none, or there are several.

    Args:
        source: of the file.
        made: the line.
    """
    scope = _scope(parsed(source), made.line)
    found = {
        ast.unparse(target)
        for each in (() if scope is None else _statements(scope))
        if isinstance(each, ast.Assign) and _holds(each, made.line)
        for written in each.targets
        for target in elements(written)
        if ast.unparse(target) in {ast.unparse(node) for node in _values(each.value)}
    }
    return found.pop() if len(found) == 1 else ""


def _values(value: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(value):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node


def _scope(tree: ast.Module, line: int) -> ast.AST | None:
    """The innermost function around a line, or the module."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _SCOPES) and (isinstance(node, ast.Module) or _holds(node, line))
    ]
    return max(around, key=lambda node: getattr(node, "lineno", 0), default=None)


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a scope, but for those of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.stmt):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if not hasattr(child, "body"):
                yield child
            else:
                yield from _heads(child)
        if not isinstance(child, ast.expr):
            yield from _statements(child)


def _heads(block: ast.stmt) -> Iterator[ast.stmt]:
    """What the head of a loop sets, as an assignment."""
    if isinstance(block, ast.For):
        yield ast.copy_location(ast.Assign([block.target], block.iter), block)


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _is_made_anew(scope: ast.AST, made: Frame, used: Frame) -> bool:
    """Whether one line comes before the other in each turn of a loop."""
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)]
    return made.line < used.line and any(
        _holds(loop, made.line) and _holds(loop, used.line) for loop in loops
    )


def _names(target: ast.AST) -> set[str]:
    found = (node for node in ast.walk(target) if isinstance(node, ast.Name | ast.Attribute))
    return {node.id if isinstance(node, ast.Name) else node.attr for node in found}


def _loads(statement: ast.AST) -> set[str]:
    """Names that a statement reads, but for those that it binds itself."""
    bound = {
        name
        for node in ast.walk(statement)
        if isinstance(node, ast.comprehension)
        for name in _names(node.target)
    }
    found = (
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    )
    return {node.id if isinstance(node, ast.Name) else node.attr for node in found} - bound


def _follow(statements: Sequence[ast.stmt], read: set[str]) -> None:
    """Add to names those of which their values were made."""
    before = -1
    while before != len(read):
        before = len(read)
        for each in statements:
            if isinstance(each, ast.Assign) and any(_names(t) & read for t in each.targets):
                read |= _loads(each.value)


def _puts(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Variables that a statement puts into containers, as they are, and the containers' names."""
    for node in ast.walk(statement):
        called = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(called, ast.Attribute)
            and called.attr in ADDING
        ):
            yield from ((name, container_name(called.value)) for name in _elements(node.args))
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Subscript):
            yield from ((name, container_name(target)) for name in _elements([statement.value]))
        else:
            lists = [node for node in ast.walk(statement.value) if isinstance(node, ast.List)]
            yield from (
                (name, container_name(target)) for each in lists for name in _elements(each.elts)
            )


def _elements(values: Iterable[ast.expr]) -> Iterator[str]:
    """The variables among values, in tuples, lists and dictionaries, too."""
    for value in values:
        if isinstance(value, ast.Name):
            yield value.id
        elif isinstance(value, ast.Tuple | ast.List):
            yield from _elements(value.elts)
        elif isinstance(value, ast.Dict):
            yield from _elements(value.values)
