"""Decompositions that have no derivative: torch's own gradients say where, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, linalg

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

EYE = torch.eye(3)
TWO_ALIKE = torch.diag(torch.tensor([1.0, 1.0, 2.0]))
DISTINCT = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
ONE_OF_TWO = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
SAME_COLUMNS = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])


def eigh(matrix: Tensor) -> Tensor:
    vectors: Tensor = linalg.eigh(matrix)[1]
    return vectors


def eig(matrix: Tensor) -> Tensor:
    lengths: Tensor = linalg.eig(matrix)[1].abs()
    return lengths


def svd(matrix: Tensor) -> Tensor:
    vectors: Tensor = linalg.svd(matrix, full_matrices=False)[0]
    return vectors


def qr(matrix: Tensor) -> Tensor:
    basis: Tensor = linalg.qr(matrix)[0]
    return basis


def judged(
    path: Path, function: Callable[[Tensor], Tensor], matrix: Tensor, scale: float = 1.0
) -> tuple[Verdict, bool]:
    """What is said of its backward, and whether torch's gradient is finite."""
    torch.manual_seed(0)
    leaf = matrix.clone().requires_grad_()
    with agviz.trace(path=path):
        out = function(leaf)
        (out * (scale * torch.randn(out.shape))).sum().backward()
    assert leaf.grad is not None
    with Trace.open(path) as trace:
        return verdicts(trace, None)[0], bool(leaf.grad.isfinite().all())


@pytest.mark.parametrize(
    ("function", "matrix", "said"),
    [
        (eigh, EYE, "equal eigenvalues|all 3 eigenvalues are 1"),
        (eigh, TWO_ALIKE, "equal eigenvalues|two eigenvalues are equal, or too close"),
        (eigh, torch.stack([DISTINCT, EYE]), "equal eigenvalues|two eigenvalues are equal, or too"),
        (eig, EYE, "equal eigenvalues|"),
        (svd, EYE, "equal or zero singular values|two are equal, or too close"),
        (svd, ONE_OF_TWO, "equal or zero singular values|1 of 2 values are 0"),
        (qr, SAME_COLUMNS, "QR of dependent columns|a column depends on those to its left"),
        (qr, ONE_OF_TWO, "QR of dependent columns|a column depends on those to its left"),
    ],
)
def test_what_has_no_derivative_is_named(
    tmp_path: Path, function: Callable[[Tensor], Tensor], matrix: Tensor, said: str
) -> None:
    verdict, is_finite = judged(tmp_path / "t.agviz", function, matrix)
    heading, _, reason = said.partition("|")
    assert not is_finite
    assert verdict.heading.startswith(f"{heading}, in Linalg")
    assert reason in verdict.paragraph


@pytest.mark.parametrize(
    ("function", "matrix"),
    [
        (eigh, DISTINCT),
        (eig, DISTINCT),
        (svd, DISTINCT),
        (qr, DISTINCT),
        # What is advised.
        (linalg.eigvalsh, EYE),
        (lambda matrix: eigh(matrix + torch.diag(1e-3 * torch.arange(3.0))), EYE),
        (linalg.svdvals, EYE),
        (lambda matrix: svd(matrix + 1e-3 * torch.randn(matrix.shape)), EYE),
        (lambda matrix: svd(matrix + 1e-3 * torch.randn(matrix.shape)), ONE_OF_TWO),
        (lambda matrix: qr(matrix + 1e-3 * torch.randn(matrix.shape)), SAME_COLUMNS),
        (lambda matrix: qr(matrix[:, :1]), SAME_COLUMNS),
    ],
)
def test_what_has_one_is_not(
    tmp_path: Path, function: Callable[[Tensor], Tensor], matrix: Tensor
) -> None:
    verdict, is_finite = judged(tmp_path / "t.agviz", function, matrix)
    assert is_finite
    assert not verdict.is_found


def test_a_gradient_that_overflows_is_no_reason(tmp_path: Path) -> None:
    verdict, is_finite = judged(tmp_path / "t.agviz", eigh, DISTINCT * 1e-3, scale=1e38)
    assert not is_finite
    assert "eigenvalues" not in verdict.heading
