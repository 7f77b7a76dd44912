"""Pictures of backward passes: each is recorded from a real one, then drawn as SVG."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import agviz_engine
from agviz.demo.session import Session
from agviz.export.draw import render_graph
from agviz.traces.names import Names
from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable


class Unrolled(nn.Module):
    """An LSTM cell, 50 steps in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, steps: Tensor) -> Tensor:
        """The loss of one sequence of shape (50, batch, 16)."""
        state = torch.zeros(2, 32), torch.zeros(2, 32)
        for step in steps:
            state = self.cell(step, state)
        loss: Tensor = self.head(state[0]).square().mean()
        return loss


def lstm_of_50_steps() -> None:
    """A graph of 759 nodes that says the same thing 50 times."""
    Unrolled()(torch.randn(50, 2, 16)).backward()


def twelve_layers() -> None:
    """A transformer encoder of twelve equal layers."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    model(torch.randn(2, 8, 64)).sum().backward()


def double_backward() -> None:
    """A gradient penalty: the backward pass through a backward pass."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    inputs = torch.randn(3, 4, requires_grad=True)
    outputs = model(inputs).sum()
    (gradient,) = torch.autograd.grad(outputs, inputs, create_graph=True)
    (outputs + (gradient.norm(dim=1) - 1).square().mean()).backward()


def failing_hook() -> None:
    """A backward pass that a tensor hook ends."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def check(gradient: Tensor) -> None:
        message = f"the gradient's norm is {gradient.norm():.3f}, expected 1"
        raise ValueError(message)

    hidden = model[1](model[0](torch.ones(3, 4)))
    hidden.register_hook(check)
    with contextlib.suppress(ValueError):
        model[4](model[3](model[2](hidden))).sum().backward()


SCENES: dict[str, Callable[[], None]] = {
    "graph-lstm-50-steps": lstm_of_50_steps,
    "graph-transformer-12-layers": twelve_layers,
    "graph-double-backward": double_backward,
    "graph-failing-hook": failing_hook,
}
DEMOS = {
    "graph-demo": ("char-lm", False),
    "graph-demo-conv": ("conv", False),
    "graph-demo-nan": ("char-lm", True),
}


def render(out_dir: Path) -> list[Path]:
    """Record every scene and draw it into ``out_dir``; returns the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "scene.agviz"
        pictures = []
        for name, (model, plant_nan) in DEMOS.items():
            session = Session(model, steps=1, plant_nan=plant_nan)
            session.record(trace)
            pictures.append(_draw(trace, out_dir / f"{name}.svg"))
        for name, run in SCENES.items():
            torch.manual_seed(0)
            with (
                Names() as names,
                Recorder(trace, names=names, script=name.removeprefix("graph-")) as recorder,
                agviz_engine.installed(recorder, nonfinite_check=True),
            ):
                run()
            pictures.append(_draw(trace, out_dir / f"{name}.svg"))
    return pictures


def _draw(recording: Path, picture: Path) -> Path:
    with Trace.open(recording) as trace:
        drawing = render_graph(trace, picture)
    drawing.dot_path.unlink()
    return drawing.path
