"""Programs in which an index is easily taken for another one: which sample it is, or that none is.

Each gives a model (or None), a function that computes the loss, and the sample; None where the
program has none that could be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch
from torch import Tensor, nn

from tests.planted.faults import Net, length

if TYPE_CHECKING:
    from collections.abc import Callable

Tempting: TypeAlias = "tuple[nn.Module | None, Callable[[], Tensor], int | None]"


def model_of(
    call: Callable[..., Tensor], *data: Any, sample: int | None = None, **parts: Any
) -> Tempting:
    model = Net(call, **parts)
    return model, lambda: model(*data).sum(), sample


def one_image() -> Tempting:
    image = torch.randn(3, 9, 9)
    image[:, 2:5, 4:7] = 0
    conv = nn.Conv2d(3, 4, 3, bias=False)
    return model_of(lambda net, image: length(net.conv(image), 0), image, conv=conv)


def one_image_by_channels() -> Tempting:
    image = torch.randn(4, 9, 9)
    image[1, 2:5, 4:7] = 0
    conv = nn.Conv2d(4, 4, 3, groups=4, bias=False)
    return model_of(lambda net, image: net.conv(image).pow(2).sqrt(), image, conv=conv)


def one_nan_image() -> Tempting:
    image = torch.randn(3, 9, 9)
    image[1, 4, 5] = torch.nan
    conv = nn.Conv2d(3, 4, 3)
    return model_of(lambda net, image: net.conv(image), image, conv=conv)


def steps_first(*, is_before: bool) -> Tempting:
    steps = torch.randn(7, 4, 5)
    steps[5, 2] = 0

    def call(net: Any, steps: Tensor) -> Tensor:
        if is_before:
            out, _ = net.rnn(net.linear(steps) / length(net.linear(steps))[..., None])
            return torch.tanh(out)
        out, _ = net.rnn(net.linear(steps))
        apart = torch.rand(out.shape) + 1
        apart[5, 2] = 0
        return length(out - (out.detach() - apart))

    sample = 2
    parts = {"linear": nn.Linear(5, 5, bias=False), "rnn": nn.GRU(5, 6)}
    return model_of(call, steps, sample=sample, **parts)


def steps_first_before() -> Tempting:
    return steps_first(is_before=True)


def steps_first_behind() -> Tempting:
    return steps_first(is_before=False)


def samples_first_lstm() -> Tempting:
    steps = torch.randn(4, 7, 5)

    def call(net: Any, steps: Tensor) -> Tensor:
        out, _ = net.rnn(steps)
        apart = torch.rand(out.shape) + 1
        apart[2, 5] = 0
        return length(out - (out.detach() - apart))

    return model_of(call, steps, sample=2, rnn=nn.LSTM(5, 6, batch_first=True))


def shuffled() -> Tempting:
    states = torch.randn(6, 5)
    states[4] = 0
    order = torch.tensor([3, 4, 0, 5, 1, 2])
    linear = nn.Linear(5, 3, bias=False)
    return model_of(
        lambda net, states: length(net.linear(states[order])), states, sample=4, linear=linear
    )


def shuffled_images() -> Tempting:
    images = torch.randn(6, 2, 5, 5)
    images[4] = 0
    order = torch.tensor([3, 4, 0, 5, 1, 2])
    conv = nn.Conv2d(2, 3, 3, bias=False)
    return model_of(
        lambda net, images: length(net.conv(images[order]).flatten(1)),
        images,
        sample=4,
        conv=conv,
    )


def shuffled_words() -> Tempting:
    words = torch.randint(1, 9, (6, 5))
    words[4, 2] = 0
    order = torch.tensor([3, 4, 0, 5, 1, 2])
    table = nn.Embedding(9, 4)
    with torch.no_grad():
        table.weight[0] = 0
    return model_of(
        lambda net, words: length(net.table(words[order])), words, sample=4, table=table
    )


def slice_of_a_dataset() -> Tempting:
    dataset = torch.randn(40, 5)
    dataset[23] = 0
    batch = dataset[20:28]
    linear = nn.Linear(5, 3, bias=False)
    return model_of(lambda net, batch: length(net.linear(batch)), batch, sample=3, linear=linear)


def zero_row_of_a_parameter() -> Tempting:
    table = torch.randn(6, 5)
    table[4] = 0
    data = torch.randn(3, 5)
    return model_of(
        lambda net, data: data @ (net.table / length(net.table)[:, None]).T,
        data,
        table=nn.Parameter(table),
    )


def constant_beside_a_parameter() -> Tempting:
    """No data at all: the rows are tokens."""
    table = torch.rand(6, 5) + 1
    table[4] = 0
    states = torch.ones(6, 5, requires_grad=True)
    return None, lambda: length(states * table).sum(), None


def table_of_positions() -> Tempting:
    """Data of another shape: what is zero is a position for all samples."""
    words = torch.randint(0, 9, (3, 6))
    places = torch.randn(6, 4)
    places[4] = 0

    def call(net: Any, words: Tensor) -> Tensor:
        return length(net.table(words)) * length(places * net.gain)

    gain = nn.Parameter(torch.ones(4))
    return model_of(call, words, table=nn.Embedding(9, 4), gain=gain)


def positions_alone() -> Tempting:
    table = nn.Embedding(6, 4)
    with torch.no_grad():
        table.weight[4] = 0
    return table, lambda: length(table(torch.arange(6))).sum(), None


def contrast() -> Tempting:
    """Two samples that are equal."""
    images, texts = torch.randn(5, 4), torch.randn(5, 4)
    texts[3] = images[1]

    def call(net: Any, images: Tensor, texts: Tensor) -> Tensor:
        return length((images * net.gain)[:, None] - (texts * net.gain)[None])

    return model_of(call, images, texts, gain=nn.Parameter(torch.ones(4)))


def all_samples() -> Tempting:
    states = torch.randn(6, 5)
    states[:, 2] = 0
    gain = nn.Parameter(torch.ones(5))
    return model_of(lambda net, states: (states * net.gain).pow(2).sqrt(), states, gain=gain)


def features_first() -> Tempting:
    states = torch.randn(5, 6)
    states[:, 4] = 0
    weight = nn.Parameter(torch.randn(3, 5))
    return model_of(lambda net, states: length(net.weight @ states, 0), states, weight=weight)


def halves_of_a_batch() -> Tempting:
    states = torch.randn(8, 5)
    states[6] = 0
    linear = nn.Linear(5, 3, bias=False)

    def call(net: Any, states: Tensor) -> Tensor:
        return torch.cat([length(net.linear(half)) for half in states.split(4)])

    return model_of(call, states, sample=6, linear=linear)


def in_autocast() -> Tempting:
    states = torch.randn(6, 5)
    states[4] = 0
    linear = nn.Linear(5, 3, bias=False)

    def call(net: Any, states: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return length(net.linear(states).float())

    return model_of(call, states, sample=4, linear=linear)


def by_name() -> Tempting:
    states = torch.randn(6, 5)
    states[4] = 0
    linear = nn.Linear(5, 3, bias=False)
    model = Net(lambda net, states: length(net.linear(states)), linear=linear)
    return model, lambda: model(states=states).sum(), 4


def own_function() -> Tempting:
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, states: Tensor) -> Tensor:
            return states.flip(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad.flip(0)

    states = torch.randn(6, 5)
    states[4] = 0
    linear = nn.Linear(5, 3, bias=False)
    return model_of(
        lambda net, states: length(cast("Any", Reversed).apply(net.linear(states))),
        states,
        sample=4,
        linear=linear,
    )


def repeated() -> Tempting:
    states = torch.randn(4, 5)
    states[2] = 0
    linear = nn.Linear(5, 3, bias=False)
    return model_of(
        lambda net, states: length(net.linear(states).repeat_interleave(3, 0)).view(4, 3),
        states,
        sample=2,
        linear=linear,
    )


def packed() -> Tempting:
    states = torch.randn(4, 6, 5)
    states[2, 1] = 0
    lengths = torch.tensor([3, 6, 4, 2])

    def call(net: Any, states: Tensor) -> Tensor:
        out = nn.utils.rnn.pack_padded_sequence(
            net.linear(states), lengths, batch_first=True, enforce_sorted=False
        )
        return length(out.data)

    return model_of(call, states, sample=2, linear=nn.Linear(5, 3, bias=False))


def ranked() -> Tempting:
    states = torch.randn(5, 7, 4)
    states[3, 2] = 0

    def call(net: Any, states: Tensor) -> Tensor:
        found = length(net.linear(states), -1)
        return found.sort(1).values

    return model_of(call, states, sample=3, linear=nn.Linear(4, 3, bias=False))


def written_into() -> Tempting:
    states = torch.randn(5, 4)
    states[3] = 0

    def call(net: Any, states: Tensor) -> Tensor:
        out = torch.ones(10, 3)
        out[2:7] = net.linear(states)
        return length(out)

    return model_of(call, states, sample=3, linear=nn.Linear(4, 3, bias=False))


TEMPTING: Final = {
    program.__name__: program
    for program in (
        *(one_image, one_image_by_channels, one_nan_image, steps_first_before, steps_first_behind),
        *(samples_first_lstm, shuffled, shuffled_images, shuffled_words, slice_of_a_dataset),
        *(zero_row_of_a_parameter, constant_beside_a_parameter, table_of_positions),
        *(positions_alone, contrast, all_samples, features_first, halves_of_a_batch, in_autocast),
        *(by_name, own_function, repeated, packed, ranked, written_into),
    )
}
