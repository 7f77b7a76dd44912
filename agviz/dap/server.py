"""The debug adapter: answers an editor's requests about a recording or a program that runs.

One thread answers requests, and alone reads the trace. What comes to it from elsewhere, an editor's
messages and a program's notices, waits in one queue.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agviz.dap.arguments import Arguments, RequestError
from agviz.dap.breakpoints import FAILED, FILTERS, NONFINITE
from agviz.dap.channel import FramingError
from agviz.dap.chosen import ChosenBreakpoints, data_name, unverified
from agviz.dap.playback import Halt, Playback, summary
from agviz.dap.program import DebuggedProgram, OutputThread
from agviz.dap.sources import Sources
from agviz.dap.variables import scopes
from agviz.debugger.client import Client
from agviz.debugger.launch import Debuggee
from agviz.debugger.listening import connect
from agviz.debugger.messages import Logged, Said
from agviz.errors import AgvizError
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agviz.dap.channel import Channel, Json
    from agviz.dap.instant import StackFrame
    from agviz.dap.playback import Move
    from agviz.dap.variables import Variable
    from agviz.debugger.messages import Notice

_THREAD: Final = 1
"""Threads are counted from 0 in the engine, and from 1 for editors: some take 0 for none."""
_MOST_HELD: Final = 1_000_000
_CAPABILITIES: Final[Json] = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsLogPoints": True,
    "supportsDataBreakpoints": True,
    "supportsSetVariable": True,
    "supportsStepBack": True,
    "supportsGotoTargetsRequest": False,
    "supportsExceptionInfoRequest": True,
    "supportTerminateDebuggee": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsTerminateRequest": True,
    "supportsBreakpointLocationsRequest": True,
    "supportsSteppingGranularity": True,
    "supportsSingleThreadExecutionRequests": True,
    "exceptionBreakpointFilters": [
        {
            "filter": FAILED,
            "label": "Failures",
            "description": "Stop where a node, a hook or the engine raises an exception",
            "default": True,
        },
        {
            "filter": NONFINITE,
            "label": "Non-finite gradients",
            "description": "Stop at the first NaN or infinity of each backward pass",
            "default": True,
        },
    ],
}


class DebugAdapter:
    """Serves one editor.

    Args:
        channel: to it.
        file: the recording, where neither ``launch`` nor ``attach`` names anything; None: none.
    """

    def __init__(self, channel: Channel, file: Path | None = None) -> None:
        self._channel = channel
        self._file = file
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._requests = _requests(self)
        self._shows_types = False
        self._playback: Playback | None = None
        self._live: DebuggedProgram | None = None
        self._begin: Callable[[], Halt | None] | None = None
        """What configurationDone begins with: gives the first stop, where it is known at once."""
        self._has_begun = False
        self._output: OutputThread | None = None
        self._chosen = ChosenBreakpoints(Sources([Path.cwd()]))
        self._frames: dict[int, StackFrame] = {}
        """By the numbers under which the editor asks for them, as are these."""
        self._threads: dict[int, int] = {}
        self._contents: dict[int, Callable[[], Iterable[Variable]]] = {}
        self._inputs: set[int] = set()
        """Those of them that are gradients of a stopped node."""
        self._handles = itertools.count(1)
        self._named: set[int] = set()
        """Threads that were announced to the editor."""

    # -- messages ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer until the editor has gone; then nothing that was started here is left."""
        threading.Thread(target=self._receive, name="agviz-dap", daemon=True).start()
        try:
            while (work := self._inbox.get()) is not None:
                work()
        except (BrokenPipeError, ConnectionError):
            pass  # the editor has gone
        finally:
            self._end()

    def _receive(self) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                self._inbox.put(lambda message=message: self._take(message))  # type: ignore[misc]
        except FramingError as error:
            text = f"{error}; the connection is closed\n"
            with contextlib.suppress(OSError, ValueError):
                self._channel.event("output", category="important", output=text)
        except (OSError, ValueError):
            pass  # it was closed
        self._inbox.put(None)

    def _take(self, message: Json) -> None:
        """Answer a request; what is none is passed over, as there is nobody to answer."""
        command = message.get("command")
        is_request = message.get("type") == "request" and type(message.get("seq")) is int
        if not is_request or not isinstance(command, str):
            return
        try:
            answer = self._requests.get(command)
            if answer is None:
                raise RequestError(f"agviz has no request {command[:100]!r}")
            answer(message, Arguments(message.get("arguments") or {}))
        except AgvizError as error:
            self._channel.refuse(message, str(error))
        except (LookupError, ValueError):
            if self._playback is None or not self._playback.trace.is_growing:
                raise
            # A file of limited size may have let go of a pass that was looked at.
            self._channel.refuse(message, "the recording does not hold this moment any more")

    def _respond(self, request: Json, **body: Any) -> None:
        self._channel.respond(request, body or None)

    def _say(self, category: str, text: str) -> None:
        if text:
            with contextlib.suppress(OSError, ValueError):
                self._channel.event("output", category=category, output=text)

    def _announce(self, halt: Halt) -> None:
        """Send the editor a stop, and before it threads that are new."""
        self._forget_handles()
        for number, _ in [] if self._playback is None else self._playback.threads():
            if number not in self._named:
                self._named.add(number)
                self._channel.event("thread", reason="started", threadId=number + _THREAD)
        body: Json = {
            "reason": halt.reason,
            "threadId": halt.thread + _THREAD,
            "allThreadsStopped": True,
        }
        if halt.text:
            body |= {"text": halt.text, "description": f"Paused: {halt.text}"}
        if halt.breakpoints:
            body["hitBreakpointIds"] = list(halt.breakpoints)
        self._channel.event("stopped", **body)

    def _end(self) -> None:
        if self._output is not None:
            self._output.stop()
        live = self._live
        if live is not None and live.debuggee is not None:
            live.debuggee.close()
        elif live is not None:
            live.client.close()
        if self._playback is not None:
            self._playback.trace.close()
        self._output = self._live = self._playback = None

    # -- beginning and ending ---------------------------------------------------------------------

    def initialize(self, request: Json, arguments: Arguments) -> None:
        """Say what can be asked for."""
        for name in ("linesStartAt1", "columnsStartAt1"):
            if not arguments.flag(name, default=True):
                raise RequestError(f"lines and columns begin with 1 here, {name} can't be false")
        if arguments.text("pathFormat", "path") != "path":
            raise RequestError("files are named by their paths here, not by URIs")
        self._shows_types = arguments.flag("supportsVariableType", default=False)
        self._respond(request, **_CAPABILITIES)

    def launch(self, request: Json, arguments: Arguments) -> None:
        """Open a recording, or make ready to start a program."""
        if "program" in arguments or "module" in arguments:
            if "trace" in arguments:
                raise RequestError("launch names a trace or a program, not both")
            self._make_ready(arguments)
        else:
            self._open(arguments)
        self._respond(request)
        self._channel.event("initialized")

    def attach(self, request: Json, arguments: Arguments) -> None:
        """Open a recording, or debug a program that runs already."""
        target = next((name for name in ("processId", "pid") if name in arguments), "")
        if target and "trace" in arguments:
            raise RequestError("attach names a trace or a process, not both")
        if target:
            self._attach(str(arguments.process(target)), arguments)
        else:
            self._open(arguments)
        self._respond(request)
        self._channel.event("initialized")

    def _check_unused(self) -> None:
        if self._playback is not None or self._begin is not None:
            raise RequestError("something is debugged already")

    def _open(self, arguments: Arguments) -> None:
        self._check_unused()
        named = arguments.text("trace", "" if self._file is None else str(self._file))
        if not named:
            raise RequestError(
                'say what to debug: {"trace": FILE}, or {"program": SCRIPT} to run a program'
            )
        folder = Path(arguments.text("cwd", os.curdir))
        path = folder / named
        stops_first = arguments.flag("stopOnEntry", default=True)
        trace = Trace.open(path)
        self._playback = playback = Playback(trace)
        self._chosen.sources = Sources([folder, path.parent, Path.cwd()])

        def begin() -> Halt:
            self._say("console", f"{summary(trace)}\n")
            self._set_stops()
            return playback.begin() if stops_first else playback.run()

        self._begin = begin
        self._channel.event("capabilities", capabilities={"supportTerminateDebuggee": False})

    def _make_ready(self, arguments: Arguments) -> None:
        """Check what is to be started; it is started when breakpoints were set."""
        self._check_unused()
        folder = Path(arguments.text("cwd", os.curdir)).absolute()
        if not folder.is_dir():
            raise RequestError(f"there is no folder {folder} to run in")
        options = arguments.texts("agvizArgs")
        if "output" in arguments:
            options += ["--output", arguments.text("output")]
        if "module" in arguments:
            target = ["-m", arguments.text("module")]
        else:
            target = [arguments.text("program")]
            if not (folder / target[0]).is_file():
                raise RequestError(f"there is no script {folder / target[0]}")
        environment = dict(os.environ)
        for name, value in arguments.environment("env").items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        given = [*options, *target, *arguments.texts("args")]
        stops_first = arguments.flag("stopOnEntry", default=False)
        if arguments.flag("noDebug", default=False):
            self._chosen.filters = ()
        beside = [] if "module" in arguments else [(folder / target[0]).parent]
        self._chosen.sources = Sources([folder, *beside])

        def begin() -> None:
            debuggee = Debuggee(given, cwd=folder, env=environment, on_notice=self._notified)
            self._live = DebuggedProgram(debuggee.client, debuggee)
            self._output = OutputThread(debuggee, self._say, self._ended)
            self._output.start()
            self._channel.event(
                "process",
                name=" ".join(target),
                systemProcessId=debuggee.process.pid,
                isLocalProcess=True,
                startMethod="launch",
            )
            self._set_stops(first=stops_first)

        self._begin = begin

    def _attach(self, target: str, arguments: Arguments) -> None:
        self._check_unused()
        stops_first = arguments.flag("stopOnEntry", default=True)
        client = Client(connect(target), self._notified)
        self._live = live = DebuggedProgram(client)
        program = Path(client.hello.program)
        folder = Path(arguments.text("cwd", os.curdir)).absolute()
        self._chosen.sources = Sources([folder, program.parent, client.hello.trace.parent])

        def begin() -> None:
            self._set_stops()
            if stops_first:
                live.pause()

        self._begin = begin

    def configuration_done(self, request: Json, _arguments: Arguments) -> None:
        """Begin."""
        if self._begin is None or self._has_begun:
            raise RequestError("launch or attach comes before configurationDone, which comes once")
        self._has_begun = True
        try:
            halt = self._begin()
        except AgvizError:
            self._channel.event("terminated")
            raise
        self._respond(request)
        if halt is not None:
            self._announce(halt)

    def disconnect(self, request: Json, arguments: Arguments) -> None:
        """Leave; a program that was started here ends unless it is to go on."""
        live = self._live
        ends = arguments.flag("terminateDebuggee", default=True)
        if live is not None and live.debuggee is not None and not ends:
            live.client.detach()
            if self._output is not None:
                self._output.stop()
            self._live = self._output = None
        self._respond(request)
        self._inbox.put(None)

    def terminate(self, request: Json, _arguments: Arguments) -> None:
        """End the program that was started here, or the session on a recording."""
        live = self._live
        if live is not None and live.debuggee is None:
            raise RequestError("agviz ends only programs that it has started; disconnect instead")
        self._respond(request)
        if live is not None and live.debuggee is not None:
            live.debuggee.process.terminate()
            live.client.detach()
        else:
            self._channel.event("terminated")

    # -- a program --------------------------------------------------------------------------------

    def _notified(self, notice: Notice) -> None:
        """Called on the client's thread."""
        self._inbox.put(lambda: self._take_notice(notice))

    def _ended(self, code: int) -> None:
        """Called on the thread that reads the program's output."""
        self._inbox.put(lambda: self._say_end(code))

    def _say_end(self, code: int) -> None:
        live = self._live
        if live is not None:
            live.has_ended = True
            live.stops.clear()
            self._say("console", f"recorded in {live.client.hello.trace}\n")
        self._channel.event("exited", exitCode=code)
        self._channel.event("terminated")

    def _take_notice(self, notice: Notice) -> None:
        live = self._live
        if live is None:
            return
        try:
            if live.take(notice):
                self._show_stop(live)
            elif isinstance(notice, Logged):
                self._print_log(notice)
            elif isinstance(notice, Said) and notice.what == "resumed":
                if live.stop is None:
                    self._channel.event("continued", threadId=(notice.thread or 0) + _THREAD)
            elif isinstance(notice, Said) and notice.what == "gone" and live.debuggee is None:
                self._say("console", f"{notice.why}\n" if notice.why else "")
                self._channel.event("terminated")
        except AgvizError as error:
            self._say("important", f"{error}\n")

    def _print_log(self, logged: Logged) -> None:
        """Print what a log point says."""
        if logged.left_out:
            self._say("console", f"… {logged.left_out:,} more of log points, too many a second\n")
        self._say("console", f"{logged.text}\n")

    def _show_stop(self, live: DebuggedProgram) -> None:
        """Go to now, and announce the stop."""
        stop = live.now
        if self._playback is None:
            self._playback = Playback(Trace.open(live.client.hello.trace))
        playback = self._playback
        if stop.graph_task >= 0:
            playback.to(stop.seq, stop.graph_task)
        fault = ""
        if "exception" in stop.reasons:
            fault = f"{stop.details.get('error')}: {stop.details.get('message')}"
        elif "non-finite" in stop.reasons:
            fault = playback.fault_text
        self._announce(live.halt(stop, fault))

    # -- breakpoints ------------------------------------------------------------------------------

    def set_breakpoints(self, request: Json, arguments: Arguments) -> None:
        """Replace the breakpoints of one file."""
        file = _file(arguments)
        answers = self._chosen.on_lines(file, arguments.objects("breakpoints"))
        live = self._live
        if live is not None and not live.client.hello.lines:
            for answer in answers:
                answer.update(unverified("the program is recorded without its lines"))
        self._take_effect(request, answers, file)

    def set_function_breakpoints(self, request: Json, arguments: Arguments) -> None:
        """Replace the breakpoints on names of nodes, modules and parameters."""
        self._take_effect(request, self._chosen.on_names(arguments.objects("breakpoints")))

    def data_breakpoint_info(self, request: Json, arguments: Arguments) -> None:
        """What a data breakpoint on a variable, or an expression, would look at."""
        name = arguments.text("name")
        live = self._live
        try:
            if live is None:
                raise RequestError("a data breakpoint stops only a program that runs")
            inside = arguments.number("variablesReference", 0)
            if inside and name in {"grad", "parameter"} and live.stop is not None:
                owner = live.stop.parameter
                name = f"{owner}.grad" if name == "grad" else owner
            found = data_name(name)
        except AgvizError as error:
            self._respond(request, dataId=None, description=str(error))
            return
        self._respond(request, dataId=found, description=found, canPersist=True)

    def set_data_breakpoints(self, request: Json, arguments: Arguments) -> None:
        """Replace the breakpoints on values of parameters."""
        self._take_effect(request, self._chosen.on_data(arguments.objects("breakpoints")))

    def _take_effect(
        self, request: Json, answers: list[Json], file: tuple[str, int] | None = None
    ) -> None:
        """Have breakpoints take effect, and answer what became of them."""
        if self._live is None and self._playback is not None:
            self._chosen.verify(self._playback.trace, answers, file)
        refused = self._set_stops()
        for answer in answers:
            if answer.get("id") in refused:
                answer.update(unverified(refused[answer["id"]]))
        self._respond(request, breakpoints=answers)

    def set_exception_breakpoints(self, request: Json, arguments: Arguments) -> None:
        """Choose whether to stop at failures and non-finite gradients."""
        wanted = [
            *arguments.texts("filters"),
            *(each.text("filterId") for each in arguments.objects("filterOptions")),
        ]
        strange = [each for each in wanted if each not in FILTERS]
        if strange:
            known = " and ".join(FILTERS)
            raise RequestError(f"there is no filter {strange[0][:100]!r}, only {known}")
        self._chosen.filters = wanted
        self._set_stops()
        self._respond(request, breakpoints=[{"verified": True} for _ in wanted])

    def breakpoint_locations(self, request: Json, arguments: Arguments) -> None:
        """Lines that made nodes."""
        first = arguments.number("line")
        last = arguments.number("endLine", first)
        lines: Iterable[int] = ()
        if self._playback is not None:
            lines = sorted(self._chosen.lines(self._playback.trace, _file(arguments)))
        found = [{"line": line} for line in lines if first <= line <= last]
        self._respond(request, breakpoints=found)

    def _set_stops(self, *, first: bool | None = None) -> dict[int, str]:
        """Have what was set take effect; why some breakpoints don't, by number."""
        live = self._live
        self._set_recorded_stops()
        if live is None:
            return {}
        live.set_stops(self._chosen.filters, first=first)
        return live.set_breakpoints(self._chosen.all)

    def _set_recorded_stops(self) -> None:
        if self._playback is not None:
            made = self._chosen.recorded(self._playback.trace)
            self._playback.set_stops(made, self._chosen.filters)

    # -- running ----------------------------------------------------------------------------------

    def next(self, request: Json, arguments: Arguments) -> None:
        """To the next node."""
        self._run(request, arguments, _by_granularity(arguments, "node"), 1)

    def step_in(self, request: Json, arguments: Arguments) -> None:
        """To the next event."""
        self._run(request, arguments, "event", 1)

    def step_out(self, request: Json, arguments: Arguments) -> None:
        """To the end of the pass, or out of a reentrant one."""
        self._run(request, arguments, "out", 1)

    def go_on(self, request: Json, arguments: Arguments) -> None:
        """To the next breakpoint or finding, or the end; from the past of a program, to now."""
        self._run(request, arguments, "stop", 1)

    def step_back(self, request: Json, arguments: Arguments) -> None:
        """To the previous node."""
        self._run(request, arguments, _by_granularity(arguments, "node"), -1)

    def reverse_continue(self, request: Json, arguments: Arguments) -> None:
        """To the previous breakpoint or finding, or the beginning."""
        self._run(request, arguments, "stop", -1)

    def _run(self, request: Json, arguments: Arguments, move: Move, by: Literal[1, -1]) -> None:
        wanted = arguments.number("threadId") - _THREAD
        alone = arguments.flag("singleThread", default=False)
        thread = wanted if alone else None
        body = {"allThreadsContinued": not alone} if request["command"] == "continue" else {}
        live = self._live
        if live is not None:
            now = live.now
            is_now = self._shown.instant.seq >= now.seq
            if by > 0 and is_now:
                self._forget_handles()
                live.go(move, thread)
                self._respond(request, **body)
                return
        shown = self._shown
        self._set_recorded_stops()  # it may have grown
        halt = shown.move(move, by, thread)
        if live is not None and by > 0:
            now = live.now
            if move == "stop" or self._shown.instant.seq >= now.seq:
                self._shown.to(now.seq, now.graph_task)
                halt = Halt(now.thread, "step", "The program is here now.")
        self._respond(request, **body)
        self._announce(halt)

    def pause(self, request: Json, _arguments: Arguments) -> None:
        """Stop a program; a recording never runs."""
        live = self._live
        if live is None:
            raise RequestError("a recording does not run: there is nothing to pause")
        live.pause()
        self._respond(request)

    # -- looking ----------------------------------------------------------------------------------

    @property
    def _shown(self) -> Playback:
        if self._live is not None:
            _ = self._live.now
        if self._playback is None:
            raise RequestError("nothing is debugged yet; launch or attach comes first")
        return self._playback

    def _forget_handles(self) -> None:
        self._frames.clear()
        self._threads.clear()
        self._contents.clear()
        self._inputs.clear()

    def threads(self, request: Json, _arguments: Arguments) -> None:
        """Threads of the engine."""
        found = [(0, "T0")] if self._playback is None else self._playback.threads()
        named = [{"id": number + _THREAD, "name": name} for number, name in found]
        self._respond(request, threads=named)

    def stack_trace(self, request: Json, arguments: Arguments) -> None:
        """Node, module and lines of the forward; then the call of backward."""
        thread = arguments.number("threadId") - _THREAD
        found = self._shown.instant.stack(thread)
        first, levels = arguments.number("startFrame", 0), arguments.number("levels", 0)
        frames = [
            self._frame(thread, frame)
            for frame in found[first : first + levels if levels else None]
        ]
        self._respond(request, stackFrames=frames, totalFrames=len(found))

    def _frame(self, thread: int, frame: StackFrame) -> Json:
        number = next(self._handles)
        self._frames[number], self._threads[number] = frame, thread
        said: Json = {"id": number, "name": frame.title, "line": 0, "column": 0}
        if frame.frame is not None:
            said |= {"source": self._chosen.sources.source(frame.frame), "line": frame.frame.line}
            said["column"] = 1
        elif frame.module or frame.node is None:
            said["presentationHint"] = "label"
        return said

    def scopes(self, request: Json, arguments: Arguments) -> None:
        """What there is to see at a frame."""
        frame = self._frames.get(arguments.number("frameId"))
        if frame is None:
            raise RequestError("there is no such frame any more")
        instant, live = self._shown.instant, self._live
        found = scopes(instant, frame)
        if live is not None and live.is_at(instant, frame):
            found = live.scopes(instant, found)
        said = []
        for scope in found:
            number = self._hold(scope.variables)
            one: Json = {
                "name": scope.name,
                "variablesReference": number,
                "expensive": scope.is_dear,
            }
            if scope.are_inputs:
                self._inputs.add(number)
                one["presentationHint"] = "arguments"
            said.append(one)
        self._respond(request, scopes=said)

    def variables(self, request: Json, arguments: Arguments) -> None:
        """What is in a scope or a variable."""
        found = self._contents.get(arguments.number("variablesReference"))
        if found is None:
            raise RequestError("there are no such variables any more")
        several = list(found())
        start, count = arguments.number("start", 0), arguments.number("count", 0)
        some = several[start : start + count if count else None]
        self._respond(request, variables=[self._variable(each) for each in some])

    def _variable(self, variable: Variable) -> Json:
        said: Json = {
            "name": variable.name,
            "value": variable.value,
            "variablesReference": self._hold(variable.children),
        }
        if variable.type and self._shows_types:
            said["type"] = variable.type
        return said

    def _hold(self, contents: Callable[[], Iterable[Variable]] | None) -> int:
        """The number under which the editor asks for something later; 0: there is nothing."""
        if contents is None:
            return 0
        if len(self._contents) >= _MOST_HELD:
            raise RequestError("too much was looked at; step on, and look again")
        number = next(self._handles)
        self._contents[number] = contents
        return number

    def set_variable(self, request: Json, arguments: Arguments) -> None:
        """Give the stopped node another gradient."""
        live, name = self._live, arguments.text("name")
        slot = re.fullmatch(r"input (\d{1,9})", name)
        is_input = arguments.number("variablesReference") in self._inputs
        if live is None or live.stop_at(self._shown.instant) is None:
            raise RequestError("a gradient can be changed where a program is stopped now")
        if slot is None or not is_input:
            raise RequestError("only the gradients that come in can be changed")
        said = live.change(int(slot[1]), arguments.text("value"), live.now.thread)
        self._respond(request, value=said)

    def evaluate(self, request: Json, arguments: Arguments) -> None:
        """An expression, or a node by its name; at a prompt of a program, Python."""
        text, live = arguments.text("expression"), self._live
        context = arguments.text("context", "")
        if live is not None and context == "repl":
            frame = arguments.number("frameId", 0)
            thread = self._threads.get(frame, live.now.thread)
            if live.stop_at(self._shown.instant) is None:
                raise RequestError("Python runs where the program is now; continue goes there")

            def then(said: str, ran: bool) -> None:
                with contextlib.suppress(OSError, ValueError):
                    if ran:
                        self._respond(request, result=said, variablesReference=0)
                    else:
                        self._channel.refuse(request, said)

            live.run_python(text, thread, then)
            return
        why = "values are shown where a program is stopped now" if context == "hover" else ""
        if live is not None and live.stop_at(self._shown.instant) is not None:
            frame = arguments.number("frameId", 0)
            found = live.value(text, self._threads.get(frame, live.now.thread))
            if found.is_known:
                self._respond(request, result=found.text, variablesReference=0)
                return
            why = found.text
        if context == "hover":
            raise RequestError(why)
        try:
            said, inside = self._shown.find(text)
        except RequestError as error:
            raise RequestError(why or str(error)) from None
        self._respond(request, result=said, variablesReference=self._hold(inside.copy))

    def exception_info(self, request: Json, _arguments: Arguments) -> None:
        """What is wrong here, and agviz's verdict."""
        fault, verdict = self._shown.fault()
        self._respond(
            request,
            exceptionId=fault.name,
            description=f"{fault.text}\n\n{verdict}".strip(),
            breakMode="always",
            details={"message": fault.text, "typeName": fault.name, "stackTrace": verdict},
        )

    def source(self, request: Json, arguments: Arguments) -> None:
        """What the recording holds of a file that is not at hand."""
        if self._playback is None:
            raise RequestError("nothing is debugged yet; launch or attach comes first")
        number = arguments.object("source").number("sourceReference", 0)
        number = number or arguments.number("sourceReference")
        text = self._chosen.sources.text(self._playback.trace, number)
        self._respond(request, content=text, mimeType="text/x-python")


