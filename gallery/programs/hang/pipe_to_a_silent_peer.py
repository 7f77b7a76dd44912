import multiprocessing

import torch
from torch import nn


def peer(connection):
    connection.recv()
    connection.send(0.0)
    connection.recv()


def main():
    torch.manual_seed(0)
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=peer, args=(theirs,), daemon=True).start()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

    def average(grad):
        ours.send(grad.mean().item())
        return grad - ours.recv()  # CAUSE

    for layer in (model[0], model[2]):
        layer.weight.register_hook(average)
    print("exchanging", flush=True)
    model(torch.randn(6, 4)).sum().backward()


if __name__ == "__main__":
    main()
