import torch

slope = torch.tensor(0.7, requires_grad=True)
times = torch.linspace(0, 4, 9)
measured = 0.5 * times + 0.1


def ramp(t, knee):
    x = slope + t
    scaled = knee * (x / knee)  # CAUSE
    return torch.where(x >= knee, x, scaled)  # CAUSE


loss = sum((ramp(t, times[0]) - m) ** 2 for t, m in zip(times, measured))
loss.backward()
print("loss", loss.item())
print("slope", slope.grad.item())
