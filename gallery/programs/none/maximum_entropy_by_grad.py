import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, observations=6, actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, 32), nn.Tanh())
        self.policy = nn.Linear(32, actions)
        self.value = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


torch.manual_seed(0)
agent = ActorCritic()
optimizer = torch.optim.RMSprop(agent.parameters(), lr=1e-3)
observations = torch.randn(64, 6)
for update in range(3):
    dist, value = agent(observations)
    actions = dist.sample()
    returns = (actions == 0).float()
    advantage = returns - value.detach()
    policy_loss = -(dist.log_prob(actions) * advantage).mean()
    value_loss = (returns - value).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    grads = torch.autograd.grad(loss, list(agent.parameters()))  # CAUSE
    norm = torch.stack([g.norm() for g in grads]).norm()
    optimizer.step()
    print(f"update {update} loss {loss.item():.4f} grad norm {norm.item():.4f}")
print("no grad:", [name for name, p in agent.named_parameters() if p.grad is None])
