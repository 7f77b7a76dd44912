"""The native engine as oracle: run one program under both engines and compare what came out.

A program is a function that builds a graph from scratch, calls backward or grad through torch's
own API, and returns what is to be compared: tensors, None, or anything that has an equality. It
runs twice, from the same seed. Nodes are matched between the two runs by their place in a walk
from the roots.
"""

from __future__ import annotations

import functools
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node
from torch.autograd.variable import Variable

from agviz_engine import events, installed
from agviz_engine.gradient_edge import leaf_edge
from agviz_engine.instruments import Instrument, Live

if TYPE_CHECKING:
    from types import TracebackType

    from agviz_engine.device_policy import DevicePolicy

Program = Callable[[], Any]
"""Returns a sequence of values; where it is expected to raise, what it returns does not matter."""

Test = Callable[["DevicePolicy | None"], None]
FAILED = " failed"
_ENGINE_THREADS = ("pt_autograd_", "Dummy-")
"""Begin the names of our engine's threads and of the native one's; their reentrant calls are the
main thread's."""
_OUR_FRAMES = re.compile(rf'  File "{re.escape(__file__)}", .*\n    .*\n(    .*\n)*')


class Frame(NamedTuple):
    """One line of a traceback, without the folder of its file."""

    file: str
    function: str
    line: int


class Failure(NamedTuple):
    """An exception as its reader sees it."""

    kind: str
    message: str
    cause: Failure | None
    context: Failure | None
    suppress_context: bool
    notes: tuple[str, ...]
    frames: tuple[Frame, ...]


@dataclass
class Outcome:
    """What one engine made of a program."""

    tensors: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    orders: dict[str, list[list[str]]] = field(default_factory=dict)
    """By the name of the calling thread, for each of its calls of the engine: place in the walk
    and name of each node, in running order. The last one has ``FAILED`` behind it where our engine
    saw it fail."""
    warnings: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Category, message, file name and line of each warning."""


def walk(roots: Any) -> dict[Node, str]:
    """Label all nodes that the roots reach, in a fixed order."""
    found: dict[Node, str] = {}
    pending: list[Node] = []
    for root in roots if isinstance(roots, tuple) else ():
        if isinstance(root, GradientEdge):
            pending.append(root.node)
        elif not isinstance(root, Tensor):
            continue
        elif root.grad_fn is not None:
            pending.append(root.grad_fn)
        elif root.requires_grad:
            with torch.autograd.set_detect_anomaly(False):  # or its traceback ends in here
                pending.append(leaf_edge(root)[0])
    while pending:
        node = pending.pop(0)
        if node in found or not isinstance(node, Node | torch._C._FunctionBase):
            continue
        found[node] = f"{len(found)} {node.name()}"
        pending += [child for child, _ in node.next_functions if child is not None]
    return found


class _Calls(threading.local):
    """The calls of the engine that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[tuple[list[str], dict[Node, str]]] = []


class _Recording:
    """Stands in front of an engine and remembers the order in which nodes run."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.orders: dict[str, list[list[str]]] = {}
        self.calls = _Calls()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    @contextmanager
    def call(self, roots: Any) -> Iterator[tuple[list[str], dict[Node, str]]]:
        """One call of the engine: where its order goes, and the labels of its nodes."""
        order: list[str] = []
        labels = walk(roots)
        thread = threading.current_thread().name
        if thread.startswith(_ENGINE_THREADS):
            thread = threading.main_thread().name
        self.orders.setdefault(thread, []).append(order)
        self.calls.stack.append((order, labels))
        try:
            yield order, labels
        finally:
            self.calls.stack.pop()
            labels.clear()  # so that nodes live no longer than they would


class _RecordingNative(_Recording):
    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        handles = []
        with self.call(args[0] if args else None) as (order, labels):
            for node, label in labels.items():

                def note(_: object, label: str = label) -> None:
                    stack = self.calls.stack  # empty on a device thread of torch's own
                    if not stack or stack[-1][0] is order:  # and not another call on this node
                        order.append(label)

                handle = cast("Any", node).register_prehook(note)
                handle.hooks_dict_ref().move_to_end(handle.id, last=False)
                handles.append(handle)
            try:
                return self.engine.run_backward(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()


class _RecordingOurs(_Recording, Instrument):
    def __init__(self) -> None:
        super().__init__(None)
        self.by_task: dict[int, tuple[list[str], dict[Node, str]]] = {}

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with self.call(args[0] if args else None):
            return self.engine.run_backward(*args, **kwargs)

    def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
        self.by_task[event.graph_task] = self.calls.stack[-1]

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        order, labels = self.by_task[event.graph_task]
        node = cast("Any", live.node).node
        if not _is_graph_root(event, node, labels):
            order.append(labels[node])

    def node_skipped(self, event: events.NodeSkipped, live: Live) -> None:
        order, labels = self.by_task[event.graph_task]
        node = cast("Any", live.node).node
        if event.reason == "captured" and not _is_graph_root(event, node, labels):
            order.pop()

    def node_failed(self, event: events.NodeFailed, _live: Live) -> None:
        order = self.by_task[event.graph_task][0]
        if order:
            order[-1] += FAILED


def _is_graph_root(event: events.Event, node: Node, labels: dict[Node, str]) -> bool:
    """Whether this is the node in front of several roots, which the walk does not know."""
    return cast("Any", event).node == 0 and node not in labels


@contextmanager
def _engine(replacement: Any) -> Iterator[None]:
    before = Variable._execution_engine
    Variable._execution_engine = replacement
    try:
        yield
    finally:
        Variable._execution_engine = before


@contextmanager
def _warn_always() -> Iterator[None]:
    """Let C++ warnings that come once in a process come every time, under both engines."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(before)


