"""Samples drawn without a gradient where the distribution is to be trained through them.

Note [Meant to have no gradient]
What ``sample`` gives is a constant. It is followed to the graph of a loss, and told of where the
same pass reaches the distribution's own parameters by nothing but terms of their own (a KL
divergence, an entropy): these alone would have them forget the data. A constant is meant where the
program scores it (it meets the parameters, as in any ``log_prob``), has it as a target, says
``detach`` or ``no_grad``, or where a likelihood of data or another network trains the parameters.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor, distributions
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.saved import made_by, node_of, nodes_below, nodes_to_run
from agviz.record.arguments import tensors_given, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
    from types import FrameType

_OWN: Final = "agviz.check.draws_of"
"""Under which the ``metadata`` of a distribution's nodes has the numbers of its draws."""
_USE: Final = "agviz.check.draw_used"
_MET: Final = "agviz.check.met"
"""What a function was given beside a graph: data, or what belongs to distributions."""
_PRIOR: Final = "agviz.check.prior"
"""Of nodes of a distribution that is made like another one, which may know the data."""
_DATA, _DISTRIBUTION = "data", "distribution"
_REDUCING: Final = ("MeanBackward", "SumBackward")
_DRAWN: Final = "NormalBackward"
_NORMAL: Final = "normal"
_ADDING: Final = frozenset({"add", "iadd", "radd", "rsub", "sub"})
_COMPARING: Final = frozenset({"cdist", "cross_entropy", "kl_div", "rsub", "sub"})
_ENDING: Final = frozenset({"detach", "get", "item", "sgn", "sign"})
_MOST_FRAMES: Final = 12
_MOST_NODES: Final = 8
"""That make a parameter of a distribution of what a network gave, as an exp or a chunk."""
_MOST_DRAWS: Final = 1_000


class Draw(NamedTuple):
    """What was drawn of a distribution that requires a gradient."""

    number: int
    name: str
    captured: Any
    """The stack of the call."""
    size: int


class UntrainedDraw(NamedTuple):
    """One that an operation of a loss was given, where the distribution is to be trained."""

    draw: Draw
    captured: Any
    """The stack of the operation."""


