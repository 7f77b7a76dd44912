"""What a trace contains: plain immutable rows, free of SQL, torch and live objects.

All times are ``time.monotonic_ns()`` of the recorded process, as in the events; subtract
:attr:`Meta.start_ns` for the time since the recording began. All sizes are bytes. Strings hold no
control characters: the reader replaced them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.measure.values import Health


LEAF: Final = "AccumulateGrad"
"""Short name of the nodes that write to ``.grad``."""


Shape: TypeAlias = tuple[int, ...]
"""Sizes of a tensor."""


class NodeStatus(StrEnum):
    """How far a node has come in its graph task."""

    WAITING = "waiting"
    """Dependencies are missing; at the end of a graph task: it was never reached."""
    READY = "ready"
    """In a ReadyQueue."""
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """Taken up, but its function was not called."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Its events were left out of the recording (``nodes=``); or it has not started, and inference
    was withdrawn: see :attr:`GraphTaskRow.withdrawn_seq`."""


class QueuedTask(NamedTuple):
    """A NodeTask in a ReadyQueue."""

    graph_task: int
    node: int


class QueueContents(NamedTuple):
    """One ReadyQueue."""

    queue: int
    """Device index, or -1 for the queue of a thread that calls backward."""
    thread: int | None
    """The thread that owns a queue -1; None for device queues."""
    tasks: Sequence[QueuedTask]
    """In the order in which they would be popped."""
    is_known: bool = True
    """False where inference was withdrawn in a graph task that uses it: what it holds then, and how
    many, is unknown but for the ``tasks`` of others."""


class GraphTaskStatus(StrEnum):
    """How a graph task ended."""

    RUNNING = "running"
    """The recording still grows and the graph task has not ended."""
    FINISHED = "finished"
    FAILED = "failed"
    CUT = "cut"
    """The recording ended before the graph task did."""
    WENT_BACK = "went back"
    """A debugger had it go back to an earlier node; it ran on as the next graph task."""


class Rank(NamedTuple):
    """Which of how many processes a recording is of."""

    number: int
    world_size: int
    local_rank: int | None
    """None: not known."""
    host: str
    boot: str
    """Distinguishes hosts by their last start: processes with the same one have one monotonic
    clock; empty where the system gives none."""
    backend: str
    """Of the default process group, like ``gloo``; empty: it was never made."""


class Meta(NamedTuple):
    """What was recorded, by what. Nothing here names the machine, but for ``rank.host``."""

    script: str
    """The script as it was called, or ``-m module``; empty where unknown."""
    argv: tuple[str, ...]
    """Its arguments, without the script."""
    pid: int
    started_unix_ns: int
    """Wall clock at the start of the recording, ns since 1970."""
    start_ns: int
    """``time.monotonic_ns()`` at the start of the recording: the zero of all times."""
    end_ns: int | None
    """``time.monotonic_ns()`` when the recording was closed; None: cut off, or still growing."""
    python: str
    torch: str
    """Version; empty where torch was not imported when the recording began."""
    agviz: str
    engine: str
    """``exact``: agviz's own, all of which is seen; ``native``: torch's, observed, with events that
    are inferred (:data:`agviz_engine.events.INFERRED`); empty: none was at work yet."""
    choice: str
    """What was recorded where not all was, in words; empty where everything was."""
    thinned: str
    """Which backward passes were recorded of so many that the others were left out: ``the first 50
    and then 8 of each 1024``; empty: all."""
    check_forward: bool
    """Whether the torch functions were recorded that the program called."""
    values: str
    """What was recorded of gradients: ``none``, ``health`` or ``full``."""
    values_stopped: str
    """Why, of later gradients, only the health was recorded; empty where that did not happen."""
    stopped: str
    """Why the recording stopped before its end (disk full, …); empty where it did not."""
    ended: str
    """The exception that ended the program, or the block that was recorded; empty: none did."""
    rank: Rank | None
    """Which process of a distributed program it was; None: of none."""
    end_unix_ns: int | None
    """Wall clock when the recording was closed, ns since 1970; None: cut off, or still growing."""

    @property
    def partial(self) -> bool:
        """Whether some graph tasks, or the events of some nodes, were left out on purpose."""
        return bool(self.choice)


class GraphTaskRow(NamedTuple):
    """One GraphTask: one call of backward or grad."""

    id: int
    parent: int
    """Graph task in whose node this one was started (reentrant backward), or -1."""
    parent_node: int
    reentrant_depth: int
    keep_graph: bool
    create_graph: bool
    accumulate_grad: bool
    """True for ``backward``, False for ``grad``."""
    roots: int
    inputs: int
    """Number of ``inputs=``; 0 means every leaf that is reached."""
    thread: int
    """Thread that called backward."""
    nodes: int
    edges: int
    """Both 0 until the dependencies are computed."""
    begin_seq: int
    """``seq`` of its GraphTaskBegun."""
    begin_ns: int
    end_seq: int | None
    """``seq`` of its GraphTaskFinished or GraphTaskFailed; None: it did not end."""
    end_ns: int | None
    status: GraphTaskStatus
    error: str
    """Type name of the exception it failed with, or empty."""
    message: str
    executed: int
    """Number of nodes whose function was called; for a graph task that did not finish, the number
    of nodes that finished."""
    traced: bool = False
    """Whether torch.compile, torch.export or make_fx was tracing: the program did not ask for it,
    and tensors took the place of values."""
    withdrawn_seq: int | None = None
    """``seq`` of its InferenceWithdrawn, from which on nothing is known of queues and dependencies;
    None: there is none."""

    def knows_queues(self, seq: int) -> bool:
        """Whether what is in the queues, and what a node waits for, is known after an event."""
        return self.withdrawn_seq is None or seq < self.withdrawn_seq

    @property
    def last_seq(self) -> int:
        """No node of it does anything after the event with this ``seq``.

        Where it failed, other threads may go on with theirs, and nothing says for how long.
        """
        if self.end_seq is None or self.status is not GraphTaskStatus.FINISHED:
            return 2**63 - 1
        return self.end_seq


class ThreadRow(NamedTuple):
    """One thread of the recorded process that took part in the engine."""

    id: int
    name: str
    queue: int
    """Device index of the ReadyQueue it serves, -1 for a thread that calls backward."""
    native_id: int
    """Thread id of the operating system, 0 where unknown."""


class NonFiniteCounts(NamedTuple):
    """Numbers of non-finite elements, summed over the outputs of a node."""

    nan: int
    posinf: int
    neginf: int


class Frame(NamedTuple):
    """One frame of a stack of Python."""

    file: str
    """Relative to the folder the program ran in, or to where Python found it; else absolute."""
    line: int
    function: str
    hidden: bool
    """Whether it belongs to torch, agviz, pytest or the standard library."""
    source: str = ""
    """Text of the line, without indentation; empty where that was not recorded."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def visible(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code; None where there is none."""
    return next((frame for frame in reversed(stack) if not frame.hidden), None)


