import torch
from torch import nn

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 2]])
nodes = 6  # 4 and 5 have no edge
features = torch.randn(nodes, 5)
labels = torch.tensor([0, 1, 0, 1, 0, 1])


class GraphConv(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.linear = nn.Linear(wide, out)

    def forward(self, x):
        adjacency = torch.zeros(nodes, nodes)
        adjacency[edges[1], edges[0]] = 1.0
        degree = adjacency.sum(1)
        norm = degree.pow(-0.5)  # CAUSE
        return norm[:, None] * (adjacency * norm[None]) @ self.linear(x)


model = nn.Sequential(GraphConv(5, 8), nn.ReLU(), GraphConv(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss = nn.functional.cross_entropy(model(features), labels)
loss.backward()
optimizer.step()
print("weights after the step are finite:", bool(model[0].linear.weight.isfinite().all()))
