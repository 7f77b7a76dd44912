"""Tensors that are stored in each pass and never taken out, and graphs no pass went through."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import (
    ADDING,
    called_name,
    container_name,
    elements,
    nodes_beside,
    only_call,
    takes_from,
    targets_of,
    tree_of,
    user_files,
    with_functions,
)
from agviz.analysis.kept_graphs import CYCLE_SENTENCES, adding
from agviz.traces.live_graphs import (
    CLOSURE,
    CYCLE,
    CYCLED,
    EXCEPTIONS,
    KEYS,
    LONGER,
    STATE,
    STORED,
    STORED_GRAPHS,
)
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.live_graphs import Holder, LiveGraphsLook
    from agviz.traces.reader import Trace

_MEANS: Final = {
    LONGER: "It is made of its own value of the step before, with that one's graph, so memory grows"
    " with each step. Where only its value is needed, compute it under torch.no_grad(), or from"
    " .detach().",
    CYCLE: CYCLE_SENTENCES,
    STATE: "{:,} parameters were replaced in its param_groups, and their states stayed in"
    " optimizer.state, which keeps each old tensor and its averages: memory grows with each"
    " replacement. Take them out: optimizer.state.pop(old).",
    CYCLED: "It keeps all that it has given, to give the same again: memory grows until the first"
    " round is over, and after it no batch is shuffled or augmented anew. Write a generator"
    " instead: while True: yield from loader.",
    EXCEPTIONS: "An exception keeps its traceback, and with it all variables of the functions that"
    " it left, here with their graphs. Keep str(error) instead, or error.with_traceback(None).",
    KEYS: "A dict finds tensors by identity, not by value: a new tensor never finds what was stored"
    " for an equal one, so that an entry is added each time, and computed anew. Take a number as"
    " the key: int(n), n.item(), or tuple(n.tolist()).",
    STORED_GRAPHS: "Each holds its graph and what that saved, so memory grows with each step. Put"
    " in what .detach() or .item() gives, compute it under torch.no_grad() where no gradient is"
    " needed, or empty it after each step.",
    STORED: "So memory grows with each step. Empty it after each step, take out what has been"
    " used, or keep a number (.norm().item()) or the last one only.",
}
"""What it means, and what to do, by kind or container."""
_NUMBERS: Final = frozenset({"item", "float", "int", "len", "tolist", "numpy", "detach"})
"""Calls that give something without a graph."""
_TAKING: Final = frozenset({"pop", "popleft", "popitem", "clear", "remove", "get", "get_nowait"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensors:
    """What became more with each pass."""

    look: LiveGraphsLook
    """The last count."""
    holder: Holder
    frame: Frame | None
    """The line to look at."""
    is_hook: bool
    """Whether a hook puts it in."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """What holds what."""
        holder, task = self.holder, self.look.graph_task
        if holder.kind == LONGER:
            return (
                f"the graph of {holder.name} gets longer with each pass: {holder.reached:,} nodes"
                f" more in the last {self._passes:,} passes before pass {task}"
            )
        if holder.kind == CYCLE:
            return (
                f"{holder.name} keeps its output as {holder.what}: more of them are alive in each"
                f" pass, up to pass {task}"
            )
        if holder.kind == STATE:
            return f"{holder.name} keeps states of parameters that the optimizer no longer holds"
        graphs = " with graphs" if holder.kind == STORED_GRAPHS else ""
        what = f"the {holder.what} " if holder.what not in {"", CYCLED} else ""
        is_often = 4 * holder.reached >= self.look.passes  # a half of that, in the last half
        often = "with each pass" if is_often else "now and then"
        return f"{what}{holder.name} keeps more tensors{graphs} {often}, up to pass {task}"

    @property
    def _passes(self) -> int:
        return self.look.passes // 2

    @property
    def paragraph(self) -> str:
        """What that means, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        kind, what = self.holder.kind, self.holder.what.rpartition(" ")[2]
        is_put = (what not in _MEANS and kind in {STORED, STORED_GRAPHS}) or what == EXCEPTIONS
        if is_put and self.is_hook:
            yield "A hook puts them in in each pass, and nothing takes them out."
        elif is_put:
            yield "They are put in again and again, and nothing takes them out."
        yield (_MEANS.get(what) or _MEANS[kind]).format(self.holder.reached)

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield (
            f"before pass {self.look.graph_task}: {self.holder.reached:,} more than"
            f" {self._passes:,} passes before"
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "stored_tensors",
            "holder": self.holder.kind,
            "name": self.holder.name,
            "more": self.holder.reached,
            "graph_task": self.look.graph_task,
        }


