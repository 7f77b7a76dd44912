"""Everything that can happen in a backward pass: one immutable class for each kind of event.

Read this file first. An event carries ids, numbers and short strings only, so that it can be
written down; live tensors travel beside it in :class:`agviz_engine.instruments.Live`.

Events are named tuples: immutable, without ``__dict__``, and already in the form in which a
recorder appends them. All of them start with the same four fields:

``seq``
    Position in the total order of events of this process. It is drawn at the moment the thing
    happens (under the lock that makes it happen, where there is one), so sorting by it gives an
    order that can be replayed, whatever order the instruments were called in.
``time_ns``
    ``time.monotonic_ns()`` at that moment. Events that happen together, as the end of a node and
    the arrival of its outputs, may share one reading of the clock.
``thread``
    Dense id of the engine's thread, in order of first appearance, starting at 0.
``graph_task``
    Id of the GraphTask, in order of creation in this process, starting at 0; -1 where the event
    belongs to none.

``node`` is always the dense index of the node within its graph task, in the order in which
``compute_dependencies`` met it; index 0 is a root. ``queue`` is the device index of the
ReadyQueue: -1 for the queue of the thread that called backward, 0 and up for device threads.
This module imports neither torch nor anything else of the engine.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

CPU_QUEUE = -1
"""``queue`` of the caller's own ReadyQueue (``CPU_DEVICE`` in torch's ``graph_task.h``)."""

GONE_BACK = "GoBack"
"""``error`` of the ``GraphTaskFailed`` of a graph task whose pass went back, and goes on as another
one (:mod:`agviz_engine.rewind`)."""

LEFT_OUT = "left out of the recording"
"""How the ``reason`` of ``Delegated`` begins where nobody wanted to observe a call."""

NO_GRAPH_TASK = -1
"""``graph_task`` of an event that belongs to no GraphTask."""


class GraphTaskBegun(NamedTuple):
    """``Engine::execute`` created a GraphTask."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    parent: int
    """Graph task that was running on this thread (reentrant backward), or -1."""
    parent_node: int
    """Node of ``parent`` in which the reentrant call was made, or -1."""
    reentrant_depth: int
    keep_graph: bool
    create_graph: bool
    accumulate_grad: bool
    """True for ``backward``, False for ``grad``."""
    roots: int
    inputs: int
    """Number of ``inputs=``; 0 means every leaf that is reached."""
    traced: bool = False
    """Whether torch.compile, torch.export or make_fx was tracing: the program did not ask for it,
    and tensors took the place of values."""


class DependenciesComputed(NamedTuple):
    """``Engine::compute_dependencies`` walked the graph; the live view holds its nodes."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    nodes: int
    edges: int


class QueuePush(NamedTuple):
    """A NodeTask entered a ReadyQueue (``ReadyQueue::push``)."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    queue: int
    node: int
    size: int
    """Tasks in the queue after the push."""


class QueuePop(NamedTuple):
    """A NodeTask left a ReadyQueue (``ReadyQueue::pop``)."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    queue: int
    node: int
    size: int
    """Tasks in the queue after the pop."""


class NodeStarted(NamedTuple):
    """``Engine::evaluate_function`` began to work on a node."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int


class NodeFinished(NamedTuple):
    """``Engine::evaluate_function`` has the node's outputs, validated and hooked."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    outputs: int
    """Number of outputs, undefined ones included."""


class NodeFailed(NamedTuple):
    """The node or one of its hooks or checks raised."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    error: str
    """Name of the exception's type."""
    message: str


class NodeSkipped(NamedTuple):
    """A node was taken up but its function was not called."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    reason: str
    """``captured`` (only its incoming gradient was wanted) or ``error`` (its graph task failed)."""


class HookCalled(NamedTuple):
    """One Python hook, or a group of hooks that torch runs in one go, was called."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    kind: str
    """``tensor_pre`` (tensor hooks and retain_grad), ``pre``, ``post`` or
    ``post_accumulate_grad``."""
    name: str
    duration_ns: int
    changed: bool
    """True where the hook replaced the gradient."""


class DependencyDecremented(NamedTuple):
    """A finished node gave its output along one edge (``dependencies_[next] -= 1``)."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    """The consumer, whose count went down."""
    producer: int
    remaining: int


class GradientAccumulated(NamedTuple):
    """A gradient arrived in a slot of a consumer's InputBuffer (``InputBuffer::add``)."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    producer: int
    """Node the gradient came from, or -1 for the gradient given by the caller."""
    slot: int
    """Input number of the consumer."""
    added: bool
    """True where it was added to a gradient already there, False where it was the first."""
    nbytes: int
    """Bytes held by the buffer's slot afterwards; 0 for an undefined gradient."""


