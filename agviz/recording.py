"""One recording of this process: the file, the engine in torch's place, the names of things.

A recording may open its file at once, or when backward is called for the first time; a process that
never does then leaves no file behind, and neither does a child made by ``fork`` for other work.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz import hang_report
from agviz.after_import import after_import
from agviz.analysis.coverage import coverage
from agviz.analysis.untrained import untrained
from agviz.errors import AgvizError, TraceError
from agviz.record.elements.forward_origins import ForwardOrigins
from agviz.record.grad_mode import GradMode
from agviz.record.leaving import Leaving
from agviz.record.names import Names
from agviz.record.optimizers import OptimizerSteps
from agviz.record.options import Options
from agviz.record.provenance import Provenance
from agviz.record.ranks import place
from agviz.record.ranks.conversions import Conversions
from agviz.record.recorder import Recorder
from agviz.record.ring_store import RingStore
from agviz.record.steps.observer import StepObserver
from agviz.record.stores import NONFINITE, SIGNAL, Store, StreamStore
from agviz.signals import SignalHandler
from agviz.words.paths import absolute, shown
from agviz.words.safe import clean
from agviz.words.units import backward_passes
from agviz_engine.engines import EXACT, choose
from agviz_engine.errors import UnsupportedTorchError, comes_from_outside
from agviz_engine.instruments import Instrument, Live, Registry
from agviz_engine.support import remark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.record.check_forward import CheckForward
    from agviz.record.elements.keeper import ElementKeeper
    from agviz.record.thinning import Thinning
    from agviz_engine import DevicePolicy, events
    from agviz_engine.engines import ChosenEngine

_LONGEST_NAME: Final = 200
"""Bytes: SQLite adds to it, and a file system takes 255."""
_AT_EXIT: Final = ("agviz.analysis.verdict", "agviz.record.shortcuts", "agviz.traces.reader")
"""What a recording that goes on until then needs."""


class Recording(Instrument):
    """Records this process into a file, between :meth:`start` and :meth:`stop`.

    Args:
        path: the file to write; an older trace of this name is replaced.
        options: what to record.
        device_policy: maps nodes to device threads; by default the device a node really is on.
        replace: whether a file of this name may be replaced; else the process's number is added to
            the name where there is one.
        about: ``script`` and ``argv`` for the reader, where they are not the process's own.
    """

    def __init__(
        self,
        path: Path,
        options: Options | None = None,
        *,
        device_policy: DevicePolicy | None = None,
        replace: bool = True,
        **about: Any,
    ) -> None:
        self.path = path
        self.options = options or Options()
        self.names = Names()
        self.provenance = Provenance() if self.options.provenance else None
        self.grad_mode = GradMode()
        self.step_observer = StepObserver(self.names, self.provenance)
        self._thinning: Thinning | None = None
        self._steps: OptimizerSteps | None = None
        self._elements: ElementKeeper | None = None
        self.forward: CheckForward | None = None
        """What observes calls of torch functions, once torch is there, if it is wanted."""
        self.chosen: ChosenEngine | None = None
        """The engine that serves; None: the recording has not started."""
        self.recorder: Recorder | None = None
        """None: its file is not open yet."""
        self._conversions = Conversions()
        self._device_policy = device_policy
        self._replace = replace
        self._about = about
        self._installed = contextlib.ExitStack()
        self._registry: Registry | None = None
        self._observer: Recorder | Gate | None = None
        """The instrument that observes the engine for it; None: itself, to open the file."""
        self._signal_handler: SignalHandler | None = None
        self._leaving: Leaving | None = None
        self._opening = threading.RLock()
        self._is_opening = False
        self._is_over = False
        self.is_child = False
        """Whether multiprocessing may have made this process, which may leave without handlers."""
        self.is_one_of_many = False
        """Whether somebody else says what became of all ranks."""

    def open_somewhere(self) -> Recorder | None:
        """Open the file now, elsewhere where it has to be, and say so.

        Returns:
            None where there is no place: nothing will be recorded, the program runs all the same.
        """
        wanted, why = self.path, ""
        for path in places(wanted, self.script):
            self.path = path
            try:
                recorder = self.open()
            except TraceError as error:
                why = why or _without_advice(str(error))
                continue
            if why:
                say(f"{why}; this program is recorded into {shown(self.path)} instead")
            return recorder
        self.path, self._is_over = wanted, True
        say(f"{why}; the program goes on without being recorded")
        return None

    def open(self) -> Recorder:
        """Open the file now.

        Raises:
            agviz.errors.TraceError: it can't be written to.
        """
        self.path = of_rank(self.path)
        if not self._replace and os.path.isfile(self.path):  # noqa: PTH113 # raises nothing
            self.path = beside(self.path)
        self.path = absolute(self.path)
        options = self.options
        self.recorder = Recorder(
            self.path,
            store=self._make_store(),
            names=self.names,
            steps=options.steps,
            nodes=options.nodes,
            values=options.values,
            check_forward=options.check_forward,
            max_values_bytes=options.max_values_bytes,
            provenance=self.provenance,
            max_bytes=options.limit,
            timeout=options.timeout,
            thinned=str(options.thinned or ""),
            replace=self._replace or self.path == beside(self.path),
            **self._about,
        )
        if self.chosen is not None:
            self.recorder.runs_on(self.chosen.name)
        self.recorder.forward = self.forward
        self.recorder.grad_mode = self.grad_mode
        self.recorder.steps = self.step_observer
        self.recorder.elements = self._elements
        if self.recorder.ranks is not None:
            self.recorder.ranks.conversions = self._conversions
        self.recorder.file.when_timed_out = self._timed_out
        if self.is_child and "multiprocessing.util" in sys.modules:
            # Its children leave without exit handlers, and forget what was said before they began.
            sys.modules["multiprocessing.util"].Finalize(None, self._exit, exitpriority=-100)
        return self.recorder

    def _make_store(self) -> Store:
        options = self.options
        return RingStore(on=options.on, keep=options.keep) if options.on else StreamStore()

    def start(self) -> None:
        """Put the engine in torch's place. Imports torch.

        Raises:
            agviz_engine.UnsupportedTorchError: this torch lacks something that the engine needs.
        """
        from agviz.measure.saved_tensors import packing_hooks

        chosen = self.chosen = choose(self.options.engine)
        registry = self._registry = chosen.registry
        self._keep_elements()
        if self.recorder is not None:
            self.recorder.runs_on(chosen.name)
            self._observer = self._observer_of(self.recorder, registry)
        self._installed.enter_context(
            chosen.installed(
                self._observer or self,
                device_policy=self._device_policy,
                nonfinite_check=self.options.values != "none" or NONFINITE in self.options.on,
            )
        )
        self._thin(registry)
        _active.append(self)
        packing_hooks.start()
        self._installed.callback(packing_hooks.stop)
        if self.options.repro:
            self._remember_unpacked()
        self.names.start()
        if place.rank() is not None and self.provenance is not None:
            self._conversions.start()
            self._installed.callback(self._conversions.stop)
        self.grad_mode.start()
        self._steps = OptimizerSteps(self._stepped, self.step_observer.called)
        self._steps.start()
        if self.provenance is not None:
            self.provenance.start()
        self.step_observer.start()
        if self.options.check_forward:
            self._check_forward(registry)
        if SIGNAL in self.options.on:
            self._signal_handler = SignalHandler(lambda: self.recorder)

    def start_if_possible(self) -> bool:
        """The same, but where anything is in the way only say so, and leave no file.

        Returns:
            Whether it has started.
        """
        try:
            self.start()
        except Exception as error:
            if comes_from_outside(error):
                raise
            self.stop()
            if self.recorder is not None:
                self.recorder.path.unlink(missing_ok=True)
            say(f"{in_the_way(error)}; the program goes on without being recorded")
            return False
        if self.recorder is not None:
            self.say_remark()
        return True

    def _thin(self, registry: Registry) -> None:
        """Leave calls of backward out, where that was chosen."""
        plan = self.options.thinned
        if plan is None or registry.sampler is not None:
            return
        from agviz.record.thinning import Thinning

        self._thinning = Thinning(plan, lambda: self.recorder, self.provenance)
        registry.sampler = self._thinning
        self._installed.callback(setattr, registry, "sampler", None)

    def _keep_elements(self) -> None:
        from agviz.record.elements.keeper import ElementKeeper

        if self.options.values != "none":
            self._elements = ElementKeeper(self.names)
            if self.recorder is not None:
                self.recorder.elements = self._elements

    def _remember_unpacked(self) -> None:
        from agviz.record import unpacking

        if self.chosen is not None and self.chosen.name != EXACT:
            say("--repro needs agviz's own engine, and torch's is observed: no node is kept")
            return
        self._installed.callback(unpacking.start())

    @property
    def remark(self) -> str:
        """Which engine serves, where it is not the one to expect; empty: it is, or none does."""
        import torch

        if self.chosen is None:
            return ""
        if self.chosen.name == EXACT:
            return remark(torch.__version__)
        if not self.chosen.why_not_exact:
            return ""
        why = _without_advice(self.chosen.why_not_exact)
        return f"{why}; torch's own engine is observed instead"

    def say_remark(self) -> None:
        """Say once which engine serves, where it is not the one to expect."""
        found = self.remark
        if found and found not in _remarks:
            _remarks.add(found)
            if not place.rank():  # it is the same on all ranks
                say(found)

    @property
    def script(self) -> str:
        """What is being run, for the reader."""
        return str(self._about.get("script") or (sys.argv[0] if sys.argv else ""))

    def check_debuggable(self, option: str = "--on") -> None:
        """See that what happens is written as it happens: a debugger shows what is in the file.

        Args:
            option: how the caller's users say what may be wrong.

        Raises:
            agviz.errors.AgvizError: it is not.
        """
        if self.options.on:
            raise AgvizError(
                f"a flight recorder ({option}) writes when something has happened, and the debugger"
                f" shows what is written; leave {option} out: it stops at exceptions and at"
                " non-finite gradients itself"
            )

    @property
    def observers(self) -> Registry | Gate:
        """Where an instrument is put that is to observe what is recorded, and nothing else.

        Raises:
            RuntimeError: the recording has not started.
        """
        if self._registry is None:
            raise RuntimeError("the recording has not started")
        return self._observer if isinstance(self._observer, Gate) else self._registry

    def records(self, graph_task: int) -> bool:
        """Whether the events of a graph task that has begun are in the file."""
        return self.recorder is not None and self.recorder.wants(graph_task)

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> None:
        """A debugger has stopped a thread: see :meth:`Recorder.hold`."""
        if self.recorder is not None:
            self.recorder.hold(thread, graph_task, node, reason)

    def let_go(self, thread: int) -> None:
        """It runs on."""
        if self.recorder is not None:
            self.recorder.let_go(thread)

    def flush(self) -> None:
        """Wait until what has happened can be read from the file."""
        if self.recorder is not None and self.recorder.is_recording:
            self.recorder.flush()

    def stop(self, error: BaseException | None = None) -> None:
        """Give torch its engine back and complete the file; a second call has no effect.

        Args:
            error: what ended the program or the block: an occasion for a flight recorder.
        """
        atexit.unregister(self._exit)
        if self in _active:
            _active.remove(self)
        self._give_back()
        self._close(error)

    def _give_back(self) -> None:
        """Leave torch as it was found."""
        self._installed.close()
        if self.forward is not None:
            self.forward.stop()
        self.names.stop()
        self.grad_mode.stop()
        if self._leaving is not None:
            self._leaving.stop()
        if self._steps is not None:
            self._steps.stop()
            self._steps = None
        self.step_observer.stop()
        if self.provenance is not None:
            self.provenance.stop()

    def until_exit(self) -> None:
        """Go on until the process exits, then say what became of it; record children, too.

        Python runs exit handlers in reverse order, and after the program's threads have ended, so
        this has to come before all of the program's own.
        """
        # An import at exit runs code, at which Python forgets that a KeyboardInterrupt was not
        # caught: the process would end with another status.
        for name in _AT_EXIT:
            importlib.import_module(name)
        atexit.register(self._exit)
        self._leaving = Leaving(lambda: self.recorder)
        self._leaving.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def outcome(self) -> str:
        """What became of the file, once it is closed, in a sentence."""
        recorder = self.recorder
        store = None if recorder is None else recorder.store
        if isinstance(store, RingStore) and not store.has_written:
            occasions = ", ".join(sorted(self.options.on))
            said = f"nothing happened to write on ({occasions})"
            if recorder is not None and recorder.file.stopped:
                said += f" until recording stopped ({recorder.file.stopped})"
            return f"{said}, so there is no file"
        if recorder is not None and recorder.file.is_lost:
            name = shown(self.path)
            return f"recorded until the program closed {name}; to look at it: agviz view {name}"
        return outcome(self.path) + (_of_kept_nodes(self.path) if self.options.repro else "")

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:
        """Open the file at the first call of backward, and hand over."""
        registry = self._registry
        if registry is None:
            return
        self.open_now()
        if self._observer is not None:
            self._observer.graph_task_begun(event, live)

    def delegated(self, event: events.Delegated, live: Live) -> None:
        """Open the file at a call that torch's own engine takes over, and hand over."""
        self.open_now()
        if self._observer is not None:
            self._observer.delegated(event, live)

    def _stepped(
        self, number: int, optimizer: Any, *, is_guarded: bool, begin_ns: int | None, thread: int
    ) -> None:
        if self._thinning is not None:
            self._thinning.stepped(optimizer)
        if self.recorder is not None:
            self.recorder.stepped(
                number, optimizer, is_guarded=is_guarded, begin_ns=begin_ns, thread=thread
            )

    def _timed_out(self) -> None:
        """Report it, bypassing blocked streams; on the thread of the recorder."""
        recorder, options = self.recorder, self.options
        hang_report.say(f"a backward pass has been under way for {options.timeout:g} s")
        hang_report.report(self.path)
        if options.stop_on_timeout and recorder is not None:
            hang_report.stop(recorder, self.outcome)

    def _check_forward(self, registry: Registry) -> None:
        from agviz.record.check_forward import CheckForward

        forward = self.forward = CheckForward(self.names, registry, self.provenance)
        if self._elements is not None:
            forward.origins = ForwardOrigins(self._elements)
        if self.recorder is not None:
            self.recorder.forward = forward
        forward.start()
        self._installed.callback(
            after_import("torch._dynamo.eval_frame", forward.stay_out_of_compiled_code)
        )

    def open_now(self) -> None:
        """Open the file that would be opened at the first call of backward, and hand over."""
        registry = self._registry
        if registry is None:
            return
        with self._opening:
            if self._is_opening:
                return  # a finalizer or a signal's handler calls backward meanwhile, on this thread
            if self._observer is not None or self._is_over:
                registry.remove(self)
                return
            self._is_opening = True
            try:
                recorder = self.open_somewhere()
            finally:
                self._is_opening = False
            if recorder is None:
                registry.remove(self)
                return
            self._observer = self._observer_of(recorder, registry)
            registry.replace(self, self._observer)
            self.say_remark()

    def _observer_of(self, recorder: Recorder, registry: Registry) -> Recorder | Gate:
        """What observes the engine on the recorder's behalf."""
        recorder.file.when_stopped = lambda: registry.remove(recorder)
        if self.options.repro and self.chosen is not None and self.chosen.name == EXACT:
            recorder.isolate(self.options.repro)
        if self.options.elements is not None:
            recorder.keep_largest(self.options.elements)
        return Gate(recorder, registry) if self.options.steps is not None else recorder

    def _close(self, error: BaseException | None) -> None:
        if self._signal_handler is not None:
            self._signal_handler.stop()
            self._signal_handler = None
        self._is_over = True
        if self.recorder is not None:
            if error is not None:
                self.recorder.ended_with(error)
            self.recorder.close()

    def _exit(self) -> None:
        if not self._is_over:
            self._close(getattr(sys, "last_value", None) or _ending())
            if self.recorder is not None and not self.is_one_of_many:
                say(self.outcome())
            if self in _active:  # what the program does while Python ends finds nothing of ours
                self._give_back()

    def _forked(self) -> None:
        """In a child: a file of its own, as soon as it calls backward."""
        self._opening = threading.RLock()
        self._is_opening = False
        self._signal_handler = None  # a child has the program's handler of the signal again
        if self._is_over:
            return
        self.names.forked()
        if self.forward is not None:
            self.forward.forked()
        if self._registry is not None:
            for instrument in (self._observer, self.recorder):
                if instrument is not None:
                    self._registry.remove(instrument)
            self._registry.add(self)
        self.recorder = self._observer = None
        self.path = beside(self.path)
        self.is_child = True


