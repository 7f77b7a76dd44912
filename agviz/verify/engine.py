"""The engine that a program gets under ``agviz verify``: each pass runs on both, and is compared.

Note [Three runs]
~~~~~~~~~~~~~~~~~
A pass runs three times on the same graph, each time from the same gradients and random numbers:

1. on the native engine, with the graph kept. This is what the program would have got.
2. on the native engine again, with a hook on every node that notes the order. Where this run comes
   out differently already, the pass can't be repeated (a hook that counts, a custom Function that
   frees its buffers, an atomic addition on a GPU), and nothing can be said about our engine.
3. on our engine, with the program's own ``retain_graph``, so that the graph is released as usual.

Where run 3 is equal the program goes on with its results, otherwise with those of run 1.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

import agviz_engine
from agviz.verify.calls import BackwardCall, PassRun
from agviz.verify.comparison import differences, order_differences
from agviz.verify.findings import ComparisonOutcome, ComparisonReport, PassComparison
from agviz.verify.state import ProgramState
from agviz.verify.watching import Watcher, watched_natively
from agviz.words.shapes import write_shape
from agviz_engine.errors import comes_from_outside
from agviz_engine.thread_state import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module

    from agviz.verify.comparison import NameOf

_C = cast("Any", torch._C)
_OTHER_THREAD_SECONDS = 30.0
_BEGAN_IN = Path.cwd()
"""The program may go to another folder, or a test put something in the place of what gives it."""
_NOT_THE_PROGRAM = tuple(
    str(folder) + os.sep
    for folder in (
        Path(torch.__file__).parent,
        Path(agviz_engine.__file__).parent,
        Path(__file__).parents[1],
    )
)


class _Arguments(NamedTuple):
    """What ``run_backward`` was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def get(self, position: int, name: str) -> Any:
        """One of them, or None."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    @property
    def accumulates(self) -> bool:
        """Whether this is ``backward`` and not ``grad``."""
        return bool(self.get(6, "accumulate_grad"))

    @property
    def written_to(self) -> tuple[Any, ...]:
        """The ``inputs=`` of ``backward``, which get a ``.grad`` even where they are no leaves."""
        inputs = self.get(4, "inputs")
        return inputs if self.accumulates and isinstance(inputs, tuple) else ()

    def keeping_the_graph(self) -> _Arguments:
        """The same with ``retain_graph``; an argument that torch refuses stays as it is."""
        if not isinstance(self.get(2, "keep_graph"), int):
            return self
        if len(self.args) > 2:
            return _Arguments((*self.args[:2], True, *self.args[3:]), self.kwargs)
        return _Arguments(self.args, self.kwargs | {"keep_graph": True})


class VerifyingEngine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """Takes the place of ``Variable._execution_engine`` and runs each pass on both engines.

    Passes of several threads come one after the other.
    """

    def __init__(
        self, ours: Any, watcher: Watcher, name_of: NameOf, *, steps: range | None = None
    ) -> None:
        super().__init__()
        self.findings = ComparisonReport()
        self._ours = ours
        self._watcher = watcher
        self._name_of = name_of
        self._steps = steps
        self._one_at_a_time = threading.Lock()
        self._run: PassRun | None = None

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """As torch's."""
        self._ours.queue_callback(callback)

    def is_checkpoint_valid(self) -> bool:
        """As torch's."""
        return bool(self._ours.is_checkpoint_valid())

    def module_entered(self, module: Module, _args: object) -> None:
        """Note that a module's ``forward`` begins, maybe within a pass."""
        run = self._run
        if run is not None:
            with _taking_down(run):
                run.before.buffers.add(module)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        arguments = _Arguments(args, kwargs)
        if _C._current_graph_task_id() != -1:
            return self._call(self._run, arguments, native=current().current_graph_task is None)
        alone = self._one_at_a_time.acquire(timeout=_OTHER_THREAD_SECONDS)
        finding = PassComparison(
            number=self.findings.passes,
            call="backward" if arguments.accumulates else "grad",
            place=_place(),
            outcome=ComparisonOutcome.NOT_COMPARED,
        )
        try:
            finding.reason = self._why_not(finding.number, alone=alone)
            if finding.reason:
                return self._call(None, arguments, native=True)
            return self._verify(arguments, finding)
        except KeyboardInterrupt:
            finding.reason = "interrupted"
            raise
        finally:
            self.findings.add(finding)
            if alone:
                self._one_at_a_time.release()

    def _why_not(self, number: int, *, alone: bool) -> str:
        """Why a pass is not compared; empty where it is."""
        if not alone:
            return "a pass on another thread did not come to its end"
        if self._steps is not None and number not in self._steps:
            return "left out by --steps"
        if _C._len_torch_dispatch_stack():
            return "a torch-dispatch mode is active"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured"
        return ""

    def _verify(self, arguments: _Arguments, finding: PassComparison) -> Any:
        """Run a pass three times, see Note [Three runs], and fill in what was found."""
        kept = arguments.keeping_the_graph()
        before = ProgramState()
        native = self._execute(kept, before, native=True)
        finding.reason = self._why_once_only(native)
        if finding.reason:
            finding.outcome = ComparisonOutcome.NOT_COMPARABLE
            return native.give()
        after = ProgramState(like=before)
        finding.nodes, finding.reentrant = native.calls[0].nodes, len(native.calls) - 1
        finding.gradients = sum(len(c.gradients) + len(c.returned) for c in native.calls)
        finding.raised = native.failure()

        before.restore()
        control = self._execute(kept, before, native=True, watched=True)
        finding.reason = self._why_unsteady(native, control)
        if finding.reason:
            finding.outcome = ComparisonOutcome.NOT_COMPARABLE
        else:
            before.restore()
            ours = self._execute(arguments, before, native=False, watched=True)
            self._fill_in(finding, native, control, ours)
            if finding.outcome is ComparisonOutcome.EQUAL:
                del native, control, after
                return ours.give()
        after.restore()
        return native.give()

    def _why_once_only(self, run: PassRun) -> str:
        if run.not_taken:
            return f"its gradients can't be taken down ({run.not_taken})"
        changed = run.before.gradients.changed()
        if changed is None:
            return ""
        name = self._name_of(changed) or f"a tensor of shape {write_shape(changed.shape)}"
        return f"it changes {name} itself, not only its gradient (an optimizer step in a hook?)"

    def _why_unsteady(self, first: PassRun, then: PassRun) -> str:
        found = differences(first, then, self._name_of)
        if not found:
            return ""
        return f"torch's own engine does not repeat it: {found[0].described('first', 'then')}"

    def _fill_in(
        self, finding: PassComparison, native: PassRun, control: PassRun, ours: PassRun
    ) -> None:
        finding.hooks = sum(call.hooks for call in ours.calls)
        finding.order_compared = all(call.seen for call in ours.calls)
        finding.differences = differences(native, ours, self._name_of)
        finding.differences += order_differences(control, ours)
        finding.outcome = (
            ComparisonOutcome.DIFFERENT if finding.differences else ComparisonOutcome.EQUAL
        )

    def _execute(
        self, arguments: _Arguments, before: ProgramState, *, native: bool, watched: bool = False
    ) -> PassRun:
        """Run a pass on one engine, to its end or to its exception."""
        run = self._run = PassRun(before, native=native, watched=watched)
        try:
            run.returned = self._call(run, arguments, native=native)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, Exception) and comes_from_outside(error):
                raise
            run.error = error  # held against the other engine's
        finally:
            self._run = None
        return run

    def _call(self, run: PassRun | None, arguments: _Arguments, *, native: bool) -> Any:
        """A call of the engine, taken down where it belongs to a run."""
        if run is None:
            return self._pass_on(arguments, native=native)
        with _taking_down(run):
            call = BackwardCall(arguments.get(0, "tensors"), arguments.written_to)
            run.before.gradients.add(tensor for _, tensor in call.tensors)
            run.calls.append(call)
        if run.not_taken:
            return self._pass_on(arguments, native=native)
        returned = None
        try:
            with self._watching(run, call):
                returned = self._pass_on(arguments, native=native)
        finally:
            with _taking_down(run):
                call.end(returned)
        return returned

    def _watching(
        self, run: PassRun, call: BackwardCall
    ) -> contextlib.AbstractContextManager[None]:
        if not run.watched:
            return contextlib.nullcontext()
        return watched_natively(call) if run.native else self._watcher.watched(call)

    def _pass_on(self, arguments: _Arguments, *, native: bool) -> Any:
        with agviz_engine.native() if native else contextlib.nullcontext():
            return self._ours.run_backward(*arguments.args, **arguments.kwargs)


@contextlib.contextmanager
def _taking_down(run: PassRun) -> Iterator[None]:
    """What goes wrong in our own work is no exception of the program."""
    try:
        yield
    except Exception as error:  # tensors can be anything, the program goes on
        if comes_from_outside(error):
            raise
        run.not_taken = run.not_taken or f"{type(error).__name__}: {error}"


def _place() -> str:
    """File and line in the program that the engine was called from."""
    frame = sys._getframe()
    while frame.f_back and frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(_BEGAN_IN):
        path = path.relative_to(_BEGAN_IN)
    return f"{path}:{frame.f_lineno}"
