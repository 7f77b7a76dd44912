import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
model.requires_grad_(False)
image = torch.randn(1, 1, 8, 8, requires_grad=True)
score = model(image).max()
score.backward()
print("saliency", image.grad.abs().shape)
