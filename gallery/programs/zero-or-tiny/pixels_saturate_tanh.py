import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 32),
    nn.Tanh(),  # CAUSE
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images = torch.randint(0, 256, (16, 1, 8, 8)).float()  # CAUSE
labels = torch.randint(10, (16,))
for _ in range(2):
    optimizer.zero_grad()
    hidden = model[2](model[1](model[0](images)))  # CAUSE
    loss = nn.functional.cross_entropy(model[3](hidden), labels)
    loss.backward()
    optimizer.step()
print("share saturated", (hidden.abs() > 0.999).float().mean().item())
print("grad", model[1].weight.grad.norm().item())