def _ending() -> BaseException | None:
    """The exception that ends this child of multiprocessing, whose finalizers run; None: none does.

    Whoever started it may have written the exception down and called ``sys.exit``.
    """
    error = sys.exception()
    if isinstance(error, SystemExit):
        return error.__context__ if error.code else None
    return error


class Gate(Instrument):
    """Lets a recorder observe only while a call of backward that it wants is under way.

    The others run as if nobody observed them: no event is made and no gradient measured for them.

    Args:
        recorder: which is then to be called by nobody else.
        registry: where it is put in and taken out.
    """

    def __init__(self, recorder: Recorder, registry: Registry) -> None:
        self.recorder = recorder
        self._registry = registry
        self._wanted: set[int] = set()
        self._beside: list[Instrument] = []
        """The instruments that observe the passes that are recorded."""
        self._lock = threading.RLock()
        recorder.is_gated = True

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """All that observe now, whoever put them in."""
        return self._registry.instruments

    def add(self, instrument: Instrument) -> None:
        """Let another instrument observe whenever the recorder does."""
        with self._lock:
            if not any(instrument is each for each in self._beside):
                self._beside.append(instrument)
            if self._wanted:
                self._registry.add(instrument)

    def remove(self, instrument: Instrument) -> None:
        """Let it observe no longer."""
        with self._lock:
            self._beside = [each for each in self._beside if each is not instrument]
            self._registry.remove(instrument)

    def reindex(self) -> None:
        """Look anew which events an instrument wants."""
        self._registry.reindex()

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:  # noqa: ARG002
        """Let it observe, if it wants to."""
        self.recorder.begin(event)
        if self.recorder.wants(event.graph_task):
            with self._lock:
                self._wanted.add(event.graph_task)
                for instrument in (self.recorder, *self._beside):
                    self._registry.add(instrument)

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:  # noqa: ARG002
        """Have it observe no longer, where this was the last."""
        self._ended(event.graph_task)

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:  # noqa: ARG002
        """The same."""
        self._ended(event.graph_task)

    def delegated(self, event: events.Delegated, live: Live) -> None:
        """Have it keep that, whether it observes or not."""
        if not self._wanted:
            self.recorder.delegated(event, live)

    def delegated_failed(self, event: events.DelegatedFailed, live: Live) -> None:
        """The same."""
        if not self._wanted:
            self.recorder.delegated_failed(event, live)

    def lost(self, error: Exception) -> None:
        """Hand over, whether the recorder observes or not."""
        self.recorder.lost(error)

    def _ended(self, graph_task: int) -> None:
        with self._lock:
            self._wanted.discard(graph_task)
            if not self._wanted:
                for instrument in (self.recorder, *self._beside):
                    self._registry.remove(instrument)


