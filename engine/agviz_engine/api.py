"""What users of the engine call: ``installed()``, ``install()``, ``backward()``, ``grad()``."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.autograd.variable import Variable

from agviz_engine import support

with support.fitting():  # these look for what torch has, and where, when they are imported
    from agviz_engine import native_run, releases, torch_layout
    from agviz_engine.backward_call import native
    from agviz_engine.device_policy import DevicePolicy, real_device
    from agviz_engine.engine import Engine
    from agviz_engine.python_engine import PythonEngine
    from agviz_engine.thread_state import current

__all__ = [
    "DevicePolicy",
    "backward",
    "engine",
    "grad",
    "install",
    "installed",
    "installed_quietly",
    "is_installed",
    "native",
    "probe",
    "uninstall",
]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz_engine.instruments import Instrument

_C = cast("Any", torch._C)
_lock = threading.RLock()


class _Seam(NamedTuple):
    """A name of torch that is looked up at call time, and what replaces it."""

    owner: Any
    name: str
    native: Any
    ours: Any


class _Installation:
    """The one engine of this process, and how often it is installed."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.python_engine: PythonEngine | None = None
        self.depth = 0
        self.seams: list[_Seam] = []

    def get(self) -> PythonEngine:
        if self.python_engine is None:
            probe()
            self.engine = Engine()
            self.python_engine = PythonEngine(self.engine)
            atexit.register(_stop)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_after_fork)
        return self.python_engine


_installation = _Installation()


def probe() -> dict[str, str]:
    """Check once that this torch has all that the engine relies on.

    Returns:
        What was looked for, and where it was found.

    Raises:
        UnsupportedTorchError: it lacks something; the message names it.
    """
    missing = [name for name in _PRIVATE_NAMES if not hasattr(_C, name)]
    if missing:
        raise support.refusal(f"it has no torch._C.{missing[0]}")
    with support.fitting():
        torch_layout.python_hook_vtables()
        metadata = torch_layout.calibrate_metadata()
    return {
        "functions of torch._C": ", ".join(_PRIVATE_NAMES),
        "torch::autograd::Node, in words": ", ".join(
            f"{name} {value}" for name, value in torch_layout.NODE._asdict().items()
        ),
        "torch::autograd::InputMetadata": f"{metadata.stride} words for each input",
        "this release": "; ".join(f"{what}: {how}" for what, how in releases.found().items()),
    }


_PRIVATE_NAMES = (
    "_ImperativeEngine",
    "_FunctionBase",
    "_current_graph_task_id",
    "_current_autograd_node",
    "_get_graph_exec_group",
    "_is_fwd_grad_enabled",
    "_is_multithreading_enabled",
    "_is_view_replay_enabled",
    "_len_torch_dispatch_stack",
    "_set_grad_enabled",
    "_vmapmode_increment_nesting",
    "_vmapmode_decrement_nesting",
    "_will_engine_execute_node",
)


def engine() -> Engine:
    """The engine of this process, made when first asked for.

    Raises:
        UnsupportedTorchError: see :func:`probe`.
    """
    with _lock:
        return _installation.get().engine


def install(
    *instruments: Instrument,
    device_policy: DevicePolicy | None = None,
    nonfinite_check: bool = False,
) -> None:
    """Let torch's own ``backward`` and ``grad`` run on this engine, in all threads.

    Args:
        instruments: observers to add.
        device_policy: maps nodes to device threads; by default the device a node really is on.
        nonfinite_check: look for NaN and Inf in every output; instruments observe what is found.

    Raises:
        UnsupportedTorchError: see :func:`probe`.
    """
    with _lock:
        python_engine = _installation.get()
        ours = python_engine.engine
        ours.device_policy = device_policy or real_device
        ours.nonfinite_check = nonfinite_check
        for instrument in instruments:
            ours.registry.add(instrument)
        _installation.depth += 1
        if _installation.depth == 1:
            _installation.seams = _seams(python_engine)
            for seam in _installation.seams:
                setattr(seam.owner, seam.name, seam.ours)


def uninstall(*instruments: Instrument) -> None:
    """Undo one :func:`install`; the last one gives torch its engine back and ends the threads.

    Args:
        instruments: observers to take out; at the last call all of them go.
    """
    with _lock:
        if _installation.engine is None or _installation.depth == 0:
            return
        registry = _installation.engine.registry
        for instrument in instruments:
            registry.remove(instrument)
        _installation.depth -= 1
        if _installation.depth == 0:
            for seam in _installation.seams:
                setattr(seam.owner, seam.name, seam.native)
            _stop()
            for instrument in registry.instruments:
                registry.remove(instrument)


