"""Hooks registered in a loop that all read what the last turn left in a variable of the loop.

Note [Late binding]
A lambda, or a function that is defined in a loop, looks the loop's variables up when it is called.
Gradient hooks are called in a backward pass, when the loop is over. That is plain from the text;
that such hooks ran at several nodes of one pass, and changed gradients, is in the trace. A loop
within which backward was called is not over then, and its variables are left alone; so are those to
which each turn gives the same, and those of a loop around the innermost one, as through groups of
parameters, where nothing shows that it had several turns.
"""

from __future__ import annotations

import ast
import copy
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.analysis.code_search import called_name, line_at, parsed, targets_of, tree_of, user_files
from agviz.analysis.steps.finding import StepFinding, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import GraphTaskRow, NodeRow

_Loop: TypeAlias = (
    ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
)
_Hook: TypeAlias = ast.Lambda | ast.FunctionDef

_LOOPS: Final = (
    *(ast.For, ast.AsyncFor),
    *(ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp),
)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LAMBDA: Final = "<lambda>"
_KINDS: Final = {
    "register_hook": ("tensor_pre", "post"),
    "register_prehook": ("pre",),
    "register_post_accumulate_grad_hook": ("post_accumulate_grad",),
    "register_full_backward_hook": ("post",),
    "register_full_backward_pre_hook": ("post",),
}
"""Methods, with the kinds of the hooks that they make in a trace."""
_OF_MODULES: Final = "hook"
"""The function of torch that calls the hooks of modules."""
_SAME: Final = frozenset({"device", "dtype", "layout", "requires_grad"})
"""Attributes that seldom differ from turn to turn."""
_OTHER_EACH_TIME: Final = frozenset({"next", "pop", "popitem", "popleft", "random", "uniform"})
_WRITING: Final = frozenset({"debug", "info", "log", "print", "warning"})
"""Functions that only say something."""
_PARTS: Final = frozenset({"children", "modules", "named_children", "named_modules"})
_PASSES: Final = 20
_LONGEST: Final = 60
"""Letters of a lambda that are shown."""


class _Given(NamedTuple):
    """A statement that binds a name."""

    target: ast.expr
    value: ast.expr
    tests: tuple[ast.expr, ...]
    """Of the ifs around it."""


class HookSite(NamedTuple):
    """A call that registers a hook."""

    file: str
    function: str
    call: ast.Call
    loops: tuple[_Loop, ...]
    """Around it within its function, outermost first."""

    @property
    def method(self) -> str:
        """The name of the method that is called."""
        return called_name(self.call)

    @property
    def hook(self) -> _Hook | None:
        """What it registers, where that is written in one of its loops."""
        given = self.call.args[0]
        if isinstance(given, ast.Lambda):
            return given
        found: list[_Hook] = []
        name = given.id if isinstance(given, ast.Name) else ""
        for node in _own_nodes(self.loops[:1]):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                found.append(node)
            elif (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Lambda)
                and any(ast.unparse(target) == name for target in node.targets)
            ):
                found.append(node.value)
        return found[0] if len(found) == 1 else None

    def may_be(self, kind: str, name: str) -> bool:
        """Whether a hook of the trace may have been registered by it."""
        if kind not in _KINDS[self.method]:
            return False
        if self.method.startswith("register_full"):
            return name == _OF_MODULES
        given = self.call.args[0]
        if isinstance(given, ast.Lambda):
            return name == LAMBDA
        if isinstance(given, ast.Call) and called_name(given) == "partial":
            return False
        return not isinstance(given, ast.Name | ast.Attribute) or name in {
            ast.unparse(given).rpartition(".")[2],
            LAMBDA,
        }


def read_late(run: RunSteps) -> Iterator[StepFinding]:
    """Registrations of hooks that read a variable of their loop, and ran after it."""
    ran = [(call.kind, call.name.rpartition(".")[2]) for call in run.trace.hook_times()]
    ran = [one for one in ran if any(one[0] in kinds for kinds in _KINDS.values())]
    if not ran or not run.passes:
        return
    sites = [site for file in user_files(run.trace) for site in hook_sites(run, file)]
    passes = [*run.passes[:1], *run.passes[: -_PASSES - 1 : -1]]
    for site in sites:
        hook = site.hook
        kinds = [one for one in dict.fromkeys(ran) if site.may_be(*one)]
        others = [
            each for each in sites if each is not site and any(each.may_be(*k) for k in kinds)
        ]
        if hook is None or not kinds or others:
            continue
        loops = [*_over(run, site, passes)]
        changed = [_changed(run, task, kinds, writes=_writes(hook)) for task in passes]
        nodes = max(changed, key=len)
        tree = tree_of(run.trace, site.file)
        varying = _varying(loops, {node.parameter or "" for node in nodes}, _lists(tree))
        names = [name for name in dict.fromkeys(_free(hook)) if name in varying]
        if names and len(nodes) > 1:
            yield _finding(run, site, hook, names, len(nodes))


