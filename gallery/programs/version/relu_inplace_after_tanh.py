import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.Tanh(),
    nn.ReLU(inplace=True),  # CAUSE
    nn.Flatten(),
    nn.Linear(144, 3),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images, labels = torch.randn(5, 1, 8, 8), torch.randint(3, (5,))
loss = nn.functional.cross_entropy(model(images), labels)  # CAUSE
loss.backward()
optimizer.step()