class SavedRow(NamedTuple):
    """A tensor that a node had saved for its backward when the dependencies were computed."""

    node: int
    name: str
    """As in torch's ``_saved_<name>``, e.g. ``mat2``; ``tensors[0]`` of a list."""
    shape: tuple[int, ...] | None
    """None: not known, as where a hook packed it."""
    dtype: str
    """E.g. ``float32``; empty where not known."""
    nbytes: int | None
    """Bytes of its elements; tensors that share memory count each. None: not known."""


class SavedHealthRow(NamedTuple):
    """What a node had saved that put out a non-finite gradient though all it got were finite."""

    node: int
    name: str
    """As in torch's ``_saved_<name>``, e.g. ``self``; ``tensors[0]`` of a list."""
    parameter: str
    """Name of the parameter that it is; empty where it is none, or none that is known."""
    value: str | None
    """What was saved is no tensor: its text, e.g. ``0.5`` for an exponent. None: it is a tensor."""
    health: Health | None
    """Its elements when the node had run; ``health.unknown`` says why they were not looked at. None
    where it is no tensor."""


class LeafNorm(NamedTuple):
    """The gradient of a leaf after a backward pass."""

    graph_task: int
    node: int
    parameter: str
    """Empty: it has no name."""
    norm: float
    """Euclidean norm; NaN where some element is not finite."""
    text: int
    """Id of the name; 0: it has none."""


