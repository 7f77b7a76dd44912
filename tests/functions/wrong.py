# mypy: ignore-errors
"""Custom Functions whose backward is wrong, each with the arguments whose gradient it is."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function

from tests.functions import right

WRONG = {}


def case(args_of, *names, twice=False):
    def keep(function):
        WRONG[function.__name__] = (function, args_of, names, twice)
        return function

    return keep


rand = right.rand


@case(lambda: (rand(8, 5),), "x")
class SwishWithoutProductRule(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, g):
        s = ctx.saved_tensors[0].sigmoid()
        return g * s


@case(lambda: (rand(6, 5), rand(5, 5), rand(5)), "input")
class LinearTransposed(right.LinearFunction):
    @staticmethod
    def forward(ctx, input, weight, bias):
        return right.LinearFunction.forward(ctx, input, weight, bias)

    @staticmethod
    def backward(ctx, g):
        input, weight, _ = ctx.saved_tensors
        return g.mm(weight.t()), g.t().mm(input), g.sum(0)


@case(lambda: (rand(6, 5), rand(5)), "bias")
class BiasAveraged(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, g):
        return g, g.mean(0)


@case(lambda: (rand(6, 3), torch.randn(6, 3)), "x")
class MseForgetsMean(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x - y).square().mean()

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 2 * (x - y), None


@case(lambda: (rand(9),), "x")
class SigmoidOfInput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sigmoid()

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


@case(lambda: (rand(6, 4),), "x")
class ReluMaskInverted(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x <= 0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask


@case(lambda: (rand(6, 10), rand(10), rand(10), 1e-5), "x")
class LayerNormStatisticsConstant(right.LayerNormFunction):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        return right.LayerNormFunction.forward(ctx, x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        normed, rstd, weight = ctx.saved_tensors
        return dy * weight * rstd, (dy * normed).sum(0), dy.sum(0), None


@case(lambda: (rand(2, 6, 16), rand(16), 1e-6), "x")
class RmsNormMeanForgotten(right.RMSNorm):
    @staticmethod
    def forward(ctx, x, weight, eps):
        return right.RMSNorm.forward(ctx, x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        m = dy * weight
        dx = rstd * m - rstd**3 * (m * x).sum(-1, keepdim=True) * x
        return dx, (dy * x * rstd).sum((0, 1)), None


@case(lambda: (rand(24, 9), torch.tensor([0, 3, -100, 8] * 6)), "logits")
class CrossEntropyDividesByAll(Function):
    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits, target)
        return F.cross_entropy(logits, target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        keep = target != -100
        p = logits.softmax(-1)
        p[keep, target[keep]] -= 1
        return g * p * keep[:, None] / len(target), None


@case(lambda: (rand(5, 4),))
class WritesToIncoming(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2 * ctx.saved_tensors[0])


@case(lambda: (rand(5, 4),))
class KeptOnTheClass(Function):
    @staticmethod
    def forward(ctx, x):
        KeptOnTheClass.x = x
        return x.square()

    @staticmethod
    def backward(ctx, g):
        return g * 2 * KeptOnTheClass.x


@case(lambda: (rand(2, 5, 4), rand(2, 6, 4), rand(2, 6, 3), torch.rand(5, 6) > 0.2), "q", "k")
class AttentionScaleForgotten(right.AttentionFunction):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        return right.AttentionFunction.forward(ctx, q, k, v, mask)

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dp = do @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ do, None


@case(lambda: (rand(5, 7),), "x")
class SoftmaxDiagonalOnly(Function):
    @staticmethod
    def forward(ctx, x):
        p = x.softmax(-1)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return g * p * (1 - p)


@case(lambda: (torch.randn(6, 5), nn.Parameter(torch.randn(3, 5))), "weight")
class AsksForTheWrongInput(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = g @ weight
            gw = g.t() @ x
        return gx, gw


@case(
    lambda: (
        torch.randn(5, dtype=torch.cfloat, requires_grad=True),
        torch.randn(5, dtype=torch.cfloat, requires_grad=True),
    ),
    "a",
    "b",
)
class ComplexWithoutConjugate(right.ComplexMul):
    @staticmethod
    def forward(ctx, a, b):
        return right.ComplexMul.forward(ctx, a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a


@case(lambda: (rand(10, 4), torch.tensor([1, 1, 7, 0])), "table")
class EmbeddingOverwrites(right.EmbeddingFunction):
    @staticmethod
    def forward(ctx, table, index):
        return right.EmbeddingFunction.forward(ctx, table, index)

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        out = grad.new_zeros(ctx.rows, grad.shape[1])
        out[index] = grad
        return out, None


@case(lambda: (rand(4, 6), rand(4, 5), rand(4, 5), rand(20, 11), rand(20)), "c")
class LstmForgetsTheCell(right.LSTMCellFunction):
    @staticmethod
    def forward(ctx, x, h, c, weight, bias):
        return right.LSTMCellFunction.forward(ctx, x, h, c, weight, bias)

    @staticmethod
    def backward(ctx, dh, dc):
        dx, dh_, _, dw, db = right.LSTMCellFunction.backward(ctx, dh, dc)
        f, o, new_c = ctx.saved_tensors[3], ctx.saved_tensors[5], ctx.saved_tensors[7]
        return dx, dh_, dh * o * (1 - new_c.tanh() ** 2) * f, dw, db


@case(lambda: (rand(3, 8),), "x")
class CumsumNotReversed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx, g):
        return g.cumsum(-1)


@case(lambda: (rand(2, 3, 4, 6), torch.rand(4, 3)), "x")
class RotaryRotatesForward(right.RotaryEmbedding):
    @staticmethod
    def forward(ctx, x, angle):
        return right.RotaryEmbedding.forward(ctx, x, angle)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        a, b = g.chunk(2, -1)
        return g * cos + torch.cat((-b, a), -1) * sin, None


@case(lambda: (rand(5, 6), 0.1), "x")
class LeakyOnTheWrongSide(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, ctx.slope * g, g), None


@case(lambda: (rand(5, 2),), twice=True)
class SavedIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.e = torch.exp(-x.square())
        ctx.save_for_backward(x)
        return ctx.e.clone()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -2 * x * ctx.e * g


@case(lambda: (rand(5, 8),), "x")
class SwiGluForgetsTheGate(right.SwiGLUFunction):
    @staticmethod
    def forward(ctx, x):
        return right.SwiGLUFunction.forward(ctx, x)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        return torch.cat([g * b * a.sigmoid(), g * F.silu(a)], -1)


@case(lambda: (rand(6, 7),), "x")
class DropoutNotScaled(Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.3
        ctx.save_for_backward(mask)
        return x * mask / 0.7

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@case(lambda: (rand(4, 3, 5), torch.full((3,), 0.25, requires_grad=True)), "slope")
class PReluSlopeOfBothSides(right.PReLUFunction):
    @staticmethod
    def forward(ctx, x, slope):
        return right.PReLUFunction.forward(ctx, x, slope)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, g, slope[:, None] * g), (g * x).sum((0, 2))


@case(lambda: (rand(6),), "i")
class ExpSavesInput(Function):
    @staticmethod
    def forward(i):
        return i.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        return g * result


@case(lambda: (rand(7, 3), torch.randn(7, 3)), "a")
class HuberWithoutSign(Function):
    @staticmethod
    def forward(ctx, a, b):
        d = a - b
        ctx.save_for_backward(d)
        return torch.where(d.abs() < 1, d * d / 2, d.abs() - 0.5).sum()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].abs().clamp(max=1), None


@case(lambda: (rand(7, 3), rand(7, 3)), "a", "b")
class DistanceSwapped(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a - b).square().sum(-1)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        d = 2 * (a - b) * g[:, None]
        return -d, d


@case(lambda: (rand(2, 3, 4, 4),), "x")
class AveragePoolNotDivided(Function):
    @staticmethod
    def forward(ctx, x):
        return F.avg_pool2d(x, 2)

    @staticmethod
    def backward(ctx, g):
        return g.repeat_interleave(2, -1).repeat_interleave(2, -2)


@case(lambda: (torch.rand(12).add(0.5).requires_grad_(),), "x")
class LogBaseTwo(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log2(x)

    @staticmethod
    def backward(ctx, g):
        return g / ctx.saved_tensors[0]


@case(lambda: (rand(6, 4), rand(4, 3)), "b")
class MatmulSecondOfFirst(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.tanh(a @ b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        inner = g * (1 - torch.tanh(a @ b) ** 2)
        return inner @ b.t(), a.t() @ g


@case(lambda: (rand(8, 5),), "x")
class LogSumExpOfItself(Function):
    @staticmethod
    def forward(ctx, x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        ctx.save_for_backward(e / e.sum(-1, keepdim=True))
        return x.logsumexp(-1)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p


@case(lambda: (rand(6, 4), rand(4, 4)), "weight, which forward was given")
class StepsInBackward(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        step = x.t() @ g
        weight.data.add_(step, alpha=-0.1)
        return g @ weight.t(), step


@case(lambda: (rand(20),), "x by a wrong factor")
class RoundedToTenths(Function):
    @staticmethod
    def forward(ctx, x):
        return (x / 0.1).round() * 0.1

    @staticmethod
    def backward(ctx, g):
        return g * 0.1


@case(lambda: (rand(3, 2, 5), 15), "wave by a wrong factor")
class Companded(Function):
    """Samples of a sound in levels, of which only those within bounds get a gradient."""

    @staticmethod
    def forward(ctx, wave, levels):
        ctx.save_for_backward(wave)
        ctx.levels = levels
        return torch.floor(wave.clamp(-4, 4) * levels + 0.5) / levels

    @staticmethod
    def backward(ctx, g):
        (wave,) = ctx.saved_tensors
        return g * (wave.abs() <= 4) * ctx.levels, None
