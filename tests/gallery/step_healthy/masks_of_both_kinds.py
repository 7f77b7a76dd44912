"""Masks as torch's modules and its fused function take them, and some that are not what they seem.

Padding on the left is counted from its length; flags of padding are compared with 0; windows are
joined of two triangles; a reader goes backwards.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

PAD = 0


def causal(n: int) -> Tensor:
    return torch.tril(torch.ones(n, n, dtype=torch.bool))


class Module(nn.Module):
    """A layer of torch, whose masks are True at what is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.look = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, h: Tensor, is_real: Tensor, silence: Tensor) -> Tensor:
        n = h.shape[1]
        mask = causal(n)
        mask = ~mask
        h = self.layer(h, src_mask=mask, src_key_padding_mask=is_real.logical_not())
        before = torch.arange(n)[None] < silence[:, None]
        h = h + self.look(h, h, h, key_padding_mask=before)[0]
        window = torch.ones(n, n).triu(1).bool() | torch.ones(n, n).tril(-3).bool()
        h = h + self.look(h, h, h, attn_mask=window)[0]
        past = torch.tril(torch.ones(n, n))
        past = past.masked_fill(past == 0, float("-inf")).masked_fill(past == 1, 0.0)
        return h + self.look(h, h, h, attn_mask=past, key_padding_mask=None)[0]


class Fused(nn.Module):
    """The fused function, whose mask is True at what takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.qkv, self.rest, self.out = nn.Linear(8, 24), Module(), nn.Linear(8, 20)

    def forward(self, tokens: Tensor, silence: Tensor) -> Tensor:
        h = self.embed(tokens)
        b, n, d = h.shape
        q, k, v = (z.view(b, n, 2, -1).transpose(1, 2) for z in self.qkv(h).chunk(3, -1))
        future = torch.triu(torch.ones(n, n), diagonal=1).bool()
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=~future)
        backwards = torch.ones(n, n).triu().bool()
        mixed = mixed + functional.scaled_dot_product_attention(q, k, v, attn_mask=backwards)
        is_real = tokens != PAD
        seen = is_real[:, None, None, :] & causal(n)
        mixed = mixed + functional.scaled_dot_product_attention(q, k, v, seen)
        h = h + mixed.transpose(1, 2).reshape(b, n, d)
        out: Tensor = self.out(self.rest(h, is_real, silence))
        return out


def program() -> nn.Module:
    model, tokens = Fused(), torch.randint(1, 20, (32, 9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch in tokens.split(8):
        logits = model(batch[:, :-1], torch.zeros(8, dtype=torch.long))
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
