"""What is measured while the native engine is observed is what the exact engine measures."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
from agviz_engine.emissions import DELIVERED
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")


def measured(path: Path, program: Any, engine: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Figures of each gradient, by the pass, the event and its fields."""
    torch.manual_seed(0)
    with agviz.trace(path=path, engine=engine, provenance=False):
        program()
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT event.graph_task - (SELECT min(id) FROM graph_task), kind, node, a, b, c,"
            " tensor_type.dtype IS NOT NULL, health.nan, posinf, neginf, zero, min, max, mean, norm"
            " FROM health"
            " JOIN event ON event.seq = health.seq"
            " JOIN tensor_type ON tensor_type.id = tensor_type ORDER BY health.seq"
        ).fetchall()
    database.close()
    return {row[:6]: row[6:] for row in rows}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_health_is_the_same(name: str, tmp_path: Path) -> None:
    exact = measured(tmp_path / "exact.agviz", PROGRAMS[name], "exact")
    native = measured(tmp_path / "native.agviz", PROGRAMS[name], "native")
    assert exact
    assert native.keys() <= exact.keys()
    assert {key: exact[key] for key in native} == native
    unseen = {kind for _, kind, *_ in exact.keys() - native.keys()}
    assert unseen <= {DELIVERED}, "sums on the way, and those at nodes that are not run"
