import torch
from torch import nn

torch.manual_seed(0)
config = {"hidden": 32, "keep_prob": 1.0, "lr": 1e-2}


class Classifier(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.hidden = nn.Linear(10, config["hidden"])
        self.dropout = nn.Dropout(config["keep_prob"])  # CAUSE
        self.out = nn.Linear(config["hidden"], 3)

    def forward(self, x):
        return self.out(self.dropout(torch.relu(self.hidden(x))))  # CAUSE


model = Classifier(config)
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
for _ in range(5):
    x = torch.randn(32, 10)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("hidden grad norm", model.hidden.weight.grad.norm().item())
