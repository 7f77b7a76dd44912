"""A transformer's encoder with a mask for padding, trained to predict tokens."""

import torch
from torch import nn


def program() -> None:
    """A training step."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    head = nn.Linear(8, 5)
    is_padding = torch.tensor([[False, False, False, True], [False, False, True, True]])
    out = head(model(torch.randn(2, 4, 8), src_key_padding_mask=is_padding))
    targets = torch.randint(5, (2, 4)).masked_fill(is_padding, -100)
    nn.functional.cross_entropy(out.transpose(1, 2), targets).backward()


if __name__ == "__main__":
    program()
