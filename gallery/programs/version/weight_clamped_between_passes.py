import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)


def clip_weights(model, bound):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-bound, bound)  # CAUSE


for _ in range(2):
    real, fake = torch.randn(2, 16, 5).unbind(0)
    loss = critic(fake).mean() - critic(real).mean()
    clip_weights(critic, 0.01)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
