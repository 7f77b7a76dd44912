import asyncio

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)


async def push(value):
    await asyncio.sleep(0)
    return value


async def train():
    loop = asyncio.get_running_loop()

    def hook(grad):
        return asyncio.run_coroutine_threadsafe(push(grad), loop).result()  # CAUSE

    model.weight.register_hook(hook)
    print("loop runs", flush=True)
    model(torch.randn(6, 4)).sum().backward()


asyncio.run(train())
