"""Rewind: a pass that has begun goes back to an earlier node, and runs on from there.

Note [Going back]
~~~~~~~~~~~~~~~~~
An engine with a :class:`Rewind` keeps a step for each node that it takes up, before the node runs:
what came to it; of its consumers the missing dependencies and what their buffers hold; of a leaf
its ``.grad``; the queue; the engine's counters; the state of random generators where it is another
than at the step before. All that a node changes of the engine's state is in its own step, so that
the steps are undone one by one, the last one first, and a step costs what its node has edges.

Nothing is copied but what may change in place: a ``.grad`` that is there before, and the gradients
that come to Python (custom Functions, hooks). The rest is held, and its versions are compared when
somebody wants to go back. What is held has one more holder, so that gradients that would be stolen
by a leaf are copied into it, and sums that would be made in place get memory of their own. The
values are the same bit for bit; strides are where torch's layout contract is kept, which is the
default.

Nodes let go of what they saved when the pass ends, in place of when they end, or when what is held
exceeds its bound. The oldest steps are let go of then. All nodes run on the thread that called
backward, as with ``set_multithreading_enabled(False)``, so that there is one order to undo.

An instrument goes back by raising :class:`GoBack` at an event of a node. It unwinds the node under
way like Ctrl-C does; ``Engine._work`` catches it and wakes its own thread, which undoes the steps
and works the task of the chosen node off anew. From then on the graph task has another id, for what
the program keeps by id (checkpointing) and for the recording: there, the first run ends with
``GraphTaskFailed`` of ``GoBack``, the second begins with what it takes over (:mod:`.tape`), and
``Intervened`` of the kind ``back`` is where it goes on.

What Python did outside of the engine is not undone. :class:`WayBack` lists which nodes ran Python
since then, and what prevents going back.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

from agviz_engine import function_hook, generator_state
from agviz_engine.emissions import took
from agviz_engine.input_buffer import held_bytes
from agviz_engine.tensor_facts import storage_address
from agviz_engine.thread_state import is_traced
from agviz_engine.torch_layout import had_hooks
from agviz_engine.torch_modes import legacy_vmap_level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from agviz_engine.generator_state import GeneratorState
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.node import NodeRef
    from agviz_engine.ready_queue import NodeTask, QueueState, ReadyQueue
    from agviz_engine.tape import Tape

_C = cast("Any", torch._C)
_version_of = _C.TensorBase._version.__get__
MOST_BYTES = 2**30
"""Held by default, in all passes together."""
_CHANGED = "its input {} was changed in place since"


class CantGoBackError(RuntimeError):
    """A pass can't go back to a node; the message says why in one sentence."""


class GoBack(BaseException):
    """Has a pass go back; raised by an instrument at an event of one of its nodes.

    Args:
        graph_task: the pass, with a :class:`PassHistory`.
        number: how many nodes it had taken up before the one from which it is to run again.
    """

    def __init__(self, graph_task: GraphTask, number: int) -> None:
        self.graph_task = graph_task
        self.number = number
        ref = graph_task.history.task_of(number).node
        super().__init__(f"it was run again from {ref.name} (node {ref.index}) on")


class WayBack(NamedTuple):
    """What it means to go back to a node."""

    number: int
    """For :class:`GoBack`."""
    node: NodeRef
    nodes: int
    """How many will run again, or did not run to their end."""
    python: list[str]
    """What ran of the program since then, and is not undone: a node and its hooks each."""
    against: list[str]
    """Why the second run may differ from the first; sentences without a full stop."""