_active: list[Recording] = []


def active() -> Recording | None:
    """The recording of this process that was started last and goes on; None: there is none."""
    return _active[-1] if _active else None


def beside(path: Path) -> Path:
    """The same file name for this process alone: ``train.agviz``, ``train.4711.agviz``."""
    if not path.name:
        return path  # a folder
    stem, dot, number = path.stem.rpartition(".")
    if not dot or not number.isdecimal():
        stem = path.stem
    return path.with_name(f"{stem}.{os.getpid()}{path.suffix}")


def of_rank(path: Path) -> Path:
    """The same file name for this rank: ``train.rank3.agviz``, ``agviz-train.rank3.4711.agviz``.

    As it is where this is no rank, or the name has it.
    """
    rank = place.rank()
    if rank is None or not path.name or f".rank{rank}" in path.stem:
        return path
    stem, dot, number = path.stem.rpartition(".")
    if not dot or number != str(os.getpid()):
        stem, number = path.stem, ""
    return path.with_name(".".join(filter(None, [stem, f"rank{rank}", number])) + path.suffix)


def default_name(script: str) -> str:
    """The name of a file that nobody has named: ``agviz-train.4711.agviz``.

    Args:
        script: a path, or ``-m`` and a module.
    """
    return f"agviz-{name_of(script)}.{os.getpid()}.agviz"


