"""A dataset writes to copies of its images, and to what it has computed of them."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class _Images(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        self.kept, self.classes = torch.rand(24, 8), torch.randint(3, (24,))

    def __len__(self) -> int:
        return len(self.kept)

    def _noisy(self, image: Tensor) -> Tensor:
        image = image * (0.9 + 0.2 * torch.rand(1))
        image += 0.1 * torch.randn_like(image)
        return image

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, other = self.kept[index].clone(), self.kept[index]
        image.mul_(2.0)
        other = self._noisy(other)
        other.add_(image)
        return other, self.classes[index]


def program() -> None:
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for _ in range(3):
        for images, classes in DataLoader(_Images(), batch_size=8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), classes).backward()
            optimizer.step()
