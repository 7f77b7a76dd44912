import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def set_requires_grad(net, flag):
    for parameter in net.parameters():
        parameter.requires_grad = flag


class Trainer:
    def __init__(self, lr=1e-3):
        self.g, self.d = mlp(8, 32, 32, 2), mlp(2, 32, 32, 1)
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=lr, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=lr, betas=(0.5, 0.999))
        self.bce = nn.BCEWithLogitsLoss()

    def step_d(self, real):
        set_requires_grad(self.d, True)
        with torch.no_grad():
            fake = self.g(torch.randn(len(real), 8))
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        loss = self.bce(self.d(real), ones) + self.bce(self.d(fake), zeros)
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def step_g(self, count):
        set_requires_grad(self.d, False)
        loss = self.bce(self.d(self.g(torch.randn(count, 8))), torch.ones(count, 1))
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    angle = torch.rand(512) * 6.283
    data = torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(512, 2)
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True, drop_last=True)
    trainer = Trainer()
    before = trainer.d[0].weight.detach().clone()
    for epoch in range(4):
        for (real,) in loader:
            loss_d, loss_g = trainer.step_d(real), trainer.step_g(len(real))
        print(f"epoch {epoch} loss_d {loss_d:.3f} loss_g {loss_g:.3f}")
    print("ok", not torch.equal(before, trainer.d[0].weight))


if __name__ == "__main__":
    main()
