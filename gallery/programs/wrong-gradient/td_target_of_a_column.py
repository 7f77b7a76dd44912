import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)


def q_network():
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))


online, target_net = q_network(), q_network()
target_net.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for update in range(12):
    state, next_state = torch.randn(32, 4), torch.randn(32, 4)
    action = torch.randint(2, (32, 1))
    reward, done = torch.rand(32), torch.rand(32) < 0.1
    q = online(state).gather(1, action)
    with torch.no_grad():
        best = target_net(next_state).max(1, keepdim=True).values
        target = reward + 0.99 * best * (~done)  # CAUSE
    loss = nn.functional.smooth_l1_loss(q, target)  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 5 == 0:
        target_net.load_state_dict(online.state_dict())
print("target:", target.shape)
