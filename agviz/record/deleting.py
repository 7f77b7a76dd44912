"""Deleting backward passes from a file that is being written, so that others find room in it.

SQLite uses the pages again. What other passes may share stays (texts, stacks, types of tensors),
and so do the steps of optimizers, which are counted, but not what was measured of them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from agviz.traces import schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from agviz.record.retention import Pass
    from agviz.traces.left_out import LeftOut

_OF_SEQ: Final = ("health", "tensor", "part")
"""Tables whose rows belong to an event each."""

_OF_STEP: Final = ("step_fact", "step_sample")
"""Tables whose rows belong to a step each: what is said of all steps needs all passes."""

_MEASURED: Final = ("saved_health", "root", "root_saved")
"""Tables that refer to rows of ``measured``, each of which is referred to once."""


def delete(database: sqlite3.Connection, gone: Sequence[Pass], left_out: Sequence[LeftOut]) -> None:
    """Delete passes, and note which are left out in all, in one transaction.

    Raises:
        sqlite3.Error: the file can't be written to.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        for tasks, of_these in _runs(gone):
            _delete(database, tasks, of_these)
        database.execute("DELETE FROM left_out")
        database.executemany("INSERT INTO left_out VALUES (?, ?, ?, ?)", left_out)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _runs(gone: Sequence[Pass]) -> Iterator[tuple[tuple[int, int], list[Pass]]]:
    """The first and the last of graph tasks that follow each other, and their passes."""
    owners = sorted((task, place) for place, each in enumerate(gone) for task in each.tasks)
    for _, run in groupby(enumerate(owners), lambda numbered: numbered[1][0] - numbered[0]):
        found = [owner for _, owner in run]
        yield (
            (found[0][0], found[-1][0]),
            [gone[place] for place in dict.fromkeys(place for _, place in found)],
        )


def _delete(database: sqlite3.Connection, tasks: tuple[int, int], gone: Sequence[Pass]) -> None:
    """Delete the rows of passes: of the graph tasks from a first one up to a last."""
    execute = database.execute
    span = min(each.begin_seq for each in gone), max(each.last_seq for each in gone)
    of_these = "seq BETWEEN ? AND ? AND graph_task BETWEEN ? AND ?"
    for table in _OF_SEQ:
        execute(
            f"DELETE FROM {table} WHERE seq BETWEEN ? AND ?"  # noqa: S608 - our words
            f" AND seq IN (SELECT seq FROM event WHERE {of_these})",
            (*span, *span, *tasks),
        )
    execute(f"DELETE FROM event WHERE {of_these}", (*span, *tasks))  # noqa: S608
    for each in gone:
        for chunks in each.chunks:
            execute("DELETE FROM chunk WHERE id BETWEEN ? AND ?", (chunks.start, chunks.stop - 1))
        for ops in each.ops:
            _delete_forward(database, ops, tasks)
    for table in _MEASURED:
        execute(
            "DELETE FROM measured WHERE id IN"  # noqa: S608 - our words
            f" (SELECT health FROM {table} WHERE graph_task BETWEEN ? AND ?)",
            tasks,
        )
    for table in _OF_STEP:
        execute(
            f"DELETE FROM {table} WHERE step IN"  # noqa: S608 - our words
            " (SELECT id FROM optimizer_step WHERE graph_task BETWEEN ? AND ?)",
            tasks,
        )
    execute("DELETE FROM native_call WHERE graph_task BETWEEN ? AND ? AND error = 0", tasks)
    for table in schema.OF_GRAPH_TASK:
        execute(f"DELETE FROM {table} WHERE graph_task BETWEEN ? AND ?", tasks)  # noqa: S608
    execute("DELETE FROM graph_task WHERE id BETWEEN ? AND ?", tasks)


def _delete_forward(database: sqlite3.Connection, ops: range, tasks: tuple[int, int]) -> None:
    """Delete those of some torch functions that were called for graph tasks."""
    called = ops.start, ops.stop - 1, *tasks
    own = "SELECT id FROM forward_op WHERE id BETWEEN ? AND ? AND graph_task BETWEEN ? AND ?"
    database.execute(
        "DELETE FROM measured WHERE id IN"  # noqa: S608 - our words
        f" (SELECT health FROM forward_tensor WHERE op IN ({own}))",
        called,
    )
    database.execute(f"DELETE FROM located WHERE op IN ({own})", called)  # noqa: S608
    database.execute(f"DELETE FROM forward_tensor WHERE op IN ({own})", called)  # noqa: S608
    database.execute(f"DELETE FROM forward_op WHERE id IN ({own})", called)  # noqa: S608
