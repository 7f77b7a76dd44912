"""Gradients of zeros where outputs are equal to targets, and where all is only very small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from agviz.analysis.causes import Cause
from tests.answers_support import asked

if TYPE_CHECKING:
    from pathlib import Path


def _trained() -> nn.Linear:
    net = nn.Linear(3, 3)
    with torch.no_grad():
        net.weight.copy_(100 * torch.eye(3))
        net.bias.zero_()
    return net


def test_a_classifier_that_is_sure_and_right_has_learnt(tmp_path: Path) -> None:
    def program() -> None:
        net, x = _trained(), torch.eye(3)
        p = torch.softmax(net(x), -1)
        ((p - torch.eye(3)) ** 2).mean().backward()
        assert net.weight.grad is not None
        assert not net.weight.grad.any()

    assert {row.cause for row in asked(tmp_path / "t.agviz", program).values()} == {Cause.LEARNT}


def test_what_is_compared_too_small_for_its_dtype_is_no_sign_of_that(tmp_path: Path) -> None:
    def program() -> None:
        net, x = nn.Linear(3, 3), torch.randn(5, 3)
        loss = nn.functional.mse_loss(net(x) * 1e-23, torch.randn(5, 3) * 1e-23)
        (loss * 1e-20).backward()
        assert net.weight.grad is not None
        assert not net.weight.grad.any()

    assert {row.cause for row in asked(tmp_path / "t.agviz", program).values()} == {Cause.UNDERFLOW}
