"""What torch's own engine does for ours: host a graph task, run one node, run its C++ hooks.

Note [Hosted graph tasks]
~~~~~~~~~~~~~~~~~~~~~~~~~
``Node::task_should_compute_output`` and all of torch that asks for the current graph task look at
the innermost *native* one. So each of our graph tasks runs inside a native one, its host, which
has a single node, a custom Function whose ``backward`` is our loop:

- without ``inputs=`` the host is a backward on that node alone. Its ``exec_info`` is empty, which
  means that every output is to be computed.
- with ``inputs=`` the host gets our real roots and inputs as well, so that its ``exec_info`` is the
  one torch would have used and nodes skip the outputs that nobody wants. Our loop runs first (its
  node has the highest sequence number); then :class:`~agviz_engine.errors.AbortHost` ends the host
  before it runs any real node, and :func:`_flush` empties what that left in the thread's queue.

Note [One-node runs]
~~~~~~~~~~~~~~~~~~~~
A custom Function's node has no ``__call__``, and only torch can call hooks made in C++, such as
those of DDP's reducer on an AccumulateGrad. A native backward whose root *and* only input is that
node runs it with all its hooks, checks, zero-filling and release, and nothing else, because no
other node is in its ``exec_info``. A post-hook registered last takes the outputs. A gradient that
an AccumulateGrad may steal comes from a node in front of it (:func:`run_leaf`): with that, and
with what nodes put out measured once, a DDP step of a transformer of 19M parameters takes 1.05 to
1.10 of its time without agviz; with copies 1.11 and 1.16.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._python_dispatch import _disable_current_modes

from agviz_engine import torch_modes
from agviz_engine.alive import instances
from agviz_engine.device_policy import real_device
from agviz_engine.errors import AbortHost
from agviz_engine.events import CPU_QUEUE
from agviz_engine.node import ACCUMULATE_GRAD_SEQUENCE_NR
from agviz_engine.torch_layout import expectation, retains_grad
from agviz_engine.torch_modes import (
    FlagsPause,
    anomaly_pause,
    ask_apart,
    enter_legacy_vmap,
    is_anomaly_enabled,
    leave_legacy_vmap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch.autograd.graph import Node

    from agviz_engine.node import NodeRef

_C = cast("Any", torch._C)
legacy_vmap_level = torch_modes.legacy_vmap_level
ENGINE: Any = _C._ImperativeEngine()
"""The native engine: every instance of this type is a handle to the one C++ engine."""


_AT_ANY_TIME = contextlib.nullcontext()
_asking = threading.RLock()


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.bodies: list[Callable[[], None] | None] = []
        """What the hosts on their way on this thread have to call, the innermost last: a finalizer
        that strikes before a host calls its own may run a whole pass, with hosts of its own."""
        self.runs: list[_Run] = []
        """The one-node runs under way on this thread, the innermost last."""
        self.failed: BaseException | None = None
        """What the last failed run raised, for :func:`warned_of`; only in anomaly mode."""


class _Run:
    """One one-node run.

    Its hooks are on the node itself, so that runs of the same node on other threads, or inside
    this one, get them too: they look whether it is theirs.
    """

    __slots__ = ("begin", "levels", "look", "multithreading", "outputs", "undefined")

    def __init__(
        self,
        begin: Callable[[], None] | None,
        look: Callable[[tuple[Tensor | None, ...]], None] | None,
        *,
        undefined: bool,
    ) -> None:
        self.outputs: tuple[Tensor | None, ...] = ()
        self.levels = legacy_vmap_level()
        self.multithreading = _C._is_multithreading_enabled()
        self.begin = begin
        self.look = look
        self.undefined = undefined
        """Whether the node has to get undefined gradients: a run can't begin without zeros."""

    def is_innermost(self) -> bool:
        return bool(_thread.runs) and _thread.runs[-1] is self

    def enter(self, gradients: tuple[Tensor | None, ...]) -> tuple[None, ...] | None:
        """Pre-hook: put the Function where its caller is; take zeros away that it must not see."""
        if not self.is_innermost():
            return None
        if self.begin is not None:
            self.begin()
        _C._set_multithreading_enabled(self.multithreading)
        enter_legacy_vmap(self.levels)
        return (None,) * len(gradients) if self.undefined else None

    def take(self, outputs: Sequence[Tensor | None], _: object) -> None:
        """Post-hook: keep the outputs."""
        if self.is_innermost():
            self.outputs = tuple(outputs)
            if self.look is not None and not self.levels:
                self.look(self.outputs)
            leave_legacy_vmap()


