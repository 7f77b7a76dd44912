"""torch.autograd.grad frees the graph that the backward after it needs.

error: second time
node: SigmoidBackward0
"""

import torch
from torch import nn


def program() -> None:
    """The norm of the gradient is only logged, and then the loss goes backward."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1), nn.Sigmoid())
    loss = model(torch.randn(3, 4)).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()))  # cause
    assert sum(float(gradient.norm()) for gradient in gradients) > 0
    loss.backward()


if __name__ == "__main__":
    program()
