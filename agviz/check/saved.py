"""What nodes saved for backward, and whether it is still the same when backward begins.

Note [What versions do not see]
Torch counts how often a tensor is written to, and refuses a backward pass that would use a tensor
that was changed. Writes through ``.data``, numpy and the like are not counted, and neither is
anything counted of tensors that a custom Function keeps as attributes of ``ctx``.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from agviz.check.backward_code import names_in_backward
from agviz.check.checksums import checksum
from agviz.measure.saved_tensors import raw_saved
from agviz_engine.gradient_edge import leaf_edge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.check.checksums import Checksum

_KEY: Final = "agviz.check"
"""Under which a node's ``metadata`` has what was seen of it: that lives as long as the node."""
_ON_CTX: Final = "ctx."
_MOST_WRITTEN: Final = 20_000
"""Memories whose last writes are remembered."""
_MOST_WRITES: Final = 4
"""Of one memory."""
OPENING: Final = frozenset({"numpy", "__array__", "__dlpack__"})
"""Functions that let what is no tensor write to its memory."""
_STATISTICS: Final = ("running_mean", "running_var")
"""Batch norm saves them, and does not use them in training, where forward changes them."""


class SavedThen(NamedTuple):
    """One tensor of a node, as it was in the forward."""

    name: str
    checksum: Checksum
    version: int


class NodeThen(NamedTuple):
    """What was seen of a node when it was made."""

    moment: int
    captured: Any
    """The stack of the call that made it."""
    called: str
    """That torch function."""
    saved: tuple[SavedThen, ...]


class Write(NamedTuple):
    """A call that wrote to memory, or that let others write to it."""

    moment: int
    captured: Any
    name: str


class ChangedTensor(NamedTuple):
    """A tensor that a node saved, and that is another now."""

    node: str
    """The node's name."""
    then: NodeThen
    saved: str
    """As the node names the tensor."""
    tensor: Tensor
    write: Write | None
    """The first call since then that may have done it; None: no torch function did."""
    opened: Write | None
    """Where it is None: the last call before that gave the memory to others, as ``numpy`` does."""


