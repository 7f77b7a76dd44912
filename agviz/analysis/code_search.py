"""Looking for lines in the source that a trace holds, by what is written there."""

from __future__ import annotations

import ast
import functools
import math
import weakref
from typing import TYPE_CHECKING, Final

from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace


ADDING: Final = frozenset({"append", "appendleft", "add", "extend", "insert", "setdefault", "put"})
"""Methods that put something into a container."""
OF_TORCH: Final = frozenset({"F", "functional", "nn.functional", "torch", "torch.nn.functional"})
"""What programs call the modules in which torch has its functions."""
_FILES: Final = 64
"""Whose syntax trees are kept."""
_trees: Final[weakref.WeakKeyDictionary[Trace, dict[str, ast.Module]]] = weakref.WeakKeyDictionary()
"""By trace and file: to put a text together again takes longer than most rules."""
_MOST_DEEP: Final = 8
"""Calls inside of calls that are followed by name."""


def parsed(source: Sequence[str]) -> ast.Module:
    """The syntax tree of a file, which nobody changes; an empty one where it is not Python."""
    return _parsed("\n".join(source))


def tree_of(trace: Trace, file: str) -> ast.Module:
    """The syntax tree of a file that a trace holds; an empty one where it holds none."""
    known = _trees.setdefault(trace, {})
    tree = known.get(file) or parsed(trace.source(file))
    if tree.body:  # else it may not be in the file yet
        known[file] = tree
    return tree