@contextlib.contextmanager
def installed(
    *instruments: Instrument,
    device_policy: DevicePolicy | None = None,
    nonfinite_check: bool = False,
) -> Iterator[Engine]:
    """:func:`install` for the length of a ``with`` block; the arguments are the same."""
    before = engine().device_policy, engine().nonfinite_check
    install(*instruments, device_policy=device_policy, nonfinite_check=nonfinite_check)
    try:
        yield engine()
    finally:
        uninstall(*instruments)
        engine().device_policy, engine().nonfinite_check = before


def is_installed() -> bool:
    """Whether torch's ``backward`` and ``grad`` run on this engine now."""
    return _installation.depth > 0


def backward(*args: Any, **kwargs: Any) -> None:
    """``torch.autograd.backward`` on this engine, with torch's signature."""
    with installed_quietly():
        torch.autograd.backward(*args, **kwargs)


def grad(*args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad`` on this engine, with torch's signature."""
    with installed_quietly():
        return cast("tuple[Tensor | None, ...]", torch.autograd.grad(*args, **kwargs))


@contextlib.contextmanager
def installed_quietly() -> Iterator[None]:
    """Install with the policy and check as they are, for a single call."""
    ours = engine()
    install(device_policy=ours.device_policy, nonfinite_check=ours.nonfinite_check)
    try:
        yield
    finally:
        uninstall()


def _seams(python_engine: PythonEngine) -> list[_Seam]:
    autograd = _C._autograd
    stand_ins: Sequence[tuple[Any, str, Callable[..., Any]]] = (
        (_C, "_current_graph_task_id", _current_graph_task_id),
        (_C, "_current_autograd_node", _current_autograd_node),
        (_C, "_will_engine_execute_node", _will_engine_execute_node),
        (_C, "_current_graph_task_execution_order", _current_graph_task_execution_order),
        (autograd, "_get_current_graph_task_keep_graph", _get_current_graph_task_keep_graph),
    )
    native_engine = Variable._execution_engine
    seams = [_Seam(Variable, "_execution_engine", native_engine, python_engine)]
    seams += [_Seam(owner, name, getattr(owner, name), ours) for owner, name, ours in stand_ins]
    return seams


def _native(name: str) -> Callable[..., Any]:
    return cast(
        "Callable[..., Any]",
        next(seam.native for seam in _installation.seams if seam.name == name),
    )


def _current_graph_task_id() -> int:
    """Id of the graph task this thread works on, or -1 (``get_current_graph_task_id``)."""
    graph_task = current().current_graph_task
    if graph_task is None:
        return int(_native("_current_graph_task_id")())
    return graph_task.id


def _current_autograd_node() -> Node | None:
    """The node this thread runs, or None (``get_current_node``)."""
    thread = current()
    if thread.current_graph_task is None:
        return cast("Node | None", _native("_current_autograd_node")())
    return None if thread.current_node is None else thread.current_node.node


def _will_engine_execute_node(node: Node) -> bool:
    """Whether the current graph task runs ``node`` (``_will_engine_execute_node``)."""
    graph_task = current().current_graph_task
    if graph_task is None or not isinstance(node, Node):
        return bool(_native("_will_engine_execute_node")(node))
    ref = graph_task.find(node)
    in_graph = ref is not None and (ref.index > 0 or len(graph_task.root_edges) > 1)
    if ref is None or not in_graph:  # torch's nodes_in_graph has no root that nothing leads to
        return False
    if graph_task.exec_info is None:
        return True
    info = graph_task.exec_info[ref.index]
    if ref.is_accumulate_grad and info.captures:
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running "
            "autograd.grad(). This is currently not supported."
        )
    return info.should_execute()


def _current_graph_task_execution_order() -> list[Node]:
    """The order in which the current graph task will run (``..._execution_order``)."""
    graph_task = current().current_graph_task
    if graph_task is None:
        return cast("list[Node]", _native("_current_graph_task_execution_order")())
    return graph_task.execution_order()


def _get_current_graph_task_keep_graph() -> bool:
    """Whether the current graph task keeps its graph (``get_current_graph_task_keep_graph``)."""
    graph_task = current().current_graph_task
    if graph_task is None:
        return bool(_native("_get_current_graph_task_keep_graph")())
    return graph_task.keep_graph or graph_task.history is not None


def _stop() -> None:
    ours = _installation.engine
    if ours is None:
        return

    ours.device_threads.stop(ours.emit.shutdown_task_pushed)
    ours.reentrant_pool.stop()


def _after_fork() -> None:
    """Threads do not survive a fork: forget them, and what they had locked and begun."""
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = threading.RLock()
    native_run.after_fork()
    if _installation.engine is not None:
        _installation.engine.activity.forget()
        _installation.engine.device_threads.forget()
        _installation.engine.reentrant_pool.forget()
