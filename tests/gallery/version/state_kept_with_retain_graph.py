"""A loop carries a recurrent state on with its graph, and retain_graph=True hides that at first.

The second backward goes on into the first window, whose weights the step has changed since.

error: modified by an inplace operation
node: MmBackward0
saved: mat2
parameter: cell.weight
carried: hidden
"""

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """A recurrent cell of one matrix, over a window of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4, bias=False)
        self.readout = nn.Linear(4, 1)

    def forward(self, window: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x in window:
            hidden = torch.tanh(x + self.cell(hidden))
            outputs.append(self.readout(hidden))
        return torch.stack(outputs), hidden


def program() -> None:
    """Trains on three windows of one sequence."""
    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hidden = torch.zeros(3, 4)
    for window in torch.randn(3, 2, 3, 4):
        outputs, hidden = model(window, hidden)  # cause
        loss = outputs.square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


if __name__ == "__main__":
    program()
