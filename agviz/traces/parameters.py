"""Reading which parameters were known when a graph task began."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agviz.traces.rows import ParameterRow
from agviz.words.shapes import read_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


def read(
    database: Database, contents: Contents, graph_task: int, accumulators: Mapping[str, int]
) -> list[ParameterRow]:
    """In the order in which they were learnt; empty where none was known.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    sets = database.integers(
        "SELECT parameters, had_grad FROM parameters WHERE graph_task = ?", graph_task
    )
    if not sets:
        return []
    ((number, had_grad),) = sets
    rows = database.integers(
        "SELECT number, name, shape, dtype, requires_grad FROM parameter WHERE parameters = ?"
        " ORDER BY number",
        number,
    )
    norms = database.reals(
        "SELECT norm FROM parameter WHERE parameters = ? ORDER BY number", number
    )
    if any(norm is not None and not 0 <= norm < math.inf for (norm,) in norms):
        raise database.damaged("a norm is none")
    text = contents.name
    truths = text(had_grad)
    if len(truths) == 1:
        truths *= len(rows)
    is_numbered = [row[0] for row in rows] == list(range(len(rows)))
    if not is_numbered or len(truths) != len(rows) or set(truths) - {"0", "1"}:
        raise database.damaged("a set of parameters makes no sense")
    found = []
    for truth, (_, name, shape, dtype, requires_grad), (norm,) in zip(
        truths, rows, norms, strict=True
    ):
        try:
            sizes = read_shape(text(shape))
        except (ValueError, RecursionError) as error:
            raise database.damaged("a shape is none") from error
        known = text(name)
        facts = known, sizes, text(dtype), bool(requires_grad), truth == "1"
        found.append(ParameterRow(*facts, accumulators.get(known), norm))
    return found
