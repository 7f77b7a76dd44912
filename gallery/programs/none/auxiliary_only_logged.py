import torch
from torch import nn

torch.manual_seed(0)


class GoogLeNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.block = nn.Conv2d(8, 16, 3, 2)
        self.aux_head = nn.Linear(8, 4)
        self.head = nn.Linear(16, 4)

    def forward(self, image):
        h = self.stem(image).relu()
        aux = self.aux_head(h.mean((2, 3)))
        return self.head(self.block(h).relu().mean((2, 3))), aux


model = GoogLeNetish()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    image, label = torch.rand(8, 3, 24, 24), torch.randint(4, (8,))
    logits, aux = model(image)
    loss = nn.functional.cross_entropy(logits, label)
    aux_loss = nn.functional.cross_entropy(aux, label)  # CAUSE
    total = loss + 0.3 * aux_loss  # CAUSE
    optimizer.zero_grad()
    loss.backward()  # CAUSE
    optimizer.step()
    report = f"{loss.item():.2f} {aux_loss.item():.2f} {total.item():.2f}"
print("aux head", model.aux_head.weight.grad)
