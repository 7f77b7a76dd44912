"""What belongs to a thread: the thread-locals of the engine."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch

from agviz_engine.events import CPU_QUEUE
from agviz_engine.ready_queue import InferredQueue, ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from agviz_engine.graph_task import GraphTask
    from agviz_engine.instruments import Live
    from agviz_engine.node import NodeRef

_C = cast("Any", torch._C)
NO_DEVICE = -2
"""``worker_device`` of a thread that is in no backward (``NO_DEVICE`` in ``graph_task.h``)."""

next_thread: Callable[[], int] = itertools.count().__next__
_next_stretch: Callable[[], int] = itertools.count(1).__next__
stretch = [0]
"""Number of the stretch of time under way in which no Python code of the program runs."""


def program_ran() -> None:
    """Begin a new stretch: code of the program ran, which may write past a tensor's version."""
    stretch[0] = _next_stretch()


NODE: Final = "node"
FINAL_CALLBACK: Final = "final_callback"
READY_QUEUE: Final = "ready_queue"
"""The thread waits for a task."""
LEAVING: Final = "leaving"
"""The thread that called backward waits for device threads to leave the graph task."""
STAND_IN: Final = "stand_in"
"""The thread waits for one of the pool that takes its place."""


Doing: TypeAlias = (
    "tuple[Doing | None, str, GraphTask | None, NodeRef | None, Callable[..., Any] | None]"
)
"""What the engine does on a thread: what it is in the midst of; one of the constants above or the
kind of hook, as ``HookCalled`` has it; graph task; node; the hook or callback, None where torch
calls several hooks in one go. A plain tuple: one is made for every node."""


Handler: TypeAlias = "Callable[[int, FrameType | None], Any]"
"""Of a signal."""


class EngineThread:
    """The ``thread_local`` variables of ``engine.cpp``, under their names, for one thread."""

    __slots__ = (
        "__weakref__",
        "announced",
        "around",
        "checkpoint_valid",
        "current_graph_task",
        "current_node",
        "doing",
        "failing",
        "hosts",
        "inferred_queue",
        "interrupts",
        "live",
        "local_ready_queue",
        "outer_checkpoint_valid",
        "passes",
        "thread_id",
        "total_depth",
        "worker_device",
    )

    def __init__(self) -> None:
        self.thread_id = -1
        """Dense id used in events; -1 until the thread takes part for the first time."""
        self.worker_device = NO_DEVICE
        self.checkpoint_valid = True
        self.outer_checkpoint_valid = True
        """``checkpoint_valid`` outside of the graph task."""
        self.total_depth = 0
        self.hosts = 0
        """Nested native graph tasks in which ours run, see Note [Hosted graph tasks]."""
        self.passes = 0
        """Passes of this thread (:class:`~agviz_engine.accumulate_grad.Activity`)."""
        self.current_graph_task: GraphTask | None = None
        self.current_node: NodeRef | None = None
        self.local_ready_queue: ReadyQueue[GraphTask] = ReadyQueue(CPU_QUEUE)
        self.inferred_queue: InferredQueue[GraphTask] = InferredQueue(CPU_QUEUE)
        """What torch's own ``local_ready_queue`` holds while its engine is observed."""
        self.live: Live | None = None
        self.interrupts: list[tuple[int, Handler]] = []
        """Signals that are held back, and the program's handlers, see Note [Interrupts]."""
        self.announced = 0
        """Generation of the registry that this thread was last announced to."""
        self.doing: Doing | None = None
        """What the engine is in the midst of here, for whoever looks from another thread. One
        assignment a node and two a hook: a hook that never returns is seen. Where something raises
        it stays until the node has failed."""
        self.around: Doing | None = None
        """What the graph task under way here was called in the midst of."""
        self.failing: tuple[BaseException, Doing | None] | None = None
        """The exception that ends graph tasks here, and where it came from; None once the outermost
        has ended."""

    def enter(self, kind: str, function: Callable[..., Any] | None = None) -> Doing | None:
        """Call a hook of the node under way, or wait, from now on.

        Returns:
            What to set :attr:`doing` to afterwards.
        """
        outer = self.doing
        graph_task, node = (None, None) if outer is None else outer[2:4]
        self.doing = outer, kind, graph_task, node, function
        return outer

    def failed(self, error: BaseException) -> None:
        """Remember where ``error`` came from, unless it comes from a graph task inside."""
        if self.failing is None or self.failing[0] is not error:
            self.failing = error, self.doing

    @contextlib.contextmanager
    def outside_call_function(self) -> Iterator[None]:
        """Let checkpointing be as valid as around the graph task.

        Torch's ``CheckpointValidGuard`` is in ``call_function`` only: hooks of a tensor whose
        gradient is captured, and final callbacks, are called without it.
        """
        inside, self.checkpoint_valid = self.checkpoint_valid, self.outer_checkpoint_valid
        try:
            yield
        finally:
            self.checkpoint_valid = inside


threads: Final[weakref.WeakValueDictionary[int, EngineThread]] = weakref.WeakValueDictionary()
"""By ``threading.get_ident()``, the threads that the engine has seen."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = threads[threading.get_ident()] = EngineThread()


here: Final = _Local()
"""``here.thread`` is what :func:`current` gives, without a call."""


def current() -> EngineThread:
    """The variables of this thread; a loop asks once and keeps them."""
    return here.thread


@contextlib.contextmanager
def waiting_for_task() -> Iterator[None]:
    """This thread waits at its ready queue."""
    thread = current()
    doing = thread.enter(READY_QUEUE)
    try:
        yield
    finally:
        thread.doing = doing


_TRACING = {"ProxyTorchDispatchMode", "FunctionalTensorMode", "FakeTensorMode"}


def is_traced() -> bool:
    """Whether torch.compile, torch.export or make_fx traces what this thread does."""
    stack = map(_C._get_dispatch_stack_at, range(_C._len_torch_dispatch_stack()))
    return any(type(mode).__name__ in _TRACING for mode in stack)
