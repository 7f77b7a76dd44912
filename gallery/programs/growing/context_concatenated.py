import torch
from torch import nn

torch.manual_seed(0)


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.past = None

    def forward(self, x):
        context = x if self.past is None else torch.cat([self.past, x], 1)  # CAUSE
        self.past = context.detach()  # CAUSE
        return self.attention(x, context, context, need_weights=False)[0]


model = Memory(8)
optimizer = torch.optim.Adam(model.parameters())
lengths = []
for segment in torch.randn(6, 2, 12, 8):
    loss = (model(segment) - segment).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    lengths.append(model.past.shape[1])
print("lengths", lengths)
