"""Accelerator streams of a graph task (Note [Streaming backwards] in ``engine.cpp``).

A node runs on the stream that its forward op ran on. A gradient that was made on another stream is
waited for where it is summed and before its consumer runs, and its memory is not used again before
that (Note [Autograd Producer-Consumer Stream Syncs] in ``input_buffer.cpp``). When the graph task
is done, the caller's current streams wait for the streams on which leaves got their gradients.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

from agviz_engine import native_run
from agviz_engine.tensor_facts import COMPRESSED
from agviz_engine.torch_layout import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.node import NodeRef

_warns_of_mismatch = cast(
    "Callable[[], bool]",
    getattr(torch._C, "_warn_on_accumulate_grad_stream_mismatch", lambda: False),
)
_warned: set[bool] = set()


class _Slot:
    """A slot of an InputBuffer whose gradient is summed or used on another stream than its own."""

    __slots__ = ("accumulation", "event", "ready")

    def __init__(self, accumulation: torch.Stream, ready: torch.Stream) -> None:
        self.accumulation = accumulation
        """Where gradients are summed (``opt_accum_streams``)."""
        self.ready = ready
        """On which stream the gradient will be ready (``ready_streams``)."""
        self.event: torch.Event | None = None
        """That it is (``ready_events``)."""


class GraphStreams:
    """Streams of one graph task; made where a node of it has one.

    Most slots of InputBuffers have no :class:`_Slot`: their gradients are made, summed and used on
    the consumer's stream.
    """

    def __init__(self) -> None:
        accelerator = cast("torch.device", torch.accelerator.current_accelerator())
        self._accelerator = accelerator.type
        self._streams: dict[tuple[int, int], torch.Stream] = {}
        self._of: dict[int, torch.Stream | None] = {}
        self._slots: dict[tuple[int, int], _Slot] = {}
        self._leaves: set[torch.Stream] = set()
        self._caller = {
            index: self._current(index)
            for index in range(torch.accelerator.device_count())
            if _is_in_use(accelerator.type, index)
        }
        """``GraphTask::stash_current_streams``."""

    def of(self, ref: NodeRef) -> torch.Stream | None:
        """The stream a node runs on (``Node::stream``), None for a node of the CPU."""
        try:
            return self._of[ref.index]
        except KeyError:
            stream = self._of[ref.index] = self._find(ref)
            return stream

    def _find(self, ref: NodeRef) -> torch.Stream | None:
        if ref.is_graph_root:  # its inputs are the caller's gradients
            for gradient in cast("Any", ref.node)():
                if gradient is not None and gradient.device.type == self._accelerator:
                    return self._current(gradient.device.index)
            return None
        found = device_stream(ref)
        return None if found is None else self._one(*found)

    def _one(self, index: int, stream_id: int, device_type: int) -> torch.Stream:
        """The one object for a stream, so that ``is`` distinguishes streams."""
        found = self._streams.get((index, stream_id))
        if found is None:
            found = self._streams[index, stream_id] = torch.Stream(
                stream_id=stream_id, device_index=index, device_type=device_type
            )
        return found

    def _current(self, index: int) -> torch.Stream:
        current = torch.accelerator.current_stream(index)
        return self._one(current.device_index, current.stream_id, current.device_type)

    # -- InputBuffer::add -----------------------------------------------------------------------

    def begin(self, root: NodeRef, slot: int, gradient: Tensor) -> None:
        """The caller's gradient of a single root comes into its buffer (``Engine::execute``)."""
        if gradient.device.type == self._accelerator:
            self._first(self._current(gradient.device.index), root, slot, gradient)

    def first(self, producer: NodeRef, consumer: NodeRef, slot: int, gradient: Tensor) -> None:
        """A gradient comes into an empty slot."""
        if gradient.device.type == self._accelerator:
            made = self.of(producer) or self._current(gradient.device.index)
            self._first(made, consumer, slot, gradient)

    def _first(self, made: torch.Stream, consumer: NodeRef, slot: int, gradient: Tensor) -> None:
        index = gradient.device.index
        used = self.of(consumer) or self._current(index)
        if made is not used:
            _warn_of_mismatch(made, used, consumer)
        if used.device_index == index:
            accumulation = used
            if made is not used:
                _record_stream(gradient, used)
        elif made.device_index == index:
            accumulation = made
        else:
            accumulation = self._current(index)
        if made is used is accumulation:
            self._slots.pop((consumer.index, slot), None)  # of a run that was undone
            return
        entry = self._slots[consumer.index, slot] = _Slot(accumulation, made)
        entry.event = made.record_event()

    def before_sum(
        self, producer: NodeRef, consumer: NodeRef, slot: int, old: Tensor | None, gradient: Tensor
    ) -> contextlib.AbstractContextManager[Any]:
        """A gradient comes into a slot that has one.

        Returns:
            What makes the stream current on which they are summed.
        """
        if gradient.device.type != self._accelerator:
            return _as_it_is
        index = gradient.device.index
        made = self.of(producer) or self._current(index)
        used = self.of(consumer) or self._current(index)
        if made is not used:
            _warn_of_mismatch(made, used, consumer)
        entry = self._slots.get((consumer.index, slot))
        accumulation = used if entry is None else entry.accumulation
        if made is not accumulation:
            accumulation.wait_event(made.record_event())
            _record_stream(gradient, accumulation)
        if entry is not None and entry.event is not None and entry.ready is not accumulation:
            accumulation.wait_event(entry.event)
            _record_stream(cast("Tensor", old), accumulation)
        return cast("contextlib.AbstractContextManager[Any]", accumulation)

    def after_sum(self, consumer: NodeRef, slot: int) -> None:
        """The gradients of a slot were summed."""
        entry = self._slots.get((consumer.index, slot))
        if entry is None:
            return
        if self.of(consumer) is not entry.accumulation:
            entry.event = entry.accumulation.record_event()
        entry.ready = entry.accumulation

    # -- Engine::evaluate_function --------------------------------------------------------------

    def wait(self, ref: NodeRef, stream: torch.Stream, inputs: InputBuffer) -> None:
        """Let the stream of a node wait until its gradients are ready."""
        if not self._slots:
            return
        for slot in range(len(inputs)):
            entry = self._slots.get((ref.index, slot))
            if entry is not None and entry.event is not None and entry.ready is not stream:
                stream.wait_event(entry.event)

    def reached_leaf(self, stream: torch.Stream) -> None:
        """A node without consumers, or one that was captured, ran on ``stream``."""
        self._leaves.add(stream)

    # -- GraphTask::exec_post_processing --------------------------------------------------------

    def finish(self) -> None:
        """Let the caller's streams wait for all leaves."""
        for leaf in self._leaves:
            caller = self._caller.get(leaf.device_index)
            if caller is not None and caller is not leaf:
                caller.wait_event(leaf.record_event())

    @contextlib.contextmanager
    def of_caller(self) -> Iterator[None]:
        """Make the caller's streams current, not their devices (``c10::MultiStreamGuard``)."""
        device = torch.accelerator.current_device_index()
        with contextlib.ExitStack() as stack:
            for stream in self._caller.values():
                stack.enter_context(cast("Any", stream))
            torch.accelerator.set_device_index(device)
            yield


