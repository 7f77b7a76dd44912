"""What must not grow from pass to pass: programs that do it, and some that look as if they did.

What a program keeps is counted by itself, by tokens that it puts on nodes: no graph of a healthy
one is alive that it does not mean to keep.
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections import deque
from contextlib import closing
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

import agviz
from agviz.analysis.graph_growth import graph_growth
from agviz.analysis.kept_graphs import kept_graphs
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.errors import TraceError
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")


class Token:
    """Lives as long as the node that it is put on."""


class Training:
    """A model, its optimizer, and the graphs of its steps that are alive."""

    def __init__(self, rate: float = 0.01) -> None:
        self.first, self.act, self.last = nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)
        self.model = nn.Sequential(self.first, self.act, self.last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.alive: weakref.WeakSet[Token] = weakref.WeakSet()

    def loss(self) -> Tensor:
        """Of a batch."""
        loss: Tensor = self.model(torch.randn(6, 4)).square().mean()
        return self.follow(loss)

    def follow(self, loss: Tensor) -> Tensor:
        assert loss.grad_fn is not None
        token = Token()
        cast("dict[str, object]", loss.grad_fn.metadata)["followed"] = token
        self.alive.add(token)
        return loss

    def steps(self, count: int = 6) -> Iterator[Tensor]:
        """The loss of each step, after it."""
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
            yield loss


def running_sum(training: Training) -> None:
    total = torch.zeros(())
    for loss in training.steps():
        total = total + loss  # cause: total
    assert len(training.alive) == 6


class Meter:
    """An average of losses."""

    value: Tensor | float = 0.0

    def update(self, loss: Tensor) -> None:
        self.value = 0.9 * self.value + 0.1 * loss  # cause: Meter.value


def average_in_an_object(training: Training) -> None:
    meter = Meter()
    for loss in training.steps():
        meter.update(loss)


def list_of_losses(training: Training) -> None:
    history = []
    for loss in training.steps():
        history.append(loss)  # cause: history  # noqa: PERF402
    assert len(training.alive) == 6


def dictionary_of_lists(training: Training) -> None:
    record: dict[str, list[Tensor]] = {"loss": [], "other": []}
    for loss in training.steps():
        record["loss"].append(loss * 2)  # cause: record


class Logger:
    """Keeps the last losses."""

    def __init__(self) -> None:
        self.recent: deque[Tensor] = deque(maxlen=100)

    def log(self, loss: Tensor) -> None:
        self.recent.append(loss)  # cause: Logger.recent


def deque_in_a_logger(training: Training) -> None:
    logger = Logger()
    for loss in training.steps():
        logger.log(loss)


class Probe:
    """Keeps what it sees as attributes of their own."""


def attributes_with_numbers(training: Training) -> None:
    probe = Probe()
    for step, loss in enumerate(training.steps()):
        setattr(probe, f"seen_{step}", loss * 2)  # cause: Probe.seen_#


def replay_of_outputs(training: Training) -> None:
    memory = {}
    for step, _ in enumerate(training.steps()):
        out = training.model(torch.randn(6, 4))
        loss = training.follow(out.square().sum())
        loss.backward()
        memory[step] = out  # cause: memory


def gradients_with_graphs(training: Training) -> None:
    for _ in range(5):
        training.loss().backward(create_graph=True)  # cause: 0.weight


def models_with_graphs_in_grad(training: Training) -> None:
    """Two of three graphs go, as each model's steps clear the gradients; its last one stays."""
    for _ in range(20):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        for _ in range(3):
            model.zero_grad()
            loss = training.follow(model(torch.randn(6, 4)).square().mean())
            loss.backward(create_graph=True)  # cause: 0.weight


def snapshots(training: Training) -> Iterator[tuple[nn.Module, Tensor]]:
    """Beside every second step, a snapshot of the model and its loss."""
    for step in range(48):
        training.optimizer.zero_grad()
        training.loss().backward()
        training.optimizer.step()
        if step % 2:
            snapshot = deepcopy(training.model)
            yield snapshot, training.follow(snapshot(torch.randn(6, 4)).square().mean())


def snapshots_with_graphs_in_grad(training: Training) -> None:
    """A third of the graphs are of snapshots, and stay; those of the training go."""
    for _, loss in snapshots(training):
        loss.backward(create_graph=True)  # cause: 0.weight


