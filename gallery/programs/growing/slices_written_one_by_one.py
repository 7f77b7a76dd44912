import torch
from torch import nn

torch.manual_seed(0)
decay = nn.Parameter(torch.tensor(0.95))
signal = torch.randn(400)
out = torch.zeros(400)
level = torch.zeros(())
for t in range(400):
    level = decay * level + signal[t]
    out[t] = level  # CAUSE
loss = out.square().mean()
names = []
fn = loss.grad_fn
while fn is not None and fn.next_functions:
    names.append(fn.name())
    fn = fn.next_functions[0][0]
loss.backward()
print("CopySlices", sum("CopySlices" in name for name in names))
