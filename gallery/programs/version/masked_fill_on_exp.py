import torch
from torch import nn

torch.manual_seed(0)


class PoissonHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Linear(5, 3)

    def forward(self, x, observed):
        rate = torch.exp(self.rate(x))
        return rate.masked_fill_(~observed, 0.0)  # CAUSE


head = PoissonHead()
x, counts = torch.randn(12, 5), torch.poisson(torch.ones(12, 3))
observed = torch.rand(12, 3) > 0.3
rate = head(x, observed)
loss = (rate - counts * torch.log(rate + 1e-6)).mean()
loss.backward()
