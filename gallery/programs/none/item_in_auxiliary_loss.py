import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)
        self.gate = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.body(x).relu()), torch.sigmoid(self.gate(x))


model = Model()
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(8, 6), torch.randint(2, (8,))
logits, gate = model(x)
losses = {"task": nn.functional.cross_entropy(logits, y), "sparsity": gate.abs().mean()}
total = losses["task"] + 0.1 * losses["sparsity"].item()  # CAUSE
optimizer.zero_grad()
total.backward()
optimizer.step()
print("gate grad", model.gate.weight.grad)
