"""A program that is debugged, acted out in this process: the same to the last µs in every run.

The debugger, the channel and the viewer are the real ones. What stands for the engine is the
simulator of :mod:`tests.event_simulator`, which runs on a thread and stops where it is asked to.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch

from agviz.debugger.client import Client
from agviz.debugger.control import Control
from agviz.debugger.debugger import Debugger
from agviz.debugger.messages import Hello, Said
from agviz.record.recorder import Recorder
from agviz.traces.rows import Frame
from agviz.tui.live_app import LiveApp
from agviz_engine import events
from agviz_engine.instruments import Instrument, Live, Registry
from tests.event_simulator import Simulator
from tests.tui_support import DEVICES, calm, mlp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.debugger.launch import Debuggee
    from agviz.record.names import Names
    from agviz.record.provenance import Provenance
    from agviz.tui.live_driver import LiveDriver
    from agviz.tui.program import LiveProgram
    from agviz.tui.screen import TraceScreen
    from tests.event_simulator import SimulatedNode

SECONDS = 20.0


class Ended(BaseException):
    """The program is to end where it stands."""


class Printed:
    """What the program has printed."""

    def __init__(self) -> None:
        self.waiting = b""

    def read(self) -> bytes:
        found, self.waiting = self.waiting, b""
        return found


class Process:
    """The process of a program."""

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Stack:
    """Says of each node which line made it."""

    def captured(self, node: Any) -> Any:
        return node

    def resolve(self, nodes: list[Any]) -> list[tuple[Frame, ...]]:
        return [(Frame("train.py", 12 + node.place % 9, "forward", False),) for node in nodes]


class Props(Instrument):
    """Puts tensors into the live view, and holds the program where that is wanted."""

    def __init__(self, nodes: list[SimulatedNode], bad: int | None) -> None:
        self._nodes = nodes
        self._bad = bad
        self.hold_at: int | None = None
        self.holds = threading.Event()
        self.may_go = threading.Event()
        self.is_over = False
        self.seq = -1
        """Of the last event."""

    def gradient(self, node: int, *, bad: bool = False) -> torch.Tensor:
        found = torch.randn(8, 16, generator=torch.Generator().manual_seed(node))
        if bad:
            found[0, 3:6] = torch.tensor([torch.nan, torch.inf, torch.nan])
        return found

    def any_event(self, event: events.Event, live: Live) -> None:
        if self.is_over:
            raise Ended
        self.seq = event.seq
        node = getattr(event, "node", -1)
        if not 0 <= node < len(self._nodes) or isinstance(event, events.GradientAccumulated):
            return
        live.node = cast("Any", self._nodes[node])
        if isinstance(event, events.NodeStarted):
            live.inputs, live.gradient = (self.gradient(node),), None
            if node == self.hold_at:
                self.holds.set()
                self.may_go.wait(SECONDS)
                if self.is_over:
                    raise Ended
        elif isinstance(event, events.NonFiniteChecked):
            live.inputs = (self.gradient(node),)
            live.gradient = self.gradient(node + 1, bad=node == self._bad)


class Stage:
    """A program with a viewer.

    Args:
        folder: for its trace.
        passes: backward passes that it makes.
        nan_at: the node that puts out something non-finite.
        fail_at: the node that raises.
        is_child: whether the viewer started it, or else has attached to it.
        lines: whether it knows which lines made its nodes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        passes: int = 1,
        nan_at: int | None = None,
        fail_at: int | None = None,
        is_child: bool = True,
        lines: bool = True,
    ) -> None:
        self._nan_at, self._fail_at = nan_at, fail_at
        self._passes = passes
        self.nodes, names = mlp()
        for place, node in enumerate(self.nodes):
            live = node.node
            live.place = place
            if node.is_accumulate_grad:
                weight = torch.nn.Parameter(torch.full((4,), 0.5))
                live.variable, live.name = weight, live.variable
            vars(node).update(base=1, is_custom_function=False)
        self.names = SimpleNamespace(
            module=names.module,
            modules=names.modules,
            parameter=self._parameter,
            trained=self._parameter,
            parameters=names.parameters,
            take_calls=names.take_calls,
        )
        self.registry = Registry()
        self.recorder = Recorder(
            folder / "training.agviz",
            names=cast("Names", self.names),
            script="train.py",
            argv=[],
        )
        self.props = Props(self.nodes, nan_at)
        self.provenance: Provenance | None = cast("Provenance", Stack()) if lines else None
        self.debugger = Debugger(cast("Any", self))
        self.registry.add(self.recorder)
        self.registry.add(self.props)
        self.debugger.install(self.registry)
        ours, theirs = socket.socketpair()
        program = str(folder / "train.py")
        hello = Hello(
            pid=1, trace=self.recorder.path, script="train.py", program=program, lines=lines
        )
        self.control = Control(theirs, self.debugger, hello)
        threading.Thread(target=self.control.serve, daemon=True).start()
        self.client = Client(ours)
        self.stdout, self.stderr, self.process = Printed(), Printed(), Process()
        debuggee = cast("Debuggee", self) if is_child else None
        self.app = LiveApp(self.client, debuggee, folder)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def records(self, graph_task: int) -> bool:
        return self.recorder.wants(graph_task)

    def flush(self) -> None:
        self.recorder.flush()

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> None:
        self.recorder.hold(thread, graph_task, node, reason)

    def let_go(self, thread: int) -> None:
        self.recorder.let_go(thread)

    def begin(self) -> None:
        """Have the program begin."""
        self._thread.start()

    def end(self, code: int = 0) -> None:
        """Have it end with an exit code, wherever it stands."""
        self.props.is_over = True
        self.props.may_go.set()
        self.debugger.detach()
        self._thread.join(SECONDS)
        self.recorder.close()
        self.process.code = code
        self.control.say(Said(what="ended"))
        self.control.end()

    def close(self) -> None:
        """End it, if it has not."""
        if self.process.code is None:
            self.end()
        self.client.close()

    def _parameter(self, variable: Any) -> str:
        for node in self.nodes:
            if getattr(node.node, "variable", None) is variable:
                return str(node.node.name)
        return ""

    def _run(self) -> None:
        simulator = Simulator(self.registry, Random(7), devices=DEVICES)
        with suppress(Ended):
            for _ in range(self._passes):
                simulator.backward(self.nodes, nan_at=self._nan_at, fail_at=self._fail_at)