def hook_that_holds_its_tensor(training: Training) -> None:
    scores = []

    def forward() -> Tensor:
        hidden: Tensor = training.act(training.first(torch.randn(6, 4)))

        def held(grad: Tensor) -> None:  # cause: held
            scores.append((grad * hidden).sum().item())

        hidden.register_hook(held)
        loss: Tensor = training.last(hidden).square().mean()
        return loss

    for _ in range(6):
        training.optimizer.zero_grad()
        forward().backward()
        training.optimizer.step()


def hidden_state_carried(training: Training) -> None:
    cell, state = nn.GRUCell(4, 4), torch.zeros(6, 4)
    for _ in range(6):
        state = cell(torch.randn(6, 4), state)  # cause: earlier
        training.model(state).square().mean().backward(retain_graph=True)
        training.optimizer.zero_grad()


def wrapped_again(training: Training) -> None:
    def doubled(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def twice(x: Tensor) -> Tensor:
            return forward(x).mul(2.0).div(2.0)  # cause: twice

        return twice

    for _ in training.steps():
        training.model.forward = doubled(training.model.forward)  # type: ignore[method-assign]


def weight_norm_again(training: Training) -> None:
    class Unit(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            norm: Tensor = x.norm(dim=1, keepdim=True)
            return x / norm

    for _ in training.steps():
        parametrize.register_parametrization(training.first, "weight", Unit())  # cause: again


def forward_hook_each_step(training: Training) -> None:
    seen: list[float] = []
    for _ in training.steps():
        training.act.register_forward_hook(lambda *of: seen.append(of[2].mean().item()))  # cause: 1


def hook_on_a_weight_each_step(training: Training) -> None:
    for _ in training.steps(14):
        training.first.weight.register_hook(lambda grad: grad.clamp(-1, 1))  # cause: 0.weight


def pixel_by_pixel(training: Training) -> None:
    gamma = nn.Parameter(torch.tensor(0.8))
    image = torch.rand(32, 32)
    pixels = []
    for place in range(32 * 32):
        pixels.append(image[place // 32, place % 32] ** gamma)  # cause: loop  # noqa: PERF401
    (torch.stack(pixels) - 0.5).square().mean().backward()
    assert training.model


def slice_by_slice(training: Training) -> None:
    out = torch.zeros(120, 8)
    for step in range(120):
        out[step] = training.first(torch.randn(4))  # cause: CopySlices
    out.square().mean().backward()


def small_part_in_a_cache(training: Training) -> None:
    @lru_cache(maxsize=64)  # cause: encoded
    def encoded(step: int) -> Tensor:
        hidden: Tensor = training.first(torch.full((6, 4), float(step)))
        return hidden

    for step in range(6):
        training.optimizer.zero_grad()
        state = encoded(step)
        for _ in range(100):
            state = training.act(state) + 0.1
        training.follow(training.last(state).square().mean()).backward()
        training.optimizer.step()


def small_part_in_a_list(training: Training) -> None:
    seen = []
    for _ in range(6):
        training.optimizer.zero_grad()
        state = training.first(torch.randn(6, 4))
        seen.append(state)  # cause: seen
        for _ in range(100):
            state = training.act(state) + 0.1
        training.last(state).square().mean().backward()
        training.optimizer.step()


def samples_drawn_now_and_then(training: Training) -> None:
    shown = []
    for step, _ in enumerate(training.steps(80)):
        if step % 20 == 19:
            state = torch.randn(3, 4)
            for _ in range(20):
                state = training.act(training.model(state)).expand(3, 4) + 0.1
            shown.append((step, state))  # cause: shown


GROWING = (
    samples_drawn_now_and_then,
    small_part_in_a_cache,
    small_part_in_a_list,
    pixel_by_pixel,
    slice_by_slice,
    running_sum,
    average_in_an_object,
    list_of_losses,
    dictionary_of_lists,
    deque_in_a_logger,
    attributes_with_numbers,
    replay_of_outputs,
    gradients_with_graphs,
    models_with_graphs_in_grad,
    snapshots_with_graphs_in_grad,
    hook_that_holds_its_tensor,
    hidden_state_carried,
    wrapped_again,
    weight_norm_again,
    forward_hook_each_step,
    hook_on_a_weight_each_step,
)
QUICK = {
    "small_part_in_a_cache",
    "running_sum",
    "gradients_with_graphs",
    "hidden_state_carried",
    "weight_norm_again",
    "forward_hook_each_step",
    "hook_on_a_weight_each_step",
}


def numbers_only(training: Training) -> None:
    history, total = [], torch.zeros(())
    for loss in training.steps(9):
        history.append(loss.item())
        total += loss.detach()
    assert len(training.alive) <= 1


def last_loss_kept(training: Training) -> None:
    best = None
    for loss in training.steps(9):
        best = loss if best is None or loss < best else best


def losses_first_then_backward(training: Training) -> None:
    for _ in range(4):
        losses = [training.loss() for _ in range(6)]
        for loss in losses:
            loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def inner_steps_of_meta_learning(training: Training) -> None:
    weight = training.first.weight
    for _ in range(3):
        fast, inner = weight, []
        for _ in range(5):
            loss = (torch.randn(6, 4) @ fast.T).square().mean()
            inner.append(loss)
            (gradient,) = torch.autograd.grad(loss, fast, create_graph=True)
            fast = fast - 0.1 * gradient
        (torch.randn(6, 4) @ fast.T).square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def gradient_penalty(training: Training) -> None:
    for _ in range(6):
        x = torch.randn(6, 4, requires_grad=True)
        out = training.model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (out.square().mean() + slope.square().sum()).backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def create_graph_and_none(training: Training) -> None:
    for _ in range(6):
        training.loss().backward(create_graph=True)
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)


def models_whose_gradients_go(training: Training) -> None:
    for _ in range(20):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        for _ in range(3):
            model.zero_grad()
            training.follow(model(torch.randn(6, 4)).square().mean()).backward(create_graph=True)
        model.zero_grad()


def some_graphs_that_stay_for_a_while(training: Training) -> None:
    """As many as at first, however long it goes on."""
    kept: deque[Tensor] = deque(maxlen=4)
    for step in range(60):
        training.model.zero_grad()
        loss = training.loss()
        loss.backward(create_graph=True)
        if step % 2:
            kept.append(loss)
    training.model.zero_grad()


def snapshots_whose_gradients_go(training: Training) -> None:
    for snapshot, loss in snapshots(training):
        loss.backward(create_graph=True)
        snapshot.zero_grad()


def truncated(training: Training) -> None:
    cell, state = nn.GRUCell(4, 4), torch.zeros(6, 4)
    for _ in range(6):
        for _ in range(3):
            state = cell(torch.randn(6, 4), state)
        training.model(state).square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        state = state.detach()


def longer_sequences(training: Training) -> None:
    cell = nn.GRUCell(4, 4)
    for length in range(2, 9):
        state = torch.zeros(6, 4)
        for _ in range(length):
            state = cell(torch.randn(6, 4), state)
        training.model(state).square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def generated_token_by_token(training: Training) -> None:
    for length in (3, 7, 4, 9, 5, 8):
        x = [torch.randn(6, 4)]
        for _ in range(length):
            x.append(torch.cat(x).tanh()[:6])
        training.model(torch.cat(x)).square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def hooks_that_are_removed(training: Training) -> None:
    for _ in range(9):
        handles = [module.register_forward_hook(lambda *_: None) for module in training.model]
        training.loss().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        for handle in handles:
            handle.remove()


def more_layers_for_a_while(training: Training) -> None:
    for depth in (1, 2, 3, 3, 3, 3, 3, 3, 3):
        x = torch.randn(6, 4)
        for _ in range(depth):
            x = training.first(x)[:, :4]
        x.square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def weight_norm_once(training: Training) -> None:
    weight_norm(training.first)
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
    for _ in training.steps():
        pass


def outputs_of_a_recurrence_in_a_buffer(training: Training) -> None:
    cell, out, state = nn.GRUCell(4, 32), torch.zeros(40, 6, 32), torch.zeros(6, 32)
    for step in range(40):
        state = cell(torch.randn(6, 4), state)
        out[step] = state
    out.square().mean().backward()
    assert training.model


def long_recurrence(training: Training) -> None:
    state = torch.zeros(4, requires_grad=True)
    for _ in range(400):
        state = (state + torch.randn(4)).tanh() * 0.9
    training.model(state).sum().backward()


def penalty_on_each_parameter(training: Training) -> None:
    more = nn.ModuleList(nn.Linear(3, 3) for _ in range(300))
    loss = training.loss()
    for parameter in more.parameters():
        loss = loss + parameter.square().sum()
    loss.backward()


class Slow(torch.autograd.Function):
    """Its backward takes longer than any copy of small buffers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        time.sleep(0.3)
        return gradient


def slices_beside_slow_work(training: Training) -> None:
    out = torch.zeros(70, 8)
    for step in range(70):
        out[step] = training.first(torch.randn(4))
    slow = cast("Callable[[Tensor], Tensor]", Slow.apply)
    slow(out.square().mean()).backward()


def chains_of_the_last_samples(training: Training) -> None:
    last: deque[Tensor] = deque(maxlen=4)
    for step, _ in enumerate(training.steps(80)):
        if step % 20 == 19:
            state = torch.randn(3, 4)
            for _ in range(20):
                state = training.act(training.model(state)).expand(3, 4) + 0.1
            last.append(state)


def samples_without_graphs(training: Training) -> None:
    drawn = []
    for step, _ in enumerate(training.steps(80)):
        if step % 20 == 19:
            with torch.no_grad():
                state = torch.randn(3, 4)
                for _ in range(20):
                    state = training.act(training.model(state)).expand(3, 4) + 0.1
            drawn.append((step, state))


HEALTHY = (
    chains_of_the_last_samples,
    samples_without_graphs,
    slices_beside_slow_work,
    outputs_of_a_recurrence_in_a_buffer,
    long_recurrence,
    penalty_on_each_parameter,
    numbers_only,
    last_loss_kept,
    losses_first_then_backward,
    inner_steps_of_meta_learning,
    gradient_penalty,
    create_graph_and_none,
    models_whose_gradients_go,
    some_graphs_that_stay_for_a_while,
    snapshots_whose_gradients_go,
    truncated,
    longer_sequences,
    generated_token_by_token,
    hooks_that_are_removed,
    more_layers_for_a_while,
    weight_norm_once,
)


def recorded(path: Path, program: Callable[[Training], None], **how: Any) -> Path:
    torch.manual_seed(0)
    with agviz.trace(path=path, **how):
        program(Training())
    return path


def name_of(program: Callable[[Training], None]) -> str:
    return program.__name__


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", slow_but(QUICK, GROWING, name_of))
def test_what_grows_is_found_with_its_line(
    tmp_path: Path, program: Callable[[Training], None]
) -> None:
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        (found,) = verdicts(trace)
    assert found.outcome is Outcome.FOUND
    assert found.frame is not None
    assert "# cause" in source_of(found.frame.line), found
    name = source_of(found.frame.line).partition("# cause: ")[2].split()[0]
    assert name in f"{found.heading} {found.paragraph}"
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.slow
def test_a_graph_that_gets_longer_is_told_once(tmp_path: Path) -> None:
    """That it stays alive is the same fault, at the same line."""

    def program(training: Training) -> None:
        cell, state = nn.GRUCell(4, 4), torch.zeros(6, 4)
        for _ in range(16):
            state = cell(torch.randn(6, 4), state)
            training.model(state).square().mean().backward(retain_graph=True)
            training.optimizer.zero_grad()

    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        kept, longer = kept_graphs(trace), graph_growth(trace)
        (found,) = verdicts(trace)
    assert kept is not None
    assert longer is not None
    assert kept.frame == longer.frame
    assert found.basis == longer


@pytest.mark.slow
def test_the_list_is_that_of_the_function_that_ran(tmp_path: Path) -> None:
    """Another function of the file has a list of the same name."""
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", small_part_in_a_list)) as trace:
        (found,) = verdicts(trace)
    assert found.frame is not None
    assert found.frame.function == small_part_in_a_list.__name__


@pytest.mark.slow_but_one_in(8)
@pytest.mark.parametrize("program", HEALTHY, ids=name_of)
def test_of_what_does_not_grow_nothing_is_said(
    tmp_path: Path, program: Callable[[Training], None]
) -> None:
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        (said,) = verdicts(trace)
    assert said.outcome is Outcome.NOTHING_UNUSUAL, said


@pytest.mark.slow
@pytest.mark.parametrize("program", [list_of_losses, running_sum, forward_hook_each_step])
def test_the_native_engine_is_observed_alike(
    tmp_path: Path, program: Callable[[Training], None]
) -> None:
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program, engine="native")) as trace:
        assert verdicts(trace)[0].outcome is Outcome.FOUND


def test_counts_are_those_of_the_program(tmp_path: Path) -> None:
    alive = []

    def program(training: Training) -> None:
        kept = []
        for number, loss in enumerate(training.steps(9)):
            if number % 2:
                kept.append(loss)
            del loss
            alive.append(len(training.alive))

    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        looks = trace.live_graphs()
    assert [look.passes for look in looks] == list(range(1, 9))
    assert [look.alive for look in looks] == alive[:8]


@pytest.mark.slow
def test_a_damaged_count_is_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path / "t.agviz", list_of_losses)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE graph_holder SET name = 'x'")
    with agviz.Trace.open(path) as trace, pytest.raises(TraceError):
        trace.live_graphs()


def source_of(line: int) -> str:
    return Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]
