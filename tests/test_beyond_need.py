"""What is done far more often than needed, or works on more with each pass; and what looks like it.

How often the program itself ran what it says is counted by the program.
"""

from __future__ import annotations

import collections
import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.record import live_graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.live_graphs import Holder


class Step:
    """A model, its optimizer, and how often its first layer ran."""

    def __init__(self) -> None:
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 2)
        self.optimizer = torch.optim.SGD(
            [*self.first.parameters(), *self.last.parameters()], lr=0.01
        )
        self.ran = 0

    def hidden(self, x: Tensor) -> Tensor:
        self.ran += 1
        hidden: Tensor = self.first(x).tanh()  # cause: recomputes
        return hidden

    def backward(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def checkpoints_in_three_levels(step: Step) -> None:
    def inner(x: Tensor) -> Tensor:
        out: Tensor = checkpoint(step.hidden, x, use_reentrant=True)  # cause: nested
        return out

    def middle(x: Tensor) -> Tensor:
        out: Tensor = checkpoint(inner, x, use_reentrant=True)
        return out

    for _ in range(2):
        step.ran = 0
        x = torch.randn(4, 6, requires_grad=True)
        step.backward(checkpoint(middle, x, use_reentrant=True).sum())
        assert step.ran == 4


def bank_that_is_never_cut(step: Step) -> None:
    bank = torch.empty(0, 16)
    for _ in range(8):
        hidden = step.hidden(torch.randn(4, 6))
        bank = torch.cat([bank, hidden.detach()])  # cause: longer
        step.backward((hidden @ bank.T).square().mean())
    assert len(bank) == 32


def padded_to_the_longest_ever(step: Step) -> None:
    longest = 0
    for length in (2, 3, 2, 5, 4, 7, 2, 9, 3):
        longest = max(longest, length)
        x = torch.zeros(longest, 6)  # cause: ever
        x[:length] = torch.randn(length, 6)
        step.backward(step.hidden(x).square().mean())
    assert step.ran == 9


def stack_of_all_that_was_seen(step: Step) -> None:
    seen = []
    for _ in range(8):
        hidden = step.hidden(torch.randn(4, 6))
        seen.append(hidden.detach())
        centre = torch.stack(seen).mean(0)  # cause: list
        step.backward((hidden - centre).square().mean())


def backward_for_each_loss(step: Step) -> None:
    for _ in range(3):
        hidden = step.hidden(torch.randn(4, 6)).tanh().tanh().tanh().tanh().tanh()
        step.optimizer.zero_grad()
        for _ in range(5):
            step.last(hidden).square().mean().backward(retain_graph=True)  # cause: again
        step.optimizer.step()


def backward_for_each_sample(step: Step) -> None:
    for _ in range(2):
        batch = torch.randn(12, 6)
        step.optimizer.zero_grad()
        for sample in batch:
            (step.last(step.hidden(sample)).square().mean() / 12).backward()  # cause: sample
        step.optimizer.step()


def encoded_again_and_again(step: Step) -> None:
    x, queries = torch.randn(32, 6), torch.randn(8, 16)
    for _ in range(3):
        step.ran = 0
        scores = [step.hidden(x) @ query for query in queries]  # cause: 8
        step.backward(torch.stack(scores).square().mean())
        assert step.ran == len(queries)


def gradients_kept_by_a_hook(step: Step) -> None:
    kept: list[Tensor] = []

    def keep(gradient: Tensor) -> None:
        kept.append(gradient.clone())  # cause: kept

    step.first.weight.register_hook(keep)
    for _ in range(6):
        step.backward(step.last(step.hidden(torch.randn(4, 6))).sum())
    assert len(kept) == 6


def average_with_graph(step: Step) -> None:
    average = step.first.weight.detach().clone()
    for _ in range(10):
        step.backward(step.last(step.hidden(torch.randn(4, 6))).sum())
        average = 0.9 * average + 0.1 * step.first.weight  # cause: average


def outputs_of_the_validation(step: Step) -> None:
    outputs: list[tuple[Tensor, int]] = []
    for number in range(10):
        step.backward(step.last(step.hidden(torch.randn(4, 6))).sum())
        outputs.append((step.last(step.hidden(torch.randn(4, 6))), number))  # cause: outputs


def outputs_for_long(step: Step) -> None:
    logits: list[Tensor] = []
    for _ in range(40):
        step.backward(step.last(step.hidden(torch.randn(4, 6))).sum())
        logits.append(step.last(step.hidden(torch.randn(4, 6))))  # cause: logits


def losses_of_now_and_then_in_a_history(step: Step) -> None:
    history: dict[str, list[float | Tensor]] = {"train": [], "val": []}
    for number in range(70):
        loss = step.last(step.hidden(torch.randn(4, 6))).square().mean()
        step.backward(loss)
        if number % 5 == 4:
            history["train"].append(loss.item())
            validation = step.last(step.hidden(torch.randn(4, 6))).square().mean()
            history["val"].append(validation)  # cause: history


class _Smoothed:
    value: Tensor | None = None

    def take(self, loss: Tensor) -> None:
        if self.value is None:
            self.value = loss
        else:
            self.value = 0.8 * self.value + 0.2 * loss  # cause: _Smoothed.value


def average_of_each_third_loss(step: Step) -> None:
    average = _Smoothed()
    for number in range(40):
        step.backward(step.last(step.hidden(torch.randn(4, 6))).square().mean())
        if number % 3 == 2:
            average.take(step.last(step.hidden(torch.randn(4, 6))).square().mean())


def surprises_beside_what_was_seen(step: Step) -> None:
    seen: list[tuple[Tensor, ...]] = []
    surprise: list[Tensor] = []
    for _ in range(9):
        batch = tuple(torch.randn(4, 6) for _ in range(5))
        seen.append(batch)
        surprise.append(step.last(step.hidden(batch[0])).square().mean())  # cause: surprise
        old = seen[int(torch.randint(len(seen), ()))]
        step.backward(step.last(step.hidden(old[0])).sum())


def masks_by_their_size(step: Step) -> None:
    masks: dict[Tensor, Tensor] = {}
    for number in range(10):
        size = torch.tensor([2 + number % 3, 6])
        if size not in masks:
            masks[size] = torch.ones(*size.tolist()).tril()  # cause: masks
        step.backward(step.last(step.hidden(masks[size])).sum())


GROWING = (
    losses_of_now_and_then_in_a_history,
    average_of_each_third_loss,
    checkpoints_in_three_levels,
    bank_that_is_never_cut,
    padded_to_the_longest_ever,
    stack_of_all_that_was_seen,
    backward_for_each_loss,
    backward_for_each_sample,
    encoded_again_and_again,
    gradients_kept_by_a_hook,
    average_with_graph,
    outputs_of_the_validation,
    surprises_beside_what_was_seen,
    masks_by_their_size,
)


def checkpoints_in_two_levels(step: Step) -> None:
    def inner(x: Tensor) -> Tensor:
        out: Tensor = checkpoint(step.hidden, x, use_reentrant=False)
        return out

    for _ in range(2):
        step.backward(checkpoint(inner, torch.randn(4, 6), use_reentrant=False).sum())


def memory_that_is_cut_later(step: Step) -> None:
    memory = torch.empty(0, 16)
    for _ in range(8):
        hidden = step.hidden(torch.randn(4, 6))
        context = torch.cat([memory, hidden])
        memory = context[-100:].detach()
        step.backward((hidden @ context.T).square().mean())


def recent_ones_stacked(step: Step) -> None:
    recent: collections.deque[Tensor] = collections.deque(maxlen=100)
    for _ in range(8):
        hidden = step.hidden(torch.randn(4, 6))
        recent.append(hidden.detach())
        step.backward((hidden - torch.stack(list(recent)).mean(0)).square().mean())


def gradients_of_each_sample(step: Step) -> None:
    for _ in range(2):
        norms = []
        for sample in torch.randn(12, 6):
            step.optimizer.zero_grad()
            step.last(step.hidden(sample)).square().mean().backward()
            assert step.first.weight.grad is not None
            norms.append(step.first.weight.grad.norm())
        step.optimizer.step()


def micro_batches(step: Step) -> None:
    for _ in range(2):
        step.optimizer.zero_grad()
        for part in torch.randn(48, 6).chunk(12):
            (step.last(step.hidden(part)).square().mean() / 12).backward()
        step.optimizer.step()


def padded_to_the_longest_of_the_batch(step: Step) -> None:
    for lengths in ((2, 1), (3, 2), (4, 4), (5, 1), (6, 5), (7, 2), (8, 3), (9, 9)):
        longest = max(map(len, map(range, lengths)))
        x = torch.zeros(2, longest, 6)
        for row, length in zip(x, lengths, strict=True):
            row[:length] = torch.randn(length, 6)
        step.backward(step.hidden(x).square().mean())


def two_losses(step: Step) -> None:
    for _ in range(3):
        hidden = step.hidden(torch.randn(4, 6))
        step.optimizer.zero_grad()
        step.last(hidden).square().mean().backward(retain_graph=True)
        hidden.square().mean().backward()
        step.optimizer.step()


def dropout_again_and_again(step: Step) -> None:
    x = torch.randn(32, 6)
    for _ in range(3):
        outs = [step.last(nn.functional.dropout(step.hidden(x + i))) for i in range(8)]
        step.backward(torch.stack(outs).var(0).mean())


def replay_of_detached(step: Step) -> None:
    replay: list[Tensor] = []
    for _ in range(9):
        hidden = step.hidden(torch.randn(4, 6))
        replay.append(hidden.detach())
        old = replay[int(torch.randint(len(replay), ()))]
        step.backward((hidden - old).square().mean())


def outputs_collected_on_purpose(step: Step) -> None:
    collected: list[Tensor] = []
    for _ in range(9):
        out = step.last(step.hidden(torch.randn(4, 6)))
        collected.append(out.detach().clone())
        step.backward(out.sum())


def cache_that_fills_up(step: Step) -> None:
    cache: dict[int, Tensor] = {}
    for number in range(12):
        if number % 3 not in cache:
            cache[number % 3] = torch.randn(4, 6).tanh()
        step.backward(step.last(step.hidden(cache[number % 3])).sum())


def features_of_samples_that_come_again(step: Step) -> None:
    samples = [torch.randn(4, 6) for _ in range(12)]
    features: dict[Tensor, Tensor] = {}
    for sample in samples:
        features[sample] = sample.tanh()
        step.backward(step.last(step.hidden(features[sample])).sum())


def rewards_of_an_episode(step: Step) -> None:
    critic, values = nn.Linear(6, 1), list[Tensor]()
    for number in range(16):
        values.append(critic(torch.randn(4, 6)).mean())
        if number % 8 == 7:
            step.backward(torch.stack(values).square().sum())
            values.clear()
        step.backward(step.last(step.hidden(torch.randn(4, 6))).sum())


def sum_over_tasks(step: Step) -> None:
    shared = nn.Linear(6, 2)
    for _ in range(4):
        total = torch.zeros(())
        for _ in range(6):
            step.backward(step.last(step.hidden(torch.randn(4, 6))).square().mean())
            total = total + shared(torch.randn(4, 6)).square().mean()
        total.backward()


HEALTHY = (
    sum_over_tasks,
    checkpoints_in_two_levels,
    memory_that_is_cut_later,
    recent_ones_stacked,
    gradients_of_each_sample,
    micro_batches,
    padded_to_the_longest_of_the_batch,
    two_losses,
    dropout_again_and_again,
    replay_of_detached,
    outputs_collected_on_purpose,
    cache_that_fills_up,
    features_of_samples_that_come_again,
    rewards_of_an_episode,
)


@pytest.fixture(autouse=True)
def count_as_often_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is alive is counted, however much other tests have counted."""
    monkeypatch.setattr(live_graphs, "_SHARE", 1e9)


def source_of(line: int) -> str:
    return Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]


def recorded(path: Path, program: Callable[[Step], None]) -> Path:
    torch.manual_seed(0)
    gc.collect()
    gc.freeze()  # what other tests have left is not counted
    with agviz.trace(path=path, check_forward=True):
        program(Step())
    return path


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("program", GROWING, ids=lambda program: program.__name__)
def test_what_is_beyond_need_is_found_with_its_line(
    tmp_path: Path, program: Callable[[Step], None]
) -> None:
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        (found,) = verdicts(trace)
    assert found.outcome is Outcome.FOUND
    assert found.frame is not None
    text = source_of(found.frame.line)
    assert "# cause" in text, found
    words = f"{found.heading} {found.paragraph}"
    assert text.partition("# cause: ")[2].split()[0] in words
    assert len(words.split()) <= 120


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_of_what_is_needed_nothing_is_said(tmp_path: Path, program: Callable[[Step], None]) -> None:
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", program)) as trace:
        (said,) = verdicts(trace)
    assert said.outcome is Outcome.NOTHING_UNUSUAL, said


def test_what_was_counted_stays_known_where_there_is_no_time_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = live_graphs.LiveGraphs._count
    counts: list[int] = []

    def counted(self: live_graphs.LiveGraphs) -> tuple[Holder, ...]:
        holders = count(self)
        counts.append(len(holders))
        return holders

    monkeypatch.setattr(live_graphs.LiveGraphs, "_count", counted)
    monkeypatch.setattr(live_graphs._Budget, "is_enough", lambda _: not any(counts))
    with agviz.Trace.open(recorded(tmp_path / "t.agviz", outputs_for_long)) as trace:
        (found,) = verdicts(trace)
        looks = [look for look in trace.live_graphs() if look.is_counted]
    assert found.outcome is Outcome.FOUND
    assert counts[-1]
    assert len(looks) == len(counts) < 5
    assert found.heading.endswith(f"up to pass {looks[-1].graph_task}")
