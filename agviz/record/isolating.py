"""Keeping what it takes to run single nodes again, alone: ``agviz run --repro``.

Note [A node is looked at in a second run]
Torch's formulas look whether a TorchDispatchMode is there, and some compute in another way then. So
a node of torch's own runs as ever first; while it still has what it saved, it runs a second time
under the mode, and its calls are kept where the second run has put out the same bits. Such a
formula changes nothing but its results. What hooks for saved tensors unpacked in the first run is
given again in the second: they are the program's, and called once. Where a node has put out
something, AccumulateGrad and CopySlices, it does not run twice, and can't be run alone.

A custom Function's ``backward`` is the program's as well, and is called once: under the mode. As
soon as it calls backward itself, the mode is gone.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import re
import threading
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

from agviz.measure.health import measure, unseen
from agviz.measure.saved_tensors import raw_saved
from agviz.record import unpacking
from agviz.record.aten_calls import AtenCalls, CantIsolateError, described, place, stored
from agviz.record.selection import chosen_nodes
from agviz.repro.isolated_node import SETTINGS, GivenTensor, IsolatedNode, encode
from agviz.traces.isolated import Isolated
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from agviz.record.copies import Room
    from agviz.repro.safetensors import StoredTensor
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")
_C: Any = torch._C
_FORMULA: Final = re.compile(r"\w+Backward\d+|CopyBackwards")
_RAW: Final = "_raw_saved_"
_COMPILED: Final = "CompiledFunctionBackward"
_NONFINITE_PASSES: Final = 8
"""In so many backward passes, the first node that makes something non-finite is kept."""


class NodeIsolator:
    """Keeps nodes. Any thread may call.

    Args:
        chosen: found in the name, parameter or module of a node that is wanted; None: wanted is
            the first of each pass that puts out something non-finite though all that it was given
            was finite.
        room: bytes that all may take together.
        keep: gets what goes to the file.
    """

    def __init__(
        self, chosen: re.Pattern[str] | None, room: Room, keep: Callable[[Isolated], object]
    ) -> None:
        self._chosen = chosen
        self._room = room
        self._keep = keep
        self._wanted: dict[int, set[int] | None] = {}
        """Nodes by graph task under way; None: whichever makes something non-finite."""
        self._left = _NONFINITE_PASSES
        self._here = threading.local()

    def begun(
        self,
        graph_task: int,
        names: Sequence[str],
        parameters: Sequence[str],
        modules: Callable[[], Sequence[str]],
    ) -> None:
        """A graph task is about to run that is recorded.

        Args:
            graph_task: its number.
            names: of its nodes.
            parameters: the same; one text where it is the same for all.
            modules: the same.
        """
        if self._chosen is None:
            if self._left > 0:
                self._wanted[graph_task] = None
            return
        found = chosen_nodes(self._chosen, names, parameters, modules)
        if found:
            self._wanted[graph_task] = found

    def ended(self, graph_task: int) -> None:
        """None of its nodes runs any more."""
        self._wanted.pop(graph_task, None)

    def nested(self) -> None:
        """The node under way on this thread calls backward itself."""
        calls = getattr(self._here, "calls", None)
        if calls is not None:
            calls.interrupted("it runs a backward pass of its own, whose nodes can be kept instead")

    def run(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        inputs: Sequence[Tensor | None],
        body: Callable[[], Any],
    ) -> Any:
        """Run a node, and keep its calls where it is wanted."""
        if not self._wants(graph_task.id, ref):
            return body()
        is_custom = ref.is_custom_function
        return (self._run_function if is_custom else self._run_twice)(
            graph_task.id, ref, inputs, body
        )

    def _run_twice(
        self,
        graph_task: int,
        ref: NodeRef,
        inputs: Sequence[Tensor | None],
        body: Callable[[], Any],
    ) -> Any:
        with unpacking.first_run() as unpacked:
            result = body()
        try:
            outputs = result if type(result) is tuple else (result,)
            if self._chosen is not None or self._has_broken(graph_task, inputs, outputs):
                _check_formula(ref)
                calls = AtenCalls(_names(inputs), _saved_names(ref))
                with unpacking.second_run(unpacked):
                    again = self._again(calls, ref, inputs)
                self._finish(graph_task, ref, calls, inputs, again, outputs)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._cant(graph_task, ref, error)
        return result

    def _run_function(
        self,
        graph_task: int,
        ref: NodeRef,
        inputs: Sequence[Tensor | None],
        body: Callable[[], Any],
    ) -> Any:
        if ref.name == _COMPILED:
            self._cant(graph_task, ref, CantIsolateError("torch.compile made kernels of it"))
            return body()
        calls = AtenCalls(_names(inputs))
        before = getattr(self._here, "calls", None)
        self._here.calls = calls
        calls.start()
        try:
            with unpacking.only_run(calls):
                outputs = body()
        finally:
            calls.stop()
            self._here.calls = before
        try:
            if self._chosen is not None or self._has_broken(graph_task, inputs, outputs):
                self._finish(graph_task, ref, calls, inputs, outputs, outputs)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._cant(graph_task, ref, error)
        return outputs

    def _wants(self, graph_task: int, ref: NodeRef) -> bool:
        if graph_task not in self._wanted:
            return False
        chosen = self._wanted[graph_task]
        return chosen is None or ref.index in chosen

    def _has_broken(
        self,
        graph_task: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
    ) -> bool:
        with unseen():
            if _all_finite(outputs) or not _all_finite(inputs):
                return False
        self._left -= 1
        self._wanted.pop(graph_task, None)
        return True

    def _again(
        self, calls: AtenCalls, ref: NodeRef, inputs: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        devices = [] if ref.device < 0 or not torch.cuda.is_available() else [ref.device]
        # Without gradients, so that neither sequence numbers nor pack hooks are asked for.
        with (
            _unprofiled(),
            _disable_current_modes(),
            torch.random.fork_rng(devices),
            torch.no_grad(),
        ):
            calls.start()
            try:
                result: Any = cast("Any", ref.node)(*inputs)
            finally:
                calls.stop()
        return result if type(result) is tuple else (result,)

    def _finish(
        self,
        graph_task: int,
        ref: NodeRef,
        calls: AtenCalls,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        recorded: Sequence[Tensor | None],
    ) -> None:
        if calls.why_not:
            raise CantIsolateError(calls.why_not)
        with unseen():
            names = tuple(calls.name(one) for one in outputs)
            kept = [
                None if one is None else described(f"output_{number}", one)
                for number, one in enumerate(recorded)
            ]
            nbytes = sum(each.nbytes for each in calls.given.values())
            nbytes += sum(each[1].nbytes for each in kept if each is not None)
            if not self._room.take(nbytes):
                raise CantIsolateError(
                    f"it takes {nbytes:,} bytes, and {self._room.free:,} are left of"
                    f" {self._room.most:,} (--max-values-bytes)"
                )
            tensors = {each.facts.name: each.stored() for each in calls.given.values()}
            expected: list[GivenTensor | None] = []
            for each in kept:
                expected.append(None if each is None else each[0])
                if each is not None:
                    tensors[each[0].name] = stored(*each, None)
            if outputs is not recorded:
                _compare(outputs, tensors, expected)
        node = IsolatedNode(
            ref.name,
            _facts(),
            threads=torch.get_num_threads(),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
            settings=_settings(),
            given=tuple(each.facts for each in calls.given.values()),
            calls=tuple(calls.calls),
            outputs=names,
            recorded=tuple(expected),
            grads=tuple(calls.named(one) for one in inputs),
        )
        self._keep(Isolated(graph_task, ref.index, encode(node, tensors)))

    def _cant(self, graph_task: int, ref: NodeRef, error: Exception) -> None:
        why = str(error)
        if not isinstance(error, CantIsolateError):
            why = f"agviz failed to keep it ({type(error).__name__}: {error})"
            log.debug("a node is not kept", exc_info=error)
        node = IsolatedNode(ref.name, _facts(), why_not=why)
        with contextlib.suppress(Exception):
            self._keep(Isolated(graph_task, ref.index, encode(node, {})))


def _check_formula(ref: NodeRef) -> None:
    if not _FORMULA.fullmatch(ref.name.rpartition("::")[2]):
        raise CantIsolateError("it is none of torch's formulas, and may not run twice")


@contextlib.contextmanager
def _unprofiled() -> Iterator[None]:
    profiled = _C._autograd._profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)


def _all_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(one is None or measure(one).is_finite for one in tensors)


def _compare(
    outputs: Sequence[Tensor | None],
    tensors: dict[str, StoredTensor],
    expected: Sequence[GivenTensor | None],
) -> None:
    """See that the second run put out the same bits as the first."""
    if len(outputs) != len(expected):
        raise CantIsolateError("it put out something else when it ran a second time")
    for output, before in zip(outputs, expected, strict=True):
        same = (output is None) == (before is None)
        if output is not None and before is not None:
            facts, flat = described(before.name, output)
            same = facts == before and stored(facts, flat, None).data == tensors[before.name].data
        if not same:
            raise CantIsolateError("it put out other bits when it ran a second time")


def _names(inputs: Sequence[Tensor | None]) -> dict[int, str]:
    """What gradients are called, by identity."""
    return {id(one): f"grad_{slot}" for slot, one in enumerate(inputs) if one is not None}


def _saved_names(ref: NodeRef) -> dict[tuple[Any, ...], str]:
    """What is called what the node saved, by :func:`place`; nothing of what hooks packed."""
    found: dict[tuple[Any, ...], str] = {}
    with unseen():
        for attribute in dir(ref.node):
            if attribute.startswith(_RAW):
                one = raw_saved(ref.node, attribute)
                for number, each in enumerate(one if isinstance(one, list | tuple) else [one]):
                    if each is not None and each.unpack_hook is None and each.data is not None:
                        name = attribute.removeprefix("_raw_").lower()
                        name += f"_{number}" if isinstance(one, list | tuple) else ""
                        found.setdefault(place(each.data), name)
    return found


def _facts() -> dict[str, str]:
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _settings() -> dict[str, bool]:
    found = {}
    for path, default in SETTINGS.items():
        value: Any = torch
        for part in path.split(".")[1:]:
            value = getattr(value, part)
        if bool(value) != default:
            found[path] = bool(value)
    return found
