import threading
import time

import torch
from torch import nn

torch.manual_seed(0)
stats, checkpoints = threading.Lock(), threading.Lock()


def guarded(first, second):
    def hook(grad):
        with first:
            time.sleep(0.5)
            with second:  # CAUSE
                return grad

    return hook


actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
actor.weight.register_hook(guarded(stats, checkpoints))
critic.weight.register_hook(guarded(checkpoints, stats))
print("go", flush=True)
threads = [
    threading.Thread(
        target=lambda m=m: m(torch.randn(5, 4)).square().mean().backward(), daemon=True
    )
    for m in (actor, critic)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
