"""What a backward pass changes, so that it can be put back before the pass runs once more."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from agviz.verify.values import undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.nn import Module


class RandomState(NamedTuple):
    """The default random generators: torch's, CUDA's, Python's, NumPy's."""

    cpu: Tensor
    cuda: list[Tensor]
    python: tuple[Any, ...]
    numpy: Any

    @classmethod
    def take(cls) -> Self:
        """As it is now. NumPy's and CUDA's only where the program uses them."""
        numpy = sys.modules.get("numpy")
        with undisturbed():
            return cls(
                cpu=torch.get_rng_state(),
                cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
                python=random.getstate(),
                numpy=cast("Any", numpy).random.get_state() if numpy else None,
            )

    def restore(self) -> None:
        """Make it so again."""
        with undisturbed():
            torch.set_rng_state(self.cpu)
            if self.cuda:
                torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        if self.numpy is not None:
            cast("Any", sys.modules["numpy"]).random.set_state(self.numpy)


class _Held(NamedTuple):
    """A tensor and its ``.grad``, the object as well as a copy of what was in it."""

    tensor: Tensor
    gradient: Tensor | None
    content: Tensor | None
    version: int
    data: Tensor | None
    """A copy of the tensor itself, where a hook may change it unseen."""


class GradientBackup:
    """The ``.grad`` of a number of tensors.

    Torch adds to a gradient in place, and programs hold on to ``.grad`` (DDP's buckets, flattened
    optimizers). So the same object is put back, with its old content.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._held: dict[int, _Held] = {}
        self.add(tensors)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Take down the gradients of those that are not there yet."""
        with undisturbed():
            for tensor in tensors:
                if id(tensor) not in self._held:
                    gradient = gradient_of(tensor)
                    self._held[id(tensor)] = _Held(
                        tensor=tensor,
                        gradient=gradient,
                        content=None if gradient is None else gradient.detach().clone(),
                        version=_version(tensor),
                        data=tensor.detach().clone() if _may_change_unseen(tensor) else None,
                    )

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors, in the order in which they were added."""
        return [held.tensor for held in self._held.values()]

    def restore(self) -> None:
        """Put all gradients back, object and content."""
        with undisturbed():
            for held in self._held.values():
                gradient, content = held.gradient, held.content
                if gradient is not None and content is not None:
                    _put_back(gradient, content)
                if gradient_of(held.tensor) is not gradient:
                    held.tensor.grad = gradient

    def changed(self) -> Tensor | None:
        """The first tensor that is no longer what it was, apart from its gradient."""
        with undisturbed():
            for held in self._held.values():
                if _version(held.tensor) != held.version or (
                    held.data is not None and not _same(held.tensor, held.data)
                ):
                    return held.tensor
        return None


class Buffers:
    """The buffers of modules whose ``forward`` runs again in a backward pass (checkpointing).

    A normalisation that is recomputed moves its running averages once more.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._held: dict[Module, dict[str, tuple[Tensor, Tensor]]] = {}
        for module in modules:
            self.add(module)

    def add(self, module: Module) -> None:
        """Take down the module's own buffers, unless they are there already."""
        if module not in self._held:
            with undisturbed():
                self._held[module] = {
                    name: (buffer, buffer.clone())
                    for name, buffer in module.named_buffers(recurse=False)
                }

    @property
    def modules(self) -> list[Module]:
        """The modules, in the order in which they were added."""
        return list(self._held)

    def restore(self) -> None:
        """Put all buffers back, object and content."""
        with undisturbed():
            for module, buffers in self._held.items():
                for name, (buffer, content) in buffers.items():
                    _put_back(buffer, content)
                    module._buffers[name] = buffer


class ProgramState:
    """All that a pass changes and that is put back before it runs again.

    Random numbers are taken down at once; gradients and buffers as a run reaches them.
    """

    def __init__(self, like: ProgramState | None = None) -> None:
        self.random = RandomState.take()
        self.gradients: GradientBackup = GradientBackup(like.gradients.tensors if like else ())
        self.buffers: Buffers = Buffers(like.buffers.modules if like else ())

    def restore(self) -> None:
        """Make it so again."""
        self.gradients.restore()
        self.buffers.restore()
        self.random.restore()


def gradient_of(tensor: Tensor) -> Tensor | None:
    """``tensor.grad``, without the warning for a tensor that has none."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def _put_back(tensor: Tensor, content: Tensor) -> None:
    if not _same(tensor, content):
        with _unsafe_preserve_version_counter(tensor):
            tensor.copy_(content)


def _same(tensor: Tensor, content: Tensor) -> bool:
    return tensor.layout is torch.strided and torch.equal(tensor, content)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _may_change_unseen(tensor: Tensor) -> bool:
    return bool(cast("Any", tensor)._post_accumulate_grad_hooks)