class SavedTensors:
    """Checksums of what nodes save."""

    def __init__(self) -> None:
        self.checked = 0
        """Tensors that were looked at again when a backward pass began."""
        self._names: dict[type, tuple[str, ...]] = {}
        self._writes: defaultdict[int, list[Write]] = defaultdict(list)

    def made(self, results: Sequence[Tensor], numbers: range, then: tuple[int, Any, str]) -> None:
        """Take the checksums of what new nodes saved.

        Args:
            results: what a call gave.
            numbers: sequence numbers of the nodes that it made.
            then: the moment, the stack, the torch function.
        """
        pending = [each.grad_fn for each in results if each.grad_fn is not None]
        while pending:
            node: Any = pending.pop()
            if node is None or _KEY in node.metadata or node._sequence_nr() not in numbers:
                continue
            saved = tuple(
                SavedThen(name, found, _version(tensor))
                for name, tensor in self._tensors(node)
                if (found := checksum(tensor)) is not None
            )
            node.metadata[_KEY] = NodeThen(*then, saved)
            pending += [child for child, _ in node.next_functions]

    def written(self, tensor: Tensor, write: Write) -> None:
        """A torch function wrote to a tensor's memory, or gave it to others."""
        memory = _memory(tensor)
        if memory is None:
            return
        if len(self._writes) > _MOST_WRITTEN:
            self._writes.clear()
        writes = self._writes[memory]
        if len(writes) < _MOST_WRITES:
            writes.append(write)
        else:
            writes[-2:] = [writes[-1], write]

    def changed(self, nodes: Iterable[Any]) -> list[ChangedTensor]:
        """The tensors that changed, of the nodes that a call of backward is about to run."""
        found = []
        for node in nodes:
            then = seen(node)
            if then is None or not then.saved:
                continue
            now = dict(self._tensors(node))
            for saved in then.saved:
                tensor = now.get(saved.name)
                if tensor is None or not self._is_silent(node, saved, tensor):
                    continue
                self.checked += 1
                today = checksum(tensor)
                if today is not None and today != saved.checksum:
                    write = self._first_write(tensor, then.moment)
                    opened = None if write else self._last_opening(tensor, then.moment)
                    found.append(
                        ChangedTensor(node.name(), then, saved.name, tensor, write, opened)
                    )
        return found

    def _is_silent(self, node: Any, saved: SavedThen, tensor: Tensor) -> bool:
        """Whether torch would not notice a change, and backward uses the tensor."""
        if saved.name.startswith(_ON_CTX):
            names = names_in_backward(type(node)._forward_cls)
            return saved.name.removeprefix(_ON_CTX) in names
        return _version(tensor) == saved.version

    def _first_write(self, tensor: Tensor, moment: int) -> Write | None:
        memory = _memory(tensor)
        writes = [] if memory is None else self._writes.get(memory, [])
        return next((write for write in writes if write.moment > moment), None)

    def _last_opening(self, tensor: Tensor, moment: int) -> Write | None:
        memory = _memory(tensor)
        writes = [] if memory is None else self._writes.get(memory, [])
        earlier = (write for write in writes if write.moment <= moment)
        before = [write for write in earlier if write.name.rpartition(".")[2] in OPENING]
        return before[-1] if before else None

    def _tensors(self, node: Any) -> Iterator[tuple[str, Tensor]]:
        """The tensors that a node saved, by name, without a call of hooks."""
        kind = type(node)
        names = self._names.get(kind)
        if names is None:
            names = self._names[kind] = tuple(
                name for name in dir(kind) if name.startswith("_raw_saved_")
            )
        trains = getattr(node, "_saved_training", None) is not False
        for name in names:
            short = name.removeprefix("_raw_saved_")
            if short in _STATISTICS and trains:
                continue
            try:
                raw = raw_saved(node, name)
                several = isinstance(raw, tuple | list)
                for number, one in enumerate(raw if several else [raw]):
                    if one.unpack_hook is None and isinstance(one.data, Tensor):
                        yield f"{short}[{number}]" if several else short, one.data
            except RuntimeError:
                continue  # released
        if isinstance(node, torch._C._FunctionBase):
            for name, value in sorted(vars(node).items()):
                if isinstance(value, Tensor):
                    yield f"{_ON_CTX}{name}", value


def seen(node: Any) -> NodeThen | None:
    """What was seen of a node."""
    found = getattr(node, "metadata", {}).get(_KEY)
    return found if isinstance(found, NodeThen) else None


def nodes_to_run(roots: Any, inputs: Any) -> list[Any]:
    """The nodes that a call of backward reaches, and from which its inputs are reached."""
    order: dict[Any, None] = {}
    pending = [node_of(root) for root in roots or ()]
    while pending:
        node = pending.pop()
        if node is None or node in order:
            continue
        order[node] = None
        pending += [child for child, _ in node.next_functions]
    if not inputs:
        return list(order)
    parents: defaultdict[Any, list[Any]] = defaultdict(list)
    for node in order:
        for child, _ in node.next_functions:
            parents[child].append(node)
    needed: dict[Any, None] = {}
    pending = [parent for each in inputs for parent in parents[node_of(each)]]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed[node] = None
            pending += parents[node]
    return [node for node in order if node in needed]


def nodes_below(node: Any) -> list[Any]:
    """The nodes that a node's gradients go to, in order."""
    return [child for child, _ in node.next_functions if child is not None]


def made_by(tensor: Tensor) -> Any:
    """The node that made a tensor; None: none did."""
    with contextlib.suppress(RuntimeError):  # a view that no_grad made, whose base got a graph
        return tensor.grad_fn
    return None


def node_of(root: Any) -> Any:
    """The node of a root, or of an input, of a call of backward; None: it has none."""
    if isinstance(root, GradientEdge):
        return root.node
    if not isinstance(root, Tensor):
        return None
    with contextlib.suppress(RuntimeError):
        is_leaf = root.grad_fn is None and root.requires_grad
        return leaf_edge(root)[0] if is_leaf else root.grad_fn
    return None


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _memory(tensor: Tensor) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # it has none
        return None