class GradientCaptured(NamedTuple):
    """``grad()`` took a node's incoming gradient as its result."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    slot: int
    output_index: int
    """Position in the tuple that ``grad`` returns."""


class LeafAccumulated(NamedTuple):
    """An AccumulateGrad node wrote to its variable's ``.grad``."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int


class NonFiniteChecked(NamedTuple):
    """The non-finite check looked at one output of a node."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    output: int
    nan: int
    """Number of NaN elements; for complex tensors real and imaginary parts count apart."""
    posinf: int
    neginf: int


class SavedTensorsReleased(NamedTuple):
    """``Node::release_variables``: the node dropped what it had saved in the forward."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int


class FinalCallbackQueued(NamedTuple):
    """``Engine::queue_callback``."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    callback: int


class FinalCallbackRun(NamedTuple):
    """A final callback ran in ``GraphTask::exec_post_processing``."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    callback: int
    duration_ns: int


class GraphTaskFinished(NamedTuple):
    """``GraphTask::mark_as_completed_and_run_post_processing`` came to its end."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    executed: int
    """Number of nodes whose function was called."""


class GraphTaskFailed(NamedTuple):
    """The graph task ended with an exception, which the caller of backward gets."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    error: str
    message: str


class WorkerStarted(NamedTuple):
    """A thread took part in the engine for the first time since the instruments changed.

    For device threads this is ``Engine::thread_init``.
    """

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    name: str
    queue: int
    native_id: int
    """Thread id of the operating system."""


class WorkerStopped(NamedTuple):
    """A device thread left ``Engine::thread_main``."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int


class ShutdownTaskPushed(NamedTuple):
    """``ReadyQueue::pushShutdownTask``."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    queue: int


class Delegated(NamedTuple):
    """A whole call was handed to the native engine; nothing of it is visible."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    reason: str


class Intervened(NamedTuple):
    """An instrument changed what happens to a node, as a debugger does when its user says so."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    kind: str
    """``gradient``: an incoming gradient was replaced before the node ran; ``hooks``: its Python
    hooks are not called; ``next``: its queue gives it next, whatever else is in it; ``back``: the
    pass goes on from here a second time. All events of this graph task before that are taken over
    from the first time."""
    slot: int
    """Input number of the gradient; for ``back`` the graph task that the pass was the first time,
    which failed with ``GoBack``; -1 for the other kinds."""


class DelegatedFailed(NamedTuple):
    """The native engine refused the call that was handed to it, or failed in it."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    error: str
    message: str


class InferenceWithdrawn(NamedTuple):
    """A node of the native engine started that was not the next by what was inferred of its queues.

    No push, pop or dependency count of the graph task is inferred from then on.
    """

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    """The node that started."""
    expected: int
    """The node that was inferred to be the next, -1: none was inferred to be ready."""


Event: TypeAlias = (
    GraphTaskBegun
    | DependenciesComputed
    | QueuePush
    | QueuePop
    | NodeStarted
    | NodeFinished
    | NodeFailed
    | NodeSkipped
    | HookCalled
    | DependencyDecremented
    | GradientAccumulated
    | GradientCaptured
    | LeafAccumulated
    | NonFiniteChecked
    | SavedTensorsReleased
    | FinalCallbackQueued
    | FinalCallbackRun
    | GraphTaskFinished
    | GraphTaskFailed
    | WorkerStarted
    | WorkerStopped
    | ShutdownTaskPushed
    | Delegated
    | Intervened
    | DelegatedFailed
    | InferenceWithdrawn
)

EVENT_TYPES: tuple[type[Event], ...] = (
    GraphTaskBegun,
    DependenciesComputed,
    QueuePush,
    QueuePop,
    NodeStarted,
    NodeFinished,
    NodeFailed,
    NodeSkipped,
    HookCalled,
    DependencyDecremented,
    GradientAccumulated,
    GradientCaptured,
    LeafAccumulated,
    NonFiniteChecked,
    SavedTensorsReleased,
    FinalCallbackQueued,
    FinalCallbackRun,
    GraphTaskFinished,
    GraphTaskFailed,
    WorkerStarted,
    WorkerStopped,
    ShutdownTaskPushed,
    Delegated,
    Intervened,
    DelegatedFailed,
    InferenceWithdrawn,
)
"""All kinds, in an order that never changes: a kind's position is its number in trace files."""

INFERRED: frozenset[type[Event]] = frozenset(
    {
        *(QueuePush, QueuePop, DependencyDecremented, GradientAccumulated),
        *(SavedTensorsReleased, GradientCaptured, NodeSkipped, HookCalled),
    }
)
"""What is inferred, not seen, where the native engine is observed
(Note [Observed and inferred] in :mod:`agviz_engine.observe`)."""
