"""Hooks for all optimizers and modules come and go while the program goes through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

import agviz
from agviz.record.global_hooks import MODULE_PLACED, STEP_BEGINS, STEP_ENDS, GlobalHooks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def _stepping() -> torch.optim.Optimizer:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.1)


def test_a_recording_may_begin_and_end_within_a_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = dict(optimizers._global_optimizer_pre_hooks)
    optimizer = _stepping()
    recordings = [agviz.trace(path=tmp_path / f"{name}.agviz") for name in "abc"]
    acts: list[Callable[[], Any]] = [
        lambda: recordings[0].__exit__(None, None, None),
        recordings[1].__enter__,
        lambda: recordings[1].__exit__(None, None, None),
    ]
    recordings[0].__enter__()

    def act(*_: object) -> None:
        acts.pop(0)()

    handles = [
        optimizers.register_optimizer_step_pre_hook(act),
        optimizers.register_optimizer_step_post_hook(lambda *_: None),
    ]
    for _ in range(3):
        optimizer.step()
    for handle in handles:
        handle.remove()
    with recordings[2]:
        optimizer.step()
    assert not caplog.messages
    with agviz.Trace.open(tmp_path / "c.agviz") as trace:
        assert [step.number for step in trace.optimizer_steps()] == [0]
    assert dict(optimizers._global_optimizer_pre_hooks) == before


def test_a_recording_that_a_hook_of_the_program_begins_does_not_fail_its_step(
    tmp_path: Path,
) -> None:
    recording = agviz.trace(path=tmp_path / "t.agviz")
    optimizer, begins = _stepping(), iter([True])

    def begin(*_: object) -> None:
        if next(begins, False):
            recording.__enter__()

    handle = optimizers.register_optimizer_step_pre_hook(begin)
    optimizer.step()
    optimizer.step()
    recording.__exit__(None, None, None)
    handle.remove()
    assert not optimizers._global_optimizer_pre_hooks


def test_a_hook_of_modules_is_taken_out_while_one_is_placed() -> None:
    hooks = GlobalHooks()
    called: list[str] = []

    def ours(*_: object) -> None:
        called.append("ours")
        hooks.clear()

    hooks.put(MODULE_PLACED, ours)
    handle = modules.register_module_module_registration_hook(lambda *_: called.append("theirs"))
    try:
        nn.Sequential(nn.ReLU(), nn.ReLU())
    finally:
        handle.remove()
    assert called == ["ours", "theirs", "theirs"]
    assert not hooks
    again = GlobalHooks()
    again.put(MODULE_PLACED, lambda *_: called.append("again"))
    nn.Sequential(nn.ReLU())
    again.clear()
    nn.Sequential(nn.ReLU())
    assert called[3:] == ["again"]
    assert not modules._global_module_registration_hooks


def test_hooks_of_steps_are_taken_out_where_nobody_steps() -> None:
    hooks = GlobalHooks()
    called: list[str] = []
    hooks.put(STEP_BEGINS, lambda *_: called.append("begins"))
    hooks.put(STEP_ENDS, lambda *_: called.append("ends"))
    _stepping().step()
    hooks.clear()
    _stepping().step()
    assert called == ["begins", "ends"]
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks
