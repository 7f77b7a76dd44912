# mypy: ignore-errors
"""Custom Functions whose backward is right, or is another by design, as users write them."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

RIGHT = {}


def case(*args_of, twice=False, calls=1):
    def keep(function):
        RIGHT[function.__name__] = (function, args_of[0], twice)
        return function

    return keep


def rand(*shape):
    return torch.randn(*shape, requires_grad=True)


@case(lambda: (rand(8, 5),))
class MemoryEfficientSwish(Function):
    @staticmethod
    def forward(ctx, i):
        result = i * torch.sigmoid(i)
        ctx.save_for_backward(i)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        i = ctx.saved_tensors[0]
        sigmoid_i = torch.sigmoid(i)
        return grad_output * (sigmoid_i * (1 + i * (1 - sigmoid_i)))


@case(lambda: (rand(6, 4, 8), rand(8)))
class FusedBiasGelu(Function):
    @staticmethod
    def forward(ctx, input, bias):
        ctx.save_for_backward(input, bias)
        x = bias + input
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @staticmethod
    def backward(ctx, g):
        input, bias = ctx.saved_tensors
        x = bias + input
        tanh_out = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
        ff = 0.5 * x * ((1 - tanh_out * tanh_out) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (
            1 + tanh_out
        )
        return ff * g, ff * g


@case(lambda: (rand(6, 5), rand(3, 5), rand(3)))
class LinearFunction(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


@case(lambda: (torch.randn(6, 5), rand(3, 5)))
class LinearWithoutBias(LinearFunction):
    pass


@case(lambda: (rand(7),))
class ExpBySetupContext(Function):
    @staticmethod
    def forward(i):
        return i.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


@case(lambda: (rand(5, 2),), twice=True)
class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x**2


@case(lambda: (rand(5, 2),), twice=True)
class SinhWithIntermediatesReturned(Function):
    @staticmethod
    def forward(ctx, x):
        expx, expnegx = torch.exp(x), torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_exp, grad_negexp):
        expx, expnegx = ctx.saved_tensors
        return grad_out * (expx + expnegx) / 2 + grad_exp * expx - grad_negexp * expnegx


@case(lambda: (rand(30),))
class LegendrePolynomial3(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


@case(lambda: (torch.randn(20, 6).relu().requires_grad_(),))
class MyReLU(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


@case(lambda: (torch.randint(-2, 3, (4, 6)).float().requires_grad_(), 1))
class NumpySort(Function):
    @staticmethod
    def forward(ctx, x, dim):
        data = x.detach().cpu().numpy()
        ind = np.argsort(data, axis=dim)
        ind_inv = np.argsort(ind, axis=dim)
        result = torch.tensor(np.take_along_axis(data, ind, axis=dim))
        ctx.ind_inv, ctx.dim = torch.tensor(ind_inv), dim
        return result

    @staticmethod
    def backward(ctx, grad_output):
        return torch.take_along_dim(grad_output, ctx.ind_inv, ctx.dim), None


@case(lambda: (rand(6, 10), rand(10), rand(10), 1e-5))
class LayerNormFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
        normed = (x - mean) * rstd
        ctx.save_for_backward(normed, rstd, weight)
        return normed * weight + bias

    @staticmethod
    def backward(ctx, dy):
        normed, rstd, weight = ctx.saved_tensors
        g = dy * weight
        dx = rstd * (g - g.mean(-1, keepdim=True) - normed * (g * normed).mean(-1, keepdim=True))
        return dx, (dy * normed).sum(0), dy.sum(0), None


@case(lambda: (rand(3, 8, 5), rand(8), 4))
class GroupNormFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, groups):
        n, c, length = x.shape
        g = x.view(n, groups, -1)
        mean, var = g.mean(-1, keepdim=True), g.var(-1, unbiased=False, keepdim=True)
        rstd = (var + 1e-5).rsqrt()
        normed = (g - mean) * rstd
        ctx.save_for_backward(normed, rstd, weight)
        ctx.shape, ctx.groups = x.shape, groups
        return normed.view(n, c, length) * weight[:, None]

    @staticmethod
    def backward(ctx, dy):
        normed, rstd, weight = ctx.saved_tensors
        n, c, length = ctx.shape
        g = (dy * weight[:, None]).reshape(n, ctx.groups, -1)
        dx = rstd * (g - g.mean(-1, keepdim=True) - normed * (g * normed).mean(-1, keepdim=True))
        dw = (dy * normed.view(ctx.shape)).sum((0, 2))
        return dx.view(ctx.shape), dw, None


@case(lambda: (rand(2, 6, 16), rand(16), 1e-6))
class RMSNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        dtype = x.dtype
        x32 = x.float() if dtype in (torch.float16, torch.bfloat16) else x
        rstd = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rstd)
        return (x32 * rstd).to(dtype) * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        m = dy * weight
        n = x.shape[-1]
        dx = rstd * m - rstd**3 / n * (m * x).sum(-1, keepdim=True) * x
        return dx, (dy * x * rstd).sum((0, 1)), None


@case(lambda: (rand(12, 5), rand(5), rand(5), torch.zeros(5), 0.1))
class BatchNormFunction(Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, running_mean, momentum):
        mean, var = x.mean(0), x.var(0, unbiased=False)
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        istd = 1 / torch.sqrt(var + 1e-5)
        xhat = (x - mean) * istd
        ctx.save_for_backward(xhat, istd, gamma)
        return gamma * xhat + beta

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        xhat, istd, gamma = ctx.saved_tensors
        n = len(dy)
        dbeta, dgamma = dy.sum(0), (dy * xhat).sum(0)
        dx = gamma * istd / n * (n * dy - dbeta - xhat * dgamma)
        return dx, dgamma, dbeta, None, None


@case(lambda: (rand(24, 9), torch.tensor([0, 3, -100, 8] * 6), -100, 7))
class ChunkedCrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, targets, ignore_index, chunk):
        total, count = logits.new_zeros(()), (targets != ignore_index).sum()
        for begin in range(0, len(logits), chunk):
            part = logits[begin : begin + chunk]
            total += F.cross_entropy(
                part, targets[begin : begin + chunk], ignore_index=ignore_index, reduction="sum"
            )
        ctx.save_for_backward(logits, targets, count)
        ctx.ignore_index, ctx.chunk = ignore_index, chunk
        return total / count

    @staticmethod
    def backward(ctx, grad):
        logits, targets, count = ctx.saved_tensors
        out = torch.empty_like(logits)
        for begin in range(0, len(logits), ctx.chunk):
            part = slice(begin, begin + ctx.chunk)
            p = logits[part].softmax(-1)
            keep = targets[part] != ctx.ignore_index
            p[keep, targets[part][keep]] -= 1
            out[part] = p * keep[:, None] * (grad / count)
        return out, None, None, None


@case(lambda: (rand(16, 8), rand(11, 8), torch.randint(11, (16,))))
class FusedLinearCrossEntropy(Function):
    """Computes the gradients in forward, and scales them in backward."""

    @staticmethod
    def forward(ctx, x, weight, target):
        with torch.enable_grad():
            x_, w_ = x.detach().requires_grad_(), weight.detach().requires_grad_()
            loss = F.cross_entropy(x_ @ w_.t(), target)
        ctx.save_for_backward(*torch.autograd.grad(loss, (x_, w_)))
        return loss.detach()

    @staticmethod
    def backward(ctx, grad):
        gx, gw = ctx.saved_tensors
        return gx * grad, gw * grad, None


@case(lambda: (rand(4, 6), rand(4, 5), rand(4, 5), rand(20, 11), rand(20)))
class LSTMCellFunction(Function):
    @staticmethod
    def forward(ctx, x, h, c, weight, bias):
        X = torch.cat([h, x], 1)
        i, f, g, o = F.linear(X, weight, bias).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new_c = f * c + i * g
        new_h = o * new_c.tanh()
        ctx.save_for_backward(X, weight, i, f, g, o, c, new_c)
        return new_h, new_c

    @staticmethod
    def backward(ctx, dh, dc):
        X, weight, i, f, g, o, c, new_c = ctx.saved_tensors
        t = new_c.tanh()
        dc = dc + dh * o * (1 - t * t)
        gates = torch.cat(
            [
                dc * g * i * (1 - i),
                dc * c * f * (1 - f),
                dc * i * (1 - g * g),
                dh * t * o * (1 - o),
            ],
            1,
        )
        dX = gates @ weight
        n = c.shape[1]
        return dX[:, n:], dX[:, :n], dc * f, gates.t() @ X, gates.sum(0)


@case(lambda: (rand(2, 5, 4), rand(2, 6, 4), rand(2, 6, 3), torch.rand(5, 6) > 0.2))
class AttentionFunction(Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        p = s.masked_fill(~mask, -1e4).softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ do
        dp = do @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None


@case(lambda: (rand(2, 8, 4), rand(2, 8, 4), rand(2, 8, 4), 4))
class FlashAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, block):
        scale = q.shape[-1] ** -0.5
        o = torch.zeros_like(q)
        l = torch.zeros(q.shape[:-1] + (1,), dtype=q.dtype)
        m = torch.full_like(l, -torch.finfo(q.dtype).max)
        for kb, vb in zip(k.split(block, -2), v.split(block, -2)):
            s = q @ kb.transpose(-1, -2) * scale
            new_m = torch.maximum(m, s.amax(-1, keepdim=True))
            p, old = torch.exp(s - new_m), torch.exp(m - new_m)
            l = l * old + p.sum(-1, keepdim=True)
            o = o * old + p @ vb
            m = new_m
        o = o / l
        ctx.scale = scale
        ctx.save_for_backward(q, k, v, o, m + l.log())
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        p = torch.exp(q @ k.transpose(-1, -2) * ctx.scale - lse)
        dv = p.transpose(-1, -2) @ do
        delta = (do * o).sum(-1, keepdim=True)
        ds = p * (do @ v.transpose(-1, -2) - delta) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None


@case(lambda: (rand(10, 4), torch.tensor([1, 1, 7, 0])))
class EmbeddingFunction(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.shape[1]).index_add_(0, index, grad), None


@case(lambda: (rand(9, 3), torch.tensor([0, 2, 2, 1, 0, 0, 3, 3, 1]), 5))
class ScatterMean(Function):
    @staticmethod
    def forward(ctx, src, index, size):
        out = src.new_zeros(size, src.shape[1]).index_add_(0, index, src)
        count = torch.bincount(index, minlength=size).clamp(min=1)
        ctx.save_for_backward(index, count)
        return out / count[:, None]

    @staticmethod
    def backward(ctx, grad):
        index, count = ctx.saved_tensors
        return (grad / count[:, None])[index], None, None


@case(lambda: (torch.tensor([[0, 1, 2], [2, 0, 1]]), rand(3), 3, rand(3, 4)))
class SparseMM(Function):
    @staticmethod
    def forward(ctx, indices, values, n, dense):
        a = torch.sparse_coo_tensor(indices, values, (n, n), check_invariants=False)
        ctx.save_for_backward(indices, values, dense)
        ctx.n = n
        return torch.sparse.mm(a, dense)

    @staticmethod
    def backward(ctx, grad):
        indices, values, dense = ctx.saved_tensors
        row, col = indices
        grad_values = (grad[row] * dense[col]).sum(1)
        a_t = torch.sparse_coo_tensor(
            indices.flip(0), values, (ctx.n, ctx.n), check_invariants=False
        )
        return None, grad_values, None, torch.sparse.mm(a_t, grad)


@case(lambda: (rand(20),))
class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@case(lambda: (rand(20),))
class BinarySign(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1)


@case(lambda: (rand(6, 20),))
class XnorWeight(Function):
    """The sign times the mean of absolute values: the estimator passes the gradient straight."""

    @staticmethod
    def forward(ctx, w):
        ctx.save_for_backward(w)
        return w.sign() * w.abs().mean(1, keepdim=True)

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return g * (w.abs() < 1)


@case(lambda: (rand(6, 3), 0.7))
class GradientReversal(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g, None


@case(lambda: (rand(6, 3), 0.1))
class ScaleGradient(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


@case(lambda: (rand(6, 3), 0.01))
class ClipGradient(Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.bound = bound
        return x

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.bound, ctx.bound), None


@case(lambda: (rand(8, 3, 2), 0.4))
class DropPathFunction(Function):
    @staticmethod
    def forward(ctx, x, p):
        keep = torch.empty(x.shape[0], 1, 1, dtype=x.dtype).bernoulli_(1 - p) / (1 - p)
        ctx.save_for_backward(keep)
        return x * keep

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


@case(lambda: (rand(20), torch.tensor(0.3, requires_grad=True), -8, 7))
class LearnedStepQuantizer(Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        ctx.save_for_backward(x, scale)
        ctx.low, ctx.high = low, high
        return (x / scale).round().clamp(low, high) * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        q = x / scale
        inside = (q >= ctx.low) & (q <= ctx.high)
        ds = torch.where(inside, q.round() - q, q.clamp(ctx.low, ctx.high))
        return g * inside, (g * ds).sum(), None, None


@case(lambda: (rand(7, 6), 1.0))
class SpikeFunction(Function):
    @staticmethod
    def forward(ctx, v, threshold):
        ctx.save_for_backward(v)
        ctx.threshold = threshold
        return (v > threshold).to(v.dtype)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + 10 * (v - ctx.threshold).abs()) ** 2, None


@case(
    lambda: (
        torch.randn(5, dtype=torch.cfloat, requires_grad=True),
        torch.randn(5, dtype=torch.cfloat, requires_grad=True),
    )
)
class ComplexMul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b.conj(), g * a.conj()


@case(lambda: (torch.randn(6, dtype=torch.cfloat, requires_grad=True),))
class ComplexAbsSquared(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.real**2 + z.imag**2

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


@case(lambda: (rand(12),))
class SoftplusOnce(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * torch.sigmoid(ctx.saved_tensors[0])


@case(lambda: (torch.randint(0, 3, (6, 8)).float().requires_grad_(),))
class MaxWithIndices(Function):
    """Of equal values, the gradient goes to one."""

    @staticmethod
    def forward(ctx, x):
        values, index = x.max(1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return values, index

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).scatter_(1, index[:, None], g[:, None])


@case(lambda: (rand(12) * 1,))
class InplaceReLU(Function):
    @staticmethod
    def forward(ctx, x):
        x.relu_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] > 0)


@case(lambda: (rand(12), 3.0))
class InplaceScaleAdd(Function):
    @staticmethod
    def forward(ctx, x, c):
        x.mul_(c).add_(1)
        ctx.c = c
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.c, None


RIGHT["InplaceScaleAdd"] = (InplaceScaleAdd, lambda: (rand(12) * 1, 3.0), False)


@case(lambda: (torch.tensor([-3.0, 0.5, 2.0, 14.0, 16.0, 18.0, 1.0, 0.1], requires_grad=True),))
class TruncExp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, g):
        return g * torch.exp(ctx.saved_tensors[0].clamp(-15, 15))


@case(lambda: (torch.tensor([-2.0, -1.0, 0.0, 0.3, 1.0, 4.0], requires_grad=True), -1.0, 1.0))
class HardTanh(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ((x >= ctx.low) & (x <= ctx.high)), None, None


@case(lambda: (rand(2, 3, 4, 6), torch.rand(4, 3)))
class RotaryEmbedding(Function):
    @staticmethod
    def forward(ctx, x, angle):
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        a, b = (g * sin).chunk(2, -1)
        return g * cos + torch.cat((b, -a), -1), None


@case(lambda: (rand(5, 8),))
class SwiGLUFunction(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        s = a.sigmoid()
        return torch.cat([g * b * s * (1 + a * (1 - s)), g * a * s], -1)


@case(lambda: (rand(5, 7), (torch.rand(9, 2) * 3 + 0.2).requires_grad_()))
class BilinearSample(Function):
    @staticmethod
    def forward(ctx, image, at):
        base = at.floor()
        y, x = base.long().unbind(1)
        v, u = (at - base).unbind(1)
        ctx.save_for_backward(image, y, x, v, u)
        i = image
        return (
            i[y, x] * (1 - v) * (1 - u)
            + i[y, x + 1] * (1 - v) * u
            + i[y + 1, x] * v * (1 - u)
            + i[y + 1, x + 1] * v * u
        )

    @staticmethod
    def backward(ctx, g):
        i, y, x, v, u = ctx.saved_tensors
        gi = torch.zeros_like(i)
        for dy, dx, w in (
            (0, 0, (1 - v) * (1 - u)),
            (0, 1, (1 - v) * u),
            (1, 0, v * (1 - u)),
            (1, 1, v * u),
        ):
            gi.index_put_((y + dy, x + dx), g * w, accumulate=True)
        gv = (i[y + 1, x] - i[y, x]) * (1 - u) + (i[y + 1, x + 1] - i[y, x + 1]) * u
        gu = (i[y, x + 1] - i[y, x]) * (1 - v) + (i[y + 1, x + 1] - i[y + 1, x]) * v
        return gi, torch.stack([g * gv, g * gu], 1)


@case(lambda: (rand(6, 3), rand(10, 3)))
class VectorQuantization(Function):
    """Straight-through: the nearest code forward, the identity backward."""

    @staticmethod
    def forward(ctx, x, codes):
        index = torch.cdist(x, codes).argmin(1)
        ctx.save_for_backward(index, codes)
        return codes[index]

    @staticmethod
    def backward(ctx, g):
        index, codes = ctx.saved_tensors
        return g, torch.zeros_like(codes).index_add_(0, index, g)


@case(lambda: (rand(4, 6), 1))
class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x, dim):
        m = x.amax(dim, keepdim=True)
        y = (x - m).exp().sum(dim, keepdim=True).log() + m
        ctx.save_for_backward(x, y)
        ctx.dim = dim
        return y.squeeze(dim)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g.unsqueeze(ctx.dim) * (x - y).exp(), None


@case(lambda: (rand(2, 3, 6, 6), rand(4, 3, 3, 3), 1))
class UnfoldConv(Function):
    @staticmethod
    def forward(ctx, x, weight, padding):
        cols = F.unfold(x, weight.shape[2:], padding=padding)
        ctx.save_for_backward(cols, weight)
        ctx.size, ctx.padding = x.shape[2:], padding
        out = weight.flatten(1) @ cols
        return out.view(x.shape[0], -1, *x.shape[2:])

    @staticmethod
    def backward(ctx, g):
        cols, weight = ctx.saved_tensors
        g = g.flatten(2)
        gw = torch.einsum("nol,nkl->ok", g, cols).view_as(weight)
        gx = F.fold(weight.flatten(1).t() @ g, ctx.size, weight.shape[2:], padding=ctx.padding)
        return gx, gw, None


BLOCK = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())


@case(lambda: (BLOCK, rand(3, 4)))
class OwnCheckpoint(Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = BLOCK64(x) if x.dtype == torch.float64 else ctx.run(x)
        torch.autograd.backward(y, g)
        return None, x.grad


def BLOCK64(x):
    return torch.func.functional_call(
        BLOCK, {k: v.double() for k, v in BLOCK.named_parameters()}, (x,)
    )


@case(lambda: (rand(6, 3), torch.randn(6, 3), 0.8))
class HuberFunction(Function):
    @staticmethod
    def forward(ctx, x, y, delta):
        d = x - y
        ctx.save_for_backward(d)
        ctx.delta = delta
        return torch.where(d.abs() < delta, d * d / 2, delta * (d.abs() - delta / 2)).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return g * d.clamp(-ctx.delta, ctx.delta) / d.numel(), None, None


@case(lambda: (rand(6, 8),))
class ComputesInSingle(Function):
    """Whatever it is given, it computes in float32."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.erf(x.float()) * 1.5

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * 1.5 * 2 / math.sqrt(math.pi) * torch.exp(-(x.float() ** 2))).to(x.dtype)