_thread = _ThreadState()


class _Host(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        body = _thread.bodies[-1] if _thread.bodies else None
        if body is not None:
            _thread.bodies[-1] = None
            body()


_hosts: list[Tensor] = []
"""Outputs of the hosts: their nodes may not live without them
(:func:`agviz_engine.releases.function_keeps_node`)."""


def _host_edge(sequence_nr: int) -> GradientEdge:
    with torch.enable_grad():
        output = cast("Any", _Host).apply(torch.ones((), requires_grad=True))
    node = output.grad_fn
    node._set_sequence_nr(sequence_nr)
    _hosts.append(output)
    return GradientEdge(node, 0)


_HOST = _host_edge(ACCUMULATE_GRAD_SEQUENCE_NR)
_LAST = _host_edge(0)
_ONE = torch.ones(())


def is_host(node: object) -> bool:
    """Whether ``node`` is the one that our graph tasks run in."""
    return node is _HOST.node


@functools.cache
def _has_device_threads() -> bool:
    return torch.accelerator.is_available()


def _is_of_device(root: GradientEdge | Tensor) -> bool:
    """Whether the native engine would have a thread of its own run the node of a root."""
    node = root.grad_fn if isinstance(root, Tensor) else root.node
    return real_device(cast("Any", node)) != CPU_QUEUE


def _run_backward(*arguments: Any, accumulate_grad: bool = True) -> Any:
    """``run_backward`` of the native engine on this very thread.

    Inside ``torch._vmap_internals.vmap`` the native engine refuses to accumulate, so its levels
    are left for that; a ``grad`` stays in them, and so do the hooks that it calls. Its own device
    threads, which there are for accelerators, must not take the node over.
    """
    levels = leave_legacy_vmap() if accumulate_grad else legacy_vmap_level()
    multithreading = _C._is_multithreading_enabled()
    if _has_device_threads() and any(map(_is_of_device, arguments[0])):
        _C._set_multithreading_enabled(False)
    try:
        return ENGINE.run_backward(
            *arguments, allow_unreachable=True, accumulate_grad=accumulate_grad
        )
    except BaseException as error:
        if is_anomaly_enabled():
            _thread.failed = error
        raise
    finally:
        _C._set_multithreading_enabled(multithreading)
        leave_legacy_vmap()  # a Function that failed did not
        enter_legacy_vmap(levels)


def warned_of(error: BaseException) -> bool:
    """Whether torch has said already, in anomaly mode, which forward led to ``error``."""
    failed, _thread.failed = _thread.failed, None
    return failed is error


def is_anomaly_hidden() -> bool:
    """Whether anomaly mode is on, but the program is shown that it is off."""
    return is_anomaly_enabled() and not _C.is_anomaly_enabled()


@functools.cache
def unused_input_text() -> str:
    """What torch says of an input that is not in the graph; ``{}`` is in place of its number."""
    said: list[str] = []

    def ask() -> None:
        root, used, unused = [torch.ones((), requires_grad=True) for _ in range(3)]
        try:
            ENGINE.run_backward(
                (root * used,), (_ONE,), False, False, (used, unused), allow_unreachable=False
            )
        except RuntimeError as error:
            said.append(str(error).replace("index 1 ", "index {} "))

    ask_apart(ask)
    return "".join(said)


def host(
    body: Callable[[], None],
    roots: Sequence[tuple[Node, int]] = (),
    gradients: Sequence[Tensor] = (),
    inputs: Sequence[tuple[Node, int]] = (),
    entering: AbstractContextManager[Any] = _AT_ANY_TIME,
) -> None:
    """Call ``body`` inside a native graph task, see Note [Hosted graph tasks].

    ``body`` must not raise: what it raised would come back changed. ``entering`` is held until it
    is called, where there are ``inputs``.
    """
    levels = leave_legacy_vmap()
    profiled = _C._autograd._profiler_enabled()
    multithreading = _C._is_multithreading_enabled()

    def hosted() -> None:
        enter_legacy_vmap(levels)
        _C._set_multithreading_enabled(multithreading)
        if profiled:
            _C._autograd._enable_record_function(True)
        body()
        if profiled:
            _C._autograd._enable_record_function(False)
        leave_legacy_vmap()

    if profiled:  # the host is not the user's: it has no place in a profile
        _C._autograd._enable_record_function(False)
    try:
        if inputs:
            _host_pruned(hosted, roots, gradients, inputs, entering)
        else:
            _run_host(hosted, (_HOST,), (_ONE,))
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)
        enter_legacy_vmap(levels)