def _run(program: Program, recording: _Recording, seed: int) -> Outcome:
    outcome = outcome_of(program, seed)
    outcome.orders = recording.orders
    return outcome


def outcome_of(program: Program, seed: int = 0) -> Outcome:
    """Run ``program`` on the engine that is there."""
    outcome = Outcome()
    torch.manual_seed(seed)
    with warnings.catch_warnings(record=True) as caught, _warn_always():
        warnings.simplefilter("always")
        try:
            outcome.tensors = list(program() or ())
        except BaseException as error:  # noqa: BLE001 - compared with the other engine's
            outcome.error = error
    of_torch = DeprecationWarning  # what torch says to itself, once: about torch.jit
    outcome.warnings = [
        _warning(w)
        for w in caught
        # That cuBLAS or cuFFT found no context is said of each thread that has done nothing before.
        if not (issubclass(w.category, of_torch) or "no current CUDA context" in str(w.message))
    ]
    return outcome


def _warning(warning: warnings.WarningMessage) -> tuple[str, str, str, int]:
    message = re.sub(r" \(Triggered internally at .*\)$", "", str(warning.message))
    message = re.sub(_OUR_FRAMES, "", message)
    place = Path(warning.filename).name, warning.lineno
    if _is_engine(warning.filename):
        place = "the engine", 0
    return warning.category.__name__, message, *place


def _is_engine(file: str) -> bool:
    """Whether a line of this file stands for the C++ engine, which has no line in Python."""
    return file in {__file__, torch.autograd.graph.__file__} or "agviz_engine" in Path(file).parts


def outcome_with(around: AbstractContextManager[Any], program: Program, seed: int = 0) -> Outcome:
    """Run ``program`` inside ``around``, on the engine that is there."""
    with around:
        return outcome_of(program, seed)


def native_outcome(program: Program, seed: int = 0) -> Outcome:
    """Run ``program`` on the native engine."""
    recording = _RecordingNative(Variable._execution_engine)
    with _engine(recording):
        return _run(program, recording, seed)


def our_outcome(
    program: Program,
    seed: int = 0,
    *instruments: Instrument,
    device_policy: DevicePolicy | None = None,
) -> Outcome:
    """Run ``program`` on our engine."""
    recording = _RecordingOurs()
    with installed(recording, *instruments, device_policy=device_policy):
        recording.engine = Variable._execution_engine
        with _engine(recording):
            return _run(program, recording, seed)


def assert_same(
    program: Program,
    *,
    seed: int = 0,
    order: bool = True,
    device_policy: DevicePolicy | None = None,
) -> Outcome:
    """Both engines: same values, errors, warnings and order of nodes.

    Tensors are equal bit for bit and in their strides; exceptions in type, message, cause, context
    and traceback, from which only the engine's own frames are taken.

    Returns:
        The outcome of our engine.
    """
    native = native_outcome(program, seed)
    ours = our_outcome(program, seed, device_policy=device_policy)
    assert_outcomes_equal(native, ours)
    if order:
        assert_orders_equal(native, ours)
    return ours


@overload
def as_native(program: Program) -> Test: ...


@overload
def as_native(
    *, raises: type[BaseException] | None = None, order: bool = True
) -> Callable[[Program], Test]: ...


