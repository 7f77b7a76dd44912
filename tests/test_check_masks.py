"""Masks of attention that are inverted, and those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.test_check_program import checked, fine, found, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[Tensor, Tensor], None]

SUMMARY, MOST = 1, 9


def tokens(*, left: bool = False) -> Tensor:
    """Of 6 samples, each of another length, padded with 0 at its end, or at its beginning."""
    torch.manual_seed(0)
    rows = torch.randint(2, 20, (6, MOST))
    for row, length in zip(rows, (3, 5, 8, 4, 7, 6), strict=True):
        row[length:] = 0
        row[0] = SUMMARY
    return rows.flip(1) if left else rows


def of_an_encoder(ids: Tensor, mask: Tensor) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    embedded = nn.Embedding(20, 8)(ids) + torch.randn(MOST, 8)
    encoder(embedded, src_key_padding_mask=mask)[:, 0].square().sum().backward()  # attention


def of_keys_without_tokens(ids: Tensor, mask: Tensor) -> None:
    data = torch.randn(6, MOST, 8) * (ids != 0)[..., None]
    hidden = nn.Linear(8, 8)(data).relu()
    query = torch.randn(6, 1, 8, requires_grad=True)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    out, _ = attention(query, hidden, hidden, key_padding_mask=mask)  # attention
    out.square().sum().backward()


def of_its_own(ids: Tensor, mask: Tensor) -> None:
    embedded = nn.Embedding(20, 8, padding_idx=0)(ids)
    scores = nn.Linear(8, 8)(embedded) @ embedded.mT
    scores = scores.masked_fill(mask[:, None], -1e9)  # attention
    (scores.softmax(-1) @ embedded)[:, 0].square().sum().backward()


def of_torchs_function(ids: Tensor, mask: Tensor) -> None:
    heads = nn.Embedding(20, 8)(ids).unflatten(2, (2, 4)).transpose(1, 2)
    stays = ~mask[:, None, None]
    out = functional.scaled_dot_product_attention(heads, heads, heads, stays)  # attention
    out[:, :, 0].square().sum().backward()


PROGRAMS = (of_an_encoder, of_keys_without_tokens, of_its_own, of_torchs_function)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_inverted_mask(program: Program, *, left: bool) -> None:
    ids = tokens(left=left)
    report = checked(lambda: program(ids, ids != 0))
    found(report, line_of(program, "# attention"), "mask is inverted", "1 to 6 entries")


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_mask_the_right_way_round(program: Program, *, left: bool) -> None:
    ids = tokens(left=left)
    fine(checked(lambda: program(ids, ids == 0)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_a_summary_token_is_looked_at(program: Program) -> None:
    ids = tokens()
    fine(checked(lambda: program(ids, ids != SUMMARY)))