def _finding(
    run: RunSteps, site: HookSite, hook: _Hook, names: list[str], count: int
) -> StepFinding:
    line = site.call.func.end_lineno or site.call.lineno
    is_one = len(names) == 1
    loop = next(each for each in reversed(site.loops) if names[0] in _bound(each))
    return StepFinding(
        kind="late binding",
        heading=f"the hooks of this loop all use the last {listed(names)}",
        frame=line_at(run.trace, site.file, line, site.function),
        paragraph=(
            f"What is registered in each turn of the loop in line {loop.lineno} looks"
            f" {listed(names)} up when it is called, in a backward pass: the loop is over then, and"
            f" {listed(names)} {'is' if is_one else 'are'} what the last turn left, for all"
            f" {count:,} hooks that changed a gradient in one pass. Bind"
            f" {'it' if is_one else 'them'} when the function is made:"
            f" {_bound_early(hook, names)}."
        ),
    )


def _bound_early(hook: _Hook, names: Iterable[str]) -> str:
    """The function with what it reads late as defaults."""
    arguments = copy.deepcopy(hook.args)
    for name in names:
        value = ast.Name(name, ast.Load())
        if arguments.vararg is not None or arguments.kwonlyargs:
            arguments.kwonlyargs.append(ast.arg(name))
            arguments.kw_defaults.append(value)
        else:
            arguments.args.append(ast.arg(name))
            arguments.defaults.append(value)
    if isinstance(hook, ast.FunctionDef):
        return f"def {hook.name}({ast.unparse(arguments)})"
    whole = ast.unparse(ast.Lambda(arguments, hook.body))
    return whole if len(whole) <= _LONGEST else f"lambda {ast.unparse(arguments)}: ..."


def hook_sites(run: RunSteps, file: str) -> Iterator[HookSite]:
    """The registrations of a file, in no order."""
    lines = run.trace.source(file)
    if not any(".register_" in line for line in lines):
        return
    waiting: list[tuple[ast.AST, str, tuple[_Loop, ...]]] = [(parsed(lines), "<module>", ())]
    while waiting:
        node, function, loops = waiting.pop()
        if isinstance(node, ast.Call) and called_name(node) in _KINDS and node.args:
            yield HookSite(file, function, node, loops)
        if isinstance(node, _SCOPES):
            function, loops = getattr(node, "name", LAMBDA), ()
        elif isinstance(node, _LOOPS):
            loops = (*loops, node)
        waiting += [(child, function, loops) for child in ast.iter_child_nodes(node)]


def _over(run: RunSteps, site: HookSite, passes: Iterable[GraphTaskRow]) -> Iterator[_Loop]:
    """The loops around a registration that were over when backward was called."""
    lines = {
        frame.line
        for task in passes
        for frame in run.trace.call_site(task.id)
        if frame.file == site.file
    }
    for loop in site.loops:
        inside = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
        if not any(line in inside for line in lines):
            yield loop


def _changed(
    run: RunSteps, task: GraphTaskRow, kinds: Collection[tuple[str, str]], *, writes: bool
) -> list[NodeRow]:
    """The nodes of a pass at which such hooks changed the gradient, or may have in place."""
    found = {
        call.node
        for call in run.trace.hook_calls(task.id)
        if (call.kind, call.name.rpartition(".")[2]) in kinds and (call.changed or writes)
    }
    return [run.trace.node(task.id, node) for node in sorted(found)]


