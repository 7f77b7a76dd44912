import queue
import threading

import torch
from torch import nn
from torch.nn import functional as F


class Prefetcher:
    """Makes batches in a thread; may be left before the last one."""

    def __init__(self, images, labels, batch_size, ahead=3):
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.batches = queue.Queue(maxsize=ahead)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        while self.thread.is_alive():
            try:
                self.batches.get(timeout=0.05)
            except queue.Empty:
                pass
        self.thread.join()

    def _fill(self):
        for rows in torch.arange(len(self.images)).split(self.batch_size):
            if self.stopped.is_set():
                return
            self.batches.put((self.images[rows], self.labels[rows]))
        self.batches.put(None)

    def __iter__(self):
        while (batch := self.batches.get()) is not None:
            yield batch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
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
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x):
        return self.head(self.backbone(x))

    def train(self, mode=True):
        super().train(mode)
        for module in self.backbone.modules():  # its statistics are those of the pretraining
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


def validate(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def main():
    torch.manual_seed(0)
    labels = torch.randint(3, (192,))
    images = torch.randn(192, 1, 8, 8) * 0.5 + labels.view(-1, 1, 1, 1)
    model = Net()
    with torch.no_grad():  # stands for pretrained statistics
        nn.Module.train(model)
        model(images)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(5):
        with Prefetcher(images, labels, 16) as batches:
            for number, (x, y) in enumerate(batches):
                if number == 8:
                    break
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        accuracy = validate(model, images, labels)
    print("ok", accuracy > 0.5)


if __name__ == "__main__":
    main()