# Rules ask about one file hundreds of times: 200 optimizers made in one line took minutes.
@functools.lru_cache(maxsize=_FILES)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@functools.lru_cache(maxsize=_FILES)
def with_functions(tree: ast.Module) -> Sequence[tuple[str, ast.AST]]:
    """All nodes in the order of the text, each with the name of the function in which it is."""
    found: list[tuple[str, ast.AST]] = []
    waiting: list[tuple[str, ast.AST]] = [("<module>", tree)]
    while waiting:
        function, node = waiting.pop()
        found.append((function, node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        waiting += [(function, child) for child in reversed(list(ast.iter_child_nodes(node)))]
    return found


def nodes_of(trace: Trace, file: str) -> Sequence[tuple[str, ast.AST]]:
    """All nodes of a file in the order of its text, each with the name of its function."""
    return with_functions(tree_of(trace, file))


def nodes_by_function(trace: Trace, file: str) -> Mapping[str, Sequence[ast.AST]]:
    """The nodes of each function of a file, in the order of the text."""
    found: dict[str, list[ast.AST]] = {}
    for function, node in nodes_of(trace, file):
        found.setdefault(function, []).append(node)
    return found


def nodes_beside(trace: Trace, line: Frame) -> list[ast.AST]:
    """The nodes of the function that a line is in, in the order of the text."""
    return [node for function, node in nodes_of(trace, line.file) if function == line.function]


def calls_itself(trace: Trace, function: Frame) -> bool:
    """Whether the text of a function calls it by its name, itself or by others of the file.

    Args:
        trace: holds the text of the file.
        function: a line of it.
    """
    by_function = nodes_by_function(trace, function.file)
    found, waiting = set[str](), [function.function]
    while waiting:
        called = {
            name
            for node in by_function.get(waiting.pop(), ())
            if isinstance(node, ast.Call)
            and (name := ast.unparse(node.func).removeprefix("self.")) in by_function
        }
        waiting += called - found
        found |= called
    return function.function in found


def line_at(trace: Trace, file: str, line: int, function: str) -> Frame:
    """A line of the program, with its text.

    Args:
        trace: holds the text of the file.
        file: the file.
        line: its number in that.
        function: the function in which it is.
    """
    return Frame(file, line, function, False, trace.source(file)[line - 1].strip())


def container_name(target: ast.expr) -> str:
    """The last part of the name of what is put into, or assigned to; empty: it has none."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def targets_of(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    """What a statement assigns to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def elements(node: ast.expr) -> list[ast.expr]:
    """The parts of a tuple or list that is written out; anything else by itself."""
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def bindings(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement assigns to, and what it assigns: of ``a, b = x, y`` one by one."""
    for target in targets_of(node):
        match target, node.value:
            case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                yield from zip(names, values, strict=True)
            case _, ast.expr() as value:
                yield target, value


def differentiated(nodes: Iterable[ast.AST]) -> set[str]:
    """What ``backward`` is called on among some nodes, as it is written."""
    return {
        ast.unparse(node.func.value)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    }


def turns_gradients_off(node: ast.AST) -> bool:
    """Whether it turns gradients off: a block, a function by its decorator, or what does that."""
    if isinstance(node, ast.With):
        return any(turns_gradients_off(item.context_expr) for item in node.items)
    if isinstance(node, ast.FunctionDef):
        return any(map(turns_gradients_off, node.decorator_list))
    name = called_name(node) if isinstance(node, ast.Call) else getattr(node, "attr", "")
    return name in {"inference_mode", "no_grad"}


def own_name(node: ast.expr) -> str:
    """The last name of a variable, an attribute or an entry: ``lr`` of ``args.lr``; or empty."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
    return ""


def values_assigned(trace: Trace, file: str, written: str) -> list[ast.expr]:
    """What a file assigns to what is written so, in the order of its text."""
    return [
        value
        for _, node in nodes_of(trace, file)
        if isinstance(node, ast.Assign)
        for target, value in bindings(node)
        if ast.unparse(target) == written
    ]


def values_named(tree: ast.AST, name: str) -> Iterator[float]:
    """Numbers that a file gives to a name; NaN for anything else but what has the same name.

    By assignments, defaults, entries of dictionaries, keywords of calls, options of argparse.
    """
    for node in ast.walk(tree):
        for value in _given_to(node, name):
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                yield float(value.value)
            elif own_name(value) != name:
                yield math.nan


def _given_to(node: ast.AST, name: str) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.AnnAssign(value=value):
            if value is not None and name in map(own_name, targets_of(node)):
                yield value
        case ast.arguments():
            by_place = [*node.posonlyargs, *node.args]
            given = [*zip(reversed(by_place), reversed(node.defaults), strict=False)]
            by_word = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            given += [(each, value) for each, value in by_word if value is not None]
            yield from (value for each, value in given if each.arg == name)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield value
        case ast.Call(keywords=words):
            is_option = called_name(node).endswith("add_argument") and any(
                isinstance(each, ast.Constant) and each.value == f"--{name}" for each in node.args
            )
            yield from (word.value for word in words if word.arg == name)
            yield from (word.value for word in words if is_option and word.arg == "default")


def takes_from(node: ast.AST, name: str, methods: Collection[str]) -> bool:
    """Whether something is taken out of a container of this name: by ``del``, or by a method."""
    if isinstance(node, ast.Delete):
        return any(container_name(target) == name for target in node.targets)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in methods and container_name(node.func.value) == name
    return False


def decorator_around(trace: Trace, frame: Frame, names: Collection[str]) -> tuple[str, int] | None:
    """How a decorator of the function around a line is written, and its line.

    Args:
        trace: holds the text of the file.
        frame: the line.
        names: last parts of the names that fit; None where no decorator has one of them.
    """
    found = None
    for _, node in nodes_of(trace, frame.file):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.lineno <= frame.line <= (node.end_lineno or node.lineno):
            continue
        found = None
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called).rpartition(".")[2] in names:
                found = ast.unparse(decorator), decorator.lineno
    return found


def line_of_call(trace: Trace, stack: Sequence[Frame], fits: Callable[[str], bool]) -> Frame | None:
    """The one line of the files of a stack that calls a function or method whose name fits.

    Where several lines do, the one in a function of the stack; None: none, or still several.

    Args:
        trace: holds the files.
        stack: frames, innermost last.
        fits: is given the last part of a name.
    """
    shown = [frame for frame in reversed(stack) if not frame.hidden]
    for file in dict.fromkeys(frame.file for frame in shown):
        found = list(dict.fromkeys(_calls(file, trace.source(file), fits)))
        inside = {frame.function for frame in shown if frame.file == file}
        for some in (found, [frame for frame in found if frame.function in inside]):
            if len(some) == 1:
                return some[0]
    return None


def _calls(file: str, source: Sequence[str], fits: Callable[[str], bool]) -> Iterator[Frame]:
    for function, node in with_functions(parsed(source)):
        if isinstance(node, ast.Call) and fits(called_name(node)):
            yield Frame(file, node.lineno, function, False)


def called_name(call: ast.Call) -> str:
    """The last part of what a call calls, ``cat`` of ``torch.cat``; empty: it has no name."""
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def definition(trace: Trace, name: str) -> Frame | None:
    """The one function of this name in the files of the program; None: none, or several."""
    found = [
        Frame(file, node.lineno, name, False)
        for file in user_files(trace)
        for _, node in nodes_of(trace, file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def method(trace: Trace, owner: str, name: str) -> Frame | None:
    """The method of this name of the one class called so in the program; None: not one."""
    found = [
        Frame(file, inner.lineno, name, False)
        for file in user_files(trace)
        for node in ast.walk(tree_of(trace, file))
        if isinstance(node, ast.ClassDef) and node.name == owner
        for inner in node.body
        if isinstance(inner, ast.FunctionDef) and inner.name == name
    ]
    return found[0] if len(found) == 1 else None


def only_return(trace: Trace, function: Frame | None) -> Frame | None:
    """The one line at which a function of the program returns something; None: not one."""
    if function is None:
        return None
    found = [
        node.lineno
        for node in nodes_beside(trace, function)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return function._replace(line=found[0]) if len(found) == 1 else None


def writes_to_argument(trace: Trace, function: Frame | None) -> Frame | None:
    """The first line at which a function writes in place to its last argument; None: none does.

    By another name that it gives to it, too; not where it binds the argument's name to something
    else, which may be a copy.
    """
    for _, node in nodes_of(trace, function.file) if function else ():
        if (
            function is None
            or not isinstance(node, ast.FunctionDef)
            or node.lineno != function.line
            or not node.args.args
        ):
            continue
        name, inside = node.args.args[-1].arg, list(ast.walk(node))
        bound = [
            (ast.unparse(target), ast.unparse(each.value))
            for each in inside
            if isinstance(each, ast.Assign)
            for target in each.targets
        ]
        targets = [target for target, _ in bound]
        names = {target for target, value in bound if value == name and targets.count(target) == 1}
        lines = [each.lineno for each in map(written, inside) if each and each.id in {name, *names}]
        return function._replace(line=min(lines)) if lines and name not in targets else None
    return None


def written(node: ast.AST) -> ast.Name | None:
    """The variable to which a node writes in place; None: to none."""
    target: ast.expr | None = None
    if isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Assign):
        target = next((each for each in node.targets if isinstance(each, ast.Subscript)), None)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        called = node.func.attr
        is_in_place = called.endswith("_") and not called.endswith("__")
        target = node.func.value if is_in_place else None
    target = target.value if isinstance(target, ast.Subscript) else target
    return target if isinstance(target, ast.Name) else None


def only_call(trace: Trace, name: str) -> Frame | None:
    """The one line in the files of the program that calls what has this name; None: not one."""
    found = {
        frame
        for file in user_files(trace)
        for frame in _calls(file, trace.source(file), lambda called: called == name)
    }
    return found.pop() if len(found) == 1 else None


def assignment(trace: Trace, attribute: str) -> Frame | None:
    """The one line that gives ``self.attribute`` its value; None: none does, or several do."""
    found = [
        Frame(file, node.lineno, function, False)
        for file in user_files(trace)
        for function, node in nodes_of(trace, file)
        if isinstance(node, ast.Assign)
        and any(
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and (target.value.id, target.attr) == ("self", attribute)
            for target in node.targets
        )
    ]
    return found[0] if len(found) == 1 else None


def parameter_made(trace: Trace) -> Frame | None:
    """The line, outside of constructors, that calls ``Parameter(...)``; the first of a function.

    None: none does, or several functions do.

    Args:
        trace: holds the files of the program.
    """
    found = [
        frame
        for file in user_files(trace)
        for frame in _calls(file, trace.source(file), lambda name: name == "Parameter")
        if frame.function not in {"__init__", "reset_parameters"}
    ]
    return found[0] if len({(frame.file, frame.function) for frame in found}) == 1 else None


def writes_to_what_is_made(source: Sequence[str], made: int, after: int) -> tuple[str, list[int]]:
    """The name that a line gives to what it makes, and later lines that write to that in place.

    Only lines of the same function count.

    Args:
        source: of the file.
        made: the line.
        after: lines up to this one do not count.

    Returns:
        An empty name where the line makes nothing that has one.
    """
    nodes = list(with_functions(parsed(source)))
    names = [
        (function, node.targets[0].id)
        for function, node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.lineno == made
    ]
    if not names:
        return "", []
    inside, name = names[0]
    lines = [
        target.lineno
        for function, node in nodes
        if function == inside and (target := written(node)) is not None
        if target.id == name and target.lineno > after
    ]
    return name, lines


def user_files(trace: Trace) -> list[str]:
    """The files of the program that frames of a trace are in."""
    return list(dict.fromkeys(frame.file for frame in trace.frames() if not frame.hidden))


def running_functions(trace: Trace) -> set[str]:
    """Names of functions that ran, or that those call, as far as names tell."""
    found = {frame.function for frame in trace.frames() if not frame.hidden}
    found |= {"<module>", "__init__"}
    calls = {
        (function, called_name(node))
        for file in user_files(trace)
        for function, node in nodes_of(trace, file)
        if isinstance(node, ast.Call)
    }
    for _ in range(_MOST_DEEP):
        found |= {called for function, called in calls if function in found}
    return found
