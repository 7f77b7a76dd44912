import torch
from torch import nn

torch.manual_seed(0)


class Router(nn.Module):
    def __init__(self, width, experts, k):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.k = k

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        top = p.topk(self.k, -1).values.sum(-1, keepdim=True)
        p /= top  # CAUSE
        return p


router = Router(6, 4, 2)
p = router(torch.randn(10, 6))
loss = (p.mean(0) * p.mean(0)).sum() * 4
loss.backward()
