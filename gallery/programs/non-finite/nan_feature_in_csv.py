import csv
import io

import torch
from torch import nn

torch.manual_seed(0)
FILE = "age,income,height\n" + "\n".join(
    f"{20 + i},{30 + i * 2 if i != 21 else ''},{150 + i}" for i in range(30)
)


def rows():
    for row in csv.DictReader(io.StringIO(FILE)):
        yield [float(v) if v else float("nan") for v in row.values()]  # CAUSE


table = torch.tensor(list(rows()))  # CAUSE
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step, batch in enumerate(table.split(10)):  # CAUSE
    loss = (model(batch[:, :2]) - batch[:, 2:]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
