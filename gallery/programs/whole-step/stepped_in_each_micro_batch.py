import torch
from torch import nn
import torch.nn.functional as F


class KGE(nn.Module):
    def __init__(self, entities=50, relations=6, dim=16):
        super().__init__()
        self.entity = nn.Embedding(entities, dim)
        self.relation = nn.Embedding(relations, dim)

    def forward(self, head, relation):
        return (self.entity(head) * self.relation(relation)) @ self.entity.weight.T


class Trainer:
    def __init__(self, model, accumulate=4):
        self.model, self.accumulate = model, accumulate
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        self.count = self.steps = 0

    def run_batch(self, head, relation, tail):
        if self.count % self.accumulate == 0:
            self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(head, relation), tail) / self.accumulate
        loss.backward()
        self.optimizer.step()  # CAUSE
        self.steps += 1
        self.count += 1
        return loss.item() * self.accumulate


torch.manual_seed(0)
model = KGE()
trainer = Trainer(model)
for batch in range(16):
    head, relation = torch.randint(0, 50, (32,)), torch.randint(0, 6, (32,))
    loss = trainer.run_batch(head, relation, (head + relation) % 50)
print(f"batches 16 accumulated by 4: {trainer.steps} steps, loss {loss:.3f}")
