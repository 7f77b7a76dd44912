"""The gates of an LSTM, which torch's own kernels work out inside and do not give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz.measure.health import unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "torch.lstm"
_ARGUMENTS: Final = 9
"""Of a call whose sequences are equally long: input, (h, c), weights, has_biases, num_layers,
dropout, train, bidirectional, batch_first."""
_MOST_ROWS: Final = 512
"""Steps of samples that are worked out."""


def gates_of(args: Sequence[Any], result: Any) -> Tensor | None:
    """Input, forget and output gates of the first layer, as far as they follow from a call.

    Args:
        args: what ``torch.lstm`` was given.
        result: what it gave.

    Returns:
        For steps of some samples, shape [steps, 3 * hidden_size]: all steps where there is one
        layer in one direction, else the first. None: it is not worked out, as on a GPU, for packed
        sequences, or with projections.
    """
    if len(args) != _ARGUMENTS or isinstance(args[1], Tensor) or not isinstance(result, tuple):
        return None
    data, (state, _), weights = args[0], args[1], args[2]
    has_biases, layers, bidirectional, batch_first = args[3], args[4], args[7], args[8]
    to_input, to_state = weights[:2]
    hidden = to_state.shape[1]
    tensors = (data, state, *weights[:4])
    is_plain = all(
        type(each) in (Tensor, Parameter)
        and each.device.type == "cpu"
        and each.dtype == data.dtype
        and each.is_floating_point()
        for each in tensors
    )
    if not is_plain or not data.numel() or to_input.shape[0] != 4 * hidden:
        return None
    with unseen():
        outputs = cast("Tensor", result[0])
        steps = data if batch_first else data.transpose(0, 1)
        given = outputs if batch_first else outputs.transpose(0, 1)
        first = state[:1].transpose(0, 1)
        if layers > 1 or bidirectional:
            steps, before = steps[:, :1], first
        else:
            before = torch.cat([first, given[:, :-1]], 1)
        some = max(1, _MOST_ROWS // steps.shape[1])
        rows = steps[:some].reshape(-1, steps.shape[-1])[:_MOST_ROWS]
        states = before[:some].reshape(-1, hidden)[:_MOST_ROWS]
        sums = rows @ to_input.T + states @ to_state.T
        if has_biases:
            sums = sums + weights[2] + weights[3]
        of_input, of_forgetting, _, of_output = sums.chunk(4, 1)
        return torch.cat([of_input, of_forgetting, of_output], 1).sigmoid()
