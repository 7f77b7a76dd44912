"""Which saved tensor of a node had been modified by an inplace operation, as the node fails."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from agviz_engine.node import NodeRef

_MESSAGE: Final = re.compile(
    r"one of the variables needed for gradient computation has been modified by an inplace "
    r"operation: \[(\S+) (\[[\d, ]*\])\].* is at version (\d+); expected version (\d+) instead\."
)


class Modified(NamedTuple):
    """A saved tensor that a node could not use, on its way to the file."""

    graph_task: int
    node: int
    name: str
    """As in torch's ``_saved_<name>``."""
    shape: str
    dtype: str
    version: int
    expected: int
    parameter: str
    memory: int

    def rows(
        self, text: Callable[[str], int], _stack: Callable[[Any], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        named = text(self.name), text(self.shape), text(self.dtype)
        versions = self.version, self.expected, text(self.parameter), self.memory
        yield "version_error", (self.graph_task, self.node, *named, *versions)


def modified(
    graph_task: int,
    ref: NodeRef,
    message: str,
    parameter: Callable[[Tensor], str],
    memory: Callable[[Tensor], int],
) -> Modified | None:
    """The saved tensor that torch's ``message`` is about; None where it is about none of the node.

    No hook of the program is called.

    Args:
        graph_task: which failed.
        ref: the node that raised.
        message: of the exception.
        parameter: gives the name of the parameter whose memory a tensor has, or nothing.
        memory: gives the number of a tensor's storage, -1 where it has none.
    """
    match = _MESSAGE.match(message)
    if match is None:
        return None
    kind, shape, version, expected = match[1], match[2], int(match[3]), int(match[4])
    for name, tensor in _plainly_saved(ref.node):
        if str(list(tensor.shape)) != shape or tensor._version != version:
            continue
        if not _says(ref.node, name, match[0]):
            continue
        dtype = str(tensor.dtype).removeprefix("torch.")
        facts = shape, dtype, version, expected, parameter(tensor), memory(tensor)
        return Modified(graph_task, ref.index, name, *facts)
    refused, dtype = _refused(ref.node, match[0]), _dtype(kind)
    if not refused or not dtype:
        return None
    return Modified(graph_task, ref.index, refused, shape, dtype, version, expected, "", -1)


def _refused(node: Any, complaint: str) -> str:
    """Name of what an older release does not show with the same complaint; empty: nothing."""
    from agviz.measure.saved_tensors import raw_saved

    for attribute in dir(type(node)):
        if attribute.startswith("_raw_saved_"):
            try:
                raw_saved(node, attribute)
            except RuntimeError as error:
                if str(error).startswith(complaint):
                    return attribute.removeprefix("_raw_saved_")
    return ""


def _dtype(kind: str) -> str:
    """The dtype of tensors that torch calls ``torch.FloatTensor``; empty: not known."""
    import torch

    known = getattr(torch, kind.rpartition(".")[2], None)
    return str(getattr(known, "dtype", "")).removeprefix("torch.")


def _plainly_saved(node: Any) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of what a node has saved, but for what a hook has packed."""
    import torch

    from agviz.measure.saved_tensors import raw_saved

    for attribute in dir(type(node)):
        if not attribute.startswith("_raw_saved_"):
            continue
        name = attribute.removeprefix("_raw_saved_")
        try:
            raw = raw_saved(node, attribute)
        except RuntimeError:  # an older release shows only what was not written to
            continue
        named = [(name, raw)]
        if isinstance(raw, tuple | list):
            named = [(f"{name}[{number}]", one) for number, one in enumerate(raw)]
        for label, one in named:
            if one.unpack_hook is None and isinstance(one.data, torch.Tensor):
                yield label, one.data


def _says(node: Any, name: str, complaint: str) -> bool:
    """Whether torch makes the same complaint of the tensor; True for one of several in a list."""
    if "[" in name:
        return True
    try:
        getattr(node, f"_saved_{name}")
    except RuntimeError as error:
        return str(error).startswith(complaint)
    return False
