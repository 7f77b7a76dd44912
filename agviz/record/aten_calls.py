"""The calls of ATen that are made while a node runs, with the tensors they are given.

Note [What is given]
Every tensor that a call is given or makes is held until the node has ended, so that it is known
again by its identity; nothing is copied meanwhile. Only before a call that writes to memory that a
given tensor has are that tensor's elements copied: they are wanted as they were. Where two given
tensors share such memory, the node can't be run alone.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from agviz.measure import copying
from agviz.measure.health import name_of, unseen, why_unknown
from agviz.repro.isolated_node import NAMESPACES, AtenCall, GivenTensor
from agviz.repro.safetensors import CODES, StoredTensor
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_C: Any = torch._C
_PLAIN: Final = (bool, int, str, type(None))
_TAGS: Final = {
    float: "float",
    complex: "complex",
    torch.device: "device",
    torch.dtype: "dtype",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}
_MOST_CALLS: Final = 20_000


class AtenCalls(TorchDispatchMode):
    """Takes down the calls that are made between :meth:`start` and :meth:`stop` on one thread.

    Args:
        names: what to call tensors that are known beforehand, by identity.
        saved: what to call those that a node saved, by :func:`place`.
    """

    def __init__(
        self, names: Mapping[int, str], saved: Mapping[tuple[Any, ...], str] | None = None
    ) -> None:
        cast("Any", super()).__init__()
        self._names = dict(names)
        self._saved = dict(saved or {})
        self._is_on = False
        self.calls: list[AtenCall] = []
        self.given: dict[int, _Given] = {}
        """In the order in which they were needed."""
        self._known: dict[int, str] = {}
        """Names of tensors that were given or made, by identity."""
        self._held: list[Tensor] = []
        self._made = 1
        self.why_not = ""
        """Why the node can't be run alone, as far as is known."""

    def start(self) -> None:
        """Take down what this thread calls from now on."""
        _push_mode(self)
        self._is_on = True

    def stop(self) -> None:
        """Take down nothing any more; a second call has no effect."""
        if self._is_on:
            self._is_on = False
            depth = _C._len_torch_dispatch_stack()
            if depth and _C._get_dispatch_stack_at(depth - 1) is self:
                _pop_mode()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What runs now is not the node's, but what it gives is given to the node."""
        was_on = self._is_on
        self.stop()
        try:
            yield
        finally:
            if was_on and not self.why_not:
                self.start()

    def interrupted(self, why: str) -> None:
        """Something runs now whose calls are not the node's."""
        self.why_not = why
        self.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make a call, and take it down."""
        del types
        kwargs = kwargs or {}
        if self.why_not:
            return func(*args, **kwargs)
        written: tuple[list[Any], dict[str, Any]] | None = None
        try:
            written = self._before(func, args, kwargs)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self.why_not = _why(error)
        result = func(*args, **kwargs)
        if written is not None:
            try:
                self._after(func, *written, args, kwargs, result)
            except Exception as error:
                if comes_from_outside(error):
                    raise
                self.why_not = _why(error)
        return result

    def name(self, tensor: Tensor | None) -> str | None:
        """What a tensor is called that was given, made, or neither yet; None: there is none.

        Raises:
            CantIsolateError: it is of a kind that is not kept.
        """
        if tensor is None:
            return None
        known = self._known.get(id(tensor))
        return self._give(tensor) if known is None else known

    def named(self, tensor: Tensor | None) -> str | None:
        """The same of one that was given or made already, else None."""
        return self._known.get(id(tensor))

    def _before(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        operator = str(func)
        if not isinstance(func, torch._ops.OpOverload) or func.namespace not in NAMESPACES:
            raise CantIsolateError(f"it calls {operator}, which is no operator of ATen")
        if len(self.calls) == _MOST_CALLS:
            raise CantIsolateError(f"it makes more than {_MOST_CALLS:,} calls")
        arguments = (
            [self._tagged(each) for each in args],
            {k: self._tagged(v) for k, v in kwargs.items()},
        )
        for tensor in _written_to(func, args, kwargs):
            self._keep_before(tensor)
        return arguments

    def _after(
        self,
        func: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        tensors: Sequence[Any],
        named: Mapping[str, Any],
        result: Any,
    ) -> None:
        changed = list(_written_to(func, tensors, named))
        if torch.Tag.nondeterministic_seeded in func.tags:
            for tensor in (*changed, *_tensors_in(result)):
                self._known.pop(id(tensor), None)
                self._give(tensor)
            return
        made = self._result(result)
        if changed or any(True for _ in _tensors_in(result)):
            self.calls.append(AtenCall(str(func), tuple(args), kwargs, made))

    def _tagged(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return {"tensor": self.name(value)}
        if isinstance(value, list | tuple):
            return [self._tagged(each) for each in value]
        if type(value) in _PLAIN or (type(value) is float and math.isfinite(value)):
            return value
        tag = _TAGS.get(type(value))
        if tag is None:
            raise CantIsolateError(f"an argument is of type {type(value).__name__}")
        return {tag: str(value).removeprefix("torch.")}

    def _result(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._result(each) for each in value]
        if not isinstance(value, Tensor) or id(value) in self._known:
            return None
        name = f"t{self._made}"
        self._made += 1
        self._hold(value, name)
        return name

    def _give(self, tensor: Tensor) -> str:
        name = self._names.pop(id(tensor), None)
        if name is None:
            with unseen():
                name = self._saved.pop(place(tensor), None) if self._saved else None
        name = name or f"given_{len(self.given)}"
        self.given[len(self._held)] = _Given(name, tensor)
        self._hold(tensor, name)
        return name

    def _hold(self, tensor: Tensor, name: str) -> None:
        self._known[id(tensor)] = name
        self._held.append(tensor)

    def _keep_before(self, tensor: Tensor) -> None:
        """Copy what is given in memory that is written to."""
        with unseen():
            address = tensor.untyped_storage()._cdata
            owners = [each for each in self.given.values() if each.has_memory(address)]
            if len(owners) > 1:
                raise CantIsolateError("it writes to memory that two tensors share")
            for each in owners:
                each.keep()


class CantIsolateError(Exception):
    """A node can't be run alone; says why."""


