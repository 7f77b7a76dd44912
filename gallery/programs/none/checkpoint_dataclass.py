import dataclasses

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    weights: torch.Tensor


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x):
        return Output(self.a(x).tanh(), self.b(x).softmax(-1))


encoder, head = Encoder(), nn.Linear(5, 1)
x = torch.randn(6, 5, requires_grad=True)
out = checkpoint(encoder, x, use_reentrant=True)  # CAUSE
loss = head(out.hidden * out.weights).mean()
loss.backward()
print("encoder grad", encoder.a.weight.grad)
