"""The non-finite check and the forward traceback of anomaly mode.

Native anomaly mode checks for NaN only, with a boolean temporary as large as the gradient. The
check here asks ``aminmax`` first, which passes NaN and Inf through to its two results, and counts
only where something is wrong.
"""

from __future__ import annotations

import itertools
import os
import re
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from agviz_engine import native_run, torch_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz_engine.node import NodeRef


_ENGINE = f'File "{Path(__file__).parent}{os.sep}'  # how a frame of the engine begins in a stack
_FUNCTION = str(Path("torch", "autograd", "function.py"))
_MODIFIED = re.compile(
    r"one of the variables needed for gradient computation has been modified by an inplace "
    r"operation: .* expected version \d+ instead\."
)
_CALLER = 5  # stacklevel of a warning for the line in graph.py that calls run_backward


def check_nan(ref: NodeRef, outputs: tuple[Tensor | None, ...]) -> None:
    """Anomaly mode's check of a node's outputs (``Engine::evaluate_function``).

    Raises:
        RuntimeError: an output has NaN, with torch's message.
    """
    with torch.no_grad():
        for i, output in enumerate(outputs):
            if output is not None and bool(torch.isnan(output)._is_any_true().item()):
                raise RuntimeError(
                    f"Function '{ref.name}' returned nan values in its {i}th output."
                )


def hide_mode(error: BaseException) -> None:
    """Give torch's message about a modified saved tensor the words it has without anomaly mode.

    Where the program is shown that the mode is off.
    """
    if type(error) is RuntimeError and native_run.is_anomaly_hidden():
        said = _MODIFIED.match(str(error))
        if said is not None:
            error.args = (said[0] + torch_modes.inplace_hint(),)


def assign_parent(ref: NodeRef, made: Sequence[Tensor | None]) -> None:
    """Note ``ref`` as the node in whose backward the graph of ``made`` was made.

    ``Node::assign_parent`` notes the node that torch runs, which for a node called from here is
    the host of the graph task. The nodes to correct are those that name it.
    """
    pending: list[Any] = [tensor.grad_fn for tensor in made if tensor is not None]
    while pending:
        node = pending.pop()
        if node is not None and native_run.is_host(node.metadata.get("parent_")):
            node.metadata["parent_"] = ref.node
            pending += [consumer for consumer, _ in node.next_functions]


def forward_stacks(ref: NodeRef) -> list[str]:
    """What to say of a failed node's forward (``PyAnomalyMetadata::print_stack``).

    One text for the node, and one for each node in whose backward it was made.
    """
    metadata = ref.node.metadata
    texts = [_forward_stack(metadata.get("traceback_"), ref.name, is_parent=False)]
    parent = metadata.get("parent_")
    while parent is not None:
        stack = parent.metadata.get("traceback_")
        texts.append(_forward_stack(stack, parent.name(), is_parent=True))
        parent = parent.metadata.get("parent_")
    return texts


def _forward_stack(stack: object, name: str, *, is_parent: bool) -> str:
    stack = _without_engine(stack) if isinstance(stack, list) else []
    if not stack:
        return (
            f"Error detected in {name}. No forward pass information available. "
            "Enable detect anomaly during forward pass for more information."
        )
    if is_parent:
        return (
            f"\n\nPrevious calculation was induced by {name}. "
            "Traceback of forward call that induced the previous calculation:\n" + "".join(stack)
        )
    return (
        f"Error detected in {name}. Traceback of forward call that caused the error:\n"
        + "".join(stack)
    )


def forget_engine_frames(ref: NodeRef) -> None:
    """Take the engine out of the tracebacks that torch may print of a node it runs itself."""
    node: Any = ref.node
    while node is not None:
        stack = node.metadata.get("traceback_")
        if isinstance(stack, list):
            node.metadata["traceback_"] = _without_engine(stack)
        node = node.metadata.get("parent_")


def _without_engine(stack: list[str]) -> list[str]:
    """The stack without the engine's frames, and without that of the host between them."""
    kept = []
    for entry, following in itertools.zip_longest(stack, stack[1:], fillvalue=""):
        is_host = _FUNCTION in entry and _ENGINE in following
        if _ENGINE not in entry and not is_host:
            kept.append(entry)
    return kept


def warn_beside_an_error(texts: list[str]) -> None:
    """Warn although an exception is on its way (``PyWarningHandler``).

    A warning that a filter turned into an exception can't be raised then: it goes to stderr.
    """
    for text in texts:
        try:
            warnings.warn(text, UserWarning, stacklevel=_CALLER)
        except UserWarning as raised:
            traceback.print_exception(raised)
