import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.GRU(4, 8, batch_first=True)
decoder = nn.Linear(8, 10)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
hidden, _ = encoder(torch.randn(1, 6, 4))
logp = decoder(hidden).log_softmax(-1)
optimizer.zero_grad()
for hypothesis in torch.randint(10, (3, 6)):
    nll = -logp[0].gather(1, hypothesis[:, None]).sum()
    nll.backward()  # CAUSE
optimizer.step()
