"""Graphs of past backward passes that something keeps alive, so that memory grows."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import (
    ADDING,
    container_name,
    parsed,
    targets_of,
    tree_of,
    with_functions,
)
from agviz.traces.live_graphs import (
    CLOSURE,
    CONTAINER,
    CYCLE,
    GRADIENT,
    LEAST_ALIVE,
    NUMBERED,
    TENSOR,
    is_rising,
)
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.live_graphs import Holder, LiveGraphsLook
    from agviz.traces.reader import Trace

_NEARLY_FULL: Final = 2
"""Times what it holds: a container that can't hold more does not grow on."""

CYCLE_SENTENCES: Final = (
    "The node holds the output, and the output its node: a cycle, which goes only when Python's"
    " garbage collector runs, and not at all while that is off. Keep it by ctx.save_for_backward,"
    " which torch frees after backward."
)
"""What it means that a custom Function keeps its output, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGraphs:
    """Graphs that stay although their backward pass is over."""

    look: LiveGraphsLook
    """The last count of them."""
    holder: Holder | None
    """What keeps most of them; None: nothing was found that does."""
    frame: Frame | None
    """The line to look at."""
    keeps_saved: bool
    """Whether the passes kept what the graphs saved, too (``retain_graph=True``)."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """What keeps how many of them."""
        alive, passes = self.look.alive, self.look.passes
        of = f"all {passes:,}" if alive == passes else f"{alive:,} of {passes:,}"
        graphs = f"the graphs of {of} backward passes before pass {self.look.graph_task}"
        if self.holder is None:
            return f"{graphs} are still alive"
        return f"{self._subject(self.holder)} {graphs}"

    def _subject(self, holder: Holder) -> str:
        name = holder.name or "a tensor"
        if holder.kind == GRADIENT:
            return f".grad of {holder.name or 'a parameter'} keeps alive"
        if holder.kind == CLOSURE:
            return f"the closures of {name} keep alive"
        if holder.kind == CYCLE:
            return f"{name} keeps its output as {holder.what}, and so"
        if NUMBERED in name:
            return f"the tensors {name} keep alive"
        return f"the {holder.what or 'tensor'} {name} keeps alive"

    @property
    def paragraph(self) -> str:
        """What that means, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        freed = "their nodes and what these saved" if self.keeps_saved else "their nodes"
        holder = self.holder
        if holder is None:
            yield (
                f"Memory grows with each step by {freed}. What keeps them was not found: look for"
                " tensors with a graph that outlive a step."
            )
            return
        grows = f"Memory grows with each step by {freed}."
        if holder.kind == TENSOR and NUMBERED in holder.name:
            yield f"Each step keeps one more tensor with its graph, under another number. {grows}"
            yield "Keep .item() or .detach() of it, under one name or in a list with a bound."
        elif holder.kind == TENSOR:
            yield f"Its graph leads back through each of these steps, and gets longer. {grows}"
            yield "Where only its value is needed, keep its .item() or .detach()."
        elif holder.kind == CONTAINER:
            yield f"It holds tensors with their graphs. {grows}"
            if self.look.created:
                yield "With create_graph=True, gradients that hooks are given have graphs, too."
            if holder.what.startswith("lru_cache"):
                yield "Empty it after each step (cache_clear()), or cache what has no graph."
                return
            yield "Put in what .item() or .detach() gives, or empty it after each step."
        elif holder.kind == CYCLE:
            yield f"{CYCLE_SENTENCES} {grows}"
        elif holder.kind == GRADIENT:
            yield (
                "backward(create_graph=True) gives .grad a graph of its own, and parameter and"
                " .grad then hold each other through C++, which Python's garbage collector can't"
                f" free. {grows} Use torch.autograd.grad(..., create_graph=True), or set .grad to"
                " None after each step, the last one too (zero_grad(set_to_none=True))."
            )
        else:
            yield (
                "Each refers to a tensor of the graph that holds the function as a hook: a cycle"
                f" through C++, which Python's garbage collector can't free. {grows} Let the"
                " function use its argument or a detached copy, or remove the hook after the step."
            )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        look = self.look
        yield (
            f"before pass {look.graph_task}: {look.alive:,} of {look.passes:,} graphs alive, of"
            f" {look.alive_steps:,} different optimizer steps of {look.steps:,}"
        )
        if self.holder is not None:
            yield f"{self.holder.reached:,} of them are reached from {self.holder.name or 'it'}"
            yield from (f"at {frame}" for frame in self.holder.stack if not frame.hidden)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "kept_graphs",
            "graph_task": self.look.graph_task,
            "passes": self.look.passes,
            "alive": self.look.alive,
            "holder": None if self.holder is None else self.holder.kind,
            "name": None if self.holder is None else self.holder.name,
            "reached": None if self.holder is None else self.holder.reached,
        }


