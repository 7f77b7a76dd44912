"""The Python API.

    with agviz.trace() as t:
        loss = model(batch)
        loss.backward()

    t.first_nonfinite()
    pandas.DataFrame(t.nodes)

The forward belongs inside too: names of modules and parameters, and the lines that created the
nodes, come from it. ``t`` draws itself in a notebook. ``agviz.trace(path="step.agviz")`` keeps the
file, ``agviz.load("step.agviz")`` gives ``t`` again, and :class:`Trace` asks a file everything.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import agviz_engine
from agviz.drawing import draw
from agviz.errors import AgvizError, DrawingError, TraceError
from agviz.live import debugging
from agviz.ranks.folder import Folder
from agviz.record.copies import MOST_BYTES
from agviz.record.options import (
    KEPT,
    Options,
    asked_to_check_forward,
    engine_asked_for,
    read_pattern,
)
from agviz.recorded import Recorded
from agviz.recording import Recording, default_name, say
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Sequence
    from os import PathLike
    from types import TracebackType

    from torch import Tensor
    from torch.nn import Module

    from agviz.analysis.gradients import Gradients
    from agviz.record.capture_level import CaptureLevel
    from agviz_engine import DevicePolicy

__all__ = [
    "AgvizError",
    "DrawingError",
    "Folder",
    "Options",
    "Recorded",
    "Trace",
    "TraceError",
    "disable",
    "draw",
    "enable",
    "load",
    "set_trace",
    "trace",
    "why",
]


class trace(Recorded):  # noqa: N801 - it is called like a function, as torch.no_grad is
    """Record the block's backward passes, in all threads.

    What ``with`` gives can be asked at any time, while the block runs too.

    Args:
        model: learn the names of its parameters now; without, from its forward in the block.
        path: the file to write, an older trace of this name is replaced; None: a temporary one,
            which goes with this object. Where even that can't be made, the block runs all the same,
            on torch's engine; stderr says so, and there is nothing to ask afterwards.
        values: ``health`` to measure every gradient (counts of NaN, infinities and zeros, min, max,
            mean, norm), ``none`` to leave that, ``full`` to record the gradients themselves too.
        max_values_bytes: of those, no more bytes than that, and none that is larger than a
            sixteenth of it; when it is used up, recording goes on with their health.
        steps: which calls of backward to record, counted from 0 without reentrant ones.
        nodes: record the events of those nodes only in whose name, parameter or module this regular
            expression is found.
        max_bytes: bound of the file (None: 2 GB; 0: no bound): it keeps the first backward passes,
            the last ones, and those that failed or were not finite.
        on: write only on these occasions, some of ``nonfinite``, ``exception`` and ``signal``
            (SIGUSR1): a flight recorder.
        keep: how many calls of backward it keeps.
        timeout: say on stderr what each thread does when a backward pass has had no event for so
            many seconds; it is in the file then, whatever else happens.
        device_policy: maps nodes to device threads; by default the device a node really is on.
        elements: of nodes in whose name, parameter or module this regular expression is found, keep
            where the largest element of what they put out comes from.
        provenance: keep the line that created every node, and what it saved for backward.
        check_forward: record each torch function that the program calls, with its line and the
            health of what it makes; by default what AGVIZ_CHECK_FORWARD says.
        engine: ``exact`` to run agviz's own engine, ``native`` to observe torch's from hooks (what
            it does with its queues is inferred), ``auto`` for the exact one where it fits this
            torch; by default what AGVIZ_ENGINE says, else ``auto``.

    Raises:
        agviz.errors.AgvizError: an argument makes no sense, or ``path`` can't be written to, before
            the block begins.
        agviz_engine.UnsupportedTorchError: the exact engine was asked for, and this torch lacks
            something that it needs.
    """

    def __init__(
        self,
        model: Module | None = None,
        path: str | PathLike[str] | None = None,
        *,
        values: CaptureLevel = "health",
        max_values_bytes: int = MOST_BYTES,
        steps: range | None = None,
        nodes: str | re.Pattern[str] | None = None,
        max_bytes: int | None = None,
        on: Collection[str] = (),
        keep: int = KEPT,
        timeout: float | None = None,
        device_policy: DevicePolicy | None = None,
        elements: str | re.Pattern[str] | None = None,
        provenance: bool = True,
        check_forward: bool | None = None,
        engine: str | None = None,
    ) -> None:
        if model is not None and not hasattr(model, "named_parameters"):
            raise AgvizError(
                f"model is {model!r}, which is no torch.nn.Module; the file to write is path="
            )
        options = Options(
            steps=steps,
            nodes=read_pattern(nodes) if isinstance(nodes, str) else nodes,
            elements=read_pattern(elements) if isinstance(elements, str) else elements,
            values=values,
            max_values_bytes=max_values_bytes,
            provenance=provenance,
            check_forward=asked_to_check_forward() if check_forward is None else check_forward,
            max_bytes=max_bytes,
            on=frozenset({on} if isinstance(on, str) else on),
            keep=keep,
            timeout=timeout,
            engine=engine_asked_for() if engine is None else engine,
        )
        self._is_named = path is not None
        if path is None:
            path = self._temporary()
        super().__init__(path)
        self._recording = Recording(self.path, options, device_policy=device_policy)
        self._model = model

    def _temporary(self) -> Path:
        """A file that goes with this object; one in this folder where no other can be made."""
        try:
            folder = tempfile.TemporaryDirectory(prefix="agviz-")
        except OSError:
            return default_path()
        weakref.finalize(self, folder.cleanup)
        return Path(folder.name, "trace.agviz")

    def __enter__(self) -> Self:
        if self._is_named:
            self._recording.open()
        elif self._recording.open_somewhere() is None:
            return self
        self.path = self._recording.path
        try:
            self._recording.start()
            self._recording.say_remark()
            if self._model is not None:
                self._recording.names.learn(self._model)
        except BaseException:
            self._recording.stop()
            raise
        _under_way.append(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self in _under_way:
            _under_way.remove(self)
        self.close()  # a reader would keep the file from being made whole
        self._recording.stop(exc)

    @property
    def trace(self) -> Trace:
        """Everything else that can be asked of a trace, as it is now."""
        self._recording.flush()
        return super().trace

    @property
    def records_forward(self) -> bool:
        """Whether the forward is being recorded, and can be read meanwhile."""
        options = self._recording.options
        return options.check_forward and not options.on

    def _why(self, model: Module, loss: Sequence[Tensor], parameter: str | None) -> Gradients:
        from agviz.live_why import RecordedForward, gradients

        return gradients(model, loss, parameter, RecordedForward(self._recording, self.trace))


_under_way: Final[list[trace]] = []
"""Those whose block runs, the innermost last."""


def why(
    model: Module,
    loss: Tensor | Sequence[Tensor] | Callable[[], Tensor | Sequence[Tensor]],
    parameter: str | None = None,
) -> Gradients:
    """Why parameters of ``model`` would get no gradient, or zeros, from ``loss``.

    Backward is not run, and nothing is changed. ``print`` what it gives, or look at its rows.

        agviz.why(model, lambda: loss_of(model(batch)))

    Args:
        model: whose parameters are meant.
        loss: what backward is to be called of; or a function without arguments that computes it,
            whose torch functions are recorded meanwhile: then the lines are known that cut the
            graph. They are as well for a loss that was computed within
            ``agviz.trace(model, check_forward=True)``, while that goes on.
        parameter: only this one, by its name in ``model``, or those of the module of this path;
            None: all.

    Raises:
        agviz.errors.AgvizError: there is no such parameter, or ``loss`` is no tensor.
        agviz_engine.UnsupportedTorchError: this torch lacks something that is needed.
    """
    agviz_engine.probe()
    from agviz.live_why import computed, gradients

    around = next((each for each in reversed(_under_way) if each.records_forward), None)
    if not callable(loss):
        tensors = computed(loss)
        if around is not None:
            return around._why(model, tensors, parameter)
        return gradients(model, tensors, parameter, None)
    if around is not None:
        return around._why(model, computed(loss()), parameter)
    with trace(model, values="none", check_forward=True) as t:
        return t._why(model, computed(loss()), parameter)


def load(path: str | PathLike[str]) -> Recorded:
    """A recorded trace, with its rows as tables.

    Raises:
        agviz.errors.TraceError: no such file, or it is no trace.
    """
    found = Recorded(path)
    _ = found.trace
    return found


_lock: Final = threading.Lock()
_enabled: list[Recording] = []


def enable(path: str | PathLike[str] | None = None, options: Options | None = None) -> Path:
    """Record all backward passes from now on until :func:`disable`, or the end of the process.

    A child made by ``fork`` that calls backward gets a file of its own.

    Args:
        path: the file to write; None: what AGVIZ_OUTPUT names, or ``agviz-<script>.<pid>.agviz``.
        options: what to record, and which engine runs; None: everything.

    Returns:
        The file.

    Raises:
        agviz.errors.AgvizError: recording goes on already, or ``path``, or without one no file at
            all, can be written to.
        agviz_engine.UnsupportedTorchError: this torch lacks something that the engine needs.
    """
    with _lock:
        if _enabled:
            raise AgvizError(f"{_enabled[0].path} is being recorded already; disable that first")
        recording = Recording(Path(path) if path else default_path(), options)
        if path:
            recording.open()
        elif recording.open_somewhere() is None:
            raise TraceError("there is no place to record into; name a file that can be written")
        try:
            recording.start()
            recording.say_remark()
        except BaseException:
            recording.stop()
            raise
        recording.until_exit()
        _enabled.append(recording)
        return recording.path


def enable_at_first_backward() -> None:
    """The same for a process that has not asked for it and may never call backward.

    No file is replaced: processes that share AGVIZ_OUTPUT add their numbers to it. Where the file
    can't be written another place is taken; where there is none, or where the engine does not fit
    this torch, the program goes on without.
    """
    with _lock:
        try:
            options = Options(check_forward=asked_to_check_forward())
        except AgvizError as error:
            say(f"{error}; the program goes on without being recorded")
            return
        recording = Recording(default_path(), options, replace=False)
        if recording.start_if_possible():
            recording.until_exit()
            _enabled.append(recording)


def disable() -> Path | None:
    """End what :func:`enable` began; the file is complete then.

    Returns:
        The file; None where nothing was being recorded.
    """
    with _lock:
        if not _enabled:
            return None
        recording = _enabled.pop()
        recording.stop()
        return recording.path


def set_trace() -> None:
    """Stop before the next node that runs, where a debugger is attached; else say how to attach.

    What is not being recorded is from now on, as by :func:`enable`. The program waits for nobody.

    Raises:
        agviz.errors.AgvizError: the recording, or the socket for debuggers, can't be made.
        agviz_engine.UnsupportedTorchError: this torch lacks something that the engine needs.
    """
    debugging(enable).debugger.stop_at_next_node("set_trace()")


def default_path() -> Path:
    """What AGVIZ_OUTPUT names, or a file in this folder named after the script and the process."""
    script = sys.argv[0] if sys.argv else ""
    return Path(os.environ.get("AGVIZ_OUTPUT") or default_name(script))