class Rewind:
    """Keeps what going back needs, of all passes of an engine together.

    Args:
        most_bytes: how much may be held.
        saved: gives the tensors that a node has saved, which are counted from when it would have
            let go of them; None where hooks of the program unpack them, which it must not call.
            None in its place: that is not known of any node.
        tape: keeps what is emitted, for instruments with a journal; None: there are none.
        label: what a node is called in sentences.
    """

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        *,
        saved: Callable[[NodeRef], Sequence[Tensor] | None] | None = None,
        tape: Tape | None = None,
        label: Callable[[NodeRef], str] = lambda ref: f"{ref.name} (node {ref.index})",
    ) -> None:
        self.most_bytes = most_bytes
        self.saved = saved
        self.tape = tape
        self.label = label
        self.nbytes = 0
        """Held now."""
        self._holders: dict[int, list[int]] = {}
        """By storage: in how many places it is held, and its bytes."""

    def begin(self, graph_task: GraphTask, inputs: int) -> PassHistory | None:
        """Keep what a pass does from now on.

        Args:
            graph_task: the pass, whose graph is known.
            inputs: number of ``inputs=``.

        Returns:
            None where nothing can be kept of it: several threads work on it, it is traced, or
            inside a transform of functorch.
        """
        if graph_task.threaded or is_traced():
            return None
        if _C._are_functorch_transforms_active() or legacy_vmap_level():
            return None
        if self.tape is not None:
            self.tape.begin(graph_task.id)
        return PassHistory(self, graph_task, inputs)

    def hold(self, tensor: Tensor) -> int:
        """Count a tensor's memory; gives what :meth:`let_go` is to be called with."""
        key = storage_address(tensor)
        found = self._holders.get(key) if key else None
        if found is None:
            key = key or -id(tensor)
            nbytes = tensor.untyped_storage().nbytes() if key > 0 else held_bytes(tensor)
            found = self._holders.setdefault(key, [0, nbytes])
            if not found[0]:
                self.nbytes += found[1]
        found[0] += 1
        return key

    def let_go(self, keys: list[int]) -> None:
        """They are held in one place less."""
        for key in keys:
            found = self._holders[key]
            found[0] -= 1
            if not found[0]:
                self.nbytes -= found[1]
                del self._holders[key]
        keys.clear()


class _Held:
    """A tensor as it was at a step."""

    __slots__ = ("_copy", "_version", "tensor")

    def __init__(self, tensor: Tensor, *, copied: bool) -> None:
        self.tensor = tensor
        self._version = version(tensor)
        self._copy = tensor.detach().clone() if copied else None

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.tensor,) if self._copy is None else (self.tensor, self._copy)

    def has_changed(self) -> bool:
        return version(self.tensor) != self._version

    def is_lost(self) -> bool:
        return self._copy is None and self.has_changed()

    def restore(self) -> None:
        if self._copy is not None and self.has_changed():
            self.tensor.detach().copy_(self._copy)


class _Leaf(NamedTuple):
    variable: Tensor
    grad: _Held | None


class _Consumer(NamedTuple):
    node: int
    dependencies: int
    buffer: InputBuffer | None
    content: tuple[Tensor | None, ...]
    is_nonfinite: bool


class _Step:
    """A node that was taken up, and what was before it ran."""

    __slots__ = (
        "after",
        "consumers",
        "counters",
        "inputs",
        "keys",
        "leaf",
        "notes",
        "queue",
        "random",
        "ref",
        "released",
        "runs_python",
        "saved",
        "taped",
        "task",
        "was_nonfinite",
    )

    def __init__(
        self, task: NodeTask[GraphTask], ref: NodeRef, queue: QueueState[GraphTask]
    ) -> None:
        self.task = task
        self.ref = ref
        self.taped = 0
        """How much was on the tape."""
        self.queue = queue
        self.keys: list[int] = []
        self.notes: list[str] = []
        self.released = False
        self.after: tuple[Tensor | None, int] | None = None
        """The leaf's ``.grad`` and its version when the node had ended."""
        self.leaf: _Leaf | None = None
        self.inputs: tuple[_Held | None, ...]
        self.consumers: list[_Consumer]
        self.counters: tuple[int, int, int]
        self.random: GeneratorState
        self.runs_python: bool
        self.saved: Sequence[Tensor] | None = ()
        """None: hooks of the program unpack it, or that is not known."""
        self.was_nonfinite: bool

    def held(self) -> Iterator[Tensor]:
        """All tensors that it holds and knows how to count."""
        for each in self.inputs:
            if each is not None:
                yield from each.parts
        if self.leaf is not None and self.leaf.grad is not None:
            yield from self.leaf.grad.parts[1:]
        for consumer in self.consumers:
            for tensor in consumer.content:
                if tensor is not None:
                    yield tensor

    def undo(self, graph_task: GraphTask) -> None:
        for each in self.inputs:
            if each is not None:
                each.restore()
        for index, dependencies, buffer, content, is_nonfinite in self.consumers:
            graph_task.dependencies[index] = dependencies
            if buffer is None:
                graph_task.not_ready.pop(index, None)
            else:
                buffer[:] = content
                graph_task.not_ready[index] = buffer
            _put(graph_task.nonfinite, index, is_there=is_nonfinite)
        _put(graph_task.nonfinite, self.ref.index, is_there=self.was_nonfinite)
        if self.leaf is not None:
            variable, grad = self.leaf
            before = None if grad is None else grad.tensor
            if variable.grad is not before:
                variable.grad = before
            if grad is not None:
                grad.restore()
        inputs = [None if each is None else each.tensor for each in self.inputs]
        self.task.inputs = inputs
        self.task.row = None


