"""A state dict that is loaded after some steps, and is no copy, is told; what is meant is not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from agviz.analysis.verdict import Verdict

    Kept = dict[str, Tensor]


def live(model: nn.Module) -> Kept:
    return model.state_dict()  # cause


def copied(model: nn.Module) -> Kept:
    return copy.deepcopy(model.state_dict())


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def train(
    model: nn.Module, keep: Callable[[nn.Module], Kept], restore: Callable[[nn.Module, Kept], None]
) -> None:
    """Goes back to what was kept two steps before, as where the loss has become worse."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: Kept = {}
    for step in range(12):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 1:
            kept = keep(model)
        elif step % 5 == 3:
            restore(model, kept)


def back(model: nn.Module, kept: Kept) -> None:
    model.load_state_dict(kept)


def round_trip(model: nn.Module, _: Kept) -> None:
    model.load_state_dict(model.state_dict())


def with_another_head(model: nn.Module, kept: Kept) -> None:
    model.load_state_dict({**kept, "3.bias": torch.zeros(1)})


def into_another(_: nn.Module, kept: Kept) -> None:
    network().load_state_dict(kept)


def test_weights_that_were_never_copied_are_told(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, live, back)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source == "return model.state_dict()  # cause"
    assert "2 steps later it held what they had become" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize(
    ("keep", "restore"),
    [(copied, back), (live, round_trip), (live, with_another_head), (live, into_another)],
)
def test_what_restores_something_or_is_not_to_is_left_alone(
    keep: Callable[[nn.Module], Kept],
    restore: Callable[[nn.Module, Kept], None],
    tmp_path: Path,
) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, keep, restore)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found


def detached(model: nn.Module) -> Kept:
    return {name: p.detach() for name, p in model.named_parameters()}  # cause


def cloned(model: nn.Module) -> Kept:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def copied_back(model: nn.Module, kept: Kept) -> None:
    for name, p in model.named_parameters():
        p.data.copy_(kept[name])


def averaged(model: nn.Module, kept: Kept) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            kept[name].lerp_(p, 0.1)


def averaged_by_parts(model: nn.Module, kept: Kept) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            kept[name].mul_(0.9).add_(p, alpha=0.1)


def averaged_with_the_state(model: nn.Module, kept: Kept) -> None:
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point:
                kept[name].mul_(0.9).add_(value, alpha=0.1)


def decayed(model: nn.Module, kept: Kept) -> None:
    assert kept
    for p in model.parameters():
        p.data.add_(p.data, alpha=-1e-3)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("use", [copied_back, averaged, averaged_by_parts])
def test_a_shadow_that_shares_memory_is_told(
    use: Callable[[nn.Module, Kept], None], tmp_path: Path
) -> None:
    for keep, is_wrong in ((detached, True), (cloned, False)):
        model = network()
        with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
            train(model, keep, use)
        with Trace.open(tmp_path / "t.agviz") as trace:
            found = verdicts(trace)[0]
        assert found.is_found is is_wrong, found
        assert found.source.endswith("# cause") is is_wrong


def test_a_shadow_taken_before_parameters_have_names_is_told(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        kept = live(model)
        train(model, copied, lambda model, _: averaged_with_the_state(model, kept))
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.source.endswith("# cause")
    assert "a copy of parameters was taken here" in found.paragraph
    assert "multiplied it, and so what is trained, by 0.99: nothing is averaged" in found.paragraph


@pytest.mark.slow
def test_what_a_parameter_takes_of_itself_is_left_alone(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, detached, decayed)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found


def by_lerp(into: Tensor, other: Tensor) -> None:
    into.lerp_(other, 0.1)  # cause


def by_shares(into: Tensor, other: Tensor) -> None:
    into.mul_(0.9).add_(other, alpha=0.1)  # cause


def by_copying(into: Tensor, other: Tensor) -> None:
    into.data.copy_(0.9 * into.data + 0.1 * other.data)  # cause


def taught(
    path: Path,
    mix: Callable[[Tensor, Tensor], None],
    *,
    is_swapped: bool,
    has_teacher: bool = True,
    is_trained: bool = False,
) -> Verdict:
    """A student that is to agree with a teacher, of which one is the average of the other."""
    torch.manual_seed(0)
    student = network()
    teacher = copy.deepcopy(student).requires_grad_(is_trained)
    anchor = [p.detach().clone() for p in teacher.parameters()]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (student, teacher)]
    with agviz.trace(path=path, check_forward=True):
        for _ in range(8):
            x = torch.randn(8, 4)
            optimizers[0].zero_grad()
            wanted = teacher(x).detach() if has_teacher else torch.ones(8, 1)
            (student(x) - wanted - x[:, :1]).square().mean().backward()
            optimizers[0].step()
            if is_trained:
                optimizers[1].zero_grad()
                (teacher(x) - 1).square().mean().backward()
                optimizers[1].step()
            others = list(teacher.parameters()) if has_teacher else anchor
            with torch.no_grad():
                for own, other in zip(student.parameters(), others, strict=True):
                    mix(*((own, other) if is_swapped else (other, own)))
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("mix", [by_lerp, by_shares, by_copying])
def test_a_student_that_follows_a_teacher_that_stands_still_is_told(
    tmp_path: Path, mix: Callable[[Tensor, Tensor], None]
) -> None:
    found = taught(tmp_path / "t.agviz", mix, is_swapped=True)
    assert "averaged with others that never change" in found.heading
    assert found.source.endswith("# cause")
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("mix", [by_lerp, by_shares, by_copying])
def test_a_teacher_that_follows_is_not(
    tmp_path: Path, mix: Callable[[Tensor, Tensor], None]
) -> None:
    assert not taught(tmp_path / "t.agviz", mix, is_swapped=False).is_found


@pytest.mark.slow
def test_nor_are_an_anchor_that_is_no_module_and_a_module_that_is_trained(tmp_path: Path) -> None:
    anchored = taught(tmp_path / "a.agviz", by_lerp, is_swapped=True, has_teacher=False)
    mutual = taught(tmp_path / "b.agviz", by_lerp, is_swapped=True, is_trained=True)
    assert not anchored.is_found
    assert not mutual.is_found
