import torch
from torch import nn

torch.manual_seed(0)


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8, bias=False)
        self.doc = nn.Linear(8, 8, bias=False)

    def forward(self, q, d):
        q, d = self.query(q), self.doc(d)
        q = q / q.norm(dim=-1, keepdim=True)  # CAUSE
        d = d / d.norm(dim=-1, keepdim=True)  # CAUSE
        return q @ d.T


model = Retriever()
q, d = torch.randn(4, 8), torch.randn(4, 8)
q[3] = 0  # the last batch is filled up with zeros
scores = model(q, d)[:3]
loss = nn.functional.cross_entropy(scores, torch.arange(3))
loss.backward()
print("loss", loss.item())
print("query grad finite", bool(model.query.weight.grad.isfinite().all()))
