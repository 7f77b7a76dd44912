"""Recurrent layers and attention over the samples of a batch, or samples that are taken for steps.

A layer without ``batch_first`` reads (32, 12, 3) as 32 steps of 12 samples. Where the batch came
first, ``out[:, -1]`` is meant to take the last step, and takes the last sample. It is told where
that is all that is used of the output: nobody computes samples to drop them.

Note [Reduced over the samples]
``out.mean(1)`` is a mean over 12 samples, then. It is told where nothing else is used, and a loss
holds what comes of it against classes, or targets that are others in each pass, of 32 samples: a
mean over trials has a target that stays. Where layers of a program run over either axis, or their
outputs are transposed, they may be meant to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.checksums import checksum
from agviz.check.saved import made_by, nodes_to_run
from agviz.record.arguments import tensors_given, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    from agviz.check.checksums import Checksum

_LAYERS: Final = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_ATTENDING: Final = (
    nn.MultiheadAttention,
    *(nn.TransformerDecoder, nn.TransformerDecoderLayer),
    *(nn.TransformerEncoder, nn.TransformerEncoderLayer),
)
_KEEPING: Final = frozenset(
    {
        *("add", "contiguous", "dropout", "float", "gelu", "layer_norm", "linear", "masked_fill"),
        *("mul", "relu", "softmax", "tanh"),
    }
)
"""Functions that leave the first two dimensions as they are."""
_REDUCING: Final = frozenset({"amax", "logsumexp", "max", "mean", "sum"})
_JOINING: Final = frozenset({"flatten", "reshape", "view"})
_TURNING: Final = frozenset({"movedim", "permute", "swapaxes", "swapdims", "transpose"})
_CLASSIFYING: Final = frozenset({"cross_entropy", "nll_loss"})
_COMPARING: Final = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits", "sub"})
_KEY: Final = "agviz.check.reduced"
"""Under which the ``metadata`` of a node that reduces an output has that."""
_MOST: Final = 1_000
"""Outputs that are followed."""


class LayerUse(NamedTuple):
    """A call that uses an output along the axis of its samples, and only that."""

    captured: Any
    """Its stack."""
    reduces: str
    """The name of a function that takes all samples together; empty: it takes one sample."""


class LayerOutput(NamedTuple):
    """The output of a layer, and what uses it, or what came of it step by step."""

    captured: Any
    """The stack of the layer's call."""
    layer: str
    shape: tuple[int, ...]
    axis: int
    """The one of the samples."""
    uses: list[LayerUse | None]
    """None stands for other ones."""
    losses: list[Any]
    """Stacks of losses that take steps for samples: Note [Reduced over the samples]."""


class RecurrentOutputs:
    """Follows them to what uses them."""

    def __init__(self) -> None:
        self._outputs: list[LayerOutput] = []
        self._followed: MutableMapping[Tensor, LayerOutput] = WeakTensorKeyDictionary()
        self._targets: dict[str, Checksum | None] = {}
        """Of each function, the first one."""
        self._has_reduced = False
        self._turns = False
        """Whether the program has outputs along other axes."""

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> None:
        """A torch function has given ``result``."""
        last = name.rpartition(".")[2]
        given = [each for _, each in tensors_of(tuple(args), dict(kwargs))] if self._outputs else []
        made = next((each for _, each in tensors_given(result)), None) if given else None
        for tensor in given:
            known = self._followed.get(tensor)
            if known is None:
                continue
            is_kept = made is not None and made.dim() == 3 and made.shape[:2] == known.shape[:2]
            if is_kept and made is not None and last.strip("_").removeprefix("r") in _KEEPING:
                self._followed[made] = known
                continue
            is_first = bool(args) and args[0] is tensor
            how = _use(last, args, kwargs, known, made) if is_first else None
            known.uses.append(None if how is None else LayerUse(captured, how))
            self._turns |= last in _TURNING
            node = None if made is None else made_by(made)
            if how and node is not None:
                node.metadata[_KEY] = known
                self._has_reduced = True
        is_loss = last.endswith("_loss") or last.strip("_") in _COMPARING | _CLASSIFYING
        if self._has_reduced and is_loss and len(given) >= 2:
            self._compared(last, given[0], given[1], captured)
        if last in _LAYERS:
            self._made(last, args[-1] is True, result, captured)

    def _compared(self, name: str, output: Tensor, target: Tensor, captured: Any) -> None:
        if target.requires_grad or not output.shape[:1] == target.shape[:1] != ():
            return
        for node in nodes_to_run([output], None):
            known = getattr(node, "metadata", {}).get(_KEY)
            if known is not None and known.shape[1 - known.axis] == len(target):
                is_other = name in _CLASSIFYING
                if not is_other:
                    today = checksum(target)
                    is_other = self._targets.setdefault(name, today) != today
                if is_other:
                    known.losses.append(captured)

    def left(self, module: nn.Module, result: Any, capture: Callable[[], Any]) -> None:
        """A module has given ``result``."""
        if issubclass(type(module), _ATTENDING):
            inner = next((each for each in module.modules() if hasattr(each, "batch_first")), None)
            first = getattr(inner, "batch_first", False) is True
            self._made(type(module).__name__, first, result, capture())

    def _made(self, layer: str, is_batch_first: bool, result: Any, captured: Any) -> None:
        if len(self._outputs) >= _MOST:
            return
        output = result[0] if type(result) is tuple else result
        if issubclass(type(output), Tensor) and output.requires_grad and output.dim() == 3:
            shape, axis = tuple(output.shape), 0 if is_batch_first else 1
            if min(shape[:2]) > 1:
                self._followed[output] = LayerOutput(captured, layer, shape, axis, [], [])
                self._outputs.append(self._followed[output])

    def found(self) -> list[LayerOutput]:
        """Those whose samples are steps."""
        is_one_axis = not self._turns and len({each.axis for each in self._outputs}) == 1
        found = []
        for each in self._outputs:
            uses = [use for use in each.uses if use is not None]
            is_one_sample = len(uses) == 1 and not uses[0].reduces
            if len(uses) == len(each.uses) and (is_one_sample or (each.losses and is_one_axis)):
                found.append(each)
        return found


def _use(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], known: LayerOutput, made: Any
) -> str | None:
    """What a call does along the samples of an output; None: something else.

    It names a function that takes all of them together; empty stands for one that takes one.
    """
    if _is_sample(name, args, known.axis):
        return ""
    if name in _REDUCING:
        dim: Any = args[1] if len(args) > 1 else kwargs.get("dim")
        dim = dim[0] if type(dim) in {list, tuple} and len(dim) == 1 else dim
        return name if type(dim) is int and dim % 3 == known.axis else None
    is_joined = name in _JOINING and known.axis == 1 and isinstance(made, Tensor)
    return name if is_joined and made.dim() == 2 and len(made) == known.shape[0] else None


def _is_sample(name: str, args: Sequence[Any], axis: int) -> bool:
    """Whether a call takes one entry along an axis, and all along the other of the first two."""
    if name == "select" and len(args) == 3:
        return bool(args[1] == axis)
    if name != "__getitem__" or len(args) < 2:
        return False
    index = args[1] if type(args[1]) is tuple else (args[1],)
    places = [*index, *[slice(None)] * 2][:2]
    other = places[1 - axis]
    return type(places[axis]) is int and type(other) is slice and other == slice(None)
