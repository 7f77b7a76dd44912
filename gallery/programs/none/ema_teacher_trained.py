import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
teacher = copy.deepcopy(student)
projector = nn.Linear(4, 4)
optimizer = torch.optim.AdamW([*student.parameters(), *projector.parameters()])

for _ in range(2):
    view_a, view_b = torch.randn(2, 10, 8).unbind(0)
    own = student(view_a)  # CAUSE
    with torch.no_grad():
        other = teacher(view_b)
    loss = nn.functional.mse_loss(projector(other), other)  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.01)
print("student", student[0].weight.grad)
