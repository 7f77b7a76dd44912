"""A recurrent net adds up packed sequences: sparse embeddings, truncated backpropagation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

DIGITS = 10


class Adder(nn.Module):
    """A bidirectional GRU over digits, an LSTM cell over its outputs."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.digit = nn.Embedding(DIGITS, width, sparse=True)
        self.reader = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(2 * width, width)
        self.sum = nn.Linear(width, 1)

    def read(self, sequences: list[Tensor]) -> Tensor:
        """What the GRU makes of sequences of several lengths, padded."""
        packed = pack_sequence([self.digit(sequence) for sequence in sequences], False)
        padded: Tensor = pad_packed_sequence(self.reader(packed)[0], batch_first=True)[0]
        return padded


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = Adder()
    dense = [p for name, p in model.named_parameters() if not name.startswith("digit")]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.RMSprop(dense, lr=1e-2),
        torch.optim.SparseAdam(model.digit.parameters(), lr=1e-2),
    ]
    for step in range(3):
        sequences = [torch.randint(DIGITS, (length,)) for length in (5, 9, 7)]
        totals = torch.tensor([[float(sequence.sum())] for sequence in sequences]) / 10
        for optimizer in optimizers:
            optimizer.zero_grad()
        padded = model.read(sequences)
        hidden = state = torch.zeros(3, 12)
        loss = torch.zeros(())
        for moment, features in enumerate(padded.unbind(1)):
            hidden, state = model.cell(features, (hidden, state))
            loss = nn.functional.smooth_l1_loss(model.sum(hidden), totals)
            if moment % 3 == 2:
                loss.backward(retain_graph=True)
                hidden, state = hidden.detach(), state.detach()
        nn.utils.clip_grad_value_(dense, 0.5)
        for optimizer in optimizers:
            optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
