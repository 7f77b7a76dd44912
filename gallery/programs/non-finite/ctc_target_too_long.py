import torch
from torch import nn

torch.manual_seed(0)
acoustic = nn.GRU(8, 16, batch_first=True)
letters = nn.Linear(16, 12)
ctc = nn.CTCLoss()
audio = torch.randn(3, 9, 8)
targets = torch.randint(1, 12, (3, 14))
lengths = torch.tensor([4, 14, 5])

hidden, _ = acoustic(audio)
logp = letters(hidden).log_softmax(-1).transpose(0, 1)
loss = ctc(logp, targets, torch.full((3,), 9), lengths)  # CAUSE
loss.backward()
print("loss", loss.item())