class ParameterRow(NamedTuple):
    """A parameter whose name was known when the dependencies of a graph task were computed."""

    name: str
    shape: tuple[int, ...] | None
    """None: not known (nested, symbolic, not made yet)."""
    dtype: str
    """E.g. ``float32``."""
    requires_grad: bool
    had_grad: bool
    """Whether its ``.grad`` was there before the graph task began."""
    node: int | None
    """Its AccumulateGrad in the graph task; None: the graph task does not reach it."""
    norm: float | None = None
    """Its own Euclidean norm when it was first known; None: not measured, or not finite."""


class ForwardTensorRow(NamedTuple):
    """A tensor that a torch function took or gave back, as it was then."""

    place: str
    """Its place: number of the argument, or its name, ``0[3]`` in a list; ``""`` for the only
    result. Among outputs the place of an argument in parentheses, ``(0)``, marks one that the
    function changed without giving it back; ``(gates)`` what an LSTM works out inside."""
    tensor: int
    """Number of the tensor in order of first appearance: equal for one and the same tensor only."""
    memory: int
    """Number of its storage: equal for tensors that share memory; -1: it has none."""
    version: int | None
    """``tensor._version``; None: it has none (inference mode)."""
    parameter: str
    """Name of the parameter that it is; empty where it is none, or none that is known."""
    shape: tuple[int, ...] | None
    """None: not known."""
    dtype: str
    requires_grad: bool
    is_leaf: bool
    health: Health | None
    """Health of outputs, and of inputs that no earlier row describes (data, parameters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOpRow:
    """One torch function that the program called."""

    id: int
    """In order of calls, from 0."""
    time_ns: int
    """When it was called."""
    thread: int
    name: str
    """As users write it: ``torch.sqrt``, ``Tensor.add_``, ``Tensor.data.__get__``,
    ``torch.nn.functional.softmax``; the class of a custom Function: ``Exp.apply``."""
    arguments: str
    """Its arguments in a few words: ``tensor, 0.5, dim=-1``; empty where there are only tensors."""
    module: str | None
    """Path of the innermost module in whose forward it was called."""
    stack: tuple[Frame, ...]
    """Where it was called, outermost frame first, hidden ones included."""
    grad_enabled: bool
    graph_task: int
    """The next graph task that began, or in which it was called; -1: none did."""
    recomputed_in: int
    """Graph task during which it was called: by the recomputation of ``torch.utils.checkpoint``, by
    a hook or by a custom Function's backward; -1: in none."""
    sequence_nr: int | None
    """Number of the node that its first differentiable output has got; None: it made none."""
    sequence_nrs: range
    """Numbers of all nodes that it made; empty: none. Threads number theirs independently."""
    error: str
    """Type of the exception it raised; empty where it returned."""
    inputs: tuple[ForwardTensorRow, ...]
    """As they were before the call."""
    outputs: tuple[ForwardTensorRow, ...]
    """What it gave back, and the arguments that it changed, as they were after the call. Of an
    in-place function the same ``tensor`` is here and among ``inputs``, with another ``version``."""

    @property
    def frame(self) -> Frame | None:
        """The innermost frame of the user's code that called it; None where not known."""
        return visible(self.stack)

    @property
    def line(self) -> str | None:
        """The place in a few words: ``train.py:42 in forward``."""
        return None if self.frame is None else str(self.frame)


class VersionErrorRow(NamedTuple):
    """A saved tensor that a node could not use: it had been modified by an inplace operation."""

    node: int
    name: str
    """As in torch's ``_saved_<name>``, e.g. ``result``; ``tensors[0]`` of a list;
    empty where several fit."""
    shape: tuple[int, ...] | None
    """None: not known."""
    dtype: str
    version: int
    """When the node ran."""
    expected: int
    """When the node saved it."""
    parameter: str
    """Name of the parameter that it is or shares memory with; empty where there is none."""
    memory: int
    """As in :class:`ForwardTensorRow`; -1: not known."""


