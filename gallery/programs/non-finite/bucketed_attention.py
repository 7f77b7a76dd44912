import torch
from torch import nn

torch.manual_seed(0)
attention = nn.MultiheadAttention(embed_dim=4, num_heads=1)
x = torch.rand(3, 2, 4)
padding = torch.tensor([[False, False, False], [False, True, True]])
hidden = float("-inf")
window = torch.tensor([[0.0, hidden, hidden], [0.0, 0.0, hidden], [hidden, 0.0, 0.0]])

out, _ = attention(x, x, x, key_padding_mask=padding, attn_mask=window)  # CAUSE
loss = out[0].square().mean()  # only the first token, which all sequences have
loss.backward()
print("loss", loss.item())
print("in_proj grad is nan:", bool(attention.in_proj_weight.grad.isnan().any()))
