import torch
from torch import nn

torch.manual_seed(0)


class SoftThreshold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x, threshold)
        return torch.sign(x) * (x.abs() - threshold).clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        x, threshold = ctx.saved_tensors
        return grad * (x.abs() > threshold), None  # CAUSE


class Shrink(nn.Module):
    def __init__(self):
        super().__init__()
        self.dictionary = nn.Linear(8, 20, bias=False)
        self.threshold = nn.Parameter(torch.full((20,), 0.1))

    def forward(self, x):
        return (
            SoftThreshold.apply(self.dictionary(x), self.threshold) @ self.dictionary.weight
        )  # CAUSE


model = Shrink()
x = torch.randn(16, 8)
nn.functional.mse_loss(model(x), x).backward()
print("threshold", model.threshold.grad)
