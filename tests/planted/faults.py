"""Programs with one planted fault each: which sample and which position is data.

A kind draws the sizes, the layers and the place from a seed. With ``is_planted=False`` the same
program is drawn with nothing wrong at that one place: there all gradients are finite, which torch
itself says (:func:`is_finite`).
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - as users call it
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Expected(NamedTuple):
    """Where the fault is."""

    sample: int
    position: tuple[int, ...] = ()
    """Token, pixel or step of the sample; empty: the fault is in the whole sample."""
    column: int | None = None
    """Class, channel or feature; None: it is in all of them."""


class Program(NamedTuple):
    """A program with a fault."""

    loss: Callable[[], Tensor]
    """Computes what backward is called on."""
    model: nn.Module | None
    """None: its parameters are plain tensors."""
    parameters: list[Tensor]
    expected: Expected
    breaks_forward: bool
    """Whether something in the forward is not finite, or else the gradients only."""


class Draw:
    """What a kind draws from."""

    def __init__(self, kind: str, seed: int, *, is_planted: bool) -> None:
        self._random = random.Random(f"{kind} {seed}")
        self.is_planted = is_planted

    def size(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def below(self, end: int) -> int:
        return self._random.randrange(end)

    def one_of(self, *things: Any) -> Any:
        return self._random.choice(things)

    def order(self, count: int) -> list[int]:
        return self._random.sample(range(count), count)


class Net(nn.Module):
    """Parts, and a function that calls them."""

    def __init__(self, call: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._call = call

    def forward(self, *data: Any, **named: Any) -> Tensor:
        return self._call(self, *data, **named)


def program(
    model: nn.Module,
    data: tuple[Any, ...],
    loss: Callable[[Tensor], Tensor],
    expected: Expected,
    *,
    breaks_forward: bool = False,
) -> Program:
    """A model that is called with data, and a loss of what it gives."""
    found: list[Tensor] = list(model.parameters())
    return Program(lambda: loss(model(*data)), model, found, expected, breaks_forward)


def length(tensor: Tensor, dim: int = -1) -> Tensor:
    return tensor.pow(2).sum(dim).sqrt()


def beside_teacher(draw: Draw, state: Tensor, *place: int, dim: int = -1) -> Tensor:
    """Distances to a state of which one is 0."""
    generator = torch.Generator().manual_seed(7)
    apart = torch.randn(state.shape, generator=generator) + 3
    if draw.is_planted:
        apart[place] = 0
    return length(state - (state.detach() - apart), dim)


# -- convolutions ---------------------------------------------------------------------------------


class Conv(NamedTuple):
    """A convolution along one axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    def taps(self, out: int) -> list[int]:
        first = out * self.stride - self.padding
        return [first + tap * self.dilation for tap in range(self.kernel)]

    def length(self, given: int) -> int:
        return (given + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def inside(self, draw: Draw, given: int) -> int:
        """A place whose taps are all inside, and not those of another place."""
        outs = range(self.length(given))
        seen = [{tap for tap in self.taps(out) if 0 <= tap < given} for out in outs]
        good = [
            out
            for out in outs
            if len(seen[out]) == self.kernel
            and not any(seen[other] <= seen[out] for other in outs if other != out)
        ]
        return int(draw.one_of(*good))


def drawn_conv(draw: Draw) -> Conv:
    kernel = draw.one_of(1, 2, 3, 3, 5)
    return Conv(kernel, draw.one_of(1, 1, 2), draw.below(kernel // 2 + 1), draw.one_of(1, 1, 2))


def channels(draw: Draw) -> tuple[int, int, int]:
    groups = draw.one_of(1, 1, 2)
    return groups * draw.size(1, 3), groups * draw.size(1, 4), groups


def conv_length(draw: Draw) -> Program:
    conv, (given, made, groups) = drawn_conv(draw), channels(draw)
    samples, height, width = draw.size(2, 7), draw.size(12, 17), draw.size(12, 17)
    sample, y, x = draw.below(samples), conv.inside(draw, height), conv.inside(draw, width)
    images = torch.randn(samples, given, height, width)
    if draw.is_planted:
        for row in conv.taps(y):
            images[sample, :, row, conv.taps(x)] = 0
    model = Net(
        lambda net, images: length(net.conv(images), 1),
        conv=nn.Conv2d(given, made, *conv, groups=groups, bias=False),
    )
    return program(model, (images,), Tensor.mean, Expected(sample, (y, x)))


def conv_stack_log(draw: Draw) -> Program:
    given, width, made = draw.size(1, 3), draw.size(2, 5), draw.size(1, 3)
    samples, height, wide = draw.size(2, 7), draw.size(11, 15), draw.size(11, 15)
    second = draw.one_of(1, 2)
    sample = draw.below(samples)
    y, x = (draw.size(1, (side - 5) // second) for side in (height, wide))
    images = torch.randn(samples, given, height, wide)
    if draw.is_planted:  # what the second sees at y, x is three by three, of five by five pixels
        rows = slice(y * second, y * second + 5)
        images[sample, :, rows, x * second : x * second + 5] = 0
    model = Net(
        lambda net, images: net.second(torch.tanh(net.first(images))).pow(2).sum(1).log(),
        first=nn.Conv2d(given, width, 3, bias=False),
        second=nn.Conv2d(width, made, 3, stride=second, bias=False),
    )
    expected = Expected(sample, (y, x))
    return program(model, (images,), lambda out: -out.mean(), expected, breaks_forward=True)


def conv1d_length(draw: Draw) -> Program:
    conv, (given, made, groups) = drawn_conv(draw), channels(draw)
    samples, steps = draw.size(2, 9), draw.size(13, 30)
    sample, step = draw.below(samples), conv.inside(draw, steps)
    sounds = torch.randn(samples, given, steps)
    if draw.is_planted:
        sounds[sample, :, conv.taps(step)] = 0
    is_last = draw.one_of(True, False)

    def call(net: Any, sounds: Tensor) -> Tensor:
        out = net.conv(sounds.transpose(1, 2) if is_last else sounds)
        return length(out.transpose(1, 2)) if is_last else length(out, 1)

    data = sounds.transpose(1, 2).contiguous() if is_last else sounds
    model = Net(
        call,
        conv=nn.Conv1d(given, made, *conv, groups=groups, bias=False),
    )
    return program(model, (data,), Tensor.mean, Expected(sample, (step,)))


def conv_nan_pixel(draw: Draw) -> Program:
    samples, given, side = draw.size(2, 7), draw.size(1, 3), draw.size(8, 13)
    sample, channel, y, x = (draw.below(end) for end in (samples, given, side, side))
    images = torch.randn(samples, given, side, side)
    if draw.is_planted:
        images[sample, channel, y, x] = torch.nan
    classes = torch.randint(0, 5, (samples,))
    model = nn.Sequential(
        nn.Conv2d(given, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    expected = Expected(sample, (y, x), channel)
    return program(
        model,
        (images,),
        lambda out: F.cross_entropy(out, classes),
        expected,
        breaks_forward=True,
    )


def segmentation_log(draw: Draw) -> Program:
    samples, given, kinds = draw.size(2, 6), draw.size(2, 4), draw.size(3, 6)
    height, width = draw.size(5, 9), draw.size(5, 9)
    sample, y, x = draw.below(samples), draw.below(height), draw.below(width)
    images = torch.randn(samples, given, height, width)
    target = torch.randint(1, kinds, (samples, height, width))
    conv = nn.Conv2d(given, kinds, 1)
    with torch.no_grad():
        conv.weight.mul_(0.1)
        conv.weight[0, 0] = 1
        if draw.is_planted:
            images[sample, 0, y, x] = 1e4

    def loss(out: Tensor) -> Tensor:
        chosen = out.softmax(1).gather(1, target.unsqueeze(1)).squeeze(1)
        return -chosen.log().mean()

    expected = Expected(sample, (y, x))
    return program(nn.Sequential(conv), (images,), loss, expected, breaks_forward=True)


def frames(draw: Draw) -> Program:
    samples, count, given, side = draw.size(2, 5), draw.size(3, 6), draw.size(1, 3), 8
    sample, frame = draw.below(samples), draw.below(count)
    videos = torch.randn(samples, count, given, side, side)
    if draw.is_planted:
        videos[sample, frame] = 0

    def call(net: Any, videos: Tensor) -> Tensor:
        out = net.conv(videos.flatten(0, 1)).tanh().mean((2, 3))
        return length(out).view(samples, count)

    model = Net(call, conv=nn.Conv2d(given, 5, 3, bias=False))
    return program(model, (videos,), Tensor.mean, Expected(sample, (frame,)))


# -- attention ------------------------------------------------------------------------------------


def masked_row(draw: Draw) -> Program:
    samples, tokens, heads, width = draw.size(2, 6), draw.size(4, 9), draw.one_of(1, 2, 4), 8
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    mask = torch.rand(samples, 1, tokens, tokens) < 0.3
    mask[..., 0] = False
    if draw.is_planted:
        mask[sample, 0, token] = True
    scale = (width // heads) ** 0.5

    def call(net: Any, states: Tensor, mask: Tensor) -> Tensor:
        def split(out: Tensor) -> Tensor:
            return out.view(samples, tokens, heads, -1).transpose(1, 2)

        query, key, value = map(split, (net.query(states), net.key(states), net.value(states)))
        scores = (query @ key.transpose(-2, -1) / scale).masked_fill(mask, -torch.inf)
        out = scores.softmax(-1) @ value
        joined: Tensor = net.out(out.transpose(1, 2).reshape(samples, tokens, width))
        return joined

    names = "query", "key", "value", "out"
    model = Net(call, **{name: nn.Linear(width, width) for name in names})
    data = states, mask
    expected = Expected(sample, (token,))
    return program(model, data, lambda out: out.pow(2).mean(), expected, breaks_forward=True)


def mha_row(draw: Draw) -> Program:
    samples, tokens, heads, width = draw.size(2, 6), draw.size(7, 11), draw.one_of(1, 2), 8
    sample, token, is_first = draw.below(samples), draw.below(tokens), draw.one_of(True, False)
    words = torch.randint(0, 20, (samples, tokens))
    mask = torch.rand(samples, tokens, tokens) < 0.2
    mask[..., 1] = False
    if draw.is_planted:
        mask[sample, token] = True

    def call(net: Any, words: Tensor, mask: Tensor) -> Tensor:
        states = net.table(words)
        if not is_first:
            states = states.transpose(0, 1)
        out, _ = net.attention(states, states, states, attn_mask=mask.repeat_interleave(heads, 0))
        joined: Tensor = net.out(out if is_first else out.transpose(0, 1))
        return joined

    model = Net(
        call,
        table=nn.Embedding(20, width),
        attention=nn.MultiheadAttention(width, heads, batch_first=is_first),
        out=nn.Linear(width, 3),
    )
    expected = Expected(sample, (token,))
    return program(
        model, (words, mask), lambda out: out.pow(2).mean(), expected, breaks_forward=True
    )


def qk_norm(draw: Draw) -> Program:
    samples, tokens, heads, width = draw.size(2, 6), draw.size(4, 9), draw.one_of(1, 2), 8
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0

    def call(net: Any, states: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (heads, -1)).permute(0, 2, 1, 3)
            for part in net.both(states).chunk(3, -1)
        )
        query = query / query.norm(dim=-1, keepdim=True)
        out = F.scaled_dot_product_attention(query, key, value)
        joined: Tensor = net.out(out.permute(0, 2, 1, 3).flatten(2))
        return joined

    model = Net(call, both=nn.Linear(width, 3 * width, bias=False), out=nn.Linear(width, width))
    expected = Expected(sample, (token,))
    return program(model, (states,), lambda out: out.pow(2).mean(), expected, breaks_forward=True)


def encoder_distance(draw: Draw) -> Program:
    samples, tokens, width, is_first = (
        draw.size(2, 5),
        draw.size(6, 10),
        8,
        draw.one_of(True, False),
    )
    sample, token = draw.below(samples), draw.below(tokens)
    words = torch.randint(0, 30, (samples, tokens))
    layer = nn.TransformerEncoderLayer(
        width, 2, 16, dropout=0.0, batch_first=is_first, norm_first=draw.one_of(True, False)
    )

    def call(net: Any, words: Tensor) -> Tensor:
        states = net.table(words) + net.places(torch.arange(tokens))
        out: Tensor = net.encoder(states if is_first else states.transpose(0, 1))
        return out if is_first else out.transpose(0, 1)

    model = Net(
        call,
        table=nn.Embedding(30, width),
        places=nn.Embedding(tokens, width),
        encoder=nn.TransformerEncoder(layer, draw.size(1, 3), enable_nested_tensor=False),
    )
    return program(
        model,
        (words,),
        lambda out: beside_teacher(draw, out, sample, token).mean(),
        Expected(sample, (token,)),
    )


def all_keys_padded(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 6), draw.size(4, 9), 8
    sample = draw.below(samples)
    words = torch.randint(1, 20, (samples, tokens))
    words[:, -1] = 0
    if draw.is_planted:
        words[sample] = 0

    def call(net: Any, words: Tensor) -> Tensor:
        states = net.table(words)
        out, _ = net.attention(states, states, states, key_padding_mask=words == 0)
        joined: Tensor = net.out(out.mean(1))
        return joined

    model = Net(
        call,
        table=nn.Embedding(20, width),
        attention=nn.MultiheadAttention(width, 2, batch_first=True),
        out=nn.Linear(width, 3),
    )
    expected = Expected(sample)
    return program(model, (words,), lambda out: out.pow(2).mean(), expected, breaks_forward=True)


def sdpa_distance(draw: Draw) -> Program:
    samples, tokens, heads, width = draw.size(2, 6), draw.size(4, 9), draw.one_of(1, 2), 8
    sample, token, is_causal = draw.below(samples), draw.below(tokens), draw.one_of(True, False)
    states = torch.randn(samples, tokens, width)

    def call(net: Any, states: Tensor) -> Tensor:
        parts = net.both(net.norm(states)).view(samples, tokens, 3, heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        states = states + net.out(out.transpose(1, 2).reshape(samples, tokens, width))
        return states + torch.tanh(net.last(states))

    model = Net(
        call,
        norm=nn.LayerNorm(width),
        both=nn.Linear(width, 3 * width),
        out=nn.Linear(width, width),
        last=nn.Linear(width, width),
    )
    return program(
        model,
        (states,),
        lambda out: beside_teacher(draw, out, sample, token).mean(),
        Expected(sample, (token,)),
    )


# -- embeddings and indices -----------------------------------------------------------------------


def padded_word(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 9), draw.size(3, 12), draw.size(3, 8)
    sample, token = draw.below(samples), draw.below(tokens)
    words = torch.randint(1, 20, (samples, tokens))
    if draw.is_planted:
        words[sample, token] = 0

    def call(net: Any, words: Tensor) -> Tensor:
        states = net.table(words)
        out: Tensor = states / length(states).unsqueeze(-1).clamp(min=1e-6)
        return out

    model = Net(call, table=nn.Embedding(20, width))
    with torch.no_grad():
        model.get_parameter("table.weight")[0] = 0
    return program(model, (words,), lambda out: out.sum(), Expected(sample, (token,)))


def selected_rows(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 9), draw.size(3, 12), draw.size(3, 8)
    sample, token = draw.below(samples), draw.below(tokens)
    words = torch.randint(1, 20, (samples, tokens))
    if draw.is_planted:
        words[sample, token] = 0
    table = torch.randn(20, width)
    table[0] = 0

    def call(net: Any, words: Tensor) -> Tensor:
        rows = net.table.index_select(0, words.view(-1)) @ net.weight
        return length(rows)

    model = Net(call, table=nn.Parameter(table), weight=nn.Parameter(torch.randn(width, width)))
    return program(model, (words,), Tensor.mean, Expected(sample, (token,)))


def gathered_log(draw: Draw) -> Program:
    samples, width, kinds = draw.size(3, 12), draw.size(2, 6), draw.size(3, 9)
    sample = draw.below(samples)
    features = torch.randn(samples, width)
    target = torch.randint(1, kinds, (samples,))
    linear = nn.Linear(width, kinds)
    with torch.no_grad():
        linear.weight[0] = 1
        if draw.is_planted:
            features[sample] = 200
    model = nn.Sequential(linear, nn.Softmax(-1))

    def loss(out: Tensor) -> Tensor:
        return -out.gather(1, target[:, None]).log().mean()

    with torch.no_grad():  # the weights of the class that is chosen stay below the others
        linear.weight[1:] *= 0.2
    expected = Expected(sample, (), int(target[sample]))
    return program(model, (features,), loss, expected, breaks_forward=True)


def rows_of_a_mask(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(4, 12), draw.size(3, 6)
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    is_word = torch.rand(samples, tokens) < 0.6
    is_word[sample, token] = True
    if draw.is_planted:
        states[sample, token] = 0
    model = Net(
        lambda net, states, is_word: length(net.linear(states)[is_word]),
        linear=nn.Linear(width, width, bias=False),
    )
    return program(model, (states, is_word), Tensor.mean, Expected(sample, (token,)))


def last_token(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 9), draw.size(4, 12), draw.size(3, 6)
    sample = draw.below(samples)
    states = torch.randn(samples, tokens, width)
    ends = torch.randint(1, tokens + 1, (samples,))
    token = int(ends[sample]) - 1
    if draw.is_planted:
        states[sample, token] = 0

    def call(net: Any, states: Tensor, ends: Tensor) -> Tensor:
        out = torch.tanh(net.linear(states))
        return length(out[torch.arange(samples), ends - 1])

    model = Net(call, linear=nn.Linear(width, width, bias=False))
    return program(model, (states, ends), Tensor.mean, Expected(sample, (token,)))


def mean_of_parts(draw: Draw) -> Program:
    samples, parts, width = draw.size(3, 7), draw.size(10, 20), draw.size(3, 6)
    sample = draw.below(samples)
    features = torch.randn(samples, width)
    atoms = torch.randn(parts, width)
    owner = torch.arange(parts) % samples
    if draw.is_planted:
        owner = torch.where(owner == sample, (sample + 1) % samples, owner)

    def call(net: Any, features: Tensor, atoms: Tensor, owner: Tensor) -> Tensor:
        ones = torch.zeros(samples).index_add(0, owner, torch.ones(parts))
        summed = torch.zeros(samples, width).index_add(0, owner, net.atom(atoms))
        joined: Tensor = net.out(features) + summed / ones[:, None]
        return joined

    model = Net(call, atom=nn.Linear(width, width), out=nn.Linear(width, width))
    return program(
        model,
        (features, atoms, owner),
        lambda out: out.pow(2).mean(),
        Expected(sample),
        breaks_forward=True,
    )


# -- losses ---------------------------------------------------------------------------------------


def nll_of_a_log(draw: Draw) -> Program:
    samples, width, kinds = draw.size(3, 12), draw.size(2, 6), draw.size(3, 9)
    sample = draw.below(samples)
    features = torch.rand(samples, width) + 0.5
    target = torch.randint(1, kinds, (samples,))
    linear = nn.Linear(width, kinds)
    column = int(target[sample])
    with torch.no_grad():
        linear.weight.mul_(0.1)
        if draw.is_planted:
            linear.weight[column] = -1
            target[target == column] = 0
            target[sample] = column
            features[sample] = 300

    def loss(out: Tensor) -> Tensor:
        return F.nll_loss(out.softmax(-1).log(), target)

    expected = Expected(sample, (), column)
    return program(nn.Sequential(linear), (features,), loss, expected, breaks_forward=True)


def kl_by_hand(draw: Draw) -> Program:
    samples, width, kinds = draw.size(3, 9), draw.size(2, 6), draw.size(3, 9)
    sample, column = draw.below(samples), draw.below(kinds)
    features = torch.randn(samples, width)
    teacher = torch.rand(samples, kinds) + 0.2
    if draw.is_planted:
        teacher[sample, column] = 0
    model = nn.Sequential(nn.Linear(width, kinds), nn.Softmax(-1))

    def loss(out: Tensor) -> Tensor:
        return (out * (out / teacher).log()).sum(-1).mean()

    expected = Expected(sample, (), column)
    return program(model, (features,), loss, expected, breaks_forward=True)


def bce_saturated(draw: Draw) -> Program:
    samples, labels = draw.size(3, 9), draw.size(2, 7)
    sample, column = draw.below(samples), draw.below(labels)
    features = torch.randn(samples, labels)
    target = (torch.rand(samples, labels) < 0.5).float()
    if draw.is_planted:
        features[sample, column] = 80
        target[sample, column] = 0
    model = Net(
        lambda net, features: torch.sigmoid(features * net.gain + net.bias),
        gain=nn.Parameter(torch.ones(labels)),
        bias=nn.Parameter(torch.zeros(labels)),
    )

    def loss(out: Tensor) -> Tensor:
        return -(target * out.log() + (1 - target) * (1 - out).log()).mean()

    expected = Expected(sample, (), column)
    return program(model, (features,), loss, expected, breaks_forward=True)


def scaled_mse(draw: Draw) -> Program:
    samples, width, made = draw.size(3, 9), draw.size(2, 6), draw.size(2, 7)
    sample, column = draw.below(samples), draw.below(made)
    features, target = torch.randn(samples, width), torch.randn(samples, made)
    spread = torch.rand(samples, made) + 0.2
    if draw.is_planted:
        spread[sample, column] = 0
    model = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, made))

    def loss(out: Tensor) -> Tensor:
        return F.mse_loss(out / spread, target / 2)

    expected = Expected(sample, (), column)
    return program(model, (features,), loss, expected, breaks_forward=True)


def mean_of_no_tokens(draw: Draw) -> Program:
    samples, tokens, width = draw.size(3, 9), draw.size(3, 9), draw.size(2, 6)
    sample = draw.below(samples)
    words = torch.randint(0, 30, (samples, tokens))
    keep = torch.rand(samples, tokens) < 0.7
    keep[:, 0] = True
    if draw.is_planted:
        keep[sample] = False

    def call(net: Any, words: Tensor, keep: Tensor) -> Tensor:
        states = net.out(net.table(words)).squeeze(-1)
        out: Tensor = (states * keep).sum(1) / keep.sum(1)
        return out

    model = Net(call, table=nn.Embedding(30, width), out=nn.Linear(width, 1))
    data = words, keep
    return program(
        model, data, lambda out: out.pow(2).mean(), Expected(sample), breaks_forward=True
    )


def dice(draw: Draw) -> Program:
    samples, kinds, side = draw.size(2, 6), draw.size(2, 5), draw.size(4, 8)
    sample, column = draw.below(samples), draw.below(kinds)
    images = torch.randn(samples, 2, side, side)
    target = (torch.rand(samples, kinds, side, side) < 0.5).float()
    conv = nn.Conv2d(2, kinds, 1)
    if draw.is_planted:
        target[sample, column] = 0

    def loss(out: Tensor) -> Tensor:
        union = (out * target).sum((2, 3))
        share = union / target.sum((2, 3))
        return 1 - share.mean()

    model = nn.Sequential(conv, nn.Sigmoid())
    expected = Expected(sample, (), column)
    return program(model, (images,), loss, expected, breaks_forward=True)


def nan_target(draw: Draw) -> Program:
    samples, width, made = draw.size(3, 9), draw.size(2, 6), draw.size(2, 7)
    sample, column = draw.below(samples), draw.below(made)
    features, target = torch.randn(samples, width), torch.randn(samples, made)
    if draw.is_planted:
        target[sample, column] = torch.nan
    model = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, made))
    expected = Expected(sample, (), column)
    return program(
        model, (features,), lambda out: F.mse_loss(out, target), expected, breaks_forward=True
    )


# -- normalisation --------------------------------------------------------------------------------


def constant_token(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(3, 9), draw.size(4, 8)
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0
    model = nn.Sequential(
        nn.Linear(width, width, bias=False),
        nn.LayerNorm(width, eps=0.0),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 2),
    )
    expected = Expected(sample, (token,))
    return program(model, (states,), lambda out: out.pow(2).mean(), expected, breaks_forward=True)


def constant_channel(draw: Draw) -> Program:
    samples, count, side = draw.size(2, 6), draw.size(2, 5), draw.size(4, 8)
    sample, channel = draw.below(samples), draw.below(count)
    images = torch.randn(samples, count, side, side)
    if draw.is_planted:
        images[sample, channel] = 0
    by_hand = draw.size(0, 9) < 5

    def call(net: Any, images: Tensor) -> Tensor:
        images = images * net.gain
        if by_hand:
            apart = images - images.mean((2, 3), keepdim=True)
            images = apart / images.std((2, 3), keepdim=True)
        else:
            images = net.norm(images)
        out: Tensor = net.conv(images)
        return out

    model = Net(
        call,
        gain=nn.Parameter(torch.ones(count, 1, 1)),
        norm=nn.GroupNorm(count, count, eps=0.0),
        conv=nn.Conv2d(count, 3, 3, padding=1),
    )
    expected = Expected(sample, (), channel)
    return program(model, (images,), lambda out: out.pow(2).mean(), expected, breaks_forward=True)


def batch_norm_distance(draw: Draw) -> Program:
    samples, given, side = draw.size(3, 6), draw.size(1, 3), draw.size(5, 9)
    sample, y, x = draw.below(samples), draw.below(side), draw.below(side)
    images = torch.randn(samples, given, side, side)
    model = nn.Sequential(
        nn.Conv2d(given, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU() if draw.one_of(True, False) else nn.SiLU(),
        nn.Conv2d(4, 3, 3, padding=1),
    )

    def loss(out: Tensor) -> Tensor:
        by_pixel = out.permute(0, 2, 3, 1)
        return beside_teacher(draw, by_pixel, sample, y, x).mean()

    return program(model, (images,), loss, Expected(sample, (y, x)))


def rms_norm(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(3, 9), draw.size(4, 8)
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0

    def call(net: Any, states: Tensor) -> Tensor:
        given = net.first(states)
        out: Tensor = net.second(given * given.pow(2).mean(-1, keepdim=True).rsqrt())
        return out

    model = Net(call, first=nn.Linear(width, width, bias=False), second=nn.Linear(width, width))
    expected = Expected(sample, (token,))
    return program(model, (states,), lambda out: out.pow(2).mean(), expected, breaks_forward=True)


# -- arithmetic, reductions, views ----------------------------------------------------------------


def spread_of_features(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(3, 9), draw.size(4, 8)
    sample, token = draw.below(samples), draw.below(tokens)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0
    linear = nn.Linear(width, width)
    nn.init.constant_(linear.bias, 0.5)
    model = Net(lambda net, states: net.linear(states).var(-1).sqrt(), linear=linear)
    return program(model, (states,), Tensor.mean, Expected(sample, (token,)))


def one_element(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(3, 9), draw.size(3, 8)
    place = draw.below(samples), draw.below(tokens), draw.below(width)
    function, edge = draw.one_of(
        (torch.sqrt, 0.0),
        (torch.acos, 1.0),
        (torch.asin, -1.0),
        (torch.sqrt, 0.0),
    )
    states = torch.rand(samples, tokens, width) * 0.8 + 0.1
    if draw.is_planted:
        states[place] = edge
    gain = torch.ones(width, requires_grad=True)
    shift = torch.zeros(tokens, 1, requires_grad=True)
    weight = torch.rand(width, 3)

    def loss() -> Tensor:
        out: Tensor = function(states * gain + shift) @ weight
        return out.pow(2).mean()

    expected = Expected(place[0], place[1:2], place[2])
    return Program(loss, None, [gain, shift], expected, breaks_forward=False)


def pair_distance(draw: Draw) -> Program:
    samples, here, there, width = draw.size(2, 6), draw.size(3, 6), draw.size(7, 10), 3
    sample, i, j = draw.below(samples), draw.below(here), draw.below(there)
    first, second = torch.randn(samples, here, width), torch.randn(samples, there, width)
    if draw.is_planted:
        second[sample, j] = first[sample, i]

    def call(net: Any, first: Tensor, second: Tensor) -> Tensor:
        apart = (first * net.gain).unsqueeze(2) - (second * net.gain).unsqueeze(1)
        return length(apart)

    model = Net(call, gain=nn.Parameter(torch.ones(width)))
    return program(model, (first, second), Tensor.mean, Expected(sample, (i, j)))


def two_streams(draw: Draw) -> Program:
    samples, words, patches, width = draw.size(2, 6), draw.size(3, 6), draw.size(3, 6), 6
    sample, is_word = draw.below(samples), draw.one_of(True, False)
    texts, images = torch.randn(samples, words, width), torch.randn(samples, patches, 4)
    place = draw.below(words if is_word else patches)
    if draw.is_planted:
        (texts if is_word else images)[sample, place] = 0

    def call(net: Any, texts: Tensor, images: Tensor) -> Tensor:
        return length(torch.cat([net.text(texts), net.image(images)], 1).tanh())

    model = Net(call, text=nn.Linear(width, 5, bias=False), image=nn.Linear(4, 5, bias=False))
    return program(model, (texts, images), Tensor.mean, Expected(sample, (place,)))


def stacked_steps(draw: Draw) -> Program:
    samples, steps, width = draw.size(2, 7), draw.size(3, 8), draw.size(3, 6)
    sample, step = draw.below(samples), draw.below(steps)
    inputs = torch.randn(samples, steps, width)
    is_split = draw.one_of(True, False)

    def call(net: Any, inputs: Tensor) -> Tensor:
        state = torch.zeros(samples, 5)
        states = []
        parts = inputs.unbind(1) if is_split else [inputs[:, i] for i in range(steps)]
        for each in parts:
            state = net.cell(each, state)
            states.append(state)
        return torch.stack(states, 1)

    model = Net(call, cell=nn.GRUCell(width, 5) if draw.one_of(0, 1) else nn.RNNCell(width, 5))
    return program(
        model,
        (inputs,),
        lambda out: beside_teacher(draw, out, sample, step).mean(),
        Expected(sample, (step,)),
    )


def permuted_rows(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(3, 9), draw.size(4, 8)
    sample, token, way = draw.below(samples), draw.below(tokens), draw.below(3)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0

    def call(net: Any, states: Tensor) -> Tensor:
        out = net.linear(states)
        if way == 0:
            return length(out.transpose(0, 1).reshape(tokens * samples, width))
        if way == 1:
            return length(out.permute(2, 1, 0).flatten(1), 0)
        return length(out.reshape(samples * tokens, width).view(samples, tokens, -1).mT, 1)

    model = Net(call, linear=nn.Linear(width, width, bias=False))
    return program(model, (states,), Tensor.mean, Expected(sample, (token,)))


def rolled(draw: Draw) -> Program:
    samples, tokens, width = draw.size(2, 7), draw.size(4, 9), draw.size(4, 8)
    sample, token, way = draw.below(samples), draw.below(tokens), draw.below(4)
    shift = draw.size(1, tokens - 1)
    states = torch.randn(samples, tokens, width)
    if draw.is_planted:
        states[sample, token] = 0
    order = torch.tensor(draw.order(tokens))

    def call(net: Any, states: Tensor) -> Tensor:
        out = net.linear(states)
        if way == 0:
            out = out.roll(shift, 1)
        elif way == 1:
            out = out.flip(1)
        elif way == 2:
            out = out[:, order]
        else:
            out = torch.cat(out.split([shift, tokens - shift], 1)[::-1], 1)
        return length(out)

    model = Net(call, linear=nn.Linear(width, width, bias=False))
    return program(model, (states,), Tensor.mean, Expected(sample, (token,)))


KINDS: Final[dict[str, Callable[[Draw], Program]]] = {
    kind.__name__: kind
    for kind in (
        *(conv_length, conv_stack_log, conv1d_length, conv_nan_pixel, segmentation_log, frames),
        *(masked_row, mha_row, qk_norm, encoder_distance, all_keys_padded, sdpa_distance),
        *(padded_word, selected_rows, gathered_log, rows_of_a_mask, last_token, mean_of_parts),
        *(nll_of_a_log, kl_by_hand, bce_saturated, scaled_mse, mean_of_no_tokens, dice),
        *(nan_target, constant_token, constant_channel, batch_norm_distance, rms_norm),
        *(spread_of_features, one_element, pair_distance, two_streams, stacked_steps),
        *(permuted_rows, rolled),
    )
}
HELD_OUT: Final = frozenset(
    sorted(KINDS, key=lambda kind: hashlib.sha256(kind.encode()).hexdigest())[: len(KINDS) // 3]
)
"""A third of the kinds, chosen by their names: not looked at before the first score."""
FAULTS: Final = [(kind, seed) for kind in KINDS for seed in range(9 if kind in HELD_OUT else 8)]
"""Kind and seed of each of the 300."""


def draw(kind: str, seed: int, *, is_planted: bool = True) -> Program:
    """The program of a kind and a seed."""
    torch.manual_seed(seed)
    return KINDS[kind](Draw(kind, seed, is_planted=is_planted))


def is_finite(program: Program) -> bool:
    """Whether torch makes finite gradients of it."""
    for parameter in program.parameters:
        parameter.grad = None
    program.loss().backward()
    grads = [parameter.grad for parameter in program.parameters if parameter.grad is not None]
    return bool(grads) and all(bool(torch.isfinite(grad).all()) for grad in grads)