def name_of(script: str) -> str:
    """What files are named by.

    Args:
        script: a path, or ``-m`` and a module.
    """
    name = script.removeprefix("-m ") if script.startswith("-m ") else Path(script).stem
    return name.lstrip("-") or "python"


def places(path: Path, script: str) -> Iterator[Path]:
    """Where a recording goes: to ``path``, or where that can't be, to the next of these.

    Beside it under a name that no other process takes, or in it where it is a folder; then in a
    folder of its own for temporary files, which is gone again where that can't be either.

    Args:
        path: the file that was asked for.
        script: what is being run.
    """
    yield path
    is_folder = False
    with contextlib.suppress(OSError, ValueError):
        is_folder = path.is_dir()
    if is_folder:
        yield path / default_name(script)
    elif beside(path) != path:
        yield beside(path)
    try:
        folder = Path(tempfile.mkdtemp(prefix="agviz-trace-"))
    except OSError:
        return
    is_long = is_folder or len(os.fsencode(path.name)) > _LONGEST_NAME
    try:
        yield folder / (default_name(script) if is_long else path.name)
    finally:
        with contextlib.suppress(OSError):  # the recording is in it
            folder.rmdir()


def _without_advice(sentence: str) -> str:
    """What is wrong, without what the user is to do: it has been done."""
    return sentence.rpartition("; ")[0] or sentence