class PassHistory:
    """What a pass did so far, so that it can go back: Note [Going back]."""

    def __init__(self, owner: Rewind, graph_task: GraphTask, inputs: int) -> None:
        self._owner = owner
        self._graph_task = graph_task
        self.number_of_inputs = inputs
        self.wanted: GoBack | None = None
        """To where it goes back as soon as its thread wakes up."""
        self._steps: deque[_Step] = deque()
        self._let_go = 0
        """The oldest steps that are no longer kept."""
        self._dependencies = list(graph_task.dependencies)
        self._with_devices = graph_task.streams is not None
        self._random: GeneratorState | None = None
        with _plainly():
            self._leaves = {
                ref.index: version(ref.node.variable)
                for ref in graph_task.nodes
                if ref.is_accumulate_grad
            }

    # -- while nodes run ------------------------------------------------------------------------

    def keep(self, queue: ReadyQueue[GraphTask], task: NodeTask[GraphTask]) -> None:
        """A task has left its queue, and nothing was done with it yet."""
        ref, graph_task = cast("NodeRef", task.node), self._graph_task
        step = _Step(task, ref, queue.state())
        if self._owner.tape is not None:
            step.taped = self._owner.tape.length(graph_task.id)
        with _plainly():
            self._random = step.random = generator_state.take(
                self._random,
                with_devices=self._with_devices,
                with_python=self._end_step(),
            )
            step.runs_python, is_given = _asks_python(ref)
            if ref.saves_tensors or ref.is_custom_function:
                step.saved = None if self._owner.saved is None else self._owner.saved(ref)
            step.inputs = tuple(
                None if each is None else _Held(each, copied=is_given) for each in task.inputs or ()
            )
            if ref.is_accumulate_grad:
                variable = ref.node.variable
                grad = variable.grad
                step.leaf = _Leaf(variable, None if grad is None else _Held(grad, copied=True))
            step.consumers = [self._consumer(edge[0].index) for edge in ref.next_edges if edge]
            step.was_nonfinite = ref.index in graph_task.nonfinite
            step.counters = (
                graph_task.outstanding_tasks,
                graph_task.executed,
                len(graph_task.final_callbacks),
            )
            step.keys += [self._owner.hold(tensor) for tensor in step.held()]
            self._steps.append(step)
            self._stay_within_bound()

    def _consumer(self, index: int) -> _Consumer:
        graph_task = self._graph_task
        buffer = graph_task.not_ready.get(index)
        content = () if buffer is None else tuple(buffer)
        is_nonfinite = index in graph_task.nonfinite
        return _Consumer(index, graph_task.dependencies[index], buffer, content, is_nonfinite)

    def _end_step(self) -> bool:
        """The node of the last step has ended: whether it may have run Python."""
        last = self._steps[-1] if self._steps else None
        if last is None:
            return True
        if last.leaf is not None:
            grad = last.leaf.variable.grad
            last.after = grad, -1 if grad is None else version(grad)
        return last.runs_python or last.saved is None

    def release(self, ref: NodeRef) -> None:
        """In place of a node's release: it lets go of what it saved when it is no longer kept."""
        if not self._steps:
            ref.release_variables()
            return
        step = self._steps[-1]
        step.released = True
        step.keys += [self._owner.hold(tensor) for tensor in step.saved or ()]
        self._stay_within_bound()

    def note(self, what: str) -> None:
        """Something happened inside the node under way that is not undone."""
        if self._steps and what not in self._steps[-1].notes:
            self._steps[-1].notes.append(what)

    def end(self) -> None:
        """The pass is over: let nodes go of what they saved."""
        while self._steps:
            self._let_go_of_oldest()
        if self._owner.tape is not None:
            self._owner.tape.end(self._graph_task.id)

    def _stay_within_bound(self) -> None:
        while self._owner.nbytes > self._owner.most_bytes and self._steps:
            self._let_go_of_oldest()
            self._let_go += 1

    def _let_go_of_oldest(self) -> None:
        step = self._steps.popleft()
        self._owner.let_go(step.keys)
        if step.released:
            step.ref.release_variables()

    # -- going back -----------------------------------------------------------------------------

    def task_of(self, number: int) -> NodeTask[GraphTask]:
        """The task that was taken up after ``number`` others."""
        return self._steps[number - self._let_go].task

    def way_back(self, node: int | None = None) -> WayBack:
        """What it means to run again from a node on.

        Args:
            node: its index; None: the one that ran before the node under way.

        Raises:
            CantGoBackError: that can't be done.
        """
        place = self._place(node)
        undone = [self._steps[i] for i in range(place, len(self._steps))]
        with _plainly():
            return WayBack(
                self._let_go + place,
                undone[0].ref,
                len(undone),
                [self._ran(step) for step in undone if self._has_run_python(step)],
                [*self._against(place)],
            )

    def _place(self, node: int | None) -> int:
        label = self._owner.label
        if self._graph_task.future_completed and not self._graph_task.has_error:
            raise CantGoBackError("all nodes of this pass have run: it is at its end")
        if node is None:
            if len(self._steps) > 1:
                return len(self._steps) - 2
            raise CantGoBackError(
                f"the node before is no longer kept, {self._bound()}"
                if self._let_go
                else "no node ran before this one"
            )
        for place in range(len(self._steps) - 1, -1, -1):
            if self._steps[place].ref.index == node:
                return place
        if not 0 <= node < len(self._graph_task.nodes):
            raise CantGoBackError(f"there is no node {node} in this pass")
        ref = self._graph_task.nodes[node]
        if self._let_go and self._has_run(ref):
            raise CantGoBackError(f"{label(ref)} ran before all that is kept, {self._bound()}")
        raise CantGoBackError(f"{label(ref)} has not run yet")

    def _bound(self) -> str:
        steps, most = f"{self._let_go:,}", f"{self._owner.most_bytes:,}"
        return f"for {steps} nodes were let go of to hold no more than {most} bytes"

    def _has_run(self, ref: NodeRef) -> bool:
        """Whether a node that is not among the steps had its turn."""
        task = self._graph_task
        waits = ref.index in task.not_ready or task.dependencies[ref.index] > 0
        queued = any(each.node is ref for each in task.cpu_ready_queue.snapshot())
        return not waits and not queued

    def _has_run_python(self, step: _Step) -> bool:
        return step.runs_python or (step.saved is None and self._owner.saved is not None)

    def _ran(self, step: _Step) -> str:
        names = ", ".join(function_hook.hook_names(step.ref))
        kind = "a custom Function" if step.ref.is_custom_function else ""
        hooks = f"hooks {names}" if names else ""
        unpacks = "hooks that unpack what it saved"
        if step.saved is not None or self._owner.saved is None:
            unpacks = ""
        what = ", ".join(filter(None, (kind, hooks, unpacks))) or "hooks"
        return f"{self._owner.label(step.ref)}: {what}"

    def _against(self, place: int) -> Iterator[str]:
        label = self._owner.label
        for number, step in enumerate(self._steps):
            if number >= place:
                yield from self._against_undoing(step)
            if step.after is not None and step.leaf is not None:
                now = step.leaf.variable.grad
                if now is not step.after[0] or (now is not None and version(now) != step.after[1]):
                    yield f"the .grad of {label(step.ref)} was changed since by the program"
        undone = {self._steps[i].ref.index for i in range(place, len(self._steps))}
        for index, before in self._leaves.items():
            ref = self._graph_task.nodes[index]
            if version(ref.node.variable) != before and (index in undone or not self._has_run(ref)):
                yield f"the parameter of {label(ref)} was changed in place since the pass began"

    def _against_undoing(self, step: _Step) -> Iterator[str]:
        name = self._owner.label(step.ref)
        for what in step.notes:
            yield f"{name} {what}"
        for slot, each in enumerate(step.inputs):
            if each is not None and each.is_lost():
                yield f"{name} can't run again as before: {_CHANGED.format(slot)}"
        if step.ref.is_accumulate_grad and step.ref.has_native_hooks():
            yield f"{name} has hooks made in C++, as DistributedDataParallel's are"

    def restore(self, queue: ReadyQueue[GraphTask]) -> NodeTask[GraphTask]:
        """Undo all steps back to the one that is wanted.

        Returns:
            The task of its node, which is to be worked off.
        """
        wanted, self.wanted = cast("GoBack", self.wanted), None
        graph_task = self._graph_task
        place = wanted.number - self._let_go
        step = self._steps[place]
        queue.restore(step.queue)
        with _plainly():
            while len(self._steps) > place:
                step = self._steps.pop()
                step.undo(graph_task)
                self._owner.let_go(step.keys)
            generator_state.restore(step.random)
        self._random = step.random
        graph_task.outstanding_tasks, graph_task.executed, callbacks = step.counters
        del graph_task.final_callbacks[callbacks:]
        graph_task.looked.clear()
        self.taped = step.taped
        return step.task

    taped = 0
    """How much was on the tape before the task left its queue that :meth:`restore` gave."""

    def first_dependencies(self) -> list[int]:
        """How many edges led to each node before any had run."""
        return self._dependencies

    @property
    def tape(self) -> Tape | None:
        """What was emitted of this pass."""
        return self._owner.tape


