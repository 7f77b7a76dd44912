"""A program that runs, as a debug adapter sees it: where it has stopped, and how it goes on."""

from __future__ import annotations

import codecs
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from agviz.dap.arguments import RequestError
from agviz.dap.breakpoints import FAILED, NONFINITE
from agviz.dap.playback import Halt
from agviz.dap.variables import Variable, VariableScope, of_health
from agviz.debugger.messages import Said, Stopped
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agviz.dap.instant import Instant, StackFrame
    from agviz.dap.playback import Move
    from agviz.debugger.breakpoints import Breakpoint
    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee, ProgramOutput
    from agviz.debugger.messages import ExpressionValue, Notice, StopTensor

_SECONDS_BETWEEN_LOOKS: Final = 0.05
_SCOPES: Final = {
    "Gradients in": "input",
    "Gradients out": "output",
    "Saved tensors": "saved",
    "Gradient of the event": "gradient",
}
"""Scopes of a stopped node, and what a program calls the tensors in them."""


class DebuggedProgram:
    """A program that is debugged, from when it is there.

    Args:
        client: speaks with it.
        debuggee: the program, where it was started for this; None: it was there before.
    """

    def __init__(self, client: Client, debuggee: Debuggee | None = None) -> None:
        self.client = client
        self.debuggee = debuggee
        self.stops: dict[int, Stopped] = {}
        """Where threads have stopped; the last that stopped is the last."""
        self.has_ended = False
        self._numbers: dict[int, int] = {}
        """Of breakpoints: those of the editor, by those of the program."""
        self._tensors: tuple[Stopped, list[StopTensor]] | None = None
        self._inputs = 0
        """Inputs of Python that run now."""
        self._lock = threading.Lock()

    @property
    def stop(self) -> Stopped | None:
        """The last stop; None: the program runs."""
        return next(reversed(self.stops.values()), None)

    @property
    def now(self) -> Stopped:
        """The last stop.

        Raises:
            RequestError: the program runs, or has ended.
        """
        if self.stop is None:
            over = self.has_ended
            raise RequestError(f"the program {'has ended' if over else 'runs; pause it first'}")
        return self.stop

    @property
    def runs_python(self) -> bool:
        """Whether a stopped thread runs Python that was typed."""
        return self._inputs > 0

    def take(self, notice: Notice) -> bool:
        """Take over what the program says; whether it is a stop."""
        if isinstance(notice, Stopped):
            self.stops.pop(notice.thread, None)
            self.stops[notice.thread] = notice
            return True
        if isinstance(notice, Said) and notice.thread is not None:
            self.stops.pop(notice.thread, None)
        return False

    def halt(self, stop: Stopped, fault: str) -> Halt:
        """A stop, as it is announced to an editor.

        Args:
            stop: the stop.
            fault: what is wrong there; empty: nothing.
        """
        reasons = set(stop.reasons)
        hit = tuple(self._numbers[each] for each in stop.breakpoints if each in self._numbers)
        if reasons & {"exception", "non-finite"}:
            return Halt(stop.thread, "exception", fault, hit)
        if stop.passed:
            return Halt(stop.thread, "data breakpoint", ", ".join(stop.passed), hit)
        if "breakpoint" in reasons:
            return Halt(stop.thread, "breakpoint", breakpoints=hit)
        if "first backward" in reasons:
            return Halt(stop.thread, "entry")
        if reasons & {"step", "until"}:
            return Halt(stop.thread, "step")
        return Halt(stop.thread, "pause", " and ".join(stop.reasons))

    # -- what it is asked to do ------------------------------------------------------------------

    def go(self, move: Move, thread: int | None) -> None:
        """Run on.

        Args:
            move: how far.
            thread: only in this thread; None: in all.
        """
        stop = self.now
        if self.runs_python:
            raise RequestError("Python runs at this stop; pause ends it")
        if move == "stop":
            self.client.go_on(thread)
        elif move == "out":
            self.client.until(stop.graph_task, -1, stop.thread)
        else:
            self.client.step(move, thread)
        self._tensors = None
        self.stops = {each: at for each, at in self.stops.items() if thread not in {None, each}}

    def pause(self) -> None:
        """Stop at the next event, or end Python that was typed."""
        if self.runs_python:
            self.client.interrupt()
        elif self.stop is None:
            self.client.pause()

    def set_stops(self, filters: Sequence[str], *, first: bool | None = None) -> None:
        """Choose where to stop without a breakpoint."""
        found = "first" if NONFINITE in filters else "off"
        self.client.set_stops(
            first=first,
            exceptions=FAILED in filters,
            nonfinite=found,  # type: ignore[arg-type]
        )

    def set_breakpoints(self, wanted: Mapping[int, Breakpoint]) -> dict[int, str]:
        """Stop there from now on, and at no other breakpoint of this editor.

        Returns:
            Why some can't be set.
        """
        for number in list(self._numbers):
            with_number = self._numbers.pop(number)
            if wanted.get(with_number) is None:
                self.client.remove_breakpoint(number)
            else:
                self._numbers[number] = with_number
        refused = {}
        for number, each in wanted.items():
            if number not in self._numbers.values():
                try:
                    self._numbers[self.client.add_breakpoint(each).number] = number
                except AgvizError as error:
                    refused[number] = str(error)
        return refused

    def value(self, expression: str, thread: int) -> ExpressionValue:
        """What an expression is worth at the stop of a thread."""
        if self.runs_python:
            raise RequestError("Python runs at this stop; pause ends it")
        (found,) = self.client.values(expression, thread=thread)
        return found

    def change(self, slot: int, value: str, thread: int) -> str:
        """Give the stopped node another gradient.

        Args:
            slot: input number.
            value: what all its elements become, or ``* 0.5``.
            thread: which is stopped.

        Returns:
            It, in words.
        """
        if self.runs_python:
            raise RequestError("Python runs at this stop; pause ends it")
        number = value.strip()
        how = "multiply" if number.startswith("*") else "fill"
        health = self.client.change(slot, how, number.removeprefix("*").strip(), thread=thread)
        self._tensors = None
        return of_health("", health).value

    def run_python(self, line: str, thread: int, then: Callable[[str, bool], None]) -> None:
        """Run a line at the stop of a thread, without waiting for it.

        Args:
            line: of Python.
            thread: which is stopped.
            then: is called with what it printed, or why it could not be run, and whether it ran.
        """
        with self._lock:
            self._inputs += 1

        def work() -> None:
            try:
                printed, more = self.client.shell(line, thread)
                said, ran = (f"{printed}…" if more else printed), True
            except AgvizError as error:
                said, ran = str(error), False
            finally:
                with self._lock:
                    self._inputs -= 1
                    self._tensors = None  # it may have changed them
            then(said.removesuffix("\n"), ran)

        threading.Thread(target=work, name="agviz-python", daemon=True).start()

    # -- what there is to see ---------------------------------------------------------------------

    def is_at(self, instant: Instant, frame: StackFrame) -> bool:
        """Whether a frame is of the node that the program has stopped at."""
        stop = self.stop_at(instant)
        return stop is not None and (frame.graph_task, frame.node) == (stop.graph_task, stop.node)

    def stop_at(self, instant: Instant) -> Stopped | None:
        """The stop that a moment is of; None: the program is elsewhere."""
        return next((each for each in self.stops.values() if each.seq == instant.seq), None)

    def scopes(
        self, instant: Instant, recorded: Iterable[VariableScope]
    ) -> Iterator[VariableScope]:
        """The scopes of the stopped node, with the program's tensors in place of what was measured.

        Args:
            instant: of the stop.
            recorded: the scopes as the recording has them.
        """
        stop = self.stop_at(instant)
        if stop is None:
            yield from recorded
            return
        known = set()
        for scope in recorded:
            known.add(scope.name)
            if scope.name in _SCOPES:
                variables = partial(self._variables, stop, _SCOPES[scope.name], scope)
                yield VariableScope(scope.name, variables, scope.are_inputs)
            elif scope.name == "Parameter":
                yield VariableScope(scope.name, partial(self._of_parameter, stop, scope))
            else:
                yield scope
        for name, what in _SCOPES.items():
            if name not in known and any(each.what == what for each in self.tensors(stop)):
                yield VariableScope(name, partial(self._variables, stop, what, None))

    def tensors(self, stop: Stopped) -> list[StopTensor]:
        """The tensors of a stopped thread."""
        if self.runs_python:
            raise RequestError("Python runs at this stop; pause ends it")
        known = self._tensors
        if known is None or known[0] is not stop:
            known = self._tensors = stop, self.client.tensors(stop.thread)
        return known[1]

    def _variables(
        self, stop: Stopped, what: str, recorded: VariableScope | None
    ) -> Iterator[Variable]:
        here = {each.name: each for each in self.tensors(stop) if each.what == what}
        for variable in [] if recorded is None else recorded.variables():
            found = here.pop(variable.name.rpartition(" ")[2], None)
            yield variable if found is None else self._variable(stop, variable.name, found)
        for name, found in here.items():
            label = name if what == "saved" else f"{what} {name}".rstrip()
            yield self._variable(stop, label, found)

    def _of_parameter(self, stop: Stopped, recorded: VariableScope) -> Iterator[Variable]:
        here: dict[str, StopTensor] = {each.what: each for each in self.tensors(stop)}
        for variable in recorded.variables():
            found = here.get(variable.name)
            if found is not None:
                yield self._variable(stop, variable.name, found)
            elif variable.name == "grad":
                yield Variable("grad", "None")
            elif variable.name != "norm":
                yield variable

    def _variable(self, stop: Stopped, label: str, found: StopTensor) -> Variable:
        def elements() -> list[Variable]:
            text = self.client.tensor(found.what, found.name, thread=stop.thread).text
            return [Variable("elements", text)]

        return of_health(label, found.health, elements)


