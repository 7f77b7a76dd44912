"""What the engine is in the midst of on a thread: nodes, their hooks, final callbacks, waits."""

from __future__ import annotations

import functools
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine.events import NO_GRAPH_TASK
from agviz_engine.thread_state import current, threads

if TYPE_CHECKING:
    from agviz_engine.thread_state import Doing

_NO_NODE: Final = -1
_MOST_UNWRAPPED: Final = 100


class Call(NamedTuple):
    """A call that the engine made and that has not returned."""

    kind: str
    """``node``, ``final_callback``, the kind of hook, as ``HookCalled`` has it, ``ready_queue``,
    ``leaving`` or ``stand_in``: a wait for tasks, or for other threads."""
    graph_task: int
    """-1 where a thread of the engine waits between graph tasks."""
    node: int
    """-1 for a final callback, and for a wait outside of nodes."""
    name: str
    """Hook or callback; empty for a node, and where torch calls several hooks in one go."""
    file: str
    """Where that is defined; empty where it was not written in Python."""
    line: int


def calls_of(ident: int) -> list[Call]:
    """The calls under way on a thread, outermost first; empty for one that the engine never saw.

    Args:
        ident: of the thread, as ``threading.get_ident()`` gives it.
    """
    thread = threads.get(ident)
    return [] if thread is None else _calls(thread.doing)


def calls_to(error: BaseException) -> list[Call]:
    """The calls under way on this thread where an exception came from that it handles."""
    thread = current()
    if thread.failing is not None and thread.failing[0] is error:
        return _calls(thread.failing[1])
    return _calls(thread.doing)


def _calls(doing: Doing | None) -> list[Call]:
    calls: list[Call] = []
    while doing is not None:
        doing, kind, graph_task, node, function = doing
        place = NO_GRAPH_TASK if graph_task is None else graph_task.id
        where = ("", "", 0) if function is None else definition(function)
        calls.append(Call(kind, place, _NO_NODE if node is None else node.index, *where))
    return calls[::-1]


def definition(function: Any) -> tuple[str, str, int]:
    """Name, file and line of what is called, found without running any code of the program.

    File and line are empty and 0 where it was not written in Python.
    """
    for _ in range(_MOST_UNWRAPPED):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType) and "__wrapped__" in function.__dict__:
            function = function.__dict__["__wrapped__"]
        else:
            break
    if isinstance(function, FunctionType):
        return function.__name__, function.__code__.co_filename, function.__code__.co_firstlineno
    if isinstance(function, BuiltinFunctionType):
        return function.__qualname__, "", 0
    kind = type(function)
    call = kind.__dict__.get("__call__")
    if isinstance(call, FunctionType):
        code = call.__code__
        return f"{kind.__name__}.__call__", code.co_filename, code.co_firstlineno
    return kind.__name__, "", 0