class Draws:
    """Follows draws into losses.

    Args:
        drew: is given a distribution and what its ``sample`` gave, where gradients are on.
    """

    def __init__(self, drew: Callable[[Any, Any], None]) -> None:
        self.found: list[UntrainedDraw] = []
        self._drew = drew
        self._followed: MutableMapping[Tensor, Draw] = WeakTensorKeyDictionary()
        self._draws = 0
        self._leaves: MutableMapping[Tensor, set[int]] = WeakTensorKeyDictionary()
        self._meant: set[int] = set()
        self._is_marking = False
        """Whether all functions of the pass to come were looked at."""
        self._undo: list[tuple[Any, Any]] = []

    def start(self) -> None:
        """Observe each ``sample``."""
        kinds: list[Any] = [getattr(distributions, name) for name in distributions.__all__]
        for kind in (each for each in kinds if "sample" in getattr(each, "__dict__", {})):
            self._undo.append((kind, kind.sample))
            kind.sample = self._observed(kind.sample)

    def stop(self) -> None:
        """Give torch its own methods back."""
        while self._undo:
            kind, own = self._undo.pop()
            kind.sample = own

    def _observed(self, own: Any) -> Any:
        @functools.wraps(own)
        def sample(distribution: Any, *args: Any, **kwargs: Any) -> Any:
            result = own(distribution, *args, **kwargs)
            is_observed = not torch.compiler.is_compiling() and torch.is_grad_enabled()
            if is_observed and distribution.has_rsample is True and isinstance(result, Tensor):
                self._drew(distribution, result)
            return result

        return sample

    def of_distribution(self, distribution: Any, result: Any, captured: Any) -> None:
        """A distribution has given what has no graph, where gradients are on."""
        name = f"{type(distribution).__name__}.sample"
        self._drawn(name, _parameters(distribution), result, captured)

    def _drawn(self, name: str, parameters: Iterable[Tensor], result: Tensor, stack: Any) -> None:
        draw = Draw(self._draws, name, stack, result.numel())
        for each in parameters if self._draws < _MOST_DRAWS else ():
            if each.requires_grad:
                self._own(node_of(each), draw.number)
                self._followed[result] = draw
                self._draws = draw.number + 1

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, stack: Any
    ) -> None:
        """A call has returned."""
        last = name.rpartition(".")[2].strip("_")
        results = [tensor for _, tensor in tensors_given(result)]
        given = [tensor for _, tensor in tensors_of(tuple(args), dict(kwargs))]
        node = made_by(results[0]) if results else None
        if last == _NORMAL and node is not None:
            self._drawn("torch.normal", given, results[0], stack)
        found = [self._followed[each] for each in given if each in self._followed]
        if found and last not in _ENDING:
            others = [each for each in given if each.requires_grad and each not in self._followed]
            if not others:
                floats = (each for each in results if each.is_floating_point())
                self._followed.update((each, found[0]) for each in floats)
            elif node is not None and self._is_for_use(last, given, others, found[0]):
                _notes(node)[_USE] = UntrainedDraw(found[0], stack)
            elif node is not None:
                self._meant.update(each.number for each in found)
        if self._is_marking and node is not None:
            is_data = any(not each.requires_grad for each in given)
            met = _DISTRIBUTION if _is_regular() else _DATA if is_data else ""
            if met:
                _notes(node)[_MET] = met

    def backward_begins(self, nodes: Sequence[Any]) -> None:
        """A call of backward or grad is about to run these nodes."""
        if not self._is_marking:
            self._is_marking = self._draws > 0
            return
        uses = (_notes(node).get(_USE) for node in nodes)
        for use in {each.draw.number: each for each in uses if each is not None}.values():
            if use.draw.number not in self._meant and self._is_only_regular(nodes, use.draw):
                self.found.append(use)

    def _is_for_use(self, last: str, given: list[Tensor], others: list[Tensor], draw: Draw) -> bool:
        """Whether a function that meets a graph neither scores the draw nor has it as a target."""
        if last in _ADDING and draw.size > 1 == max(each.numel() for each in given):
            return True  # a term of a loss
        if last in _COMPARING or last.endswith("_loss"):
            return False
        return all(draw.number not in self._numbers(x) for x in nodes_to_run(others, None))

    def _is_only_regular(self, nodes: Sequence[Any], draw: Draw) -> bool:
        """Whether a pass reaches a distribution by sums of what is made of it alone."""
        parents: defaultdict[Any, list[Any]] = defaultdict(list)
        for node in nodes:
            for child, _ in node.next_functions:
                parents[child].append(node)
        known = {node for node in nodes if draw.number in self._numbers(node)}
        if any(_PRIOR in _notes(node) for node in known):
            return False
        ways = [parent for node in known for parent in parents[node]]
        met = []
        for node in ways:  # which grow
            if node not in known and not node.name().startswith(_DRAWN):
                known.add(node)
                met.append(node)
                ways += () if node.name().startswith(_REDUCING) else parents[node]
        return bool(met) and all(
            _notes(node).get(_MET) == _DISTRIBUTION
            or (_MET not in _notes(node) and known.issuperset(nodes_below(node)))
            for node in met
        )

    def _own(self, node: Any, number: int) -> None:
        """Note the nodes that made a parameter of a distribution, up to the layer it came from."""
        for _ in range(_MOST_NODES):
            self._numbers(node).add(number)
            below = nodes_below(node)
            if len(below) != 1:
                return
            node = below[0]

    def _numbers(self, node: Any) -> set[int]:
        """Of the draws of the distributions that a node belongs to."""
        if hasattr(node, "variable"):  # the node may die before the parameter is used
            return self._leaves.setdefault(node.variable, set())
        return cast("set[int]", _notes(node).setdefault(_OWN, set()))


def _parameters(distribution: Any) -> Iterator[Tensor]:
    for each in getattr(distribution, "__dict__", {}).values():
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, distributions.Distribution):
            yield from _parameters(each)


def _notes(node: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", getattr(node, "metadata", {}))


def _is_regular() -> bool:
    """Whether torch computes a KL divergence or an entropy; notes what is made like another."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        is_torchs = frame.f_globals.get("__name__", "").startswith("torch.distributions.")
        if is_torchs and frame.f_code.co_name.startswith(("_kl_", "entropy")):
            for each in _parameters(frame.f_locals.get("q")):
                _notes(node_of(each))[_PRIOR] = True
            return True
        frame = frame.f_back
    return False