class _Given:
    """A tensor that is to be kept."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.facts, self._flat = described(name, tensor)
        self._copy: bytes | bytearray | None = None

    @property
    def nbytes(self) -> int:
        return self._flat.nbytes

    def has_memory(self, address: int) -> bool:
        return self._copy is None and self._flat.untyped_storage()._cdata == address

    def keep(self) -> None:
        if self._copy is None:
            self._copy = copying.contents(self._flat)

    def stored(self) -> StoredTensor:
        """The elements; to be called within ``unseen``."""
        return stored(self.facts, self._flat, self._copy)


def place(tensor: Tensor) -> tuple[Any, ...]:
    """Which elements of which memory a strided tensor has; nothing for others."""
    if tensor.layout is not torch.strided:
        return ()
    address = tensor.untyped_storage()._cdata
    return address, tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride()


def described(name: str, tensor: Tensor) -> tuple[GivenTensor, Tensor]:
    """A tensor in words, and a plain view of its memory whose elements are to be kept.

    Raises:
        CantIsolateError: it is of a kind that is not kept.
    """
    with unseen():
        why = why_unknown(tensor)
        if not why and tensor.layout is not torch.strided:
            why = f"of layout {name_of(tensor.layout)}"
        if not why and tensor.dtype not in copying.COPIED:
            why = f"of dtype {name_of(tensor.dtype)}"
        if why:
            raise CantIsolateError(f"one of its tensors can't be kept ({why})")
        is_conj, is_neg = tensor.is_conj(), tensor.is_neg()
        plain = cast("Any", torch)._neg_view(tensor) if is_neg else tensor
        plain = torch.conj(plain) if is_conj else plain
        size, stride = tuple(plain.shape), plain.stride()
        is_span = stride != _in_order(size) and plain.numel() > 0
        if is_span:
            last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            plain = plain.as_strided((last + 1,), (1,), plain.storage_offset())
        facts = GivenTensor(
            name,
            name_of(tensor.dtype),
            size,
            stride if is_span else _in_order(size),
            str(tensor.device),
            is_span=is_span,
            is_conj=is_conj,
            is_neg=is_neg,
        )
        return facts, plain


def stored(facts: GivenTensor, flat: Tensor, copy: bytes | bytearray | None) -> StoredTensor:
    """The elements of a tensor as they go to the file; to be called within ``unseen``."""
    data = copying.contents(flat) if copy is None else copy
    code = CODES.get(facts.dtype)
    return StoredTensor(code or "U8", tuple(flat.shape) if code else (len(data),), data)


def _in_order(size: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(size):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


def _written_to(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors among the arguments that an operator writes to."""
    if not func._schema.is_mutable:
        return
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from _tensors_in(value)


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors_in(each)


def _why(error: Exception) -> str:
    if isinstance(error, CantIsolateError):
        return str(error)
    return f"agviz failed to take down its calls ({type(error).__name__}: {error})"