def kept_graphs(trace: Trace) -> KeptGraphs | None:
    """The graphs that something kept alive when they were counted last; None: not many.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    looks = trace.live_graphs()
    if not looks:
        return None
    last = looks[-1]
    if not last.is_growing and not is_rising(looks):
        return None
    before = (task for task in trace.graph_tasks.outermost if task.id < last.graph_task)
    if last.alive < LEAST_ALIVE * len({task.thread for task in before}):
        return None  # each of several threads has one that it is at
    searched = next((look for look in reversed(looks) if look.is_searched), None)
    holder = None if searched is None else searched.holders[0]
    if holder is not None and searched is not None and 2 * holder.reached < searched.alive:
        holder = None
    if not last.is_growing and (holder is None or holder.kind != GRADIENT):
        return None
    most = _most_held(trace, last, holder)
    if most is not None and most <= _NEARLY_FULL * last.alive:
        return None
    task = trace.graph_tasks.get(last.graph_task)
    return KeptGraphs(
        look=last,
        holder=holder,
        frame=_frame(trace, last, holder),
        keeps_saved=task is not None and task.keep_graph and not task.create_graph,
    )


def _most_held(trace: Trace, look: LiveGraphsLook, holder: Holder | None) -> int | None:
    """How much a container holds at most, where its ``maxlen`` is written as a number."""
    call = visible(trace.call_site(look.graph_task))
    if holder is None or holder.kind != CONTAINER or holder.what != "deque":
        return None
    name = holder.name.rpartition(".")[2]
    for file in dict.fromkeys(each.file for each in (call, visible(holder.stack)) if each):
        for node in ast.walk(tree_of(trace, file)):
            if (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and any(container_name(target) == name for target in targets_of(node))
                and isinstance(node.value, ast.Call)
            ):
                given = {word.arg: word.value for word in node.value.keywords}.get("maxlen")
                if given is None or ast.unparse(given) == "None":
                    return None
                known = given.value if isinstance(given, ast.Constant) else None
                # What is no number is a bound, too, and may be reached.
                return known if isinstance(known, int) else look.alive
    return None


def _frame(trace: Trace, look: LiveGraphsLook, holder: Holder | None) -> Frame | None:
    call = visible(trace.call_site(look.graph_task))
    if holder is None:
        return call
    if holder.kind == GRADIENT:
        tasks = reversed(trace.graph_tasks.outermost.accumulating)
        ids = (task.id for task in tasks if task.create_graph and task.id <= look.graph_task)
        return visible(trace.call_site(next(ids, look.graph_task)))
    made = visible(holder.stack)
    if holder.kind == CONTAINER and call is not None:
        running = [each for each in (call, made) if each is not None]
        functions = {each.function for each in running}
        for file in dict.fromkeys(each.file for each in running):
            lines = list(adding(trace.source(file), holder.name))
            if lines:
                line = next((one for one in lines if one[1] in functions), lines[0])
                return Frame(file, *line, False)
    return made


def adding(source: list[str], name: str) -> Iterator[tuple[int, str]]:
    """Lines and functions in which something is put into a container, as far as its name tells."""
    last = name.rpartition(".")[2]
    for function, node in with_functions(parsed(source)):
        target: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value if node.func.attr in ADDING else None
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0].value
        if target is not None and container_name(target) == last:
            yield getattr(node, "lineno", 1), function
