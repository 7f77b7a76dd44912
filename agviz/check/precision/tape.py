"""The torch functions of one forward, with all that it takes to call them again.

Note [What is computed again]
From the first call of a module, or of a function that makes a node, until backward begins, each
torch function is noted with its arguments, tensors by number. What no noted function gave
(parameters, data) is copied before it is first used. Nothing is called again before the program has
ended: Note [After the program] in ``kept_call.py``. Random numbers are not drawn again: what a
function without a gradient drew is kept as it is, and of a dropout the factors.
"""

from __future__ import annotations

import itertools
import math
import threading
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor

from agviz.check.checksums import has_memory
from agviz.check.kept_call import mapped
from agviz.check.saved import made_by
from agviz.record.arguments import tensors_given, tensors_of
from agviz.record.torch_functions import leaves_torch
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MOST_BYTES: Final = 128 * 1024**2
"""Of all tensors that are given and made in a pass."""
_MOST_CALLS: Final = 20_000
_PLAIN: Final = (Tensor, torch.nn.Parameter)
_LOW: Final = (torch.float16, torch.bfloat16)
_APPLY: Final = ".apply"


class TapeError(Exception):
    """A pass can't be computed again; says why."""


@dataclass(frozen=True, slots=True)
class Slot:
    """In place of a tensor among arguments."""

    number: int


@dataclass(slots=True)
class TapeCall:
    """A function that was called."""

    function: Any
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    captured: Any
    """The stack of the call."""
    grad_enabled: bool
    random: int
    """Checksum of the state of random numbers before it."""
    results: tuple[int, ...] = ()
    """Numbers of the tensors that it gave."""
    factors: Tensor | None = None
    """Of a dropout: by what each element was multiplied."""

    def slots(self) -> Iterator[Slot]:
        """The tensors among its arguments themselves, not those in lists."""
        for each in (*self.args, *self.kwargs.values()):
            if isinstance(each, Slot):
                yield each


@dataclass(slots=True)
class GivenLeaf:
    """A tensor that no noted function gave."""

    copy: Tensor
    requires_grad: bool
    name: str
    """Of a parameter; else empty."""

    @property
    def called(self) -> str:
        """Its name, or its shape."""
        return self.name or f"the leaf of shape {write_shape(self.copy.shape)}"


@dataclass(slots=True)
class GradientThen:
    """The gradient of a leaf that a pass has left, as a copy."""

    before: Tensor | None
    after: Tensor | None = None


