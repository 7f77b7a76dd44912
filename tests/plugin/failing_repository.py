"""A repository of 100 failing tests: five bugs in its library, and expectations that are wrong."""

LIBRARY = """
import torch
from torch import nn


def entropy(p):
    return -(p * p.log()).sum()


class Autoencoder(nn.Module):
    def __init__(self, wide=4):
        super().__init__()
        self.encoder = nn.Linear(4, wide)
        self.decoder = nn.Linear(wide, 4)

    def forward(self, x):
        return self.decoder(self.encoder(x).detach())


def stretched(x):
    y = x.exp()
    y += 1
    return y


def step_twice(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    loss.backward()


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.inner(x) - 1000)
"""
NAN = """
import pytest, torch
from library import entropy


@pytest.mark.parametrize("n", range(2, 14))
def test_entropy(n):
    logits = torch.zeros(n, requires_grad=True)
    p = torch.cat([logits.softmax(0), logits[:1] * 0])
    entropy(p).backward()
    assert logits.grad.isfinite().all()


class TestUniform:
    @pytest.mark.parametrize("scale", [1.0, 2.0, 3.0, 4.0, 5.0])
    def test_scaled(self, scale):
        p = torch.zeros(3, requires_grad=True)
        loss = scale * entropy(p * scale)
        loss.backward()
        assert not p.grad.isnan().any()
"""
NONE = """
import pytest, torch
from library import Autoencoder


@pytest.mark.parametrize("wide", range(1, 10))
def test_encoder_learns(wide):
    model = Autoencoder(wide)
    model(torch.ones(2, 4)).sum().backward()
    assert model.encoder.weight.grad is not None


@pytest.mark.parametrize("batch", range(1, 9))
def test_every_parameter_learns(batch):
    model = Autoencoder()
    loss = (model(torch.ones(batch, 4)) - 1).pow(2).mean()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
"""
VERSION = """
import pytest, torch
from library import stretched


@pytest.mark.parametrize("n", range(1, 10))
def test_stretched(n):
    x = torch.ones(n, requires_grad=True)
    stretched(x).sum().backward()
    assert x.grad.shape == (n,)


@pytest.mark.parametrize("power", range(2, 10))
def test_power(power):
    x = torch.ones(3, requires_grad=True)
    stretched(x * 2).pow(power).mean().backward()
"""
TWICE = """
import pytest, torch
from torch import nn
from library import step_twice


@pytest.mark.parametrize("n", range(1, 18))
def test_steps(n):
    step_twice(nn.Sequential(nn.Linear(n, 3), nn.Tanh()), torch.ones(2, n))
"""
ZERO = """
import pytest, torch
from library import Gate


@pytest.mark.parametrize("n", range(1, 17))
def test_gate_learns(n):
    gate = Gate()
    gate(torch.ones(n, 4)).sum().backward()
    assert gate.inner.weight.grad.any()
"""
PLAIN = """
import pytest, torch
from torch import nn


def trained(n):
    torch.manual_seed(n)
    model = nn.Linear(n, 1)
    loss = (model(torch.ones(2, n)) - 1).pow(2).mean()
    loss.backward()
    return model, loss


@pytest.mark.parametrize("n", range(1, 9))
def test_loss_is_small(n):
    _, loss = trained(n)
    assert loss.item() < 0


@pytest.mark.parametrize("n", range(1, 9))
def test_names(n):
    model, _ = trained(n)
    assert [name for name, _ in model.named_parameters()] == ["weight"]
"""
REPOSITORY = {
    "library": LIBRARY,
    "test_nan": NAN,
    "test_none": NONE,
    "test_version": VERSION,
    "test_twice": TWICE,
    "test_zero": ZERO,
    "test_plain": PLAIN,
}


def line_of(text: str) -> str:
    """The place in the library where a line of it is."""
    number = next(n for n, line in enumerate(LIBRARY.split("\n")) if text in line)
    return f"library.py:{number}"
