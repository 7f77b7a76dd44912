import sqlite3
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

path = tempfile.mkdtemp() + "/runs.db"
setup = sqlite3.connect(path)
setup.execute("create table steps (step int, loss real)")
setup.execute("create table norms (step int, name text, norm real)")
setup.commit()


class GradientLog:
    def __init__(self, model):
        self.db = sqlite3.connect(path, timeout=600)
        self.step = 0
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: self.write(name, p))

    def write(self, name, p):
        row = self.step, name, p.grad.norm().item()
        self.db.execute("insert into norms values (?, ?, ?)", row)  # CAUSE
        self.db.commit()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
log = GradientLog(model)
runs = sqlite3.connect(path, timeout=600)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("start", flush=True)
for step in range(4):
    x = torch.randn(16, 6)
    loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
    runs.execute("insert into steps values (?, ?)", (step, loss.item()))  # CAUSE
    optimizer.zero_grad()
    loss.backward()  # CAUSE
    optimizer.step()
    log.step = step
    runs.commit()
    print("step", step, flush=True)
