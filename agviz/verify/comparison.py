"""Holding two runs of a pass against each other: exceptions, gradients, order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from agviz.verify.findings import PassDifference
from agviz.verify.values import compare
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from agviz.verify.calls import BackwardCall, PassRun
    from agviz.verify.values import Value

NameOf: TypeAlias = "Callable[[Tensor], str | None]"


def differences(native: PassRun, other: PassRun, name_of: NameOf) -> list[PassDifference]:
    """How exceptions and gradients of two runs differ: one difference at most, the first."""
    if native.failure() != other.failure():
        raised = (run.failure() or "raised nothing" for run in (native, other))
        return [PassDifference("exception", "outcome", *raised)]
    if native.not_taken != other.not_taken:
        taken = (run.not_taken or "taken down" for run in (native, other))
        return [PassDifference("gradient", "what came of it", *taken)]
    if len(native.calls) != len(other.calls):
        counts = (str(len(run.calls) - 1) for run in (native, other))
        return [PassDifference("order", "number of reentrant calls", *counts)]
    found = [
        difference
        for number, (expected, got) in enumerate(zip(native.calls, other.calls, strict=True))
        for difference in _of_call(_prefix(number), expected, got, name_of)
    ]
    if len(found) < 2:
        return found
    first, more = found[0], f"{len(found) - 1:,} more gradients differ"
    note = f"{first.note}; {more}" if first.note else more
    return [PassDifference(first.kind, first.where, first.native, first.agviz, note)]


def _prefix(number: int) -> str:
    return f"reentrant call {number}, " if number else ""


def _of_call(
    prefix: str, native: BackwardCall, other: BackwardCall, name_of: NameOf
) -> Iterator[PassDifference]:
    """The gradients that differ, in the order in which they came to be."""
    counts = len(native.returned), len(other.returned)
    if counts[0] != counts[1]:
        yield PassDifference("gradient", f"{prefix}number of gradients returned", *map(str, counts))
        return
    for position, (expected, got) in enumerate(zip(native.returned, other.returned, strict=True)):
        yield from _of_gradient(f"{prefix}gradient {position} of those returned", expected, got)
    counts = len(native.gradients), len(other.gradients)
    if counts[0] != counts[1]:
        yield PassDifference("gradient", f"{prefix}number of tensors reached", *map(str, counts))
        return
    ran = {label: place for order in other.order.values() for place, label in enumerate(order)}
    last = len(ran)
    for i in sorted(range(counts[0]), key=lambda i: ran.get(native.tensors[i][0], last)):
        name = _name(native.tensors[i][1], i, name_of)
        yield from _of_gradient(
            f"{prefix}gradient of {name}", native.gradients[i], other.gradients[i]
        )


def _of_gradient(where: str, native: Value | None, other: Value | None) -> Iterator[PassDifference]:
    found = compare(native, other)
    if found is not None:
        where = f"{where}, {found.where}" if found.where else where
        yield PassDifference("gradient", where, found.native, found.agviz, found.note)


def _name(tensor: Tensor, position: int, name_of: NameOf) -> str:
    kind = "leaf" if tensor.is_leaf else "tensor"
    return name_of(tensor) or f"{kind} {position} of shape {write_shape(tensor.shape)}"


def order_differences(native: PassRun, agviz: PassRun) -> list[PassDifference]:
    """The first place where nodes ran in another order; nothing where our order is not known."""
    for number, (expected, got) in enumerate(zip(native.calls, agviz.calls, strict=False)):
        if got.seen:
            for difference in _of_order(_prefix(number), expected, got):
                return [difference]
    return []


def _of_order(prefix: str, native: BackwardCall, agviz: BackwardCall) -> Iterator[PassDifference]:
    threads = _threads(native), _threads(agviz)
    if len(threads[0]) != len(threads[1]):
        yield PassDifference("order", f"{prefix}number of threads", *(str(len(t)) for t in threads))
        return
    for number, (expected, got) in enumerate(zip(*threads, strict=True)):
        if got and got[-1] == agviz.failed_at and got[:-1] == expected:
            continue  # it failed in a hook that comes before the one that notes the order
        thread = f"thread {number}, " if len(threads[0]) > 1 else ""
        for position in range(max(len(expected), len(got))):
            nodes = tuple(_at(order, position) for order in (expected, got))
            if nodes[0] != nodes[1]:
                yield PassDifference(
                    "order", f"{prefix}{thread}node {position} of {len(expected)}", *nodes
                )
                return


def _threads(call: BackwardCall) -> list[list[str]]:
    orders = list(call.order.values())
    return orders if len(orders) < 2 else sorted(orders)


def _at(order: list[str], position: int) -> str:
    return order[position] if position < len(order) else "nothing more"
