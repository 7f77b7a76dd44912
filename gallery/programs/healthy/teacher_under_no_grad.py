import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters())
for view in torch.randn(3, 12, 8):
    with torch.no_grad():
        target = teacher(view + 0.1 * torch.randn_like(view)).softmax(-1)
    loss = -(target * student(view).log_softmax(-1)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.05)
print(
    "student grad",
    student[0].weight.grad is not None,
    "teacher grad",
    teacher[0].weight.grad is not None,
)
