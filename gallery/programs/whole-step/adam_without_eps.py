import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(20, 4)
head = nn.Linear(4, 2)
optimizer = torch.optim.Adam(
    [*embedding.parameters(), *head.parameters()], lr=1e-2, eps=0.0
)  # CAUSE
words = torch.randint(10, (8,))  # the other ten words do not occur
loss = nn.functional.cross_entropy(head(embedding(words)), torch.randint(2, (8,)))
optimizer.zero_grad()
loss.backward()
optimizer.step()  # CAUSE
grad, weight = embedding.weight.grad, embedding.weight
print("grad finite", bool(grad.isfinite().all()), "weight finite", bool(weight.isfinite().all()))
