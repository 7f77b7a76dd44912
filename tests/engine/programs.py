"""Real training steps to run under both engines. Each builds its model and calls backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Result = Sequence[Tensor | None]
PROGRAMS: dict[str, Callable[[], Result]] = {}


def program(function: Callable[[], Result]) -> Callable[[], Result]:
    """Register a program under its function's name."""
    PROGRAMS[function.__name__] = function
    return function


def gradients(model: nn.Module, *more: Tensor | None) -> Result:
    """Gradients of all parameters, and what else is to be compared."""
    return [*(parameter.grad for parameter in model.parameters()), *more]


@program
def mlp() -> Result:
    model = nn.Sequential(
        nn.Linear(6, 16),
        nn.ReLU(),
        nn.LayerNorm(16),
        nn.Linear(16, 16),
        nn.GELU(),
        nn.Linear(16, 3),
    )
    loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.arange(8) % 3)
    loss.backward()
    return gradients(model)


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


@program
def residual_conv_net() -> Result:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        *(_Residual(8) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    model(torch.randn(4, 3, 10, 10)).log_softmax(1)[:, 2].mean().backward()
    return gradients(model)


@program
def transformer_encoder() -> Result:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(2, 7, 16, requires_grad=True)
    model(x).pow(2).mean().backward()
    return gradients(model, x.grad)


@program
def lstm() -> Result:
    model = nn.LSTM(5, 7, num_layers=2, batch_first=True)
    output, (h, c) = model(torch.randn(3, 11, 5))
    (output.sum() + h.pow(2).sum() + c.sum()).backward()
    return gradients(model)


@program
def rnn_with_shared_cell() -> Result:
    cell = nn.GRUCell(4, 6)
    state = torch.zeros(2, 6)
    for step in torch.randn(9, 2, 4):
        state = cell(step, state)
    state.sum().backward()
    return gradients(cell)


@program
def double_backward() -> Result:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(5, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).pow(2).mean().backward()
    return gradients(model, x.grad)


@program
def triple_backward() -> Result:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    value = (x.sin() * x.exp()).sum()
    for _ in range(2):
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        value = slope.pow(2).sum()
    value.backward()
    return [x.grad]


@program
def grad_of_a_subset() -> Result:
    a, b, c = (torch.randn(3, requires_grad=True) for _ in range(3))
    h = a * b
    k = h.exp() + c
    return torch.autograd.grad((k * a).sum(), [h, c], retain_graph=True) + torch.autograd.grad(
        k.sum(), [a], allow_unused=True
    )


@program
def backward_with_inputs() -> Result:
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    h = a * b
    torch.autograd.backward((h.exp() * a).sum(), inputs=[h, b])
    return [a.grad, b.grad, h.grad]


@program
def several_roots() -> Result:
    a = torch.randn(3, 3, requires_grad=True)
    h = a.tanh()
    k = h @ a
    torch.autograd.backward([k, h, k], [torch.ones(3, 3), torch.randn(3, 3), torch.ones(3, 3)])
    return [a.grad]


class _TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * scale, x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * ctx.scale + grads[1] * y.cos(), None, grads[1] * x.sin()


@program
def custom_function_with_several_outputs() -> Result:
    x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
    first, second = _TwoOutputs.apply(x.exp(), 3.0, y * 2)  # type: ignore[no-untyped-call]
    (first * second).sum().backward()
    return [x.grad, y.grad]


@program
def custom_function_one_output_unused() -> Result:
    x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
    _, second = _TwoOutputs.apply(x.exp(), 3.0, y * 2)  # type: ignore[no-untyped-call]
    second.sum().backward()
    return [x.grad, y.grad]


def _checkpointed(*, use_reentrant: bool) -> Result:
    first, second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    h = checkpoint(second, first(x).relu(), use_reentrant=use_reentrant)
    checkpoint(second, h, use_reentrant=use_reentrant).sum().backward()
    return [*gradients(first), *gradients(second), x.grad]


@program
def reentrant_checkpoint() -> Result:
    return _checkpointed(use_reentrant=True)


@program
def non_reentrant_checkpoint() -> Result:
    return _checkpointed(use_reentrant=False)


@program
def retain_grad_and_tensor_hooks() -> Result:
    model = nn.Linear(4, 4)
    seen: list[Tensor] = []
    x = torch.randn(3, 4, requires_grad=True)
    h = model(x)
    h.retain_grad()
    h.register_hook(lambda g: seen.append(g.clone()))
    h.register_hook(lambda g: g * 2)
    k = h.exp()
    k.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g.neg())
    model.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    k.sum().backward()
    return gradients(model, x.grad, h.grad, *seen)


@program
def node_hooks() -> Result:
    x = torch.randn(4, requires_grad=True)
    seen: list[Tensor] = []
    h = x.exp()
    assert h.grad_fn is not None
    h.grad_fn.register_prehook(lambda g: (g[0] * 3,))
    h.grad_fn.register_hook(lambda gi, go: seen.extend([*gi, *go]))
    h.grad_fn.register_hook(lambda gi, _: (gi[0] - 1,))
    (h * x).sum().backward()
    return [x.grad, *seen]


@program
def broadcast_and_views() -> Result:
    x, y = torch.randn(3, 1, requires_grad=True), torch.randn(4, requires_grad=True)
    h = (x + y).view(2, 6)
    k = h.clone()
    k[:, 1:3] *= 2.0
    k[0].exp_()
    (k.t() @ h).sum().backward()
    return [x.grad, y.grad]


@program
def undefined_gradients() -> Result:
    x = torch.randn(4, 4, requires_grad=True)
    parts = x.unbind(0)
    values, _ = x.sort(dim=1)
    (parts[1] * values[2]).sum().backward()
    return [x.grad]


@program
def embedding_with_sparse_gradient() -> Result:
    table = nn.Embedding(10, 3, sparse=True)
    (table(torch.tensor([1, 4, 1])) + table(torch.tensor([4, 5, 9]))).sum().backward()
    return [table.weight.grad]


@program
def complex_numbers() -> Result:
    x = torch.randn(4, dtype=torch.complex64, requires_grad=True)
    y = torch.randn(4, requires_grad=True)
    torch.fft.fft(x * y).abs().sum().backward()
    return [x.grad, y.grad]


@program
def batched_gradients() -> Result:
    x = torch.randn(3, requires_grad=True)
    y = x.exp() * x
    return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


@program
def mixed_precision() -> Result:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 8)).float().pow(2).mean()
    loss.backward()
    return gradients(model)


@program
def accumulates_over_two_steps() -> Result:
    model = nn.Linear(3, 3)
    for _ in range(2):
        model(torch.randn(2, 3)).pow(3).sum().backward()
    return gradients(model)


@program
def retained_graph_twice() -> Result:
    x = torch.randn(3, requires_grad=True)
    y = x.exp().sin().sum()
    y.backward(retain_graph=True)
    y.backward()
    return [x.grad]