class NativeCallRow(NamedTuple):
    """A call of backward or grad that was handed to torch's own engine."""

    seq: int
    """``seq`` of its Delegated."""
    time_ns: int
    graph_task: int
    """The last that had begun before; -1: none."""
    reason: str
    """Why it was handed over."""
    error: str
    """Type of the exception; empty: it returned."""
    message: str
    grad_enabled: bool
    """Whether gradients were on at the call."""
    stack: tuple[Frame, ...]
    """Stack of the call, outermost frame first; empty where it did not fail."""
    disabled: tuple[Frame, ...]
    """Where gradients had been turned off; empty where they were not, or it is not known."""


class RootRow(NamedTuple):
    """A tensor that backward or grad was called on."""

    graph_task: int
    number: int
    """Among those of the call."""
    health: Health


class OptimizerStepRow(NamedTuple):
    """A step of an optimizer."""

    number: int
    """In order of time, from 0."""
    begin_ns: int | None
    """When it was called, a ``time.monotonic_ns()``; None: before the recording began."""
    time_ns: int
    """When it returned."""
    thread: int
    """On which it was called."""
    graph_task: int
    """The last outermost graph task that had begun; -1: none."""
    optimizer: str
    """Name of its class."""
    is_guarded: bool
    """Whether a GradScaler had lent it ``found_inf``: it changes nothing where that is not 0."""
    sequence_nr: int | None
    """Of the next node that its thread makes after it: nodes with lower ones are older. None: not
    known."""


class DumpedCall(NamedTuple):
    """A node, hook or final callback that a thread was in the midst of."""

    kind: str
    """``node``, ``final_callback``, or the kind of hook, as in :class:`HookTime`."""
    graph_task: int
    node: int
    """-1: a final callback."""
    name: str
    """Hook or callback; empty for a node, and where torch calls several hooks in one go."""
    definition: Frame | None
    """Where the hook or callback is defined; None where that is not known."""


OWN_PROCESS: Final = "this process"
"""What has the lock of a file that one of its own threads waits for."""

BOUNDED: Final = " with a timeout"
"""Ends what a thread waits in for some time only."""


class DumpedWait(NamedTuple):
    """What a thread waited for, and which thread had it."""

    what: str
    """As ``threading.Lock``, ``queue.Queue.get``, ``socket.socket.recv``."""
    holder: int
    """Thread id of the operating system of the thread that has it, or is it; 0: not known."""
    name: str
    """Of that thread; of the lock of a file, which process has it; empty where it is not known."""
    held_at: Frame | None
    """The ``with`` by which it has the lock; None where that is not known."""


class DumpedThread(NamedTuple):
    """What one thread of the process was doing."""

    name: str
    native_id: int
    """Thread id of the operating system, as in :class:`ThreadRow`; 0: not known."""
    stack: tuple[Frame, ...]
    """Outermost frame first, hidden ones included."""
    calls: tuple[DumpedCall, ...]
    """What of the engine it was in the midst of, each inside the one before."""
    wait: DumpedWait | None = None
    """What it waited for; None: for nothing, or it is not known."""

    @property
    def frame(self) -> Frame | None:
        """The innermost frame of the user's code; None where there is none."""
        return visible(self.stack)


class DumpRow(NamedTuple):
    """What all threads of the process were doing at one moment."""

    time_ns: int
    reason: str
    """``signal`` (SIGUSR1), ``timeout``, ``stall`` (nothing had happened for a while), ``exit``
    (the program called ``os._exit``), ``raised`` (one thread: where an exception came from)."""
    threads: tuple[DumpedThread, ...]


