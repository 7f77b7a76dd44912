import torch
from torch import nn
import torch.nn.functional as F


class Segmenter(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, c, 3, padding=1),
            nn.GroupNorm(2, c),
            nn.SiLU(),
            nn.Conv2d(c, c, 3, padding=1),
            nn.SiLU(),
        )
        self.out = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        return self.out(self.body(x))


def run_batch(model, images, masks, lr=1e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.99))  # CAUSE
    loss = F.cross_entropy(model(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # CAUSE
    seen = next(iter(optimizer.state.values()))["step"]
    return loss.item(), int(seen)


torch.manual_seed(0)
model = Segmenter()
for epoch in range(3):
    for i in range(4):
        images = torch.rand(4, 3, 12, 12)
        masks = (images.mean(1) > 0.5).long()
        loss, seen = run_batch(model, images, masks)
    print(f"epoch {epoch} loss {loss:.4f}, Adam has averaged over {seen} steps")
