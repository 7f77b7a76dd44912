import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
train = [(torch.randn(8, 1, 12, 12), torch.randint(5, (8,))) for _ in range(2)]
valid = [(torch.randn(8, 1, 12, 12), torch.randint(5, (8,))) for _ in range(4)]
outputs, sizes = [], []


def evaluate():
    model.eval()
    hits = 0
    for x, y in valid:
        logits = model(x)
        outputs.append((logits, y))  # CAUSE
        hits += int((logits.argmax(1) == y).sum())
    model.train()
    return hits


for epoch in range(6):
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    evaluate()
    sizes.append(sum(logits.grad_fn is not None for logits, _ in outputs))
print("outputs with graph:", sizes)