@dataclass
class ForwardTape:
    """The forward of one backward pass."""

    number: int
    """Of the backward pass, from 0."""
    numbered: Callable[[Tensor], int]
    named: Callable[[Tensor], str]
    """The name of a parameter; empty where it is none."""
    calls: list[TapeCall] = field(default_factory=list)
    given: dict[int, GivenLeaf] = field(default_factory=dict)
    roots: list[tuple[int, Tensor | None]] = field(default_factory=list)
    """What backward was called on, and with which gradient."""
    gradients: dict[int, GradientThen] = field(default_factory=dict)
    """By number of the leaf."""
    why_not: str = ""
    """Why it can't be computed again."""
    _made: set[int] = field(default_factory=set)
    _leaves: dict[int, Tensor] = field(default_factory=dict)
    _bytes: int = 0
    _thread: int = field(default_factory=threading.get_ident)
    _inside: int = 0
    """Calls of custom Functions under way: what they call is theirs."""

    def before(
        self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], captured: Any
    ) -> TapeCall | None:
        """A function is about to run; None: it is not noted."""
        if self.why_not or self._thread != threading.get_ident() or leaves_torch(name):
            return None
        self._inside += name.endswith(_APPLY) and function is None
        if self._inside > (function is None):
            return None
        if not tensors_of(args, kwargs):
            return None
        try:
            self._check_room()
            told = tuple(self._told(each) for each in args)
            named = {key: self._told(each) for key, each in kwargs.items()}
        except TapeError as error:
            self._give_up(str(error))
            return None
        enabled = torch.is_grad_enabled()
        return TapeCall(function, name, told, named, captured, enabled, _random_state())

    def after(self, call: TapeCall | None, name: str, args: tuple[Any, ...], result: Any) -> None:
        """It has run."""
        if name.endswith(_APPLY) and self._inside:
            self._inside -= 1
        if call is None or self.why_not:
            return
        try:
            self._note(call, args, result)
        except TapeError as error:
            self._give_up(str(error))

    def failed(self, name: str) -> None:
        """It has raised."""
        if name.endswith(_APPLY) and self._inside:
            self._inside -= 1

    def backward_begins(self, roots: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Backward is called on ``roots``; the tape has ended."""
        if self.why_not:
            return
        try:
            pairs = itertools.zip_longest(roots, gradients)
            self.roots = [self._root(root, gradient) for root, gradient in pairs]
            for number, leaf in self._leaves.items():
                grad = leaf.grad
                before = None if grad is None else grad.detach().clone()
                self.gradients[number] = GradientThen(before)
        except TapeError as error:
            self._give_up(str(error))

    def backward_ended(self) -> None:
        """It has left its gradients."""
        for number, leaf in self._leaves.items():
            if number in self.gradients and leaf.grad is not None:
                self.gradients[number].after = leaf.grad.detach().clone()
        self._leaves.clear()

    def _note(self, call: TapeCall, args: tuple[Any, ...], result: Any) -> None:
        results = [tensor for _, tensor in tensors_given(result)]
        if call.function is None:
            node = next((each.grad_fn for each in results if each.grad_fn is not None), None)
            if node is None or not hasattr(node, "_forward_cls"):
                return
            call.function = cast("Any", node)._forward_cls.apply
        if _random_state() != call.random:
            if not any(each.requires_grad for each in results):
                self._drawn(call, results)
                return
            call.factors = _factors(call.name, args, results)
        numbers = []
        for each in results:
            self._check(each)
            number = self.numbered(each)
            if number not in self._made:
                self._add_bytes(each)
            self._made.add(number)
            numbers.append(number)
        call.results = tuple(numbers)
        self.calls.append(call)

    def _drawn(self, call: TapeCall, results: list[Tensor]) -> None:
        """Random numbers without a gradient are kept as they are, if they are used at all."""
        for each in results:
            number = self.numbered(each)
            if number in self._made or number in self.given:
                self._add_bytes(each)
                call.function, call.results = torch.Tensor.copy_, (number,)
                call.args, call.kwargs = (Slot(number), each.detach().clone()), {}
                call.grad_enabled = False
                self.calls.append(call)

    def _told(self, value: Any) -> Any:
        return mapped(value, self._slot)

    def _slot(self, tensor: Tensor) -> Slot:
        number = self.numbered(tensor)
        if number not in self._made and number not in self.given:
            self._check(tensor)
            self._add_bytes(tensor)
            is_leaf = made_by(tensor) is None
            name = self.named(tensor) if is_leaf else ""
            wants = tensor.requires_grad
            if wants and tensor.dtype in _LOW:
                raise TapeError("its parameters are of lower precision on purpose")
            self.given[number] = GivenLeaf(tensor.detach().clone(), wants, name)
            if wants and is_leaf:
                self._leaves[number] = tensor
        return Slot(number)

    def _check_room(self) -> None:
        if torch.is_autocast_enabled("cpu"):
            raise TapeError("autocast computes in lower precision on purpose")
        if len(self.calls) == _MOST_CALLS:
            raise TapeError(f"it calls more than {_MOST_CALLS:,} functions")

    def _root(self, root: Any, gradient: Any) -> tuple[int, Tensor | None]:
        number = self.numbered(root) if isinstance(root, Tensor) else -1
        if number not in self._made:
            raise TapeError("not all of its forward was seen")
        return number, gradient.detach().clone() if isinstance(gradient, Tensor) else None

    def _check(self, tensor: Tensor) -> None:
        if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_nested:
            raise TapeError(f"a tensor is of the class {type(tensor).__name__}, or not strided")
        if tensor.device.type != "cpu":
            raise TapeError(f"it computes on the device {tensor.device.type}")
        if tensor.numel() and not has_memory(tensor):
            raise TapeError("the memory of a tensor was freed")

    def _add_bytes(self, tensor: Tensor) -> None:
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes > MOST_BYTES:
            raise TapeError(f"its tensors take more than {MOST_BYTES // 1024**2} MiB")

    def _give_up(self, why: str) -> None:
        self.why_not = why
        self.calls.clear()
        self.given.clear()
        self._leaves.clear()


class ForwardTapes:
    """The tapes of a program: of its first pass, and of the last after 1, 2, 4, 8 … passes.

    Args:
        numbered: gives a tensor's number.
        named: gives a parameter's name.
    """

    def __init__(self, numbered: Callable[[Tensor], int], named: Callable[[Tensor], str]) -> None:
        self._numbered, self._named = numbered, named
        self._passes = 0
        self._depth = 0
        """Of modules that call each other."""
        self._has_begun = False
        """Whether a module was called, or a function made a node."""
        self._current: ForwardTape | None = None
        self.kept: list[ForwardTape] = []

    def entered(self) -> None:
        """A module is called; the outermost begins a forward, unless one is under way."""
        self._depth += 1
        if self._depth == 1 and not self._has_begun and self._is_wanted():
            self._current = ForwardTape(self._passes, self._numbered, self._named)
            self._has_begun = True

    def left(self) -> None:
        """The call of a module has ended."""
        self._depth -= 1

    def before(
        self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], captured: Any
    ) -> TapeCall | None:
        """A function is about to run."""
        if self._current is None:
            if not self._is_wanted() or not torch.is_grad_enabled():
                return None
            if not any(tensor.requires_grad for _, tensor in tensors_of(args, kwargs)):
                return None
            self._current = ForwardTape(self._passes, self._numbered, self._named)
        return self._current.before(function, name, args, kwargs, captured)

    def after(
        self,
        call: TapeCall | None,
        name: str,
        args: tuple[Any, ...],
        result: Any,
        *,
        makes_nodes: bool,
    ) -> None:
        """It has run."""
        if self._current is None:
            return
        self._current.after(call, name, args, result)
        self._has_begun |= makes_nodes
        if not self._has_begun:  # it is an initialisation, say, with which no forward begins
            self._current = None

    def failed(self, name: str) -> None:
        """It has raised."""
        if self._current is not None:
            self._current.failed(name)

    def backward_begins(self, roots: Any, gradients: Any) -> ForwardTape | None:
        """A call of backward that writes ``.grad``; None: its forward was not noted."""
        self._passes += 1
        tape, self._current, self._has_begun = self._current, None, False
        if tape is not None:
            tape.backward_begins(roots, gradients)
        return tape

    def backward_ended(self, tape: ForwardTape) -> None:
        """It has ended well."""
        tape.backward_ended()
        self.kept = [*self.kept[:1], tape]

    def _is_wanted(self) -> bool:
        return self._passes & (self._passes - 1) == 0


def _random_state() -> int:
    return zlib.crc32(torch.get_rng_state().numpy().data)


def _factors(name: str, args: tuple[Any, ...], results: list[Tensor]) -> Tensor:
    """By what a dropout has multiplied each element."""
    given = [tensor for _, tensor in tensors_of(args[:1], {})]
    is_dropout = name.rpartition(".")[2] in {"dropout", "dropout1d", "dropout2d", "dropout3d"}
    if not is_dropout or len(given) != 1 or len(results) != 1 or given[0] is results[0]:
        raise TapeError(f"{name.rpartition('.')[2]} draws random numbers")
    before, after = given[0].detach(), results[0].detach()
    factors = torch.where(before != 0, after / before, torch.zeros_like(after))
    if not math.isfinite(factors.abs().max().item() if factors.numel() else 0.0):
        raise TapeError("it is not finite")
    return factors
