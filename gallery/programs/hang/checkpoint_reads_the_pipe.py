import multiprocessing as mp

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def produce(pipe, count):
    for i in range(count):
        pipe.send([float(i + k) for k in range(6)])
    pipe.recv()


class Encoder(nn.Module):
    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))

    def block(self, scale):
        features = torch.tensor(self.pipe.recv())  # CAUSE
        return self.layers(features * scale)

    def forward(self, scale):
        return checkpoint(self.block, scale, use_reentrant=False)  # CAUSE


if __name__ == "__main__":
    torch.manual_seed(0)
    ours, theirs = mp.Pipe()
    process = mp.get_context("fork").Process(target=produce, args=(theirs, 1), daemon=True)
    process.start()
    model = Encoder(ours)
    scale = nn.Parameter(torch.ones(1))
    print("one batch", flush=True)
    model(scale).square().sum().backward()
    ours.send("stop")