def stored_tensors(trace: Trace) -> StoredTensors | None:
    """What became more with each pass up to the last count, and nothing tells that it is meant to.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    counted = [look for look in trace.live_graphs() if look.is_counted]
    holder = counted[-1].growing if counted else None
    made = None if holder is None else visible(holder.stack)
    if holder is None or holder.kind == CLOSURE or _is_summed_up(trace, holder, made):
        return None
    look = counted[-1]
    if holder.what == CYCLED:
        made = only_call(trace, "cycle")
    if holder.kind in {LONGER, CYCLE} or holder.what == CYCLED:
        return StoredTensors(look=look, holder=holder, frame=made, is_hook=False)
    lines = [
        (Frame(file, line, function, False), tree_of(trace, file))
        for file in user_files(trace)
        for line, function in adding(trace.source(file), holder.name)
        if holder.kind != STATE or ".state[" in trace.source(file)[line - 1]
    ]
    name = holder.name.rpartition(".")[2]
    is_hook = any(_is_in_hook(tree, frame) for frame, tree in lines)
    is_kept = holder.kind == STORED and not holder.what.endswith(KEYS)
    for tree in {id(tree): tree for _, tree in lines}.values():
        if (
            any(takes_from(node, name, _TAKING) for node in ast.walk(tree))
            or _times_made(tree, holder.name) > 1
        ):
            return None
        if is_kept and _is_read(tree, name):
            return None
    is_meant = is_kept and not is_hook  # as outputs that are collected on purpose
    if is_meant or not (lines or made or holder.kind == STATE):
        return None
    graphs = [frame for frame, tree in lines if not _adds_numbers(tree, frame.line)]
    frame = (graphs or [lines[0][0]])[0] if lines else made
    return StoredTensors(look=look, holder=holder, frame=frame, is_hook=is_hook)


def _is_summed_up(trace: Trace, holder: Holder, made: Frame | None) -> bool:
    """Whether a loop makes a sum whose function calls ``backward`` on it when the loop is over."""
    if holder.kind != LONGER or made is None:
        return False
    inside = nodes_beside(trace, made)
    loops = [
        loop
        for loop in inside
        if isinstance(loop, ast.For | ast.While)
        and loop.lineno <= made.line <= (loop.end_lineno or 0)
    ]
    around = set(ast.walk(loops[-1])) if loops else set()  # the innermost is the last
    called = [
        node
        for node in inside
        if isinstance(node, ast.Call)
        and called_name(node) == "backward"
        and holder.name in _mentioned([node.func])
    ]
    return bool(around and called) and around.isdisjoint(called)


def _adds_numbers(tree: ast.Module, line: int) -> bool:
    """Whether a line puts in only what has no graph: numbers, copies, variables of a loop."""
    counted = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.For)
        for target in elements(node.target)
        if isinstance(target, ast.Name)
    }
    added = [
        value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno == line and called_name(node) in ADDING
        for value in node.args
    ]
    return bool(added) and all(
        called_name(value) in _NUMBERS
        if isinstance(value, ast.Call)
        else isinstance(value, ast.Constant) or getattr(value, "id", "") in counted
        for value in added
    )


def _times_made(tree: ast.Module, name: str) -> int:
    """How often a variable, or an attribute of ``Class.attribute``, is given a value."""
    owner, _, name = name.rpartition(".")
    targets = (
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for each in targets_of(node)
        for target in elements(each)
    )
    return sum(
        isinstance(target, ast.Attribute if owner else ast.Name) and container_name(target) == name
        for target in targets
    )


def _is_read(tree: ast.Module, name: str) -> bool:
    """Whether something reads a container as a whole, and not by key or place."""
    harmless = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ADDING:
            harmless.add(id(node.value))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len":
            harmless.update(map(id, node.args))
        elif isinstance(node, ast.Subscript):
            harmless.add(id(node.value))
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and container_name(node) == name
        and id(node) not in harmless
        for node in ast.walk(tree)
    )


def _is_in_hook(tree: ast.Module, frame: Frame) -> bool:
    """Whether a line is in a function that is registered as a hook, as far as names tell."""
    around = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
    }
    for _, node in with_functions(tree):
        if not isinstance(node, ast.Call):
            continue
        called = container_name(node.func)
        is_registering = called.startswith("register") and called.endswith("hook")
        if not (is_registering or called in {"saved_tensors_hooks", "__init__"}):
            continue
        if node.lineno <= frame.line <= (node.end_lineno or node.lineno):
            return True
        if around & _mentioned(node.args):
            return True
    return False


def _mentioned(values: Sequence[ast.expr]) -> set[str]:
    found = (each for value in values for each in ast.walk(value))
    return {container_name(each) for each in found if isinstance(each, ast.Name | ast.Attribute)}
