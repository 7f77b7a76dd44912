import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(30, 6)
head = nn.Linear(6, 3)
new_tokens = []  # filled from the tokenizer, which has none
keep = torch.zeros(30, 1)
keep[new_tokens] = 1.0


def only_new(grad):
    return grad * keep  # CAUSE


embedding.weight.register_hook(only_new)  # CAUSE
optimizer = torch.optim.Adam([*embedding.parameters(), *head.parameters()])
for _ in range(2):
    loss = nn.functional.cross_entropy(
        head(embedding(torch.randint(30, (8,)))), torch.randint(3, (8,))
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("embedding grad", embedding.weight.grad.abs().max().item())
