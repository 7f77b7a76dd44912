import torch
from torch import nn

torch.manual_seed(0)
CONFIG = {"deep_supervision": False}


class UNetLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 1, 2, stride=2)
        self.aux = nn.Conv2d(4, 1, 1)  # CAUSE

    def forward(self, x):
        h = self.down(x).relu()
        out = [self.up(h)]
        if CONFIG["deep_supervision"]:  # CAUSE
            out.append(self.aux(h))
        return out


net = UNetLike()
optimizer = torch.optim.Adam(net.parameters())
image = torch.rand(2, 1, 8, 8)
loss = sum(
    nn.functional.l1_loss(out, image[:, :, : out.shape[2], : out.shape[3]]) for out in net(image)
)
loss.backward()
optimizer.step()
print("aux", net.aux.weight.grad)