def _requests(adapter: DebugAdapter) -> dict[str, Callable[[Json, Arguments], None]]:
    """What answers each request."""
    return {
        "initialize": adapter.initialize,
        "launch": adapter.launch,
        "attach": adapter.attach,
        "configurationDone": adapter.configuration_done,
        "disconnect": adapter.disconnect,
        "terminate": adapter.terminate,
        "setBreakpoints": adapter.set_breakpoints,
        "setFunctionBreakpoints": adapter.set_function_breakpoints,
        "dataBreakpointInfo": adapter.data_breakpoint_info,
        "setDataBreakpoints": adapter.set_data_breakpoints,
        "setVariable": adapter.set_variable,
        "setExceptionBreakpoints": adapter.set_exception_breakpoints,
        "breakpointLocations": adapter.breakpoint_locations,
        "next": adapter.next,
        "stepIn": adapter.step_in,
        "stepOut": adapter.step_out,
        "continue": adapter.go_on,
        "stepBack": adapter.step_back,
        "reverseContinue": adapter.reverse_continue,
        "pause": adapter.pause,
        "threads": adapter.threads,
        "stackTrace": adapter.stack_trace,
        "scopes": adapter.scopes,
        "variables": adapter.variables,
        "evaluate": adapter.evaluate,
        "exceptionInfo": adapter.exception_info,
        "source": adapter.source,
    }


def _by_granularity(arguments: Arguments, usual: Move) -> Move:
    """How far a step goes: an instruction is an event."""
    return "event" if arguments.text("granularity", "") == "instruction" else usual


def _file(arguments: Arguments) -> tuple[str, int]:
    """The file that a request speaks of, as its path or its number."""
    source = arguments.object("source")
    path, number = source.text("path", ""), source.number("sourceReference", 0)
    if not path and not number:
        raise RequestError("source has neither a path nor a number")
    return path, number
