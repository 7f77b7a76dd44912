"""Programs whose backward passes are taken apart node by node: ``repro_models.py NAME ...``.

Each model does one pass, small and seeded. What is run alone elsewhere has to give the same bits.
"""

import hashlib
import sys
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def transformer() -> Tensor:
    """Encoder layers with layer norm, attention and dropout."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.TransformerEncoder(layer, 2)
    out: Tensor = model(torch.randn(3, 5, 16)).square().mean()
    return out


def convnet() -> Tensor:
    """Convolutions, batch norm, pooling and a residual, channels last."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    after = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
    x = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    hidden = model(x)
    hidden = functional.max_pool2d(functional.relu(hidden + after(hidden)), 2)
    logits = nn.Linear(8, 4)(functional.adaptive_avg_pool2d(hidden, 1).flatten(1))
    out: Tensor = functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3]))
    return out


def lstm() -> Tensor:
    """A module of torch and a cell that is unrolled."""
    whole, cell, gru = nn.LSTM(6, 8), nn.LSTMCell(8, 8), nn.GRUCell(8, 8)
    steps, _ = whole(torch.randn(4, 2, 6))
    state: Any = (torch.zeros(2, 8), torch.zeros(2, 8))
    for step in steps:
        state = cell(step, state)
    out: Tensor = (gru(state[0], state[1]).tanh() + state[0]).sum()
    return out


def attention() -> Tensor:
    """By hand with a mask, and scaled_dot_product_attention with one."""
    q, k, v = (nn.Linear(12, 12)(torch.randn(2, 5, 12)) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    scores = (q @ k.transpose(-1, -2) / 12**0.5).masked_fill(~mask, float("-inf"))
    by_hand = scores.softmax(-1) @ v
    heads = [each.view(2, 5, 3, 4).transpose(1, 2) for each in (q, k, v)]
    fused = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask)
    out: Tensor = (by_hand + fused.transpose(1, 2).reshape(2, 5, 12)).pow(3).mean()
    return out


def embedding_bag() -> Tensor:
    """Bags, a padded embedding, gather and scatter."""
    bags, table = nn.EmbeddingBag(20, 6, mode="max"), nn.Embedding(20, 6, padding_idx=0)
    means = nn.EmbeddingBag(20, 6, mode="mean")
    ids = torch.randint(20, (10,))
    offsets = torch.tensor([0, 3, 7])
    summed = torch.zeros(3, 6).index_add(0, torch.arange(10) % 3, table(ids))
    bagged = bags(ids, offsets) * means(ids, offsets) + summed
    out: Tensor = bagged.gather(1, bagged.argsort(1)).cumsum(1).logsumexp(1).prod()
    return out


def checkpointed() -> Tensor:
    """A block that runs again in backward, in both ways, and a tensor that hooks pack."""
    block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8))
    x = torch.randn(4, 8, requires_grad=True)
    x = checkpoint(block, x, use_reentrant=False)
    x = checkpoint(block, x, use_reentrant=True)
    with torch.autograd.graph.save_on_cpu():
        out: Tensor = (x.sigmoid() * x).square().sum()
    return out


class Clamped(torch.autograd.Function):
    """A custom Function whose backward computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, most: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.most = most
        return x.clamp(max=most)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        slope = torch.where(x < ctx.most, 1.0, 0.1 * torch.rand_like(x))
        slope[0] *= 2
        return grads[0] * slope / slope.norm().item(), None


def custom_function() -> Tensor:
    """A custom Function between operations of torch, and writes in place."""
    x = torch.randn(6, 5, requires_grad=True) * 2
    y = cast("Any", Clamped).apply(x.exp(), 1.5)
    y = y.clone()
    y[1:3] *= x[1:3]
    y.mul_(0.5)
    out: Tensor = (y.std(0) + y.t()[0, :5].sqrt().nan_to_num()).sum()
    return out


def double_backward() -> Tensor:
    """A penalty on a gradient."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Softplus(), nn.Linear(7, 1))
    x = torch.randn(4, 5, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    out: Tensor = (slope.norm(dim=1) - 1).square().mean()
    return out


def half_precision() -> Tensor:
    """bfloat16 under autocast, with a scale."""
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(torch.randn(6, 8))
        loss = functional.cross_entropy(logits, torch.randint(4, (6,)), label_smoothing=0.1)
    return loss * 1024


def spectral() -> Tensor:
    """Complex numbers, Fourier transforms, decompositions."""
    x = torch.randn(3, 8, requires_grad=True)
    spectrum = torch.fft.rfft(x) * torch.view_as_complex(torch.randn(3, 5, 2))
    back = torch.fft.irfft(spectrum.conj() * spectrum.abs(), n=8)
    matrix = back @ back.t() + 3 * torch.eye(3)
    values = torch.linalg.slogdet(matrix)[1] + torch.linalg.eigvalsh(matrix).log().sum()
    solved = torch.linalg.solve(matrix, back).pow(2).sum()
    out: Tensor = values + spectrum.angle().sum() + solved
    return out


MODELS: dict[str, Callable[[], Tensor]] = {
    each.__name__: each
    for each in (
        *(transformer, convnet, lstm, attention, embedding_bag, checkpointed, custom_function),
        *(double_backward, half_precision, spectral),
    )
}


def gradients(loss: Tensor) -> list[Tensor]:
    """Those of all leaves, in the order in which the graph leads to them."""
    found, seen, to_visit = [], set(), [loss.grad_fn]
    while to_visit:
        node: Any = to_visit.pop(0)
        if node in seen:
            continue
        seen.add(node)
        to_visit += [each for each, _ in node.next_functions if each is not None]
        if hasattr(node, "variable"):
            found.append(node.variable)
    return [each.grad for each in found]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        torch.manual_seed(0)
        loss = MODELS[name]()
        loss.backward()
        bits = [bytes(each.view(-1).view(torch.uint8).numpy()) for each in gradients(loss)]
        state = bytes(torch.get_rng_state().numpy())
        print(name, hashlib.sha256(b"".join([*bits, state])).hexdigest())
