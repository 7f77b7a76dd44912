"""Similarities of rows whose columns were normalised, and products that are meant so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize

from tests.test_check_program import checked, fine, found, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[Tensor, Tensor], Tensor]


def trained(loss: Loss) -> Callable[[], None]:
    def program() -> None:
        encoder = nn.Linear(6, 4)
        loss(encoder(torch.randn(9, 6)), encoder(torch.randn(9, 6))).backward()

    return program


def matched(scores: Tensor) -> Tensor:
    return functional.cross_entropy(scores / 0.1, torch.arange(len(scores)))


def of_joined_views(one: Tensor, other: Tensor) -> Tensor:
    z = normalize(torch.cat([one, other]), dim=0)  # the call
    scores = (z @ z.T).masked_fill(torch.eye(18, dtype=torch.bool), -1e9)
    return functional.cross_entropy(scores, torch.arange(18).roll(9))


def of_one_side(one: Tensor, other: Tensor) -> Tensor:
    other = other / other.norm(dim=0, keepdim=True)  # the call
    return matched(torch.mm(one / one.norm(dim=-1, keepdim=True), other.t()))


def by_hand(one: Tensor, other: Tensor) -> Tensor:
    one = normalize(one, 2.0, 0)  # the call
    other = normalize(other, dim=-1)
    terms = torch.exp(torch.einsum("nd,md->nm", one, other) / 0.5)
    return -torch.log(terms.diagonal() / terms.sum(1)).mean()


@pytest.mark.parametrize("loss", [by_hand, of_joined_views, of_one_side])
def test_rows_whose_columns_were_normalised(loss: Loss) -> None:
    found(checked(trained(loss)), line_of(loss, "# the call"), "4 columns", "dim=-1")


def of_rows(one: Tensor, other: Tensor) -> Tensor:
    one = normalize(normalize(one, dim=0), dim=1)
    return matched(one @ normalize(other).T) + matched(normalize(one.T, dim=0).T @ one.T)


def of_features(one: Tensor, other: Tensor) -> Tensor:
    return matched(normalize(one, dim=0).T @ normalize(other, dim=0))


def of_a_weight(one: Tensor, other: Tensor) -> Tensor:
    classes = nn.Parameter(torch.randn(4, 9))
    scaled = functional.linear(normalize(other, dim=0), nn.Parameter(torch.randn(9, 4)))
    return matched(normalize(one) @ normalize(classes, dim=0)) + matched(scaled)


def of_a_graph(one: Tensor, other: Tensor) -> Tensor:
    edges = normalize(one @ other.T, dim=0)
    return matched(edges @ edges.T)


def of_kernels(one: Tensor, other: Tensor) -> Tensor:
    one, other = normalize(one, dim=0), normalize(other, dim=0)
    return -(one @ one.T * (other @ other.T)).sum()


@pytest.mark.parametrize("loss", [of_a_graph, of_a_weight, of_features, of_kernels, of_rows])
def test_products_that_sum_what_was_normalised(loss: Loss) -> None:
    fine(checked(trained(loss)))
