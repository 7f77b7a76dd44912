import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("finetune")


class Tagger(nn.Module):
    def __init__(self, words=60, width=24, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.encoder = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, tags)

    def forward(self, tokens):
        return self.head(torch.relu(self.encoder(self.embed(tokens))))


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False  # CAUSE


def train_epoch(model, loader, optimizer, criterion):
    total = 0.0
    for tokens, tags in loader:
        optimizer.zero_grad(set_to_none=False)  # CAUSE
        loss = criterion(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--freeze-after", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    tokens = torch.randint(60, (96, 12))
    tags = (tokens * 7 + tokens // 9) % 5
    loader = DataLoader(TensorDataset(tokens, tags), batch_size=16, shuffle=True)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss()

    kept = None
    for epoch in range(args.epochs):
        if epoch == args.freeze_after:
            log.info("epoch %d: the encoder is trained well enough, freeze it", epoch)
            freeze(model.embed)
            freeze(model.encoder)
            kept = model.encoder[0].weight.detach().clone()
        loss = train_epoch(model, loader, optimizer, criterion)
        log.info("epoch %d loss %.4f", epoch, loss)

    moved = (model.encoder[0].weight - kept).norm() / kept.norm()
    print(f"frozen layer moved by {moved.item():.1%}")


if __name__ == "__main__":
    main()