def session_of(pilot: Pilot[None]) -> TraceScreen:
    """The screen on the program."""
    return cast("LiveApp", pilot.app).shown


def driver(session: TraceScreen) -> LiveDriver:
    """What its keys mean."""
    return cast("LiveDriver", session.driver)


def program(session: TraceScreen) -> LiveProgram:
    """The program behind it."""
    return driver(session).program


async def settle(pilot: Pilot[None]) -> TraceScreen:
    """Wait until everything that was asked of the reader and of the program is on the screen."""
    app = cast("LiveApp", pilot.app)
    await calm(pilot, lambda: [app.reader.wait, program(app.shown).link.wait])
    return session_of(pilot)


async def until(
    pilot: Pilot[None], true: Callable[[TraceScreen], bool], seconds: float = SECONDS
) -> TraceScreen:
    """Wait for something that the program does; one in a process imports torch first."""
    deadline = time.monotonic() + seconds
    while not true(await settle(pilot)):
        assert time.monotonic() < deadline, "this never came"
        await asyncio.sleep(0.01)
    return await settle(pilot)


async def begin(pilot: Pilot[None], stage: Stage) -> TraceScreen:
    """Have the program begin, and wait until it stands at its first node."""
    await settle(pilot)
    stage.begin()
    return await until(pilot, stands)


def stands(session: TraceScreen, node: int | None = None) -> bool:
    """Whether the program stands, at a node, and the playhead is there."""
    stop, view = program(session).stop, session.view
    if stop is None or view is None or (node is not None and stop.node != node):
        return False
    event = view.moment.event
    return event is not None and event.seq == stop.seq


async def press(pilot: Pilot[None], *keys: str) -> TraceScreen:
    """Type, and wait for what comes of each key."""
    from textual.events import Key

    session = await settle(pilot)
    for key in keys:
        pilot.app.post_message(Key(key, key if len(key) == 1 else None))
        session = await settle(pilot)
    return session


async def command(pilot: Pilot[None], line: str) -> TraceScreen:
    """Type a command line."""
    session = await settle(pilot)
    await press(pilot, "colon")
    session.query_one("#prompt-field").value = line  # type: ignore[attr-defined]
    return await press(pilot, "enter")
