import torch

torch.manual_seed(0)
counts = torch.tensor([0.0, 2.0, 3.0, 0.0, 9.0])
gain = torch.ones(5, requires_grad=True)
optimizer = torch.optim.Adam([gain], lr=0.1)


def response(x):
    compressed = torch.log2(x)  # CAUSE
    return torch.where(x > 2, compressed, 2 * x)  # CAUSE


target = torch.arange(5.0)
loss = torch.nn.functional.smooth_l1_loss(response(counts * gain), target)
loss.backward()
optimizer.step()
print("gain grad:", gain.grad.tolist())
