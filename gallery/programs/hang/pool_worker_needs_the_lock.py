import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.manual_seed(0)
pool = ThreadPoolExecutor(2)
table_lock = threading.RLock()
table = {}


def store(step, norm):
    with table_lock:  # CAUSE
        table[step] = norm


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean(-1))


net = Net()
step = 0


def publish(grad):
    pool.submit(store, step, grad.norm().item()).result()  # CAUSE


net.conv.weight.register_hook(publish)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print("training", flush=True)
for step in range(3):
    loss = net(torch.randn(4, 2, 12)).square().mean()
    optimizer.zero_grad()
    with table_lock:  # CAUSE
        loss.backward()  # CAUSE
        optimizer.step()