def _run_host(
    body: Callable[[], None] | None,
    roots: Sequence[GradientEdge],
    gradients: Sequence[Tensor],
    inputs: Sequence[GradientEdge] = (),
) -> None:
    _thread.bodies.append(body)
    try:
        _run_backward(roots, gradients, True, False, inputs)
    finally:
        _thread.bodies.pop()


def _host_pruned(
    body: Callable[[], None],
    roots: Sequence[tuple[Node, int]],
    gradients: Sequence[Tensor],
    inputs: Sequence[tuple[Node, int]],
    entering: AbstractContextManager[Any],
) -> None:
    outside = contextlib.ExitStack()

    def body_then_abort() -> None:
        outside.close()
        body()
        undo.enter_context(anomaly_pause)
        raise AbortHost

    with contextlib.ExitStack() as undo:
        with contextlib.suppress(AbortHost), outside:
            outside.enter_context(entering)
            _run_host(
                body_then_abort,
                (_HOST, *(GradientEdge(node, nr) for node, nr in roots)),
                (_ONE, *gradients),
                (_HOST, *(GradientEdge(node, nr) for node, nr in inputs)),
            )
        undo.close()
        _flush()


def apart(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """The gradients for hosts on several threads, one after the other, while nodes run on them.

    Torch copies the sizes of a jagged tensor without the GIL, out of memory that whoever else asks
    for them writes anew: two threads must not look at one at a time.
    """
    if not any(gradient.layout is torch.jagged for gradient in gradients):
        return gradients
    with _disable_current_modes():
        return [
            gradient.detach() if gradient.layout is torch.jagged else gradient
            for gradient in gradients
        ]


_warn_always_pause = FlagsPause(lambda: (torch.is_warn_always_enabled(),), torch.set_warn_always)
"""While nodes run with a graph of their own: torch would warn of that for each."""


def warns_always() -> bool:
    """What the program set with ``torch.set_warn_always``."""
    return _warn_always_pause.flags[0]


def after_fork() -> None:
    """In a forked child: let go of what other threads held."""
    global _asking  # noqa: PLW0603 - another thread may have held it
    _asking = threading.RLock()


def create_graph_warning() -> str:
    """Torch's words about ``backward(create_graph=True)``, which it says once per process.

    Asking makes it say them here, so that the one-node runs, which are backward calls too, do not.
    That is left until a pass needs it: the first backward of a process starts the threads of the
    native engine where there is an accelerator, after which no forked child can run one.
    """
    with _asking:
        return _asked_create_graph_warning()


@functools.cache
def _asked_create_graph_warning() -> str:
    said: list[str] = []

    def ask() -> None:
        with warnings.catch_warnings(record=True) as caught, _warn_always_pause:
            warnings.simplefilter("always")
            for warn_always in (False, True):
                torch.set_warn_always(warn_always)
                ENGINE.run_backward((_HOST,), (_ONE,), True, True, (), accumulate_grad=True)
        for one in caught:
            if "create_graph=True" in str(one.message):
                said.append(str(one.message))
            else:  # of another thread
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        _look_at_filters()

    ask_apart(ask)
    return said[-1]


class _UnshownWarning(Warning):
    pass


def _look_at_filters() -> None:
    """Have CPython look at the filters of warnings, which ``catch_warnings`` has put back.

    Its C code goes by those that it looked at last once the module ``warnings`` is gone: without
    this, a program that leaves a file open would end with a ResourceWarning that nobody asked for.
    """
    warnings.filterwarnings("ignore", category=_UnshownWarning)
    warnings.warn_explicit("", _UnshownWarning, "", 0)
    cast("list[Any]", warnings.filters)[:] = [
        one for one in warnings.filters if one[2] is not _UnshownWarning
    ]


def _flush() -> None:
    """Let the native engine drop the tasks that an aborted host left in this thread's queue."""
    _run_host(None, (_LAST,), (_ONE,))


def run_node(
    ref: NodeRef,
    inputs: Sequence[Tensor | None],
    *,
    keep_graph: bool,
    create_graph: bool,
    begin: Callable[[], None] | None = None,
    look: Callable[[tuple[Tensor | None, ...]], None] | None = None,
) -> tuple[Tensor | None, ...]:
    """Run a custom Function's node or an AccumulateGrad, see Note [One-node runs].

    A custom Function whose gradients are all undefined is given zeros, which a hook takes away
    again before the Function sees them. Inside legacy vmap its tensor hooks and pre-hooks have to
    be called before (:class:`agviz_engine.function_hook.HiddenHooks`): they would run outside.

    Args:
        ref: the node; its saved tensors are released unless ``keep_graph``.
        inputs: the incoming gradients, one for each of the node's inputs.
        keep_graph: as in ``backward(retain_graph=)``.
        create_graph: whether gradient mode is on while the node runs.
        begin: called right before the Function itself runs.
        look: called with the outputs of a custom Function while it still has what it saved; it must
            not raise.

    Returns:
        The node's outputs after its post-hooks; empty for AccumulateGrad.
    """
    node = ref.node
    defined = [i for i, gradient in enumerate(inputs) if gradient is not None]
    run = _Run(begin, look, undefined=not defined)
    gradients = tuple(inputs[i] for i in defined)
    with contextlib.ExitStack() as undo:
        if not defined:
            if ref.is_accumulate_grad:
                _run_undefined_leaf(ref)
                return ()
            index, zeros = _zeros(ref)
            defined, gradients = [index], (zeros,)
            undo.enter_context(_retained_as_before(ref))
        if not ref.is_accumulate_grad:
            undo.callback(node.register_hook(run.take).remove)
            if begin is not None or _has_device_threads():
                undo.callback(node.register_prehook(run.enter).remove)
        if create_graph and warns_always():
            undo.enter_context(_warn_always_pause)
        _thread.runs.append(run)
        undo.callback(_thread.runs.pop)
        _run_backward(
            tuple(GradientEdge(node, i) for i in defined),
            gradients,
            keep_graph,
            create_graph,
            (GradientEdge(node, 0),),
        )
    return run.outputs


def _zeros(ref: NodeRef) -> tuple[int, Tensor]:
    """A gradient that fits one of the node's inputs, and that input's number."""
    for index, metadata in enumerate(ref.node._input_metadata):
        kind, _ = expectation(ref, index)
        if kind.is_defined:
            dtype = kind.dtype or kind.input_dtype
            return index, torch.zeros(metadata.shape, dtype=dtype, device=kind.device)
    raise RuntimeError(f"{ref.name} has no input that a gradient could fit")


@contextlib.contextmanager
def _retained_as_before(ref: NodeRef) -> Iterator[None]:
    """Put back what ``retain_grad`` kept of the zeros.

    Only its C++ hook knows the tensor: it is looked for among all there are.
    """
    if not retains_grad(ref.base):
        yield
        return
    with _C.DisableTorchFunctionSubclass():
        kept = [
            (thing, thing.grad)
            for thing in instances(Tensor)
            if thing.retains_grad and thing.grad_fn is ref.node
        ]
    try:
        yield
    finally:
        for tensor, gradient in kept:
            tensor.grad = gradient


def _run_undefined_leaf(ref: NodeRef) -> None:
    """Give an AccumulateGrad an undefined gradient: its hooks run, ``.grad`` stays as it is."""
    with torch.enable_grad():
        run_leaf(ref, _Giving.apply(ref.node.variable), None)


def run_leaf(ref: NodeRef, parent: Tensor, gradient: Tensor | None) -> None:
    """Run an AccumulateGrad with its hooks, on a gradient that torch may steal.

    The gradient of a one-node run is held by its caller: torch copies it. Here another node puts it
    out, as in a pass of torch's own.

    Args:
        ref: the node.
        parent: of its variable, from :func:`leaf_parents`.
        gradient: nobody else may hold it, or its memory.
    """
    node: Any = parent.grad_fn
    if gradient is not None:
        node.gradient = gradient.detach()
    _run_backward((GradientEdge(node, 0),), (_ONE,), False, False, (GradientEdge(ref.node, 0),))


def leaf_parents(leaves: Sequence[NodeRef]) -> dict[int, Tensor]:
    """For AccumulateGrads tensors whose nodes put out what :func:`run_leaf` gives them.

    They are made on a thread of their own: a thread numbers its nodes in their order, and those of
    the program have to get the numbers that they have without agviz.

    Args:
        leaves: of plain variables that require a gradient.

    Returns:
        By index; without those that are their variable's AccumulateGrad no more, as where its data
        were set to ones of another type.
    """
    made: dict[int, Tensor] = {}

    def make() -> None:
        for leaf in leaves:
            parent = _Giving.apply(leaf.node.variable)
            if cast("Any", parent.grad_fn).next_functions[0][0] is leaf.node:
                made[leaf.index] = parent

    ask_apart(make)
    return made


def accumulate_across(made: torch.Stream, used: torch.Stream) -> None:
    """Accumulate a gradient that was made on another stream than its leaf's."""
    device = torch.device(made.device.type, made.device_index)
    with torch.enable_grad(), _disable_current_modes():
        with cast("Any", used):
            leaf = torch.zeros((), device=device, requires_grad=True)
            accumulator = get_gradient_edge(leaf)
        with cast("Any", made):
            root = leaf.clone()
            _run_backward((root,), (torch.zeros((), device=device),), False, False, ())
    del accumulator  # it holds the node that was made on the other stream


class _Giving(torch.autograd.Function):
    apply: Callable[[Tensor], Tensor]

    @staticmethod
    def forward(_ctx: Any, _value: Tensor) -> Tensor:
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        return ctx.__dict__.pop("gradient", None)


def capture(
    ref: NodeRef, inputs: Sequence[Tensor | None], *, create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Run a node's tensor hooks and retain_grad hooks, and nothing else of it.

    A native ``grad`` whose outputs and inputs are the same node captures the incoming gradients
    behind those hooks (``Engine::evaluate_function``). At least one gradient must be defined.
    """
    defined = [i for i, gradient in enumerate(inputs) if gradient is not None]
    edges = tuple(GradientEdge(ref.node, i) for i in range(len(inputs)))
    return cast(
        "tuple[Tensor | None, ...]",
        _run_backward(
            tuple(edges[i] for i in defined),
            tuple(inputs[i] for i in defined),
            True,
            create_graph,
            edges,
            accumulate_grad=False,
        ),
    )