def leave_again(queue: ReadyQueue[GraphTask], task: NodeTask[GraphTask], thread: int) -> None:
    """Let a task have left its queue at this moment."""
    graph_task, node = cast("GraphTask", task.base), cast("NodeRef", task.node)
    task.row = took(thread, graph_task.id, node.index, queue.index, queue.size())


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; -1: it does not count that."""
    try:
        number: int = _version_of(tensor)
    except RuntimeError:  # made in inference mode
        return -1
    return number


def _asks_python(ref: NodeRef) -> tuple[bool, bool]:
    """Whether a node runs Python of the program, and whether this gets its gradients."""
    if ref.is_custom_function:
        return True, True
    if not ref.base:
        return False, False
    pre, tensor_pre, _, post = had_hooks(ref.base << 3)
    if ref.is_accumulate_grad:
        variable = ref.node.variable
        if not function_hook.leaf_has_hooks(ref, variable):
            return False, False
        is_given = bool(pre or post or function_hook.has_tensor_pre_hooks(ref))
        return True, is_given
    has_hooks = bool(pre or tensor_pre or post)
    return has_hooks, has_hooks


def _put(numbers: set[int], number: int, *, is_there: bool) -> None:
    if is_there:
        numbers.add(number)
    else:
        numbers.discard(number)


def _plainly() -> ExitStack:
    """Have nothing that the program put around torch notice what is done to tensors here."""
    plainly = ExitStack()
    plainly.enter_context(torch.no_grad())
    plainly.enter_context(_C.DisableTorchFunction())
    if _C._len_torch_dispatch_stack():
        plainly.enter_context(_disable_current_modes())
    return plainly