class HeldRow(NamedTuple):
    """A thread that a debugger has stopped."""

    time_ns: int
    thread: int
    graph_task: int
    """Graph task of the event behind which it stopped; -1: none."""
    node: int
    """Node of that event; -1: none."""
    reason: str
    """``breakpoint``, ``non-finite``, ``step and breakpoint``."""
    end_ns: int | None
    """When it ran on; None: it is still stopped, or was when the recording ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node of one graph task and what became of it."""

    graph_task: int
    index: int
    """Dense index within the graph task; 0 is a root."""
    name: str
    """torch's ``node.name()``, e.g. ``torch::autograd::AccumulateGrad``."""
    short_name: str
    """Name without namespaces, e.g. ``AccumulateGrad``."""
    sequence_nr: int | None
    """None for AccumulateGrad (torch gives it ``2**64 - 1``)."""
    topological_nr: int
    queue: int
    """Device index of its ReadyQueue; -1: the queue of the thread that called backward."""
    num_inputs: int
    dependencies: int
    """Number of edges that lead into it: gradients it waits for."""
    parameter: str | None
    """AccumulateGrad: name of the parameter, e.g. ``encoder.layers.3.linear1.weight``."""
    shape: tuple[int, ...] | None
    """AccumulateGrad: shape of its variable."""
    module: str | None
    """Path of the innermost module whose forward made the node, e.g. ``encoder.layers.3``."""
    stack: tuple[Frame, ...]
    """Where it was created, outermost frame first, hidden ones included; empty where not known."""
    status: NodeStatus
    order: int | None
    """Number in the order of NodeStarted, from 1; None where it never started."""
    thread: int | None
    start_ns: int | None
    end_ns: int | None
    """When it finished, failed or was skipped."""
    input_shapes: tuple[tuple[int, ...], ...] | None
    """Shapes of the gradients it receives, by slot; None: not known."""
    output_shapes: tuple[tuple[int, ...] | None, ...]
    """Shapes of the gradients it produces, by output; None where no one needs the output or its
    shape is not known."""
    nonfinite: NonFiniteCounts | None
    """Non-finite elements found in its outputs; None: not checked."""

    @property
    def duration_ns(self) -> int | None:
        """Time from NodeStarted to its end, hooks and reentrant calls included."""
        if self.start_ns is None or self.end_ns is None:
            return None
        return self.end_ns - self.start_ns

    @property
    def frame(self) -> Frame | None:
        """The innermost frame of the user's code that created it; None where not known."""
        return visible(self.stack)

    @property
    def line(self) -> str | None:
        """The place in a few words: ``train.py:42 in forward``."""
        return None if self.frame is None else str(self.frame)

    def is_named(self, wanted: str) -> bool:
        """Whether a user means it: by its number in the order in which nodes ran, or by a name."""
        if wanted.isdecimal():  # a module may be called 2, too
            return str(self.order) == wanted
        return wanted in {self.name, self.short_name, self.module, self.parameter}

    @property
    def is_leaf(self) -> bool:
        """True for AccumulateGrad."""
        return self.short_name == LEAF


class EdgeRow(NamedTuple):
    """One edge: gradients flow from ``producer`` to ``consumer``."""

    producer: int
    output: int
    """Number among the producer's outputs."""
    consumer: int
    slot: int
    """Number among the consumer's inputs."""


class ExecutionRow(NamedTuple):
    """One node taken up by a thread."""

    graph_task: int
    order: int
    """Number in the order of NodeStarted within the graph task, from 1."""
    node: int
    name: str
    """Short name of the node."""
    thread: int
    start_ns: int
    end_ns: int | None
    """None: it was still running when the recording ended."""
    status: NodeStatus
    """running, done, skipped or failed."""
    seq: int
    """``seq`` of its NodeStarted."""


class NonFiniteRow(NamedTuple):
    """One output of one node that held non-finite elements."""

    graph_task: int
    node: int
    name: str
    """Short name of the node."""
    parameter: str | None
    module: str | None
    order: int | None
    """Number of the node in execution order, from 1."""
    thread: int
    output: int
    nan: int
    posinf: int
    neginf: int
    seq: int
    time_ns: int


class TypeTime(NamedTuple):
    """All executions of one type of node."""

    name: str
    """Short name."""
    calls: int
    total_ns: int
    """From NodeStarted to the end, hooks and reentrant calls included."""
    self_ns: int
    """Total without the nodes that reentrant calls ran inside it on the same thread."""
    max_ns: int
    """Longest total time of one call."""


class HookTime(NamedTuple):
    """All calls of one hook."""

    kind: str
    """``tensor_pre``, ``pre``, ``post`` or ``native``."""
    name: str
    calls: int
    total_ns: int
    changed: int
    """Number of calls in which it replaced the gradient."""


class ThreadTime(NamedTuple):
    """What one thread did."""

    thread: int
    executed: int
    busy_ns: int
    """Time between NodeStarted and the end of the node; a node inside which a reentrant backward
    ran on the same thread counts once."""


class Slowest(NamedTuple):
    """The slowest types of nodes and the slowest single executions, slowest first."""

    types: list[TypeTime]
    executions: list[ExecutionRow]
