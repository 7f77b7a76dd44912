"""Pictures of backward passes: each is recorded from a real one, then drawn as SVG."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

import agviz_engine
from agviz.demo.session import DemoSession
from agviz.export.choices import make_look, make_view
from agviz.export.draw import render_graph
from agviz.export.pass_timeline import PassTimeline
from agviz.record.names import Names
from agviz.record.provenance import Provenance
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from screenshots.models import GPT, ResNet50, Unrolled

if TYPE_CHECKING:
    from collections.abc import Callable


def lstm_of_50_steps() -> None:
    """A graph of 759 nodes that says the same thing 50 times."""
    Unrolled()(torch.randn(50, 2, 16)).backward()


def resnet_50() -> None:
    """16 bottlenecks in four stages."""
    nn.functional.cross_entropy(ResNet50()(torch.randn(4, 3, 64, 64)), torch.arange(4)).backward()


def gpt_of_12_layers() -> None:
    """Twelve equal layers."""
    GPT(12)(torch.randint(50, (2, 17))).backward()


def gpt_of_2_layers() -> None:
    """Two of them."""
    GPT(2)(torch.randint(50, (2, 17))).backward()


def gpt_without_a_norm() -> None:
    """The same without one of its normalisations."""
    GPT(2, normalised=False)(torch.randint(50, (2, 17))).backward()


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
    "lstm-50-steps": lstm_of_50_steps,
    "resnet-50": resnet_50,
    "gpt-12-layers": gpt_of_12_layers,
    "gpt-2-layers": gpt_of_2_layers,
    "gpt-without-a-norm": gpt_without_a_norm,
    "double-backward": double_backward,
    "failing-hook": failing_hook,
}
DEMOS = {
    "demo": ("char-lm", False),
    "demo-conv": ("conv", False),
    "demo-nan": ("char-lm", True),
}


class Shot(NamedTuple):
    """One picture: of which scene, in which view."""

    name: str
    scene: str
    view: dict[str, object] = {}  # noqa: RUF012 - nobody changes it
    theme: str = "light"
    other: str = ""
    """A scene that is laid over it."""
    half: bool = False
    """The state in the middle of its events."""


SHOTS = (
    Shot("demo", "demo"),
    Shot("demo-conv", "demo-conv"),
    Shot("demo-nan", "demo-nan"),
    Shot("demo-nan-dark", "demo-nan", {"around": "DivBackward0", "depth": 3}, "dark"),
    Shot("demo-by-device", "demo", {"by": "device", "fold": "chains"}),
    Shot("demo-by-execution", "demo", {"by": "execution"}),
    Shot("demo-at", "demo-nan", {"fold": "repeats"}, half=True),
    Shot("demo-to", "demo", {"to": "blocks.2.mlp.0.weight", "saved": True}),
    Shot("resnet-50", "resnet-50", {"fold": "repeats"}),
    Shot("gpt-12-layers", "gpt-12-layers", {"fold": "repeats"}),
    Shot("gpt-diff", "gpt-2-layers", other="gpt-without-a-norm"),
    Shot("lstm-50-steps", "lstm-50-steps"),
    Shot("double-backward", "double-backward"),
    Shot("failing-hook", "failing-hook"),
)


TIMES = ("demo-nan", "gpt-12-layers")
"""Scenes that are drawn in time, too."""


def render(out_dir: Path) -> list[Path]:
    """Record every scene and draw it into ``out_dir``; returns the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        traces = record(Path(folder))
        in_time = [draw_time(traces[scene], out_dir / f"timeline-{scene}.svg") for scene in TIMES]
        graphs = [draw(shot, traces, out_dir / f"graph-{shot.name}.svg") for shot in SHOTS]
        return in_time + graphs


def record(folder: Path) -> dict[str, Path]:
    """A trace of every scene."""
    traces = {name: folder / f"{name}.agviz" for name in (*DEMOS, *SCENES)}
    for name, (model, plant_nan) in DEMOS.items():
        DemoSession(model, steps=1, plant_nan=plant_nan).record(traces[name])
    for name, run in SCENES.items():
        torch.manual_seed(0)
        provenance = Provenance()
        provenance.start()
        try:
            with (
                Names() as names,
                Recorder(
                    traces[name],
                    names=names,
                    provenance=provenance,
                    values="health",
                    script=name,
                ) as recorder,
                agviz_engine.installed(recorder, nonfinite_check=True),
            ):
                run()
        finally:
            provenance.stop()
    return traces


def draw_time(place: Path, picture: Path) -> Path:
    """Draw what threads did in a scene."""
    with Trace.open(place) as trace:
        picture.write_text("".join(PassTimeline(trace).pieces()), encoding="ascii")
    return picture


def draw(shot: Shot, traces: dict[str, Path], picture: Path) -> Path:
    """Draw one of them; the format is that of the file."""
    with contextlib.ExitStack() as stack:
        trace = stack.enter_context(Trace.open(traces[shot.scene]))
        other = stack.enter_context(Trace.open(traces[shot.other])) if shot.other else None
        view = shot.view
        if shot.half:
            task = max(trace.graph_tasks, key=lambda task: task.nodes)
            middle = trace.events(task.id, trace.event_count(task.id) // 2, 1)[0]
            view = {**view, "at": middle.seq, "graph_task": task.id}
        drawing = render_graph(
            trace,
            picture,
            picture.suffix[1:],
            view=make_view(**view),  # type: ignore[arg-type]
            look=make_look(theme=shot.theme),
            other=other,
        )
    return drawing.path