def _own_nodes(roots: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of trees, in the order of the text, but for those inside of functions in them."""
    waiting = [*roots][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += [*ast.iter_child_nodes(node)][::-1]


def _varying(loops: list[_Loop], parameters: set[str], lists: set[str]) -> set[str]:
    """Names that loops bind to something else in each turn, as far as their text shows.

    Args:
        loops: outermost first.
        parameters: names of those whose hooks ran.
        lists: names of lists and the like of several elements.
    """
    if not loops:
        return set()
    heads = [(loop, *head) for loop in loops for head in _heads(loop)]
    turning = [
        (loop, target)
        for number, (loop, target, values) in enumerate(heads, 1)
        if number == len(heads) or _has_turns(values, parameters, lists)
    ]
    found = set().union(*(_bound(target) for _, target in turning))
    for node in _own_nodes([turning[0][0]]):
        if isinstance(node, ast.AugAssign):
            found |= _bound(node.target)
        elif isinstance(node, ast.Assign) and _calls(node.value) & _OTHER_EACH_TIME:
            found |= set().union(*(_bound(target) for target in node.targets))
    given: dict[str, list[_Given]] = {}
    for each in _givens(loops[0]):
        for name in _bound(each.target):
            given.setdefault(name, []).append(each)
    before = -1
    while before != len(found):
        before = len(found)
        found |= {name for name, values in given.items() if _differ(values, found, given.keys())}
    return found


def _heads(loop: _Loop) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop binds, and what it goes through; several of a comprehension."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        return [(loop.target, loop.iter)]
    return [(each.target, each.iter) for each in loop.generators]


def _has_turns(values: ast.expr, parameters: set[str], lists: set[str]) -> bool:
    """Whether a loop through something is known to have had several turns.

    By a list of several elements, or by names of parameters: of several parts of what it names.
    """
    for node in ast.walk(values):
        if _is_list(node) or (isinstance(node, ast.Name) and node.id in lists):
            return True
        if isinstance(node, ast.Attribute):
            begin = "" if node.attr in _PARTS else rf"(?:.*\.)?{re.escape(node.attr)}\."
            parts = {match[1] for name in parameters if (match := re.match(rf"{begin}(\w+)", name))}
            if len(parts) > 1:
                return True
    return False


def _is_list(node: ast.AST) -> bool:
    """Whether an expression is a list or the like of several elements."""
    if isinstance(node, ast.List | ast.Tuple):
        return len(node.elts) > 1
    return isinstance(node, ast.Dict) and len(node.keys) > 1


def _lists(tree: ast.Module) -> set[str]:
    """The names to which a file gives nothing but lists and the like of several elements."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                given.setdefault(ast.unparse(target), []).append(node.value)
    return {name for name, values in given.items() if all(map(_is_list, values))}


def _givens(loop: _Loop) -> Iterator[_Given]:
    """What statements within a loop give to names, outside of functions in it."""
    for node, tests in _with_tests([loop]):
        if isinstance(node, ast.For | ast.AsyncFor) and node is not loop:
            yield _Given(node.target, node.iter, tests)
        elif isinstance(node, ast.Assign):
            yield from (_Given(target, node.value, tests) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield _Given(node.target, node.value, tests)


def _differ(values: Sequence[_Given], varying: set[str], bound: Collection[str]) -> bool:
    """Whether a name gets another value in each turn: by what it is given, or by an if."""
    if any(
        _reads(each.value) & varying
        for each in values
        if not (isinstance(each.value, ast.Attribute) and each.value.attr in _SAME)
    ):
        return True
    is_chosen = any(_reads(test) & varying for each in values for test in each.tests)
    are_several = len({ast.unparse(each.value) for each in values}) > 1
    return is_chosen and (are_several or any(_reads(each.value) & {*bound} for each in values))


def _with_tests(roots: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, tuple[ast.expr, ...]]]:
    """The nodes of trees outside of functions in them, with the tests of the ifs around each."""
    waiting: list[tuple[ast.AST, tuple[ast.expr, ...]]] = [(root, ()) for root in roots]
    while waiting:
        node, tests = waiting.pop()
        yield node, tests
        if isinstance(node, ast.If):
            tests = (*tests, node.test)
        if not isinstance(node, _SCOPES):
            waiting += [(child, tests) for child in ast.iter_child_nodes(node)]


def _bound(target: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _calls(value: ast.expr) -> set[str]:
    return {called_name(node) for node in ast.walk(value) if isinstance(node, ast.Call)}


def _reads(value: ast.expr) -> set[str]:
    return set(_names_read([value]))


def _names_read(roots: Iterable[ast.AST]) -> Iterator[str]:
    """Names that are read, but for those of which only the device or the like is."""
    waiting = [*roots][::-1]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and node.attr in _SAME:
            continue
        if isinstance(node, ast.Call) and called_name(node) in _WRITING:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        waiting += [*ast.iter_child_nodes(node)][::-1]


def _free(hook: _Hook) -> list[str]:
    """Names that a hook reads from around itself for what it gives or writes, in their order."""
    inside = [*ast.walk(hook)]
    own = {node.arg for node in inside if isinstance(node, ast.arg)}
    own |= _bound(hook) - {
        name
        for node in inside
        if isinstance(node, ast.Nonlocal | ast.Global)
        for name in node.names
    }
    body: list[ast.AST] = [hook.body] if isinstance(hook, ast.Lambda) else []
    if isinstance(hook, ast.FunctionDef):
        body += [each for each in hook.body if not _is_aside(each, hook)]
    return [name for name in _names_read(body) if name not in own]


def _is_aside(statement: ast.stmt, hook: ast.FunctionDef) -> bool:
    """Whether a statement notes something, and has no effect on a gradient."""
    if isinstance(statement, ast.Expr):
        return not any(_is_write(node, hook) for node in ast.walk(statement))
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = targets_of(statement)
        kept = [each for each in targets if isinstance(each, ast.Subscript | ast.Attribute)]
        return len(kept) == len(targets) and not _is_write(statement, hook)
    return False


def _writes(hook: _Hook) -> bool:
    """Whether a hook writes in place to what it is given, or lets an optimizer step."""
    return any(_is_write(node, hook) for node in ast.walk(hook))


def _is_write(node: ast.AST, hook: _Hook) -> bool:
    given = {each.arg for each in (*hook.args.posonlyargs, *hook.args.args)}
    if isinstance(node, ast.Assign | ast.AugAssign):
        return any(
            isinstance(target, ast.Subscript | ast.Attribute) and _root(target) in given
            for target in targets_of(node)
        ) or (isinstance(node, ast.AugAssign) and _root(node.target) in given)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        is_in_place = name.endswith("_") and not name.endswith("__")
        return name == "step" or (is_in_place and _root(node.func.value) in given)
    return False


def _root(target: ast.expr) -> str:
    """The variable at the beginning of ``p.grad[0]``; empty: there is none."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