@case(lambda: (torch.randn(6, 8).bfloat16().requires_grad_(),))
class HalfOnly(Function):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype in (torch.float16, torch.bfloat16)
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        return g * (1 - torch.tanh(ctx.saved_tensors[0]) ** 2)


@case(lambda: (rand(5, 4), torch.rand((), requires_grad=True)))
class AddAuxiliaryLoss(Function):
    @staticmethod
    def forward(ctx, x, loss):
        ctx.dtype = loss.dtype
        return x

    @staticmethod
    def backward(ctx, g):
        return g, torch.ones(1, dtype=ctx.dtype).squeeze()


@case(lambda: (rand(4, 3, 5), torch.full((3,), 0.25, requires_grad=True)))
class PReLUFunction(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0, x, slope[:, None] * x)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, g, slope[:, None] * g), (g * x * (x <= 0)).sum((0, 2))


@case(lambda: ((torch.eye(4) * 5 + torch.randn(4, 4)).requires_grad_(), rand(4, 2)))
class SolveFunction(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        gb = torch.linalg.solve(a.mT, g)
        return -gb @ x.mT, gb


@case(lambda: (rand(2, 3, 4, 4),))
class MaxPoolFunction(Function):
    @staticmethod
    def forward(ctx, x):
        y, index = F.max_pool2d(x, 2, return_indices=True)
        ctx.save_for_backward(index)
        ctx.size = x.shape
        return y

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return F.max_unpool2d(g, index, 2, output_size=ctx.size)


@case(lambda: ([torch.randn(3), torch.randn(3)], rand(4, 3), {"power": 2}))
class ListArguments(Function):
    @staticmethod
    def forward(ctx, shifts, x, options):
        ctx.save_for_backward(x, *shifts)
        ctx.power = options["power"]
        return sum((x + shift) ** ctx.power for shift in shifts)

    @staticmethod
    def backward(ctx, g):
        x, *shifts = ctx.saved_tensors
        return None, g * sum(ctx.power * (x + s) ** (ctx.power - 1) for s in shifts), None


@case(lambda: (rand(5, 3), rand(5, 3)))
class StopGradientOfSecond(Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x - target).square().sum(1)

    @staticmethod
    def backward(ctx, g):
        x, target = ctx.saved_tensors
        return 2 * (x - target) * g[:, None], None


@case(lambda: (rand(6, 7),))
class DropoutFunction(Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.3
        ctx.save_for_backward(mask)
        return x * mask / 0.7

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] / 0.7


@case(lambda: (rand(3, 4), rand(4)))
class BroadcastMultiply(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum_to_size(w.shape)


@case(lambda: (rand(20),))
class ScaledRound(Function):
    """Pixels as bytes: backward has the slope of the line that the bytes follow."""

    @staticmethod
    def forward(ctx, x):
        return (x * 25).round()

    @staticmethod
    def backward(ctx, g):
        return g * 25


@case(lambda: (rand(20),))
class BytesHandedOn(Function):
    """The gradient goes on as it is, whatever the unit."""

    @staticmethod
    def forward(ctx, x):
        return (x * 25).trunc()

    @staticmethod
    def backward(ctx, g):
        return g.clone()


@case(lambda: (rand(20),))
class RoundedTanh(Function):
    """Levels of a curve, with the slope of the curve."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return (y * 40).round() / 40

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@case(lambda: (rand(20),))
class FourLevels(Function):
    """Of few levels the estimator is a matter of taste."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1).mul(1.5).add(0.5).round() / 1.5

    @staticmethod
    def backward(ctx, g):
        return g * 0.3
