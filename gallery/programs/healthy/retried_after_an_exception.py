import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
skipped = 0
for step, x in enumerate(torch.randn(4, 8, 4)):
    labels = torch.randint(2, (8,))
    if step == 2:
        labels[0] = 9
    optimizer.zero_grad()
    try:
        loss = nn.functional.cross_entropy(model(x), labels)
    except IndexError:
        skipped += 1
        continue
    loss.backward()
    optimizer.step()
print("skipped", skipped, "of 4")
