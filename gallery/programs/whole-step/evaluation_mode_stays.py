import logging

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

logging.basicConfig(level=logging.INFO, format="%(message)s")


class ImageEncoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.dropout = nn.Dropout(0.3)
        self.project = nn.Linear(16, width)

    def forward(self, images):
        return F.normalize(self.project(self.dropout(self.conv(images))), dim=1)


class TextEncoder(nn.Module):
    def __init__(self, words=30, width=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.3)

    def forward(self, tokens):
        _, last = self.rnn(self.dropout(self.embed(tokens)))
        return F.normalize(last[0], dim=1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = ImageEncoder(), TextEncoder()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, tokens):
        scores = self.scale.exp() * self.image(images) @ self.text(tokens).T
        target = torch.arange(len(scores))
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def validate(model, loader):
    model.eval()  # CAUSE
    with torch.no_grad():
        losses = [model(images, tokens).item() for images, tokens in loader]
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(0)
    kind = torch.randint(6, (160,))
    images = torch.randn(160, 1, 8, 8) * 0.5 + kind.view(-1, 1, 1, 1) * 0.4
    tokens = (kind.unsqueeze(1) * 5 + torch.randint(5, (160, 7))).clamp(max=29)
    train, val = random_split(TensorDataset(images, tokens), [128, 32])
    train_loader = DataLoader(train, batch_size=16, shuffle=True)
    val_loader = DataLoader(val, batch_size=16)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    batches = 0
    for epoch in range(5):
        for images, tokens in train_loader:
            loss = model(images, tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batches += 1
            if batches % 8 == 0:
                logging.info("step %d val loss %.3f", batches, validate(model, val_loader))
    seen = model.image.conv[1].num_batches_tracked.item()
    print(f"batch norm saw {seen} of {batches} batches")


if __name__ == "__main__":
    main()
