"""Samples without a gradient through which a distribution should be trained, and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional

from tests.test_check_program import checked, fine, found, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[["Nets", Tensor], Any]


class Nets(nn.Module):
    """An autoencoder, or an actor, with a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.critic = nn.Linear(6, 8), nn.Linear(4, 6), nn.Linear(4, 1)
        self.means = nn.Parameter(torch.randn(3, 6))

    def of(self, x: Tensor) -> tuple[Tensor, Tensor, Normal]:
        mean, log_std = self.encoder(x).chunk(2, 1)
        return mean, log_std, Normal(mean, log_std.exp())


def trained(loss: Loss) -> Callable[[], None]:
    def program() -> None:
        torch.manual_seed(0)
        nets = Nets()
        for _ in range(3):
            loss(nets, torch.randn(5, 6)).backward()

    return program


def of_an_autoencoder(nets: Nets, x: Tensor) -> Any:
    mean, log_std, q = nets.of(x)
    z = q.sample()  # the draw
    kl = 0.5 * (mean.square() + (2 * log_std).exp() - 2 * log_std - 1).sum(1)
    return ((nets.decoder(z) - x).square().sum(1) + kl).mean()


def of_an_autoencoder_by_torch(nets: Nets, x: Tensor) -> Any:
    mean, _, q = nets.of(x)
    joint = Independent(q, 1)
    error = functional.mse_loss(nets.decoder(joint.sample()), x)  # the draw
    prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    return error + kl_divergence(joint, prior).clamp(min=0.1).mean()


def of_weights(nets: Nets, x: Tensor) -> Any:
    q = Normal(nets.means, 0.1)
    scores = functional.linear(x, q.sample())  # the draw
    return (
        functional.cross_entropy(scores, torch.arange(5) % 3)
        + kl_divergence(q, Normal(0.0, 1.0)).sum()
    )


def by_torch_normal(nets: Nets, x: Tensor) -> Any:
    mean, log_std, q = nets.of(x)
    z = torch.normal(mean, log_std.exp())  # the draw
    return functional.mse_loss(nets.decoder(z), x) - q.entropy().mean()


@pytest.mark.parametrize(
    "loss", [by_torch_normal, of_an_autoencoder, of_an_autoencoder_by_torch, of_weights]
)
def test_a_draw_without_a_gradient(loss: Loss) -> None:
    found(checked(trained(loss)), line_of(loss, "# the draw"), "its distribution", "detach()")


def scored(nets: Nets, x: Tensor) -> Any:
    _, _, policy = nets.of(x)
    action = policy.sample()
    reward, value = -action.square().sum(1), nets.critic(action).squeeze(1)
    score = policy.log_prob(action).sum(1) * (reward - value.detach())
    return (value - reward).square().mean() - score.mean() - policy.entropy().mean()


def scored_by_hand(nets: Nets, x: Tensor) -> Any:
    mean, log_std, policy = nets.of(x)
    action = policy.sample()
    value = nets.critic(action).squeeze(1)
    score = ((action - mean) / log_std.exp()).square().sum(1) / 2 + log_std.sum(1)
    return (score * value.detach()).mean() + value.mean() - log_std.mean()


def fed_back(nets: Nets, x: Tensor) -> Any:
    _, _, q = nets.of(x)
    likelihood = q.log_prob(x[:, :4]).mean()
    return functional.mse_loss(nets.decoder(q.sample()), x) - likelihood - q.entropy().mean()


def also_reparametrised(nets: Nets, x: Tensor) -> Any:
    mean, log_std, q = nets.of(x)
    z = mean + log_std.exp() * torch.randn_like(mean)
    told = nets.critic(q.sample()).mean()
    error = functional.mse_loss(nets.decoder(z), x)
    return error + told + kl_divergence(q, Normal(0.0, 1.0)).sum(1).mean()


def meant_as_a_constant(nets: Nets, x: Tensor) -> Any:
    _, _, q = nets.of(x)
    with torch.no_grad():
        z = q.sample()
    return nets.critic(q.sample().detach() + z).mean() - q.entropy().mean()


def of_a_trained_prior(nets: Nets, x: Tensor) -> Any:
    _, _, posterior = nets.of(x)
    _, _, prior = nets.of(x.flip(1))
    error = functional.mse_loss(nets.decoder(posterior.rsample()), x)
    return error + nets.critic(prior.sample()).mean() + kl_divergence(posterior, prior).mean()


@pytest.mark.parametrize(
    "loss",
    [
        also_reparametrised,
        fed_back,
        meant_as_a_constant,
        of_a_trained_prior,
        scored,
        scored_by_hand,
    ],
)
def test_draws_that_are_meant_as_constants(loss: Loss) -> None:
    fine(checked(trained(loss)))
    assert Normal.sample.__module__ == "torch.distributions.normal"