_as_it_is: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


@functools.cache
def _device_type() -> int:
    """The accelerator's ``c10::DeviceType``; asked without making a context."""
    name = cast("torch.device", torch.accelerator.current_accelerator()).type
    known = "PrivateUse1" if name == "privateuseone" else name.upper()
    return int(getattr(cast("Any", torch._C)._autograd.DeviceType, known))


def device_stream(ref: NodeRef) -> tuple[int, int, int] | None:
    """Device index, id and device type of the stream of a node (``Node::stream``)."""
    for slot in range(ref.num_inputs):
        found = stream_of(ref, slot)
        if found.device_type == _device_type():
            return found.device_index, found.stream_id, found.device_type
    return None


def _is_in_use(accelerator: str, index: int) -> bool:
    """Whether the process has a context on a device: to ask for its stream would make one."""
    return accelerator != "cuda" or bool(cast("Any", torch._C)._cuda_hasPrimaryContext(index))


def _record_stream(gradient: Tensor, stream: torch.Stream) -> None:
    """Keep its memory until ``stream`` is through with it (``record_stream_any_impl``)."""
    if gradient.device.index != stream.device_index:
        return
    with torch._C.DisableTorchFunctionSubclass(), _disable_current_modes(), torch.no_grad():
        if gradient.layout is torch.sparse_coo:
            parts = [gradient._values(), gradient._indices()]
        elif gradient.layout in COMPRESSED:
            parts = [getattr(gradient, part)() for part in COMPRESSED[gradient.layout]]
        else:
            parts = [gradient]
        for part in parts:
            part.record_stream(cast("Any", stream))


def _warn_of_mismatch(made: torch.Stream, used: torch.Stream, consumer: NodeRef) -> None:
    """Have torch itself warn, as it does once in a process, in its own words."""
    if not consumer.is_accumulate_grad or not _warns_of_mismatch():
        return
    if _warned and not torch.is_warn_always_enabled():
        return
    _warned.add(True)
    native_run.accumulate_across(cast("Any", made), cast("Any", used))
