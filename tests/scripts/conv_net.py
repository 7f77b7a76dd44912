"""A residual conv net tells stripes from checks: bfloat16 autocast, checkpointed blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, before: int, after: int, *, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, 2, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.Dropout2d(0.1),
        )
        self.shortcut = nn.Conv2d(before, after, 1, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Halve the size of ``x``."""
        inner: Tensor = checkpoint(self.body, x, use_reentrant=self.use_reentrant)
        return inner.add(self.shortcut(x)).relu_()


def images(count: int) -> tuple[Tensor, Tensor]:
    """Noisy stripes (0) and checks (1)."""
    labels = torch.randint(2, (count,))
    rows, columns = torch.arange(16).view(16, 1) // 2, torch.arange(16).view(1, 16) // 2
    stripes, checks = (rows + 0 * columns) % 2, (rows + columns) % 2
    clean = torch.where(labels.view(-1, 1, 1).bool(), checks, stripes).float()
    return (clean + 0.3 * torch.randn(count, 16, 16)).unsqueeze(1), labels


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        Residual(8, 8, use_reentrant=False),
        Residual(8, 16, use_reentrant=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for step in range(4):
        batch, labels = images(8)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch.to(memory_format=torch.channels_last))
        loss = nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
