"""Reading which torch functions the program called in the forward."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, cast

from agviz.traces import health
from agviz.traces.rows import ForwardOpRow, ForwardTensorRow
from agviz.words.shapes import read_shape

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database

NONFINITE: Final = (
    "id IN (SELECT op FROM forward_tensor JOIN measured ON measured.id = forward_tensor.health"
    " WHERE is_output AND nan + posinf + neginf > 0)"
)
"""Condition of the functions that gave back, or made of an argument, something not finite."""


INSIDE: Final = "(gates)"
"""The place, among outputs, of what a function works out inside and does not give: the gates of an
LSTM, as far as they follow from its arguments."""
READS_GRADIENT: Final = "Tensor.grad.__get__"
"""The function that reads ``.grad``; recorded of tensors only that are no leaves and keep none."""
GRADIENT_READS: Final = f"name IN (SELECT id FROM string WHERE text = '{READS_GRADIENT}')"  # noqa: S608 - ours
"""Condition of its calls."""
GRADIENT_REQUESTS: Final = (
    "name IN (SELECT id FROM string"
    " WHERE text IN ('Tensor.requires_grad_', 'Tensor.requires_grad.__set__'))"
)
"""Condition of the calls that set ``requires_grad``."""
ONTO_ITSELF: Final = (
    "name IN (SELECT id FROM string WHERE text IN"
    " ('Tensor.add_', 'Tensor.copy_', 'Tensor.lerp_')) AND EXISTS"
    " (SELECT 1 FROM forward_tensor AS one JOIN forward_tensor AS other USING (op, memory, shape)"
    " WHERE op = forward_op.id AND one.number = 0 AND other.number = 1 AND NOT other.is_output"
    " AND memory >= 0)"
)
"""Condition of the calls that copy or mix a tensor's memory into that same memory."""


def read(
    database: Database, contents: Contents, condition: str, *parameters: int
) -> list[ForwardOpRow]:
    """The functions that fulfil an SQL condition, which may end in an order and a limit.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = cast(
        "list[tuple[Any, ...]]",
        database.numbers(
            "SELECT id, t, thread, name, arguments, module, stack, grad_enabled, graph_task,"  # noqa: S608 - the caller's own words
            f" recomputed_in, sequence_nr, first_nr, end_nr, error FROM forward_op"
            f" WHERE {condition}",
            *parameters,
        ),
    )
    tensors = _tensors(database, contents, condition, *parameters)
    text, stacks, start_ns = contents.name, contents.stacks, contents.meta.start_ns
    found = []
    for row in rows:
        number, t, thread, name, arguments, module, stack, *numbers, error = row
        grad_enabled, graph_task, recomputed_in, sequence_nr, first, end = numbers
        is_whole = None not in (*row[:10], first, end, error)
        if not is_whole or not 0 <= first <= end or (stack and stack not in stacks):
            raise database.damaged("a torch function lacks a fact")
        inputs, outputs = tensors.get(number, ((), ()))
        found.append(
            ForwardOpRow(
                id=number,
                time_ns=t + start_ns,
                thread=thread,
                name=text(name),
                arguments=text(arguments),
                module=text(module) or None,
                stack=stacks[stack] if stack else (),
                grad_enabled=bool(grad_enabled),
                graph_task=graph_task,
                recomputed_in=recomputed_in,
                sequence_nr=sequence_nr,
                sequence_nrs=range(first, end),
                error=text(error),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
            )
        )
    return found


def _tensors(
    database: Database, contents: Contents, condition: str, *parameters: int
) -> dict[int, tuple[list[ForwardTensorRow], list[ForwardTensorRow]]]:
    """Inputs and outputs by function."""
    ops = f"SELECT id FROM forward_op WHERE {condition}"  # noqa: S608
    rows = cast(
        "list[tuple[Any, ...]]",
        database.numbers(
            "SELECT op, is_output, place, tensor, memory, version, parameter, shape, dtype,"  # noqa: S608
            f" requires_grad, is_leaf, health FROM forward_tensor WHERE op IN ({ops})"
            " ORDER BY op, number",
            *parameters,
        ),
    )
    measured = health.read_measured(
        database,
        contents,
        f"SELECT health FROM forward_tensor WHERE op IN ({ops})",  # noqa: S608
        *parameters,
    )
    found: defaultdict[int, tuple[list[ForwardTensorRow], list[ForwardTensorRow]]]
    found = defaultdict(lambda: ([], []))
    text = contents.name
    for row in rows:
        op, is_output, place, tensor, memory, version, parameter, shape, dtype, *truths, of = row
        if None in (*row[:5], *row[6:11]) or (of is not None and of not in measured):
            raise database.damaged("a tensor of a torch function lacks a fact")
        try:
            sizes = read_shape(text(shape))
        except (ValueError, RecursionError) as error:
            raise database.damaged("a shape is none") from error
        found[op][bool(is_output)].append(
            ForwardTensorRow(
                text(place),
                tensor,
                memory,
                version,
                text(parameter),
                sizes,
                text(dtype),
                bool(truths[0]),
                bool(truths[1]),
                None if of is None else measured[of],
            )
        )
    return found
