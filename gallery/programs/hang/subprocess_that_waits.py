import subprocess
import sys

import torch
from torch import nn

torch.manual_seed(0)
monitor = subprocess.Popen(
    [sys.executable, "-c", "import sys\nfor line in sys.stdin: print('ok')"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
)
model = nn.Linear(4, 2)


def report(grad):
    monitor.stdin.write(f"{grad.norm().item()}\n")
    answer = monitor.stdout.readline()  # CAUSE
    return grad if answer.strip() == "ok" else None


model.weight.register_hook(report)
print("started", flush=True)
model(torch.randn(3, 4)).sum().backward()
