import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fisher = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
for sample in torch.randn(20, 1, 8):
    optimizer.zero_grad()
    log_p = F.log_softmax(model(sample), -1)
    F.nll_loss(log_p, log_p.exp().multinomial(1).squeeze(1)).backward()
    for name, p in model.named_parameters():
        fisher[name] += p.grad**2 / 20
torch.save({"fisher": fisher, "optimizer": optimizer.state_dict()}, "fisher.pt")
print("fisher", sum(f.sum() for f in fisher.values()).item())
