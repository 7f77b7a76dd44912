import threading

import torch
from torch import nn

torch.manual_seed(0)
barrier = threading.Barrier(2)
replicas = [nn.Linear(4, 1) for _ in range(2)]


def meet(grad):
    barrier.wait()  # CAUSE
    return grad


for replica in replicas:
    replica.weight.register_hook(meet)


def run(replica, batch):
    replica(batch).square().mean().backward()


batches = [torch.randn(4, 4) for _ in range(3)]
for step in range(0, 3, 2):
    threads = [
        threading.Thread(target=run, args=pair, daemon=True)
        for pair in zip(replicas, batches[step : step + 2])
    ]
    print("step", step // 2, flush=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
