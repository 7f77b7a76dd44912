import torch
from torch import nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        weights = self.score(x).softmax(dim=-1)  # CAUSE
        return self.out((weights * x).sum(1))


model = Pool(6)
loss = nn.functional.cross_entropy(model(torch.randn(4, 10, 6)), torch.tensor([0, 1, 1, 0]))
loss.backward()
print("attention grad", model.score.weight.grad.abs().max().item())
