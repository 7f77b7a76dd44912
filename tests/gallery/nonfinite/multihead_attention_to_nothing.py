"""nn.MultiheadAttention with a key_padding_mask that masks a whole sequence.

pattern: softmax of a row of -inf
node: AddmmBackward0
op: torch.nn.functional.multi_head_attention_forward
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Self-attention that also gives its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        out, _ = self.attention(x, x, x, key_padding_mask=is_padding)  # cause
        return torch.as_tensor(out)


def program() -> None:
    """A training step with an empty sequence."""
    model = Encoder()
    is_padding = torch.tensor([[False, False, True], [True, True, True]])
    model(torch.randn(2, 3, 8), is_padding)[0].mean().backward()


if __name__ == "__main__":
    program()
