import queue
import threading

import torch
from torch import nn


class Prefetcher:
    """Makes batches in a thread, a few ahead of the training loop."""

    def __init__(self, dataset, batch_size, ahead=4):
        self.dataset, self.batch_size = dataset, batch_size
        self.batches = queue.Queue(maxsize=ahead)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()  # CAUSE

    def _fill(self):
        order = torch.randperm(len(self.dataset))
        for rows in order.split(self.batch_size):
            if self.stopped.is_set():
                return
            batch = torch.stack([self.dataset[row] for row in rows])
            self.batches.put(batch)  # CAUSE
        self.batches.put(None)

    def __iter__(self):
        while (batch := self.batches.get()) is not None:
            yield batch


class Autoencoder(nn.Module):
    def __init__(self, features=16, code=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, 24), nn.ReLU(), nn.Linear(24, code))
        self.decode = nn.Sequential(nn.Linear(code, 24), nn.ReLU(), nn.Linear(24, features))

    def forward(self, x):
        return self.decode(self.encode(x))


class Budget:
    def __init__(self, steps):
        self.left = steps

    def spend(self):
        self.left -= 1
        return self.left >= 0


def train_epoch(model, optimizer, dataset, budget):
    losses = []
    with Prefetcher(dataset, 16) as batches:
        for batch in batches:
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if not budget.spend():
                break
    return sum(losses) / max(1, len(losses))


def main():
    torch.manual_seed(0)
    dataset = torch.randn(640, 4) @ torch.randn(4, 16)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    budget = Budget(steps=60)
    for epoch in range(3):
        print(f"epoch {epoch}", flush=True)
        mean = train_epoch(model, optimizer, dataset, budget)
        print(f"mean loss {mean:.3f}", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
