import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy, value = nn.Linear(4, 3), nn.Linear(4, 1)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()])
for _ in range(3):
    states, returns = torch.randn(12, 4), torch.randn(12)
    pi = Categorical(logits=policy(states))
    actions = pi.sample()
    baseline = value(states).squeeze(-1)
    advantage = (returns - baseline).detach()
    loss = -(pi.log_prob(actions) * advantage).mean() + (returns - baseline).square().mean()
    optimizer.zero_grad()
    (loss - 0.01 * pi.entropy().mean()).backward()
    optimizer.step()
print("both", policy.weight.grad is not None and value.weight.grad is not None)
