import pathlib
import time

import torch
from torch import nn

torch.manual_seed(0)
lock = pathlib.Path("gradients.lock")
lock.touch()  # as a run that was killed leaves it


def write(grad):
    while lock.exists():
        time.sleep(0.05)  # CAUSE
    lock.touch()
    torch.save(grad, "gradient.pt")
    lock.unlink()


embedding = nn.Embedding(12, 4)
embedding.weight.register_hook(write)
print("writing", flush=True)
embedding(torch.randint(12, (5,))).square().mean().backward()
