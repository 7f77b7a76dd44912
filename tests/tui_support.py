"""Traces of made-up backward passes for the terminal UI: the same to the last µs in every run."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from textual import events

from agviz.record.names import ModuleCalls
from agviz.record.recorder import Recorder
from agviz_engine.instruments import Registry
from tests.event_simulator import ACCUMULATE_GRAD, SimulatedNode, Simulator

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Sequence, Sized
    from pathlib import Path

    from textual.app import App
    from textual.message_pump import MessagePump
    from textual.pilot import Pilot

    from agviz.record.names import Names
    from agviz.tui.app import AgvizApp
    from agviz.tui.model import View
    from agviz.tui.panels.panel import Panel
    from agviz.tui.screen import TraceScreen

DEVICES = 2
LAYERS = 4
PER_LAYER = 5
"""Nodes of a layer: relu, addmm, bias, transposition, weight."""
NODES = 1 + LAYERS * PER_LAYER

_PATIENCE_S: Final = 60.0
_KEYS = {
    " ": "space",
    "#": "number_sign",
    "-": "minus",
    "/": "slash",
    "_": "underscore",
    ".": "full_stop",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}


class MadeUpNames:
    """Says what each node was given."""

    def __init__(self, modules: dict[int, str]) -> None:
        self._modules = modules

    def parameter(self, variable: object) -> str:
        return str(variable)

    trained = parameter

    def module(self, sequence_nr: int) -> str:
        return self._modules.get(sequence_nr, "")

    def modules(self, sequence_nrs: Sequence[int]) -> Callable[[], list[str]]:
        return lambda: [self._modules.get(number, "") for number in sequence_nrs]

    def parameters(self, *, with_norms: bool = False) -> None:
        """No parameter is alive: there are none."""

    def take_calls(self) -> ModuleCalls:
        """No module was called."""
        return ModuleCalls([], [], has_roots=False)

    def roots(self) -> tuple[()]:
        """No module is alive."""
        return ()


def mlp() -> tuple[list[SimulatedNode], MadeUpNames]:
    """The graph of a perceptron of LAYERS layers, the first half of which is on device 0."""
    nodes: list[SimulatedNode] = []
    modules: dict[int, str] = {}

    def add(
        name: str, module: str, device: int, *shapes: tuple[int, ...], parameter: str = ""
    ) -> SimulatedNode:
        number = ACCUMULATE_GRAD if parameter else 100 - len(nodes)
        modules[number] = module
        live = SimpleNamespace(variable=parameter)
        node = SimulatedNode(len(nodes), name, number, device, len(shapes), node=live)
        node.input_shapes = ";".join(str(list(shape)) for shape in shapes)
        nodes.append(node)
        return node

    above = add("MseLossBackward0", "", -1, ())
    for layer in reversed(range(LAYERS)):
        module, device = f"layers.{layer}", int(layer >= LAYERS // 2)
        relu = add("ReluBackward0", f"{module}.activation", device, (32, 64))
        addmm = add("AddmmBackward0", f"{module}.linear", device, (32, 64))
        leaf = "torch::autograd::AccumulateGrad"
        bias = add(leaf, "", device, (64,), parameter=f"{module}.linear.bias")
        transposed = add("TBackward0", f"{module}.linear", device, (64, 64))
        weight = add(leaf, "", device, (64, 64), parameter=f"{module}.linear.weight")
        above.next_edges = (*above.next_edges, (relu, 0))
        relu.next_edges = ((addmm, 0),)
        addmm.next_edges = ((bias, 0), None, (transposed, 0))
        transposed.next_edges = ((weight, 0),)
        above = addmm
    names = MadeUpNames(modules)
    return nodes, names


def record(
    path: Path,
    *,
    nan_at: int | None = None,
    fail_at: int | None = None,
    graph_tasks: int = 1,
    chosen: re.Pattern[str] | None = None,
) -> Path:
    """Write a trace of ``graph_tasks`` backward passes through :func:`mlp`.

    ``chosen``: the events of other nodes are left out.
    """
    nodes, names = mlp()
    registry = Registry()
    named = cast("Names", names)
    with Recorder(path, names=named, script="train.py", argv=[], nodes=chosen) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(7), devices=DEVICES)
        for _ in range(graph_tasks):
            simulator.backward(nodes, nan_at=nan_at, fail_at=fail_at)
    return path


async def settle(pilot: Pilot[None]) -> TraceScreen:
    """Wait until everything that was asked of the reader thread is on the screen."""
    app = cast("AgvizApp", pilot.app)
    await calm(pilot, lambda: [app.reader.wait])
    return app.shown


async def calm(
    pilot: Pilot[None], waits: Callable[[], Iterable[Callable[[], bool]]] = list
) -> None:
    """Wait until nothing is under way that leads to anything else.

    No worker has a request then, every widget waits for its next message, asyncio has nothing to
    go on with, and all that changed is painted: what comes next, time or a thread brings. An app
    that is to end is left to that.

    Args:
        pilot: of the app.
        waits: what :meth:`~agviz.tui.worker.Worker.wait` is of the workers that there are now.
    """
    app, loop = pilot.app, asyncio.get_running_loop()
    is_painted = False
    async with asyncio.timeout(_PATIENCE_S):
        while not is_painted and not app._exit:
            # What asyncio has ready goes on at once; else a timer is waited for, or a thread.
            await asyncio.sleep(0 if _ready(loop) else 0.001)
            if not _is_calm(app, loop):
                continue
            for wait in waits():
                await asyncio.to_thread(wait)
            app.screen._on_timer_update()  # as `pilot.pause` does: else a timer comes to it
            # Nothing else runs meanwhile. Answers of a worker that has to be waited for are ready.
            is_painted = all(wait() for wait in waits()) and _is_calm(app, loop)


def _is_calm(app: App[None], loop: asyncio.AbstractEventLoop) -> bool:
    """Whether every widget waits for a message, none is on its way, and no picture is held back."""
    return not (
        _ready(loop)
        or app._batch_count
        or any(pump.is_running and not _waits(pump) for pump in (app, *app._registry))
    )


def _ready(loop: asyncio.AbstractEventLoop) -> Sized:
    """What it goes on with as soon as whoever runs now waits."""
    return cast("Sized", cast("Any", loop)._ready)


def _waits(pump: MessagePump) -> bool:
    """Whether it has dealt with all its messages, and waits for the next."""
    waiters = cast("Any", pump._message_queue.ready_event)._waiters
    return any(not waiter.done() for waiter in waiters)


async def begin(pilot: Pilot[None]) -> TraceScreen:
    """Go to the beginning: a trace opens where the first failure or non-finite gradient is."""
    session = await settle(pilot)
    view = session.view
    if view is not None and view.moment.position:
        session.carry_out("event 0")
        await settle(pilot)
        session.board.look_at(view.recording.columns.node_at(0), cast("View", session.view))
    return await settle(pilot)


async def press(pilot: Pilot[None], *keys: str) -> TraceScreen:
    """Type, and wait for what comes of each key.

    ``pilot.press`` waits for an idle processor twice per key, which a busy machine never has.
    """
    session = await settle(pilot)
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        session = await settle(pilot)
    return session


async def until(pilot: Pilot[None], fits: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(3_000):  # a minute: an answer about ranks takes many seconds on a busy machine
        await calm(pilot)
        if fits():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to that")


async def write(pilot: Pilot[None], text: str) -> TraceScreen:
    """Type a text into the prompt."""
    for character in text:
        key = character if character.isalnum() else _KEYS[character]
        pilot.app.post_message(events.Key(key, character))
    return await settle(pilot)


def lines(panel: Panel) -> list[str]:
    """What a panel shows, line by line."""
    return [panel.render_line(y).text.rstrip() for y in range(panel.content_size.height)]
