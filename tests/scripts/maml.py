"""Meta-learning of sine waves (MAML): the inner steps are differentiated by the outer one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

INNER_STEPS = 3


def task() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs and targets to learn from, and to be judged by, of a new sine wave."""
    amplitude, phase = torch.rand(2) * 4 + 0.5
    known, asked = torch.rand(2, 10, 1) * 10 - 5
    return known, amplitude * (known + phase).sin(), asked, amplitude * (asked + phase).sin()


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(3):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(2):
            known, values, asked, answers = task()
            fast: dict[str, Tensor] = dict(model.named_parameters())
            for _ in range(INNER_STEPS):
                loss = nn.functional.mse_loss(functional_call(model, fast, (known,)), values)
                slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {
                    name: weight - 0.01 * slope
                    for (name, weight), slope in zip(fast.items(), slopes, strict=True)
                }
            total = total + nn.functional.mse_loss(functional_call(model, fast, (asked,)), answers)
        total.backward()
        optimizer.step()
        print(f"step {step}: {total.item():.4f}")


if __name__ == "__main__":
    main()