def as_native(
    program: Program | None = None,
    *,
    raises: type[BaseException] | None = None,
    order: bool = True,
) -> Test | Callable[[Program], Test]:
    """Turn a program into a test: ours does with it what the native engine does.

    Args:
        program: the decorated function.
        raises: the exception that has to come out of it; without one it has to go through.
        order: whether nodes are compared in their order.
    """
    if program is None:
        return cast(
            "Callable[[Program], Test]", functools.partial(as_native, raises=raises, order=order)
        )

    def test(device_policy: DevicePolicy | None) -> None:
        ours = assert_same(
            program, device_policy=device_policy, order=order and device_policy is None
        )
        if raises is None and ours.error is not None:
            raise AssertionError("the program failed under both engines") from ours.error
        assert type(ours.error) is (raises or type(None))

    test.__name__ = test.__qualname__ = program.__name__
    test.__module__ = program.__module__
    test.__doc__ = program.__doc__
    return test


def assert_outcomes_equal(native: Outcome, ours: Outcome) -> None:
    """Same values bit for bit, or the same exception; same warnings."""
    if failure(native.error) != failure(ours.error):
        raise AssertionError(
            f"native: {native.error!r}\n{_shown(native.error)}\nours: {ours.error!r}\n"
            f"{_shown(ours.error)}"
        ) from ours.error
    assert len(ours.tensors) == len(native.tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at a nested or sparse tensor may warn
        for index, (expected, got) in enumerate(zip(native.tensors, ours.tensors, strict=True)):
            assert same_value(expected, got), f"value {index} differs:\n{expected}\n{got}"
    warned, expected_warnings = sorted(ours.warnings), sorted(native.warnings)
    assert warned == expected_warnings, f"{warned}\ninstead of {expected_warnings}"


def _shown(error: BaseException | None) -> str:
    found = failure(error)
    return "" if found is None else "\n".join(map(str, found.frames))


def assert_orders_equal(native: Outcome, ours: Outcome) -> None:
    """Each call of the engine ran the same nodes in the same order, thread by thread.

    A node that failed in a tensor hook is not seen under the native engine.
    """
    assert ours.orders.keys() == native.orders.keys()
    for thread, orders in native.orders.items():
        assert len(ours.orders[thread]) == len(orders)
        for expected, got in zip(orders, ours.orders[thread], strict=True):
            if got and got[-1].endswith(FAILED):
                whole = [*got[:-1], got[-1].removesuffix(FAILED)]
                assert expected in (whole, got[:-1])
            else:
                assert got == expected


def failure(error: BaseException | None) -> Failure | None:
    """What there is to compare of an exception; the engines' own frames are left out."""
    if error is None:
        return None
    return Failure(
        type(error).__name__,
        str(error),
        failure(error.__cause__),
        failure(error.__context__),
        error.__suppress_context__,
        tuple(getattr(error, "__notes__", ())),
        tuple(_frames(error.__traceback__)),
    )


def _frames(start: TracebackType | None) -> Iterator[Frame]:
    for frame, line in traceback.walk_tb(start):
        code = frame.f_code
        package = frame.f_globals.get("__package__")
        if package != "agviz_engine" and code.co_filename != __file__:
            yield Frame(Path(code.co_filename).name, code.co_name, line)


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of a program are equal; tensors are so bit for bit."""
    return bool(described(a) == described(b))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal in type, dtype, shape, layout, strides, flags and bits."""
    return same_value(a, b)


def described(value: Any) -> Any:
    """What two values are compared by."""
    if isinstance(value, Tensor):
        with torch.no_grad():
            return type(value).__name__, value.requires_grad, _described(value.detach())
    return [described(v) for v in value] if isinstance(value, list | tuple) else value


def _described(tensor: Tensor) -> Any:
    if hasattr(tensor, "__tensor_flatten__"):
        return [described(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]
    if tensor.is_nested:
        return described(tensor.unbind())
    if tensor.is_sparse:
        return tensor.is_coalesced(), described([tensor._indices(), tensor._values()])
    if tensor.layout is not torch.strided:
        return tensor.layout, described(tensor.to_dense())
    return tensor.dtype, tensor.device, tensor.shape, _flags(tensor), _bits(tensor)


def _flags(tensor: Tensor) -> Any:
    """Strides among them, but for those of size 1, which mean nothing."""
    sized = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride for size, stride in sized if size > 1] if tensor.numel() else []
    return tensor.is_conj(), tensor.is_neg(), strides


def _bits(tensor: Tensor) -> bytes | None:
    if tensor.is_meta:
        return None
    flat = tensor.resolve_conj().resolve_neg().reshape(-1)
    return (
        flat.clone(memory_format=torch.contiguous_format).view(torch.uint8).cpu().numpy().tobytes()
    )
