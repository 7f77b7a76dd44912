"""States are copied, saved at once, filled in, loaded in part, and loaded into what has them."""

import copy
import io

import torch
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def program() -> None:
    model = network()
    wrapped = nn.Module()
    wrapped.module = network()
    pretrained = wrapped.state_dict()
    answer = model.load_state_dict(pretrained, strict=False)
    if answer.missing_keys:
        pretrained = {name.removeprefix("module."): one for name, one in pretrained.items()}
    model.load_state_dict(pretrained, strict=False)
    model.load_state_dict({"2.bias": torch.zeros(1)}, strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    shown = {"weights": model.state_dict()}
    least, best, file = float("inf"), None, io.BytesIO()
    for _ in range(10):
        x = torch.randn(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < least:
            least = loss.item()
            best = copy.deepcopy(model.state_dict())
        state = model.state_dict()
        torch.save({"model": state, "optimizer": optimizer.state_dict()}, io.BytesIO())
        workers = [model, copy.deepcopy(model)]
        for worker in workers:
            worker.load_state_dict(state)
        torch.save(shown, file)
        file.seek(0)
        model.load_state_dict(torch.load(file)["weights"])
        file.seek(0)
    if best is not None:
        model.load_state_dict(best)
