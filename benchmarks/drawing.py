"""Drawing a graph as SVG, beside torchviz, each in a process of its own.

torchviz is what people draw with: ``make_dot`` of the same loss with the same names. Both are drawn
by the same Graphviz. A contender has 60 s, from the loss to the SVG.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

import agviz
from agviz.errors import DrawingError
from agviz.export.draw import render

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 60


class Drawn(NamedTuple):
    """What one contender made of one graph."""

    seconds: float
    """Until it ended, however."""
    cpu_seconds: float
    """CPU time meanwhile, Graphviz's included; what does not depend on what else runs."""
    drawn: int
    """Nodes in the picture; a group that is folded into one counts as one."""
    bytes: int
    """Of the SVG."""
    failure: str
    """Why there is no picture; empty where there is one."""


class Result(NamedTuple):
    """All contenders on one graph."""

    nodes: int
    """Nodes of the graph, as torch has them."""
    contenders: dict[str, Drawn]


class _Recurrent(nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(8, 8)
        self.inputs = torch.randn(steps, 2, 8)

    def forward(self) -> Tensor:
        state = torch.zeros(2, 8)
        for step in self.inputs:
            state = self.cell(step, state)
        return state.sum()


class _Encoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self) -> Tensor:
        result: Tensor = self.encoder(torch.randn(2, 4, 16)).sum()
        return result


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.fc1 = nn.Linear(4, 4)
        self.fc2 = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.fc2(torch.relu(self.fc1(self.norm(x))))
        return added


class _Stack(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_Residual() for _ in range(blocks)))

    def forward(self) -> Tensor:
        result: Tensor = self.blocks(torch.randn(2, 4)).sum()
        return result


GRAPHS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: _Recurrent(66),
    "transformer": lambda: _Encoder(48),
    "residual blocks": lambda: _Stack(770),
    "more residual blocks": lambda: _Stack(7_700),
}


def _torchviz(model: nn.Module, loss: Tensor) -> tuple[bytes, int]:
    from torchviz import make_dot

    begin = time.perf_counter()
    dot = make_dot(loss, params=dict(model.named_parameters()))
    left = LIMIT_S - (time.perf_counter() - begin)
    svg = render(dot.source, "svg", left)
    return svg, len(re.findall(rb'class="node"', svg))


def _draw(model: nn.Module, loss: Tensor) -> tuple[bytes, int]:
    svg = agviz.draw(loss, model).svg().encode()
    return svg, _lines(svg)


def _export(recorded: Path) -> tuple[bytes, int]:
    svg = agviz.load(recorded).svg().encode()
    return svg, _lines(svg)


def _lines(svg: bytes) -> int:
    return len(set(re.findall(rb'id="a_node(?:-|&#45;)(\d+)', svg)))


TORCHVIZ, DRAW, EXPORT = "torchviz", "agviz.draw", "agviz export"
CONTENDERS = (DRAW, EXPORT, TORCHVIZ)


def measure(*, quick: bool) -> dict[str, Result]:
    """By graph; ``quick`` leaves out the largest."""
    found = {}
    for name in list(GRAPHS)[: -1 if quick else None]:
        results = {contender: _in_a_process(name, contender) for contender in CONTENDERS}
        nodes = max(nodes for nodes, _ in results.values())
        found[name] = Result(nodes, {each: drawn for each, (_, drawn) in results.items()})
    return found


def _in_a_process(graph: str, contender: str) -> tuple[int, Drawn]:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.drawing", graph, contender],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not finished.stdout:
        return 0, Drawn(0.0, 0.0, 0, 0, f"the process ended with {finished.returncode}")
    nodes, *figures = json.loads(finished.stdout)
    return nodes, Drawn(*figures)


def _main(graph: str, contender: str) -> None:
    torch.manual_seed(0)
    model = GRAPHS[graph]()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.agviz")
        if contender == EXPORT:
            with agviz.trace(model, trace):
                model().backward()
            nodes = max(task.nodes for task in agviz.load(trace).graph_tasks)
            found = _timed(lambda: _export(trace))
        else:
            loss: Any = model()
            nodes = _count(loss)
            way = _draw if contender == DRAW else _torchviz
            found = _timed(lambda: way(model, loss))
    print(json.dumps([nodes, *found]), flush=True)
    os._exit(0)  # torch overflows the stack when it frees a deep graph that Python has seen


class _LateError(Exception):
    """The time is over."""


def _timed(draw: Callable[[], tuple[bytes, int]]) -> Drawn:
    def stop(*_: Any) -> None:
        raise _LateError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    begin, cpu_before = time.perf_counter(), _cpu_seconds()
    svg, drawn, failure = b"", 0, ""
    try:
        svg, drawn = draw()
    except (DrawingError, _LateError, RecursionError) as error:
        late = isinstance(error, _LateError) or "did not finish" in str(error)
        failure = f"not within {LIMIT_S} s" if late else type(error).__name__
    signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.perf_counter() - begin
    return Drawn(seconds, _cpu_seconds() - cpu_before, drawn, len(svg), failure)


def _cpu_seconds() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def _count(loss: Tensor) -> int:
    """Nodes that backward would walk."""
    waiting = [torch.autograd.graph.get_gradient_edge(loss).node]
    met = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in met:
                met.add(node)
                waiting.append(node)
    return len(met)


if __name__ == "__main__":
    _main(*sys.argv[1:])
