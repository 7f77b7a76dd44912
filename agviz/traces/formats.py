"""The formats of trace files that can be read, and how an earlier one is read as today's.

Note [Earlier formats]
A file of an earlier format is never changed and never copied: for each table that has become
another one since, the connection that reads it gets a temporary view of the same name, which SQLite
finds first. A view costs nothing where the file is opened, keeps up with a file that grows, and
uses the file's indexes. What such a view is of is known word by word: the file's schema has to be
that of its format (Note [Hostile files]), whose digest is kept here, as its text is gone from
``schema.py``.

Whoever raises ``SCHEMA_VERSION`` writes into ``later`` of the format before which tables it does
not have in the new form, and enters the new one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class TraceFormat(NamedTuple):
    """One format."""

    schemas: frozenset[str]
    """Digests (:func:`digest`) of a file that still grows or was cut off, and of a closed one."""
    later: Mapping[str, str] = {}
    """Tables that the next format has otherwise, or has in addition: a query each that gives its
    columns, in order; ``{name}`` represents a table of this format."""


FORMATS: Final[dict[int, TraceFormat]] = {
    19: TraceFormat(
        frozenset(
            {
                "fb9c682eaf19221d28b08b53d91b0cf3ed5bb138ee2828a4ef9dddf0707c9444",
                "b7a88e7a1ac46af6cf478c48a816de9879ac98cc75f75390352e4726b050787e",
            }
        ),
        later={
            "optimizer_step": (
                "SELECT id, begin_t, t, thread, graph_task, optimizer, is_guarded,"
                " NULL AS sequence_nr FROM {optimizer_step}"
            )
        },
    ),
    20: TraceFormat(
        frozenset(
            {
                "709a4d1eabde3fd1ac5e0b87af6bfcc3eeb1b4275c04997bf9c2ba144ffa7fe8",
                "4a29ce3e998a6bde8d600c9cad32be6bee09c56f91a28705fdd3582d53c1c45f",
            }
        )
    ),
}
"""All from that of release 0.1.0, the first whose files later releases read, to today's."""

FIRST_RELEASE: Final = "0.1.0"
"""The release that wrote the first of them."""


def digest(rows: Iterable[tuple[object, ...]]) -> str:
    """What identifies a schema: ``type``, ``name``, ``tbl_name`` and ``sql`` of each."""
    text = "\0".join(sorted("\0".join(map(str, row)) for row in rows))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def views(format_: int, before: int | None = None) -> Iterator[str]:
    """Statements that have a connection see the tables of a format as those of today.

    Args:
        format_: of the file.
        before: have it see what had been recorded before this graph task, and no more; None: all.
    """
    of_file = {name: f"main.{name}" for name in schema.TABLES}
    now = dict(of_file)
    for number in range(format_, schema.SCHEMA_VERSION):
        later = FORMATS[number].later
        now |= {name: f"({query.format_map(now)})" for name, query in later.items()}
    if before is not None:
        steps = f"(SELECT id FROM {now['optimizer_step']} WHERE graph_task < {before:d})"  # noqa: S608 - ours
        for name, condition in schema.EARLIER.items():
            wanted = condition.format(graph_task=before, steps=steps)
            now[name] = f"(SELECT * FROM {now[name]} WHERE {wanted})"  # noqa: S608 - ours
    for name, source in now.items():
        if source != of_file.get(name):
            yield f"CREATE TEMP VIEW {name} AS SELECT * FROM {source}"  # noqa: S608 - ours


def readable() -> str:
    """The formats that can be read, in words."""
    first = min(FORMATS)
    return str(first) if first == schema.SCHEMA_VERSION else f"{first} to {schema.SCHEMA_VERSION}"
