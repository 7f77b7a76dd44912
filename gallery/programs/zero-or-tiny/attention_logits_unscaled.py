import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        for layer in (self.query, self.key):
            nn.init.orthogonal_(layer.weight)

    def forward(self, x):
        x = self.norm(x)
        scores = self.query(x) @ self.key(x).transpose(-2, -1)
        self.weights = torch.softmax(scores, -1)  # CAUSE
        return self.weights @ self.value(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(512)
        self.head = nn.Linear(512, 4)

    def forward(self, x):
        return self.head(self.attention(x).mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x, y = torch.randn(8, 16, 512), torch.randint(4, (8,))
for step in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"largest weight {model.attention.weights.amax(-1).median():.2f}")
