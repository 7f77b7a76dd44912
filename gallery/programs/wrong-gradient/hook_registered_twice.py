import torch
from torch import nn

torch.manual_seed(0)


class SlowEmbedding(nn.Embedding):
    """Learns at half the rate."""

    def __init__(self, n, width):
        super().__init__(n, width)
        self.weight.register_hook(lambda grad: grad * 0.5)  # CAUSE

    def reset_parameters(self):
        super().reset_parameters()
        self.weight.register_hook(lambda grad: grad * 0.5)  # CAUSE


table = SlowEmbedding(10, 4)
words = torch.randint(10, (6,))
(right,) = torch.autograd.grad(
    (nn.functional.embedding(words, w := table.weight.detach().requires_grad_())).square().sum(), w
)
table(words).square().sum().backward()
print(f"factor {(table.weight.grad.sum() / right.sum()).item():.2f}")
