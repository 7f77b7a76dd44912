"""The native engine as oracle: run one program under both engines and compare what came out.

A program is a function that builds a graph from scratch, calls backward or grad through torch's
own API, and returns the tensors to compare. It runs twice, from the same seed. Nodes are matched
between the two runs by their place in a walk from the roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.autograd.variable import Variable

from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live

if TYPE_CHECKING:
    from agviz_engine.device_threads import DevicePolicy

Program = Callable[[], Sequence[Tensor | None]]


@dataclass
class Outcome:
    """What one engine made of a program."""

    tensors: list[Tensor | None] = field(default_factory=list)
    error: BaseException | None = None
    orders: list[list[str]] = field(default_factory=list)
    """For each call of the engine: place in the walk and name of each node, in running order."""


def walk(roots: Sequence[Any]) -> dict[Node, str]:
    """Label all nodes that the roots reach, in a fixed order."""
    found: dict[Node, str] = {}
    pending: list[Node] = []
    for root in roots:
        if isinstance(root, GradientEdge):
            pending.append(root.node)
        elif root.grad_fn is not None:
            pending.append(root.grad_fn)
        elif root.requires_grad:
            pending.append(get_gradient_edge(root).node)
    while pending:
        node = pending.pop(0)
        if node in found:
            continue
        found[node] = f"{len(found)} {node.name()}"
        pending += [child for child, _ in node.next_functions if child is not None]
    return found


class _Recording:
    """Stands in front of an engine and remembers the order in which nodes run."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.orders: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class _RecordingNative(_Recording):
    def run_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        labels = walk(tensors)
        order: list[str] = []
        self.orders.append(order)
        handles = []
        for node, label in labels.items():

            def note(_: object, label: str = label) -> None:
                order.append(label)

            handles.append(node.register_prehook(note))
        try:
            return self.engine.run_backward(tensors, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()


class _RecordingOurs(_Recording, Instrument):
    def __init__(self) -> None:
        super().__init__(None)
        self.walks: list[dict[Node, str]] = []
        self.by_task: dict[int, tuple[list[str], dict[Node, str]]] = {}

    def run_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        self.walks.append(walk(tensors))
        return self.engine.run_backward(tensors, *args, **kwargs)

    def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
        order: list[str] = []
        self.orders.append(order)
        self.by_task[event.graph_task] = order, self.walks.pop()

    def node_started(self, event: events.NodeStarted, live: Live) -> None:
        order, labels = self.by_task[event.graph_task]
        if event.node or labels.get(cast("Any", live.node).node):
            order.append(labels[cast("Any", live.node).node])

    def node_skipped(self, event: events.NodeSkipped, _live: Live) -> None:
        self.by_task[event.graph_task][0].pop()


@contextmanager
def _engine(replacement: Any) -> Iterator[None]:
    before = Variable._execution_engine
    Variable._execution_engine = replacement
    try:
        yield
    finally:
        Variable._execution_engine = before


def _run(program: Program, recording: _Recording, seed: int) -> Outcome:
    outcome = Outcome(orders=recording.orders)
    torch.manual_seed(seed)
    try:
        outcome.tensors = list(program())
    except Exception as error:  # noqa: BLE001 - compared with the other engine's
        outcome.error = error
    return outcome


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
    """Both engines: same tensors bit for bit, same strides, same errors, same order of nodes."""
    native = native_outcome(program, seed)
    ours = our_outcome(program, seed, device_policy=device_policy)
    assert_outcomes_equal(native, ours)
    if order:
        assert ours.orders == native.orders
    return ours


def assert_outcomes_equal(native: Outcome, ours: Outcome) -> None:
    """Same tensors bit for bit, or the same exception."""
    if native.error is not None or ours.error is not None:
        if native.error is None or type(native.error) is not type(ours.error):
            raise AssertionError(f"native: {native.error!r}, ours: {ours.error!r}") from ours.error
        assert str(ours.error) == str(native.error)
    assert len(ours.tensors) == len(native.tensors)
    for index, (expected, got) in enumerate(zip(native.tensors, ours.tensors, strict=True)):
        assert (expected is None) == (got is None), f"tensor {index}: {expected} / {got}"
        if expected is not None and got is not None:
            assert same_bits(expected, got), f"tensor {index} differs:\n{expected}\n{got}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal in dtype, shape, layout, strides and every bit."""
    a, b = a.detach(), b.detach()
    if (a.dtype, a.layout, a.device, a.shape) != (b.dtype, b.layout, b.device, b.shape):
        return False
    if a.is_sparse:
        return same_bits(a._indices(), b._indices()) and same_bits(a._values(), b._values())
    if a.layout is not torch.strided:
        return torch.equal(a.to_dense(), b.to_dense())
    if a.stride() != b.stride() and a.numel() > 1:
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b = a.contiguous(), b.contiguous()
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if a.dim() else _bits(a, b)


def _bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.reshape(1).view(torch.uint8), b.reshape(1).view(torch.uint8))
