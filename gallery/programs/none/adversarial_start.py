import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
images = torch.rand(5, 1, 6, 6, requires_grad=True)
labels = torch.randint(0, 4, (5,))
perturbed = images + 0.01 * torch.randn_like(images)  # CAUSE
loss = nn.functional.cross_entropy(model(perturbed), labels)
loss.backward()
print("gradient of the images:", perturbed.grad)
