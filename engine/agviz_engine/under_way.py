"""What the engine is in the midst of on a thread: nodes, their hooks, final callbacks.

Note [Read from the frames]
Nothing is noted down while a pass runs. Who wants to know reads the engine's frames from another
thread: node and hook are variables there, so that a hook which never returns is seen, and one that
does return costs nothing. Python 3.11 and 3.12 keep a copy of the variables that were read, and
with it the gradients among them; it is emptied at once.
"""

from __future__ import annotations

import functools
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine import function_hook, native_run
from agviz_engine.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

NODE: Final = "node"
FINAL_CALLBACK: Final = "final_callback"
_MOST_UNWRAPPED: Final = 100


class Call(NamedTuple):
    """A call that the engine made and that has not returned."""

    kind: str
    """``node``, ``final_callback``, or the kind of hook, as ``HookCalled`` has it."""
    graph_task: int
    node: int
    """-1 for a final callback."""
    name: str
    """Of the hook or callback; empty for a node, and where torch calls several hooks in one go."""
    file: str
    """Where that is defined; empty where it was not written in Python."""
    line: int


def under_way(innermost: FrameType) -> list[Call]:
    """The calls under way on a thread, outermost first.

    Args:
        innermost: the frame in which the thread is, of ``sys._current_frames()``.
    """
    frames = []
    frame: FrameType | None = innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    calls: list[Call] = []
    for frame in reversed(frames):
        read = _READERS.get(frame.f_code)
        found = None if read is None else read(_Variables(frame), calls)
        if found is not None:
            calls.append(found)
    return calls


class _Variables:
    """The variables of a frame, without holding them."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        """The value, or None where the variable is not bound."""
        variables = self._frame.f_locals
        try:
            return variables.get(name)
        finally:
            if type(variables) is dict:
                variables.clear()


def _node(variables: _Variables, _calls: list[Call]) -> Call | None:
    task, ref = variables["graph_task"], variables["ref"]
    return Call(NODE, task.id, ref.index, "", "", 0)


def _final_callback(variables: _Variables, _calls: list[Call]) -> Call | None:
    task, index = variables["graph_task"], variables["index"]
    if index is None or index >= len(task.final_callbacks):
        return None
    return Call(FINAL_CALLBACK, task.id, -1, *definition(task.final_callbacks[index]))


def _told(variables: _Variables, calls: list[Call]) -> Call | None:
    told = variables["self"]
    return _hook(calls, told.kind, told.hook)


def _tensor_pre_hook(variables: _Variables, calls: list[Call]) -> Call | None:
    return _hook(calls, "tensor_pre", variables["hook"])


def _pre_or_post_hook(variables: _Variables, calls: list[Call]) -> Call | None:
    return _hook(calls, variables["kind"], variables["hook"])


def _post_accumulate_grad_hook(variables: _Variables, calls: list[Call]) -> Call | None:
    return _hook(calls, "post_accumulate_grad", variables["hook"])


def _native_tensor_hooks(_variables: _Variables, calls: list[Call]) -> Call | None:
    return calls[-1]._replace(kind="tensor_pre") if calls else None


def _hook(calls: list[Call], kind: str, hook: Callable[..., Any] | None) -> Call | None:
    if hook is None or not calls:
        return None
    return Call(kind, calls[-1].graph_task, calls[-1].node, *definition(hook))


_READERS: Final[dict[CodeType, Callable[[_Variables, list[Call]], Call | None]]] = {
    Engine.evaluate_function.__code__: _node,
    Engine.exec_post_processing.__code__: _final_callback,
    function_hook.call_tensor_pre_hooks.__code__: _tensor_pre_hook,
    function_hook.call_hooks.__code__: _pre_or_post_hook,
    function_hook.call_post_accumulate_grad_hooks.__code__: _post_accumulate_grad_hook,
    function_hook.Told.__call__.__code__: _told,
    native_run.capture.__code__: _native_tensor_hooks,
}


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
