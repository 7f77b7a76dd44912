"""How nodes and the queues they run on are called."""

from __future__ import annotations


def numbered(order: int | None, name: str) -> str:
    """A node by its place in the order of execution: ``#12 AddmmBackward0``; ``AddmmBackward0``."""
    return f"#{order} {name}" if order else name


def of_owner(name: str, owner: str | None) -> str:
    """A node and its parameter or module: ``AccumulateGrad of head.weight``; ``MulBackward0``."""
    return f"{name} of {owner}" if owner else name


def with_origin(name: str, *origins: object) -> str:
    """A node and what is known of where it comes from: ``MulBackward0 (encoder, model.py:12)``."""
    known = ", ".join(str(origin) for origin in origins if origin)
    return f"{name} ({known})" if known else name


def queue_label(queue: int) -> str:
    """A ReadyQueue's device: ``device 0``, or ``caller`` for the queue of a calling thread."""
    return f"device {queue}" if queue >= 0 else "caller"
