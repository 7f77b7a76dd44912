"""Keys of padding are masked by -inf, and the loss leaves the padding out."""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Self-attention over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        out, _ = self.attention(x, x, x, key_padding_mask=is_padding)
        return torch.as_tensor(out)


def program() -> None:
    """A training step."""
    model = Encoder()
    is_padding = torch.tensor([[False, False, True], [False, True, True]])
    out = model(torch.randn(2, 3, 8), is_padding)
    out[~is_padding].pow(2).mean().backward()


if __name__ == "__main__":
    program()
