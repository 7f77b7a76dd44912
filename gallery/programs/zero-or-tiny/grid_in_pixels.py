import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Stabiliser(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 4, 3, stride=2)
        self.shift = nn.Linear(4, 2)

    def forward(self, image):
        shift = self.shift(self.features(image).mean((2, 3)))
        n, _, h, w = image.shape
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([columns, rows], -1).float() + 2.0  # CAUSE
        grid = grid + shift.view(n, 1, 1, 2)
        return F.grid_sample(image, grid, align_corners=False)  # CAUSE


model = Stabiliser()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
reference = torch.rand(4, 1, 16, 16)
for _ in range(3):
    moved = reference.roll(1, dims=-1)
    loss = F.mse_loss(model(moved), reference)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("shift grad norm", model.shift.weight.grad.norm().item())
