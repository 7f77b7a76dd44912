import torch
from torch import nn

torch.manual_seed(0)
store = {}


def pack(tensor):
    key = len(store)
    store[key] = tensor.clone()
    return key


model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    with torch.autograd.graph.saved_tensors_hooks(pack, store.__getitem__):
        loss = model(torch.randn(8, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    store.clear()
print("stored", len(store))