def outcome(path: Path) -> str:
    """What a recording that ended has left behind, in a sentence."""
    from agviz.analysis.verdict import verdicts
    from agviz.traces.reader import Trace

    name = shown(path)
    try:
        with Trace.open(path) as trace:
            tasks = trace.graph_tasks
            stopped, covered = trace.meta.stopped, str(coverage(trace))
            said = verdicts(trace)[0]
            missing = "" if said.is_found else untrained(trace)
    except TraceError as error:
        return str(error)
    if not tasks and not said.is_found:
        return f"no backward pass was recorded in {name}"
    passes = backward_passes(len(tasks), sum(task.parent >= 0 for task in tasks))
    until = f" until recording stopped ({stopped})" if stopped else ""
    recorded = f"recorded {passes} in {name}{until}{f' ({covered})' if covered else ''}"
    if missing:
        return f"{recorded}; {missing}; to read why: agviz why {name}"
    if not said.is_found:
        return f"{recorded}; to look at it: agviz view {name}"
    line = f" ({said.line})" if said.line and said.line not in said.heading else ""
    return f"{recorded}; {said.heading}{line}; to read why: agviz explain {name}"


def _of_kept_nodes(path: Path) -> str:
    """How to go on with the nodes that can be run alone."""
    from agviz.traces.reader import Trace

    try:
        with Trace.open(path) as trace:
            is_any = bool(trace.isolated())
    except TraceError:
        return ""
    if is_any:
        return f"; to run a node alone: agviz repro {shown(path)}"
    return "; --repro has chosen no node that ran"


def in_the_way(error: Exception) -> str:
    """Why nothing can be recorded, in a sentence."""
    if isinstance(error, UnsupportedTorchError | AgvizError):
        return str(error)
    return f"recording can't begin ({type(error).__name__}: {error})"


_remarks: set[str] = set()


def say(sentence: str) -> None:
    """Print a sentence of agviz to stderr, with the rank where there are several."""
    if sys.stderr is not None:
        rank = place.rank()
        of = "" if rank is None else f"rank {rank}: "
        print(f"agviz: {of}{clean(sentence)}", file=sys.stderr)
