"""A loss that GradScaler scales by 128, in float16, unscaled and clipped before the step."""

import torch
from torch import nn


def program() -> None:
    """Two training steps."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(torch.randn(6, 4))
        loss = nn.functional.mse_loss(out.float(), torch.zeros(6, 1))
        torch.as_tensor(scaler.scale(loss)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    program()