class OutputThread(threading.Thread):
    """Passes on what a program prints, and that it has ended.

    Args:
        debuggee: the program.
        print_: takes the stream's name and some text; called on this thread.
        end: takes the exit code; called on this thread, once all was printed.
    """

    def __init__(
        self,
        debuggee: Debuggee,
        print_: Callable[[str, str], None],
        end: Callable[[int], None],
    ) -> None:
        super().__init__(name="agviz-output", daemon=True)
        self._debuggee = debuggee
        self._print = print_
        self._end = end
        self._streams: list[tuple[str, ProgramOutput, codecs.IncrementalDecoder]] = [
            (name, output, codecs.getincrementaldecoder("utf-8")("replace"))
            for name, output in (("stdout", debuggee.stdout), ("stderr", debuggee.stderr))
        ]
        self._is_over = threading.Event()

    def stop(self) -> None:
        """Read no more."""
        self._is_over.set()
        self.join()

    def run(self) -> None:
        """Read until the program has ended."""
        while not self._is_over.is_set():
            code = self._debuggee.process.poll()
            for name, output, decoder in self._streams:
                while found := output.read():
                    self._print(name, decoder.decode(found))
            if code is not None:
                self._end(self._debuggee.exit_code())
                return
            self._is_over.wait(_SECONDS_BETWEEN_LOOKS)
